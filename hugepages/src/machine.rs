//! The memory of the machine: huge pages per NUMA node, mounts, available memory.

use std::path::{Path, PathBuf};

/// The size of the planned pages in bytes.
pub const PAGE_BYTES: u64 = 2 << 20;

/// The directory of the 2 MiB pages below `/sys/kernel/mm` and below each node.
const PAGES: &str = "hugepages/hugepages-2048kB";

/// The memory of the machine. Only [`Machine::root`] and [`Node::nr`] begin with the root; mount
/// points do not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The root: `/`, or a directory with test files.
    pub root: PathBuf,
    /// NUMA nodes with 2 MiB pages in ascending order. If there is none, a single node with the
    /// numbers of the whole machine.
    pub nodes: Vec<Node>,
    /// Whether the kernel supports pages of 2 MiB.
    pub supported: bool,
    /// Mounted hugetlbfs and tmpfs file systems.
    pub mounts: Vec<Mount>,
    /// Mount points of BPF file systems.
    pub bpf: Vec<PathBuf>,
    /// `MemAvailable` in bytes.
    pub available: u64,
}

/// A NUMA node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Number of the node.
    pub id: u32,
    /// CPUs of the node.
    pub cpus: Vec<u16>,
    /// Number of 2 MiB pages reserved on the node.
    pub total: u64,
    /// Number of these pages that are free.
    pub free: u64,
    /// The file that sets the number of reserved pages.
    pub nr: PathBuf,
}

/// A mounted file system that can hold a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Mount point, as seen by programs.
    pub path: PathBuf,
    /// Page size in bytes for hugetlbfs; `None` for tmpfs.
    pub page_bytes: Option<u64>,
}

/// The reason for which the machine's memory could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file in `/proc` is missing or cannot be read.
    #[error(
        "cannot read {}: {reason}; is /proc mounted? type: mount -t proc proc /proc",
        path.display()
    )]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error from the system.
        reason: std::io::Error,
    },
    /// `/proc/meminfo` has no number of kB for `MemAvailable`.
    #[error(
        "{}: MemAvailable is {found:?}, not a number of kB; use Linux 3.14 or later",
        path.display()
    )]
    NoNumber {
        /// Path of the file.
        path: PathBuf,
        /// The text found instead.
        found: String,
    },
}

impl Machine {
    /// Reads `proc` and `sys` below `root`.
    pub fn read(root: &Path) -> Result<Machine, MachineError> {
        let meminfo = text(&root.join("proc/meminfo"))?;
        let found = field(&meminfo, "MemAvailable:");
        let Some(kilobytes) = kilobytes(found) else {
            let path = root.join("proc/meminfo");
            return Err(MachineError::NoNumber { path, found: found.to_owned() });
        };
        let mounted = text(&root.join("proc/self/mounts"))?;
        let global = root.join("sys/kernel/mm").join(PAGES);
        let mut nodes = nodes(root);
        if nodes.is_empty() {
            // A kernel without NUMA lists no node, and without 2 MiB pages no node with such pages.
            nodes.push(node_at(&global));
        }
        Ok(Machine {
            supported: global.join("nr_hugepages").exists(),
            nodes,
            mounts: mounts(&mounted),
            bpf: bpf(&mounted),
            available: kilobytes.saturating_mul(1024),
            root: root.to_owned(),
        })
    }

    /// Returns the hugetlbfs or tmpfs mount with the longest mount point that contains `path`.
    pub fn mount_of(&self, path: &Path) -> Option<&Mount> {
        let over = self.mounts.iter().filter(|mount| path.starts_with(&mount.path));
        over.max_by_key(|mount| mount.path.as_os_str().len())
    }

    /// Returns the number of pages that the region file at this path occupies; 0 if it does not
    /// exist.
    pub fn pages_in(&self, region: &Path) -> u64 {
        let below = region.strip_prefix("/").unwrap_or(region);
        std::fs::metadata(self.root.join(below)).map_or(0, |file| file.len() / PAGE_BYTES)
    }
}

