//! Checks Weir's programs: units that start them, versions that fit together, and other settings of
//! the machine that `weir tune` knows.

use std::path::Path;

use super::context::Context;
use super::finding::Finding;
use crate::bind::SavedBindings;
use crate::machine::{Unit, is_enabled, processes, units};
use crate::tune;

const ENABLED: &str = "units";
const VERSIONS: &str = "versions";
const TUNING: &str = "tuning";

/// The target that starts all of Weir, where it is installed.
const TARGET: &str = "weir.target";

/// Beginnings of the names of settings that other checks cover.
const COVERED: [&str; 10] = [
    "isolcpus",
    "nohz_full",
    "rcu_nocbs",
    "hugepages",
    "intel_iommu",
    "interrupt ",
    "governor ",
    "rp_filter ",
    "net.ipv4.ip_local_port_range",
    "clock",
];

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = units_of_programs(context);
    findings.extend(versions(context));
    findings.push(tuning(context));
    findings
}

/// Returns the data plane's program, and the one of the other plane.
fn data_planes(context: &Context<'_>) -> (&'static str, &'static str) {
    match context.is_dpdk() {
        true => ("fastpath", "ebpf-fallback"),
        false => ("ebpf-fallback", "fastpath"),
    }
}

fn units_of_programs(context: &Context<'_>) -> Vec<Finding> {
    let root = context.root;
    if !root.exists("run/systemd/system") {
        return vec![Finding::not_checked(ENABLED, "systemd is not the init system", "")];
    }
    let (own, other) = data_planes(context);
    let all = units(root);
    let mut findings = Vec::new();
    for program in [own, "slowpath"] {
        let starting = || all.iter().filter(|unit| starts(unit, program));
        let enabled = starting().find(|unit| is_enabled(root, &all, unit));
        findings.push(match (enabled, starting().next()) {
            (Some(unit), _) => {
                Finding::ok(ENABLED, format!("{} starts {program} at boot", unit.name))
            }
            (None, Some(unit)) => Finding::warning(
                ENABLED,
                format!("{} is not enabled", unit.name),
                format!("{program} does not start at boot"),
                format!("systemctl enable --now {}", to_enable(&all, unit)),
            ),
            (None, None) => Finding::warning(
                ENABLED,
                format!("no unit starts {program}"),
                "it does not start at boot, nor again after a failure",
                "install Weir's package, or the files in config/systemd",
            ),
        });
    }
    // A unit with a condition does not start the program of a plane that is not selected.
    let is_wrong = |unit: &&Unit| {
        starts(unit, other) && !unit.is_conditional() && is_enabled(root, &all, unit)
    };
    if let Some(unit) = all.iter().find(is_wrong) {
        findings.push(Finding::warning(
            ENABLED,
            format!("{} is enabled and starts {other}, the program of the other plane", unit.name),
            "it fails at each start, and is started again and again",
            format!("systemctl disable --now {}", unit.name),
        ));
    }
    findings.extend(saved_bindings(context, &all));
    findings
}

/// Returns whether a unit starts a program.
fn starts(unit: &Unit, program: &str) -> bool {
    unit.executes(|words| {
        words.first().is_some_and(|path| path.rsplit('/').next() == Some(program))
    })
}

/// Returns the name of what enables a unit: Weir's target, if it is installed.
fn to_enable<'u>(all: &'u [Unit], unit: &'u Unit) -> &'u str {
    all.iter().find(|unit| unit.name == TARGET).map_or(&unit.name, |target| &target.name)
}

