//! Validation of arms and NAT: devices, addresses, and what must differ between the two arms.

use super::validator::{Validator, list_key, port_range};
use crate::checked::device::is_interface;
use crate::checked::{Arm, ArmName, Device, DeviceName, Interface, Nat, NatAddress, Plane, Prefix};
use crate::file;

/// Maximum number of addresses of both arms together: the capacity of the region.
const MAX_ADDRESSES: usize = 16;

/// Maximum number of NAT source addresses: the capacity of the region.
const MAX_NAT_ADDRESSES: usize = 8;

/// Validates a single arm.
pub(super) fn check_arm(
    validator: &mut Validator,
    name: &str,
    file: file::Arm,
    (planes, lcores): (&[Plane], u16),
) -> Arm {
    let key = |field: &str| format!("{name}.{field}");
    let tap = match (file.tap.as_str(), name) {
        ("", "ingress") => "weir-in",
        ("", _) => "weir-out",
        (tap, _) => tap,
    };
    if !is_interface(tap) {
        let remedy = "write 1 to 15 characters without `/`, `:` and spaces";
        validator.reject(&key("tap"), "not a valid interface name", remedy);
    }
    if file.queues > lcores {
        let fault = format!("there are only {lcores} lcores to poll them");
        let remedy = "write 0 for one queue per lcore, or add to fastpath.lcores";
        validator.reject(&key("queues"), &fault, remedy);
    }
    for (field, count) in
        [("rx_descriptors", file.rx_descriptors), ("tx_descriptors", file.tx_descriptors)]
    {
        if !count.is_power_of_two() {
            let near = count.next_power_of_two();
            validator.reject(&key(field), "not a power of two", &format!("for example {near}"));
        }
    }
    let addresses = check_addresses(validator, name, &file.address);
    let device = check_device(validator, planes, &key("device"), &file.device);
    let gateways = check_routers(validator, name, &file.gateway, &addresses);
    let network = &file.ipip_sources;
    Arm {
        device,
        gateways,
        ipip_sources: check_ipip_sources(validator, &key("ipip_sources"), network, &addresses),
        addresses,
        mtu: file.mtu,
        queues: if file.queues == 0 { lcores } else { file.queues },
        rx_descriptors: file.rx_descriptors,
        tx_descriptors: file.tx_descriptors,
        tap: tap.to_owned(),
    }
}

/// Validates the device of an arm. A rejected text becomes a device without a name, which no other
/// rule compares.
fn check_device(validator: &mut Validator, planes: &[Plane], key: &str, text: &str) -> Device {
    let device = match Device::parse(text) {
        Ok(device) => device,
        Err(error) => {
            validator.reject(key, &error.fault, &error.remedy);
            return Device::unnamed();
        }
    };
    let usable = match device.name() {
        DeviceName::Vdev(_) if planes.contains(&Plane::Xdp) => {
            device.interface().is_some_and(is_interface)
        }
        _ => true,
    };
    if !usable {
        let fault = "a virtual device of DPDK without an interface of the kernel";
        let xdp = match planes.contains(&Plane::Dpdk) {
            true => "with plane auto, which may select xdp",
            false => "with plane xdp",
        };
        let remedy = format!(
            "{xdp}, write an interface (\"eth1\"; `weir nic list` shows them), or a DPDK device \
             that uses one (\"net_af_packet0,iface=eth1\")"
        );
        validator.reject(key, fault, &remedy);
    }
    device
}

fn check_addresses(validator: &mut Validator, name: &str, texts: &[String]) -> Vec<Interface> {
    if texts.is_empty() {
        let key = format!("{name}.address");
        let remedy = format!("write for example {key} = \"10.0.1.10/24\"");
        validator.reject(&key, "the arm has no address", &remedy);
    }
    let keyed = texts.iter().enumerate();
    let keyed = keyed.map(|(i, text)| (list_key(name, "address", i, texts), text));
    keyed.filter_map(|(key, text)| validator.interface(&key, text)).collect()
}

