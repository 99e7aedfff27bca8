//! Inventories of machines.

use super::fake::Fake;
use super::*;

fn nic<'i>(inventory: &'i Inventory, name: &str) -> &'i Nic {
    let found = inventory.find(&name.parse().unwrap()).unwrap();
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found[0]
}

fn names(inventory: &Inventory) -> Vec<String> {
    inventory.nics.iter().map(Nic::name).collect()
}

#[test]
fn aws_has_two_enas_of_which_one_is_protected() {
    let fake = Fake::aws();
    let inventory = fake.inventory();
    assert_eq!(names(&inventory), ["0000:00:05.0", "0000:00:06.0"]);
    let (first, second) = (nic(&inventory, "ens5"), nic(&inventory, "02:00:00:00:00:06"));
    assert_eq!(first.protection().unwrap(), "ens5 carries an ssh session (10.0.0.5)");
    assert_eq!(second.protection(), None);
    assert_eq!(second.dpdk_driver.map(|driver| driver.name), Some("net_ena"));
    assert_eq!(second.kernel_driver.as_deref(), Some("ena"));
    assert_eq!((second.used_by, second.numa_node), (UsedBy::Kernel, None));
    let interface = &second.interfaces[0];
    assert_eq!((interface.speed_mbit, interface.mtu), (Some(25_000), Some(1500)));
    assert_eq!(interface.addresses[0].to_string(), "10.0.1.10/24");
    let json = serde_json::to_value(second).unwrap();
    assert_eq!(json["location"]["bus"], "0000:00:06.0");
    assert_eq!(json["pci_id"], "1d0f:ec20");
    assert_eq!(json["dpdk_driver"], "net_ena");
    assert_eq!(json["interfaces"][0]["addresses"][0], "10.0.1.10/24");
}

#[test]
fn default_route_protects_without_a_session() {
    let fake = Fake::aws();
    fake.file("proc/net/tcp", "");
    let text = nic(&fake.inventory(), "ens5").protection().unwrap();
    assert_eq!(text, "ens5 carries the default route (0.0.0.0/0 via 10.0.0.1)");
}

#[test]
fn devices_without_interfaces_are_listed() {
    let fake = Fake::new();
    fake.pci("0000:00:06.0", "1d0f:ec20", "vfio-pci");
    fake.pci("0000:00:07.0", "8086:1572", "");
    fake.pci("0000:00:08.0", "14e4:16d7", "igb_uio");
    fake.pci("0000:00:09.0", "15b3:101e", "mlx5_vfio_pci");
    fake.pci_below("pci0000:00", "0000:00:04.0", "0x010802", "1d0f:8061", "nvme");
    let inventory = fake.inventory();
    let used: Vec<_> = inventory.nics.iter().map(|nic| nic.used_by).collect();
    let process = UsedBy::Process;
    assert_eq!(used, [process, UsedBy::Nothing, process, process]);
    let known = inventory.nics.iter().map(|nic| nic.dpdk_driver.map(|driver| driver.name));
    let expected = [Some("net_ena"), Some("net_i40e"), None, Some("mlx5_pci")];
    assert_eq!(known.collect::<Vec<_>>(), expected);
    assert!(inventory.nics.iter().all(|nic| nic.protection().is_none()));
    let error = inventory.find(&"eth0".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("eth0") && error.contains("0000:00:06.0"), "{error}");
}

#[test]
fn devices_of_other_namespaces_are_protected() {
    let fake = Fake::new();
    fake.pci("0000:00:06.0", "1d0f:ec20", "ena");
    let protection = fake.inventory().nics[0].protection().unwrap();
    assert!(
        protection.contains("bound to ena") && protection.contains("namespace"),
        "{protection}"
    );
}

#[test]
fn new_hardware_is_recognized_by_its_kernel_driver() {
    let fake = Fake::new();
    fake.pci("0000:03:00.0", "8086:ffff", "ice");
    let inventory = fake.inventory();
    assert_eq!(inventory.nics[0].dpdk_driver.map(|driver| driver.name), Some("net_ice"));
}

