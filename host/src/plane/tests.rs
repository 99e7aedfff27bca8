//! The plane is selected on directories with the files of machines in clouds.

use super::*;
use crate::address::BusAddress;
use crate::nic::Before;
use crate::nic::fake::Fake;

fn configuration(arms: &[&str]) -> Config {
    let mut text = "plane = \"xdp\"\n[fastpath]\nlcores = [1]\n".to_owned();
    for (number, (name, device)) in ["ingress", "egress"].iter().zip(arms).enumerate() {
        text += &format!("[{name}]\ndevice = \"{device}\"\naddress = \"10.0.{number}.10/24\"\n");
    }
    config::from_toml(&text).unwrap_or_else(|error| panic!("{}", error.render()))
}

/// Adds files that show enough memory for DPDK, and this version of the kernel.
fn add_memory_and_kernel(machine: &Fake, kernel: &str) {
    machine.file("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 3000000 kB");
    machine.file("proc/self/mounts", "none /dev/hugepages hugetlbfs rw,pagesize=2M 0 0");
    for file in ["nr_hugepages", "free_hugepages"] {
        machine.file(&format!("sys/kernel/mm/hugepages/hugepages-2048kB/{file}"), "2000");
    }
    machine.file("proc/sys/kernel/osrelease", kernel);
}

fn dpdk() -> Option<Dpdk> {
    Dpdk::parse("DPDK 24.11.1\nnet_ena\nnet_mana\nnet_netvsc\nnet_null\nnet_af_packet\n")
}

fn decision(machine: &Fake, config: &Config, dpdk: Option<Dpdk>) -> Decision {
    decide(&observe(&machine.root(), config, &machine.inventory(), dpdk))
}

#[track_caller]
fn assert_decision(found: &Decision, plane: Plane, reasons: &[&str]) {
    assert_eq!(found.plane, plane, "{found:?}");
    for reason in reasons {
        let given = found.reasons.iter().any(|text| text.contains(reason));
        assert!(given, "no {reason:?} in {:#?}", found.reasons);
    }
}

#[test]
fn libraries_that_fastpath_lists_have_drivers() {
    let listed = Dpdk::parse("DPDK 22.11.11\nnet_ena\nnet_mlx5\nnet_e1000\nbaseband_x\n").unwrap();
    assert_eq!(listed.version, Some(Version(22, 11)));
    assert_eq!(listed.drivers, ["net_ena", "net_mlx5", "net_e1000"]);
    let has = |name: &str| listed.has(crate::driver::by_name(name).unwrap());
    assert!(has("net_ena") && has("mlx5_pci") && has("net_e1000_igb") && has("net_e1000_em"));
    assert!(!has("net_ixgbe") && !has("net_ixgbe_vf"));
    for text in ["", "DPDK 22.11.11\n", "error: unexpected argument '--drivers' found"] {
        assert_eq!(Dpdk::parse(text), None, "{text}");
    }
}

#[test]
fn ena_is_driven_by_dpdk_once_igb_uio_is_loaded() {
    let (machine, config) = (Fake::aws(), configuration(&["0000:00:06.0"]));
    add_memory_and_kernel(&machine, "6.1.0-56-cloud-amd64");
    let found = decision(&machine, &config, dpdk());
    assert_decision(
        &found,
        Plane::Xdp,
        &["net_ena: igb_uio is not loaded; type: modprobe igb_uio"],
    );
    machine.driver("pci", "igb_uio");
    let found = decision(&machine, &config, dpdk());
    assert_decision(&found, Plane::Dpdk, &["net_ena drives it, once it is bound to igb_uio"]);
    assert_eq!(found.reasons.len(), 2, "{found:?}");

    let mut bound = machine.inventory();
    let nic = bound.nics.iter_mut().find(|nic| nic.name() == "0000:00:06.0").unwrap();
    (nic.kernel_driver, nic.used_by) = (Some("igb_uio".into()), UsedBy::Process);
    nic.interfaces.clear();
    let found = decide(&observe(&machine.root(), &config, &bound, dpdk()));
    assert_decision(&found, Plane::Dpdk, &["net_ena drives it, bound to igb_uio"]);
    // If fastpath's drivers are unknown, XDP is selected, and needs the kernel's interface back.
    let found = decide(&observe(&machine.root(), &config, &bound, None));
    let unbind = "type: weir nic unbind 0000:00:06.0";
    assert_decision(&found, Plane::Xdp, &["the drivers of fastpath are unknown", unbind]);
}

