//! Devices, memory and CPUs with plane dpdk.

use super::*;

#[test]
fn missing_devices_and_drivers_are_reported() {
    let mut subject = Subject::aws("");
    subject.assert_found("device", Severity::Ok, &["Amazon Elastic Network Adapter", "ens6"]);
    subject.assert_found("driver", Severity::Ok, &["fastpath has net_ena"]);
    subject.dpdk = None;
    subject.assert_found("driver", Severity::NotChecked, &["fastpath --drivers"]);
    subject.dpdk = Dpdk::parse("DPDK 24.11.1\nnet_mana");
    subject.assert_found("driver", Severity::Error, &["fastpath has no driver net_ena"]);
    let text = "[ingress]\ndevice = \"0000:00:09.0\"\naddress = \"10.0.1.10/24\"\n";
    let missing = Subject::new(Fake::aws(), text);
    missing.assert_found("device", Severity::Error, &["0000:00:09.0", "| weir nic list"]);
    let text = "[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"\n";
    let null = Subject::new(Fake::aws(), text);
    null.assert_found("driver", Severity::Ok, &["net_null"]);
    null.assert_found("device", Severity::Ok, &["without an interface"]);
    let text = "[ingress]\ndevice = \"net_af_packet0,iface=eth7\"\naddress = \"10.0.1.10/24\"\n";
    let absent = Subject::new(Fake::aws(), text);
    absent.assert_found("device", Severity::Error, &["no interface eth7"]);
    let text = "[ingress]\ndevice = \"net_strange0\"\naddress = \"10.0.1.10/24\"\n";
    let strange = Subject::new(Fake::aws(), text);
    strange.assert_found("driver", Severity::NotChecked, &["does not know this driver"]);
}

#[test]
fn a_nic_that_is_not_bound_for_dpdk_is_reported() {
    let subject = Subject::aws("");
    let parts = ["bound to ena", "cannot be bound: igb_uio is not loaded", "weir nic plan"];
    subject.assert_found("binding", Severity::Error, &parts);
    subject.fake.driver("pci", "igb_uio");
    let parts = ["fastpath cannot open it", "| weir nic bind 0000:00:06.0"];
    subject.assert_found("binding", Severity::Error, &parts);

    let device = "sys/devices/pci0000:00/0000:00:06.0";
    subject.remove(&format!("{device}/driver"));
    subject.fake.link(&format!("{device}/driver"), "sys/bus/pci/drivers/igb_uio");
    subject.assert_among("binding", Severity::Ok, &["bound to igb_uio"]);
    subject.assert_among("binding", Severity::Info, &["wc_activate=1"]);
    assert_eq!(subject.report().count(Severity::Error), 0);
    assert_eq!(subject.report().automatic.plane, Plane::Dpdk);
    subject.fake.driver("pci", "uio_hv_generic");
    subject.remove(&format!("{device}/driver"));
    subject.fake.link(&format!("{device}/driver"), "sys/bus/pci/drivers/uio_hv_generic");
    subject.assert_found("binding", Severity::Error, &["works with igb_uio"]);
}

#[test]
fn a_nic_with_an_ssh_session_is_reported() {
    let text = "[ingress]\ndevice = \"0000:00:05.0\"\naddress = \"10.0.0.5/24\"\n";
    let subject = Subject::new(Fake::aws(), text);
    let parts = ["ens5 carries an ssh session", "only while fastpath runs"];
    subject.assert_among("binding", Severity::Warning, &parts);
}