fn check_routers(
    validator: &mut Validator,
    name: &str,
    texts: &[String],
    addresses: &[Interface],
) -> Vec<std::net::IpAddr> {
    let mut routers: Vec<std::net::IpAddr> = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        let key = list_key(name, "gateway", i, texts);
        let Some(router) = validator.address(&key, text) else { continue };
        let mut family = addresses.iter().filter(|a| a.addr.is_ipv4() == router.is_ipv4());
        let networks: Vec<String> = family.clone().map(|a| a.network().to_string()).collect();
        if routers.iter().any(|r| r.is_ipv4() == router.is_ipv4()) {
            let fault = "a second router of this family";
            validator.reject(&key, fault, "write at most one IPv4 and one IPv6 router");
        } else if networks.is_empty() {
            let family = if router.is_ipv4() { "IPv4" } else { "IPv6" };
            let fault = format!("the arm has no {family} address to reach it from");
            validator.reject(&key, &fault, &format!("add one to {name}.address"));
        } else if addresses.iter().any(|a| a.addr == router) {
            validator.reject(
                &key,
                "this is the arm's own address",
                "write the address of the router",
            );
        } else if !family.any(|a| a.network().contains(router)) {
            let remedy = format!("write an address in {}", networks.join(" or "));
            validator.reject(&key, "the router is not in the arm's network", &remedy);
        }
        routers.push(router);
    }
    routers
}

/// Validates the network from which an arm's outer IPIP sources are taken.
fn check_ipip_sources(
    validator: &mut Validator,
    key: &str,
    text: &str,
    addresses: &[Interface],
) -> Option<Prefix> {
    if text.is_empty() {
        return None;
    }
    let network = validator.prefix(key, text)?;
    let remedy = "write an IPv4 network of /8 to /30 that is routed to this arm, \
                   for example \"100.64.7.0/24\"; IPIP over IPv6 uses the flow label instead";
    if !network.addr.is_ipv4() || !(8..=30).contains(&network.len) {
        validator.reject(key, "not an IPv4 network of /8 to /30", remedy);
        return None;
    }
    validator.address(key, &network.addr.to_string())?;
    if !addresses.iter().any(|own| own.addr.is_ipv4()) {
        let fault = "the arm has no IPv4 address and sends no IPIP over IPv4";
        validator.reject(key, fault, "remove this key, or add an IPv4 address to the arm");
    }
    Some(network)
}

/// Checks that IPIP sources are not assigned to anything: not on link, where neighbors would
/// resolve their MAC addresses in vain, and not NAT addresses, whose replies would be taken for
/// tunnel packets.
pub(super) fn check_ipip_sources_unassigned(
    validator: &mut Validator,
    ingress: &Arm,
    egress: Option<&Arm>,
    nat: &Nat,
) {
    let arms = || [Some(("ingress", ingress)), egress.map(|arm| ("egress", arm))];
    let arms = || arms().into_iter().flatten();
    let on_link = |(name, arm): (&'static str, &Arm)| -> Vec<(String, Prefix)> {
        let of = |own: &Interface| (format!("{name}.address"), own.network());
        arm.addresses.iter().map(of).collect()
    };
    let host = |addr: std::net::IpAddr| Prefix { addr, len: if addr.is_ipv4() { 32 } else { 128 } };
    let mut taken: Vec<(String, Prefix)> = arms().flat_map(on_link).collect();
    taken.extend(nat.addresses.iter().map(|nat| ("nat.addresses".to_owned(), host(nat.addr))));
    for (name, arm) in arms() {
        let Some(network) = arm.ipip_sources else { continue };
        let key = format!("{name}.ipip_sources");
        if let Some((other, found)) = taken.iter().find(|(_, other)| network.overlaps(other)) {
            let fault = format!("{network} overlaps {found} of {other}");
            let remedy = "write an unassigned network that is routed to this arm";
            validator.reject(&key, &fault, remedy);
        }
        taken.push((key, network));
    }
}

