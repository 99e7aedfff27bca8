//! Devices, modes and settings with plane xdp.

use super::*;

const QUEUES: &str = "Channel parameters for ens6:\nPre-set maximums:\nRX:\t\tn/a\nTX:\t\tn/a\n\
                      Other:\t\tn/a\nCombined:\t4\nCurrent hardware settings:\nRX:\t\tn/a\n\
                      TX:\t\tn/a\nOther:\t\tn/a\nCombined:\tN\n";

/// Adds ethtool's output for ens6.
fn with_ethtool(mut subject: Subject, queues: &str, lro: &str) -> Subject {
    let features = format!("Features for ens6:\nlarge-receive-offload: {lro}\n");
    subject.commands = FakeCommands::default()
        .with("ethtool -l ens6", &QUEUES.replace('N', queues))
        .with("ethtool -k ens6", &features);
    subject
}

#[test]
fn native_mode_depends_on_queues_mtu_and_offloads() {
    let subject = with_ethtool(Subject::xdp(""), "2", "off [fixed]");
    subject.fake.driver("pci", "ena");
    subject.assert_found("XDP mode", Severity::Ok, &["native"]);
    let subject = with_ethtool(Subject::xdp(""), "4", "off");
    let parts = ["`ethtool -L ens6 combined 2`", "2 to 3 times slower"];
    subject.assert_found("XDP mode", Severity::Warning, &parts);
    subject.fake.file("sys/devices/pci0000:00/0000:00:06.0/net/ens6/mtu", "9001");
    subject.assert_among("XDP mode", Severity::Warning, &["supports MTU 3498 at most"]);
    let native = with_ethtool(Subject::xdp("fastpath.attach = \"native\""), "4", "off");
    native.assert_found("XDP mode", Severity::Error, &["does not start"]);
    let generic = with_ethtool(Subject::xdp("fastpath.attach = \"generic\""), "4", "on");
    generic.assert_among("XDP mode", Severity::Info, &["as configured"]);
    generic.assert_among("XDP mode", Severity::Warning, &["`ethtool -K ens6 lro off`"]);

    let without = Subject::xdp("");
    let parts = ["queues: ethtool is not installed", "apt-get install ethtool"];
    without.assert_among("XDP mode", Severity::NotChecked, &parts);
    assert_eq!(Subject::aws("").found("XDP mode"), Vec::<String>::new());
}

#[test]
fn missing_interfaces_and_small_mtus_are_reported() {
    let subject = with_ethtool(Subject::xdp(""), "2", "off");
    subject.assert_found("device", Severity::Ok, &["ens6"]);
    subject.assert_found("binding", Severity::Ok, &["the kernel has it as ens6"]);
    subject.assert_among("MTU", Severity::Ok, &["the MTU of ens6 is 1500"]);
    subject.fake.file("sys/devices/pci0000:00/0000:00:06.0/net/ens6/mtu", "1400");
    let parts = ["ingress.mtu = 1500: the MTU of ens6 is 1400", "ip link set dev ens6 mtu 1500"];
    subject.assert_among("MTU", Severity::Error, &parts);

    let text =
        "plane = \"xdp\"\n[ingress]\ndevice = \"0000:00:06.0\"\naddress = \"10.0.1.10/24\"\n";
    let bound = Subject::new(Fake::aws(), text);
    bound.add_system_files();
    bound.remove("sys/class/net/ens6");
    bound.remove("sys/devices/pci0000:00/0000:00:06.0/net");
    let parts = ["is bound to ena", "| weir nic unbind 0000:00:06.0"];
    bound.assert_found("binding", Severity::Error, &parts);
    bound.assert_among("MTU", Severity::NotChecked, &["no interface"]);
    bound.assert_found("XDP mode", Severity::NotChecked, &["there is no interface"]);
    bound.assert_found("rp_filter", Severity::NotChecked, &["there is no interface"]);

    let text = "plane = \"xdp\"\n[ingress]\ndevice = \"net_af_packet0,iface=DEVICE\"\n\
                address = \"10.0.1.10/24\"\n";
    let vdev = |name: &str| Subject::new(Fake::aws(), &text.replace("DEVICE", name));
    vdev("ens6").assert_found("device", Severity::Ok, &["interface ens6"]);
    vdev("eth7").assert_found("device", Severity::Error, &["no interface eth7"]);
}

#[test]
fn lcores_are_not_checked_but_the_governors_of_all_cpus_are() {
    let subject = Subject::xdp("");
    subject.assert_found("lcores", Severity::Info, &["polls on no CPU"]);
    assert_eq!(subject.found("isolated CPUs"), Vec::<String>::new());
    for cpu in 0..4 {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        subject.fake.file(&path, "powersave");
    }
    subject.assert_found("governor", Severity::Warning, &["powersave on CPU 0-3"]);
    subject.assert_found("memory", Severity::Ok, &["of ordinary memory"]);
    assert_eq!(subject.found("hugetlbfs"), Vec::<String>::new());
    subject.fake.file("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 1 kB");
    subject.assert_found("memory", Severity::Error, &["lower region.max_flows"]);
}

#[test]
fn virtio_offloads_that_prevent_native_mode_are_reported() {
    let mut fake = Fake::new();
    let device = fake.pci("0000:00:03.0", "1af4:1041", "virtio-pci");
    let virtio = format!("{device}/virtio0");
    fake.interface(&virtio, "eth1", "02:00:00:00:00:01");
    fake.driver("virtio", "virtio_net");
    fake.link(&format!("{virtio}/driver"), "sys/bus/virtio/drivers/virtio_net");
    fake.default_route("lo", "10.0.0.1");
    // The features GUEST_CSUM (bit 1) and GUEST_TSO4 (bit 7) without CTRL_GUEST_OFFLOADS (bit 2),
    // with which a driver could switch them off.
    fake.file(&format!("{virtio}/features"), "01000001000000000000000000000000");
    let text = "plane = \"xdp\"\n[ingress]\ndevice = \"eth1\"\naddress = \"10.0.1.10/24\"\n";
    let subject = Subject::new(fake, text);
    subject.assert_among("XDP mode", Severity::Warning, &["guest_tso4"]);
    subject.assert_among("XDP mode", Severity::NotChecked, &["queues: ethtool"]);
}

#[test]
fn the_mode_of_a_veth_is_not_visible() {
    let mut fake = Fake::new();
    fake.interface("sys/devices/virtual", "veth0", "02:00:00:00:00:01");
    fake.network.kinds.insert("veth0".into(), "veth".into());
    let text = "plane = \"xdp\"\n[ingress]\ndevice = \"veth0\"\naddress = \"10.0.1.10/24\"\n";
    let subject = Subject::new(fake, text);
    subject.assert_found("XDP mode", Severity::NotChecked, &["depends on its peer"]);
}