#[test]
fn mana_needs_its_modules_linux_6_2_and_dpdk_23_11() {
    let text = "[ingress]\ndevice = \"0002:00:02.0\"\naddress = \"10.0.1.10/24\"\nmtu = 1550\n";
    let mut subject = Subject::new(Fake::azure("1414:00ba", "mana"), text);
    subject.add_system_files();
    let parts =
        ["modules not loaded: mana, mana_ib, ib_uverbs", "modprobe -a mana mana_ib ib_uverbs"];
    subject.assert_found("binding", Severity::Error, &parts);
    for module in ["mana", "mana_ib", "ib_uverbs"] {
        subject.fake.directory(&format!("sys/module/{module}"));
    }
    subject.assert_found("binding", Severity::Ok, &["stays with the kernel's driver"]);
    subject.assert_found("driver", Severity::Ok, &["net_mana"]);
    subject.fake.file("proc/sys/kernel/osrelease", "6.1.0-56-cloud-amd64");
    let parts = ["needs Linux 6.2, this machine runs 6.1", "plane = \"xdp\""];
    subject.assert_among("driver", Severity::Error, &parts);
    subject.remove("proc/sys/kernel/osrelease");
    subject.assert_among("driver", Severity::NotChecked, &["version is unknown"]);
    // DPDK 22.11 limits the MTU.
    assert!(!subject.found("MTU").iter().any(|line| line.starts_with("Error")));
    subject.dpdk = Dpdk::parse("DPDK 22.11.11\nnet_mana");
    subject.assert_among("MTU", Severity::Error, &["ingress.mtu = 1550", "1500 at most"]);
    subject.assert_among("driver", Severity::Error, &["usable from DPDK 23.11 on"]);
}

#[test]
fn packets_that_a_driver_cannot_scatter_must_fit_in_a_buffer() {
    let text = "[fastpath]\nbuffer_bytes = 2176\n[ingress]\ndevice = \"0002:00:02.0\"\n\
                address = \"10.0.1.10/24\"\nmtu = 4000\n";
    let subject = Subject::new(Fake::azure("1414:00ba", "mana"), text);
    let parts = ["buffer_bytes = 2176", "drops packets", "buffer_bytes = 4150 or more"];
    subject.assert_among("MTU", Severity::Error, &parts);
}

#[test]
fn an_iommu_that_is_missing_or_not_in_use_is_reported() {
    let text = "[ingress]\ndevice = \"0000:03:00.0\"\naddress = \"10.0.1.10/24\"\n";
    let subject = Subject::new(Fake::bare_metal(), text);
    subject.add_system_files();
    subject.assert_found("IOMMU", Severity::Ok, &["dmar0"]);
    subject.remove("sys/class/iommu");
    subject.assert_found("IOMMU", Severity::NotChecked, &["/sys/firmware/acpi/tables"]);
    subject.fake.file("sys/firmware/acpi/tables/APIC", "");
    subject.assert_found("IOMMU", Severity::Info, &["a UIO driver"]);
    subject.fake.file("sys/firmware/acpi/tables/DMAR", "");
    let parts = ["not in use", "weir tune apply && update-grub"];
    subject.assert_found("IOMMU", Severity::Warning, &parts);
    // Without an IOMMU, vfio confines nothing.
    let device = "sys/devices/pci0000:00/0000:03:00.0";
    subject.fake.driver("pci", "vfio-pci");
    for link in ["driver", "iommu_group"] {
        subject.remove(&format!("{device}/{link}"));
    }
    subject.fake.link(&format!("{device}/driver"), "sys/bus/pci/drivers/vfio-pci");
    subject.assert_found("IOMMU", Severity::Warning, &["can read and write all memory"]);
    // No device of this machine can use it.
    let null = Subject::new(
        Fake::aws(),
        "[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"\n",
    );
    assert_eq!(null.found("IOMMU"), Vec::<String>::new());
}

