//! Layout of the shared memory region: its sections, their order, element sizes and offsets.
//!
//! A layout is a pure function of [`Sizes`], so every process computes the same offsets from the
//! sizes in the header. `weir hugepages plan` prints [`Layout::terms`] without creating a region.

mod counts;
mod maps;

use crate::flow::unconfirmed_ring_slots;

pub use counts::*;

/// Version of the region's format. Any change to a record, a section or their order increments it,
/// and adds a step to `region/steps.rs`, by which an upgrade keeps the flows.
pub const VERSION: u32 = if cfg!(feature = "next-format") { 14 } else { 13 };

/// Alignment of sections in bytes: no two writers share a cache line, and each section can be
/// mapped and protected on its own.
pub const SECTION_ALIGN: usize = 4096;

/// Size of a NAT port map in bytes: one bit for each of 65,536 ports.
pub const NAT_MAP_BYTES: usize = 8192;

/// Size of a path record in bytes.
pub(crate) const PATH_BYTES: usize = if cfg!(feature = "next-format") { 256 } else { 192 };

/// Size of a ring's header in bytes: two cache lines each for the index of the producer and that of
/// the consumer.
pub const RING_HEADER_BYTES: usize = 256;

/// Size of a ring slot in bytes.
pub const RING_SLOT_BYTES: usize = 64;

/// Capacity of each table of the region. All are fixed when the region is created.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Gateway tunnels, at most [`MAX_TUNNELS`].
    pub tunnels: u32,
    /// Services (`region.max_services`).
    pub services: u32,
    /// Frontends (`region.max_frontends`).
    pub frontends: u32,
    /// Backends (`region.max_backends`).
    pub backends: u32,
    /// Next hops (`region.max_next_hops`).
    pub next_hops: u32,
    /// Words of the slot arena (`region.slots`), which has the Maglev arrays, source ranges and
    /// affinity lists of all services.
    pub slots: u32,
    /// Lcores that can poll (`fastpath.lcores`); with XDP, the machine's possible CPUs and one more
    /// for the loader.
    pub lcores: u32,
    /// Messages per command or event ring; a power of two (`region.ring_slots`).
    pub ring_slots: u32,
    /// Flows; each has up to two index entries (`region.max_flows`).
    pub flows: u32,
    /// Slabs (`region.option_slabs`), each of which holds a GENEVE option area too long for the
    /// path record, or the second gateway leg of a flow that has one leg per direction.
    pub option_slabs: u32,
    /// Fragmented datagrams tracked at once (`region.max_fragments`).
    pub fragments: u32,
    /// NAT port maps: one per backend and NAT address of the backend's family (`region.nat_maps`).
    pub nat_maps: u32,
    /// Gateway endpoints (`region.max_scopes`).
    pub scopes: u32,
    /// Clients tracked for session affinity (`region.max_affinities`).
    pub affinities: u32,
    /// Services with their own counters (`region.counted_services`).
    pub counted_services: u32,
    /// Backends with their own counters (`region.counted_backends`).
    pub counted_backends: u32,
}

/// Maximum number of tunnels: a set of tunnels fits in one 64-bit mask.
pub const MAX_TUNNELS: u32 = 64;
/// Maximum number of lcores: an lcore's number plus 1 is one byte of a lock word, and 0 is a free
/// lock.
pub const MAX_LCORES: u32 = 254;

impl Sizes {
    /// Capacities of the default configuration.
    pub const DEFAULT: Sizes = Sizes {
        tunnels: MAX_TUNNELS,
        services: 1024,
        frontends: 4096,
        backends: 4096,
        next_hops: 4096,
        slots: 2 << 20,
        lcores: 4,
        ring_slots: 1024,
        flows: 65_536,
        option_slabs: 1024,
        fragments: 4096,
        nat_maps: 4096,
        scopes: 4096,
        affinities: 16_384,
        counted_services: 1024,
        counted_backends: 4096,
    };

    /// A small region for tests, in which every table fills quickly.
    pub const SMALL: Sizes = Sizes {
        tunnels: 8,
        services: 16,
        frontends: 64,
        backends: 32,
        next_hops: 32,
        slots: 16_384,
        lcores: 2,
        ring_slots: 64,
        flows: 256,
        option_slabs: 8,
        fragments: 32,
        nat_maps: 64,
        scopes: 32,
        affinities: 32,
        counted_services: 16,
        counted_backends: 32,
    };

    /// Number of services and of backends with their own counters, capped at the capacity of each.
    pub const fn counted(&self) -> (u32, u32) {
        let (services, backends) = (self.counted_services, self.counted_backends);
        (
            if services < self.services { services } else { self.services },
            if backends < self.backends { backends } else { self.backends },
        )
    }
}