/// Checks that the two arms share no device, TAP name or address, and warns if they share a
/// network.
pub(super) fn check_overlaps(
    validator: &mut Validator,
    planes: &[Plane],
    ingress: &Arm,
    egress: Option<&Arm>,
) {
    let arms = [Some(("ingress", ingress)), egress.map(|arm| ("egress", arm))];
    let (mut taps, mut addresses) = (Vec::new(), Vec::new());
    for (name, arm) in arms.into_iter().flatten() {
        let interface = arm.device.interface();
        addresses.extend(arm.addresses.iter().map(|a| (format!("{name}.address"), a.addr)));
        if !planes.contains(&Plane::Dpdk) {
            // The NIC itself is the kernel's interface.
            continue;
        }
        taps.push((format!("{name}.tap"), arm.tap.clone()));
        if interface == Some(arm.tap.as_str()) {
            let fault = "the device itself is an interface of this name";
            validator.reject(
                &format!("{name}.tap"),
                fault,
                "write another name: Weir creates the TAP",
            );
        }
    }
    let devices = |plane: &Plane| -> Vec<(String, String)> {
        let each = arms.into_iter().flatten().map(|(name, arm)| {
            let interface = arm.device.interface().filter(|_| *plane == Plane::Xdp);
            let port = interface.map_or_else(|| arm.device.name().to_string(), str::to_owned);
            (format!("{name}.device"), port)
        });
        each.collect()
    };
    // If both arms name the same device on both planes, the fault is reported once.
    let twice = |devices: &Vec<(String, String)>| {
        devices.iter().any(|one| devices.iter().filter(|other| one.1 == other.1).count() > 1)
    };
    let same = planes.iter().map(devices).find(twice);
    if let Some(devices) = same.filter(|_| ingress.device != Device::unnamed()) {
        validator.unique(&devices, "device");
    }
    validator.unique(&taps, "interface name");
    validator.unique(&addresses, "address");
    if addresses.len() > MAX_ADDRESSES {
        let fault = format!("{} addresses on both arms together", addresses.len());
        validator.reject("ingress.address", &fault, &format!("allowed: {MAX_ADDRESSES}"));
    }
    let egress = egress.map_or(&[][..], |arm| &arm.addresses);
    for (a, b) in ingress.addresses.iter().flat_map(|a| egress.iter().map(move |b| (a, b))) {
        if a.network().contains(b.addr) || b.network().contains(a.addr) {
            validator.warnings.push(format!(
                "ingress.address {a} and egress.address {b} are in one network: neighbors are \
                 resolved on one arm only"
            ));
        }
    }
}

/// Validates NAT source addresses and ports.
pub(super) fn check_nat(
    validator: &mut Validator,
    file: file::Nat,
    ingress: &Arm,
    egress: Option<&Arm>,
) -> Nat {
    let mut keyed = Vec::new();
    for (i, text) in file.addresses.iter().enumerate() {
        let key = list_key("nat", "addresses", i, &file.addresses);
        keyed.extend(validator.address(&key, text).map(|addr| (key, addr)));
    }
    validator.unique(&keyed, "address");
    if keyed.len() > MAX_NAT_ADDRESSES {
        let remedy = format!("allowed: {MAX_NAT_ADDRESSES}");
        validator.reject("nat.addresses", "too many addresses", &remedy);
    }
    let on = |arm: &Arm, addr| arm.addresses.iter().any(|a| a.network().contains(addr));
    let mut addresses = Vec::new();
    for (key, addr) in keyed {
        let (arm_name, arm) = match egress {
            Some(egress) if on(egress, addr) || !on(ingress, addr) => (ArmName::Egress, egress),
            _ => (ArmName::Ingress, ingress),
        };
        if arm.address(addr.is_ipv6()).is_none() && !arm.addresses.is_empty() {
            let (arm, family) = (arm_name.as_str(), if addr.is_ipv6() { "IPv6" } else { "IPv4" });
            let fault =
                format!("packets from it leave by the {arm} arm, which has no {family} address");
            validator.reject(
                &key,
                &fault,
                &format!("add one to {arm}.address, or remove this one"),
            );
        }
        addresses.push(NatAddress { addr, arm: arm_name });
    }
    let (first_port, last_port) =
        port_range(validator, "nat.ports", &file.ports, (1024, "1024-32767"));
    Nat { addresses, first_port, last_port }
}