/// Checks that saved bindings of NICs are applied at boot.
fn saved_bindings(context: &Context<'_>, all: &[Unit]) -> Option<Finding> {
    if !context.is_dpdk() {
        return None;
    }
    let path = SavedBindings::FILE;
    let consequence = "after a reboot the NICs are the kernel's, and fastpath does not start";
    let saved = match SavedBindings::read(&context.root.join(path.trim_start_matches('/'))) {
        Ok(saved) => saved,
        Err(error) => {
            let remedy = format!("correct {path}");
            return Some(Finding::warning(ENABLED, error.to_string(), consequence, remedy));
        }
    };
    if saved.bindings.is_empty() {
        return None;
    }
    let applies = |words: &[&str]| {
        words.windows(2).any(|pair| pair == ["nic", "bind"]) && words.contains(&"--saved")
    };
    let applying = || all.iter().filter(|unit| unit.executes(applies));
    let enabled = applying().find(|unit| is_enabled(context.root, all, unit));
    Some(match (enabled, applying().next()) {
        (Some(unit), _) => Finding::ok(ENABLED, format!("{} applies {path} at boot", unit.name)),
        (None, Some(unit)) => Finding::warning(
            ENABLED,
            format!("{} is not enabled", unit.name),
            consequence,
            format!("systemctl enable --now {}", to_enable(all, unit)),
        ),
        (None, None) => Finding::warning(
            ENABLED,
            format!("no unit applies {path}"),
            consequence,
            "install Weir's package, or run `weir nic bind --saved` at boot",
        ),
    })
}

fn versions(context: &Context<'_>) -> Vec<Finding> {
    let Some(directory) = context.programs else {
        return vec![Finding::not_checked(VERSIONS, "the directory of weir is unknown", "")];
    };
    let (own, _) = data_planes(context);
    let mut findings = Vec::new();
    for program in [own, "slowpath"] {
        findings.push(version(context, directory, program));
    }
    let replaced = processes(context.root).into_iter().filter(|process| {
        [own, "slowpath"].contains(&process.name.as_str())
            && std::fs::read_link(context.root.join(format!("proc/{}/exe", process.pid)))
                .is_ok_and(|file| file.to_string_lossy().ends_with(" (deleted)"))
    });
    findings.extend(replaced.map(|process| {
        Finding::warning(
            VERSIONS,
            format!("{} (process {}) runs a file that was replaced", process.name, process.pid),
            "the installed version is not the one that runs",
            format!("restart {}", process.name),
        )
    }));
    findings
}

fn version(context: &Context<'_>, directory: &Path, program: &str) -> Finding {
    let path = directory.join(program);
    let expected = context.version;
    match context.commands.run(&path.to_string_lossy(), &["--version"]) {
        Ok(text) => match text.trim().split_once(' ') {
            Some((_, found)) if found == expected => {
                Finding::ok(VERSIONS, format!("{program} {found}, as weir"))
            }
            Some((_, found)) => Finding::error(
                VERSIONS,
                format!("{}: version {found}, weir is {expected}", path.display()),
                "configuration, region or API may differ between them",
                "install all programs from one package",
            ),
            None => {
                let reason = format!("{} printed no version", path.display());
                Finding::not_checked(VERSIONS, reason, "")
            }
        },
        Err(error) => Finding::not_checked(VERSIONS, error.to_string(), "install Weir's package"),
    }
}

/// Checks the settings of `weir tune` that no other check covers.
fn tuning(context: &Context<'_>) -> Finding {
    let plan = match tune::plan(context.root, context.config, context.inventory) {
        Ok(plan) => plan,
        Err(error) => return Finding::not_checked(TUNING, error.to_string(), ""),
    };
    let covered = |name: &str| COVERED.iter().any(|start| name.starts_with(start));
    let pending: Vec<&str> =
        plan.pending().map(|setting| setting.name.as_str()).filter(|name| !covered(name)).collect();
    if pending.is_empty() {
        return Finding::ok(TUNING, "all settings of weir tune are in force");
    }
    let remedy = match plan.pending().all(tune::Setting::needs_reboot) {
        true => plan.boot_remedy(),
        false => "weir tune plan, then: weir tune apply".to_owned(),
    };
    Finding::warning(
        TUNING,
        format!("not set: {}", pending.join(", ")),
        "some packets have a higher latency",
        remedy,
    )
}
