//! The code of `tables` in the kernel, one program per query, so that tests can compare it with
//! the same code on the host. The map `QUERY` holds the query, which a program replaces by its
//! result.
#![no_std]
#![no_main]

#[path = "../../../../ebpf-fallback/xdp/src/object.rs"]
mod object;
#[path = "../../../../ebpf-fallback/xdp/src/parts.rs"]
mod parts;
mod query;
#[path = "../../../../ebpf-fallback/xdp/src/region.rs"]
mod region;

use aya_ebpf::bindings::xdp_action::XDP_DROP;
use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use query::Query;
use tables::address_filter::AddressFilter;
use tables::flow::{Flows, NewFlow, Options};
use tables::fragment::Fragments;
use tables::nat_port::NatPorts;
use tables::reason::DropReason;
use tables::region::Region;
use tables::scope::Scopes;

/// The query, or the result of the last program.
#[btf_map]
static QUERY: Array<Query, 1, 1024> = Array::new();

#[inline(always)]
fn query() -> Option<&'static mut Query> {
    // SAFETY: tests run one program at a time, and nothing else uses the map.
    QUERY.get_ptr_mut(0).map(|query| unsafe { &mut *query })
}

/// The new flow, which does not fit on the stack.
#[btf_map]
static NEW_FLOW: PerCpuArray<NewFlow, 1> = PerCpuArray::new();

macro_rules! programs {
    ($($(#[$doc:meta])* $name:ident($query:ident) $body:block)*) => {$(
        $(#[$doc])*
        #[xdp(frags)]
        pub fn $name(_: XdpContext) -> u32 {
            if let Some($query) = query() {
                $body;
            }
            XDP_DROP
        }
    )*};
}

programs! {
    /// Looks up a frontend and selects a backend.
    frontend(query) { query::frontend(query, &Region.tables(Region.generation())) }
    /// Looks up a flow, and records the time of its use.
    find(query) { query::find(query, &Flows::new(&Region)) }
    /// Records a segment's flags in a flow, and looks up the data for its answer.
    answer(query) { query::answer(query, &Flows::new(&Region)) }
    /// Records a gateway's leg.
    leg(query) {
        let options = Options { words: &query.options, len: query.option_len as usize };
        query.outcome = query::leg(query, options, &Flows::new(&Region));
    }
    /// Looks up initiator and target of a flow, and the flow by its path.
    ends(query) { query::ends(query, &Flows::new(&Region)) }
    /// Removes a flow.
    remove(query) { query.outcome = query::remove(query, &Flows::new(&Region)) }
    /// Inserts a flow.
    insert(query) {
        // SAFETY: a CPU runs one program at a time.
        if let Some(new) = NEW_FLOW.get_ptr_mut(0).map(|new| unsafe { &mut *new }) {
            query::new_flow(query, new);
            let options = Options { words: &query.options, len: query.option_len as usize };
            let flows = Flows::new(&Region).as_owner(1, Region.epoch());
            query.outcome = query::insert_outcome(flows.insert(new, options, query.now_s));
        }
    }
    /// Claims a NAT port.
    claim(query) {
        let range = query.first..=query.last;
        let port = NatPorts::new(&Region).claim(query.nat_map, range, 0, 1);
        query.outcome = port.map_or(query::MISSED, u32::from);
    }
    /// Inserts an entry into the fragment table.
    remember(query) { query::remember(query, &Fragments::new(&Region).as_owner(1, Region.epoch())) }
    /// Looks up an entry in the fragment table.
    datagram(query) { query::datagram(query, &Fragments::new(&Region)) }
    /// Assigns a scope to an endpoint.
    scope(query) {
        let scope = Scopes::new(&Region);
        let scope = scope.intern(query.proto, query.port, query.scope_key, query.now_s);
        query.outcome = scope.unwrap_or(query::MISSED);
    }
    /// Increments counters, and adds an address to the filter of flows' addresses.
    count(query) {
        let page = Region.page(query.nat_map);
        page.forwarded(query.more[0], query.more[1], query.hash);
        page.drop(query.proto, DropReason::NoFlow);
        AddressFilter::of_flows(&Region).add(&query.addr);
    }
}
