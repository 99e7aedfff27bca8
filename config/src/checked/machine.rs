//! Machine-dependent parts of the configuration: interfaces of the kernel, and warnings. A mismatch
//! with this machine is a warning, not an error: a configuration may be validated on another
//! machine than the one on which it runs.

use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use super::{Arm, Config, Device, DeviceName, Idle, Plane};

/// A property of this machine that does not fit the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MachineWarning {
    /// NAT and the kernel share an address and their port ranges overlap: both might pick the same
    /// port for the same backend.
    PortOverlap(PortOverlap),
    /// The machine lacks CPUs that are to poll.
    MissingCpus {
        /// The missing CPUs, separated by commas.
        missing: String,
        /// The machine's online CPUs in the kernel's notation.
        online: String,
    },
    /// Yielding lcores occupy all CPUs: they stay runnable, and the kernel's bound workers starve.
    YieldOnAllCpus {
        /// The machine's online CPUs in the kernel's notation.
        online: String,
    },
}

/// Overlapping port ranges of NAT and of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortOverlap {
    /// First and last NAT port.
    pub nat: (u16, u16),
    /// First and last of the kernel's ephemeral ports.
    pub ephemeral: (u16, u16),
    /// The address that both use.
    pub shared: IpAddr,
}

impl PortOverlap {
    /// Returns the overlap of NAT's ports with these ephemeral ports of the kernel, if they share
    /// an address.
    pub fn of(config: &Config, ephemeral: (u16, u16)) -> Option<PortOverlap> {
        let own = |addr| config.arms().any(|(_, arm)| arm.addresses.iter().any(|a| a.addr == addr));
        let shared = config.nat.addresses.iter().find(|nat| own(nat.addr))?.addr;
        let nat = (config.nat.first_port, config.nat.last_port);
        let overlaps = ephemeral.0 <= nat.1 && nat.0 <= ephemeral.1;
        overlaps.then_some(PortOverlap { nat, ephemeral, shared })
    }

    /// Returns the ports above NAT's as a new ephemeral range; `None` if fewer than about 5,500 are
    /// left.
    pub fn range_above(&self) -> Option<(u16, u16)> {
        (self.nat.1 < 60_000).then(|| (self.nat.1 + 1, u16::MAX))
    }
}

impl Display for PortOverlap {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let PortOverlap { nat, ephemeral, shared } = self;
        write!(
            f,
            "nat.ports {}-{} overlap the kernel's ephemeral ports {}-{}, and {shared} is also an \
             address of this machine: replies to its own connections may be taken for replies to \
             NAT; set nat.ports outside that range",
            nat.0, nat.1, ephemeral.0, ephemeral.1
        )?;
        match self.range_above() {
            Some((first, last)) => {
                write!(f, ", or run: sysctl -w net.ipv4.ip_local_port_range=\"{first} {last}\"")
            }
            None => Ok(()),
        }
    }
}

impl Display for MachineWarning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            MachineWarning::PortOverlap(overlap) => overlap.fmt(f),
            MachineWarning::MissingCpus { missing, online } => write!(
                f,
                "fastpath.lcores and main_core name CPU {missing}, this machine has {online}: \
                 fastpath cannot start; write CPUs that it has"
            ),
            MachineWarning::YieldOnAllCpus { online } => write!(
                f,
                "fastpath.lcores poll on all CPUs of this machine ({online}) and fastpath.idle is \
                 \"yield\": the kernel's workers starve (workqueue lockup); write idle = \"sleep\""
            ),
        }
    }
}

/// Returns the properties of this machine that do not fit the configuration; `root` is `/`, or in
/// tests a directory with copies of files below `/proc` and `/sys`.
pub fn machine_warnings(config: &Config, root: &Path) -> Vec<MachineWarning> {
    let all = [port_overlap(config, root), missing_cpus(config, root), yield_on_all(config, root)];
    all.into_iter().flatten().collect()
}

