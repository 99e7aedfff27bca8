//! The machine is read from directories with files like the kernel's.

use std::os::unix::fs::symlink;

use super::*;
use crate::Root;
use crate::driver::Version;
use crate::tree::Tree;

#[test]
fn parameters_end_before_those_of_init() {
    let tree = Tree::new();
    assert_eq!(CommandLine::read(&tree.root()), None);
    tree.file("proc/cmdline", "quiet iommu=pt hugepages=1 hugepages=2 -- iommu=off");
    let line = CommandLine::read(&tree.root()).unwrap();
    assert_eq!((line.value("hugepages"), line.value("quiet")), (Some("2"), Some("")));
    assert_eq!(line.value("iommu"), Some("pt"));
    assert!(line.has("iommu=pt") && !line.has("iommu=off") && !line.has("iommu"));
    assert_eq!(line.parameters().count(), 4);
}

#[test]
fn cpus_have_siblings_nodes_and_governors() {
    let tree = Tree::new();
    assert_eq!(Cpus::read(&tree.root()), None);
    let cpu = "sys/devices/system/cpu";
    tree.file(&format!("{cpu}/online"), "0-3");
    tree.file(&format!("{cpu}/isolated"), "");
    let cpus = Cpus::read(&tree.root()).unwrap();
    assert!(cpus.isolated.is_empty() && cpus.rcu_nocbs.is_empty());
    assert_eq!((cpus.nohz_full.as_ref(), cpus.siblings(1), cpus.node(1)), (None, None, None));
    assert_eq!(cpus.governor(1), None);
    tree.file("proc/cmdline", "rcu_nocbs=1");
    tree.file(&format!("{cpu}/nohz_full"), "2-3");
    tree.file(&format!("{cpu}/cpu2/topology/core_cpus_list"), "2-3");
    tree.file(&format!("{cpu}/cpu1/topology/thread_siblings_list"), "0-1");
    tree.file(&format!("{cpu}/cpu2/node1/cpulist"), "2-3");
    tree.file(&format!("{cpu}/cpu2/cpufreq/scaling_governor"), "schedutil");
    tree.file(&format!("{cpu}/cpu2/cpufreq/scaling_available_governors"), "ondemand schedutil");
    let cpus = Cpus::read(&tree.root()).unwrap();
    assert_eq!(cpus.rcu_nocbs.to_string(), "1-3");
    tree.file("proc/cmdline", "rcu_nocbs=all");
    assert_eq!(Cpus::read(&tree.root()).unwrap().rcu_nocbs.to_string(), "0-3");
    assert_eq!(cpus.siblings(2).unwrap().to_string(), "2-3");
    assert_eq!(cpus.siblings(1).unwrap().to_string(), "0-1");
    assert_eq!((cpus.node(2), cpus.governor(2).as_deref()), (Some(1), Some("schedutil")));
    assert!(!cpus.supports_performance_governor(2) && cpus.supports_performance_governor(1));
}

#[test]
fn interrupts_without_handler_are_left_out() {
    let tree = Tree::new();
    assert_eq!(interrupts(&tree.root()), None);
    tree.file("proc/irq/default_smp_affinity", "f");
    tree.file("proc/irq/9/smp_affinity_list", "0-3");
    tree.file("proc/irq/30/smp_affinity_list", "0-3");
    tree.file("proc/irq/30/effective_affinity_list", "2");
    tree.file("proc/irq/31/smp_affinity_list", "1");
    tree.directory("proc/irq/30/ens5-Tx-Rx-0");
    tree.directory("proc/irq/31/nvme0q1");
    let found = interrupts(&tree.root()).unwrap();
    let shown = |one: &Interrupt| {
        format!("{} {} {} {}", one.number, one.names.join("+"), one.allowed, one.handled_on)
    };
    let shown: Vec<String> = found.iter().map(shown).collect();
    assert_eq!(shown, ["30 ens5-Tx-Rx-0 0-3 2", "31 nvme0q1 1 1"]);
}

