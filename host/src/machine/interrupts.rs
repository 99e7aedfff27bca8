//! Interrupts and the CPUs that handle them.

use crate::Root;
use crate::cpu_set::CpuSet;

/// An interrupt with a handler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interrupt {
    /// Number of the interrupt in `/proc/irq`.
    pub number: u32,
    /// Names of its handlers, usually a device and a queue.
    pub names: Vec<String>,
    /// CPUs on which it may be handled.
    pub allowed: CpuSet,
    /// CPUs on which it is handled now: a subset of `allowed`.
    pub handled_on: CpuSet,
}

impl Interrupt {
    /// Returns the path of the file that sets the allowed CPUs, without a leading slash.
    pub fn affinity_file(&self) -> String {
        format!("proc/irq/{}/smp_affinity_list", self.number)
    }
}

/// Returns the interrupts that have a handler, by number; `None` if the kernel shows none at all.
pub fn interrupts(root: &Root) -> Option<Vec<Interrupt>> {
    let mut numbers: Vec<u32> =
        root.list("proc/irq").iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let interrupt = |number: u32| {
        let directory = format!("proc/irq/{number}");
        // Each handler is a directory.
        let is_handler = |name: &String| root.join(format!("{directory}/{name}")).is_dir();
        let names: Vec<String> = root.list(&directory).into_iter().filter(is_handler).collect();
        let list = |name: &str| Some(CpuSet::parse(&root.read(format!("{directory}/{name}"))?));
        let allowed = list("smp_affinity_list")?;
        let handled_on = list("effective_affinity_list").unwrap_or_else(|| allowed.clone());
        (!names.is_empty()).then_some(Interrupt { number, names, allowed, handled_on })
    };
    (!numbers.is_empty()).then(|| numbers.into_iter().filter_map(interrupt).collect())
}
