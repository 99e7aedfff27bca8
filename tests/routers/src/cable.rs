//! Namespaces and the veth pairs between them.

use std::sync::Arc;

use tests::lab::Result;
use tests::lab::netns::Netns;

/// One end of a veth pair.
pub struct End<'a> {
    /// The namespace.
    pub ns: &'a Netns,
    /// The device name.
    pub device: &'a str,
    /// The addresses with prefix lengths: `10.0.0.1/24`, `fd00::1/64`.
    pub addresses: &'a [&'a str],
}

/// Creates a namespace with both families enabled and only `lo`.
pub fn namespace(name: &str) -> Result<Arc<Netns>> {
    let ns = Netns::new(name)?;
    for which in ["all", "default"] {
        ns.sysctl(&format!("ipv6/conf/{which}/disable_ipv6"), "0")?;
        // Duplicate addresses need no detection, because these links have no other hosts.
        ns.sysctl(&format!("ipv6/conf/{which}/accept_dad"), "0")?;
    }
    Ok(Arc::new(ns))
}

/// Creates a veth pair between two namespaces, both ends up and with their addresses. `ip link set
/// DEVICE down` at either end removes the carrier of both ends.
pub fn veth_pair(one: End<'_>, two: End<'_>) -> Result<()> {
    let link = format!(
        "link add {} type veth peer name {} netns {}",
        one.device,
        two.device,
        two.ns.path()
    );
    one.ns.ip(&[&link])?;
    for end in [one, two] {
        let device = end.device;
        // With the sysctl `accept_dad` alone an IPv6 address stays tentative for a moment; `nodad`
        // makes it usable at once.
        let flag = |address: &str| if address.contains(':') { " nodad" } else { "" };
        let add = |address: &str| format!("address add {address} dev {device}{}", flag(address));
        let addresses = end.addresses.iter().map(|address| add(address));
        let lines: Vec<String> = addresses.chain([format!("link set dev {device} up")]).collect();
        end.ns.ip(&lines.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Creates two namespaces with a router between them, and returns the near one, the router's and
/// the far one. The near one has 10.0.1.1 and fd01::1 on `to-middle`, the far one 10.0.2.2 and
/// fd02::2 on `to-middle`; the router's devices are `to-near` and `to-far`.
pub fn routed_namespaces() -> Result<[Arc<Netns>; 3]> {
    let [near, middle, far] = [namespace("near")?, namespace("middle")?, namespace("far")?];
    veth_pair(
        End { ns: &near, device: "to-middle", addresses: &["10.0.1.1/24", "fd01::1/64"] },
        End { ns: &middle, device: "to-near", addresses: &["10.0.1.9/24", "fd01::9/64"] },
    )?;
    veth_pair(
        End { ns: &far, device: "to-middle", addresses: &["10.0.2.2/24", "fd02::2/64"] },
        End { ns: &middle, device: "to-far", addresses: &["10.0.2.9/24", "fd02::9/64"] },
    )?;
    middle.sysctl("ipv4/ip_forward", "1")?;
    middle.sysctl("ipv6/conf/all/forwarding", "1")?;
    // No default route: FRR does not use one to reach a neighbor.
    near.ip(&["route add 10.0.2.0/24 via 10.0.1.9", "route add fd02::/64 via fd01::9"])?;
    far.ip(&["route add 10.0.1.0/24 via 10.0.2.9", "route add fd01::/64 via fd02::9"])?;
    Ok([near, middle, far])
}
