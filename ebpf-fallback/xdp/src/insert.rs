//! Insert: inserts a new flow into the table, with both its entries or neither.
//!
//! `part_*` are global BPF functions, which the verifier checks separately (see [`tables::parts`]).

use crate::cpu_views::{flows, nat_ports, page};
use crate::flow_hints;
use crate::leg::{options, towards_backend};
use crate::next::{BEGUN, CONTINUE, FINISH, INSERT, REMEMBER, START, raw, run_stage};
use crate::packet_state::{PacketState, copy, packet_state};
use crate::runtime::count_new_flow;
use crate::track::part_note;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use core::hint::black_box;
use tables::address_filter::AddressFilter;
use tables::counters::{Counter, ServiceCounter};
use tables::flow::{EndedFlow, InsertError, NewFlow, PATH_ONE_WAY, PATH_REDIRECT};
use tables::reason::DropReason;
use tables::record::{Mode, TunnelKind};
use tables::region::Region;

/// The flow to insert, which is too large for the stack.
#[btf_map]
static NEW_FLOW: PerCpuArray<NewFlow, 1> = PerCpuArray::new();

// Results of [`insert_flow`] besides [`CONTINUE`].
/// No path record, index slot or option slab is free.
const FULL: u32 = 1;
/// The bucket stayed locked by other CPUs.
const CONTENDED: u32 = 2;
/// Another CPU has just inserted the same flow.
const EXISTS: u32 = 3;
/// Another flow has the entry towards the backend.
const BACK_TAKEN: u32 = 4;
/// The options are longer than 252 bytes.
const TOO_LONG: u32 = 5;

/// The stage: inserts the flow. The separate stage `begun` handles the outcome, because the
/// searches that an insertion calls take all of the stack on Linux 6.1, which rounds each
/// function's stack up to a multiple of 32 bytes.
#[xdp(frags)]
pub fn insert(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    pkt.insert_outcome = if part_new() == CONTINUE { insert_flow(pkt) } else { CONTENDED };
    run_stage(ctx, BEGUN)
}

/// The stage after `insert`. By the outcome of the insertion, it counts the new flow, forwards the
/// packet without an entry, tries again, or drops the packet.
#[xdp(frags)]
pub fn begun(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    let Some(pkt) = packet_state() else { return run_stage(ctx, FINISH) };
    let outcome = pkt.insert_outcome;
    // Eviction is tried once per new flow: if it does not help, the table is full for this flow.
    if outcome == FULL && !pkt.evicted && evict_flow() == CONTINUE {
        pkt.evicted = true;
        return run_stage(ctx, INSERT);
    }
    if outcome == CONTINUE {
        part_count_new_flow();
        part_add_unconfirmed();
    }
    let next = if pkt.path.flags & PATH_REDIRECT != 0 {
        handle_redirected(pkt, outcome)
    } else if pkt.path.mode == Mode::Nat as u8 {
        handle_nat(pkt, outcome)
    } else {
        handle_tunneled(pkt, outcome)
    };
    if outcome == CONTINUE && pkt.is_first() {
        pkt.next_stage = next;
        return run_stage(ctx, REMEMBER);
    }
    run_stage(ctx, next)
}

/// Counts a flow that is forwarded without an entry.
#[inline(always)]
pub fn count_untracked() {
    page().count(Counter::FlowsUntracked, 1);
}

/// Handles a flow by tunnel or direct server return. Without an entry, selection alone finds the
/// backend of its next packet, and only replies are affected.
#[inline(always)]
fn handle_tunneled(pkt: &mut PacketState, outcome: u32) -> u32 {
    let geneve = || pkt.set().service(pkt.service).is_some_and(|s| s.tunnel == GENEVE);
    if outcome == BACK_TAKEN && pkt.has_back && geneve() {
        // Weir's own options distinguish endpoints whose 5-tuples are equal. Plain replies, which
        // have none, belong to the first flow.
        pkt.has_back = false;
        return INSERT;
    }
    let adopted = outcome == EXISTS && part_adopt() == CONTINUE;
    if !adopted {
        match outcome {
            CONTINUE => {}
            FULL | CONTENDED | EXISTS => count_untracked(),
            BACK_TAKEN => return pkt.drop(DropReason::FlowAmbiguous),
            _ => return pkt.drop(DropReason::FlowContended),
        }
    }
    towards_backend(pkt)
}

const GENEVE: u8 = TunnelKind::Geneve as u8;

/// Handles a NAT flow, which cannot be forwarded without its entries: its port is then
/// released.
#[inline(always)]
fn handle_nat(pkt: &mut PacketState, outcome: u32) -> u32 {
    if outcome == CONTINUE {
        return towards_backend(pkt);
    }
    // `black_box` keeps the value range of a port visible to the verifier.
    nat_ports().release(pkt.nat_map, black_box(pkt.path.nat_port));
    match outcome {
        // Another flow uses this address and port towards the backend: the next NAT address may
        // work.
        BACK_TAKEN => START,
        FULL => pkt.drop(DropReason::FlowTableFull),
        EXISTS if part_adopt() == CONTINUE => towards_backend(pkt),
        _ => pkt.drop(DropReason::FlowContended),
    }
}