#[test]
fn the_version_and_modules_of_the_kernel_are_read() {
    let tree = Tree::new();
    let root = tree.root();
    assert_eq!((kernel_version(&root), module_available(&root, "vfio-pci")), (None, None));
    tree.file("proc/sys/kernel/osrelease", "6.1.0-56-cloud-amd64");
    assert_eq!(kernel_version(&root), Some(Version(6, 1)));
    let lists = "lib/modules/6.1.0-56-cloud-amd64";
    tree.file(
        &format!("{lists}/modules.dep"),
        "kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/drivers/vfio/vfio.ko.xz",
    );
    tree.file(&format!("{lists}/modules.builtin"), "kernel/drivers/uio/uio.ko");
    assert_eq!(module_available(&root, "vfio-pci"), Some(true));
    assert_eq!(module_available(&root, "igb_uio"), Some(false));
    assert!(!module_loaded(&root, "vfio-pci") && module_loaded(&root, "uio"));
    tree.directory("sys/module/vfio_pci");
    assert!(module_loaded(&root, "vfio-pci"));
}

#[test]
fn platforms_are_distinguished_by_firmware_tables() {
    let platform = |files: &[(&str, &str)], flags: &str| {
        let tree = Tree::new();
        for (name, text) in files {
            tree.file(&format!("sys/class/dmi/id/{name}"), text);
        }
        tree.file("proc/cpuinfo", &format!("processor : 0\nflags : fpu {flags}"));
        Platform::read(&tree.root())
    };
    let aws = |instance_type: &str, metal, xen| Platform::Aws {
        instance_type: instance_type.into(),
        metal,
        xen,
    };
    let found = |vendor, product| {
        platform(&[("sys_vendor", vendor), ("product_name", product)], "hypervisor")
    };
    assert_eq!(found("Amazon EC2", "c6in.large"), aws("c6in.large", false, false));
    assert_eq!(found("Amazon EC2", "c6in.metal"), aws("c6in.metal", true, false));
    let xen =
        [("sys_vendor", "Xen"), ("product_name", "HVM domU"), ("bios_version", "4.11.amazon")];
    assert_eq!(platform(&xen, "hypervisor"), aws("", false, true));
    let hyper_v = [("sys_vendor", "Microsoft Corporation"), ("product_name", "Virtual Machine")];
    let text = platform(&hyper_v, "hypervisor").to_string();
    assert_eq!(text, "virtual machine (Microsoft Corporation Virtual Machine)");
    let azure = [hyper_v[0], hyper_v[1], ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77")];
    assert_eq!(platform(&azure, "hypervisor"), Platform::Azure);
    let server = platform(&[("sys_vendor", "Dell Inc."), ("product_name", "R660")], "");
    assert_eq!(server, Platform::BareMetal("Dell Inc. R660".into()));
    assert_eq!(platform(&[], "hypervisor"), Platform::Virtual(String::new()));
    assert_eq!(platform(&[], ""), Platform::Unknown);
}

#[test]
fn the_firmware_describes_the_iommu_and_sysfs_shows_it_in_use() {
    let tree = Tree::new();
    let root = tree.root();
    assert_eq!((has_iommu_hardware(&root), iommu_enabled(&root)), (None, false));
    tree.file("sys/firmware/acpi/tables/APIC", "");
    assert_eq!(has_iommu_hardware(&root), Some(false));
    tree.file("sys/firmware/acpi/tables/DMAR", "");
    tree.directory("sys/class/iommu/dmar0");
    assert_eq!((has_iommu_hardware(&root), iommu_enabled(&root)), (Some(true), true));
}

#[test]
fn the_owner_of_a_socket_is_found_by_its_inode() {
    let tree = Tree::new();
    tree.file("proc/self/comm", "x");
    tree.file("proc/70/comm", "sshd");
    tree.file("proc/8/comm", "slowpath");
    for pid in [70, 8] {
        tree.directory(&format!("proc/{pid}/fd"));
    }
    symlink("socket:[4711]", tree.root().join("proc/70/fd/3")).unwrap();
    let names = |list: Vec<Process>| list.into_iter().map(|p| (p.pid, p.name)).collect::<Vec<_>>();
    assert_eq!(names(processes(&tree.root())), [(8, "slowpath".into()), (70, "sshd".into())]);
    assert_eq!(socket_owner(&tree.root(), 4711).map(|owner| owner.pid), Some(70));
    assert_eq!(socket_owner(&tree.root(), 4712), None);
}

#[test]
fn this_machine_can_be_read() {
    let root = Root::default();
    let cpus = Cpus::read(&root).unwrap();
    assert!(cpus.siblings(0).unwrap().contains(0));
    assert!(kernel_version(&root).unwrap() >= Version(5, 4));
    assert!(interrupts(&root).is_some() && CommandLine::read(&root).is_some());
    let own = processes(&root).into_iter().any(|process| process.pid == std::process::id());
    assert!(own);
    println!("{}", Platform::read(&root));
}
