//! The CPUs: which are online, isolated and adaptive-tick, their siblings, nodes and governors.

use super::CommandLine;
use crate::Root;
use crate::cpu_set::CpuSet;

/// The CPUs of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cpus {
    root: Root,
    /// CPUs that are online.
    pub online: CpuSet,
    /// CPUs that the scheduler leaves alone (`isolcpus`).
    pub isolated: CpuSet,
    /// CPUs without a tick while they run one thread (`nohz_full`); `None` if the kernel is built
    /// without `CONFIG_NO_HZ_FULL`.
    pub nohz_full: Option<CpuSet>,
    /// CPUs whose RCU callbacks run on others: those of `rcu_nocbs`, and those of `nohz_full`.
    pub rcu_nocbs: CpuSet,
}

/// Directory of the CPUs.
const CPUS: &str = "sys/devices/system/cpu";

impl Cpus {
    /// Reads the CPUs; `None` if the kernel lists none.
    pub fn read(root: &Root) -> Option<Cpus> {
        let list = |name: &str| {
            let text = std::fs::read_to_string(root.join(format!("{CPUS}/{name}"))).ok()?;
            Some(CpuSet::parse(&text))
        };
        let online = list("online").filter(|cpus| !cpus.is_empty())?;
        let nohz_full = list("nohz_full");
        let command_line = CommandLine::read(root).unwrap_or_default();
        let offloaded = match command_line.value("rcu_nocbs") {
            Some("all") => online.clone(),
            Some(cpus) => CpuSet::parse(cpus),
            None => CpuSet::default(),
        };
        let adaptive = nohz_full.iter().flat_map(CpuSet::iter);
        Some(Cpus {
            root: root.clone(),
            online,
            isolated: list("isolated").unwrap_or_default(),
            rcu_nocbs: offloaded.iter().chain(adaptive).collect(),
            nohz_full,
        })
    }

    fn attribute(&self, cpu: u16, name: &str) -> Option<String> {
        self.root.read(format!("{CPUS}/cpu{cpu}/{name}"))
    }

    /// Returns the CPUs that share a core with `cpu`, itself included; `None` if the kernel does
    /// not list them.
    pub fn siblings(&self, cpu: u16) -> Option<CpuSet> {
        // Kernels before 5.3 have only the second name.
        let of = |name: &str| self.attribute(cpu, &format!("topology/{name}"));
        let list = of("core_cpus_list").or_else(|| of("thread_siblings_list"))?;
        Some(CpuSet::parse(&list))
    }

    /// Returns the NUMA node of a CPU; `None` on a kernel without NUMA.
    pub fn node(&self, cpu: u16) -> Option<u32> {
        let entries = self.root.list(format!("{CPUS}/cpu{cpu}"));
        entries.iter().find_map(|name| name.strip_prefix("node")?.parse().ok())
    }

    /// Returns the path of a CPU's frequency governor, without a leading slash.
    pub fn governor_file(cpu: u16) -> String {
        format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor")
    }

    /// Returns a CPU's frequency governor; `None` if the kernel does not control its frequency.
    pub fn governor(&self, cpu: u16) -> Option<String> {
        self.attribute(cpu, "cpufreq/scaling_governor")
    }

    /// Returns whether the governor `performance` can be set: false only if the kernel lists the
    /// CPU's governors without it.
    pub fn supports_performance_governor(&self, cpu: u16) -> bool {
        let governors = self.attribute(cpu, "cpufreq/scaling_available_governors");
        governors.is_none_or(|list| list.split_whitespace().any(|name| name == "performance"))
    }
}
