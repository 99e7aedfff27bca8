//! The memory that a checked configuration needs, term by term.

use std::path::Path;

use config::Config;
use config::checked::{
    BUFFER_OVERHEAD, DESCRIPTOR_BYTES, MAX_UNCONFIRMED_PERCENT, PageSize, Plane,
};
use tables::flow::MAX_PERCENT_TOGETHER;
use tables::layout::{Layout, MAX_LCORES, MAX_TUNNELS, OBJECT_WORDS, Section, Sizes};

use crate::machine::{memory, possible_cpus};
use crate::new_flows::NewFlows;
use crate::nic::{Nic, nics};
use crate::table::{Table, bytes_text};

/// The minimum number of flows unless `region.max_flows` is set, for machines with little or
/// unknown memory.
const MIN_FLOWS: u32 = 1 << 16;
/// The maximum number of flows unless `region.max_flows` is set: each flow is checked for idleness
/// every two seconds, which for more flows takes too much time on most machines.
const MAX_FLOWS: u32 = 1 << 22;
/// Unless `region.max_flows` is set, flows take at most `MemTotal` divided by this number. A
/// machine of 4 GB, of which Linux reports 3.7 GB as `MemTotal`, gets 524,288 flows.
const SHARE: u64 = 12;
// `config` validates against a constant of its own, which must be the limit of `tables`.
const _: () = assert!(MAX_UNCONFIRMED_PERCENT == MAX_PERCENT_TOGETHER);

/// The configuration key that sets the number of flows.
pub(crate) const FLOWS: &str = "region.max_flows";

/// Returns the region's sizes for a configuration. Both planes use these sizes. With XDP the region
/// has one lcore for each possible CPU of the machine, and a last one for the loader.
pub fn sizes(config: &Config) -> Sizes {
    sizes_below(config, Path::new("/"))
}

/// Like [`sizes`], for the machine whose `proc` and `sys` lie below `root`.
pub fn sizes_below(config: &Config, root: &Path) -> Sizes {
    let region = &config.region;
    let lcores = match config.plane {
        Plane::Dpdk => config.fastpath.lcores.len() as u32,
        Plane::Xdp => (possible_cpus(root).unwrap_or(1) + 1).min(MAX_LCORES),
    };
    let sizes = Sizes {
        tunnels: MAX_TUNNELS,
        services: region.max_services,
        frontends: region.max_frontends,
        backends: region.max_backends,
        next_hops: region.max_next_hops,
        slots: region.slots,
        lcores,
        ring_slots: region.ring_slots,
        flows: region.max_flows.unwrap_or(MIN_FLOWS),
        option_slabs: region.option_slabs,
        fragments: region.max_fragments,
        nat_maps: region.nat_maps,
        scopes: region.max_scopes,
        affinities: region.max_affinities,
        counted_services: region.counted_services,
        counted_backends: region.counted_backends,
    };
    match region.max_flows {
        Some(_) => sizes,
        None => with_flows_for(sizes, memory(root).unwrap_or(0)),
    }
}

/// Returns these sizes with as many flows as fit in their share of `memory` bytes: a power of two
/// from [`MIN_FLOWS`] to [`MAX_FLOWS`].
fn with_flows_for(sizes: Sizes, memory: u64) -> Sizes {
    let bytes_of_flows = |sizes: &Sizes| -> u64 {
        let layout = Layout::new(sizes);
        layout
            .terms()
            .iter()
            .filter(|term| term.setting == FLOWS)
            .map(|term| term.bytes as u64)
            .sum()
    };
    let mut chosen = Sizes { flows: MIN_FLOWS, ..sizes };
    while chosen.flows < MAX_FLOWS {
        let larger = Sizes { flows: chosen.flows * 2, ..chosen };
        if bytes_of_flows(&larger) > memory / SHARE {
            break;
        }
        chosen = larger;
    }
    chosen
}

/// The owner of the memory of a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The region: a file, or kernel maps with XDP.
    Region,
    /// DPDK: allocated by EAL when fastpath starts.
    Dpdk,
}

/// A row of the plan: the memory for one purpose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    /// The owner of the memory.
    pub part: Part,
    /// Name of the term.
    pub name: String,
    /// Number of elements.
    pub count: u64,
    /// Size of one element in bytes.
    pub bytes_each: u64,
    /// Total size in bytes, including rounding.
    pub bytes: u64,
    /// The configuration key that determines the size; empty if none does.
    pub setting: &'static str,
    /// Purpose of the memory.
    pub why: &'static str,
}

