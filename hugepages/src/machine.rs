//! The memory of the machine: huge pages per NUMA node, mounts, available memory.

use std::path::{Path, PathBuf};

use config::checked::PageSize;

/// The memory of the machine. Of the paths in it, only [`Pages::nr`] begins with
/// [`root`](Machine::root); mount points do not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The root: `/`, or a directory with test files.
    pub root: PathBuf,
    /// NUMA nodes that support hugepages, in ascending order. If there is none, a single node 0
    /// with the page counts of the whole machine.
    pub nodes: Vec<Node>,
    /// Sizes of hugepages that the kernel supports.
    pub supported: Vec<PageSize>,
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
    /// CPUs of the node; empty if they are unknown.
    pub cpus: Vec<u16>,
    /// Pages of 2 MiB.
    pub two_mib: Pages,
    /// Pages of 1 GiB.
    pub one_gib: Pages,
}

/// The hugepages of one size on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pages {
    /// Number of reserved pages.
    pub total: u64,
    /// Number of these pages that are free.
    pub free: u64,
    /// The kernel's file that sets the number of reserved pages, `nr_hugepages`.
    pub nr: PathBuf,
}

impl Node {
    /// Returns the node's pages of one size.
    pub fn pages(&self, size: PageSize) -> &Pages {
        match size {
            PageSize::TwoMib => &self.two_mib,
            PageSize::OneGib => &self.one_gib,
        }
    }
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
        let global = root.join("sys/kernel/mm/hugepages");
        let mut nodes = nodes(root);
        if nodes.is_empty() {
            // The kernel does not support NUMA, or none of its nodes has huge pages.
            nodes.push(node_at(0, Vec::new(), &global));
        }
        Ok(Machine {
            supported: sizes_in(&global),
            nodes,
            mounts: mounts(&mounted),
            bpf: bpf(&mounted),
            available: kilobytes.saturating_mul(1024),
            root: root.to_owned(),
        })
    }

    /// Returns the hugetlbfs or tmpfs mount with the longest mount point that contains `path`.
    pub fn mount_of(&self, path: &Path) -> Option<&Mount> {
        let containing = self.mounts.iter().filter(|mount| path.starts_with(&mount.path));
        containing.max_by_key(|mount| mount.path.as_os_str().len())
    }

    /// Returns the number of pages of this size that the file `region` occupies; 0 if the file does
    /// not exist.
    pub fn pages_in(&self, region: &Path, size: PageSize) -> u64 {
        let below = region.strip_prefix("/").unwrap_or(region);
        std::fs::metadata(self.root.join(below)).map_or(0, |file| file.len() / size.bytes())
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

/// Returns the rest of the first line that begins with `name`; empty if no line does.
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

/// Reads a file that contains a single number. Returns 0 if the file has other contents or is
/// missing, as on a kernel without pages of a size.
pub(crate) fn number(path: &Path) -> u64 {
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Returns the directory of the pages of one size in a directory `hugepages` of the kernel.
fn pages_directory(hugepages: &Path, size: PageSize) -> PathBuf {
    hugepages.join(format!("hugepages-{}kB", size.bytes() >> 10))
}

/// Returns the sizes of pages that a directory `hugepages` of the kernel has.
fn sizes_in(hugepages: &Path) -> Vec<PageSize> {
    let has = |size: &PageSize| pages_directory(hugepages, *size).join("nr_hugepages").exists();
    PageSize::ALL.into_iter().filter(has).collect()
}

/// Returns a node with the page counts from its directory `hugepages`.
fn node_at(id: u32, cpus: Vec<u16>, hugepages: &Path) -> Node {
    let pages = |size| {
        let directory = pages_directory(hugepages, size);
        Pages {
            total: number(&directory.join("nr_hugepages")),
            free: number(&directory.join("free_hugepages")),
            nr: directory.join("nr_hugepages"),
        }
    };
    Node { id, cpus, two_mib: pages(PageSize::TwoMib), one_gib: pages(PageSize::OneGib) }
}

fn nodes(root: &Path) -> Vec<Node> {
    let all = root.join("sys/devices/system/node");
    let mut nodes = Vec::new();
    for entry in std::fs::read_dir(all).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|n| n.strip_prefix("node")).and_then(|n| n.parse().ok());
        let Some(id) = id else { continue };
        let pages = entry.path().join("hugepages");
        if !sizes_in(&pages).is_empty() {
            let cpus = std::fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
            nodes.push(node_at(id, cpu_list(&cpus), &pages));
        }
    }
    nodes.sort_by_key(|node| node.id);
    nodes
}

/// Parses a list of CPUs in the kernel's notation, for example `0-3,8`. Parts that are no CPUs are
/// left out.
pub fn cpu_list(text: &str) -> Vec<u16> {
    let parse_range = |run: &str| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
    };
    text.trim().split(',').filter_map(parse_range).flatten().collect()
}

/// Returns the hugetlbfs and tmpfs mounts in the text of `/proc/self/mounts`.
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

/// Returns the mount points of BPF file systems in the text of `/proc/self/mounts`.
fn bpf(text: &str) -> Vec<PathBuf> {
    let fields = text.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let bpf = fields.filter(|fields| fields.get(2) == Some(&"bpf"));
    bpf.map(|fields| fields[1].replace("\\040", " ").into()).collect()
}

/// Returns the page size in bytes that the options of a hugetlbfs mount name, for example
/// `pagesize=2M` or `pagesize=1024M`. Without a readable size, returns 2 MiB, the kernel's default
/// on x86.
fn page_bytes(options: &str) -> u64 {
    let size = options.split(',').find_map(|option| option.strip_prefix("pagesize="));
    let Some(size) = size else { return PageSize::TwoMib.bytes() };
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match size.as_bytes().last() {
        Some(b'K' | b'k') => 1 << 10,
        Some(b'M' | b'm') => 1 << 20,
        Some(b'G' | b'g') => 1 << 30,
        _ => 1,
    };
    digits.parse::<u64>().map_or(PageSize::TwoMib.bytes(), |n| n.saturating_mul(unit))
}
