//! Network settings, ports, time, units, versions and tuning.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn strict_reverse_path_filters_are_reported() {
    let subject = Subject::aws("");
    subject.assert_found("rp_filter", Severity::Ok, &["0 on weir-in"]);
    subject.fake.file("proc/sys/net/ipv4/conf/default/rp_filter", "1");
    let parts = ["default = 1, strict on weir-in", "proxies", "| weir tune apply"];
    subject.assert_found("rp_filter", Severity::Warning, &parts);
    subject.fake.file("proc/sys/net/ipv4/conf/weir-in/rp_filter", "2");
    subject.assert_found("rp_filter", Severity::Ok, &["2 on weir-in"]);
    subject.fake.file("proc/sys/net/ipv4/conf/all/rp_filter", "1");
    subject.assert_found("rp_filter", Severity::Ok, &["2 on weir-in"]);
    subject.fake.file("proc/sys/net/ipv4/conf/weir-in/rp_filter", "0");
    subject.assert_found("rp_filter", Severity::Warning, &["all = 1, weir-in = 0"]);
    subject.remove("proc/sys/net/ipv4/conf");
    subject.assert_found("rp_filter", Severity::NotChecked, &["cannot be read"]);
}

#[test]
fn nat_ports_that_overlap_the_ephemeral_ports_are_reported() {
    let subject = Subject::aws("[nat]\naddresses = \"10.0.1.10\"\n");
    subject.assert_found("NAT ports", Severity::Ok, &["32768-60999"]);
    subject.fake.file("proc/sys/net/ipv4/ip_local_port_range", "20000\t60999");
    let parts = ["\"1024-32767\" overlap", "20000-60999", "10.0.1.10", "| weir tune apply"];
    subject.assert_found("NAT ports", Severity::Warning, &parts);
    let high = Subject::aws("[nat]\naddresses = \"10.0.1.10\"\nports = \"1024-65000\"\n");
    high.assert_found("NAT ports", Severity::Warning, &["set nat.ports below"]);
    subject.remove("proc/sys/net/ipv4/ip_local_port_range");
    subject.assert_found("NAT ports", Severity::NotChecked, &["cannot be read"]);
}

#[test]
fn clock_sources_that_need_a_system_call_are_reported() {
    let subject = Subject::aws("");
    subject.assert_found("clock source", Severity::NotChecked, &["current_clocksource"]);
    let directory = "sys/devices/system/clocksource/clocksource0";
    subject.fake.file(&format!("{directory}/current_clocksource"), "kvm-clock");
    subject.assert_found("clock source", Severity::Ok, &["kvm-clock"]);
    subject.fake.file(&format!("{directory}/current_clocksource"), "acpi_pm");
    subject.assert_found("clock source", Severity::Warning, &["tsc=reliable"]);
    subject.fake.file(&format!("{directory}/available_clocksource"), "tsc hpet acpi_pm");
    subject.assert_found("clock source", Severity::Warning, &["echo tsc > /sys/devices"]);
}

/// Returns a line of `/proc/net/tcp` or `udp`.
fn line(address: u32, port: u16, state: &str, inode: u32) -> String {
    format!("  0: {address:08X}:{port:04X} 00000000:0000 {state} 0:0 00:0 0 0 0 {inode} 1")
}

#[test]
fn ports_in_use_by_other_programs_are_reported() {
    let subject = Subject::aws("");
    let loopback = u32::from_ne_bytes([127, 0, 0, 1]);
    let listening = line(0, 22, "0A", 1) + "\n" + &line(0, 8080, "01", 2);
    subject.fake.file("proc/net/tcp", &listening);
    // health.listen, health.tcp, metrics, BGP, and BFD's two.
    subject.assert_found("ports", Severity::Ok, &["6 of Weir's ports are free"]);
    let text =
        [line(0, 8080, "0A", 70), line(loopback, 19_100, "0A", 71), line(loopback, 179, "0A", 72)];
    subject.fake.file("proc/net/tcp", &text.join("\n"));
    let parts = ["health.listen: tcp port 8080 is in use by a process that is not visible"];
    subject.assert_among("ports", Severity::NotChecked, &parts);
    let owner = |pid: u32, name: &str, inode: u32| {
        subject.fake.file(&format!("proc/{pid}/comm"), name);
        subject.fake.directory(&format!("proc/{pid}/fd"));
        let link = subject.fake.path.join(format!("proc/{pid}/fd/{inode}"));
        symlink(format!("socket:[{inode}]"), link).unwrap();
    };
    owner(50, "nginx", 70);
    owner(51, "node_exporter", 71);
    owner(52, "bird", 72);
    let parts = ["in use by nginx (process 50)", "or set health.listen to another port"];
    subject.assert_among("ports", Severity::Error, &parts);
    subject.assert_among("ports", Severity::Warning, &["metrics.listen", "node_exporter"]);
    subject.assert_among("ports", Severity::Warning, &["BGP: tcp port 179", "stop bird"]);
    assert_eq!(subject.found("ports").len(), 3);
    for pid in [50, 51, 52] {
        subject.fake.file(&format!("proc/{pid}/comm"), "slowpath");
    }
    subject.assert_found("ports", Severity::Ok, &["3 of Weir's ports"]);
    // A socket of IPv6 for all addresses takes IPv4 as well.
    subject.fake.file("proc/net/tcp", "");
    let v6 = line(0, 8081, "0A", 73).replace(" 00000000:1F91", &format!(" {:032}:1F91", 0));
    subject.fake.file("proc/net/tcp6", &v6);
    owner(53, "java", 73);
    subject.assert_found("ports", Severity::Error, &["health.tcp", "java"]);
    subject.fake.file("proc/net/tcp6", "");
    subject.fake.file("proc/net/udp", &line(0, 3784, "07", 74));
    owner(54, "bfdd", 74);
    subject.assert_found("ports", Severity::Warning, &["BFD (single hop): udp port 3784", "bfdd"]);
    subject.remove("proc/net");
    assert_eq!(subject.found("ports").len(), 2);
    subject.assert_among("ports", Severity::NotChecked, &["/proc/net/udp cannot be read"]);
}

