//! Compares the plan with the machine, reports what is missing, and reserves it.

use std::path::{Path, PathBuf};
use std::process::Command;

use config::checked::Plane;

use crate::machine::{Machine, Node, PAGE_BYTES, number};
use crate::maps;
use crate::numa;
use crate::plan::Plan;
use crate::table::{Table, bytes_text};

/// The result of comparing the plan with the machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckResult {
    /// The nodes that need pages.
    pub nodes: Vec<NodePages>,
    /// Problems that prevent a start, each with a remedy.
    pub problems: Vec<String>,
    /// Configurations that work but reduce performance.
    pub warnings: Vec<String>,
    /// The mount point of a missing hugetlbfs for the region; `apply` mounts it.
    pub mount: Option<PathBuf>,
    /// Commands that make the remedies persistent across boots.
    pub advice: Vec<String>,
}

/// The pages of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodePages {
    /// Number of the node.
    pub id: u32,
    /// Pages that must be free, excluding those that an existing region occupies.
    pub needed: u64,
    /// Reserved pages.
    pub total: u64,
    /// Free pages.
    pub free: u64,
}

impl NodePages {
    /// Returns the number of pages that have to be reserved in addition.
    pub fn missing(&self) -> u64 {
        self.needed.saturating_sub(self.free)
    }
}