/// Handles a flow to a proxy, which cannot be forwarded without its entries.
#[inline(always)]
fn handle_redirected(pkt: &mut PacketState, outcome: u32) -> u32 {
    match outcome {
        CONTINUE => towards_backend(pkt),
        EXISTS if part_adopt() == CONTINUE => towards_backend(pkt),
        FULL => pkt.drop(DropReason::FlowTableFull),
        BACK_TAKEN => pkt.drop(DropReason::FlowAmbiguous),
        _ => pkt.drop(DropReason::FlowContended),
    }
}

/// Fills [`NEW_FLOW`], and adds the packet's destination to the filter of flows' addresses.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_new() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let Some(service) = pkt.set().service(pkt.service) else { return FINISH };
    // SAFETY: a CPU processes one packet at a time.
    let Some(new) = NEW_FLOW.get_ptr_mut(0).map(|new| unsafe { &mut *new }) else { return FINISH };
    copy(&mut new.front, &pkt.key);
    new.front_initiator = pkt.side;
    new.back = if pkt.has_back { Some((pkt.back, pkt.back_side)) } else { None };
    copy(&mut new.forward, &pkt.path);
    copy(&mut new.gateway, &pkt.leg);
    new.digest = pkt.digest;
    new.nat_map = pkt.nat_map;
    new.idle_s = service.idle_s(pkt.path.proto);
    AddressFilter::of_flows(&Region).add(&pkt.inner.dst);
    CONTINUE
}

/// Adds the flow to the unconfirmed flows: those whose client has not yet answered the backend's
/// first packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_add_unconfirmed() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let ended = flows().add_unconfirmed(&pkt.hit, pkt.path.flags & PATH_ONE_WAY != 0);
    count_evicted(&ended);
    CONTINUE
}

/// Evicts an unconfirmed or reset flow; returns a value other than [`CONTINUE`] if none is found.
/// Each search is a separate function because of the stack limit.
#[inline(always)]
fn evict_flow() -> u32 {
    if part_end_oldest(0) == CONTINUE || part_end_oldest(1) == CONTINUE {
        CONTINUE
    } else {
        part_end_reset()
    }
}

/// Ends the oldest unconfirmed flow of those whose replies bypass this appliance (1) or pass
/// through it (0). See [`evict_flow`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_end_oldest(one_way: u32) -> u32 {
    let ended = flows().end_oldest(one_way != 0);
    count_evicted(&ended);
    if ended.is_some() { CONTINUE } else { FINISH }
}

/// Ends a flow that was reset. See [`evict_flow`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_end_reset() -> u32 {
    let ended = flows().end_reset();
    count_evicted(&ended);
    if ended.is_some() { CONTINUE } else { FINISH }
}

/// Counts an evicted flow, if there is one.
#[inline(always)]
pub fn count_evicted(ended: &Option<EndedFlow>) {
    if let Some(EndedFlow { forward, .. }) = ended {
        page().flow_ended(forward.service, forward.backend);
        page().count(Counter::FlowsEvicted, 1);
    }
}

/// Inserts [`NEW_FLOW`], and returns the outcome.
#[inline(always)]
fn insert_flow(pkt: &mut PacketState) -> u32 {
    // SAFETY: a CPU processes one packet at a time.
    let new = NEW_FLOW.get_ptr_mut(0).map(|new| unsafe { &*new });
    let Some(new) = new else { return CONTENDED };
    let hashes = [pkt.hash, if pkt.has_back { pkt.back_hash } else { pkt.hash }];
    match flows().insert_hashed(new, hashes, options(pkt), pkt.now_s) {
        Ok(hit) => pkt.hit = hit,
        Err(InsertError::Full | InsertError::NoSlab) => return FULL,
        Err(InsertError::Contended) => return CONTENDED,
        Err(InsertError::Exists(_)) => return EXISTS,
        Err(InsertError::BackTaken(_)) => return BACK_TAKEN,
        Err(InsertError::OptionsTooLong) => return TOO_LONG,
    }
    pkt.flow_found = true;
    CONTINUE
}

/// Counts the new flow, stores its hint, and records the TCP state of its first packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_count_new_flow() -> u32 {
    let Some(pkt) = packet_state() else { return CONTENDED };
    part_note();
    // Stores a hint, so that the flow's next packet needs no index lookup.
    flow_hints::remember(pkt.hash, pkt.hit.path);
    count_new_flow(pkt, pkt.path.mode == Mode::Nat as u8);
    page().service(pkt.service, ServiceCounter::NewFlows, 1);
    page().backend(pkt.backend, ServiceCounter::NewFlows, 1);
    CONTINUE
}

/// Uses the entry that another CPU has just inserted for this flow.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn part_adopt() -> u32 {
    let Some(pkt) = packet_state() else { return FINISH };
    let Some(hit) = flows().find(pkt.hash, &pkt.key) else { return FINISH };
    if flows().forward_to(&hit, &mut pkt.path).is_err() {
        return FINISH;
    }
    pkt.service = pkt.path.service;
    pkt.backend = pkt.path.backend;
    pkt.hit = hit;
    pkt.flow_found = true;
    CONTINUE
}
