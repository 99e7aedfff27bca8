//! How sections lie in kernel maps: a map's name, and what one look-up in it gives.

use super::{BUCKET_ENTRIES, Section};

impl Section {
    /// Name of the section's map where the region lies in kernel maps: at most 15 bytes.
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

    /// Bytes of a value of that map, where elements have `each` bytes. Values lie one behind the
    /// other like the elements, so that this only decides what one look-up in the kernel gives.
    pub const fn map_value_bytes(self, each: usize) -> usize {
        match self {
            // A bucket: whoever looks an entry up looks at all four.
            Section::FlowIndex | Section::Fragments | Section::Affinities => BUCKET_ENTRIES * 64,
            // A line of eight words: pages and rings can be larger than a value may be.
            Section::Counters | Section::Commands | Section::Events => 64,
            // The kernel rounds values up to 8 bytes: two elements of 4.
            _ if each < 8 => 8,
            _ => each,
        }
    }
}
