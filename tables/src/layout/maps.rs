//! How sections lie in kernel maps: a map's name, and what one look-up in it gives.

use super::Section;

impl Section {
    /// Name of the section's map where the region lies in kernel maps: at most 15 bytes.
    #[rustfmt::skip]
    pub const fn map_name(self) -> &'static str {
        match self {
            Section::Header => "header",
            Section::Tunnels => "tunnels",
            Section::Settings => "settings",
            Section::Services => "services",
            Section::ServiceNames => "service_names",
            Section::FrontendKinds => "frontend_kinds",
            Section::FrontendHeads => "frontend_heads",
            Section::FrontendBits => "frontend_bits",
            Section::FrontendAddresses => "frontend_filter",
            Section::Frontends => "frontends",
            Section::Backends => "backends",
            Section::NextHops => "next_hops",
            Section::PathMtus => "path_mtus",
            Section::Slots => "slots",
            Section::Lcores => "lcores",
            Section::Counters => "counters",
            Section::Commands => "commands",
            Section::Events => "events",
            Section::FlowIndex => "flow_index",
            Section::FlowLocks => "flow_locks",
            Section::FlowAddresses => "flow_filter",
            Section::FlowState => "flow_state",
            Section::Paths => "paths",
            Section::PathLinks => "path_links",
            Section::OptionSlabs => "option_slabs",
            Section::SlabLinks => "slab_links",
            Section::Fragments => "fragments",
            Section::FragmentLocks => "fragment_locks",
            Section::NatMaps => "nat_port_maps",
            Section::Scopes => "scopes",
        }
    }

    /// Bytes of a value of that map, where elements have `each` bytes and are `count`. Values lie
    /// one behind the other like the elements, so that this only decides what one look-up in the
    /// kernel gives.
    pub const fn map_value_bytes(self, each: usize, count: usize) -> usize {
        match self {
            // Small and looked into at any place: one value.
            Section::FrontendAddresses | Section::FlowAddresses => each * count,
            // A line of eight words: pages and rings can be larger than a value may be.
            Section::Counters | Section::Commands | Section::Events => 64,
            // The kernel rounds values up to 8 bytes: two elements of 4.
            _ if each < 8 => 8,
            _ => each,
        }
    }
}
