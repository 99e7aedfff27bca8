//! The code of `tables` in the kernel, one program per query, so that tests can compare it with
//! the same code on the host. Query and result are in the map `ASKED`.
#![no_std]
#![no_main]

mod asked;
#[path = "../../../../ebpf-fallback/xdp/src/object.rs"]
mod object;
#[path = "../../../../ebpf-fallback/xdp/src/parts.rs"]
mod parts;
#[path = "../../../../ebpf-fallback/xdp/src/region.rs"]
mod region;

use asked::Asked;
use aya_ebpf::bindings::xdp_action::XDP_DROP;
use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use tables::addresses::Addresses;
use tables::flow::{Flows, NewFlow, Options};
use tables::fragment::Fragments;
use tables::nat_port::NatPorts;
use tables::reason::DropReason;
use tables::region::Region;
use tables::scope::Scopes;

#[btf_map]
static ASKED: Array<Asked, 1, 1024> = Array::new();

#[inline(always)]
fn asked() -> Option<&'static mut Asked> {
    // SAFETY: tests run one program at a time, and nothing else uses the map.
    ASKED.get_ptr_mut(0).map(|asked| unsafe { &mut *asked })
}

/// The new flow, which does not fit on the stack.
#[btf_map]
static NEW: PerCpuArray<NewFlow, 1> = PerCpuArray::new();

macro_rules! programs {
    ($($(#[$doc:meta])* $name:ident($asked:ident) $body:block)*) => {$(
        $(#[$doc])*
        #[xdp(frags)]
        pub fn $name(_: XdpContext) -> u32 {
            if let Some($asked) = asked() {
                $body;
            }
            XDP_DROP
        }
    )*};
}

programs! {
    /// Looks up a frontend and selects a backend.
    frontend(asked) { asked::frontend(asked, &Region.tables(Region.generation())) }
    /// Looks up a flow.
    find(asked) { asked::find(asked, &Flows::new(&Region)) }
    /// Looks up the data for an answer.
    answer(asked) { asked::answer(asked, &Flows::new(&Region)) }
    /// Records a gateway's leg.
    leg(asked) {
        let options = Options { words: &asked.options, len: asked.option_len as usize };
        asked.outcome = asked::leg(asked, options, &Flows::new(&Region));
    }
    /// Looks up the initiator of a flow, and the flow by its path.
    ends(asked) { asked::ends(asked, &Flows::new(&Region)) }
    /// Removes a flow.
    remove(asked) { asked.outcome = asked::remove(asked, &Flows::new(&Region)) }
    /// Inserts a flow.
    insert(asked) {
        // SAFETY: a CPU runs one program at a time.
        if let Some(new) = NEW.get_ptr_mut(0).map(|new| unsafe { &mut *new }) {
            asked::new_flow(asked, new);
            let options = Options { words: &asked.options, len: asked.option_len as usize };
            let flows = Flows::new(&Region).as_owner(1, Region.epoch());
            asked.outcome = asked::begun(flows.insert(new, options, asked.now_s));
        }
    }
    /// Claims a NAT port.
    claim(asked) {
        let range = asked.first..=asked.last;
        let port = NatPorts::new(&Region).claim(asked.nat_map, range, 0, 1);
        asked.outcome = port.map_or(asked::MISSED, u32::from);
    }
    /// Inserts a datagram.
    remember(asked) { asked::remember(asked, &Fragments::new(&Region).as_owner(1, Region.epoch())) }
    /// Looks up a datagram.
    datagram(asked) { asked::datagram(asked, &Fragments::new(&Region)) }
    /// Assigns a scope to an endpoint.
    scope(asked) {
        let scope = Scopes::new(&Region);
        let scope = scope.intern(asked.proto, asked.port, asked.scope_key, asked.now_s);
        asked.outcome = scope.unwrap_or(asked::MISSED);
    }
    /// Increments counters.
    count(asked) {
        let page = Region.page(asked.nat_map);
        page.passage(asked.more[0], asked.more[1], asked.hash);
        page.drop(asked.proto, DropReason::NoFlow);
        Addresses::of_flows(&Region).add(&asked.addr);
    }
}
