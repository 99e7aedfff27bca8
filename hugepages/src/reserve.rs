//! The plan against the machine: what is missing, what to type, and reserving it.

use std::path::{Path, PathBuf};
use std::process::Command;

use config::checked::Plane;

use crate::machine::{Machine, Node, PAGE_BYTES, number};
use crate::maps;
use crate::numa;
use crate::plan::Plan;
use crate::table::{Table, bytes_text};

/// Whether the machine has what the plan needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Pages node by node; empty where none are needed.
    pub nodes: Vec<NodeVerdict>,
    /// What is wrong, each with what to type.
    pub problems: Vec<String>,
    /// What works, but costs.
    pub warnings: Vec<String>,
    /// Where a hugetlbfs is missing that the region is to lie on; `apply` mounts it.
    pub mount: Option<PathBuf>,
    /// How to keep what is to be typed over a boot.
    pub advice: Vec<String>,
}

/// The pages of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeVerdict {
    /// The node's number.
    pub id: u32,
    /// Pages that must be free, beyond what the region of an earlier start holds.
    pub needed: u64,
    /// Pages that are reserved.
    pub total: u64,
    /// Pages that are free.
    pub free: u64,
}

impl NodeVerdict {
    /// Pages that have to be reserved in addition.
    pub fn missing(&self) -> u64 {
        self.needed.saturating_sub(self.free)
    }
}

/// Compares.
pub fn check(plan: &Plan, machine: &Machine) -> Verdict {
    let mut verdict = Verdict::default();
    if plan.plane == Plane::Xdp {
        verdict.problems = maps::problems(plan, machine);
        return verdict;
    }
    let place = region_place(plan, machine, &mut verdict);
    let mut ordinary = 0;
    let mut pages = 0;
    match place {
        Place::Pages => pages += plan.region_bytes / PAGE_BYTES,
        Place::Ordinary => ordinary += plan.region_bytes,
    }
    let dpdk = plan.dpdk_bytes / PAGE_BYTES;
    if !plan.hugepages {
        ordinary += plan.dpdk_bytes;
    }
    if ordinary > machine.available {
        verdict.problems.push(format!(
            "{} of ordinary memory needed, {} available: lower fastpath.buffers, \
             fastpath.memory_mib or region.max_flows",
            bytes_text(ordinary),
            bytes_text(machine.available)
        ));
    }
    let home = numa::home(plan, machine);
    let spread = spread(if plan.hugepages { dpdk } else { 0 }, plan, machine, home);
    let held = if place == Place::Pages { machine.held_by(&plan.region_path) } else { 0 };
    let first = region_node(plan, machine, home);
    for (i, (node, dpdk)) in machine.nodes.iter().zip(spread).enumerate() {
        let region = if i == first { pages.saturating_sub(held) } else { 0 };
        let needed = dpdk + region;
        if needed > 0 {
            let Node { id, total, free, .. } = *node;
            verdict.nodes.push(NodeVerdict { id, needed, total, free });
        }
    }
    pages_problem(&mut verdict, machine);
    verdict.warnings.extend(numa::warnings(plan, machine));
    verdict
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Pages,
    Ordinary,
}

/// Where the region will lie, and what is wrong with that.
fn region_place(plan: &Plan, machine: &Machine, verdict: &mut Verdict) -> Place {
    let path = plan.region_path.display();
    let directory = plan.region_path.parent().unwrap_or(&plan.region_path).display();
    match machine.mount_of(&plan.region_path).map(|mount| mount.page_bytes) {
        Some(Some(PAGE_BYTES)) => Place::Pages,
        Some(Some(other)) => {
            verdict.problems.push(format!(
                "{path} is on pages of {}, planned are 2 MiB: type: mkdir -p /dev/hugepages-2M && \
                 mount -t hugetlbfs -o pagesize=2M none /dev/hugepages-2M, and set region.path = \
                 \"/dev/hugepages-2M/weir-region\"",
                bytes_text(other)
            ));
            Place::Pages
        }
        None if plan.hugepages && plan.region_path.starts_with("/dev/hugepages") => {
            verdict.problems.push(format!(
                "no hugetlbfs is mounted on {directory}, where the region is to lie: type: weir \
                 hugepages apply, or: mkdir -p {directory} && mount -t hugetlbfs -o pagesize=2M \
                 none {directory}"
            ));
            verdict.advice.push(format!(
                "to have it mounted at the next boot as well, type: echo 'none {directory} \
                 hugetlbfs pagesize=2M 0 0' >> /etc/fstab"
            ));
            verdict.mount = plan.region_path.parent().map(PathBuf::from);
            Place::Pages
        }
        Some(None) => {
            if plan.hugepages {
                verdict.warnings.push(format!(
                    "{path} is on ordinary pages, where look-ups cost more: leave region.path \
                     empty to have it on hugepages"
                ));
            }
            Place::Ordinary
        }
        None => {
            verdict.warnings.push(format!(
                "{path} is on neither hugetlbfs nor tmpfs, so the kernel writes it to disk over \
                 and over: set region.path = \"/dev/shm/weir/region\""
            ));
            Place::Ordinary
        }
    }
}