/// Compares the plan with the machine.
pub fn check(plan: &Plan, machine: &Machine) -> CheckResult {
    let mut result = CheckResult::default();
    if plan.plane == Plane::Xdp {
        result.problems = maps::problems(plan, machine);
        return result;
    }
    let page_kind = region_pages(plan, machine, &mut result);
    let mut ordinary = 0;
    let mut pages = 0;
    match page_kind {
        PageKind::Huge => pages += plan.region_bytes / PAGE_BYTES,
        PageKind::Ordinary => ordinary += plan.region_bytes,
    }
    let dpdk = plan.dpdk_bytes / PAGE_BYTES;
    if !plan.hugepages {
        ordinary += plan.dpdk_bytes;
    }
    if ordinary > machine.available {
        result.problems.push(format!(
            "{} of ordinary memory required, {} available: lower fastpath.buffers, \
             fastpath.memory_mib or region.max_flows",
            bytes_text(ordinary),
            bytes_text(machine.available)
        ));
    }
    let nic_node = numa::nic_node(plan, machine);
    let spread = spread(if plan.hugepages { dpdk } else { 0 }, plan, machine, nic_node);
    let occupied =
        if page_kind == PageKind::Huge { machine.pages_in(&plan.region_path) } else { 0 };
    let first = region_node(plan, machine, nic_node);
    for (i, (node, dpdk)) in machine.nodes.iter().zip(spread).enumerate() {
        let region = if i == first { pages.saturating_sub(occupied) } else { 0 };
        let needed = dpdk + region;
        if needed > 0 {
            let Node { id, total, free, .. } = *node;
            result.nodes.push(NodePages { id, needed, total, free });
        }
    }
    pages_problem(&mut result, machine);
    result.warnings.extend(numa::warnings(plan, machine));
    result
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PageKind {
    Huge,
    Ordinary,
}

/// Determines the kind of pages of the region, and adds problems and warnings about it to
/// `result`.
fn region_pages(plan: &Plan, machine: &Machine, result: &mut CheckResult) -> PageKind {
    let path = plan.region_path.display();
    let directory = plan.region_path.parent().unwrap_or(&plan.region_path).display();
    match machine.mount_of(&plan.region_path).map(|mount| mount.page_bytes) {
        Some(Some(PAGE_BYTES)) => PageKind::Huge,
        Some(Some(other)) => {
            result.problems.push(format!(
                "{path} is on pages of {}, not of 2 MiB: type: mkdir -p /dev/hugepages-2M && \
                 mount -t hugetlbfs -o pagesize=2M none /dev/hugepages-2M, and set region.path = \
                 \"/dev/hugepages-2M/weir-region\"",
                bytes_text(other)
            ));
            PageKind::Huge
        }
        None if plan.hugepages && plan.region_path.starts_with("/dev/hugepages") => {
            result.problems.push(format!(
                "no hugetlbfs is mounted on {directory}, the region's directory: type: weir \
                 hugepages apply, or: mkdir -p {directory} && mount -t hugetlbfs -o pagesize=2M \
                 none {directory}"
            ));
            result.advice.push(format!(
                "to mount it at every boot, type: echo 'none {directory} \
                 hugetlbfs pagesize=2M 0 0' >> /etc/fstab"
            ));
            result.mount = plan.region_path.parent().map(PathBuf::from);
            PageKind::Huge
        }
        Some(None) => {
            if plan.hugepages {
                result.warnings.push(format!(
                    "{path} is on ordinary pages, which makes lookups slower: leave region.path \
                     empty, and mount a hugetlbfs on /dev/hugepages if none is"
                ));
            }
            PageKind::Ordinary
        }
        None => {
            result.warnings.push(format!(
                "{path} is on neither hugetlbfs nor tmpfs, so the kernel keeps writing it to \
                 disk: set region.path = \"/dev/shm/weir/region\""
            ));
            PageKind::Ordinary
        }
    }
}

/// Returns the index of the best node for the region: that of the NICs, or else that of the first
/// polling lcore.
fn region_node(plan: &Plan, machine: &Machine, nic_node: Option<u32>) -> usize {
    let first = plan.lcores.first();
    let of_nics = machine.nodes.iter().position(|node| nic_node == Some(node.id));
    let of_lcore =
        || machine.nodes.iter().position(|n| first.is_some_and(|cpu| n.cpus.contains(cpu)));
    of_nics.or_else(of_lcore).unwrap_or(0)
}

/// Distributes EAL's pages over the nodes. All are on the NICs' node if it is known, since the fast
/// path requests them there. Otherwise EAL distributes them in proportion to the nodes' lcores, and
/// the first node with an lcore gets the remainder.
fn spread(pages: u64, plan: &Plan, machine: &Machine, nic_node: Option<u32>) -> Vec<u64> {
    let (lcores, nodes) = (&plan.lcores, &machine.nodes);
    if nic_node.is_some() {
        return nodes.iter().map(|n| if nic_node == Some(n.id) { pages } else { 0 }).collect();
    }
    let lcores_on =
        |node: &Node| lcores.iter().filter(|cpu| node.cpus.contains(cpu)).count() as u64;
    let mut counts: Vec<u64> = nodes.iter().map(lcores_on).collect();
    if counts.iter().sum::<u64>() == 0 {
        // The CPUs are unknown, or the kernel does not support NUMA.
        counts = nodes.iter().enumerate().map(|(i, _)| u64::from(i == 0)).collect();
    }
    let all = counts.iter().sum::<u64>().max(1);
    let mut shares: Vec<u64> = counts.iter().map(|count| pages * count / all).collect();
    let left = pages - shares.iter().sum::<u64>();
    if let Some(first) = counts.iter().position(|count| *count > 0) {
        shares[first] += left;
    }
    shares
}

fn pages_problem(result: &mut CheckResult, machine: &Machine) {
    if result.nodes.is_empty() {
        return;
    }
    if !machine.supported {
        result.problems.push(
            "this kernel does not support pages of 2 MiB: use one with CONFIG_HUGETLBFS, or set \
             fastpath.hugepages = false"
                .into(),
        );
        return;
    }
    let mut target: u64 = machine.nodes.iter().map(|node| node.total).sum();
    for node in result.nodes.clone() {
        target += node.missing();
        if node.missing() > 0 {
            let path = machine.nodes.iter().find(|n| n.id == node.id).map(|n| n.nr.display());
            let path = path.map_or_else(String::new, |path| path.to_string());
            result.problems.push(format!(
                "node {}: {} pages of 2 MiB missing ({} needed, {} of {} free): type: weir \
                 hugepages apply, or: echo {} > {path}",
                node.id,
                node.missing(),
                node.needed,
                node.free,
                node.total,
                node.total + node.missing()
            ));
        }
    }
    if result.nodes.iter().any(|node| node.missing() > 0) {
        if result.nodes.iter().any(|node| node.total > node.free) {
            result
                .advice
                .push("pages of a running fastpath are in use and do not count as free".into());
        }
        result.advice.push(format!(
            "to reserve the pages at every boot, type: echo vm.nr_hugepages = {target} > \
             /etc/sysctl.d/80-weir.conf"
        ));
    }
}

impl CheckResult {
    /// Returns true if the fast path can start.
    pub fn enough(&self) -> bool {
        self.problems.is_empty()
    }

    /// Formats the pages needed by node and the warnings; empty on a machine with a single node.
    pub fn render_nodes(&self, machine: &Machine) -> String {
        if machine.nodes.len() < 2 {
            return String::new();
        }
        let each =
            self.nodes.iter().map(|n| format!("node {}: {} pages of 2 MiB\n", n.id, n.needed));
        let warnings = self.warnings.iter().map(|warning| format!("warning: {warning}\n"));
        each.chain(warnings).collect()
    }

    /// Formats the result for display.
    pub fn render(&self) -> String {
        let mut out = String::new();
        if !self.nodes.is_empty() {
            let head = ["node", "needed", "free", "reserved", "missing"];
            let mut table = Table::new(&head, &[0, 1, 2, 3, 4]);
            for node in &self.nodes {
                let cells = [node.id.into(), node.needed, node.free, node.total, node.missing()];
                let cells = cells.map(|number| number.to_string());
                table.row(cells.each_ref().map(String::as_str));
            }
            out += &format!("pages of 2 MiB\n{}", table.render());
        }
        for problem in &self.problems {
            out += &format!("problem: {problem}\n");
        }
        for warning in &self.warnings {
            out += &format!("warning: {warning}\n");
        }
        for advice in &self.advice {
            out += &format!("{advice}\n");
        }
        if self.enough() {
            out += "all requirements are met\n";
        }
        out
    }
}

/// The result of reserving memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// Node, number of pages before, number of pages now.
    pub nodes: Vec<(u32, u64, u64)>,
    /// Mount point of the hugetlbfs that was mounted.
    pub mounted: Option<PathBuf>,
    /// The remaining problems, which `apply` cannot solve, and warnings.
    pub result: CheckResult,
}

