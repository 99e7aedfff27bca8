//! Finds devices in directories that have the sysfs and procfs files of cloud machines.

use super::*;
use std::os::unix::fs::symlink;

const DEV: &str = "Inter-|   Receive\n face |bytes\n    lo: 1 2\n  eth1:3 4\nenP1s1: 5 6\n";
const VMBUS: &str = "7e1a2d4b-5c6f-4a1b-9c3d-0123456789ab";

/// A folder with the files of a machine, removed when dropped.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Machine {
        let root = std::env::temp_dir().join(format!("weir-target-{name}-{}", std::process::id()));
        let machine = Machine(root);
        machine.write("proc/self/net/dev", DEV);
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn link(&self, link: &str, to: &str) {
        let link = self.0.join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(self.0.join(to), link).unwrap();
    }

    /// Adds a device that is bound to a driver, with the class of PCI and of VMBus, the ids of
    /// vendor and device, and optionally an interface (name, MAC address).
    fn device(
        &self,
        bus: &str,
        name: &str,
        driver: &str,
        [vendor, device]: [&str; 2],
        interface: Option<(&str, &str)>,
    ) {
        let folder = format!("sys/devices/{bus}/{name}");
        self.write(&format!("{folder}/vendor"), vendor);
        self.write(&format!("{folder}/device"), device);
        self.write(&format!("{folder}/class"), "0x020000\n");
        self.write(&format!("{folder}/class_id"), "{f8615163-df3e-46c5-913f-f2d2f965ed0e}\n");
        self.link(&format!("sys/bus/{bus}/devices/{name}"), &folder);
        self.write(&format!("sys/bus/{bus}/drivers/{driver}/bind"), "");
        self.link(&format!("{folder}/driver"), &format!("sys/bus/{bus}/drivers/{driver}"));
        self.link(&format!("{folder}/subsystem"), &format!("sys/bus/{bus}"));
        if let Some((interface, mac)) = interface {
            self.write(&format!("{folder}/net/{interface}/address"), mac);
            self.write(&format!("{folder}/net/{interface}/ifindex"), "7\n");
            self.write(&format!("{folder}/net/{interface}/type"), "1\n");
            self.link(&format!("{folder}/net/{interface}/device"), &folder);
            self.link(&format!("sys/class/net/{interface}"), &format!("{folder}/net/{interface}"));
        }
    }

    fn find(&self, device: &str) -> Result<Target, String> {
        let root = Root::new(&self.0);
        let inventory = Inventory::read(&root, &Network::default(), &Sessions::default());
        let text = format!("[ingress]\ndevice = \"{device}\"\naddress = \"10.0.1.10/24\"");
        let config = config::from_toml(&text).unwrap_or_else(|error| panic!("{}", error.render()));
        let (dpdk, kernel) = (Version(24, 11), Version(6, 12));
        let setup = Setup { arm: &config.ingress, lcores: 1, dpdk, kernel };
        Target::find(ArmName::Ingress, setup, &inventory, &root)
    }

    fn argument(&self, device: &str) -> String {
        self.find(device).map(|target| target.eal_argument()).unwrap_or_else(|error| error)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn pci_devices_are_found_and_get_the_arguments_that_their_driver_needs() {
    let machine = Machine::new("pci");
    machine.device("pci", "0000:00:06.0", "vfio-pci", ["0x1d0f", "0xec20"], None);
    assert_eq!(machine.argument("00:06.0"), "--allow=0000:00:06.0,llq_policy=3");
    let argument = machine.argument("0000:00:06.0,llq_policy=1");
    assert_eq!(argument, "--allow=0000:00:06.0,llq_policy=1");
    let target = machine.find("00:06.0").unwrap();
    assert!(target.is_pci() && target.is_removable());
    let missing = machine.argument("0000:99:00.0");
    assert!(missing.contains("0000:99:00.0") && missing.contains("weir nic list"), "{missing}");
}

#[test]
fn interface_and_mac_address_lead_to_the_device_behind_them() {
    let machine = Machine::new("azure");
    let mac = "00:0d:3a:11:22:33\n";
    machine.device("vmbus", VMBUS, "uio_hv_generic", ["", ""], Some(("eth1", mac)));
    assert_eq!(machine.argument("eth1"), format!("--allow={VMBUS}"));
    assert_eq!(machine.argument("00:0D:3A:11:22:33"), format!("--allow={VMBUS}"));
    // Accelerated networking: the virtual function has the same address. A MANA device has several
    // ports, which DPDK distinguishes by their MAC addresses.
    machine.device("pci", "7870:00:00.0", "mana", ["0x1414", "0x00ba"], Some(("enP1s1", mac)));
    let expected = "--allow=7870:00:00.0,mac=00:0d:3a:11:22:33";
    assert_eq!(machine.argument("00:0d:3a:11:22:33"), expected);
    assert_eq!(machine.argument("enP1s1"), expected);
    assert_eq!(machine.argument("7870:00:00.0,mac=00:0d:3a:11:22:33"), expected);
    let missing = machine.argument("00:0d:3a:11:22:34");
    assert!(missing.contains("00:0d:3a:11:22:34"), "{missing}");
    assert!(machine.argument("eth7").contains("eth7"));
}

#[test]
fn missing_interface_of_a_virtual_device_is_reported_with_the_existing_ones() {
    let machine = Machine::new("vdev");
    let vdev = "net_af_packet0,iface=eth1,blocksz=4096";
    assert_eq!(machine.argument(vdev), format!("--vdev={vdev}"));
    assert_eq!(machine.argument("net_tap0,iface=new0"), "--vdev=net_tap0,iface=new0");
    assert_eq!(machine.argument("net_pcap0,rx_pcap=a"), "--vdev=net_pcap0,rx_pcap=a");
    let missing = machine.argument("net_af_packet0,framesz=2048,iface=eth9");
    assert!(missing.contains("eth9 does not exist") && missing.contains("lo, eth1"), "{missing}");
    assert!(machine.argument("net_af_xdp0").contains("net_af_xdp0,iface=eth1"));
    assert!(machine.argument("net_nonsense0").contains("DPDK cannot parse"));
}
