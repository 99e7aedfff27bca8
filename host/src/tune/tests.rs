//! Plans are made, applied and reverted on directories with the files of machines.

use config::Config;

use super::*;
use crate::commands::fake::FakeCommands;
use crate::nic::fake::Fake;

/// A machine with 4 CPUs, two of which poll, that boots with GRUB.
fn machine(fake: Fake) -> Fake {
    let cpu = "sys/devices/system/cpu";
    for (path, text) in [
        ("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet"),
        ("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 3000000 kB\nHugepagesize: 2048 kB"),
        ("proc/self/mounts", "none /dev/hugepages hugetlbfs rw,pagesize=2M 0 0"),
        ("proc/sys/kernel/random/boot_id", "first"),
        ("proc/sys/vm/stat_interval", "1"),
        ("proc/sys/kernel/watchdog_cpumask", "0-3"),
        ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999"),
        ("proc/sys/net/ipv4/conf/all/rp_filter", "0"),
        ("proc/sys/net/ipv4/conf/default/rp_filter", "0"),
        ("proc/irq/default_smp_affinity", "f"),
        ("proc/irq/30/smp_affinity_list", "0-3"),
        ("proc/irq/31/smp_affinity_list", "2"),
        ("proc/irq/32/smp_affinity_list", "0"),
        ("proc/irq/30/ens5-0/x", ""),
        ("proc/irq/31/ens5-1/x", ""),
        ("proc/irq/32/ens5-2/x", ""),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
        ("sys/class/dmi/id/sys_vendor", "Amazon EC2"),
        ("sys/class/dmi/id/product_name", "c6in.xlarge"),
        ("usr/sbin/update-grub", ""),
        (&format!("{cpu}/online"), "0-3"),
        (&format!("{cpu}/isolated"), ""),
        (&format!("{cpu}/nohz_full"), "(null)"),
        (&format!("{cpu}/cpu2/cpufreq/scaling_governor"), "schedutil"),
        (&format!("{cpu}/cpu3/cpufreq/scaling_governor"), "performance"),
    ] {
        fake.file(path, text);
    }
    fake
}

fn configuration(more: &str, fastpath: &str) -> Config {
    let text = format!(
        "{more}\n[fastpath]\nlcores = [2, 3]\n{fastpath}\n[ingress]\ndevice = \"0000:00:06.0\"\n\
         address = \"10.0.1.10/24\"\n"
    );
    config::from_toml(&text).unwrap_or_else(|error| panic!("{}", error.render()))
}

fn planned(fake: &Fake, config: &Config) -> Plan {
    plan(&fake.root(), config, &fake.inventory()).unwrap()
}

/// Returns name, value in force and desired value of the settings that are not in force.
fn pending(plan: &Plan) -> Vec<(&str, &str, &str)> {
    plan.pending().map(|one| (&*one.name, &*one.now, &*one.wanted)).collect()
}

fn text(fake: &Fake, path: &str) -> String {
    std::fs::read_to_string(fake.path.join(path)).unwrap_or_default().trim().to_owned()
}