#[test]
fn missing_memory_is_reported_for_now_and_for_the_next_boot() {
    let subject = Subject::aws("");
    subject.assert_found("memory", Severity::Ok, &["pages of 2 MiB"]);
    subject.assert_found("hugetlbfs", Severity::Ok, &["/dev/hugepages"]);
    let parts = ["nothing reserves", "weir tune apply && update-grub && reboot"];
    subject.assert_found("memory at boot", Severity::Warning, &parts);
    let plan = || {
        crate::tune::plan(&subject.fake.root(), &subject.config, &subject.fake.inventory()).unwrap()
    };
    crate::tune::apply(&subject.fake.root(), &plan(), &subject.commands).unwrap();
    subject.assert_found("memory at boot", Severity::Warning, &["| update-grub && reboot"]);
    assert_eq!(plan().boot_remedy(), "update-grub && reboot");
    subject.fake.file("proc/cmdline", "hugepages=999");
    subject.assert_found("memory at boot", Severity::Ok, &["command line reserves 999"]);

    let pages = "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    subject.fake.file(pages, "3");
    let parts = ["3 of 2000 free) | ", "does not start | `weir hugepages apply`, or `echo"];
    subject.assert_found("memory", Severity::Error, &parts);
    subject.fake.file("proc/99/comm", "fastpath");
    subject.assert_found("memory", Severity::Ok, &["in use by fastpath (process 99)"]);
    subject.remove("proc/99");
    subject.fake.file("proc/self/mounts", "proc /proc proc rw 0 0");
    let parts = ["no hugetlbfs is mounted on /dev/hugepages", "| `weir hugepages apply`"];
    subject.assert_found("hugetlbfs", Severity::Error, &parts);
    subject.assert_found("memory", Severity::Error, &["pages of 2 MiB missing"]);
    subject.fake.file("proc/self/mounts", "tmpfs /dev/hugepages tmpfs rw 0 0");
    subject.assert_found("hugetlbfs", Severity::Info, &["is not on hugetlbfs"]);
    subject.remove("proc/meminfo");
    subject.assert_found("memory", Severity::NotChecked, &["proc/meminfo"]);
    assert_eq!(subject.found("memory at boot"), Vec::<String>::new());
}

#[test]
fn both_sizes_of_hugepages_are_examined() {
    let gigabytes = |subject: &Subject, total: &str, free: &str| {
        let directory = "sys/kernel/mm/hugepages/hugepages-1048576kB";
        subject.fake.file(&format!("{directory}/nr_hugepages"), total);
        subject.fake.file(&format!("{directory}/free_hugepages"), free);
    };
    let subject = Subject::aws("");
    subject.assert_found("hugepage size", Severity::Ok, &["pages of 2 MiB only"]);
    gigabytes(&subject, "3", "3");
    let parts = ["3 pages of 1 GiB are reserved and free", "hugepage_size"];
    subject.assert_found("hugepage size", Severity::Info, &parts);
    subject.assert_found("memory", Severity::Ok, &["pages of 2 MiB"]);

    let large = "[region]\nmax_flows = 16777216";
    let subject = Subject::aws(large);
    subject.assert_found("hugepage size", Severity::Ok, &[]);
    gigabytes(&subject, "0", "0");
    let parts = ["MiB in pages of 2 MiB", "TLB", "fastpath.hugepage_size = \"1G\""];
    subject.assert_found("hugepage size", Severity::Warning, &parts);

    let subject = Subject::aws("hugepage_size = \"1G\"");
    let parts = ["does not support pages of 1 GiB", "pdpe1gb"];
    subject.assert_among("memory", Severity::Error, &parts);
    gigabytes(&subject, "2", "1");
    let parts = ["1 page of 1 GiB missing (2 needed, 1 of 2 free)", "| `weir hugepages apply`"];
    subject.assert_found("memory", Severity::Error, &parts);
    let parts = ["on /dev/hugepages-1G", "pagesize=1G"];
    subject.assert_found("hugetlbfs", Severity::Error, &parts);
    let parts = ["2000 pages of 2 MiB are reserved and free"];
    subject.assert_found("hugepage size", Severity::Info, &parts);
    let parts = ["nothing reserves pages of 1 GiB", "weir tune apply && update-grub && reboot"];
    subject.assert_found("memory at boot", Severity::Warning, &parts);
    gigabytes(&subject, "2", "2");
    subject.fake.file("proc/self/mounts", "none /dev/hugepages-1G hugetlbfs rw,pagesize=1024M 0 0");
    subject.fake.file("proc/cmdline", "hugepagesz=1G hugepages=2");
    subject.assert_found("memory", Severity::Ok, &["2 pages of 1 GiB"]);
    subject.assert_found("hugetlbfs", Severity::Ok, &["1 GiB, mounted on /dev/hugepages-1G"]);
    subject.assert_found("memory at boot", Severity::Ok, &["reserves 2 pages of 1 GiB"]);
}