macro_rules! sections {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// A part of the region with one record type and one writer, except for
        /// [`Section::Header`] and [`Section::PathMtus`], which both roles write.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        pub enum Section {
            $($(#[$meta])* $name,)*
        }

        /// All sections in memory order.
        pub const SECTIONS: [Section; [$(Section::$name),*].len()] = [$(Section::$name),*];
    };
}

sections! {
    /// Magic number, version, sizes, offsets and committed generation; each role's epoch.
    Header,
    /// Tunnels: `Versioned<Tunnel>` by tunnel id.
    Tunnels,
    /// Settings: one `Versioned<Settings>`.
    Settings,
    /// Services: `Versioned<Service>` by service id.
    Services,
    /// Service names and fields that only dumps and restarts read, by service id.
    ServiceNotes,
    /// One `Versioned<FrontendKinds>`: the kinds of frontends that a lookup has to try.
    FrontendKinds,
    /// Heads of the frontend hash chains, `AtomicU32`; their number is a power of two.
    FrontendHeads,
    /// One bit per chain head, set if the chain is not empty. Most lookups miss, and this bitmap
    /// stays in the L1 cache where the heads do not.
    FrontendBits,
    /// Address filter of frontends, `AtomicU64`.
    FrontendAddresses,
    /// Frontend entries, chained by hash.
    Frontends,
    /// Backends: `Versioned<Backend>` by backend id.
    Backends,
    /// Next hops, updated in place.
    NextHops,
    /// Path MTU per next hop in bytes, `AtomicU32`; 0 if unknown. The data plane stores learned
    /// values, slowpath clears them.
    PathMtus,
    /// Slot arena, `u32`: per service, a Maglev array of backend ids, its source ranges, and the
    /// backends of its session affinity.
    Slots,
    /// One status line per lcore.
    Lcores,
    /// One counter page per lcore.
    Counters,
    /// State and counters of the NIC of each arm, `AtomicU64`.
    Nics,
    /// One ring per lcore, from slowpath to the lcore.
    Commands,
    /// One ring per lcore, from the lcore to slowpath.
    Events,
    /// Flow index entries, 64 bytes, in buckets of [`BUCKET_ENTRIES`].
    FlowIndex,
    /// One lock word (`AtomicU64`) per flow bucket.
    FlowLocks,
    /// Address filter of flow destinations, `AtomicU64`.
    FlowAddresses,
    /// Free path records, flow counts and ring positions: one shared line, and one line per lcore.
    FlowState,
    /// Path records, 192 bytes.
    Paths,
    /// Front records, by path id, 64 bytes: copies of the flows' front entries.
    PathFronts,
    /// Next free path by path id, `AtomicU32`.
    PathLinks,
    /// Rings of unconfirmed flows, `AtomicU64`: one of flows whose replies pass this appliance
    /// (two-way), then one of flows whose replies bypass it (one-way).
    Unconfirmed,
    /// Slabs for one gateway leg and 256 bytes of options each.
    OptionSlabs,
    /// Next free slab by slab id, `AtomicU32`.
    SlabLinks,
    /// Previous contents of gateway legs that are being updated, 704 bytes.
    LegCopies,
    /// Fragment entries, 64 bytes, in buckets of [`BUCKET_ENTRIES`].
    Fragments,
    /// One lock word (`AtomicU64`) per fragment bucket.
    FragmentLocks,
    /// Affinity entries, 64 bytes, in buckets of [`BUCKET_ENTRIES`].
    Affinities,
    /// One lock word (`AtomicU64`) per affinity bucket.
    AffinityLocks,
    /// NAT port maps of [`NAT_MAP_BYTES`] each.
    NatMaps,
    /// Scopes, 32 bytes, in an open-addressing hash of power-of-two size.
    Scopes,
    /// Return legs, 128 bytes, in sets of [`RETURN_LEG_WAYS`].
    ReturnLegs,
}

/// The layout of one section. The sections' sizes are the terms whose sum is the region's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    /// The section.
    pub section: Section,
    /// Name for display.
    pub name: &'static str,
    /// Number of elements.
    pub count: usize,
    /// Size of an element in bytes.
    pub bytes_each: usize,
    /// Bytes from the start of this section to the start of the next: `count * bytes_each` rounded
    /// up to [`SECTION_ALIGN`].
    pub bytes: usize,
    /// Offset from the start of the region in bytes.
    pub offset: usize,
    /// Configuration key that determines `count`; empty if none does.
    pub setting: &'static str,
    /// Purpose of the section, for display.
    pub why: &'static str,
}

