//! The veth pair per arm through which the kernel's packets enter the programs. What the kernel
//! sends on the outer end, which has the name of the arm's TAP on the DPDK plane, arrives at the
//! inner end, to which the program is attached.
//!
//! The kernel sends its own packets directly through the NIC, where the programs do not see them.
//! Two kinds have to pass the programs and are routed here: health checks sent from the source
//! address reserved for one backend, which a tunnel delivers to that backend, and replies of
//! proxies. Each arm has a routing table that leads here. Packets whose mark equals the table's
//! number use it; for unmarked packets, slowpath adds rules.

use config::checked::{Arm, PROXY_RULE_PROTOCOL, ROUTE_TABLES};
use netlink::rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoVeth, LinkAttribute,
};
use netlink::rtnetlink::packet_route::route::RouteProtocol;
use netlink::rtnetlink::packet_route::rule::RuleAttribute;
use netlink::rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink::rtnetlink::{LinkUnspec, LinkVeth};
use netlink::{NEW, Netlink, Setting, Verb};

use super::addresses::AddedSettings;
use super::nic::{Kernel, Nic};

/// Priority of the rules: after the rule of the local table (0), before that of the main table
/// (32,766).
const PRIORITY: u32 = 6081;

/// Maximum length of an interface name in bytes.
const MAX_NAME: usize = 15;

/// Returns the name of the end to which the program is attached.
fn inner_end(tap: &str) -> String {
    const SUFFIX: &str = "-x";
    let prefix_len = tap.floor_char_boundary(MAX_NAME - SUFFIX.len());
    format!("{}{SUFFIX}", &tap[..prefix_len])
}

/// Enables IPv6 on an interface. Returns false if the kernel has no IPv6 or rejects the change.
fn enable_ipv6(interface: &str) -> bool {
    let disabled = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match std::fs::read_to_string(&disabled) {
        Ok(text) => text.trim() == "0" || std::fs::write(&disabled, "0").is_ok(),
        Err(_) => false,
    }
}

/// Creates and configures the pair of the arm with this index, or reuses that of an earlier start,
/// and returns the end for the program. Deletes the TAP of the DPDK plane, which has the same name.
/// An error names the `ip` command, the interface or the record file.
pub fn open(
    kernel: &mut Kernel,
    arm_index: usize,
    arm: &Arm,
    nic: &Nic,
    added: &AddedSettings,
) -> Result<Nic, String> {
    let (outer, inner) = (arm.tap.as_str(), inner_end(&arm.tap));
    let pair = (find(kernel, outer)?, find(kernel, &inner)?);
    let netlink = &mut kernel.netlink;
    match &pair {
        (Some(tap), None) if tap.driver == "tun" => netlink.delete_link(outer)?,
        (Some(other), None) => {
            return Err(format!(
                "{outer} is an existing interface ({}) that Weir did not create; set another `tap` \
                 for the arm",
                other.driver
            ));
        }
        _ => {}
    }
    if !matches!(pair, (Some(_), Some(_))) {
        let (mtu, mac) = (nic.mtu, nic.mac_text());
        let peer = LinkUnspec::new_with_name(&inner).mtu(mtu).build();
        let veth = LinkVeth::new(outer, &inner).mtu(mtu).address(nic.mac.to_vec());
        let veth = veth.set_info_data(InfoData::Veth(InfoVeth::Peer(peer))).build();
        let ends = format!("{outer} mtu {mtu} address {mac} type veth peer name {inner} mtu {mtu}");
        let created = netlink.apply_message(
            format!("link add {ends}"),
            RouteNetlinkMessage::NewLink(veth),
            NEW,
        );
        added.record_added(created, &format!("link delete dev {outer}"))?;
    }
    // No neighbor resolution: the programs write the next hop's MAC address. Nor may the kernel
    // send what belongs to the interface itself: router solicitations, MLD, duplicate address
    // detection.
    for end in [outer, inner.as_str()] {
        let no_addresses = vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)];
        let no_addresses = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(no_addresses)]);
        netlink.set_link(end, "arp off multicast off addrgenmode none", |link| {
            link.arp(false).multicast(false).append_extra_attribute(no_addresses)
        })?;
        netlink.set_link(end, "up", |link| link.up())?;
    }
    // Programs see packets before checksum offload, so the kernel must compute all checksums.
    kernel.disable_offloads(outer).map_err(|e| format!("{outer}: cannot disable offloads: {e}"))?;
    let table = ROUTE_TABLES[arm_index & 1];
    let families = [AddressFamily::Inet, AddressFamily::Inet6];
    for family in &families[..1 + usize::from(enable_ipv6(outer))] {
        let route = Setting::TableRoute(*family, table, outer.to_owned());
        kernel.netlink.apply(Verb::Replace, &route)?;
        added.apply(&mut kernel.netlink, &Setting::MarkRule(*family, table, PRIORITY))?;
    }
    find(kernel, &inner)?.ok_or_else(|| format!("{inner} disappeared after its creation"))
}

fn find(kernel: &mut Kernel, name: &str) -> Result<Option<Nic>, String> {
    kernel.nic(name).map_err(|e| format!("cannot query interface {name}: {e}"))
}

/// Deletes the rules by which slowpath routes proxies' replies here.
pub fn remove_proxy_rules(netlink: &mut Netlink) {
    let own_protocol = RuleAttribute::Protocol(RouteProtocol::from(PROXY_RULE_PROTOCOL));
    for rule in netlink.rules().unwrap_or_default() {
        if rule.attributes.contains(&own_protocol) {
            // A rule that no longer exists is ignored.
            let _ = netlink.change(RouteNetlinkMessage::DelRule(rule), 0);
        }
    }
}
