//! Insert: inserts a new flow into the table, with both its entries or neither.

use crate::here::{flows, nat_ports, page};
use crate::lately;
use crate::leg::{options, towards_backend};
use crate::next::{BEGUN, FINISH, INSERT, OPEN, REMEMBER, START, go, raw};
use crate::place::count_new_flow;
use crate::track::part_note;
use crate::work::{Work, copy, work};
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use core::hint::black_box;
use tables::addresses::Addresses;
use tables::counters::{Counter, ServiceCounter};
use tables::flow::{Ended, InsertError, NewFlow, PATH_ONE_WAY, PATH_REDIRECT};
use tables::reason::DropReason;
use tables::record::{Mode, TunnelKind};
use tables::region::Region;

/// The flow to insert, which is too large for the stack.
#[btf_map]
static NEW: PerCpuArray<NewFlow, 1> = PerCpuArray::new();

/// Results of [`put_in`] besides [`OPEN`].
const FULL: u32 = 1;
const CONTENDED: u32 = 2;
const EXISTS: u32 = 3;
const BACK_TAKEN: u32 = 4;
const TOO_LONG: u32 = 5;

/// The stage. Its outcome is handled by a separate stage because of the stack limit: with the
/// searches that it calls, no space is left (kernels before 6.3 round each function's stack up to
/// multiples of 32 bytes).
#[xdp(frags)]
pub fn insert(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    work.done = if part_new() == OPEN { put_in(work) } else { CONTENDED };
    go(ctx, BEGUN)
}

/// The next stage: the flow is in the table, or is forwarded without an entry, or is dropped.
#[xdp(frags)]
pub fn begun(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(work) = work() else { return go(ctx, FINISH) };
    let done = work.done;
    // Tried once: if no flow can be evicted, the table is full for this one.
    if done == FULL && !work.made_room && make_room() == OPEN {
        work.made_room = true;
        return go(ctx, INSERT);
    }
    if done == OPEN {
        part_begun();
        part_hold();
    }
    let next = if work.path.flags & PATH_REDIRECT != 0 {
        redirected(work, done)
    } else if work.path.mode == Mode::Nat as u8 {
        translated(work, done)
    } else {
        tunnelled(work, done)
    };
    if done == OPEN && work.is_first() {
        work.then = next;
        return go(ctx, REMEMBER);
    }
    go(ctx, next)
}

/// Counts a flow that is forwarded without an entry.
#[inline(always)]
pub fn count_untracked() {
    page().count(Counter::FlowsUntracked, 1);
}

/// Handles a flow by tunnel: selection alone finds its backend again, and only replies need the
/// entry.
#[inline(always)]
fn tunnelled(work: &mut Work, done: u32) -> u32 {
    let geneve = || work.set().service(work.service).is_some_and(|s| s.tunnel == GENEVE);
    if done == BACK_TAKEN && work.has_back && geneve() {
        // Weir's own options distinguish endpoints whose 5-tuples are equal. Plain replies, which
        // have none, belong to the first flow.
        work.has_back = false;
        return INSERT;
    }
    let adopted = done == EXISTS && part_adopt() == OPEN;
    if !adopted {
        match done {
            OPEN => {}
            FULL | CONTENDED | EXISTS => count_untracked(),
            BACK_TAKEN => return work.drop(DropReason::FlowAmbiguous),
            _ => return work.drop(DropReason::FlowContended),
        }
    }
    towards_backend(work)
}

const GENEVE: u8 = TunnelKind::Geneve as u8;

/// Handles a translated flow, which needs its entries and releases its port without them.
#[inline(always)]
fn translated(work: &mut Work, done: u32) -> u32 {
    if done == OPEN {
        return towards_backend(work);
    }
    // Keeps the value range of a port visible to the verifier.
    nat_ports().release(work.nat_map, black_box(work.path.nat_port));
    match done {
        // Another flow has the port through another map: the next address may work.
        BACK_TAKEN => START,
        FULL => work.drop(DropReason::FlowTableFull),
        EXISTS if part_adopt() == OPEN => towards_backend(work),
        _ => work.drop(DropReason::FlowContended),
    }
}

