//! Reads the inventory from sysfs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Interface, Inventory, IommuGroup, Location, Network, Nic, Sessions, UsedBy};
use crate::Root;
use crate::address::{BusAddress, MacAddress, PciAddress};
use crate::driver::{self, Driver, PciId, UserDriver};

/// Class id of VMBUS network devices (`HV_NIC` in the kernel).
const VMBUS_NETWORK: &str = "{f8615163-df3e-46c5-913f-f2d2f965ed0e}";

/// `ARPHRD_LOOPBACK`
const LOOPBACK: &str = "772";

/// Name of the IOMMU group that vfio creates for a device without an IOMMU.
const NO_IOMMU_GROUP: &str = "vfio-noiommu";

impl Inventory {
    /// Reads the devices of a machine. `network` and `sessions` are those of the same machine.
    pub fn read(root: &Root, network: &Network, sessions: &Sessions) -> Inventory {
        let mut interfaces: Vec<(Option<BusAddress>, Interface)> = root
            .list("sys/class/net")
            .iter()
            .filter(|name| root.exists(format!("sys/class/net/{name}/ifindex")))
            .filter(|name| attribute(root, name, "type").as_deref() != Some(LOOPBACK))
            .map(|name| (bus_address(root, name), interface(root, name, network, sessions)))
            .collect();
        inherit(&mut interfaces);
        let mut addresses: BTreeSet<BusAddress> =
            interfaces.iter().filter_map(|(address, _)| *address).collect();
        addresses.extend(pci_devices(root));
        addresses.extend(vmbus_devices(root));
        let mut nics: Vec<Nic> = Vec::new();
        for address in addresses {
            let (own, rest) = interfaces.into_iter().partition(|(of, _)| *of == Some(address));
            interfaces = rest;
            let own: Vec<(Option<BusAddress>, Interface)> = own;
            nics.push(nic(root, address, own.into_iter().map(|(_, one)| one).collect()));
        }
        nics.extend(interfaces.into_iter().map(|(_, one)| nic_without_bus(root, one, network)));
        pair(&mut nics);
        Inventory { nics }
    }
}

fn attribute(root: &Root, interface: &str, name: &str) -> Option<String> {
    root.read(format!("sys/class/net/{interface}/{name}"))
}

/// Returns the bus address of an interface's device: the innermost directory of the device's path
/// that is a PCI or VMBUS device. (The device of virtio is below its PCI device, and the PCI device
/// of a VF on Azure is below a VMBUS device.)
fn bus_address(root: &Root, interface: &str) -> Option<BusAddress> {
    let device = root.join(format!("sys/class/net/{interface}/device")).canonicalize().ok()?;
    let address = |directory: &Path| {
        let address = directory.file_name()?.to_str()?.parse::<BusAddress>().ok()?;
        root.exists(address.directory()).then_some(address)
    };
    device.ancestors().find_map(address)
}

/// Returns the PCI devices of class 2, network controller.
fn pci_devices(root: &Root) -> Vec<BusAddress> {
    let is_network = |name: &String| {
        let class = root.read(format!("sys/bus/pci/devices/{name}/class"));
        class.is_some_and(|class| class.starts_with("0x02"))
    };
    let names = root.list("sys/bus/pci/devices").into_iter().filter(is_network);
    names.filter_map(|name| name.parse().ok().map(BusAddress::Pci)).collect()
}

fn vmbus_devices(root: &Root) -> Vec<BusAddress> {
    let is_network = |name: &String| {
        let class = root.read(format!("sys/bus/vmbus/devices/{name}/class_id"));
        class.is_some_and(|class| class.eq_ignore_ascii_case(VMBUS_NETWORK))
    };
    let names = root.list("sys/bus/vmbus/devices").into_iter().filter(is_network);
    names.filter_map(|name| name.parse().ok().map(BusAddress::Vmbus)).collect()
}

fn interface(root: &Root, name: &str, network: &Network, sessions: &Sessions) -> Interface {
    let number = |file| attribute(root, name, file)?.parse::<u32>().ok();
    let entries = root.list(format!("sys/class/net/{name}"));
    let lower = entries.iter().filter_map(|entry| entry.strip_prefix("lower_"));
    let addresses = network.addresses.get(name).cloned().unwrap_or_default();
    let local = addresses.iter().map(|address| address.address);
    Interface {
        name: name.to_owned(),
        mac: attribute(root, name, "address").and_then(|mac| mac.parse::<MacAddress>().ok()),
        mtu: number("mtu"),
        // -1, or an error, if the speed is unknown.
        speed_mbit: number("speed").filter(|speed| *speed != 0 && *speed != u32::MAX),
        link: attribute(root, name, "operstate").unwrap_or_else(|| "unknown".to_owned()),
        master: root.link_name(format!("sys/class/net/{name}/master")),
        lower: lower.map(str::to_owned).collect(),
        sessions: local.filter(|address| sessions.contains(*address)).collect(),
        default_routes: network.default_routes.get(name).cloned().unwrap_or_default(),
        addresses,
    }
}