#[test]
fn the_management_nic_and_missing_memory_select_xdp() {
    let machine = Fake::aws();
    machine.driver("pci", "igb_uio");
    let config = configuration(&["ens6", "ens5"]);
    add_memory_and_kernel(&machine, "6.1.0");
    let found = decision(&machine, &config, dpdk());
    assert_decision(&found, Plane::Xdp, &["egress.device = \"ens5\": ens5 carries an ssh session"]);
    assert_eq!(found.reasons.len(), 1, "only what prevents DPDK: {found:?}");

    let config = configuration(&["ens6"]);
    machine.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "2");
    let found = decision(&machine, &config, dpdk());
    assert_decision(&found, Plane::Xdp, &["pages of 2 MiB missing"]);
    // The pages of a running fastpath are not free.
    machine.file("proc/12/comm", "fastpath");
    assert_decision(&decision(&machine, &config, dpdk()), Plane::Dpdk, &[]);
    std::fs::remove_dir_all(machine.path.join("proc/12")).unwrap();
    std::fs::remove_file(machine.path.join("proc/meminfo")).unwrap();
    assert_decision(&decision(&machine, &config, dpdk()), Plane::Xdp, &["proc/meminfo"]);
}

#[test]
fn lcores_need_cpus_of_this_machine() {
    let (machine, config) = (Fake::aws(), configuration(&["ens6"]));
    machine.driver("pci", "igb_uio");
    add_memory_and_kernel(&machine, "6.1.0");
    machine.file("sys/devices/system/cpu/online", "0");
    let found = decision(&machine, &config, dpdk());
    assert_decision(&found, Plane::Xdp, &["fastpath.lcores: CPU 1 is not online", "online: 0"]);
    machine.file("sys/devices/system/cpu/online", "0-1");
    assert_decision(&decision(&machine, &config, dpdk()), Plane::Dpdk, &[]);
}

#[test]
fn a_bound_nic_that_is_named_as_before_stays_with_dpdk() {
    let machine = Fake::aws();
    machine.driver("pci", "igb_uio");
    add_memory_and_kernel(&machine, "6.1.0");
    let before = machine.inventory();
    let nic = before.nics.iter().find(|nic| nic.name() == "0000:00:06.0").unwrap();
    let mac = nic.macs()[0].to_string();
    let devices = ["ens6", "0000:00:06.0", &mac];
    let decisions = |inventory: &Inventory| {
        devices.map(|device| {
            let config = configuration(&[device]);
            decide(&observe(&machine.root(), &config, inventory, dpdk())).plane
        })
    };
    assert_eq!(decisions(&before), [Plane::Dpdk; 3]);
    let mut bound = before.clone();
    let nic = bound.nics.iter_mut().find(|nic| nic.name() == "0000:00:06.0").unwrap();
    nic.before = Some(Before {
        kernel_driver: Some("ena".to_owned()),
        interfaces: vec!["ens6".to_owned()],
        macs: vec![mac.parse().unwrap()],
    });
    (nic.kernel_driver, nic.used_by) = (Some("igb_uio".into()), UsedBy::Process);
    nic.interfaces.clear();
    assert_eq!(decisions(&bound), [Plane::Dpdk; 3], "the binding does not change the decision");
}

