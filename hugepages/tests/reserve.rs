//! Tests of plan, check and apply on emulated machines, and once on the real one.

#![expect(clippy::unwrap_used, clippy::panic, reason = "shared test code")]

use std::path::{Path, PathBuf};

use config::Config;
use config::checked::{PageSize, Plane};
use hugepages::{
    ApplyError, Flows, Machine, NewFlows, Opened, Part, Plan, Unreadable, apply, apply_with, check,
    new_flow_limits, open_region, plan_below, sizes,
};
use tables::record::NewFlowLimits;

/// A directory tree that emulates `/proc` and `/sys`; removed on drop.
struct Tree {
    root: PathBuf,
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl Tree {
    /// Creates a tree with these nodes: their CPUs, reserved and free pages.
    fn new(name: &str, nodes: &[(&str, u64, u64)]) -> Tree {
        let root = std::env::temp_dir().join(format!("weir-pages-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let tree = Tree { root };
        let pages = "hugepages/hugepages-2048kB";
        for (i, (cpus, total, free)) in nodes.iter().enumerate() {
            let node = format!("sys/devices/system/node/node{i}");
            tree.write(&format!("{node}/cpulist"), &format!("{cpus}\n"));
            tree.write(&format!("{node}/{pages}/nr_hugepages"), &total.to_string());
            tree.write(&format!("{node}/{pages}/free_hugepages"), &free.to_string());
        }
        let total: u64 = nodes.iter().map(|n| n.1).sum();
        tree.write(&format!("sys/kernel/mm/{pages}/nr_hugepages"), &total.to_string());
        tree.write("proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable:    4000000 kB\n");
        tree.write(
            "proc/self/mounts",
            "tmpfs /dev/shm tmpfs rw 0 0\nhugetlbfs /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\n",
        );
        tree
    }

    /// Adds pages of 1 GiB to each node: reserved and free ones.
    fn add_gigabytes(&self, nodes: &[(u64, u64)]) {
        let pages = "hugepages/hugepages-1048576kB";
        for (i, (total, free)) in nodes.iter().enumerate() {
            let node = format!("sys/devices/system/node/node{i}/{pages}");
            self.write(&format!("{node}/nr_hugepages"), &total.to_string());
            self.write(&format!("{node}/free_hugepages"), &free.to_string());
        }
        let total: u64 = nodes.iter().map(|node| node.0).sum();
        self.write(&format!("sys/kernel/mm/{pages}/nr_hugepages"), &total.to_string());
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn machine(&self) -> Machine {
        Machine::read(&self.root).unwrap()
    }
}

fn planned(more: &str) -> Plan {
    // A machine of unknown memory, so that the results do not depend on the real one.
    plan_below(&checked(&format!("{more}\n{ARM}")), Path::new("/nowhere"))
}

fn checked(text: &str) -> Config {
    config::from_toml(text).unwrap_or_else(|e| panic!("{}", e.render()))
}

/// Returns the number of pages of DPDK and of the region.
fn pages(plan: &Plan) -> (u64, u64) {
    (plan.dpdk_bytes / plan.page.bytes(), plan.region_bytes / plan.page.bytes())
}

const ARM: &str = "[ingress]\ndevice = \"net_pcap0,iface=eth1\"\naddress = \"10.0.1.10/24\"\n";

#[test]
fn flows_take_a_share_of_the_memory_unless_they_are_set() {
    let tree = Tree::new("flows", &[("0-1", 0, 0)]);
    for plane in ["dpdk", "xdp"] {
        let head = format!("plane = \"{plane}\"\n");
        let planned = |more: &str| plan_below(&checked(&format!("{head}{more}{ARM}")), &tree.root);
        // Machines of 1, 4, 16 and 512 GB, with `MemTotal` as Linux reports it.
        for (kilobytes, expected_flows) in [
            (950_000, 1 << 17),
            (3_700_000, 1 << 19),
            (16_000_000, 1 << 21),
            (520_000_000, 1 << 22),
        ] {
            tree.write("proc/meminfo", &format!("MemTotal: {kilobytes} kB\nMemAvailable: 1 kB\n"));
            let (plan, memory) = (planned(""), kilobytes * 1024);
            assert_eq!(plan.flows, Flows::FromMemory { flows: expected_flows, memory });
            let flows = plan.terms.iter().filter(|term| term.setting == "region.max_flows");
            let bytes: u64 = flows.map(|term| term.bytes).sum();
            println!("{plane}: {} MiB of {} MiB: {}", bytes >> 20, memory >> 20, plan.flows);
            assert!(bytes <= memory / 12 && bytes > memory / 600, "{bytes} of {memory}");
            let mib = memory >> 20;
            let expected = format!("{expected_flows} flows, derived from {mib} MiB of memory");
            assert!(plan.render().contains(&expected), "{}", plan.render());
            let set = planned("[region]\nmax_flows = 1000\n");
            assert_eq!(set.flows, Flows::Set(1000));
            assert!(set.render().contains("1000 flows (region.max_flows)"));
        }
        tree.write("proc/meminfo", "MemTotal: 256000 kB\nMemAvailable: 1 kB\n");
        let minimum = Flows::FromMemory { flows: 65_536, memory: 256_000 * 1024 };
        assert_eq!(planned("").flows, minimum, "the minimum");
        tree.write("proc/meminfo", "MemAvailable: 1 kB\n");
        assert_eq!(planned("").flows, Flows::FromMemory { flows: 65_536, memory: 0 });
    }
}

#[test]
fn nat_flow_limit_derives_from_unconfirmed_capacity() {
    let tree = Tree::new("new-flows", &[("0-1", 0, 0)]);
    tree.write("proc/meminfo", "MemTotal: 3700000 kB\nMemAvailable: 1 kB\n");
    tree.write("sys/devices/system/cpu/online", "0-2,5\n");
    let planned = |more: &str| plan_below(&checked(&format!("{more}{ARM}")), &tree.root);
    let derived = |each, lcores, unconfirmed| NewFlows::Derived { each, lcores, unconfirmed };
    let nat = |addresses: &str| {
        let region = "[region]\nmax_backends = 2048";
        format!("{region}\n[fastpath]\nlcores = [1, 2]\n[nat]\n{addresses}\n")
    };
    for (more, expected) in [
        // Without NAT addresses: half of 524,288 flows; four times as many per second, on 2 lcores.
        ("[fastpath]\nlcores = [1, 2]\n".to_owned(), derived(524_288, 2, 262_144)),
        // The number of ports towards one backend, for the family with fewer addresses.
        (nat("addresses = \"10.0.1.9\""), derived(63_488, 2, 31_744)),
        (
            nat("addresses = [\"10.0.1.8\", \"10.0.1.9\"]\nports = \"2000-2999\""),
            derived(4_000, 2, 2_000),
        ),
        ("[region]\nunconfirmed_percent = 10\n".to_owned(), derived(209_712, 1, 52_428)),
        // With XDP each CPU is an lcore.
        ("plane = \"xdp\"\n".to_owned(), derived(262_144, 4, 262_144)),
        ("[flows]\nnat_new_per_s = 5\n".to_owned(), NewFlows::Set(5)),
        ("[flows]\nnat_new_per_s = 0\n".to_owned(), NewFlows::Set(0)),
    ] {
        assert_eq!(planned(&more).new_flows, expected, "{more}");
    }
    let rendered = planned(&nat("addresses = \"10.0.1.9\"")).render();
    let expected = "New flows by NAT: at most 63488 per second and lcore (2 lcores), so that 31744";
    assert!(rendered.contains(expected), "{rendered}");
    let config = checked(&format!("[flows]\nnat_new_per_s = 7\ntunnel_new_per_s = 8\n{ARM}"));
    let limits = NewFlowLimits { translated: 7, tunneled: 8 };
    assert_eq!(new_flow_limits(&config, 1024, 3), limits);
}

#[test]
fn region_keeps_its_capacity_while_max_flows_is_unset() {
    let tree = Tree::new("kept", &[]);
    let path = tree.root.join("region");
    let config = |max_flows: &str| {
        checked(&format!(
            "[region]\npath = \"{}\"\nslots = 8192\nnat_maps = 8\nmax_backends = 8\n{max_flows}\n\
             [fastpath]\nhugepages = false\n{ARM}",
            path.display()
        ))
    };
    let flows = |opened: &Opened| opened.region.sizes().flows;
    let opened = open_region(&config("max_flows = 1024"), Unreadable::Fail).unwrap();
    assert_eq!(flows(&opened), 1024);
    drop(opened);
    let opened = open_region(&config(""), Unreadable::Fail).unwrap();
    assert_eq!(flows(&opened), 1024);
    let allowed = sizes(&config("")).flows;
    let expected =
        format!("keeps its capacity of 1024 flows; this machine's memory allows {allowed}");
    assert!(opened.notes.iter().any(|note| note.contains(&expected)), "{:?}", opened.notes);
    drop(opened);
    // The region must not silently have another capacity than the configured one.
    let error = open_region(&config("max_flows = 2048"), Unreadable::Fail).unwrap_err();
    assert!(error.to_string().contains("region.max_flows is 2048"), "{error}");
}

#[test]
fn terms_sum_to_the_size_of_each_part_and_render_with_their_keys() {
    let plan = planned("");
    for (part, bytes) in [(Part::Region, plan.region_bytes), (Part::Dpdk, plan.dpdk_bytes)] {
        let sum: u64 = plan.terms.iter().filter(|t| t.part == part).map(|t| t.bytes).sum();
        assert_eq!(sum, bytes);
    }
    assert_eq!(plan.dpdk_bytes, 256 << 20);
    let flows = planned("[region]\nmax_flows = 1048576");
    assert!(flows.region_bytes > plan.region_bytes + (1048576 - 65536) * (2 * 64 + 192));
    let text = plan.render();
    for part in ["region.max_flows", "fastpath.buffers", "pages of 2 MiB", "region.slots"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    println!("{text}");
}

#[test]
fn missing_pages_are_reported_with_commands() {
    let (plan, tree) = (planned(""), Tree::new("missing", &[("0-1", 10, 4)]));
    let (dpdk, region) = pages(&plan);
    let result = check(&plan, &tree.machine());
    assert_eq!(result.nodes[0].missing(), dpdk + region - 4);
    let text = result.render();
    let nr =
        tree.root.join("sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages");
    let typed = format!("echo {} > {}", 10 + dpdk + region - 4, nr.display());
    assert!(text.contains(&typed) && text.contains("weir hugepages apply"), "{text}");
    assert!(text.contains("/etc/sysctl.d/80-weir.conf"), "{text}");
    println!("{text}");
}

#[test]
fn pages_of_an_existing_region_need_not_be_free() {
    let plan = planned("");
    let (dpdk, region) = pages(&plan);
    let tree = Tree::new("enough", &[("0-1", 1000, dpdk + region)]);
    assert!(check(&plan, &tree.machine()).enough());
    let tree = Tree::new("held", &[("0-1", 1000, dpdk)]);
    assert!(!check(&plan, &tree.machine()).enough());
    tree.write("dev/hugepages/weir-region", "");
    let file = std::fs::File::create(tree.root.join("dev/hugepages/weir-region")).unwrap();
    file.set_len(plan.region_bytes).unwrap();
    let result = check(&plan, &tree.machine());
    assert!(result.enough(), "{}", result.render());
}

#[test]
fn memory_is_spread_over_the_nodes_as_eal_does() {
    let plan = planned("[fastpath]\nlcores = [1, 4, 5]");
    let (dpdk, region) = pages(&plan);
    let tree = Tree::new("nodes", &[("0-3", 0, 0), ("4-7", 0, 0), ("8-11", 0, 0)]);
    let result = check(&plan, &tree.machine());
    let needed: Vec<_> = result.nodes.iter().map(|n| (n.id, n.needed)).collect();
    let second = dpdk * 2 / 3;
    assert_eq!(needed, [(0, dpdk - second + region), (1, second)]);
}

/// Creates a machine with two nodes, and returns it with a configuration of two arms. `ingress` and
/// `egress` are the contents of the `numa_node` files of their NICs.
fn two_nodes(name: &str, ingress: &str, egress: &str) -> (Tree, String) {
    let tree = Tree::new(name, &[("0-3,8", 0, 0), ("4-7", 0, 0)]);
    tree.write("sys/bus/pci/devices/0000:3b:00.0/numa_node", ingress);
    tree.write("sys/class/net/eth2/device/numa_node", egress);
    let arms = "[ingress]\ndevice = \"3B:00.0\"\naddress = \"10.0.1.10/24\"\n[egress]\ndevice = \
                \"net_af_packet0,iface=eth2\"\naddress = \"10.0.2.10/24\"\n";
    (tree, arms.to_owned())
}

fn plan_of(lcores: &str, arms: &str) -> Plan {
    let text = format!("[fastpath]\nlcores = {lcores}\nmain_core = 9\n{arms}");
    plan_below(&checked(&text), Path::new("/nowhere"))
}

#[test]
fn memory_is_planned_on_the_node_of_the_nics() {
    let (tree, arms) = two_nodes("numa", "1\n", "1\n");
    let plan = plan_of("[4, 5]", &arms);
    let machine = tree.machine();
    let (dpdk, region) = pages(&plan);
    assert_eq!(hugepages::numa::nic_node(&plan, &machine), Some(1));
    let result = check(&plan, &machine);
    let needed: Vec<_> = result.nodes.iter().map(|n| (n.id, n.needed)).collect();
    assert_eq!((needed, result.warnings.len()), (vec![(1, dpdk + region)], 0));
    let all = format!("node 1: {} pages of 2 MiB\n", dpdk + region);
    assert_eq!(result.render_nodes(&machine), all);
    // The firmware of most virtual machines provides no node: EAL distributes memory by lcores.
    let (tree, arms) = two_nodes("numa-none", "-1\n", "-1\n");
    let result = check(&plan_of("[0, 4]", &arms), &tree.machine());
    assert_eq!((result.nodes.len(), result.warnings.len()), (2, 0));
}

#[test]
fn lcores_and_nics_on_different_nodes_cause_a_warning() {
    let (tree, arms) = two_nodes("numa-lcores", "0\n", "-1\n");
    let result = check(&plan_of("[2, 4, 5]", &arms), &tree.machine());
    let [warning] = &result.warnings[..] else { panic!("{:?}", result.warnings) };
    for part in ["fastpath.lcores", "CPU 4, 5", "node 0", "ingress.device = \"3B:00.0\"", "0-3, 8"]
    {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert!(result.render_nodes(&tree.machine()).contains(warning));
    let (tree, arms) = two_nodes("numa-nics", "0\n", "1\n");
    let plan = plan_of("[0, 4]", &arms);
    let result = check(&plan, &tree.machine());
    let [warning] = &result.warnings[..] else { panic!("{:?}", result.warnings) };
    assert!(
        warning.contains("egress.device = \"net_af_packet0,iface=eth2\" on node 1"),
        "{warning}"
    );
    assert_eq!((hugepages::numa::nic_node(&plan, &tree.machine()), result.nodes.len()), (None, 2));
}

#[test]
fn region_pages_on_another_node_than_the_nics_cause_a_warning() {
    let (tree, arms) = two_nodes("numa-region", "0\n", "0\n");
    let (plan, machine) = (plan_of("[0]", &arms), tree.machine());
    let maps = |pages: &str| {
        let path = plan.region_path.display();
        let text = format!(
            "7f00 default file={path}.old huge N1=9\n7f01 default anon=3 N1=3\n\
             7f02 default file={path} huge dirty=12 {pages} kernelpagesize_kB=2048\n"
        );
        hugepages::numa::region_warning(&plan, &machine, &text)
    };
    assert_eq!(maps("N0=12"), None);
    let warning = maps("N0=5 N1=7").unwrap();
    for part in ["7 pages", "weir-region", "node than 0", "ingress.device", "weir hugepages apply"]
    {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    let one = Tree::new("numa-one", &[("0-3", 0, 0)]);
    one.write("sys/bus/pci/devices/0000:3b:00.0/numa_node", "0\n");
    assert_eq!(check(&plan, &one.machine()).render_nodes(&one.machine()), "");
    assert_eq!(hugepages::numa::nic_node(&plan, &one.machine()), None);
}

#[test]
fn counters_have_terms_with_their_keys() {
    let lines = |plan: &Plan, key: &str| {
        let term = plan.terms.iter().find(|term| term.setting == key).unwrap();
        (term.count, term.bytes_each, term.bytes)
    };
    // Each of the four lcores has one more line, for the objects without a line of their own.
    let four = "[fastpath]\nlcores = [1, 2, 3, 4]\n";
    let plan = planned(four);
    assert_eq!(lines(&plan, "region.counted_services"), (4 * 1025, 64, 4 * 1025 * 64));
    assert_eq!(lines(&plan, "region.counted_backends"), (4 * 4097, 64, 4 * 4097 * 64));
    let keys = "[region]\nmax_services = 200000\nmax_backends = 70000\nnat_maps = 300000\n";
    let bounded = planned(&format!("{four}{keys}"));
    assert_eq!(lines(&bounded, "region.counted_services").0, 4 * 65_537);
    assert_eq!(lines(&bounded, "region.counted_backends").0, 4 * 65_537);
    let set = planned(&format!("{four}{keys}counted_services = 10\ncounted_backends = 0\n"));
    assert_eq!(lines(&set, "region.counted_services").0, 4 * 11);
    assert_eq!(lines(&set, "region.counted_backends").0, 4);
    for plan in [plan, bounded, set] {
        let region = plan.terms.iter().filter(|t| t.part == Part::Region).map(|t| t.bytes);
        assert_eq!(region.sum::<u64>(), plan.region_bytes);
    }
}

#[test]
fn apply_reserves_what_check_reports_missing() {
    let (plan, tree) = (planned(""), Tree::new("apply", &[("0-1", 10, 4)]));
    let machine = tree.machine();
    let (dpdk, region) = pages(&plan);
    let applied = apply(&plan, &machine).unwrap();
    assert_eq!(applied.nodes, [(0, 10, 10 + dpdk + region - 4)]);
    assert!(applied.render().contains("node 0: 10 pages of 2 MiB before"), "{}", applied.render());
}

#[test]
fn failed_reservation_is_reported() {
    // A file that grants only some of the pages cannot be emulated. `/dev/null` accepts the number
    // and then reads as 0 pages.
    let (plan, tree) = (planned(""), Tree::new("short", &[("0-1", 10, 4)]));
    let mut machine = tree.machine();
    machine.nodes[0].two_mib.nr = "/dev/null".into();
    let error = apply(&plan, &machine).unwrap_err();
    let (dpdk, region) = pages(&plan);
    let ApplyError::Short { requested, got, .. } = error else { panic!("{error}") };
    assert_eq!((requested, got), (dpdk + region - 4, 0));
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    machine.nodes[0].two_mib.nr = tree.root.join("no/such/file");
    let error = apply(&plan, &machine).unwrap_err();
    assert!(error.to_string().contains("sudo weir hugepages apply"), "{error}");
}

#[test]
fn missing_kernel_support_and_mount_are_reported() {
    let (plan, tree) = (planned(""), Tree::new("without", &[]));
    tree.write("proc/self/mounts", "/dev/root / ext4 rw 0 0\n");
    std::fs::remove_dir_all(tree.root.join("sys")).unwrap();
    let text = check(&plan, &tree.machine()).render();
    assert!(text.contains("fastpath.hugepages = false"), "{text}");
    assert!(text.contains("mount -t hugetlbfs -o pagesize=2M none /dev/hugepages"), "{text}");
    assert!(apply(&plan, &tree.machine()).is_err());
}

#[test]
fn apply_mounts_where_nothing_is_mounted_and_once_only() {
    let (plan, tree) = (planned(""), Tree::new("mount", &[("0-1", 1000, 1000)]));
    tree.write("proc/self/mounts", "tmpfs /dev/shm tmpfs rw 0 0\n");
    let result = check(&plan, &tree.machine());
    assert!(!result.enough() && result.mount == Some("/dev/hugepages".into()));
    let text = result.render();
    assert!(text.contains("weir hugepages apply") && text.contains("/etc/fstab"), "{text}");
    let failed = apply_with(&plan, &tree.machine(), |_| Err(std::io::Error::other("no right")));
    assert!(failed.unwrap_err().to_string().contains("/dev/hugepages: no right"));
    let mount = |path: &Path| {
        let mounts = format!("none {} hugetlbfs rw,pagesize=2M 0 0\n", path.display());
        tree.write("proc/self/mounts", &mounts);
        Ok(())
    };
    let applied = apply_with(&plan, &tree.machine(), mount).unwrap();
    assert!(applied.result.enough(), "{}", applied.render());
    assert!(applied.render().contains("hugetlbfs mounted on /dev/hugepages"));
    let again = apply_with(&plan, &tree.machine(), |_| panic!("mounted twice")).unwrap();
    assert!(again.mounted.is_none() && again.nodes.is_empty());
}

#[test]
fn without_hugepages_ordinary_memory_is_checked() {
    let plan = planned("[fastpath]\nhugepages = false");
    let tree = Tree::new("ordinary", &[("0-1", 0, 0)]);
    let result = check(&plan, &tree.machine());
    assert!(result.enough() && result.nodes.is_empty(), "{}", result.render());
    tree.write("proc/meminfo", "MemAvailable: 1000 kB\n");
    let text = check(&plan, &tree.machine()).render();
    assert!(text.contains("of ordinary memory required"), "{text}");
}

#[test]
fn wrong_page_size_and_disk_are_reported() {
    let tree = Tree::new("sizes", &[("0-1", 999, 999)]);
    tree.write("proc/self/mounts", "none /dev/hugepages hugetlbfs rw,pagesize=1024M 0 0\n");
    let text = check(&planned(""), &tree.machine()).render();
    assert!(text.contains("pages of 1.0 GiB") && text.contains("hugepages-2M"), "{text}");
    let disk = planned("[region]\npath = \"/var/lib/weir/region\"");
    let text = check(&disk, &tree.machine()).render();
    assert!(text.contains("warning: /var/lib/weir/region is on neither"), "{text}");
}

#[test]
fn pages_of_1_gib_are_planned_reserved_and_mounted_on_a_directory_of_their_own() {
    let plan = planned("[fastpath]\nhugepage_size = \"1G\"\nmemory_mib = 1100");
    // Both parts are whole pages.
    assert_eq!((plan.page, pages(&plan)), (PageSize::OneGib, (2, 1)));
    assert_eq!(plan.region_path, Path::new("/dev/hugepages-1G/weir-region"));
    assert!(plan.render().contains("3 pages of 1 GiB"), "{}", plan.render());
    // Pages of 2 MiB do not help.
    let tree = Tree::new("gigabyte", &[("0-1", 5000, 5000)]);
    let text = check(&plan, &tree.machine()).render();
    assert!(text.contains("does not support pages of 1 GiB") && text.contains("pdpe1gb"), "{text}");
    tree.add_gigabytes(&[(1, 1)]);
    let result = check(&plan, &tree.machine());
    let node = result.nodes[0];
    assert_eq!((node.needed, node.total, node.free, node.missing()), (3, 1, 1, 2));
    let nr = "sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages";
    let expected = format!(
        "2 pages of 1 GiB missing (3 needed, 1 of 1 free): type `weir hugepages apply`, or \
         `echo 3 > {}`",
        tree.root.join(nr).display()
    );
    assert!(result.render().contains(&expected), "{}", result.render());
    for part in ["hugepagesz=1G hugepages=3", "on /dev/hugepages-1G", "pagesize=1G"] {
        assert!(result.render().contains(part), "{part}: {}", result.render());
    }
    let mount = |path: &Path| {
        assert_eq!(path, Path::new("/dev/hugepages-1G"));
        tree.write("proc/self/mounts", "none /dev/hugepages-1G hugetlbfs rw,pagesize=1024M 0 0\n");
        tree.write(
            "sys/devices/system/node/node0/hugepages/hugepages-1048576kB/free_hugepages",
            "3",
        );
        Ok(())
    };
    let applied = apply_with(&plan, &tree.machine(), mount).unwrap();
    assert_eq!(applied.nodes, [(0, 1, 3)]);
    assert!(applied.result.enough(), "{}", applied.render());
    let two =
        tree.root.join("sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages");
    assert_eq!(std::fs::read_to_string(two).unwrap(), "5000", "the other size stays");
    // A region on pages of the other size is reported.
    let text = check(&planned(""), &tree.machine()).render();
    assert!(text.contains("no hugetlbfs is mounted on /dev/hugepages,"), "{text}");
}

#[test]
fn pages_of_1_gib_are_planned_on_the_node_of_the_nics() {
    let (tree, arms) = two_nodes("numa-gigabyte", "1\n", "1\n");
    tree.add_gigabytes(&[(4, 4), (0, 0)]);
    let plan = plan_of("[4, 5]\nhugepage_size = \"1G\"", &arms);
    let result = check(&plan, &tree.machine());
    let needed: Vec<_> = result.nodes.iter().map(|n| (n.id, n.needed, n.missing())).collect();
    assert_eq!(needed, [(1, 2, 2)], "those of node 0 do not count");
    assert_eq!(hugepages::pages_at_boot(&plan, &tree.machine())[0].needed, 2);
}

#[test]
fn memory_is_compacted_if_the_kernel_reserves_too_few_pages() {
    // `/dev/null` reads as 0 pages, however often they are requested.
    let (plan, tree) = (planned(""), Tree::new("compact", &[("0-1", 10, 4)]));
    let mut machine = tree.machine();
    machine.nodes[0].two_mib.nr = "/dev/null".into();
    tree.write("proc/sys/vm/compact_memory", "0");
    let error = apply(&plan, &machine).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("hugepagesz=2M hugepages=") && text.contains("weir tune apply"),
        "{text}"
    );
    let compacted = std::fs::read_to_string(tree.root.join("proc/sys/vm/compact_memory")).unwrap();
    assert_eq!(compacted, "1");
}

#[test]
fn unreadable_machine_is_reported_with_a_remedy() {
    let error = Machine::read(Path::new("/nowhere")).unwrap_err();
    assert!(error.to_string().contains("mount -t proc"), "{error}");
    let tree = Tree::new("odd", &[]);
    tree.write("proc/meminfo", "MemAvailable: much\n");
    let error = Machine::read(&tree.root).unwrap_err();
    assert!(error.to_string().contains("much"), "{error}");
}

#[test]
fn plane_xdp_needs_no_hugepages_but_memory_and_a_bpf_file_system() {
    let tree = Tree::new("xdp", &[("0-3", 0, 0)]);
    let plan = planned("plane = \"xdp\"");
    assert_eq!((plan.dpdk_bytes, plan.terms.iter().map(|t| t.bytes).sum()), (0, plan.region_bytes));
    let text = plan.render();
    assert!(
        text.contains("no hugepages are needed") && text.contains("region.max_flows"),
        "{text}"
    );
    assert!(text.contains("/sys/fs/bpf/weir") && !text.contains(" 2 MiB"), "{text}");
    let result = check(&plan, &tree.machine());
    assert!(result.enough() && result.nodes.is_empty(), "{result:?}");
    let elsewhere = planned("plane = \"xdp\"\n[region]\nmaps = \"/bpf/weir\"");
    let result = check(&elsewhere, &tree.machine());
    assert!(result.problems[0].contains("region.maps = \"/bpf/weir\""), "{result:?}");
    tree.write("proc/self/mounts", "none /bpf bpf rw 0 0\n");
    assert!(check(&elsewhere, &tree.machine()).enough());
    tree.write("proc/meminfo", "MemAvailable: 4000 kB\n");
    let result = check(&elsewhere, &tree.machine());
    assert!(result.problems[0].contains("region.max_flows"), "{result:?}");
}

#[test]
fn kernel_reserves_two_pages_and_is_restored() {
    let machine = Machine::read(Path::new("/")).unwrap();
    let node = &machine.nodes[0];
    let page = PageSize::TwoMib;
    assert!(machine.supported.contains(&page), "this kernel has no huge pages of 2 MiB");
    let before = node.pages(page);
    let writable = std::fs::OpenOptions::new().write(true).open(&before.nr);
    writable.unwrap_or_else(|e| panic!("{}: {e}; run the tests as root", before.nr.display()));
    let plan = Plan {
        plane: Plane::Dpdk,
        terms: Vec::new(),
        region_path: "/dev/shm/weir/region".into(),
        region_bytes: 0,
        dpdk_bytes: (before.free + 2) * page.bytes(),
        hugepages: true,
        page,
        lcores: node.cpus.first().copied().into_iter().collect(),
        nics: Vec::new(),
        flows: Flows::Set(0),
        new_flows: NewFlows::Set(0),
    };
    let applied = apply(&plan, &machine);
    let now = Machine::read(Path::new("/")).unwrap();
    std::fs::write(&before.nr, before.total.to_string()).unwrap();
    let applied = applied.unwrap();
    assert_eq!(applied.nodes, [(node.id, before.total, before.total + 2)]);
    assert!(applied.result.enough(), "{}", applied.render());
    assert_eq!(now.nodes[0].pages(page).total, before.total + 2);
    let last = Machine::read(Path::new("/")).unwrap();
    assert_eq!(last.nodes[0].pages(page).total, before.total);
}
