//! Temporary directories with the files of `/sys` and `/proc` of machines.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Address, DefaultRoute, Inventory, Network, Sessions};
use crate::Root;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A machine in a temporary directory, which is removed on drop.
pub(crate) struct Fake {
    pub(crate) path: PathBuf,
    pub(crate) network: Network,
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Fake {
    pub(crate) fn new() -> Fake {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-host-{}-{number}", std::process::id()));
        let fake = Fake { path, network: Network::default() };
        fake.directory("sys/class/net");
        fake.directory("sys/kernel/iommu_groups");
        fake.directory("run");
        fake.directory("proc/net");
        fake.file("sys/bus/pci/drivers_probe", "");
        fake.file("sys/bus/vmbus/drivers_probe", "");
        fake
    }

    pub(crate) fn root(&self) -> Root {
        Root::new(&self.path)
    }

    pub(crate) fn directory(&self, path: &str) {
        std::fs::create_dir_all(self.path.join(path)).unwrap();
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.path.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    /// Creates a relative symbolic link between two paths below the root.
    pub(crate) fn link(&self, path: &str, target: &str) {
        self.directory(Path::new(path).parent().unwrap().to_str().unwrap());
        let up = "../".repeat(path.matches('/').count());
        symlink(format!("{up}{target}"), self.path.join(path)).unwrap();
    }

    /// Adds a driver of a bus; `bus` is `pci` or `vmbus`.
    pub(crate) fn driver(&self, bus: &str, name: &str) {
        self.file(&format!("sys/bus/{bus}/drivers/{name}/unbind"), "");
        self.file(&format!("sys/bus/{bus}/drivers/{name}/bind"), "");
    }

    fn device(&self, bus: &str, device: &str, name: &str, driver: &str) {
        self.file(&format!("{device}/driver_override"), "(null)");
        self.link(&format!("sys/bus/{bus}/devices/{name}"), device);
        if !driver.is_empty() {
            self.driver(bus, driver);
            self.link(&format!("{device}/driver"), &format!("sys/bus/{bus}/drivers/{driver}"));
        }
    }

    /// Adds a PCI device below `parent`, a directory in `sys/devices`, and returns its directory.
    pub(crate) fn pci_below(
        &self,
        parent: &str,
        name: &str,
        class: &str,
        id: &str,
        driver: &str,
    ) -> String {
        let device = format!("sys/devices/{parent}/{name}");
        let (vendor, number) = id.split_once(':').unwrap();
        self.file(&format!("{device}/class"), class);
        self.file(&format!("{device}/vendor"), &format!("0x{vendor}"));
        self.file(&format!("{device}/device"), &format!("0x{number}"));
        self.file(&format!("{device}/numa_node"), "-1");
        self.device("pci", &device, name, driver);
        device
    }

    /// Adds an Ethernet controller and returns its directory.
    pub(crate) fn pci(&self, name: &str, id: &str, driver: &str) -> String {
        self.pci_below("pci0000:00", name, "0x020000", id, driver)
    }

    /// Adds a VMBUS network device and returns its directory.
    pub(crate) fn vmbus(&self, id: &str, driver: &str) -> String {
        let device = format!("sys/devices/LNXSYSTM:00/VMBUS:01/{id}");
        self.file(&format!("{device}/class_id"), "{f8615163-df3e-46c5-913f-f2d2f965ed0e}");
        self.device("vmbus", &device, id, driver);
        device
    }

    /// Adds an interface whose device is this directory.
    pub(crate) fn interface(&self, device: &str, name: &str, mac: &str) {
        let directory = format!("{device}/net/{name}");
        let index = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        for (file, text) in [
            ("address", mac),
            ("ifindex", &index),
            ("mtu", "1500"),
            ("operstate", "up"),
            ("speed", "25000"),
            ("type", "1"),
        ] {
            self.file(&format!("{directory}/{file}"), text);
        }
        self.link(&format!("sys/class/net/{name}"), &directory);
        if !device.starts_with("sys/devices/virtual") {
            self.link(&format!("{directory}/device"), device);
        }
    }

    /// Makes one interface the lower one of another.
    pub(crate) fn stack(&self, upper: &str, lower: &str) {
        self.link(
            &format!("sys/class/net/{upper}/lower_{lower}"),
            &format!("sys/class/net/{lower}"),
        );
        self.link(&format!("sys/class/net/{lower}/master"), &format!("sys/class/net/{upper}"));
    }

    /// Puts devices into an IOMMU group.
    pub(crate) fn iommu_group(&self, number: u32, translation: &str, devices: &[&str]) {
        let group = format!("sys/kernel/iommu_groups/{number}");
        self.file(&format!("{group}/type"), translation);
        for device in devices {
            let name = device.rsplit('/').next().unwrap();
            self.link(&format!("{group}/devices/{name}"), device);
            self.link(&format!("{device}/iommu_group"), &group);
        }
    }

    pub(crate) fn address(&mut self, interface: &str, address: &str, length: u8) {
        let address = Address { address: address.parse().unwrap(), length };
        self.network.addresses.entry(interface.to_owned()).or_default().push(address);
    }

    pub(crate) fn default_route(&mut self, interface: &str, gateway: &str) {
        let gateway: std::net::IpAddr = gateway.parse().unwrap();
        let route = DefaultRoute { ipv6: gateway.is_ipv6(), gateway: Some(gateway), metric: 100 };
        self.network.default_routes.entry(interface.to_owned()).or_default().push(route);
    }

    /// Adds an established connection to a local port.
    pub(crate) fn session(&self, local: &str, port: u16) {
        let address: std::net::Ipv4Addr = local.parse().unwrap();
        let word = u32::from_ne_bytes(address.octets());
        let text = format!("  sl  local_address\n   0: {word:08X}:{port:04X} 0100000A:D431 01");
        self.file("proc/net/tcp", &text);
    }

    pub(crate) fn inventory(&self) -> Inventory {
        let root = self.root();
        Inventory::read(&root, &self.network, &Sessions::read(&root, None))
    }

    /// An instance of AWS with two ENA NICs; ssh and the default route use the first.
    pub(crate) fn aws() -> Fake {
        let mut fake = Fake::new();
        let first = fake.pci("0000:00:05.0", "1d0f:ec20", "ena");
        let second = fake.pci("0000:00:06.0", "1d0f:ec20", "ena");
        fake.interface(&first, "ens5", "02:00:00:00:00:05");
        fake.interface(&second, "ens6", "02:00:00:00:00:06");
        fake.address("ens5", "10.0.0.5", 24);
        fake.address("ens6", "10.0.1.10", 24);
        fake.default_route("ens5", "10.0.0.1");
        fake.session("10.0.0.5", 22);
        fake
    }

    /// A machine of Azure with two pairs of a synthetic NIC and a VF of the given id and kernel
    /// driver; ssh uses the first.
    pub(crate) fn azure(id: &str, driver: &str) -> Fake {
        let mut fake = Fake::new();
        for number in [1, 2] {
            let synthetic =
                fake.vmbus(&format!("000d3a7c-000{number}-000d-3a7c-0000000d3a7c"), "hv_netvsc");
            let (name, mac) = (format!("eth{number}"), format!("00:0d:3a:00:00:0{number}"));
            fake.interface(&synthetic, &name, &mac);
            // The VF is below another VMBUS device, the PCI pass-through of Hyper-V.
            let parent = format!(
                "LNXSYSTM:00/VMBUS:01/0000000{number}-7870-47b5-b203-907d12ca697e/pci{number}"
            );
            let vf =
                fake.pci_below(&parent, &format!("000{number}:00:02.0"), "0x020000", id, driver);
            let vf_name = format!("enP{number}s2");
            fake.interface(&vf, &vf_name, &mac);
            fake.stack(&name, &vf_name);
            fake.address(&name, &format!("10.1.{number}.4"), 24);
        }
        fake.default_route("eth1", "10.1.1.1");
        fake.session("10.1.1.4", 22);
        fake
    }

    /// A server with two ports of an 82599 in one IOMMU group, and an onboard NIC for management.
    pub(crate) fn bare_metal() -> Fake {
        let mut fake = Fake::new();
        let onboard = fake.pci("0000:02:00.0", "8086:1521", "igb");
        let bridge =
            fake.pci_below("pci0000:00", "0000:00:03.0", "0x060400", "8086:6f08", "pcieport");
        let ports =
            ["0000:03:00.0", "0000:03:00.1"].map(|name| fake.pci(name, "8086:10fb", "ixgbe"));
        fake.interface(&onboard, "eno1", "02:00:00:00:02:00");
        fake.interface(&ports[0], "ens1f0", "02:00:00:00:03:00");
        fake.interface(&ports[1], "ens1f1", "02:00:00:00:03:01");
        fake.iommu_group(1, "DMA", &[&onboard]);
        fake.iommu_group(12, "DMA", &[&bridge, &ports[0], &ports[1]]);
        for port in &ports {
            fake.file(&format!("{port}/numa_node"), "1");
        }
        fake.directory("sys/class/iommu/dmar0");
        fake.default_route("eno1", "192.0.2.1");
        fake
    }
}