/// Handles a flow to a proxy, which needs its entries as well.
#[inline(always)]
fn redirected(work: &mut Work, done: u32) -> u32 {
    match done {
        OPEN => towards_backend(work),
        EXISTS if part_adopt() == OPEN => towards_backend(work),
        FULL => work.drop(DropReason::FlowTableFull),
        BACK_TAKEN => work.drop(DropReason::FlowAmbiguous),
        _ => work.drop(DropReason::FlowContended),
    }
}

/// Fills [`NEW`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_new() -> u32 {
    let Some(work) = work() else { return FINISH };
    let Some(service) = work.set().service(work.service) else { return FINISH };
    // SAFETY: a CPU processes one packet at a time.
    let Some(new) = NEW.get_ptr_mut(0).map(|new| unsafe { &mut *new }) else { return FINISH };
    copy(&mut new.front, &work.key);
    new.front_initiator = work.side;
    new.back = if work.has_back { Some((work.back, work.back_side)) } else { None };
    copy(&mut new.forward, &work.path);
    copy(&mut new.gateway, &work.leg);
    new.digest = work.digest;
    new.nat_map = work.nat_map;
    new.idle_s = service.idle_s(work.path.proto);
    Addresses::of_flows(&Region).add(&work.inner.dst);
    OPEN
}

/// Adds the flow to the unconfirmed flows.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_hold() -> u32 {
    let Some(work) = work() else { return FINISH };
    let ended = flows().hold(&work.hit, work.path.flags & PATH_ONE_WAY != 0);
    count_evicted(&ended);
    OPEN
}

/// Evicts an unconfirmed or reset flow; returns a value other than [`OPEN`] if none is found. Each
/// search is a separate function because of the stack limit.
#[inline(always)]
fn make_room() -> u32 {
    if part_end_oldest(0) == OPEN || part_end_oldest(1) == OPEN { OPEN } else { part_end_reset() }
}

/// See [`make_room`]; for flows whose replies bypass this appliance (1) or pass it (0).
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_end_oldest(one_way: u32) -> u32 {
    let ended = flows().end_oldest(one_way != 0);
    count_evicted(&ended);
    if ended.is_some() { OPEN } else { FINISH }
}

/// See [`make_room`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_end_reset() -> u32 {
    let ended = flows().end_reset();
    count_evicted(&ended);
    if ended.is_some() { OPEN } else { FINISH }
}

/// Counts an evicted flow, if there is one.
#[inline(always)]
pub fn count_evicted(ended: &Option<Ended>) {
    if let Some(Ended { forward, .. }) = ended {
        page().flow_ended(forward.service, forward.backend);
        page().count(Counter::FlowsEvicted, 1);
    }
}

/// Inserts [`NEW`].
#[inline(always)]
fn put_in(work: &mut Work) -> u32 {
    // SAFETY: as above.
    let new = NEW.get_ptr_mut(0).map(|new| unsafe { &*new });
    let Some(new) = new else { return CONTENDED };
    let hashes = [work.hash, if work.has_back { work.back_hash } else { work.hash }];
    match flows().insert_hashed(new, hashes, options(work), work.now_s) {
        Ok(hit) => work.hit = hit,
        Err(InsertError::Full | InsertError::NoSlab) => return FULL,
        Err(InsertError::Contended) => return CONTENDED,
        Err(InsertError::Exists(_)) => return EXISTS,
        Err(InsertError::BackTaken(_)) => return BACK_TAKEN,
        Err(InsertError::OptionsTooLong) => return TOO_LONG,
    }
    work.known = true;
    OPEN
}

/// Counts the new flow, and records the state of its first packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_begun() -> u32 {
    let Some(work) = work() else { return CONTENDED };
    part_note();
    // Stores a hint, so that the flow's next packet needs no index lookup.
    lately::remember(work.hash, work.hit.path);
    count_new_flow(work, work.path.mode == Mode::Nat as u8);
    page().service(work.service, ServiceCounter::NewFlows, 1);
    page().backend(work.backend, ServiceCounter::NewFlows, 1);
    OPEN
}

/// Another CPU has just inserted this flow: its entry is used.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_adopt() -> u32 {
    let Some(work) = work() else { return FINISH };
    let Some(hit) = flows().find(work.hash, &work.key) else { return FINISH };
    if flows().forward_to(&hit, &mut work.path).is_err() {
        return FINISH;
    }
    work.service = work.path.service;
    work.backend = work.path.backend;
    work.hit = hit;
    work.known = true;
    OPEN
}
