//! `weir doctor` before and after `weir tune apply` and a reboot, and Weir on hugepages of 1 GiB,
//! in a virtual machine.

use nics::Result;
use nics::appliance::{self, Appliance, CONFIG, LOGS};
use nics::guest::Guest;
use nics::machine::{Boot, DataNic, KERNEL, Machine, NicModel};
use serde_json::Value;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// The time limit of a command, and of fastpath's refusal to start.
const COMMAND: Duration = Duration::from_secs(60);

/// Memory in MiB, of which the emulator uses what the guest touches. qemu puts 2,048 below 4 GiB,
/// and the rest above: ten pages of 1 GiB. The kernel puts itself in one of them at random, and its
/// own unmovable memory in others: of the four that 6,144 have, two were not always free after the
/// boot.
const MEMORY_MIB: u32 = 12_288;

/// The largest MTU of the 82574L in DPDK: frames of 9,234 bytes, less Ethernet's header and check
/// sequence.
const MAX_MTU: u16 = 9216;

/// The directories that a disk would keep.
const KEPT: [&str; 5] =
    ["/etc/default", "/etc/sysctl.d", "/etc/tmpfiles.d", "/etc/weir", "/var/lib/weir-tune"];

const GRUB: &str = "/etc/default/grub.d/50-weir.cfg";

/// What the operator has in `/etc/default/grub`: the IOMMU is off.
fn operators_parameters() -> String {
    format!("{KERNEL} intel_iommu=off")
}

/// Files with values that change at run time, what they have before, and what `weir tune` sets for
/// an lcore on CPU 1 of two.
const VALUES: [[&str; 3]; 3] = [
    ["/sys/kernel/mm/transparent_hugepage/enabled", "[always]", "[madvise]"],
    ["/proc/irq/default_smp_affinity", "3", "1"],
    ["/proc/sys/vm/stat_interval", "1", "10"],
];

#[test]
#[ignore = "boots a virtual machine: make nics"]
fn tuning_and_a_reboot_remedy_what_doctor_reports() -> Result {
    let begun = Instant::now();
    let done = |what: &str| println!("{:6.1} s  {what}", begun.elapsed().as_secs_f64());
    let command_line = operators_parameters();
    let boot = Boot { model: NicModel::E1000e, memory_mib: MEMORY_MIB, command_line };
    let machine = Machine::boot_with(boot)?;
    done("image built, guest booted");
    let (line, files) = with_console(&machine, || before_the_reboot(&machine.guest))?;
    done("tuned");
    let machine = machine.reboot(&line, &files)?;
    done("guest rebooted");
    with_console(&machine, || after_the_reboot(&machine.guest, &line))?;
    done("examined, Weir ran on pages of 1 GiB, reverted");
    Ok(())
}

/// Runs steps on a machine, and prints its console and logs if one of them fails.
fn with_console<T>(machine: &Machine, steps: impl FnOnce() -> Result<T>) -> Result<T> {
    let outcome = catch_unwind(AssertUnwindSafe(steps));
    if !matches!(outcome, Ok(Ok(_))) {
        println!("--- console\n{}", machine.console());
        for log in LOGS {
            let output = machine.guest.status(&format!("cat {log}"), COMMAND);
            println!("--- {log}\n{}", output.map_or_else(|e| e.to_string(), |(_, text)| text));
        }
    }
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The configuration of the other tests with an lcore that has its CPU for itself, pages of 1 GiB,
/// and this MTU.
fn config(mtu: u16) -> String {
    CONFIG
        .replace("idle = \"sleep\"", "idle = \"spin\"\nhugepage_size = \"1G\"")
        .replace("mtu = 9001", &format!("mtu = {mtu}"))
}

/// A finding of `weir doctor` that is an error or a warning.
#[derive(Debug)]
struct Finding {
    check: String,
    remedy: String,
}

/// Runs `weir doctor`, and returns its exit code and what is wrong.
fn doctor(guest: &Guest) -> Result<(u8, Vec<Finding>)> {
    let (status, output) = guest.status("weir doctor --json", COMMAND)?;
    let report = json(&output)?;
    let findings = report["findings"].as_array().ok_or("no findings")?;
    for finding in findings {
        println!("        {}: {}: {}", finding["severity"], finding["check"], finding["found"]);
    }
    let is_wrong =
        |one: &&Value| ["error", "warning"].iter().any(|severity| one["severity"] == *severity);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let wrong = findings.iter().filter(is_wrong);
    let wrong =
        wrong.map(|one| Finding { check: text(&one["check"]), remedy: text(&one["remedy"]) });
    Ok((status, wrong.collect()))
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|e| format!("{e}: {text}").into())
}

