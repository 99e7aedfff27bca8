//! NUMA: compares the nodes of the NICs with those of the polling lcores and of the region's pages.
//!
//! A NIC writes packets and descriptors to memory, and an lcore reads them. An access across nodes
//! takes about twice the time, so buffers, descriptors, the region and the lcores should be on the
//! node of the NICs.

use std::path::Path;

use crate::machine::{Machine, Node};
use crate::nic::Nic;
use crate::plan::Plan;

/// Returns each NIC whose node is known, with its node; empty if the machine has a single node.
fn nodes_of<'p>(plan: &'p Plan, machine: &Machine) -> Vec<(&'p Nic, u32)> {
    if machine.nodes.len() < 2 {
        return Vec::new();
    }
    let node = |nic: &Nic| {
        let text = std::fs::read_to_string(machine.root.join(&nic.file)).ok()?;
        // The kernel writes -1 if the firmware does not provide a node.
        text.trim().parse::<u32>().ok().filter(|id| machine.nodes.iter().any(|n| n.id == *id))
    };
    plan.nics.iter().filter_map(|nic| Some((nic, node(nic)?))).collect()
}

/// Returns the node that all NICs with a known node share. Returns `None` if their nodes differ, if
/// none is known, or if the machine has a single node.
pub fn nic_node(plan: &Plan, machine: &Machine) -> Option<u32> {
    let nodes = nodes_of(plan, machine);
    let (_, first) = nodes.first()?;
    nodes.iter().all(|(_, node)| node == first).then_some(*first)
}

/// Returns a warning with a remedy if the NICs are on two nodes, or else if lcores are on another
/// node than the NICs.
pub fn warnings(plan: &Plan, machine: &Machine) -> Vec<String> {
    let nodes = nodes_of(plan, machine);
    let mut warnings = Vec::new();
    if let [(ingress, first), (egress, second)] = nodes[..]
        && first != second
    {
        warnings.push(format!(
            "{} = \"{}\" is on NUMA node {first}, {} = \"{}\" on node {second}: packets cross \
             nodes; use NICs of one node",
            ingress.key, ingress.device, egress.key, egress.device
        ));
        return warnings;
    }
    let Some((nic, node)) = nodes.first() else { return warnings };
    let Some(nic_node) = machine.nodes.iter().find(|n| n.id == *node) else { return warnings };
    let away: Vec<String> =
        plan.lcores.iter().filter(|cpu| !nic_node.cpus.contains(cpu)).map(u16::to_string).collect();
    if !away.is_empty() {
        warnings.push(format!(
            "fastpath.lcores: CPU {} not on NUMA node {node} of {} = \"{}\": packets cross nodes; \
             use CPUs of node {node}: {}",
            away.join(", "),
            nic.key,
            nic.device,
            cpus(nic_node)
        ));
    }
    warnings
}

/// Returns a warning if pages of the region that this process has mapped are on another node than
/// the NICs. `numa_maps` is the text of `/proc/self/numa_maps`.
pub fn region_warning(plan: &Plan, machine: &Machine, numa_maps: &str) -> Option<String> {
    let nic_node = nic_node(plan, machine)?;
    let nic = plan.nics.first()?;
    let away: u64 = pages_of(numa_maps, &plan.region_path)
        .into_iter()
        .filter(|(node, _)| *node != nic_node)
        .map(|(_, pages)| pages)
        .sum();
    (away > 0).then(|| {
        format!(
            "{away} pages of the region {} are on another NUMA node than {nic_node}, the node of \
             {} = \"{}\": lookups cross nodes; to move the region, type `weir hugepages apply`, \
             stop fastpath and slowpath, remove the file (flows are lost), and start them",
            plan.region_path.display(),
            nic.key,
            nic.device
        )
    })
}

/// Returns the mapped pages of `file` as pairs of a node and a number of pages. A line of
/// `numa_maps` has the form `ADDRESS POLICY file=PATH ... N0=12 N1=3 ...`.
fn pages_of(numa_maps: &str, file: &Path) -> Vec<(u32, u64)> {
    let maps_file = |line: &&str| {
        let path = line.split_whitespace().find_map(|word| word.strip_prefix("file="));
        path.is_some_and(|path| Path::new(path) == file)
    };
    let pages = |word: &str| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((node.parse().ok()?, pages.parse().ok()?))
    };
    let lines = numa_maps.lines().filter(maps_file);
    lines.flat_map(|line| line.split_whitespace().filter_map(pages)).collect()
}

/// Formats the CPUs of a node, for example `0-3, 8`.
fn cpus(node: &Node) -> String {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for cpu in &node.cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => runs.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(", ")
}
