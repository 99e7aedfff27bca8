//! Stay: applies session affinity, or selects a backend for a client without an entry.

use crate::here::{affinities, page};
use crate::next::{FINISH, START, go, raw};
use crate::work::{Work, work};
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use tables::affinity::{Client, Stay};
use tables::counters::Counter;
use tables::reason::DropReason;
use tables::record::NONE;

/// The stage: sets the backend by affinity or selection, and records it.
#[xdp(frags)]
pub fn stay(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    work.backend = part_stays();
    if work.backend == NONE {
        work.backend = part_settles();
    }
    let next = match work.backend {
        NONE => work.drop(DropReason::NoBackend),
        // An error about a client's flow was not sent by the client.
        _ if work.quotes => START,
        _ => {
            part_keep();
            START
        }
    };
    go(ctx, next)
}

#[inline(always)]
fn client(work: &Work) -> Client {
    Client { scope: work.scope, service: work.service, addr: *work.client() }
}

/// Returns the backend to which the client has valid affinity, else [`NONE`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_stays() -> u32 {
    let Some(work) = work() else { return NONE };
    let set = work.set();
    let Some(service) = set.service(work.service) else { return NONE };
    match affinities().find(&client(work), work.now_s, service.affinity_s) {
        Some(stay) if set.stays(service, &stay) => stay.backend,
        _ => NONE,
    }
}

/// Selects a backend for a client without an entry.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_settles() -> u32 {
    let Some(work) = work() else { return NONE };
    let set = work.set();
    let Some(service) = set.service(work.service) else { return NONE };
    set.pick(service, affinities().hash(&client(work))).unwrap_or(NONE)
}

/// Writes the client's affinity entry.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_keep() -> u32 {
    let Some(work) = work() else { return FINISH };
    let (set, backend) = (work.set(), work.backend);
    let (Some(service), Some(record)) = (set.service(work.service), set.backend(backend)) else {
        return FINISH;
    };
    let stay = Stay { backend, incarnation: record.incarnation };
    if affinities().keep(&client(work), &stay, work.now_s, service.affinity_s).is_err() {
        page().count(Counter::AffinitiesUntracked, 1);
    }
    START
}
