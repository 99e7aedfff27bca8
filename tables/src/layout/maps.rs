//! Names and value sizes of the BPF maps that hold sections.

use super::{BUCKET_ENTRIES, Section, Sizes};

impl Section {
    /// Name of the section's BPF map; at most 15 bytes, the kernel's limit.
    #[rustfmt::skip]
    pub const fn map_name(self) -> &'static str {
        match self {
            Section::Header => "HEADER",
            Section::Tunnels => "TUNNELS",
            Section::Settings => "SETTINGS",
            Section::Services => "SERVICES",
            Section::ServiceNotes => "SERVICE_NOTES",
            Section::FrontendKinds => "FRONTEND_KINDS",
            Section::FrontendHeads => "FRONTEND_HEADS",
            Section::FrontendBits => "FRONTEND_BITS",
            Section::FrontendAddresses => "FRONTEND_FILTER",
            Section::Frontends => "FRONTENDS",
            Section::Backends => "BACKENDS",
            Section::NextHops => "NEXT_HOPS",
            Section::PathMtus => "PATH_MTUS",
            Section::Slots => "SLOTS",
            Section::Lcores => "LCORES",
            Section::Counters => "COUNTERS",
            Section::Nics => "NICS",
            Section::Commands => "COMMANDS",
            Section::Events => "EVENTS",
            Section::FlowIndex => "FLOW_INDEX",
            Section::FlowLocks => "FLOW_LOCKS",
            Section::FlowAddresses => "FLOW_FILTER",
            Section::FlowState => "FLOW_STATE",
            Section::Paths => "PATHS",
            Section::PathFronts => "PATH_FRONTS",
            Section::PathLinks => "PATH_LINKS",
            Section::Unconfirmed => "UNCONFIRMED",
            Section::OptionSlabs => "OPTION_SLABS",
            Section::SlabLinks => "SLAB_LINKS",
            Section::LegCopies => "LEG_COPIES",
            Section::Fragments => "FRAGMENTS",
            Section::FragmentLocks => "FRAGMENT_LOCKS",
            Section::Affinities => "AFFINITIES",
            Section::AffinityLocks => "AFFINITY_LOCKS",
            Section::NatMaps => "NAT_MAPS",
            Section::Scopes => "SCOPES",
            Section::ReturnLegs => "RETURN_LEGS",
        }
    }

    /// Size in bytes of a value of the section's map, the same for regions of any sizes. Values are
    /// contiguous like the elements, so this only determines how much one lookup in the kernel
    /// returns.
    pub const fn map_value_bytes(self) -> usize {
        let (_, _, each, _, _) = Sizes::SMALL.row(self);
        match self {
            // A bucket: a lookup examines all four entries.
            Section::FlowIndex | Section::Fragments | Section::Affinities => BUCKET_ENTRIES * 64,
            // A line of eight words: pages and rings can exceed the maximum size of a value.
            Section::Counters | Section::Nics | Section::Commands | Section::Events => 64,
            // The kernel rounds values up to 8 bytes: two 4-byte elements.
            _ if each < 8 => 8,
            _ => each,
        }
    }
}
