//! Checks the CPUs of lcores: isolation, interrupts, frequency, siblings and NUMA nodes.

use config::checked::{MachineWarning, machine_warnings};
use hugepages::{Machine, Plan};

use super::context::Context;
use super::finding::Finding;
use crate::cpu_set::CpuSet;
use crate::lcore_cpus::reserved_cpus;
use crate::machine::{Cpus, interrupts, processes};

const LCORES: &str = "lcores";
const ISOLATION: &str = "isolated CPUs";
const INTERRUPTS: &str = "interrupts";
const GOVERNOR: &str = "governor";
const SIBLINGS: &str = "SMT siblings";
const NUMA: &str = "NUMA";

const APPLY: &str = "weir tune apply";

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(cpus) = Cpus::read(context.root) else {
        let reason = "/sys/devices/system/cpu/online cannot be read";
        return vec![Finding::not_checked(LCORES, reason, "")];
    };
    let mut findings = Vec::new();
    if !context.is_dpdk() {
        findings.push(Finding::info(
            LCORES,
            "plane xdp polls on no CPU: isolation, interrupts, siblings and NUMA nodes of lcores \
             do not apply",
        ));
        findings.push(governor(&cpus, &cpus.online));
        return findings;
    }
    let fastpath = &context.config.fastpath;
    let lcores: CpuSet = fastpath.lcores.iter().copied().collect();
    findings.push(lcores_exist(context, &lcores, &cpus));
    match reserved_cpus(context.config, &cpus.online) {
        Ok(reserved) => {
            findings.push(isolation(context, &cpus, &reserved));
            findings.push(interrupts_on(context, &reserved));
        }
        Err(why) => findings.push(Finding::info(ISOLATION, why)),
    }
    let busy: CpuSet = lcores.iter().chain([fastpath.main_core]).collect();
    findings.push(governor(&cpus, &busy));
    findings.extend(siblings(&cpus, &lcores, fastpath.main_core));
    findings.extend(numa(context));
    findings
}

fn lcores_exist(context: &Context<'_>, lcores: &CpuSet, cpus: &Cpus) -> Finding {
    for warning in machine_warnings(context.config, &context.root.join("")) {
        match warning {
            MachineWarning::MissingCpus { missing, online } => {
                let found = format!(
                    "fastpath.lcores and main_core name CPU {missing}, this machine has {online}"
                );
                let remedy = "write CPUs that the machine has";
                return Finding::error(LCORES, found, "fastpath does not start", remedy);
            }
            MachineWarning::YieldOnAllCpus { online } => {
                return Finding::warning(
                    LCORES,
                    format!("fastpath.idle = \"yield\", and lcores poll on all CPUs ({online})"),
                    "the kernel's workers starve (BUG: workqueue lockup)",
                    "set fastpath.idle = \"sleep\"",
                );
            }
            MachineWarning::PortOverlap(_) => {}
        }
    }
    Finding::ok(LCORES, format!("CPU {lcores} of {}", cpus.online))
}

fn isolation(context: &Context<'_>, cpus: &Cpus, lcores: &CpuSet) -> Finding {
    // The boot CPU (0) keeps its tick.
    let tickless: CpuSet = lcores.iter().filter(|cpu| *cpu != 0).collect();
    let mut missing = Vec::new();
    let mut require = |name: &str, present: &CpuSet, required: &CpuSet| {
        let lacking = required.without(present);
        if !lacking.is_empty() {
            missing.push(format!("{name} lacks CPU {lacking}"));
        }
    };
    require("isolcpus", &cpus.isolated, lcores);
    if let Some(nohz_full) = &cpus.nohz_full {
        require("nohz_full", nohz_full, &tickless);
    }
    require("rcu_nocbs", &cpus.rcu_nocbs, &tickless);
    if missing.is_empty() {
        let without = match cpus.nohz_full {
            Some(_) => "",
            None => " (this kernel is built without nohz_full)",
        };
        return Finding::ok(ISOLATION, format!("CPU {lcores} runs lcores only{without}"));
    }
    Finding::warning(
        ISOLATION,
        missing.join(", "),
        "other threads, timer ticks and kernel work interrupt lcores; under load packets are lost \
         at the NIC",
        context.boot_remedy(),
    )
}

fn interrupts_on(context: &Context<'_>, lcores: &CpuSet) -> Finding {
    let Some(all) = interrupts(context.root) else {
        return Finding::not_checked(INTERRUPTS, "/proc/irq cannot be read", "");
    };
    let on_lcores: Vec<String> = all
        .iter()
        .filter(|interrupt| !interrupt.handled_on.intersection(lcores).is_empty())
        .map(|one| format!("{} ({})", one.number, one.names.join(", ")))
        .collect();
    if on_lcores.is_empty() {
        let text = format!("{} interrupts, none on CPU {lcores}", all.len());
        return Finding::ok(INTERRUPTS, text);
    }
    let shown = on_lcores.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
    let more = match on_lcores.len().saturating_sub(4) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Finding::warning(
        INTERRUPTS,
        format!("handled on CPU {lcores} of lcores: {shown}{more}"),
        "each stops an lcore for microseconds",
        APPLY,
    )
}

