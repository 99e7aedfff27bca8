//! Machine-dependent parts of the configuration: interfaces of the kernel, and warnings. They are
//! never errors, since a configuration may be validated on another machine than it runs on.

use std::ops::RangeInclusive;
use std::path::Path;

use super::{Arm, Config, Device, Idle, Plane};

/// Returns the warnings about this machine; `root` is `/`, or a fake tree in tests.
pub(crate) fn warnings(config: &Config, root: &Path) -> Vec<String> {
    let cpus = missing_cpus_warning(config, root).into_iter().chain(yield_warning(config, root));
    port_overlap_warning(config, root).into_iter().chain(cpus).collect()
}

/// Returns the kernel's interface of a PCI device, as long as a kernel driver is bound to it.
fn pci_interface(address: &str, root: &Path) -> Option<String> {
    let address = address.split(',').next()?;
    let full = if address.matches(':').count() == 1 { "0000:" } else { "" }.to_owned() + address;
    let folder = root.join("sys/bus/pci/devices").join(full.to_lowercase());
    // virtio keeps its interfaces one directory deeper.
    let below = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path());
    std::iter::once(folder).chain(below).find_map(|folder| {
        let first = std::fs::read_dir(folder.join("net")).ok()?.next()?.ok()?;
        first.file_name().into_string().ok()
    })
}

/// Returns a warning if NAT and the kernel share an address and their port ranges overlap: both
/// might pick the same port for the same backend.
fn port_overlap_warning(config: &Config, root: &Path) -> Option<String> {
    let own = |addr| config.arms().any(|(_, arm)| arm.addresses.iter().any(|a| a.addr == addr));
    let shared = config.nat.addresses.iter().find(|nat| own(nat.addr))?.addr;
    let file = root.join("proc/sys/net/ipv4/ip_local_port_range");
    let text = std::fs::read_to_string(file).ok()?;
    let mut numbers = text.split_whitespace().filter_map(|n| n.parse::<u16>().ok());
    let (first, last) = (numbers.next()?, numbers.next()?);
    let nat = &config.nat;
    (first <= nat.last_port && nat.first_port <= last).then(|| {
        format!(
            "nat.ports {}-{} overlap the kernel's ephemeral ports {first}-{last}, and {shared} is \
             also an address of this machine: replies to its own connections may be taken for \
             replies to NAT; set nat.ports outside that range, or run: sysctl -w \
             net.ipv4.ip_local_port_range=\"{} 65535\"",
            nat.first_port,
            nat.last_port,
            nat.last_port.saturating_add(1).min(60_000)
        )
    })
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

/// Returns a warning if lcores are configured on CPUs that this machine lacks.
fn missing_cpus_warning(config: &Config, root: &Path) -> Option<String> {
    let text = online_cpus(config, root)?;
    let online = |cpu: u16| cpu_ranges(&text).any(|run| run.contains(&cpu));
    let fastpath = &config.fastpath;
    let cpus = fastpath.lcores.iter().chain([&fastpath.main_core]);
    let missing: Vec<String> = cpus.filter(|c| !online(**c)).map(u16::to_string).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "fastpath.lcores and main_core name CPU {}, this machine has {text}: fastpath \
             cannot start; write CPUs that it has",
            missing.join(", ")
        )
    })
}

/// Returns a warning if yielding lcores occupy all CPUs: they stay runnable, and the kernel's bound
/// workers starve.
fn yield_warning(config: &Config, root: &Path) -> Option<String> {
    let (text, fastpath) = (online_cpus(config, root)?, &config.fastpath);
    let polls = |cpu: u16| fastpath.lcores.contains(&cpu);
    let all = fastpath.idle == Idle::Yield && cpu_ranges(&text).flatten().all(polls);
    all.then(|| {
        format!(
            "fastpath.lcores poll on all CPUs of this machine ({text}) and fastpath.idle is \
             \"yield\": the kernel's workers starve (workqueue lockup); write idle = \"sleep\""
        )
    })
}

impl Config {
    /// Returns the name of the kernel interface with the routes and neighbors of an arm: the TAP,
    /// or with XDP the NIC itself.
    pub fn kernel_interface(&self, arm: &Arm) -> String {
        let nic = || match &arm.device {
            Device::Pci(address) => pci_interface(address, Path::new("/")),
            other => other.interface().map(str::to_owned),
        };
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
    fn finds_the_interface_of_a_pci_device_bound_to_a_kernel_driver() {
        let root = std::env::temp_dir().join(format!("weir-pci-{}", std::process::id()));
        let devices = root.join("sys/bus/pci/devices");
        std::fs::create_dir_all(devices.join("0000:00:06.0/net/ens6")).unwrap();
        std::fs::create_dir_all(devices.join("0000:00:07.0/virtio1/net/eth1")).unwrap();
        std::fs::create_dir_all(devices.join("0000:00:08.0/power")).unwrap();
        let found = ["00:06.0", "0000:00:06.0,arg=1", "0000:00:07.0", "0000:00:08.0"]
            .map(|address| pci_interface(address, &root));
        let names = found.each_ref().map(|name| name.as_deref());
        assert_eq!(names, [Some("ens6"), Some("ens6"), Some("eth1"), None]);
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