#[test]
fn missing_devices_are_detected_and_memory_problems_can_be_ignored() {
    let machine = Fake::aws();
    machine.driver("pci", "igb_uio");
    let inventory = machine.inventory();
    assert!(devices_exist(&configuration(&["ens6", "net_pcap0,iface=eth9"]), &inventory));
    assert!(!devices_exist(&configuration(&["ens6", "eth9"]), &inventory));

    // The directory has no /proc/meminfo.
    let config = configuration(&["ens6"]);
    let observed = observe(&machine.root(), &config, &inventory, dpdk());
    assert_decision(&decide(&observed), Plane::Xdp, &["proc/meminfo"]);
    assert_decision(&decide(&observed.with_memory()), Plane::Dpdk, &[]);
}

#[test]
fn mana_needs_linux_6_2_and_its_driver_in_fastpath() {
    let (machine, config) = (Fake::azure("1414:00ba", "mana"), configuration(&["0002:00:02.0"]));
    add_memory_and_kernel(&machine, "6.1.0-56-cloud-amd64");
    let found = decision(&machine, &config, dpdk());
    let expected = "net_mana needs Linux 6.2, this machine runs 6.1";
    assert_decision(&found, Plane::Xdp, &[expected]);
    add_memory_and_kernel(&machine, "6.12.0");
    let found = decision(&machine, &config, dpdk());
    assert_decision(&found, Plane::Dpdk, &["net_mana drives it beside the kernel's driver"]);

    let without = Dpdk::parse("DPDK 24.11.1\nnet_ena");
    let found = decision(&machine, &config, without);
    assert_decision(&found, Plane::Xdp, &["fastpath has no driver net_mana"]);
    let old = Dpdk::parse("DPDK 22.11.11\nnet_mana");
    let found = decision(&machine, &config, old);
    assert_decision(&found, Plane::Xdp, &["usable from DPDK 23.11 on, fastpath has 22.11"]);
    // The kernel lists its modules, and mana_ib is not among them.
    machine.file("lib/modules/6.12.0/modules.dep", "kernel/net/mana.ko: \nkernel/ib_uverbs.ko:");
    let found = decision(&machine, &config, dpdk());
    assert_decision(&found, Plane::Xdp, &["modules that this kernel lacks: mana_ib"]);
}

#[test]
fn a_synthetic_nic_of_azure_is_found_by_mac_address_and_interface() {
    let machine = Fake::azure("1414:00ba", "mana");
    let (inventory, config) = (machine.inventory(), configuration(&["eth2"]));
    let mac = "00:0d:3a:00:00:02".parse().unwrap();
    let named = inventory.find(&config::checked::DeviceName::Mac(mac)).unwrap();
    assert!(named.iter().any(|nic| matches!(nic.bus_address(), Some(BusAddress::Vmbus(_)))));
    // The interface eth2 is the synthetic one.
    let devices = arm_devices(&config, &inventory);
    assert_eq!(devices[0].dpdk_driver().map(|driver| driver.name), Some("net_netvsc"));
}

#[test]
fn interfaces_of_software_are_left_to_xdp_and_pure_vdevs_to_dpdk() {
    let machine = Fake::aws();
    add_memory_and_kernel(&machine, "6.1.0");
    machine.interface("sys/devices/virtual", "veth0", "02:00:00:00:00:99");
    let xdp = |device: &str, reason: &str| {
        let found = decision(&machine, &configuration(&[device]), dpdk());
        assert_decision(&found, Plane::Xdp, &[reason]);
    };
    xdp("veth0", "an interface of software");
    xdp("net_af_packet0,iface=ens6", "reaches ens6 through the kernel");
    xdp("eth7", "no network device eth7");
    let text = "[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"\n";
    let found = decision(&machine, &config::from_toml(text).unwrap(), dpdk());
    assert_decision(&found, Plane::Dpdk, &["a virtual device of DPDK (net_null)"]);
}