fn checks(findings: &[Finding]) -> BTreeSet<&str> {
    findings.iter().map(|finding| finding.check.as_str()).collect()
}

/// Returns the names of the settings of `weir tune plan` that are not in force, and whether all of
/// them wait for a reboot.
fn pending(guest: &Guest) -> Result<(Vec<String>, bool)> {
    let plan = json(&guest.run("weir tune plan --json")?)?;
    let settings = plan["settings"].as_array().ok_or("no settings")?;
    let pending: Vec<&Value> = settings.iter().filter(|one| one["in_force"] == false).collect();
    let names = pending.iter().filter_map(|one| one["name"].as_str());
    let waits = |one: &&Value| one["file"] == GRUB && one["value"].is_null();
    Ok((names.map(str::to_owned).collect(), pending.iter().all(waits)))
}

#[track_caller]
fn assert_value(guest: &Guest, path: &str, expected: &str) -> Result {
    let text = guest.run(&format!("cat {path}"))?;
    assert!(text.split_whitespace().any(|word| word == expected), "{path}: {text:?}");
    Ok(())
}

/// Examines the machine, tunes it, and returns the command line and the files of the next boot.
fn before_the_reboot(guest: &Guest) -> Result<(String, Vec<(String, String)>)> {
    let own = operators_parameters();
    guest.write("/etc/default/grub", &format!("GRUB_CMDLINE_LINUX=\"{own}\"\n"))?;
    appliance::set_up_networks(guest)?;
    appliance::configure(guest, &config(MAX_MTU))?;
    let (status, before) = doctor(guest)?;
    assert_eq!(status, 1, "{before:#?}");
    let expected =
        ["memory", "memory at boot", "hugetlbfs", "binding", "IOMMU", "isolated CPUs", "tuning"];
    for check in expected {
        assert!(checks(&before).contains(check), "no {check} in {before:#?}");
    }
    let (names, _) = pending(guest)?;
    for name in ["isolcpus", "rcu_nocbs", "irqaffinity", "hugepages", "intel_iommu", "iommu"] {
        assert!(names.iter().any(|one| one == name), "no {name} in {names:?}");
    }
    for [path, before, _] in VALUES {
        assert_value(guest, path, before)?;
    }

    let applied = guest.run("weir tune apply")?;
    println!("{applied}");
    assert!(applied.ends_with("then: update-grub\nthen: reboot\n"), "{applied}");
    for [path, _, after] in VALUES {
        assert_value(guest, path, after)?;
    }
    let on_lcore = "grep -l 1 /proc/irq/*/smp_affinity_list || true";
    println!("        interrupts that may be handled on CPU 1: {:?}", guest.run(on_lcore)?);
    let (names, all_wait) = pending(guest)?;
    assert!(!names.is_empty() && all_wait, "{names:?}");

    let reserved = guest.run("weir hugepages apply")?;
    assert!(reserved.contains("0 pages of 1 GiB before, 2 now"), "{reserved}");

    let (_, after) = doctor(guest)?;
    assert!(after.len() < before.len(), "{after:#?}");
    for check in ["memory", "hugetlbfs", "interrupts"] {
        assert!(!checks(&after).contains(check), "{check} in {after:#?}");
    }
    // What tuning corrects takes effect at the reboot. Binding needs the IOMMU, which is off until
    // then. The emulated machine has no better clock.
    let others = ["binding", "clock source"];
    let left = after.iter().filter(|finding| !others.contains(&finding.check.as_str()));
    let left: Vec<&Finding> = left.collect();
    assert!(!left.is_empty(), "{after:#?}");
    for finding in left {
        assert_eq!(finding.remedy, "update-grub && reboot", "{finding:?}");
    }
    guest.run("update-grub")?;
    let line = guest.run("cat /boot/grub/cmdline")?.trim().to_owned();
    println!("        {line}");
    assert!(line.starts_with(&own) && line.contains(" hugepagesz=1G hugepages=2"), "{line}");
    guest.run(&format!("mkdir -p {}", KEPT.join(" ")))?;
    Ok((line, guest.files(&KEPT)?))
}