/// The node where the region is best: that of the NICs, else that of the first polling lcore.
fn region_node(plan: &Plan, machine: &Machine, home: Option<u32>) -> usize {
    let first = plan.lcores.first();
    let of_nics = machine.nodes.iter().position(|node| home == Some(node.id));
    let of_lcore =
        || machine.nodes.iter().position(|n| first.is_some_and(|cpu| n.cpus.contains(cpu)));
    of_nics.or_else(of_lcore).unwrap_or(0)
}

/// The NICs' node takes all of EAL's memory (the fastpath asks for it there). Without one, EAL
/// spreads it over the nodes in proportion to their lcores; the first node with one takes what does
/// not divide.
fn spread(pages: u64, plan: &Plan, machine: &Machine, home: Option<u32>) -> Vec<u64> {
    let (lcores, nodes) = (&plan.lcores, &machine.nodes);
    if home.is_some() {
        return nodes.iter().map(|n| if home == Some(n.id) { pages } else { 0 }).collect();
    }
    let on = |node: &Node| lcores.iter().filter(|cpu| node.cpus.contains(cpu)).count() as u64;
    let mut counts: Vec<u64> = nodes.iter().map(on).collect();
    if counts.iter().sum::<u64>() == 0 {
        // Unknown CPUs, or a kernel without NUMA.
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

fn pages_problem(verdict: &mut Verdict, machine: &Machine) {
    if verdict.nodes.is_empty() {
        return;
    }
    if !machine.supported {
        verdict.problems.push(
            "this kernel has no pages of 2 MiB: start one with CONFIG_HUGETLBFS, or set \
             fastpath.hugepages = false"
                .into(),
        );
        return;
    }
    let mut target: u64 = machine.nodes.iter().map(|node| node.total).sum();
    for node in verdict.nodes.clone() {
        target += node.missing();
        if node.missing() > 0 {
            let path = machine.nodes.iter().find(|n| n.id == node.id).map(|n| n.nr.display());
            let path = path.map_or_else(String::new, |path| path.to_string());
            verdict.problems.push(format!(
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
    if verdict.nodes.iter().any(|node| node.missing() > 0) {
        if verdict.nodes.iter().any(|node| node.total > node.free) {
            verdict.advice.push(
                "a fastpath that runs has taken its pages already, and they do not count as free"
                    .into(),
            );
        }
        verdict.advice.push(format!(
            "to have the pages at the next boot as well, type: echo vm.nr_hugepages = {target} > \
             /etc/sysctl.d/80-weir.conf"
        ));
    }
}

impl Verdict {
    /// True when the fastpath can start.
    pub fn enough(&self) -> bool {
        self.problems.is_empty()
    }

    /// What each node has to hold, for people; empty where all of it is on one.
    pub fn render_nodes(&self, machine: &Machine) -> String {
        if machine.nodes.len() < 2 {
            return String::new();
        }
        let each =
            self.nodes.iter().map(|n| format!("node {}: {} pages of 2 MiB\n", n.id, n.needed));
        let warnings = self.warnings.iter().map(|warning| format!("warning: {warning}\n"));
        each.chain(warnings).collect()
    }

    /// The verdict for people.
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
            out += &format!("missing: {problem}\n");
        }
        for warning in &self.warnings {
            out += &format!("warning: {warning}\n");
        }
        for advice in &self.advice {
            out += &format!("{advice}\n");
        }
        if self.enough() {
            out += "all that is needed is there\n";
        }
        out
    }
}

/// What was reserved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// Node, pages before, pages now.
    pub nodes: Vec<(u32, u64, u64)>,
    /// Where a hugetlbfs was mounted.
    pub mounted: Option<PathBuf>,
    /// What is still wrong and not for `apply` to change, or could cost.
    pub verdict: Verdict,
}

impl Applied {
    /// What was done, for people.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for (id, before, now) in &self.nodes {
            out += &format!("node {id}: {before} pages of 2 MiB before, {now} now\n");
        }
        if let Some(mounted) = &self.mounted {
            out += &format!("hugetlbfs mounted on {}\n", mounted.display());
        }
        out + &self.verdict.render()
    }
}

/// Why pages could not be reserved. What was reserved on the way is given back.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The kernel has no such pages.
    #[error("{0}")]
    Unsupported(String),
    /// The file cannot be written.
    #[error("cannot write {}: {reason}; type: sudo weir hugepages apply", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: std::io::Error,
    },
    /// The kernel found no more memory in pieces of 2 MiB.
    #[error(
        "node {node}: the kernel found {got} of {wanted} pages of 2 MiB, {} are missing (nothing \
         was changed): memory is short or in pieces; stop what uses much of it, or reserve at \
         boot: add hugepages={boot} to the kernel's command line", wanted - got
    )]
    Short {
        /// The node.
        node: u32,
        /// Pages in addition that were wanted.
        wanted: u64,
        /// Pages in addition that there were.
        got: u64,
        /// Pages of the whole machine that would do.
        boot: u64,
    },
    /// The hugetlbfs was not mounted; the pages are reserved.
    #[error(
        "cannot mount a hugetlbfs on {}: {reason}; type: sudo weir hugepages apply",
        path.display()
    )]
    Mount {
        /// Where.
        path: PathBuf,
        /// What the system says.
        reason: std::io::Error,
    },
    /// The machine could not be read again.
    #[error(transparent)]
    Machine(#[from] crate::machine::MachineError),
}

