//! Compares the plan with the machine, reports missing memory, and reserves missing huge pages.

use std::path::{Path, PathBuf};
use std::process::Command;

use config::checked::{PageSize, Plane};

use crate::machine::{Machine, Node, Pages, number};
use crate::maps;
use crate::numa;
use crate::plan::Plan;
use crate::table::{Table, bytes_text};

/// The result of comparing the plan with the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckResult {
    /// Size of the pages; without meaning if no node needs pages.
    pub page: PageSize,
    /// The nodes that need pages.
    pub nodes: Vec<NodePages>,
    /// Problems that prevent a start, each with a remedy.
    pub problems: Vec<String>,
    /// Configurations that work but reduce performance.
    pub warnings: Vec<String>,
    /// The mount point of a missing hugetlbfs for the region; `apply` mounts it.
    pub mount: Option<PathBuf>,
    /// Commands that make the remedies persistent across boots, and explanations of the counts.
    pub advice: Vec<String>,
}

/// The pages of one NUMA node, of the size that the plan has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodePages {
    /// Number of the node.
    pub id: u32,
    /// Pages that must be free. Those that an existing region already occupies do not count.
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
    let mut result = CheckResult::new(plan.page);
    if plan.plane == Plane::Xdp {
        result.problems = maps::problems(plan, machine);
        return result;
    }
    let page_kind = region_pages(plan, machine, &mut result);
    let mut ordinary = 0;
    let mut pages = 0;
    match page_kind {
        PageKind::Huge => pages += plan.region_bytes / plan.page.bytes(),
        PageKind::Ordinary => ordinary += plan.region_bytes,
    }
    if !plan.hugepages {
        ordinary += plan.dpdk_bytes;
    }
    if ordinary > machine.available {
        result.problems.push(format!(
            "{} of ordinary memory required, but only {} is available: lower \
             fastpath.buffers, fastpath.memory_mib or region.max_flows",
            bytes_text(ordinary),
            bytes_text(machine.available)
        ));
    }
    let occupied = match page_kind {
        PageKind::Huge => machine.pages_in(&plan.region_path, plan.page),
        PageKind::Ordinary => 0,
    };
    result.nodes = nodes(plan, machine, pages, occupied);
    pages_problem(&mut result, machine);
    result.warnings.extend(numa::warnings(plan, machine));
    result
}

/// Returns the pages that nodes need while no region exists and no fastpath runs, as at boot. Empty
/// if none are needed.
pub fn pages_at_boot(plan: &Plan, machine: &Machine) -> Vec<NodePages> {
    if plan.plane == Plane::Xdp {
        return Vec::new();
    }
    let region = match region_pages(plan, machine, &mut CheckResult::new(plan.page)) {
        PageKind::Huge => plan.region_bytes / plan.page.bytes(),
        PageKind::Ordinary => 0,
    };
    nodes(plan, machine, region, 0)
}

/// Distributes the region's pages and EAL's over the nodes; an existing region occupies some.
fn nodes(plan: &Plan, machine: &Machine, region_pages: u64, occupied: u64) -> Vec<NodePages> {
    let nic_node = numa::nic_node(plan, machine);
    let dpdk = if plan.hugepages { plan.dpdk_bytes / plan.page.bytes() } else { 0 };
    let first = region_node(plan, machine, nic_node);
    let pages = machine.nodes.iter().zip(spread(dpdk, plan, machine, nic_node)).enumerate();
    pages
        .map(|(i, (node, dpdk))| {
            let region = if i == first { region_pages.saturating_sub(occupied) } else { 0 };
            let Pages { total, free, .. } = *node.pages(plan.page);
            NodePages { id: node.id, needed: dpdk + region, total, free }
        })
        .filter(|node| node.needed > 0)
        .collect()
}

/// The kind of pages that a region's file is on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageKind {
    Huge,
    Ordinary,
}

