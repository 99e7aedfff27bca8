//! The kernel's way into the programs: a veth pair per arm. What the kernel sends by the one end,
//! named as the arm's TAP of the other plane is, comes in by the other, where the program is too.
//!
//! The kernel sends its own packets by the NIC, past the programs. What has to go through them goes
//! by here: probes from a backend's probe source, which a tunnel takes to that backend, and what a
//! proxy answers. A routing table of its own per arm leads here. Packets with its number as their
//! mark are routed by it; for those that nobody marks, slowpath adds rules that lead to it.

use config::checked::{Arm, ROUTES, RULES_OF_PROXIES};
use netlink::rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoVeth, LinkAttribute,
};
use netlink::rtnetlink::packet_route::route::RouteProtocol;
use netlink::rtnetlink::packet_route::rule::RuleAttribute;
use netlink::rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink::rtnetlink::{LinkUnspec, LinkVeth};
use netlink::{NEW, Netlink, Setting, Verb};

use super::addresses::Added;
use super::nic::{Kernel, Nic};

/// The rules' place among others: before those of the system (32,766 is its main table's).
const PRIORITY: u32 = 6081;

/// The longest name of an interface, bytes.
const NAME: usize = 15;

/// The name of the end at which the program is.
fn inner_end(tap: &str) -> String {
    const ENDS: &str = "-x";
    let room = tap.floor_char_boundary(NAME - ENDS.len());
    format!("{}{ENDS}", &tap[..room])
}

/// Whether an interface can carry IPv6. This one is ours: it may, although new ones may not.
fn has_ipv6(interface: &str) -> bool {
    let disabled = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match std::fs::read_to_string(&disabled) {
        Ok(text) => text.trim() == "0" || std::fs::write(&disabled, "0").is_ok(),
        Err(_) => false,
    }
}

/// Makes the pair of an arm, or finds it as an earlier start left it; gives the end for the
/// program. An error names the command of `ip` for what failed, or whose interface is in the way.
pub fn open(
    kernel: &mut Kernel,
    n: usize,
    arm: &Arm,
    nic: &Nic,
    added: &Added,
) -> Result<Nic, String> {
    let (outer, inner) = (arm.tap.as_str(), inner_end(&arm.tap));
    let pair = (find(kernel, outer)?, find(kernel, &inner)?);
    let netlink = &mut kernel.netlink;
    match &pair {
        (Some(tap), None) if tap.driver == "tun" => netlink.delete_link(outer)?,
        (Some(other), None) => {
            return Err(format!(
                "{outer} is somebody else's interface ({}): the kernel's probes have no way into \
                 the programs; give the arm another `tap`",
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
        let made = netlink.ip(format!("link add {ends}"), RouteNetlinkMessage::NewLink(veth), NEW);
        added.note(made, &format!("link delete dev {outer}"))?;
    }
    // No neighbours: whoever answers, the next hop's address is written by the programs. And no
    // words of the kernel's own.
    for end in [outer, inner.as_str()] {
        let no_addresses = vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)];
        let no_addresses = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(no_addresses)]);
        netlink.set_link(end, "arp off multicast off addrgenmode none", |link| {
            link.arp(false).multicast(false).append_extra_attribute(no_addresses)
        })?;
        netlink.set_link(end, "up", |link| link.up())?;
    }
    // Programs see packets as they are: a checksum that the hardware would finish is a wrong one.
    kernel.send_whole(outer).map_err(|e| format!("{outer}: offloads stay on: {e}"))?;
    let table = ROUTES[n & 1];
    let families = [AddressFamily::Inet, AddressFamily::Inet6];
    for family in &families[..1 + usize::from(has_ipv6(outer))] {
        let route = Setting::TableRoute(*family, table, outer.to_owned());
        kernel.netlink.apply(Verb::Replace, &route)?;
        added.apply(&mut kernel.netlink, &Setting::MarkRule(*family, table, PRIORITY))?;
    }
    find(kernel, &inner)?.ok_or_else(|| format!("{inner} is gone again"))
}

fn find(kernel: &mut Kernel, name: &str) -> Result<Option<Nic>, String> {
    kernel.nic(name).map_err(|e| format!("can't ask the kernel for {name}: {e}"))
}

/// Deletes the rules by which slowpath has proxies' answers come in here.
pub fn forget_proxies(netlink: &mut Netlink) {
    let ours = RuleAttribute::Protocol(RouteProtocol::from(RULES_OF_PROXIES));
    for rule in netlink.rules().unwrap_or_default() {
        if rule.attributes.contains(&ours) {
            // One that is gone already is no error.
            let _ = netlink.change(RouteNetlinkMessage::DelRule(rule), 0);
        }
    }
}