/// Returns the texts of [`machine_warnings`].
pub(crate) fn warnings(config: &Config, root: &Path) -> Vec<String> {
    machine_warnings(config, root).iter().map(ToString::to_string).collect()
}

/// Returns the kernel's interface of a PCI or VMBUS device, given by its sysfs directory below
/// `root`; `None` unless a kernel driver is bound to it.
fn interface_of(folder: &str, root: &Path) -> Option<String> {
    let folder = root.join(folder);
    // virtio keeps its interfaces one directory deeper.
    let below = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path());
    std::iter::once(folder).chain(below).find_map(|folder| {
        let first = std::fs::read_dir(folder.join("net")).ok()?.next()?.ok()?;
        first.file_name().into_string().ok()
    })
}

/// Returns the kernel's interface with a MAC address. On Azure, the synthetic interface and its
/// virtual function have the same address. The virtual function has a `master` link to the
/// synthetic interface and is skipped.
fn interface_with_mac(mac: &str, root: &Path) -> Option<String> {
    let folders = std::fs::read_dir(root.join("sys/class/net")).ok()?.flatten();
    let mut names: Vec<String> = folders
        .filter(|entry| !entry.path().join("master").exists())
        .filter(|entry| {
            let text = std::fs::read_to_string(entry.path().join("address"));
            text.is_ok_and(|text| text.trim() == mac)
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names.into_iter().next()
}

/// Returns the kernel's interface of a device, if it has one.
fn interface_of_device(device: &Device, root: &Path) -> Option<String> {
    match device.name() {
        DeviceName::Bus(address) => interface_of(&address.directory(), root),
        name @ DeviceName::Mac(_) => interface_with_mac(&name.to_string(), root),
        DeviceName::Vdev(_) | DeviceName::Interface(_) => device.interface().map(str::to_owned),
    }
}

fn port_overlap(config: &Config, root: &Path) -> Option<MachineWarning> {
    let file = root.join("proc/sys/net/ipv4/ip_local_port_range");
    let text = std::fs::read_to_string(file).ok()?;
    let mut numbers = text.split_whitespace().filter_map(|n| n.parse::<u16>().ok());
    let ephemeral = (numbers.next()?, numbers.next()?);
    PortOverlap::of(config, ephemeral).map(MachineWarning::PortOverlap)
}

/// Returns the machine's online CPUs in the kernel's notation, like `0-3,6`; `None` with plane xdp,
/// which polls on no CPU.
fn online_cpus(config: &Config, root: &Path) -> Option<String> {
    if config.plane == Plane::Xdp {
        return None;
    }
    let text = std::fs::read_to_string(root.join("sys/devices/system/cpu/online")).ok()?;
    Some(text.trim().to_owned())
}

/// Parses the ranges of the kernel's CPU list.
fn cpu_ranges(online: &str) -> impl Iterator<Item = RangeInclusive<u16>> {
    online.split(',').filter_map(|run| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        Some(first.parse().ok()?..=last.parse().ok()?)
    })
}

fn missing_cpus(config: &Config, root: &Path) -> Option<MachineWarning> {
    let online = online_cpus(config, root)?;
    let has = |cpu: u16| cpu_ranges(&online).any(|run| run.contains(&cpu));
    let fastpath = &config.fastpath;
    let cpus = fastpath.lcores.iter().chain([&fastpath.main_core]);
    let missing: Vec<String> = cpus.filter(|cpu| !has(**cpu)).map(u16::to_string).collect();
    let missing = missing.join(", ");
    (!missing.is_empty()).then_some(MachineWarning::MissingCpus { missing, online })
}

fn yield_on_all(config: &Config, root: &Path) -> Option<MachineWarning> {
    let (online, fastpath) = (online_cpus(config, root)?, &config.fastpath);
    let polls = |cpu: u16| fastpath.lcores.contains(&cpu);
    let all = fastpath.idle == Idle::Yield && cpu_ranges(&online).flatten().all(polls);
    all.then_some(MachineWarning::YieldOnAllCpus { online })
}

impl Config {
    /// Returns the name of the kernel interface with the routes and neighbors of an arm: the TAP,
    /// or with XDP the NIC itself.
    pub fn kernel_interface(&self, arm: &Arm) -> String {
        let nic = || interface_of_device(&arm.device, Path::new("/"));
        match self.plane {
            Plane::Dpdk => arm.tap.clone(),
            // An invalid name is reported when the interface is opened.
            Plane::Xdp => nic().unwrap_or_else(|| arm.device.as_str().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_interface_of_a_device_bound_to_a_kernel_driver() {
        const UUID: &str = "7e1a2d4b-5c6f-4a1b-9c3d-0123456789ab";
        let root = std::env::temp_dir().join(format!("weir-nic-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/bus/pci/devices/0000:00:06.0/net/ens6/mtu", "9001");
        write("sys/bus/pci/devices/0000:00:07.0/virtio1/net/eth1/mtu", "1500");
        write("sys/bus/pci/devices/0000:00:08.0/power/control", "on");
        write(&format!("sys/bus/vmbus/devices/{UUID}/net/eth2/mtu"), "1500");
        write("sys/class/net/enP7870s1/address", "00:0d:3a:11:22:33\n");
        write("sys/class/net/enP7870s1/master/ifindex", "3\n");
        write("sys/class/net/eth2/address", "00:0d:3a:11:22:33\n");
        let found = |device: &str| interface_of_device(&Device::parse(device).unwrap(), &root);
        for (device, interface) in [
            ("00:06.0", Some("ens6")),
            ("0000:00:06.0,arg=1", Some("ens6")),
            ("0000:00:07.0", Some("eth1")),
            ("0000:00:08.0", None),
            (UUID, Some("eth2")),
            ("00:0D:3A:11:22:33", Some("eth2")),
            ("00:0d:3a:11:22:34", None),
            ("net_af_packet0,iface=veth0", Some("veth0")),
        ] {
            assert_eq!(found(device).as_deref(), interface, "{device}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn warns_if_lcores_yield_on_all_cpus() {
        let root = std::env::temp_dir().join(format!("weir-yield-{}", std::process::id()));
        let file = root.join("sys/devices/system/cpu/online");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "0-1,4\n").unwrap();
        let warned = |lcores: &str, idle: &str| {
            let fastpath = format!("[fastpath]\nlcores = {lcores}\nidle = \"{idle}\"\n");
            let arm = "[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"";
            warnings(&crate::from_toml(&format!("{fastpath}{arm}")).unwrap(), &root)
        };
        let all = warned("[0, 1, 4]", "yield");
        assert!(all.len() == 1 && all[0].contains("this machine (0-1,4)"), "{all:?}");
        assert_eq!(warned("[0, 1, 4]", "sleep"), Vec::<String>::new());
        assert_eq!(warned("[1, 4]", "yield"), Vec::<String>::new());
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn warns_about_shared_ports_and_missing_cpus() {
        let root = std::env::temp_dir().join(format!("weir-machine-{}", std::process::id()));
        for (file, text) in [
            ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
            ("sys/devices/system/cpu/online", "0-1,4\n"),
        ] {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), text).unwrap();
        }
        let warned = |more: &str| {
            let arm = "[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"";
            warnings(&crate::from_toml(&format!("{more}\n{arm}")).unwrap(), &root)
        };
        let shared = "[nat]\naddresses = \"10.0.1.10\"\n";
        assert_eq!(warned(shared), Vec::<String>::new());
        let over = warned(&format!("{shared}ports = \"1024-32768\""));
        assert!(over[0].contains("overlap the kernel's ephemeral ports 32768-60999"), "{over:?}");
        // An address used by NAT alone has all ports available.
        assert!(warned("[nat]\naddresses = \"10.0.1.9\"\nports = \"1024-65535\"").is_empty());
        let missing = warned("[fastpath]\nlcores = [1, 3, 4, 7]");
        assert!(missing[0].contains("CPU 3, 7, this machine has 0-1,4"), "{missing:?}");
        std::fs::remove_dir_all(root).unwrap();
    }
}