/// Reserves what is missing, node by node, and reads back that it is there: all or nothing. Then
/// mounts a hugetlbfs for the region where none is. Applied twice, it does nothing more.
pub fn apply(plan: &Plan, machine: &Machine) -> Result<Applied, ApplyError> {
    apply_with(plan, machine, mount)
}

/// As [`apply`], with another way to mount.
pub fn apply_with(
    plan: &Plan,
    machine: &Machine,
    mount: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<Applied, ApplyError> {
    let verdict = check(plan, machine);
    if !machine.supported && !verdict.nodes.is_empty() {
        return Err(ApplyError::Unsupported(verdict.problems.join("\n")));
    }
    let boot = machine.nodes.iter().map(|n| n.total).sum::<u64>()
        + verdict.nodes.iter().map(NodeVerdict::missing).sum::<u64>();
    let mut done: Vec<(&Node, u64)> = Vec::new();
    for wanted in verdict.nodes.iter().filter(|node| node.missing() > 0) {
        let Some(node) = machine.nodes.iter().find(|node| node.id == wanted.id) else { continue };
        let now = grow(node, node.total + wanted.missing(), machine);
        done.push((node, node.total));
        let (error, wanted) = match now {
            Ok(now) if now >= node.total + wanted.missing() => continue,
            Ok(now) => (None, (wanted.missing(), now.saturating_sub(node.total))),
            Err(error) => (Some(error), (0, 0)),
        };
        for (node, before) in &done {
            // It was that many a moment ago; if giving back fails, the error below is still the
            // one to tell.
            let _ = std::fs::write(&node.nr, before.to_string());
        }
        let (node, (wanted, got)) = (node.id, wanted);
        return Err(error.unwrap_or(ApplyError::Short { node, wanted, got, boot }));
    }
    if let Some(path) = &verdict.mount {
        mount(path).map_err(|reason| ApplyError::Mount { path: path.clone(), reason })?;
    }
    let now = Machine::read(&machine.root)?;
    let nodes = done.iter().map(|(node, before)| (node.id, *before, number(&node.nr))).collect();
    Ok(Applied { nodes, mounted: verdict.mount, verdict: check(plan, &now) })
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

/// Asks for `target` pages, once more after the kernel has put memory together, and says how many
/// there are.
fn grow(node: &Node, target: u64, machine: &Machine) -> Result<u64, ApplyError> {
    let ask = || {
        let path = node.nr.clone();
        std::fs::write(&node.nr, target.to_string())
            .map_err(|reason| ApplyError::Unwritable { path, reason })
    };
    ask()?;
    if number(&node.nr) < target {
        let compact = machine.root.join("proc/sys/vm/compact_memory");
        // Where the kernel cannot do that, the second try finds what the first found.
        if std::fs::write(compact, "1").is_ok() {
            ask()?;
        }
    }
    Ok(number(&node.nr))
}