#[test]
fn the_interface_of_a_virtual_device_needs_the_mtu_of_the_arm() {
    let text = "[fastpath]\nlcores = [2, 3]\n[ingress]\ndevice = \"net_af_packet0,iface=ens6\"\n\
                address = \"10.0.1.10/24\"\nmtu = 3000\n";
    let subject = Subject::new(Fake::aws(), text);
    subject.add_system_files();
    subject.fake.file("sys/class/net/ens6/mtu", "1500");
    let parts = ["the MTU of ens6 is 1500", "fastpath does not start", "ip link set dev ens6 mtu"];
    subject.assert_among("MTU", Severity::Error, &parts);
    subject.fake.file("sys/class/net/ens6/mtu", "3000");
    let found = subject.found("MTU");
    assert!(found.len() == 2 && found.iter().all(|line| line.starts_with("Ok")), "{found:#?}");
}

#[test]
fn missing_and_shared_cpus_of_lcores_are_reported() {
    let subject = Subject::aws("");
    subject.assert_found("lcores", Severity::Ok, &["CPU 2-3 of 0-3"]);
    subject.assert_found("isolated CPUs", Severity::Ok, &["CPU 2-3 runs lcores only"]);
    subject.fake.file("sys/devices/system/cpu/isolated", "2");
    subject.fake.file("sys/devices/system/cpu/nohz_full", "(null)");
    let parts = ["isolcpus lacks CPU 3, nohz_full lacks CPU 2-3, rcu_nocbs lacks CPU 2-3"];
    subject.assert_found("isolated CPUs", Severity::Warning, &parts);
    subject.remove("sys/devices/system/cpu/nohz_full");
    subject.fake.file("proc/cmdline", "rcu_nocbs=2-3");
    let parts = ["| isolcpus lacks CPU 3 |", "weir tune apply && update-grub && reboot"];
    subject.assert_found("isolated CPUs", Severity::Warning, &parts);
    subject.fake.file("sys/devices/system/cpu/isolated", "2-3");
    subject.assert_found("isolated CPUs", Severity::Ok, &["built without nohz_full"]);

    let sleeping = Subject::aws("idle = \"sleep\"");
    sleeping.assert_found("isolated CPUs", Severity::Info, &["fastpath.idle = \"sleep\""]);
    subject.fake.file("sys/devices/system/cpu/online", "0-2");
    subject.assert_found("lcores", Severity::Error, &["name CPU 3, this machine has 0-2"]);
    subject.remove("sys/devices/system/cpu/online");
    subject.assert_found("lcores", Severity::NotChecked, &["online cannot be read"]);
    let all = Subject::aws("idle = \"yield\"");
    all.fake.file("sys/devices/system/cpu/online", "2-3");
    all.fake.file("sys/devices/system/cpu/isolated", "");
    let yielding = "[fastpath]\nlcores = [2, 3]\nmain_core = 2\nidle = \"yield\"\n[ingress]\n\
                    device = \"0000:00:06.0\"\naddress = \"10.0.1.10/24\"\n";
    let all = Subject { config: config::from_toml(yielding).unwrap(), ..all };
    all.assert_found("lcores", Severity::Warning, &["workqueue lockup", "idle = \"sleep\""]);
}

#[test]
fn interrupts_on_lcores_are_reported() {
    let subject = Subject::aws("");
    subject.assert_found("interrupts", Severity::Ok, &["1 interrupts, none on CPU 2-3"]);
    for number in 31..37 {
        subject.fake.file(&format!("proc/irq/{number}/smp_affinity_list"), "2");
        subject.fake.file(&format!("proc/irq/{number}/nvme/x"), "");
    }
    let parts = ["31 (nvme), 32 (nvme), 33 (nvme), 34 (nvme), and 2 more", "| weir tune apply"];
    subject.assert_found("interrupts", Severity::Warning, &parts);
    subject.remove("proc/irq");
    subject.assert_found("interrupts", Severity::NotChecked, &["/proc/irq"]);
}