/// Returns the highest number of a CPU that the machine can have, plus one (the kernel's
/// `nr_cpu_ids`). Returns `None` if it cannot be read.
pub(crate) fn possible_cpus(root: &Path) -> Option<u32> {
    let list = std::fs::read_to_string(root.join("sys/devices/system/cpu/possible")).ok()?;
    cpu_list(&list).into_iter().max().map(|last| u32::from(last) + 1)
}

/// Returns the number of CPUs that are online, if it can be read.
pub(crate) fn online_cpus(root: &Path) -> Option<u32> {
    let list = std::fs::read_to_string(root.join("sys/devices/system/cpu/online")).ok()?;
    Some(cpu_list(&list).len() as u32).filter(|cpus| *cpus > 0)
}

/// Returns `MemTotal` in bytes, if it can be read.
pub(crate) fn memory(root: &Path) -> Option<u64> {
    let meminfo = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    kilobytes(field(&meminfo, "MemTotal:")).map(|kilobytes| kilobytes.saturating_mul(1024))
}

/// Returns the rest of the line that begins with `name`; empty if there is none.
fn field<'t>(lines: &'t str, name: &str) -> &'t str {
    lines.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default()
}

fn kilobytes(found: &str) -> Option<u64> {
    found.trim().trim_end_matches("kB").trim().parse().ok()
}

fn text(path: &Path) -> Result<String, MachineError> {
    std::fs::read_to_string(path)
        .map_err(|reason| MachineError::Unreadable { path: path.to_owned(), reason })
}

/// Reads a file that contains a single number. Returns 0 if the file is missing, as without huge
/// pages, or has other contents.
pub(crate) fn number(path: &Path) -> u64 {
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Returns a node 0 without CPUs, with the numbers of pages in the directory `pages`.
fn node_at(pages: &Path) -> Node {
    Node {
        id: 0,
        cpus: Vec::new(),
        total: number(&pages.join("nr_hugepages")),
        free: number(&pages.join("free_hugepages")),
        nr: pages.join("nr_hugepages"),
    }
}

fn nodes(root: &Path) -> Vec<Node> {
    let all = root.join("sys/devices/system/node");
    let mut nodes = Vec::new();
    for entry in std::fs::read_dir(all).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|n| n.strip_prefix("node")).and_then(|n| n.parse().ok());
        let Some(id) = id else { continue };
        let pages = entry.path().join(PAGES);
        if pages.join("nr_hugepages").exists() {
            let cpus = std::fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
            nodes.push(Node { id, cpus: cpu_list(&cpus), ..node_at(&pages) });
        }
    }
    nodes.sort_by_key(|node| node.id);
    nodes
}

/// Parses a list of CPUs in the kernel's notation, for example `0-3,8`.
fn cpu_list(text: &str) -> Vec<u16> {
    let run = |run: &str| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
    };
    text.trim().split(',').filter_map(run).flatten().collect()
}

fn mounts(text: &str) -> Vec<Mount> {
    let mut mounts = Vec::new();
    for line in text.lines() {
        let mut fields = line.split_whitespace().skip(1);
        let (Some(path), Some(kind), options) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let page_bytes = match kind {
            "tmpfs" => None,
            "hugetlbfs" => Some(page_bytes(options.unwrap_or_default())),
            _ => continue,
        };
        // The kernel writes a space in a path as \040.
        mounts.push(Mount { path: path.replace("\\040", " ").into(), page_bytes });
    }
    mounts
}

fn bpf(text: &str) -> Vec<PathBuf> {
    let fields = text.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let bpf = fields.filter(|fields| fields.get(2) == Some(&"bpf"));
    bpf.map(|fields| fields[1].replace("\\040", " ").into()).collect()
}

/// Returns the page size in mount options, `pagesize=2M` or `pagesize=1024M`; the kernel's default
/// is 2 MiB on x86.
fn page_bytes(options: &str) -> u64 {
    let size = options.split(',').find_map(|option| option.strip_prefix("pagesize="));
    let Some(size) = size else { return PAGE_BYTES };
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match size.as_bytes().last() {
        Some(b'K' | b'k') => 1 << 10,
        Some(b'M' | b'm') => 1 << 20,
        Some(b'G' | b'g') => 1 << 30,
        _ => 1,
    };
    digits.parse::<u64>().map_or(PAGE_BYTES, |n| n.saturating_mul(unit))
}