#[test]
fn a_clock_that_is_not_synchronized_is_reported() {
    let mut subject = Subject::aws("");
    let missing = ["timedatectl is not installed", "apt-get install chrony"];
    subject.assert_found("time", Severity::NotChecked, &missing);
    let timedatectl = "timedatectl show --property=NTPSynchronized --value";
    for (answer, severity) in
        [("yes\n", Severity::Ok), ("no\n", Severity::Warning), ("", Severity::NotChecked)]
    {
        subject.commands = FakeCommands::default().with(timedatectl, answer);
        subject.assert_found("time", severity, &[]);
    }
    subject.fake.file("proc/60/comm", "systemd-timesyn");
    subject.assert_found("time", Severity::Warning, &["systemd-timesyncd runs and has not"]);
    subject.fake.file("run/systemd/timesync/synchronized", "");
    subject.assert_found("time", Severity::Ok, &["systemd-timesyncd"]);
    subject.fake.file("proc/61/comm", "chronyd");
    subject.assert_found("time", Severity::NotChecked, &["chronyc is not installed"]);
    let chronyc = "chronyc -n -c tracking";
    let report = "A9FEA97B,169.254.169.123,4,1764200000.1,0.000001,-0.000002,0.000005,-1.2,0.0,0.1,\
                  0.0003,0.0002,16.2,Normal\n";
    subject.commands = FakeCommands::default().with(chronyc, report);
    subject.assert_found("time", Severity::Ok, &["chronyd"]);
    let report = report.replace("Normal", "Not synchronised");
    subject.commands = FakeCommands::default().with(chronyc, &report);
    subject.assert_found("time", Severity::Warning, &["chronyc sources"]);
    subject.commands = FakeCommands::default().failing(chronyc, "506 Cannot talk to daemon");
    subject.assert_found("time", Severity::NotChecked, &["506 Cannot talk"]);
}

#[test]
fn missing_disabled_and_wrong_units_are_reported() {
    let subject = Subject::aws("");
    subject.assert_found("units", Severity::NotChecked, &["systemd is not the init system"]);
    subject.fake.directory("run/systemd/system");
    subject.assert_among("units", Severity::Warning, &["no unit starts fastpath"]);
    let unit = |directory: &str, name: &str, command: &str| {
        let text = format!("[Service]\nExecStart={command} --config /etc/weir/weir.toml");
        subject.fake.file(&format!("{directory}/{name}.service"), &text);
    };
    unit("usr/lib/systemd/system", "weir-fastpath", "/usr/bin/fastpath");
    unit("etc/systemd/system", "weir-slowpath", "-/usr/bin/slowpath");
    unit("etc/systemd/system", "weir-xdp", "/usr/bin/ebpf-fallback");
    let parts = ["weir-fastpath.service is not enabled", "systemctl enable --now weir-fastpath"];
    subject.assert_among("units", Severity::Warning, &parts);
    let wants = "etc/systemd/system/multi-user.target.wants";
    for name in ["weir-fastpath.service", "weir-slowpath.service"] {
        subject.fake.file(&format!("{wants}/{name}"), "");
    }
    let found = subject.found("units");
    assert!(found.len() == 2 && found.iter().all(|line| line.starts_with("Ok")), "{found:#?}");
    subject.fake.file(&format!("{wants}/weir-xdp.service"), "");
    subject.assert_among("units", Severity::Warning, &["systemctl disable --now weir-xdp.service"]);
}