#[test]
fn azure_pairs_a_synthetic_nic_with_its_vf() {
    for (id, kernel, dpdk) in
        [("15b3:1016", "mlx5_core", "mlx5_pci"), ("1414:00ba", "mana", "net_mana")]
    {
        let fake = Fake::azure(id, kernel);
        let inventory = fake.inventory();
        assert_eq!(inventory.nics.len(), 4);
        let (synthetic, vf) = (nic(&inventory, "eth2"), nic(&inventory, "enP2s2"));
        assert_eq!(synthetic.name(), "000d3a7c-0002-000d-3a7c-0000000d3a7c");
        assert_eq!(vf.name(), "0002:00:02.0");
        assert_eq!(synthetic.pair, vf.bus_address());
        assert_eq!(vf.pair, synthetic.bus_address());
        assert_eq!(synthetic.dpdk_driver.map(|driver| driver.name), Some("net_netvsc"));
        assert_eq!(vf.dpdk_driver.map(|driver| driver.name), Some(dpdk));
        assert_eq!(vf.interfaces[0].master.as_deref(), Some("eth2"));
        assert_eq!(synthetic.interfaces[0].lower, ["enP2s2"]);
        assert_eq!((synthetic.protection(), vf.protection()), (None, None));
        // The session is on the synthetic NIC, and its packets pass through the VF.
        for name in ["eth1", "enP1s2"] {
            let protection = nic(&inventory, name).protection().unwrap();
            assert_eq!(protection, format!("{name} carries an ssh session (10.1.1.4)"));
        }
        let both = inventory.find(&"00:0d:3a:00:00:02".parse().unwrap()).unwrap();
        assert_eq!(both.len(), 2, "a MAC address names both: {both:?}");
    }
}

#[test]
fn members_of_a_bond_carry_what_the_bond_carries() {
    let mut fake = Fake::bare_metal();
    fake.interface("sys/devices/virtual", "bond0", "02:00:00:00:03:00");
    fake.interface("sys/devices/virtual", "bond0.7", "02:00:00:00:03:00");
    fake.stack("bond0", "ens1f0");
    fake.stack("bond0", "ens1f1");
    fake.link("sys/class/net/bond0.7/lower_bond0", "sys/class/net/bond0");
    fake.network.kinds.insert("bond0".into(), "bond".into());
    fake.network.kinds.insert("bond0.7".into(), "vlan".into());
    fake.address("bond0.7", "198.51.100.7", 24);
    fake.session("198.51.100.7", 22);
    let inventory = fake.inventory();
    for name in ["ens1f0", "ens1f1", "bond0", "bond0.7"] {
        let protection = nic(&inventory, name).protection().unwrap();
        assert_eq!(protection, format!("{name} carries an ssh session (198.51.100.7)"));
    }
    assert_eq!(nic(&inventory, "bond0").location, Location::Virtual("bond".into()));
    // The MAC address is that of a port, of the bond and of the VLAN.
    assert_eq!(nic(&inventory, "02:00:00:00:03:00").name(), "0000:03:00.0");
}

#[test]
fn iommu_groups_name_their_other_members() {
    let fake = Fake::bare_metal();
    let inventory = fake.inventory();
    let group = nic(&inventory, "ens1f0").iommu_group.clone().unwrap();
    let others: Vec<String> = group.others.iter().map(ToString::to_string).collect();
    assert_eq!(others, ["0000:00:03.0", "0000:03:00.1"]);
    assert_eq!((group.number, group.translation.as_deref()), (12, Some("DMA")));
    assert_eq!(nic(&inventory, "ens1f0").numa_node, Some(1));
    // vfio creates a group for a device without an IOMMU.
    let device = fake.pci("0000:05:00.0", "8086:1572", "vfio-pci");
    fake.iommu_group(40, "", &[&device]);
    fake.file("sys/kernel/iommu_groups/40/name", "vfio-noiommu");
    assert_eq!(nic(&fake.inventory(), "0000:05:00.0").iommu_group, None);
}

#[test]
fn unknown_speeds_and_macs_and_the_loopback_interface_are_left_out() {
    let mut fake = Fake::new();
    fake.interface("sys/devices/virtual", "tap0", "02:00:00:00:00:01");
    fake.file("sys/devices/virtual/net/tap0/speed", "-1");
    fake.file("sys/devices/virtual/net/tap0/tun_flags", "0x1002");
    fake.interface("sys/devices/virtual", "wg0", "");
    fake.network.kinds.insert("wg0".into(), "wireguard".into());
    fake.interface("sys/devices/virtual", "lo", "00:00:00:00:00:00");
    fake.file("sys/devices/virtual/net/lo/type", "772");
    fake.file("sys/class/net/bonding_masters", "bond0");
    let inventory = fake.inventory();
    assert_eq!(names(&inventory), ["tap0", "wg0"]);
    let (tap, wg) = (&inventory.nics[0], &inventory.nics[1]);
    assert_eq!(tap.location, Location::Virtual("tap".into()));
    assert_eq!(tap.interfaces[0].speed_mbit, None);
    assert_eq!(wg.location, Location::Virtual("wireguard".into()));
    assert_eq!((wg.interfaces[0].mac, wg.bus_address()), (None, None));
}
