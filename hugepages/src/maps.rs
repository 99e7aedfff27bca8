//! Plane xdp's memory: kernel maps of ordinary pages, pinned in a folder.

use std::path::Path;

use crate::machine::Machine;
use crate::plan::Plan;
use crate::table::bytes_text;

/// What is wrong with having them here.
pub(crate) fn problems(plan: &Plan, machine: &Machine) -> Vec<String> {
    let mut problems = Vec::new();
    let folder = &plan.region_path;
    // The one that the system has is mounted when the maps are made.
    let system = Path::new("/sys/fs/bpf");
    if !machine.bpf.iter().any(|at| folder.starts_with(at)) && !folder.starts_with(system) {
        problems.push(format!(
            "region.maps = \"{}\" is in no BPF file system: set region.maps = \
             \"/sys/fs/bpf/weir\"",
            folder.display()
        ));
    }
    let there = machine.root.join(folder.strip_prefix("/").unwrap_or(folder)).exists();
    if !there && plan.region_bytes > machine.available {
        problems.push(format!(
            "{} of ordinary memory needed for the region's maps, {} available: lower \
             region.max_flows, region.nat_maps or region.slots",
            bytes_text(plan.region_bytes),
            bytes_text(machine.available)
        ));
    }
    problems
}
