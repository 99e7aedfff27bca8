//! Fragments: finds the flow of a later fragment, and stores the flow of a first fragment.
//!
//! Both are stages of their own, since they are long and fragments are rare.

use crate::cpu_views::{cpu, flows, page};
use crate::next::{ENCAP, FINISH, REMEMBER, SELECT, TRACK, raw, run_stage};
use crate::packet_state::{PacketState, packet_state};
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ip::Ip;
use tables::counters::{Counter, VerdictCounter};
use tables::flow::IndexError;
use tables::fragment::{EARLIER_S, FragmentKey, FragmentTarget, Fragments};
use tables::region::Region;

/// Stage of later fragments.
#[xdp(frags)]
pub fn fragment(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    run_stage(ctx, packet_state().map_or(FINISH, find))
}

/// Stage of first fragments.
#[xdp(frags)]
pub fn remember(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    run_stage(ctx, packet_state().map_or(FINISH, store))
}

/// Returns the fragment table, with the current lifetime of its entries.
#[inline(always)]
fn fragments(pkt: &PacketState) -> Fragments<'static> {
    let lifetime = pkt.set().settings().timeouts.fragment_s;
    Fragments::new(&Region).as_owner(cpu() as u8, Region.epoch()).with_lifetime(lifetime)
}

/// Returns the key of the fragment's datagram.
#[inline(always)]
fn key(pkt: &PacketState) -> FragmentKey {
    let ip: &Ip = &pkt.inner;
    let (src, dst, id, proto) = (ip.src, ip.dst, ip.fragment_id, ip.proto);
    FragmentKey { scope: pkt.scope, src, dst, id, proto }
}

/// Finds the flow of a later fragment by the entry of its datagram's first fragment.
#[inline(always)]
fn find(pkt: &mut PacketState) -> u32 {
    match fragments(pkt).find(&key(pkt), pkt.now_s) {
        Some(FragmentTarget::Flow { path, stamp, from_initiator }) => {
            let Some(hit) = flows().revisit(path, stamp) else { return SELECT };
            pkt.hit = hit;
            pkt.flow_found = true;
            pkt.from_initiator = from_initiator;
            // Addresses do not always determine the direction: both may be equal.
            let initiator = hit.initiator();
            pkt.side = if from_initiator { initiator } else { initiator.other() };
            TRACK
        }
        Some(FragmentTarget::Return) => {
            pkt.verdict = VerdictCounter::Return;
            ENCAP
        }
        None => SELECT,
    }
}

/// Stores the flow for later fragments of this datagram.
#[inline(always)]
fn store(pkt: &mut PacketState) -> u32 {
    let hit = &pkt.hit;
    let target = if pkt.flow_found {
        let front = if hit.is_front() { Some(hit.stamp) } else { flows().front_stamp(hit) };
        let stamp = front.unwrap_or(hit.stamp);
        FragmentTarget::Flow { path: hit.path, stamp, from_initiator: pkt.from_initiator }
    } else {
        FragmentTarget::Return
    };
    let table = fragments(pkt);
    let table = if pkt.no_fragment_slot { table.with_lifetime(EARLIER_S) } else { table };
    let inserted = table.insert_over_expired(&key(pkt), target, pkt.now_s);
    if inserted == Err(IndexError::Full) && !pkt.no_fragment_slot {
        // Second attempt, which may reuse entries of an earlier second.
        pkt.no_fragment_slot = true;
        return REMEMBER;
    }
    let is_stored = inserted.is_ok();
    pkt.fragment_recorded = true;
    // Without an entry, only the later fragments are lost.
    if !is_stored {
        page().count(Counter::FragmentsUntracked, 1);
    }
    pkt.next_stage
}
