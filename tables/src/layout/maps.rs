//! How sections lie in kernel maps: a map's name, and what one look-up in it gives.

use super::Section;
use crate::addresses::BITS;

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
            Section::Commands => "command_rings",
            Section::Events => "event_rings",
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

    /// Bytes of a value of that map, where elements have `each` bytes. Values lie one behind the
    /// other like the elements, so that this only decides what one look-up in the kernel gives.
    pub const fn map_value_bytes(self, each: usize) -> usize {
        match self {
            // Small and of one size: a value is the whole, so that the look-up is of no number.
            Section::FrontendAddresses | Section::FlowAddresses => BITS / 8,
            // A line of eight words: pages and rings can be larger than a value may be.
            Section::Counters | Section::Commands | Section::Events => 64,
            // The kernel rounds values up to 8 bytes: two elements of 4.
            _ if each < 8 => 8,
            _ => each,
        }
    }
}
