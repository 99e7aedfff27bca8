//! The memory of plane xdp: kernel maps in ordinary pages, pinned in a directory of a BPF file
//! system.

use std::path::Path;

use crate::machine::Machine;
use crate::plan::Plan;
use crate::table::bytes_text;

/// Returns the problems that prevent the creation of the maps, each with a remedy.
pub(crate) fn problems(plan: &Plan, machine: &Machine) -> Vec<String> {
    let mut problems = Vec::new();
    let folder = &plan.region_path;
    // The creation of the maps mounts the system's BPF file system if needed.
    let system = Path::new("/sys/fs/bpf");
    if !machine.bpf.iter().any(|at| folder.starts_with(at)) && !folder.starts_with(system) {
        problems.push(format!(
            "region.maps = \"{}\" is not in a BPF file system: set region.maps = \
             \"/sys/fs/bpf/weir\"",
            folder.display()
        ));
    }
    let exists = machine.root.join(folder.strip_prefix("/").unwrap_or(folder)).exists();
    if !exists && plan.region_bytes > machine.available {
        problems.push(format!(
            "{} of ordinary memory required for the region's maps, but only {} is available: \
             lower region.max_flows, region.nat_maps or region.slots",
            bytes_text(plan.region_bytes),
            bytes_text(machine.available)
        ));
    }
    problems
}
