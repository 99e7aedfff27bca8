//! Applies session affinity, or selects a backend for a client without an entry.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::cpu_views::{affinities, page};
use crate::next::{FINISH, START, raw, run_stage};
use crate::packet_state::{PacketState, packet_state};
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use tables::affinity::{Affinity, Client};
use tables::counters::Counter;
use tables::reason::DropReason;
use tables::record::NONE;

/// The stage: sets the backend by affinity or selection, and records it.
#[xdp(frags)]
pub fn affinity(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    pkt.backend = part_affinity();
    if pkt.backend == NONE {
        pkt.backend = part_select_backend();
    }
    let next = match pkt.backend {
        NONE => pkt.drop(DropReason::NoBackend),
        // An ICMP error is not sent by the client, so it does not renew the client's affinity.
        _ if pkt.has_quoted => START,
        _ => {
            part_store_affinity();
            START
        }
    };
    run_stage(ctx, next)
}

#[inline(always)]
fn client(pkt: &PacketState) -> Client {
    Client { scope: pkt.scope, service: pkt.service, addr: *pkt.client() }
}

/// Returns the backend to which the client has valid affinity, else [`NONE`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_affinity() -> u32 {
    let Some(pkt) = packet_state() else { return NONE };
    let set = pkt.set();
    let Some(service) = set.service(pkt.service) else { return NONE };
    match affinities().find(&client(pkt), pkt.now_s, service.affinity_s) {
        Some(affinity) if set.is_affinity_valid(service, &affinity) => affinity.backend,
        _ => NONE,
    }
}

/// Selects a backend for a client without an entry.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_select_backend() -> u32 {
    let Some(pkt) = packet_state() else { return NONE };
    let set = pkt.set();
    let Some(service) = set.service(pkt.service) else { return NONE };
    set.pick(service, affinities().hash(&client(pkt))).unwrap_or(NONE)
}

/// Writes the client's affinity entry. The caller ignores the result.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_store_affinity() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let (set, backend) = (pkt.set(), pkt.backend);
    let (Some(service), Some(record)) = (set.service(pkt.service), set.backend(backend)) else {
        return FINISH;
    };
    let affinity = Affinity { backend, incarnation: record.incarnation };
    if affinities().put(&client(pkt), &affinity, pkt.now_s, service.affinity_s).is_err() {
        page().count(Counter::AffinitiesUntracked, 1);
    }
    START
}
