//! Each check passes, fails and cannot run on directories with the files of machines.

mod firewall;
mod plane_dpdk;
mod plane_xdp;
mod system;

use std::path::Path;

use config::Config;

use super::*;
use crate::commands::fake::FakeCommands;
use crate::nic::fake::Fake;
use crate::plane::Dpdk;

/// A machine with the other inputs of the checks.
struct Subject {
    fake: Fake,
    config: Config,
    commands: FakeCommands,
    dpdk: Option<Dpdk>,
    programs: Option<&'static str>,
}

impl Subject {
    fn new(fake: Fake, config: &str) -> Subject {
        let config = config::from_toml(config).unwrap_or_else(|error| panic!("{}", error.render()));
        let libraries =
            ["net_ena", "net_mana", "net_af_packet", "net_null", "net_ixgbe", "net_virtio"];
        let dpdk = Dpdk::parse(&format!("DPDK 24.11.1\n{}", libraries.join("\n")));
        Subject { fake, config, commands: FakeCommands::default(), dpdk, programs: None }
    }

    /// An instance of AWS with 4 CPUs, on which DPDK uses the second NIC and CPUs 2 and 3.
    fn aws(more: &str) -> Subject {
        let text = format!(
            "[fastpath]\nlcores = [2, 3]\n{more}\n[ingress]\ndevice = \"0000:00:06.0\"\n\
             address = \"10.0.1.10/24\"\n"
        );
        let subject = Subject::new(Fake::aws(), &text);
        subject.add_system_files();
        subject
    }

    /// The same with XDP.
    fn xdp(more: &str) -> Subject {
        let text = format!(
            "plane = \"xdp\"\n{more}\n[ingress]\ndevice = \"ens6\"\naddress = \"10.0.1.10/24\"\n"
        );
        let subject = Subject::new(Fake::aws(), &text);
        subject.add_system_files();
        subject
    }

    /// Adds files of a machine with 4 CPUs, of which 2 and 3 are isolated, and enough huge pages.
    fn add_system_files(&self) {
        let cpu = "sys/devices/system/cpu";
        for (path, text) in [
            ("proc/cmdline", "quiet"),
            ("proc/sys/kernel/osrelease", "6.12.0"),
            ("proc/sys/kernel/random/boot_id", "first"),
            ("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 3000000 kB"),
            ("proc/self/mounts", "none /dev/hugepages hugetlbfs rw,pagesize=2M 0 0"),
            ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999"),
            ("proc/sys/net/ipv4/conf/all/rp_filter", "0"),
            ("proc/sys/net/ipv4/conf/default/rp_filter", "0"),
            ("proc/irq/30/smp_affinity_list", "0-1"),
            ("proc/irq/30/ens5-0/x", ""),
            ("proc/net/tcp", ""),
            ("proc/net/udp", ""),
            ("usr/sbin/update-grub", ""),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "2000"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "2000"),
            (&format!("{cpu}/online"), "0-3"),
            (&format!("{cpu}/isolated"), "2-3"),
            (&format!("{cpu}/nohz_full"), "2-3"),
        ] {
            self.fake.file(path, text);
        }
        for number in 0..4 {
            self.fake
                .file(&format!("{cpu}/cpu{number}/topology/core_cpus_list"), &format!("{number}"));
        }
    }

    fn report(&self) -> Report {
        let (root, inventory) = (self.fake.root(), self.fake.inventory());
        examine(&Context {
            root: &root,
            config: &self.config,
            inventory: &inventory,
            commands: &self.commands,
            dpdk: self.dpdk.clone(),
            programs: self.programs.map(Path::new),
            version: "1.2.3",
        })
    }

    /// Returns the findings of a check, one line each: severity, finding, consequence, remedy.
    fn found(&self, check: &str) -> Vec<String> {
        let report = self.report();
        let of_check = report.findings.iter().filter(|finding| finding.check == check);
        of_check
            .map(|finding| {
                let Finding { severity, found, consequence, remedy, .. } = finding;
                format!("{severity:?} | {found} | {consequence} | {remedy}")
            })
            .collect()
    }

    /// Asserts that a check has a single finding with these parts.
    #[track_caller]
    fn assert_found(&self, check: &str, severity: Severity, parts: &[&str]) {
        let found = self.found(check);
        let [line] = &found[..] else { panic!("{check}: {found:#?}") };
        assert!(line.starts_with(&format!("{severity:?} |")), "{line}");
        for part in parts {
            assert!(line.contains(part), "no {part:?} in: {line}");
        }
    }

    /// Asserts that a check has a finding with these parts among others.
    #[track_caller]
    fn assert_among(&self, check: &str, severity: Severity, parts: &[&str]) {
        let found = self.found(check);
        let fits = |line: &&String| {
            line.starts_with(&format!("{severity:?} |"))
                && parts.iter().all(|part| line.contains(part))
        };
        assert!(found.iter().any(|line| fits(&line)), "no {severity:?} {parts:?} in {found:#?}");
    }

    fn remove(&self, path: &str) {
        let path = self.fake.path.join(path);
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }
}

#[test]
fn findings_are_sorted_and_name_the_plane() {
    let subject = Subject::aws("");
    let report = subject.report();
    let severities: Vec<Severity> = report.findings.iter().map(|one| one.severity).collect();
    assert!(severities.is_sorted(), "{severities:?}");
    // The NIC is not bound for DPDK.
    assert_eq!(report.count(Severity::Error), 1, "{:#?}", report.findings);
    assert_eq!((report.configured, report.automatic.plane), (Plane::Dpdk, Plane::Xdp));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["automatic"]["plane"], "xdp");
    assert_eq!(json["findings"][0]["severity"], "error");
    assert!(json["findings"][0]["remedy"].as_str().unwrap().starts_with("weir nic plan"));
}

#[test]
fn warnings_and_errors_have_a_consequence_or_remedy_and_unreadable_files_are_reported() {
    for subject in [Subject::aws(""), Subject::xdp("")] {
        // The checks cannot read the machine: they report that instead of passing.
        for path in ["proc", "sys/devices/system"] {
            subject.remove(path);
        }
        let report = subject.report();
        assert!(report.count(Severity::NotChecked) >= 8, "{:#?}", report.findings);
        for finding in &report.findings {
            let silent = finding.consequence.is_empty() && finding.remedy.is_empty();
            let severe = finding.severity <= Severity::Warning;
            assert!(!(silent && severe && finding.check != "configuration"), "{finding:?}");
        }
    }
}

#[test]
fn this_machine_can_be_examined() {
    let root = crate::Root::default();
    let network = crate::nic::Network::read().unwrap();
    let sessions = crate::nic::Sessions::read(&root, None);
    let inventory = crate::nic::Inventory::read(&root, &network, &sessions);
    for plane in ["dpdk", "xdp"] {
        let text = format!(
            "plane = \"{plane}\"\n[ingress]\ndevice = \"net_af_packet0,iface=eth0\"\n\
             address = \"10.0.1.10/24\"\n[nat]\naddresses = \"10.0.1.10\"\n"
        );
        let report = examine(&Context {
            root: &root,
            config: &config::from_toml(&text).unwrap(),
            inventory: &inventory,
            commands: &crate::commands::SystemCommands,
            dpdk: None,
            programs: Some(Path::new("/usr/bin")),
            version: "1.2.3",
        });
        assert!(report.findings.len() > 10, "{report:#?}");
        for finding in &report.findings {
            println!("{finding:?}");
        }
    }
}