/// Name, count, bytes per element, configuration key and purpose of a section.
type Row = (&'static str, usize, usize, &'static str, &'static str);

/// Number of ring slots for unconfirmed flows.
const fn unconfirmed(flows: u32) -> usize {
    let [two_way, one_way] = unconfirmed_ring_slots(flows);
    two_way as usize + one_way as usize
}

impl Sizes {
    #[rustfmt::skip]
    const fn row(&self, section: Section) -> Row {
        let s = self;
        let entries = frontend_entries(s.frontends, s.backends);
        let (services, backends) = s.counted();
        let page = 8 * counter_page_words(services, backends);
        let ring = RING_HEADER_BYTES + s.ring_slots as usize * RING_SLOT_BYTES;
        match section {
            Section::Header => ("header", 1, 4096, "", "version, sizes, offsets, generation"),
            Section::Tunnels => ("tunnels", s.tunnels as usize, 512, "gateway",
                "two versions of each gateway tunnel"),
            Section::Settings => ("settings", 1, 2816, "",
                "two versions of the appliance-wide settings"),
            Section::Services => ("services", s.services as usize, 128, "region.max_services",
                "two versions of each service"),
            Section::ServiceNotes => ("service notes", s.services as usize, 256,
                "region.max_services", "names and data for dumps and restarts"),
            Section::FrontendKinds => ("frontend kinds", 1, 128, "",
                "kinds of frontends that exist"),
            Section::FrontendHeads => ("frontend heads", entries.next_power_of_two(), 4,
                "region.max_frontends", "hash table of the frontends"),
            Section::FrontendBits => ("frontend bits", frontend_words(entries), 8,
                "region.max_frontends", "bitmap of the non-empty hash chains"),
            Section::FrontendAddresses => ("frontend filter", FILTER_BITS / 64, 8, "",
                "address filter of the frontends"),
            Section::Frontends => ("frontends", entries, 64, "region.max_frontends",
                "frontends, their address marks, probe sources, and replacements"),
            Section::Backends => ("backends", s.backends as usize, 128, "region.max_backends",
                "two versions of each backend"),
            Section::NextHops => ("next hops", s.next_hops as usize, 64, "region.max_next_hops",
                "MAC addresses, mirrored from the kernel"),
            Section::PathMtus => ("path MTUs", s.next_hops as usize, 4, "region.max_next_hops",
                "learned from ICMP errors about outer packets"),
            Section::Slots => ("slots", s.slots as usize, 4, "region.slots",
                "Maglev arrays, source ranges and member lists of all services"),
            Section::Lcores => ("lcores", s.lcores as usize, 64, "fastpath.lcores",
                "status of each lcore"),
            Section::Counters => ("counters", s.lcores as usize, page, "fastpath.lcores",
                "a page of counters per lcore"),
            Section::Nics => ("NICs", 2, 8 * NIC_WORDS, "",
                "state and counters of the NIC of each arm"),
            Section::Commands => ("command rings", s.lcores as usize, ring, "fastpath.lcores",
                "slowpath to lcore"),
            Section::Events => ("event rings", s.lcores as usize, ring, "fastpath.lcores",
                "lcore to slowpath"),
            Section::FlowIndex => ("flow index", flow_entries(s.flows), 64, "region.max_flows",
                "both directions of each flow, at most 80% full"),
            Section::FlowLocks => ("flow locks", flow_entries(s.flows) / BUCKET_ENTRIES, 8,
                "region.max_flows", "a lock per bucket of four entries"),
            Section::FlowAddresses => ("flow filter", FILTER_BITS / 64, 8, "",
                "address filter of the flows"),
            Section::FlowState => ("flow state", s.lcores as usize + 1, 64, "fastpath.lcores",
                "free lists of paths and slabs, flow counts, ring positions"),
            Section::Paths => ("paths", s.flows as usize, PATH_BYTES, "region.max_flows",
                "delivery and return path of each flow"),
            Section::PathFronts => ("path fronts", s.flows as usize, 64, "region.max_flows",
                "lookup key of each flow, beside its path"),
            Section::PathLinks => ("path links", s.flows as usize, 4, "region.max_flows",
                "the free list of paths"),
            Section::Unconfirmed => ("unconfirmed", unconfirmed(s.flows), 8,
                "region.max_flows", "rings of unconfirmed flows, evicted oldest first"),
            Section::OptionSlabs => ("option slabs", s.option_slabs as usize, 320,
                "region.option_slabs", "long gateway options and second gateway legs of flows"),
            Section::SlabLinks => ("slab links", s.option_slabs as usize, 4, "region.option_slabs",
                "the free list of slabs"),
            Section::LegCopies => ("leg copies", LEG_COPIES as usize, 704, "",
                "previous state of gateway legs during a change"),
            Section::Fragments => ("fragments", single_entries(s.fragments), 64,
                "region.max_fragments", "fragmented datagrams, at most 80% full"),
            Section::FragmentLocks => ("fragment locks",
                single_entries(s.fragments) / BUCKET_ENTRIES, 8,
                "region.max_fragments", "a lock per bucket of four entries"),
            Section::Affinities => ("affinities", single_entries(s.affinities), 64,
                "region.max_affinities", "backends of clients with affinity, at most 80% full"),
            Section::AffinityLocks => ("affinity locks",
                single_entries(s.affinities) / BUCKET_ENTRIES, 8,
                "region.max_affinities", "a lock per bucket of four entries"),
            Section::NatMaps => ("NAT port maps", s.nat_maps as usize, NAT_MAP_BYTES,
                "region.nat_maps", "65,536 ports per backend and NAT address"),
            Section::Scopes => ("scopes", scope_cells(s.scopes), 32, "region.max_scopes",
                "gateway endpoints, at most 50% full"),
            Section::ReturnLegs => ("return legs", return_legs(s.scopes), 128,
                "region.max_scopes", "return path to an endpoint for answers without a flow"),
        }
    }
}

/// Offsets of all sections for given sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    sizes: Sizes,
    terms: [Term; SECTIONS.len()],
    bytes: usize,
}