/// Passes default routes and sessions of an interface on to those below it: the members of a bond
/// or bridge, the NIC of a VLAN, and the VF of a synthetic NIC.
fn inherit(interfaces: &mut [(Option<BusAddress>, Interface)]) {
    let positions: BTreeMap<String, usize> = interfaces
        .iter()
        .enumerate()
        .map(|(position, (_, interface))| (interface.name.clone(), position))
        .collect();
    for start in 0..interfaces.len() {
        let (routes, sessions) =
            (interfaces[start].1.default_routes.clone(), interfaces[start].1.sessions.clone());
        if routes.is_empty() && sessions.is_empty() {
            continue;
        }
        let (mut visited, mut next) = (BTreeSet::from([start]), vec![start]);
        while let Some(upper) = next.pop() {
            let upper = &interfaces[upper].1;
            let has_master =
                interfaces.iter().filter(|(_, one)| one.master.as_ref() == Some(&upper.name));
            let below = upper.lower.iter().chain(has_master.map(|(_, one)| &one.name));
            let below: Vec<usize> = below.filter_map(|name| positions.get(name)).copied().collect();
            for position in below.into_iter().filter(|position| visited.insert(*position)) {
                let lower = &mut interfaces[position].1;
                let new_routes: Vec<_> =
                    routes.iter().filter(|route| !lower.default_routes.contains(route)).collect();
                lower.default_routes.extend(new_routes);
                let new_sessions: Vec<_> =
                    sessions.iter().filter(|address| !lower.sessions.contains(address)).collect();
                lower.sessions.extend(new_sessions);
                next.push(position);
            }
        }
    }
}

fn pci_id(root: &Root, address: BusAddress) -> Option<PciId> {
    let number = |file: &str| {
        let text = root.read(format!("{}/{file}", address.directory()))?;
        u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    matches!(address, BusAddress::Pci(_))
        .then(|| Some(PciId { vendor: number("vendor")?, device: number("device")? }))
        .flatten()
}

fn nic(root: &Root, address: BusAddress, interfaces: Vec<Interface>) -> Nic {
    let directory = address.directory();
    let kernel_driver = root.link_name(format!("{directory}/driver"));
    let pci_id = pci_id(root, address);
    // Variants of vfio-pci for a device family are named mlx5_vfio_pci, virtio_vfio_pci, ...
    let hands_out = |name: &str| name.parse::<UserDriver>().is_ok() || name.ends_with("vfio_pci");
    let used_by = match kernel_driver.as_deref() {
        None | Some("pci-stub" | "pciback") => UsedBy::Nothing,
        Some(name) if hands_out(name) => UsedBy::Process,
        Some(_) => UsedBy::Kernel,
    };
    Nic {
        location: Location::Bus(address),
        pci_id,
        used_by,
        dpdk_driver: dpdk_driver(address, pci_id, kernel_driver.as_deref()),
        kernel_driver,
        interfaces,
        before: None,
        numa_node: root.read(format!("{directory}/numa_node")).and_then(|node| node.parse().ok()),
        iommu_group: iommu_group(root, address),
        pair: None,
    }
}

/// Returns the driver of DPDK by the device's id, or else by its kernel driver, because the kernel
/// has the ids of new hardware first.
fn dpdk_driver(
    address: BusAddress,
    pci_id: Option<PciId>,
    kernel_driver: Option<&str>,
) -> Option<&'static Driver> {
    match address {
        BusAddress::Vmbus(_) => Some(driver::netvsc()),
        BusAddress::Pci(_) => pci_id
            .and_then(driver::by_pci_id)
            .or_else(|| kernel_driver.and_then(driver::by_kernel_driver)),
    }
}

fn iommu_group(root: &Root, address: BusAddress) -> Option<IommuGroup> {
    let number = root.link_name(format!("{}/iommu_group", address.directory()))?;
    let group = format!("sys/kernel/iommu_groups/{number}");
    if root.read(format!("{group}/name")).as_deref() == Some(NO_IOMMU_GROUP) {
        return None;
    }
    let members = root.list(format!("{group}/devices"));
    let members = members.iter().filter_map(|name| name.parse::<PciAddress>().ok());
    Some(IommuGroup {
        number: number.parse().ok()?,
        translation: root.read(format!("{group}/type")),
        others: members.filter(|member| BusAddress::Pci(*member) != address).collect(),
    })
}

fn nic_without_bus(root: &Root, interface: Interface, network: &Network) -> Nic {
    let name = &interface.name;
    let device = root.join(format!("sys/class/net/{name}/device"));
    let location = match device.exists() {
        true => {
            let bus = root.link_name(format!("sys/class/net/{name}/device/subsystem"));
            Location::Other(bus.unwrap_or_else(|| "unknown".to_owned()))
        }
        false => Location::Virtual(virtual_kind(root, name, network)),
    };
    Nic {
        location,
        pci_id: None,
        kernel_driver: root.link_name(format!("sys/class/net/{name}/device/driver")),
        used_by: UsedBy::Kernel,
        dpdk_driver: None,
        interfaces: vec![interface],
        before: None,
        numa_node: None,
        iommu_group: None,
        pair: None,
    }
}

/// Returns the kind of a virtual interface. The kernel names TUN and TAP alike.
fn virtual_kind(root: &Root, name: &str, network: &Network) -> String {
    const IFF_TAP: u32 = 2;
    if let Some(flags) = attribute(root, name, "tun_flags") {
        let flags = flags.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let is_tap = flags.is_some_and(|flags| flags & IFF_TAP != 0);
        return if is_tap { "tap" } else { "tun" }.to_owned();
    }
    network.kinds.get(name).cloned().unwrap_or_else(|| "virtual".to_owned())
}

/// Finds the pairs of Azure: a synthetic NIC and a PCI device with an interface of the same MAC
/// address.
fn pair(nics: &mut [Nic]) {
    for synthetic in 0..nics.len() {
        if !matches!(nics[synthetic].bus_address(), Some(BusAddress::Vmbus(_))) {
            continue;
        }
        let macs = nics[synthetic].macs();
        let is_vf = |nic: &Nic| {
            matches!(nic.bus_address(), Some(BusAddress::Pci(_)))
                && nic.macs().iter().any(|mac| macs.contains(mac))
        };
        let Some(vf) = nics.iter().position(is_vf) else { continue };
        nics[synthetic].pair = nics[vf].bus_address();
        nics[vf].pair = nics[synthetic].bus_address();
    }
}