/// The memory that the configuration needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The plane. XDP's region consists of kernel maps, and XDP needs no other memory.
    pub plane: Plane,
    /// All terms. The bytes of a part's terms add up to the size of the part.
    pub terms: Vec<Term>,
    /// Path of the region's file, or of the directory of its maps.
    pub region_path: std::path::PathBuf,
    /// Size of the region in bytes, rounded up to whole pages if it is a file.
    pub region_bytes: u64,
    /// Memory that EAL allocates, in bytes, rounded up to whole pages.
    pub dpdk_bytes: u64,
    /// Value of `fastpath.hugepages`; false with XDP.
    pub hugepages: bool,
    /// Size of the pages to which both parts are rounded up; 2 MiB without hugepages.
    pub page: PageSize,
    /// CPUs of the polling lcores; empty with XDP. EAL distributes its memory over their NUMA nodes
    /// unless the NICs' node is known.
    pub lcores: Vec<u16>,
    /// The arms' NICs whose NUMA node can be determined; empty with XDP.
    pub nics: Vec<Nic>,
    /// Number of flows that the region holds, and how it was determined.
    pub flows: Flows,
    /// Limit of new NAT flows per second and lcore, and how it was determined.
    pub new_flows: NewFlows,
}

/// The number of flows that the region holds, and how it was determined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flows {
    /// Set by `region.max_flows`.
    Set(u32),
    /// Derived from the machine's memory.
    FromMemory {
        /// Number of flows.
        flows: u32,
        /// `MemTotal` in bytes; 0 if it cannot be read.
        memory: u64,
    },
}

impl std::fmt::Display for Flows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Flows::Set(flows) => write!(f, "{flows} flows ({FLOWS})"),
            Flows::FromMemory { flows, memory } => {
                write!(f, "{flows} flows, derived from {} MiB of memory; ", memory >> 20)?;
                write!(f, "set {FLOWS} to change it")
            }
        }
    }
}

/// Returns the plan for a configuration.
pub fn plan(config: &Config) -> Plan {
    plan_below(config, Path::new("/"))
}

/// Like [`plan`], for the machine whose `proc` and `sys` lie below `root`.
pub fn plan_below(config: &Config, root: &Path) -> Plan {
    let sizes = sizes_below(config, root);
    let flows = match config.region.max_flows {
        Some(flows) => Flows::Set(flows),
        None => Flows::FromMemory { flows: sizes.flows, memory: memory(root).unwrap_or(0) },
    };
    let new_flows = NewFlows::of(config, sizes.flows, root);
    let layout = Layout::new(&sizes);
    let mut terms: Vec<Term> =
        layout.terms().iter().flat_map(|row| from_layout(row, &sizes)).collect();
    if config.plane == Plane::Xdp {
        return Plan {
            plane: config.plane,
            terms,
            region_path: config.region.maps.clone(),
            region_bytes: layout.bytes() as u64,
            dpdk_bytes: 0,
            hugepages: false,
            page: PageSize::TwoMib,
            lcores: Vec::new(),
            nics: Vec::new(),
            flows,
            new_flows,
        };
    }
    let page = match config.fastpath.hugepages {
        true => config.fastpath.hugepage_size,
        false => PageSize::TwoMib,
    };
    let region_bytes = (layout.bytes() as u64).next_multiple_of(page.bytes());
    let dpdk = dpdk(config);
    let dpdk_bytes = (u64::from(config.fastpath.memory_mib) << 20).next_multiple_of(page.bytes());
    // Buffers and rings have terms of their own, and EAL and the drivers use the rest. The
    // validation of the configuration ensures that the rest is not negative.
    let rest = dpdk_bytes.saturating_sub(dpdk.iter().map(|t| t.bytes).sum());
    terms.push(term(
        Part::Region,
        "padding",
        (1, region_bytes - layout.bytes() as u64),
        "",
        "rounds the file up to whole pages",
    ));
    terms.extend(dpdk);
    terms.push(term(
        Part::Dpdk,
        "EAL and drivers",
        (1, rest),
        "fastpath.memory_mib",
        "remainder of EAL's memory",
    ));
    Plan {
        plane: config.plane,
        terms,
        region_path: config.region.path.clone(),
        region_bytes,
        dpdk_bytes,
        hugepages: config.fastpath.hugepages,
        page,
        lcores: config.fastpath.lcores.clone(),
        nics: nics(config),
        flows,
        new_flows,
    }
}