#[test]
fn units_of_an_enabled_target_start_at_boot() {
    let subject = Subject::aws("");
    subject.fake.directory("run/systemd/system");
    let directory = "usr/lib/systemd/system";
    let unit = |name: &str, command: &str| {
        let text = format!("[Service]\nExecCondition=/usr/bin/weir plane\nExecStart={command}");
        subject.fake.file(&format!("{directory}/{name}.service"), &text);
    };
    unit("weir-fastpath", "/usr/bin/fastpath --config /etc/weir/weir.toml");
    unit("weir-ebpf-fallback", "/usr/bin/ebpf-fallback --config /etc/weir/weir.toml");
    unit("weir-slowpath", "/usr/bin/slowpath --config /etc/weir/weir.toml");
    unit("weir-hugepages", "/usr/bin/weir hugepages apply");
    unit("weir-nics", "/usr/bin/weir nic bind --saved");
    let names = ["hugepages", "nics", "fastpath", "ebpf-fallback", "slowpath"];
    let wants = names.map(|name| format!("weir-{name}.service")).join(" ");
    subject.fake.file(&format!("{directory}/weir.target"), &format!("[Unit]\nWants={wants}"));
    subject.fake.file("etc/weir/nic.bind", "0000:00:06.0 igb_uio");
    let found = subject.found("units");
    assert_eq!(found.len(), 3, "{found:#?}");
    for name in ["fastpath", "slowpath", "nics"] {
        let parts = [&*format!("weir-{name}.service is not enabled"), "enable --now weir.target"];
        subject.assert_among("units", Severity::Warning, &parts);
    }
    subject.assert_found("memory at boot", Severity::Warning, &["nothing reserves"]);

    let link = "etc/systemd/system/multi-user.target.wants/weir.target";
    subject.fake.file(link, "");
    let found = subject.found("units");
    assert!(found.len() == 3 && found.iter().all(|line| line.starts_with("Ok")), "{found:#?}");
    subject.assert_among("units", Severity::Ok, &["weir-nics.service applies /etc/weir/nic.bind"]);
    subject.assert_found("memory at boot", Severity::Ok, &["weir-hugepages.service reserves"]);

    subject.remove(&format!("{directory}/weir-nics.service"));
    let parts = ["no unit applies /etc/weir/nic.bind", "the NICs are the kernel's"];
    subject.assert_among("units", Severity::Warning, &parts);
    subject.fake.file("etc/weir/nic.bind", "ens6");
    subject.assert_among("units", Severity::Warning, &["nic.bind:1", "correct /etc/weir/nic.bind"]);
}

#[test]
fn other_versions_and_replaced_programs_are_reported() {
    let mut subject = Subject::aws("");
    subject.assert_found("versions", Severity::NotChecked, &["directory of weir"]);
    subject.programs = Some("/opt/weir");
    let parts = ["/opt/weir/slowpath is not installed"];
    subject.assert_among("versions", Severity::NotChecked, &parts);
    subject.commands = FakeCommands::default()
        .with("/opt/weir/fastpath --version", "fastpath 1.2.3\n")
        .with("/opt/weir/slowpath --version", "slowpath 1.2.2\n");
    subject.assert_among("versions", Severity::Ok, &["fastpath 1.2.3"]);
    let parts = ["/opt/weir/slowpath: version 1.2.2, weir is 1.2.3", "one package"];
    subject.assert_among("versions", Severity::Error, &parts);
    subject.fake.file("proc/90/comm", "fastpath");
    let exe = subject.fake.path.join("proc/90/exe");
    symlink("/opt/weir/fastpath", &exe).unwrap();
    assert_eq!(subject.found("versions").len(), 2);
    std::fs::remove_file(&exe).unwrap();
    symlink("/opt/weir/fastpath (deleted)", &exe).unwrap();
    let parts = ["fastpath (process 90) runs a file that was replaced"];
    subject.assert_among("versions", Severity::Warning, &parts);
}

#[test]
fn settings_of_tune_that_are_not_in_force_are_reported() {
    let subject = Subject::aws("");
    subject.fake.file("proc/cmdline", "irqaffinity=0-1 hugepages=999");
    subject.assert_found("tuning", Severity::Ok, &["in force"]);
    subject.fake.file("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never");
    subject.fake.file("proc/sys/vm/stat_interval", "1");
    let parts = ["not set: transparent huge pages, vm.stat_interval", "weir tune apply"];
    subject.assert_found("tuning", Severity::Warning, &parts);
    subject.fake.file("var/lib/weir-tune/record.json", "damaged");
    subject.assert_found("tuning", Severity::NotChecked, &["record.json"]);
}

#[test]
fn warnings_of_the_configuration_are_repeated() {
    let subject = Subject::aws("");
    subject.assert_found("configuration", Severity::Ok, &["without warnings"]);
    let two = "[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"\n[egress]\n\
               device = \"net_null1\"\naddress = \"10.0.1.11/24\"\n";
    let subject = Subject::new(Fake::aws(), two);
    subject.assert_found("configuration", Severity::Warning, &["are in one network"]);
}
