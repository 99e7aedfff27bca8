//! The kernel's way into the programs: a veth pair per arm. What the kernel sends by the one end,
//! named as the arm's TAP of the other plane is, comes in by the other, where the program is too.
//!
//! The kernel sends its own packets by the NIC, past the programs. What has to go through them goes
//! by here: probes from a backend's probe source, which a tunnel takes to that backend, and what a
//! proxy answers. A routing table of its own per arm leads here. Packets with its number as their
//! mark are routed by it; for those that nobody marks, slowpath adds rules that lead to it.

use config::checked::{Arm, ROUTES, RULES_OF_PROXIES};

use super::addresses::{Added, ip};
use super::nic::{Kernel, Nic};

/// The rules' place among others: before those of the system (32,766 is its main table's).
const PRIORITY: &str = "6081";

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
/// program. An error says which command failed, or whose interface is in the way.
pub fn open(kernel: &Kernel, n: usize, arm: &Arm, nic: &Nic, added: &Added) -> Result<Nic, String> {
    let (outer, inner) = (arm.tap.as_str(), inner_end(&arm.tap));
    let find = |name: &str| {
        let found = kernel.nic(name);
        found.map_err(|e| format!("can't ask the kernel for {name}: {e}"))
    };
    let pair = (find(outer)?, find(&inner)?);
    match &pair {
        (Some(tap), None) if tap.driver == "tun" => ip(&["link", "delete", "dev", outer])?,
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
        let (mtu, mac) = (nic.mtu.to_string(), nic.mac_text());
        let ends = ["type", "veth", "peer", "name", &inner, "mtu", &mtu];
        let make = [&["link", "add", outer, "mtu", &mtu, "address", &mac], &ends[..]].concat();
        added.note(ip(&make), &["link", "delete", "dev", outer])?;
    }
    // No neighbours: whoever answers, the next hop's address is written by the programs. And no
    // words of the kernel's own.
    for end in [outer, inner.as_str()] {
        ip(&["link", "set", "dev", end, "arp", "off", "multicast", "off", "addrgenmode", "none"])?;
        ip(&["link", "set", "dev", end, "up"])?;
    }
    // Programs see packets as they are: a checksum that the hardware would finish is a wrong one.
    kernel.send_whole(outer).map_err(|e| format!("{outer}: offloads stay on: {e}"))?;
    let table = ROUTES[n & 1].to_string();
    let families = if has_ipv6(outer) { &["-4", "-6"][..] } else { &["-4"] };
    for &family in families {
        ip(&[family, "route", "replace", "default", "dev", outer, "table", &table])?;
        let rule = ["fwmark", &table, "lookup", &table, "priority", PRIORITY];
        let [add, delete] =
            ["add", "delete"].map(|what| [&[family, "rule", what], &rule[..]].concat());
        added.note(ip(&add), &delete)?;
    }
    find(&inner)?.ok_or_else(|| format!("{inner} is gone again"))
}

/// Takes off the rules by which slowpath has proxies' answers come in here.
pub fn forget_proxies() {
    for family in ["-4", "-6"] {
        // None there is no trouble.
        let _ = ip(&[family, "rule", "flush", "protocol", &RULES_OF_PROXIES.to_string()]);
    }
}