/// Returns the terms of a section: one, but for the counters, which have separate terms for the
/// counters of services and of backends.
fn from_layout(row: &tables::layout::Term, sizes: &Sizes) -> Vec<Term> {
    let mut section = Term {
        part: Part::Region,
        name: row.name.to_owned(),
        count: row.count as u64,
        bytes_each: row.bytes_each as u64,
        bytes: row.bytes as u64,
        setting: row.setting,
        why: row.why,
    };
    if row.section != Section::Counters {
        return vec![section];
    }
    let (services, backends) = sizes.counted();
    let lines = |name, counted: u32, setting, why| {
        // Each lcore's page has one more line, for objects without a line of their own.
        let lines = section.count * (u64::from(counted) + 1);
        term(Part::Region, name, (lines, 8 * OBJECT_WORDS as u64), setting, why)
    };
    let why = "per lcore a line for each service and a shared one";
    let of_services = lines("service counters", services, "region.counted_services", why);
    let why = "per lcore a line for each backend and a shared one";
    let of_backends = lines("backend counters", backends, "region.counted_backends", why);
    let objects = of_services.bytes + of_backends.bytes;
    section.bytes -= objects;
    section.bytes_each -= objects / section.count.max(1);
    vec![section, of_services, of_backends]
}

fn term(
    part: Part,
    name: &str,
    (count, bytes_each): (u64, u64),
    setting: &'static str,
    why: &'static str,
) -> Term {
    let name = name.to_owned();
    Term { part, name, count, bytes_each, bytes: count * bytes_each, setting, why }
}

fn dpdk(config: &Config) -> Vec<Term> {
    let fastpath = &config.fastpath;
    let each = u64::from(fastpath.buffer_bytes) + BUFFER_OVERHEAD;
    let mut terms = vec![term(
        Part::Dpdk,
        "buffers",
        (u64::from(fastpath.buffers), each),
        "fastpath.buffers",
        "packets: buffer_bytes and DPDK's metadata",
    )];
    let lcores = fastpath.lcores.len() as u64;
    for (name, arm) in config.arms() {
        let rings = (arm.descriptors(lcores), DESCRIPTOR_BYTES);
        let (name, setting) = match name {
            config::checked::ArmName::Ingress => ("ingress rings", "ingress.rx_descriptors"),
            config::checked::ArmName::Egress => ("egress rings", "egress.rx_descriptors"),
        };
        let why = "descriptors of the receive queues and of a transmit queue per lcore";
        terms.push(term(Part::Dpdk, name, rings, setting, why));
    }
    terms
}

impl Plan {
    /// Returns the size of both parts in bytes.
    pub fn bytes(&self) -> u64 {
        self.region_bytes + self.dpdk_bytes
    }

    /// Returns the size of both parts in pages of [`page`](Plan::page). With XDP, which needs no
    /// such pages, the number has no meaning.
    pub fn pages(&self) -> u64 {
        self.bytes() / self.page.bytes()
    }

    /// Formats the plan as a table.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let head = ["", "count", "bytes each", "bytes", "setting", "purpose"];
        let mut table = Table::new(&head, &[1, 2, 3]);
        let parts =
            [(Part::Region, "region", self.region_bytes), (Part::Dpdk, "DPDK", self.dpdk_bytes)];
        let in_maps = self.plane == Plane::Xdp;
        for (part, title, bytes) in parts.into_iter().take(if in_maps { 1 } else { 2 }) {
            let pages = match in_maps {
                true => "one kernel map each".to_owned(),
                false => format!("{} pages", bytes / self.page.bytes()),
            };
            table.row([title, "", "", &bytes_text(bytes), "", &pages]);
            for term in self.terms.iter().filter(|t| t.part == part && t.bytes > 0) {
                table.row([
                    &format!("  {}", term.name),
                    &term.count.to_string(),
                    &term.bytes_each.to_string(),
                    &bytes_text(term.bytes),
                    term.setting,
                    term.why,
                ]);
            }
        }
        if in_maps {
            let folder = self.region_path.display();
            return out
                + &table.render()
                + &format!(
                    "\nplane = \"xdp\": no hugepages are needed. The region is the kernel maps in \
                     {folder}.\nCapacity: {}.\nNew flows by NAT: {}.\n",
                    self.flows, self.new_flows
                );
        }
        let all = format!("{} pages of {}", self.pages(), self.page);
        table.row(["total", "", "", &bytes_text(self.bytes()), "", &all]);
        out += &table.render();
        out += &if self.hugepages {
            format!("\nThe region is the file {}.\n", self.region_path.display())
        } else {
            format!(
                "\nfastpath.hugepages = false: ordinary memory, and the region is the file {}.\n",
                self.region_path.display()
            )
        };
        out + &format!("Capacity: {}.\nNew flows by NAT: {}.\n", self.flows, self.new_flows)
    }
}