#[test]
fn the_plan_names_each_value_with_its_reason() {
    let fake = machine(Fake::aws());
    let plan = planned(&fake, &configuration("", ""));
    let pages = hugepages::plan_below(&configuration("", ""), &fake.path).pages().to_string();
    let expected = [
        ("isolcpus", "", "managed_irq,domain,2-3"),
        ("nohz_full", "", "2-3"),
        ("rcu_nocbs", "", "2-3"),
        ("irqaffinity", "", "0-1"),
        ("hugepages", "", pages.as_str()),
        ("default affinity of interrupts", "f", "3"),
        ("interrupt 30 (ens5-0)", "0-3", "0-1"),
        ("interrupt 31 (ens5-1)", "2", "0-1"),
        ("governor of CPU 2", "schedutil", "performance"),
        ("transparent huge pages", "always", "madvise"),
        ("vm.stat_interval", "1", "10"),
        ("kernel.watchdog_cpumask", "0-3", "0-1"),
    ];
    assert_eq!(pending(&plan), expected);
    assert!(plan.settings.iter().all(|setting| setting.reason.len() > 20));
    assert_eq!(plan.boot_steps(), ["update-grub", "reboot"]);
    let text = plan.render();
    for part in [
        "instance of AWS (c6in.xlarge)\n\nisolcpus",
        "\ninstances of AWS have no IOMMU",
        "isolcpus: unset -> managed_irq,domain,2-3\n",
        "at boot: /etc/default/grub.d/50-weir.cfg, after a reboot\n",
        "now: /proc/irq/31/smp_affinity_list\n",
        "\nto apply: weir tune apply\nthen: update-grub\nthen: reboot\n",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn equal_settings_are_shown_together() {
    let fake = machine(Fake::aws());
    for number in 40..50 {
        fake.file(&format!("proc/irq/{number}/smp_affinity_list"), "0-3");
        fake.file(&format!("proc/irq/{number}/nvme/x"), "");
    }
    let text = planned(&fake, &configuration("", "")).render();
    let expected = "interrupt 40 (nvme), interrupt 41 (nvme), interrupt 42 (nvme), interrupt 43 \
                    (nvme), and 6 more: 0-3 -> 0-1\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn applied_settings_are_in_force_or_wait_for_a_boot_and_are_reverted() {
    let (fake, config) = (machine(Fake::aws()), configuration("", ""));
    let (root, commands) = (fake.root(), FakeCommands::default());
    let outcome = apply(&root, &planned(&fake, &config), &commands).unwrap();
    assert_eq!(outcome.failed, Vec::<String>::new());
    assert_eq!(outcome.next, ["update-grub", "reboot"]);
    let grub = text(&fake, "etc/default/grub.d/50-weir.cfg");
    let expected = "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX isolcpus=managed_irq,domain,2-3 \
                    nohz_full=2-3 rcu_nocbs=2-3 irqaffinity=0-1 hugepagesz=2M hugepages=";
    assert!(grub.contains(expected), "{grub}");
    let sysctl = text(&fake, "etc/sysctl.d/50-weir.conf");
    assert!(sysctl.ends_with("vm/stat_interval = 10\nkernel/watchdog_cpumask = 0-1"), "{sysctl}");
    let tmpfiles = text(&fake, "etc/tmpfiles.d/weir-tune.conf");
    for line in [
        "w /proc/irq/default_smp_affinity - - - - 3\n",
        "w /sys/devices/system/cpu/cpu2/cpufreq/scaling_governor - - - - performance\n",
        "w /sys/kernel/mm/transparent_hugepage/enabled - - - - madvise",
    ] {
        assert!(tmpfiles.contains(line), "{tmpfiles}");
    }
    assert!(!tmpfiles.contains("cpu3"), "it was set before: {tmpfiles}");
    let governor = "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor";
    assert_eq!(text(&fake, governor), "performance");
    assert_eq!(text(&fake, "proc/irq/31/smp_affinity_list"), "0-1");
    assert_eq!(text(&fake, "proc/irq/32/smp_affinity_list"), "0");

    // Kernel parameters alone wait; a second application changes nothing.
    let again = planned(&fake, &config);
    assert!(again.needs_reboot() && again.pending().all(Setting::needs_reboot), "{again:#?}");
    assert!(!again.has_changes(), "{again:#?}");
    assert!(again.render().ends_with("\nnothing to apply\nthen: update-grub\nthen: reboot\n"));
    let outcome = apply(&root, &again, &commands).unwrap();
    assert_eq!((&outcome.done[..], &outcome.failed[..]), (&[][..], &[][..]));
    assert_eq!(text(&fake, "etc/default/grub.d/50-weir.cfg"), grub);

    // After the reboot everything is in force, and stays in Weir's files.
    fake.file("proc/cmdline", "quiet rcu_nocbs=2-3 irqaffinity=0-1 hugepagesz=2M hugepages=9999");
    fake.file("proc/sys/kernel/random/boot_id", "second");
    fake.file("sys/devices/system/cpu/isolated", "2-3");
    fake.file("sys/devices/system/cpu/nohz_full", "2-3");
    let booted = planned(&fake, &config);
    assert_eq!(pending(&booted), []);
    assert!(booted.render().ends_with("\nnothing to apply\n"), "{}", booted.render());
    apply(&root, &booted, &commands).unwrap();
    assert_eq!(text(&fake, "etc/default/grub.d/50-weir.cfg"), grub);

    // Interrupts had other numbers in an earlier boot, so that only other values are restored.
    fake.file("proc/irq/31/smp_affinity_list", "1");
    let outcome = revert(&root, &commands).unwrap();
    assert_eq!(outcome.failed, Vec::<String>::new());
    assert_eq!(outcome.next, ["update-grub", "reboot"]);
    assert_eq!(text(&fake, governor), "schedutil");
    assert_eq!(text(&fake, "sys/kernel/mm/transparent_hugepage/enabled"), "always");
    assert_eq!(text(&fake, "proc/sys/kernel/watchdog_cpumask"), "0-3");
    assert_eq!(text(&fake, "proc/irq/31/smp_affinity_list"), "1");
    for file in DropIn::ALL {
        assert!(!fake.path.join(file.path()).exists());
    }
    assert!(!fake.path.join("var/lib/weir-tune/record.json").exists());
    assert_eq!(revert(&root, &commands).unwrap(), Outcome::default());
}

#[test]
fn another_configuration_restores_what_it_does_not_need() {
    let fake = machine(Fake::aws());
    let (root, commands) = (fake.root(), FakeCommands::default());
    apply(&root, &planned(&fake, &configuration("", "")), &commands).unwrap();
    let config = configuration("", "idle = \"sleep\"");
    let plan = planned(&fake, &config);
    assert!(plan.notes[0].contains("fastpath.idle = \"sleep\""), "{:?}", plan.notes);
    let outcome = apply(&root, &plan, &commands).unwrap();
    assert_eq!(outcome.failed, Vec::<String>::new());
    assert_eq!(text(&fake, "proc/irq/31/smp_affinity_list"), "2");
    assert_eq!(text(&fake, "proc/irq/default_smp_affinity"), "f");
    assert_eq!(text(&fake, "proc/sys/vm/stat_interval"), "1");
    assert!(!fake.path.join("etc/sysctl.d/50-weir.conf").exists());
    let grub = text(&fake, "etc/default/grub.d/50-weir.cfg");
    assert!(!grub.contains("isolcpus") && grub.contains("hugepages="), "{grub}");
    let governor = "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor";
    assert_eq!(text(&fake, governor), "performance");
}

#[test]
fn settings_and_files_of_others_are_left_alone() {
    let fake = machine(Fake::aws());
    fake.file("proc/cmdline", "isolcpus=1-3 nohz_full=1-3 irqaffinity=0");
    fake.file("sys/devices/system/cpu/isolated", "1-3");
    fake.file("sys/devices/system/cpu/nohz_full", "1-3");
    fake.file("etc/sysctl.d/80-weir.conf", "vm.nr_hugepages = 5000");
    let plan = planned(&fake, &configuration("", ""));
    assert!(!plan.needs_reboot() && plan.entries(DropIn::Grub).is_empty(), "{plan:#?}");
    // A file of that name that Weir did not write stays, and the failure is reported.
    fake.file("etc/tmpfiles.d/weir-tune.conf", "# mine");
    let outcome = apply(&fake.root(), &plan, &FakeCommands::default()).unwrap();
    let expected =
        ["/etc/tmpfiles.d/weir-tune.conf is not Weir's and was left alone: move it away"];
    assert_eq!(outcome.failed, expected);
    assert_eq!(text(&fake, "etc/tmpfiles.d/weir-tune.conf"), "# mine");
    revert(&fake.root(), &FakeCommands::default()).unwrap();
    assert_eq!(text(&fake, "etc/tmpfiles.d/weir-tune.conf"), "# mine");
}

#[test]
fn pages_at_boot_come_from_the_command_line_sysctls_or_a_unit() {
    let fake = machine(Fake::aws());
    let (root, config) = (fake.root(), configuration("", ""));
    let found = || boot_pages(&root, &config).unwrap();
    let needed = found().total();
    assert!(needed > 100 && !found().enough(), "{needed}");
    for (line, pages) in [
        ("hugepages=300", 300),
        ("hugepagesz=2M hugepages=0:200,1:100", 300),
        ("hugepagesz=1G hugepages=4", 0),
        ("default_hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=7", 7),
    ] {
        fake.file("proc/cmdline", line);
        assert_eq!(found().reserved.map_or(0, |(pages, _)| pages), pages, "{line}");
    }
    fake.file("proc/cmdline", "hugepages=9999");
    assert!(found().enough());
    // A sysctl is set later and wins; of its files the last one.
    fake.file("usr/lib/sysctl.d/10-a.conf", "vm.nr_hugepages=9999");
    fake.file("etc/sysctl.d/90-b.conf", "vm/nr_hugepages = 8");
    assert_eq!(found().reserved, Some((8, "/etc/sysctl.d/90-b.conf".to_owned())));
    assert!(!found().enough());
    let unit = "[Service]\nExecStartPre=/usr/bin/weir hugepages apply\n";
    fake.file("etc/systemd/system/weir-fastpath.service", unit);
    assert_eq!(found().unit, None, "it is not enabled");
    fake.file("etc/systemd/system/multi-user.target.wants/weir-fastpath.service", "");
    assert_eq!(found().unit.as_deref(), Some("weir-fastpath.service"));
    assert!(found().enough());
    let xdp = Config { plane: config::checked::Plane::Xdp, ..config.clone() };
    assert_eq!(boot_pages(&root, &xdp).unwrap().total(), 0);
    std::fs::remove_file(fake.path.join("proc/meminfo")).unwrap();
    assert!(boot_pages(&root, &config).is_err());
}

#[test]
fn pages_of_1_gib_are_reserved_at_boot_and_by_no_unit() {
    let (fake, config) = (machine(Fake::aws()), configuration("", "hugepage_size = \"1G\""));
    let gigabytes = "sys/kernel/mm/hugepages/hugepages-1048576kB";
    fake.file(&format!("{gigabytes}/nr_hugepages"), "0");
    fake.file(&format!("{gigabytes}/free_hugepages"), "0");
    let found = || boot_pages(&fake.root(), &config).unwrap();
    assert_eq!((found().page, found().total()), (config::checked::PageSize::OneGib, 2));
    // The default size is left to others.
    let pages = |plan: &Plan| {
        let of_pages = plan.settings.iter().filter(|one| one.name.contains("hugepages"));
        of_pages.map(|one| (one.entry.clone(), one.in_force)).collect::<Vec<_>>()
    };
    let plan = planned(&fake, &config);
    assert_eq!(pages(&plan), [("hugepagesz=1G hugepages=2".to_owned(), false)]);
    apply(&fake.root(), &plan, &FakeCommands::default()).unwrap();
    let grub = text(&fake, "etc/default/grub.d/50-weir.cfg");
    assert!(grub.contains(" hugepagesz=1G hugepages=2"), "{grub}");
    for (line, pages) in [
        ("hugepages=300", 0),
        ("hugepagesz=2M hugepages=300 hugepagesz=1G hugepages=0:1,1:1", 2),
        ("default_hugepagesz=1G hugepages=4", 4),
        ("hugepagesz=1024M hugepages=1", 1),
    ] {
        fake.file("proc/cmdline", line);
        assert_eq!(found().reserved.map_or(0, |(pages, _)| pages), pages, "{line}");
    }
    assert!(!found().enough());
    // The sysctl counts pages of the default size.
    fake.file("etc/sysctl.d/90-b.conf", "vm.nr_hugepages = 8");
    assert!(!found().enough());
    let unit = "[Service]\nExecStart=/usr/bin/weir hugepages apply\n";
    fake.file("etc/systemd/system/weir-hugepages.service", unit);
    fake.file("etc/systemd/system/multi-user.target.wants/weir-hugepages.service", "");
    assert!(found().unit.is_some() && !found().enough(), "a gigabyte may not be contiguous later");
    fake.file("proc/cmdline", "hugepagesz=1G hugepages=2");
    assert!(found().enough());
    assert_eq!(pages(&planned(&fake, &config)), [("hugepagesz=1G hugepages=2".to_owned(), true)]);
}

#[test]
fn servers_get_parameters_of_the_iommu() {
    let fake = machine(Fake::bare_metal());
    std::fs::remove_dir_all(fake.path.join("sys/class/iommu")).unwrap();
    let text = "[fastpath]\nlcores = [2, 3]\n[ingress]\ndevice = \"0000:03:00.0\"\n\
                address = \"10.0.1.10/24\"\n";
    let config = config::from_toml(text).unwrap();
    let parameters = || {
        let plan = planned(&fake, &config);
        let is_iommu = |one: &&Setting| one.name.contains("iommu");
        let shown = plan.pending().filter(is_iommu).map(|one| one.entry.clone());
        shown.collect::<Vec<String>>()
    };
    assert_eq!(parameters(), Vec::<String>::new(), "the firmware's tables are unknown");
    fake.file("sys/firmware/acpi/tables/DMAR", "");
    assert_eq!(parameters(), ["intel_iommu=on", "iommu=pt"]);
    fake.directory("sys/class/iommu/dmar0");
    assert_eq!(parameters(), ["iommu=pt"]);
    let tables = fake.path.join("sys/firmware/acpi/tables");
    std::fs::rename(tables.join("DMAR"), tables.join("IVRS")).unwrap();
    std::fs::remove_dir_all(fake.path.join("sys/class/iommu")).unwrap();
    assert_eq!(parameters(), ["iommu=pt"]);
    fake.file("proc/cmdline", "iommu=pt");
    assert_eq!(parameters(), Vec::<String>::new());
}

#[test]
fn shared_addresses_and_strict_filters_get_sysctls() {
    let fake = machine(Fake::aws());
    let config = configuration("", "[nat]\naddresses = \"10.0.1.10\"\nports = \"1024-39999\"");
    fake.file("proc/sys/net/ipv4/conf/default/rp_filter", "1");
    let plan = planned(&fake, &config);
    let entries = plan.entries(DropIn::Sysctl);
    assert_eq!(entries[0], "net/ipv4/ip_local_port_range = 40000 65535");
    // The TAP does not exist yet: udev applies the file when it appears.
    assert_eq!(entries.last().unwrap(), "-net/ipv4/conf/weir-in/rp_filter = 2");
    let (root, commands) = (fake.root(), FakeCommands::default());
    apply(&root, &plan, &commands).unwrap();
    assert_eq!(text(&fake, "proc/sys/net/ipv4/ip_local_port_range"), "40000 65535");
    fake.file("proc/sys/net/ipv4/conf/weir-in/rp_filter", "2");
    let again = planned(&fake, &config);
    assert_eq!(again.entries(DropIn::Sysctl), entries, "what Weir set is not what others set");
    assert!(again.settings.iter().all(|one| one.in_force || one.file == Some(DropIn::Grub)));
    assert_eq!(apply(&root, &again, &commands).unwrap().done, Vec::<String>::new());

    let xdp = config::from_toml(
        "plane = \"xdp\"\n[ingress]\ndevice = \"ens6\"\naddress = \"10.0.1.10/24\"\n",
    );
    let fake = machine(Fake::aws());
    fake.file("proc/sys/net/ipv4/conf/ens6/rp_filter", "1");
    let plan = planned(&fake, &xdp.unwrap());
    let expected = [
        ("governor of CPU 2", "schedutil", "performance"),
        ("transparent huge pages", "always", "madvise"),
        ("rp_filter of ens6", "1", "2"),
    ];
    assert_eq!(pending(&plan), expected);
    assert!(!plan.needs_reboot() && plan.notes[0].starts_with("plane xdp"), "{plan:#?}");
}

#[test]
fn irqbalance_avoids_the_cpus_of_lcores() {
    let (fake, config) = (machine(Fake::aws()), configuration("", ""));
    fake.file("usr/sbin/irqbalance", "");
    fake.directory("run/systemd/system");
    let commands = FakeCommands::default()
        .with("systemctl daemon-reload", "")
        .with("systemctl try-restart irqbalance.service", "");
    let plan = planned(&fake, &config);
    let outcome = apply(&fake.root(), &plan, &commands).unwrap();
    assert_eq!(outcome.failed, Vec::<String>::new());
    let unit = text(&fake, "etc/systemd/system/irqbalance.service.d/50-weir.conf");
    assert!(unit.ends_with("[Service]\nEnvironment=IRQBALANCE_BANNED_CPULIST=2-3"), "{unit}");
    assert_eq!(commands.calls.borrow().len(), 2);
    assert!(planned(&fake, &config).pending().all(Setting::needs_reboot));
    let commands = FakeCommands::default();
    let outcome = revert(&fake.root(), &commands).unwrap();
    assert_eq!(outcome.failed, ["systemctl is not installed"]);
}

#[test]
fn other_boot_loaders_are_left_to_the_operator() {
    let (fake, config) = (machine(Fake::aws()), configuration("", ""));
    std::fs::remove_file(fake.path.join("usr/sbin/update-grub")).unwrap();
    let plan = planned(&fake, &config);
    assert!(plan.boot_steps()[0].starts_with("# add to the kernel's command line"), "{plan:?}");
    fake.file("usr/sbin/grubby", "");
    let plan = planned(&fake, &config);
    let step = &plan.boot_steps()[0];
    let expected = "grubby --update-kernel=ALL --args=\"isolcpus=managed_irq,domain,2-3 ";
    assert!(step.starts_with(expected), "{step}");
    let commands = FakeCommands::default();
    let outcome = apply(&fake.root(), &plan, &commands).unwrap();
    assert_eq!(outcome.next, plan.boot_steps());
    assert!(!planned(&fake, &config).has_changes());
    assert!(!fake.path.join("etc/default/grub.d/50-weir.cfg").exists());

    // Parameters in force stay recorded as Weir's, and are removed when no longer needed.
    let pages = plan.parameters().pop().unwrap();
    let line = format!(
        "quiet isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3 \
                        irqaffinity=0-1 hugepagesz=2M {pages}"
    );
    fake.file("proc/cmdline", &line);
    fake.file("proc/sys/kernel/random/boot_id", "second");
    fake.file("sys/devices/system/cpu/isolated", "2-3");
    fake.file("sys/devices/system/cpu/nohz_full", "2-3");
    let booted = planned(&fake, &config);
    assert_eq!((booted.parameters(), booted.boot_steps()), (plan.parameters(), Vec::new()));
    let sleeping = planned(&fake, &configuration("", "idle = \"sleep\""));
    let removal = "grubby --update-kernel=ALL --remove-args=\"isolcpus=managed_irq,domain,2-3 \
                   nohz_full=2-3 rcu_nocbs=2-3 irqaffinity=0-1\"";
    assert_eq!(sleeping.boot_steps(), [removal, "reboot"]);
    apply(&fake.root(), &sleeping, &commands).unwrap();

    // The steps of a revert undo those of the application.
    let outcome = revert(&fake.root(), &commands).unwrap();
    let [step, reboot] = &outcome.next[..] else { panic!("{outcome:?}") };
    assert!(
        step.starts_with("grubby --update-kernel=ALL --remove-args=\"hugepagesz=2M "),
        "{step}"
    );
    assert!(step.contains("isolcpus=managed_irq,domain,2-3") && reboot == "reboot", "{outcome:?}");
    assert_eq!(revert(&fake.root(), &commands).unwrap(), Outcome::default());
    std::fs::remove_file(fake.path.join("usr/sbin/grubby")).unwrap();
    fake.file("proc/cmdline", "quiet");
    fake.file("sys/devices/system/cpu/isolated", "");
    apply(&fake.root(), &planned(&fake, &config), &commands).unwrap();
    let outcome = revert(&fake.root(), &commands).unwrap();
    let expected = "# remove from the kernel's command line in your boot loader: isolcpus=";
    assert!(outcome.next[0].starts_with(expected), "{outcome:?}");
}

#[test]
fn failed_writes_are_reported_and_not_recorded() {
    let (fake, config) = (machine(Fake::aws()), configuration("", ""));
    let (root, commands) = (fake.root(), FakeCommands::default());
    // Files instead of directories, and a value that the kernel does not let be written.
    for directory in ["etc/default/grub.d", "etc/sysctl.d"] {
        fake.file(directory, "");
    }
    let governor = "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor";
    let read_only = fake.path.join(governor);
    std::fs::remove_file(&read_only).unwrap();
    std::os::unix::fs::symlink("/proc/version", &read_only).unwrap();
    let outcome = apply(&root, &planned(&fake, &config), &commands).unwrap();
    let failed = |part: &str| outcome.failed.iter().any(|line| line.contains(part));
    for part in ["/etc/default/grub.d/50-weir.cfg", "/etc/sysctl.d/50-weir.conf", governor] {
        assert!(failed(part), "{part}: {outcome:#?}");
        assert!(!outcome.done.iter().any(|line| line.contains(part)), "{outcome:#?}");
    }
    assert_eq!(outcome.failed.len(), 3, "{outcome:#?}");
    assert_eq!(outcome.next, Vec::<String>::new(), "there is nothing that update-grub would read");
    let record = text(&fake, "var/lib/weir-tune/record.json");
    assert!(!record.contains(governor) && record.contains("watchdog_cpumask"), "{record}");

    // A value that cannot be restored stays in the record until it can.
    let mask = "proc/sys/kernel/watchdog_cpumask";
    std::fs::remove_file(fake.path.join(mask)).unwrap();
    std::os::unix::fs::symlink("/proc/version", fake.path.join(mask)).unwrap();
    let outcome = revert(&root, &commands).unwrap();
    assert!(outcome.failed.len() == 1 && outcome.failed[0].contains(mask), "{outcome:#?}");
    std::fs::remove_file(fake.path.join(mask)).unwrap();
    fake.file(mask, "0-1");
    assert_eq!(revert(&root, &commands).unwrap().failed, Vec::<String>::new());
    assert_eq!(text(&fake, mask), "0-3");
}

#[test]
fn no_cpu_is_reserved_if_lcores_need_all_cpus_or_missing_ones() {
    let (fake, config) = (machine(Fake::aws()), configuration("", ""));
    let online = "sys/devices/system/cpu/online";
    for (cpus, note) in [("2-3", "all CPUs (2-3) poll"), ("0-2", "CPU 3 of 2-3 is not online")] {
        fake.file(online, cpus);
        let plan = planned(&fake, &config);
        assert!(plan.notes[0].contains(note), "{:?}", plan.notes);
        assert!(!plan.settings.iter().any(|one| one.name == "isolcpus"));
    }
}

#[test]
fn a_damaged_record_prevents_planning_and_reverting() {
    let (fake, config) = (machine(Fake::aws()), configuration("", ""));
    fake.file("var/lib/weir-tune/record.json", "{");
    let error = plan(&fake.root(), &config, &fake.inventory()).unwrap_err().to_string();
    assert!(error.contains("record.json") && error.contains("repair or restore"), "{error}");
    assert!(revert(&fake.root(), &FakeCommands::default()).is_err());
}

/// Neither reading nor writing names root as the remedy if root would get the same error.
#[test]
fn a_record_that_root_cannot_use_either_has_another_remedy() {
    let (fake, config) = (machine(Fake::aws()), configuration("", ""));
    std::fs::create_dir_all(fake.path.join("var/lib/weir-tune/record.json")).unwrap();
    let error = plan(&fake.root(), &config, &fake.inventory()).unwrap_err().to_string();
    assert!(error.contains("repair or restore") && !error.contains("as root"), "{error}");
    std::fs::remove_dir(fake.path.join("var/lib/weir-tune/record.json")).unwrap();
    let plan = planned(&fake, &config);
    let folder = fake.path.join("var/lib/weir-tune");
    std::fs::remove_dir(&folder).unwrap();
    std::os::unix::fs::symlink("/proc/missing", &folder).unwrap();
    let error = apply(&fake.root(), &plan, &FakeCommands::default()).unwrap_err().to_string();
    assert!(error.contains("file system") && !error.contains("as root"), "{error}");
}

#[test]
fn this_machine_has_a_plan() {
    let root = crate::Root::default();
    let plan = plan(&root, &configuration("", ""), &crate::nic::Inventory::default()).unwrap();
    println!("{}", plan.render());
}