impl Applied {
    /// Formats the changes for display.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for (id, before, now) in &self.nodes {
            out += &format!("node {id}: {before} pages of 2 MiB before, {now} now\n");
        }
        if let Some(mounted) = &self.mounted {
            out += &format!("hugetlbfs mounted on {}\n", mounted.display());
        }
        out + &self.result.render()
    }
}

/// The reason for which [`apply`] failed. After [`Unsupported`](ApplyError::Unsupported),
/// [`Unwritable`](ApplyError::Unwritable) and [`Short`](ApplyError::Short) the machine has as many
/// pages as before; after the others the pages are reserved.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The kernel does not support pages of 2 MiB.
    #[error("{0}")]
    Unsupported(String),
    /// The file that sets a node's number of pages cannot be written.
    #[error("cannot write {}: {reason}; type: sudo weir hugepages apply", path.display())]
    Unwritable {
        /// Path of the file.
        path: PathBuf,
        /// The error from the system.
        reason: std::io::Error,
    },
    /// The kernel reserved fewer pages than requested: it has too little contiguous memory.
    #[error(
        "node {node}: the kernel reserved {got} of {requested} pages of 2 MiB, {} are missing \
         (nothing was changed): too little free or contiguous memory; stop programs that use much \
         of it, or reserve at boot: add hugepages={boot} to the kernel's command line",
        requested - got
    )]
    Short {
        /// Number of the node.
        node: u32,
        /// Requested number of additional pages.
        requested: u64,
        /// Number of additional pages obtained.
        got: u64,
        /// Number of pages to reserve at boot for the whole machine.
        boot: u64,
    },
    /// The hugetlbfs could not be mounted; the pages are reserved.
    #[error(
        "cannot mount a hugetlbfs on {}: {reason}; type: sudo weir hugepages apply",
        path.display()
    )]
    Mount {
        /// Mount point.
        path: PathBuf,
        /// The error from the system.
        reason: std::io::Error,
    },
    /// The machine's memory could not be read again.
    #[error(transparent)]
    Machine(#[from] crate::machine::MachineError),
}