fn governor(cpus: &Cpus, forwarding: &CpuSet) -> Finding {
    let all: Vec<(u16, String)> =
        forwarding.iter().filter_map(|cpu| Some((cpu, cpus.governor(cpu)?))).collect();
    if all.is_empty() {
        return Finding::ok(GOVERNOR, "the kernel does not control the frequency of these CPUs");
    }
    let others: CpuSet =
        all.iter().filter(|(_, name)| name != "performance").map(|(cpu, _)| *cpu).collect();
    if others.is_empty() {
        return Finding::ok(GOVERNOR, format!("performance on CPU {forwarding}"));
    }
    let mut names: Vec<&str> = all.iter().map(|(_, name)| name.as_str()).collect();
    names.retain(|name| *name != "performance");
    names.sort_unstable();
    names.dedup();
    Finding::warning(
        GOVERNOR,
        format!("{} on CPU {others}", names.join(", ")),
        "the CPU lowers its frequency, and the first packets after a pause are slower",
        APPLY,
    )
}

fn siblings(cpus: &Cpus, lcores: &CpuSet, main_core: u16) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut unknown = false;
    let mut checked = CpuSet::default();
    for lcore in lcores.iter() {
        let Some(core) = cpus.siblings(lcore) else {
            unknown = true;
            continue;
        };
        if checked.contains(lcore) {
            continue;
        }
        checked = checked.iter().chain(core.iter()).collect();
        let together = core.intersection(lcores);
        let remedy = "write one CPU of each core in fastpath.lcores";
        if together.len() > 1 {
            let found = format!("fastpath.lcores: CPU {together} share a core");
            let consequence = "together they forward little more than one of them";
            findings.push(Finding::warning(SIBLINGS, found, consequence, remedy));
        }
        if core.contains(main_core) && !lcores.contains(main_core) {
            let found =
                format!("fastpath.main_core = {main_core} shares a core with lcore {lcore}");
            let consequence = "the control thread slows the lcore";
            findings.push(Finding::info(SIBLINGS, format!("{found}: {consequence}")));
        }
        let rest: CpuSet = core.without(lcores).without(&cpus.isolated).intersection(&cpus.online);
        let rest: CpuSet = rest.iter().filter(|cpu| *cpu != main_core).collect();
        if !rest.is_empty() {
            findings.push(Finding::info(
                SIBLINGS,
                format!(
                    "CPU {rest} shares a core with lcore {lcore}: what runs there slows the lcore; \
                     to leave it idle: echo 0 > /sys/devices/system/cpu/cpu{}/online",
                    rest.iter().next().unwrap_or_default()
                ),
            ));
        }
    }
    if unknown {
        let reason = "the kernel does not show which CPUs share a core";
        findings.push(Finding::not_checked(SIBLINGS, reason, ""));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(SIBLINGS, "each lcore has a core of its own"));
    }
    findings
}

fn numa(context: &Context<'_>) -> Vec<Finding> {
    let path = context.root.join("");
    let machine = match Machine::read(&path) {
        Ok(machine) => machine,
        Err(error) => return vec![Finding::not_checked(NUMA, error.to_string(), "")],
    };
    if machine.nodes.len() < 2 {
        return vec![Finding::ok(NUMA, "the machine has one node")];
    }
    let plan = hugepages::plan_below(context.config, &path);
    let Some(node) = hugepages::numa::nic_node(&plan, &machine) else {
        let mut findings = node_warnings(&plan, &machine);
        if findings.is_empty() {
            let reason = "the firmware gives no node for the NICs";
            findings.push(Finding::not_checked(NUMA, reason, ""));
        }
        return findings;
    };
    let mut findings = node_warnings(&plan, &machine);
    if findings.is_empty() {
        findings.push(Finding::ok(NUMA, format!("NICs and lcores are on node {node}")));
    }
    findings.push(region(context, &plan, &machine));
    findings
}

/// Returns the warnings about nodes. Their texts contain consequence and remedy.
fn node_warnings(plan: &Plan, machine: &Machine) -> Vec<Finding> {
    let warnings = hugepages::numa::warnings(plan, machine).into_iter();
    warnings.map(|text| Finding::warning(NUMA, text, "", "")).collect()
}

/// Checks on which nodes the pages of the region are, in the memory map of the running fastpath.
fn region(context: &Context<'_>, plan: &Plan, machine: &Machine) -> Finding {
    let running = processes(context.root);
    let running = running.iter().find(|process| process.name == "fastpath");
    let Some(running) = running else {
        return Finding::not_checked(NUMA, "region: fastpath does not run", "");
    };
    let Some(maps) = context.root.read(format!("proc/{}/numa_maps", running.pid)) else {
        let reason = format!("region: /proc/{}/numa_maps cannot be read", running.pid);
        return Finding::not_checked(NUMA, reason, "run `weir doctor` as root");
    };
    match hugepages::numa::region_warning(plan, machine, &maps) {
        Some(text) => Finding::warning(NUMA, text, "", ""),
        None => Finding::ok(NUMA, "the region is on the node of the NICs"),
    }
}