/// Determines from the mount of the region's path which kind of pages the region is on, and adds
/// problems and warnings about the mount to `result`.
fn region_pages(plan: &Plan, machine: &Machine, result: &mut CheckResult) -> PageKind {
    let path = plan.region_path.display();
    let directory = plan.region_path.parent().unwrap_or(&plan.region_path).display();
    let (page, size) = (plan.page, plan.page.option());
    // `/dev/hugepages`, and directories beside it for another size, such as `/dev/hugepages-1G`.
    let text = plan.region_path.to_string_lossy();
    let starts = ["/dev/hugepages/", "/dev/hugepages-"];
    let is_for_hugetlbfs = starts.into_iter().any(|start| text.starts_with(start));
    match machine.mount_of(&plan.region_path).map(|mount| mount.page_bytes) {
        Some(Some(bytes)) if bytes == page.bytes() => PageKind::Huge,
        Some(Some(other)) => {
            result.problems.push(format!(
                "{path} is on pages of {}, not of {page} (fastpath.hugepage_size): type `mkdir -p \
                 /dev/hugepages-{size} && mount -t hugetlbfs -o pagesize={size} none \
                 /dev/hugepages-{size}`, and set region.path = \
                 \"/dev/hugepages-{size}/weir-region\"",
                bytes_text(other)
            ));
            PageKind::Huge
        }
        None if plan.hugepages && is_for_hugetlbfs => {
            result.problems.push(format!(
                "no hugetlbfs is mounted on {directory}, the region's directory: type `weir \
                 hugepages apply`, or `mkdir -p {directory} && mount -t hugetlbfs -o \
                 pagesize={size} none {directory}`"
            ));
            result.advice.push(format!(
                "to mount it at every boot, type: echo 'none {directory} \
                 hugetlbfs pagesize={size} 0 0' >> /etc/fstab"
            ));
            result.mount = plan.region_path.parent().map(PathBuf::from);
            PageKind::Huge
        }
        Some(None) => {
            if plan.hugepages {
                result.warnings.push(format!(
                    "{path} is on ordinary pages, which makes lookups slower: leave region.path \
                     empty, and mount a hugetlbfs on {} if none is",
                    page.mount_point()
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

/// Returns the index in [`Machine::nodes`] of the best node for the region: the NICs' node, or else
/// the node of the first polling lcore, or else the first node.
fn region_node(plan: &Plan, machine: &Machine, nic_node: Option<u32>) -> usize {
    let first = plan.lcores.first();
    let of_nics = machine.nodes.iter().position(|node| nic_node == Some(node.id));
    let of_lcore =
        || machine.nodes.iter().position(|n| first.is_some_and(|cpu| n.cpus.contains(cpu)));
    of_nics.or_else(of_lcore).unwrap_or(0)
}

/// Returns the number of EAL's pages for each node. All are on the NICs' node if it is known, since
/// fastpath requests them there (`--socket-mem`). Otherwise EAL distributes them in proportion to
/// the nodes' lcores, and the first node with an lcore gets the remainder.
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

/// Formats a number of pages for messages: `1 page of 1 GiB`.
fn pages_text(number: u64, page: PageSize) -> String {
    let noun = if number == 1 { "page" } else { "pages" };
    format!("{number} {noun} of {page}")
}

/// Adds a problem for each node that lacks pages, and advice on the remedy, to `result`.
fn pages_problem(result: &mut CheckResult, machine: &Machine) {
    if result.nodes.is_empty() {
        return;
    }
    let page = result.page;
    if !machine.supported.contains(&page) {
        let remedy = match page {
            PageSize::TwoMib => "use one with CONFIG_HUGETLBFS, or set fastpath.hugepages = false",
            PageSize::OneGib => {
                "the CPU must have pdpe1gb (virtual machines often hide it); set \
                 fastpath.hugepage_size = \"2M\""
            }
        };
        let found = format!("this kernel does not support pages of {page}: {remedy}");
        result.problems.push(found);
        return;
    }
    let mut target: u64 = machine.nodes.iter().map(|node| node.pages(page).total).sum();
    for node in result.nodes.clone() {
        target += node.missing();
        if node.missing() > 0 {
            let found = machine.nodes.iter().find(|n| n.id == node.id);
            let path = found.map(|found| found.pages(page).nr.display().to_string());
            let path = path.unwrap_or_default();
            result.problems.push(format!(
                "node {}: {} missing ({} needed, {} of {} free): type `weir hugepages apply`, or \
                 `echo {} > {path}`",
                node.id,
                pages_text(node.missing(), page),
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
        result.advice.push(match page {
            PageSize::TwoMib => format!(
                "to reserve the pages at every boot, type: echo vm.nr_hugepages = {target} > \
                 /etc/sysctl.d/80-weir.conf"
            ),
            // The sysctl counts pages of the default size, and is set late.
            PageSize::OneGib => format!(
                "to reserve the pages at every boot, type: weir tune apply (it adds {} to the \
                 kernel's command line)",
                boot_parameters(page, &target.to_string())
            ),
        });
    }
}

/// Returns the parameters of the kernel's command line that reserve pages: a number, or one per
/// node.
pub fn boot_parameters(page: PageSize, pages: &str) -> String {
    format!("hugepagesz={} hugepages={pages}", page.option())
}

impl CheckResult {
    fn new(page: PageSize) -> CheckResult {
        CheckResult {
            page,
            nodes: Vec::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            mount: None,
            advice: Vec::new(),
        }
    }

    /// Returns whether no problem prevents a start of fastpath.
    pub fn enough(&self) -> bool {
        self.problems.is_empty()
    }

    /// Formats the pages that each node needs, and the warnings; empty on a machine with a single
    /// node.
    pub fn render_nodes(&self, machine: &Machine) -> String {
        if machine.nodes.len() < 2 {
            return String::new();
        }
        let page = self.page;
        let each =
            self.nodes.iter().map(|n| format!("node {}: {}\n", n.id, pages_text(n.needed, page)));
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
            out += &format!("pages of {}\n{}", self.page, table.render());
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
    /// The nodes whose number of reserved pages was raised: node, number before, number now.
    pub nodes: Vec<(u32, u64, u64)>,
    /// Mount point of the hugetlbfs that was mounted; `None` if none had to be.
    pub mounted: Option<PathBuf>,
    /// The result of another check: the problems that [`apply`] cannot solve, and the warnings.
    pub result: CheckResult,
}

impl Applied {
    /// Formats the changes for display.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for (id, before, now) in &self.nodes {
            let before = pages_text(*before, self.result.page);
            out += &format!("node {id}: {before} before, {now} now\n");
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
    /// The kernel does not support pages of this size.
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
        "node {node}: the kernel reserved {got} of {requested} pages of {page}, {} are missing \
         (nothing was changed): too little free or contiguous memory; stop programs that use much \
         of it, or reserve at boot: type weir tune apply, or add {} to the kernel's command line",
        requested - got,
        boot_parameters(*.page, &boot.to_string())
    )]
    Short {
        /// Number of the node.
        node: u32,
        /// Size of the pages.
        page: PageSize,
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
    apply_with(plan, machine, |path| mount(path, plan.page))
}

/// Like [`apply`], with `mount` as the function that mounts the hugetlbfs.
pub fn apply_with(
    plan: &Plan,
    machine: &Machine,
    mount: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<Applied, ApplyError> {
    let result = check(plan, machine);
    let page = plan.page;
    if !machine.supported.contains(&page) && !result.nodes.is_empty() {
        return Err(ApplyError::Unsupported(result.problems.join("\n")));
    }
    let boot = machine.nodes.iter().map(|n| n.pages(page).total).sum::<u64>()
        + result.nodes.iter().map(NodePages::missing).sum::<u64>();
    let mut done: Vec<(&Node, &Pages)> = Vec::new();
    for pages in result.nodes.iter().filter(|node| node.missing() > 0) {
        let Some(node) = machine.nodes.iter().find(|node| node.id == pages.id) else { continue };
        let before = node.pages(page);
        let target = before.total + pages.missing();
        let now = grow(before, target, machine);
        done.push((node, before));
        let (error, counts) = match now {
            Ok(now) if now >= target => continue,
            Ok(now) => (None, (pages.missing(), now.saturating_sub(before.total))),
            Err(error) => (Some(error), (0, 0)),
        };
        for (_, before) in &done {
            // Releases the pages again. If this fails too, the first error is the one to report.
            let _ = std::fs::write(&before.nr, before.total.to_string());
        }
        let (node, (requested, got)) = (node.id, counts);
        return Err(error.unwrap_or(ApplyError::Short { node, page, requested, got, boot }));
    }
    if let Some(path) = &result.mount {
        mount(path).map_err(|reason| ApplyError::Mount { path: path.clone(), reason })?;
    }
    let now = Machine::read(&machine.root)?;
    let now_on = |(node, pages): &(&Node, &Pages)| (node.id, pages.total, number(&pages.nr));
    let nodes = done.iter().map(now_on).collect();
    Ok(Applied { nodes, mounted: result.mount, result: check(plan, &now) })
}

fn mount(path: &Path, page: PageSize) -> std::io::Result<()> {
    std::fs::create_dir_all(path)?;
    let mut mount = Command::new("mount");
    let option = format!("pagesize={}", page.option());
    let output = mount.args(["-t", "hugetlbfs", "-o", &option, "none"]).arg(path).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(std::io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Requests `target` pages on a node. While the kernel reserves fewer, compacts memory and requests
/// them again. Returns the number of pages that the node has afterwards, which may be fewer.
fn grow(pages: &Pages, target: u64, machine: &Machine) -> Result<u64, ApplyError> {
    let request = || {
        let path = pages.nr.clone();
        let written = std::fs::write(&pages.nr, target.to_string());
        written.map_err(|reason| ApplyError::Unwritable { path, reason })?;
        Ok(number(&pages.nr))
    };
    let file = machine.root.join("proc/sys/vm/compact_memory");
    request_until(target, request, || std::fs::write(&file, "1").is_ok())
}

/// Maximum number of requests after the first one. Compaction moves pages only as far as it gets in
/// one run, so that a second one may go further.
const RETRIES: u32 = 4;

/// Calls `request`, which returns the number of pages after it, until there are `target`, at most
/// [`RETRIES`] times more than once. `compact` precedes each further request and returns whether
/// the kernel compacted memory: without that, another request is pointless.
fn request_until<E>(
    target: u64,
    mut request: impl FnMut() -> Result<u64, E>,
    mut compact: impl FnMut() -> bool,
) -> Result<u64, E> {
    let mut pages = request()?;
    for _ in 0..RETRIES {
        if pages >= target || !compact() {
            break;
        }
        pages = request()?;
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests ten pages from a kernel with these results. Returns the number of pages, or the
    /// error, and the numbers of requests and of compactions.
    fn request_ten(
        results: &[Result<u64, &'static str>],
        compacts: bool,
    ) -> (Result<u64, &'static str>, usize, usize) {
        let (mut requests, mut compactions) = (0, 0);
        let request = || {
            requests += 1;
            results[requests - 1]
        };
        let compact = || {
            compactions += 1;
            compacts
        };
        (request_until(10, request, compact), requests, compactions)
    }

    #[test]
    fn pages_are_requested_until_there_are_enough_and_at_most_five_times() {
        assert_eq!(request_ten(&[Ok(10)], true), (Ok(10), 1, 0));
        assert_eq!(request_ten(&[Ok(3), Ok(7), Ok(12)], true), (Ok(12), 3, 2));
        let short = [Ok(3), Ok(4), Ok(4), Ok(4), Ok(5), Ok(10)];
        assert_eq!(request_ten(&short, true), (Ok(5), 5, 4), "the missing pages are reported");
        assert_eq!(request_ten(&short, false), (Ok(3), 1, 1), "the kernel does not compact");
        assert_eq!(request_ten(&[Ok(3), Err("EIO")], true), (Err("EIO"), 2, 1));
    }
}