/// Reserves the missing pages node by node and verifies them, all or nothing. Then mounts a
/// hugetlbfs for the region if none is mounted. Idempotent.
pub fn apply(plan: &Plan, machine: &Machine) -> Result<Applied, ApplyError> {
    apply_with(plan, machine, mount)
}

/// Like [`apply`], with `mount` as the function that mounts the hugetlbfs.
pub fn apply_with(
    plan: &Plan,
    machine: &Machine,
    mount: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<Applied, ApplyError> {
    let result = check(plan, machine);
    if !machine.supported && !result.nodes.is_empty() {
        return Err(ApplyError::Unsupported(result.problems.join("\n")));
    }
    let boot = machine.nodes.iter().map(|n| n.total).sum::<u64>()
        + result.nodes.iter().map(NodePages::missing).sum::<u64>();
    let mut done: Vec<(&Node, u64)> = Vec::new();
    for pages in result.nodes.iter().filter(|node| node.missing() > 0) {
        let Some(node) = machine.nodes.iter().find(|node| node.id == pages.id) else { continue };
        let now = grow(node, node.total + pages.missing(), machine);
        done.push((node, node.total));
        let (error, counts) = match now {
            Ok(now) if now >= node.total + pages.missing() => continue,
            Ok(now) => (None, (pages.missing(), now.saturating_sub(node.total))),
            Err(error) => (Some(error), (0, 0)),
        };
        for (node, before) in &done {
            // These numbers were in effect before. If the release fails, the original error is
            // still the one to report.
            let _ = std::fs::write(&node.nr, before.to_string());
        }
        let (node, (requested, got)) = (node.id, counts);
        return Err(error.unwrap_or(ApplyError::Short { node, requested, got, boot }));
    }
    if let Some(path) = &result.mount {
        mount(path).map_err(|reason| ApplyError::Mount { path: path.clone(), reason })?;
    }
    let now = Machine::read(&machine.root)?;
    let nodes = done.iter().map(|(node, before)| (node.id, *before, number(&node.nr))).collect();
    Ok(Applied { nodes, mounted: result.mount, result: check(plan, &now) })
}

fn mount(path: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(path)?;
    let mut mount = Command::new("mount");
    let output = mount.args(["-t", "hugetlbfs", "-o", "pagesize=2M", "none"]).arg(path).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(std::io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Requests `target` pages, a second time after memory compaction if necessary, and returns the
/// number of pages that the node has afterwards.
fn grow(node: &Node, target: u64, machine: &Machine) -> Result<u64, ApplyError> {
    let request = || {
        let path = node.nr.clone();
        std::fs::write(&node.nr, target.to_string())
            .map_err(|reason| ApplyError::Unwritable { path, reason })
    };
    request()?;
    if number(&node.nr) < target {
        let compact = machine.root.join("proc/sys/vm/compact_memory");
        // If the kernel does not support compaction, a second request is pointless.
        if std::fs::write(compact, "1").is_ok() {
            request()?;
        }
    }
    Ok(number(&node.nr))
}