impl Layout {
    /// Computes the layout for `sizes`.
    pub const fn new(sizes: &Sizes) -> Layout {
        let blank = Term {
            section: Section::Header,
            name: "",
            count: 0,
            bytes_each: 0,
            bytes: 0,
            offset: 0,
            setting: "",
            why: "",
        };
        let mut terms = [blank; SECTIONS.len()];
        let mut at = 0;
        let mut i = 0;
        while i < SECTIONS.len() {
            let section = SECTIONS[i];
            let (name, count, bytes_each, setting, why) = sizes.row(section);
            let bytes = (count * bytes_each).next_multiple_of(SECTION_ALIGN);
            terms[i] = Term { section, name, count, bytes_each, bytes, offset: at, setting, why };
            at += bytes;
            i += 1;
        }
        Layout { sizes: *sizes, terms, bytes: at }
    }

    /// Sizes for which this layout was computed.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Size of the region in bytes, before rounding up to the file system's page size.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// All sections in memory order.
    pub const fn terms(&self) -> &[Term; SECTIONS.len()] {
        &self.terms
    }

    /// Layout of one section.
    pub const fn term(&self, section: Section) -> &Term {
        &self.terms[section as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagram_in_lib_rs_lists_all_sections_in_order() {
        let drawing = include_str!("lib.rs");
        let drawn: Vec<Vec<&str>> = drawing
            .lines()
            .filter(|line| line.starts_with("//! | "))
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        let layout = Layout::new(&Sizes::DEFAULT);
        assert_eq!(drawn.len(), SECTIONS.len());
        for (row, term) in drawn.iter().zip(layout.terms()) {
            assert_eq!(row[1], term.name);
            if let Ok(bytes) = row[2].replace(',', "").parse::<usize>() {
                assert_eq!(bytes, term.bytes_each, "{}", term.name);
            }
        }
    }

    #[test]
    fn each_section_fits_a_map_of_its_own_without_gaps() {
        let mut names = std::collections::BTreeSet::new();
        for term in Layout::new(&Sizes::DEFAULT).terms() {
            let value = term.section.map_value_bytes();
            assert!(term.section.map_name().len() <= 15 && names.insert(term.section.map_name()));
            assert_eq!(value % 8, 0, "{}", term.name);
            let larger = value.max(term.bytes_each);
            assert!(larger % value == 0 && larger % term.bytes_each == 0, "{}", term.name);
            // The last value ends within the section's last page.
            assert!((term.count * term.bytes_each).next_multiple_of(value) <= term.bytes);
        }
    }

    #[test]
    fn sections_are_ordered_and_do_not_overlap() {
        for sizes in [Sizes::SMALL, Sizes::DEFAULT] {
            let layout = Layout::new(&sizes);
            let mut end = 0;
            for (i, term) in layout.terms().iter().enumerate() {
                assert_eq!(term.section as usize, i);
                assert_eq!(term.offset, end);
                assert_eq!(term.offset % SECTION_ALIGN, 0);
                assert!(term.bytes >= term.count * term.bytes_each);
                assert_eq!(layout.term(term.section), term);
                end += term.bytes;
            }
            assert_eq!(end, layout.bytes());
        }
    }
}