/// Examines the tuned machine, runs Weir, and reverts everything.
fn after_the_reboot(guest: &Guest, line: &str) -> Result {
    assert_eq!(guest.run("cat /proc/cmdline")?.trim(), line);
    appliance::set_up_networks(guest)?;
    DataNic::ALL.iter().try_for_each(|nic| appliance::bind(guest, *nic))?;
    // The pages are there; the file system is mounted.
    let applied = guest.run("weir hugepages apply")?;
    assert!(applied.contains("hugetlbfs mounted on /dev/hugepages-1G"), "{applied}");
    // At the boot, drivers chose the CPUs of their interrupts. No file can set these in advance,
    // because the numbers of the interrupts are not known.
    let (names, _) = pending(guest)?;
    assert!(names.iter().all(|name| name.starts_with("interrupt ")), "{names:?}");
    let applied = guest.run("weir tune apply")?;
    assert!(!applied.contains("reboot") && !applied.contains(" written"), "{applied}");
    assert_eq!(pending(guest)?.0, Vec::<String>::new());
    let (status, found) = doctor(guest)?;
    assert_eq!((status, checks(&found)), (0, BTreeSet::from(["clock source"])), "{found:#?}");
    for [path, _, after] in VALUES {
        assert_value(guest, path, after)?;
    }

    refuses_a_larger_mtu(guest)?;
    let appliance = Appliance::start_processes(guest)?;
    let pages = "/sys/kernel/mm/hugepages/hugepages-1048576kB";
    assert_value(guest, &format!("{pages}/nr_hugepages"), "2")?;
    // One page of DPDK and one of the region.
    assert_value(guest, &format!("{pages}/free_hugepages"), "0")?;
    assert_value(guest, "/proc/mounts", "/dev/hugepages-1G")?;
    let mapped = guest.run("grep -A 30 hugepages-1G/weir-region /proc/$(pidof fastpath)/smaps")?;
    let page = mapped.lines().find(|line| line.starts_with("KernelPageSize:")).unwrap_or_default();
    assert!(page.contains(" 1048576 kB"), "{page:?}");
    appliance.stop(guest)?;

    let reverted = guest.run("weir tune revert")?;
    println!("{reverted}");
    assert!(reverted.ends_with("then: update-grub\nthen: reboot\n"), "{reverted}");
    for [path, before, _] in VALUES {
        assert_value(guest, path, before)?;
    }
    guest.run("update-grub")?;
    assert_eq!(guest.run("cat /boot/grub/cmdline")?.trim(), operators_parameters());
    let left = guest.run("find /etc /var/lib -name '*weir*' -type f; ls /var/lib/weir-tune")?;
    assert_eq!(left, "/etc/weir/weir.toml\n");
    Ok(())
}

/// Checks that fastpath refuses an MTU that is too large for the NIC, and names the allowed ones.
fn refuses_a_larger_mtu(guest: &Guest) -> Result {
    appliance::configure(guest, &config(MAX_MTU + 100))?;
    let (status, output) = guest.status("fastpath 2>&1", COMMAND)?;
    let expected = format!(
        r#"ingress.mtu = {}: the NIC ingress.device = \"0000:01:00.0\" allows 46 to {MAX_MTU}"#,
        MAX_MTU + 100
    );
    assert!(status != 0 && output.contains(&expected), "{output}");
    appliance::configure(guest, &config(MAX_MTU))
}