#[test]
fn governors_other_than_performance_are_reported() {
    let subject = Subject::aws("");
    subject.assert_found("governor", Severity::Ok, &["does not control"]);
    let governor = |cpu: u16, name: &str| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        subject.fake.file(&path, name);
    };
    for cpu in [0, 2, 3] {
        governor(cpu, "performance");
    }
    governor(1, "powersave");
    subject.assert_found("governor", Severity::Ok, &["performance on CPU 0,2-3"]);
    governor(2, "schedutil");
    subject.assert_found("governor", Severity::Warning, &["schedutil on CPU 2", "weir tune apply"]);
}

#[test]
fn lcores_that_share_a_core_are_reported() {
    let subject = Subject::aws("");
    subject.assert_found("SMT siblings", Severity::Ok, &["a core of its own"]);
    let core = |cpus: &[u16], list: &str| {
        for cpu in cpus {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
            subject.fake.file(&path, list);
        }
    };
    core(&[2, 3], "2-3");
    subject.assert_found("SMT siblings", Severity::Warning, &["CPU 2-3 share a core"]);
    core(&[0, 2], "0,2");
    core(&[1, 3], "1,3");
    subject.assert_among("SMT siblings", Severity::Info, &["main_core = 0 shares", "lcore 2"]);
    subject.assert_among("SMT siblings", Severity::Info, &["CPU 1 shares a core with lcore 3"]);
    subject.remove("sys/devices/system/cpu/cpu3/topology");
    subject.assert_among("SMT siblings", Severity::NotChecked, &["does not show"]);
}

#[test]
fn lcores_and_regions_on_other_nodes_than_the_nics_are_reported() {
    let subject = Subject::aws("");
    subject.assert_found("NUMA", Severity::Ok, &["one node"]);
    for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
        let directory = format!("sys/devices/system/node/node{node}");
        subject.fake.file(&format!("{directory}/cpulist"), cpus);
        for file in ["nr_hugepages", "free_hugepages"] {
            subject.fake.file(&format!("{directory}/hugepages/hugepages-2048kB/{file}"), "2000");
        }
    }
    subject.assert_found("NUMA", Severity::NotChecked, &["no node for the NICs"]);
    let numa_node = "sys/devices/pci0000:00/0000:00:06.0/numa_node";
    subject.fake.file(numa_node, "1");
    subject.assert_among("NUMA", Severity::Ok, &["NICs and lcores are on node 1"]);
    subject.assert_among("NUMA", Severity::NotChecked, &["fastpath does not run"]);
    subject.fake.file("proc/99/comm", "fastpath");
    subject.assert_among("NUMA", Severity::NotChecked, &["numa_maps cannot be read"]);
    let maps = |pages: &str| {
        let line = format!("7f00 default file=/dev/hugepages/weir-region huge {pages}");
        subject.fake.file("proc/99/numa_maps", &line);
    };
    maps("N1=30");
    subject.assert_among("NUMA", Severity::Ok, &["the region is on the node of the NICs"]);
    maps("N0=4 N1=26");
    subject.assert_among("NUMA", Severity::Warning, &["4 pages of the region"]);
    subject.fake.file(numa_node, "0");
    subject.assert_among("NUMA", Severity::Warning, &["CPU 2, 3 not on NUMA node 0"]);
    assert!(!subject.found("memory").iter().any(|line| line.contains("NUMA")), "reported once");
}

#[test]
fn the_mtu_that_tunnels_need_is_reported() {
    let text = "[fastpath]\nlcores = [2, 3]\n[ingress]\ndevice = \"0000:00:06.0\"\n\
                address = \"10.0.1.10/24\"\nmtu = 9001\n[[gateway]]\nname = \"edge\"\n\
                kind = \"aws\"\nsources = \"10.0.1.0/24\"\n";
    let subject = Subject::new(Fake::aws(), text);
    let parts = ["gateway \"edge\" needs 8568 (8500 in a tunnel of 68)"];
    subject.assert_found("MTU", Severity::Ok, &parts);
    Subject::aws("").assert_found("MTU", Severity::Ok, &["no gateway's tunnel"]);
}
