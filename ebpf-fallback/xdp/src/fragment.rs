//! Fragments: finds the flow of a later fragment, and stores the flow of a first fragment.
//!
//! These are two stages, since fragments are rare and both are long.

use crate::here::{cpu, flows, page};
use crate::next::{ENCAP, FINISH, REMEMBER, SELECT, TRACK, go, raw};
use crate::work::{Work, work};
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use packet::ip::Ip;
use tables::counters::{Counter, VerdictCounter};
use tables::flow::NotKept;
use tables::fragment::{EARLIER_S, FragmentKey, FragmentTarget, Fragments};
use tables::region::Region;

/// Stage of later fragments.
#[xdp(frags)]
pub fn fragment(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    go(ctx, work().map_or(FINISH, find))
}

/// Stage of first fragments.
#[xdp(frags)]
pub fn remember(ctx: XdpContext) -> u32 {
    let ctx = raw(&ctx);
    go(ctx, work().map_or(FINISH, note))
}

/// The fragment table.
#[inline(always)]
fn fragments(work: &Work) -> Fragments<'static> {
    let lifetime = work.set().settings().timeouts.fragment_s;
    Fragments::new(&Region).as_owner(cpu() as u8, Region.epoch()).with_lifetime(lifetime)
}

/// Returns the key of the fragment's datagram.
#[inline(always)]
fn key(work: &Work) -> FragmentKey {
    let ip: &Ip = &work.inner;
    let (src, dst, id, proto) = (ip.src, ip.dst, ip.fragment_id, ip.proto);
    FragmentKey { scope: work.scope, src, dst, id, proto }
}

/// Finds the flow of a later fragment by the entry of its datagram's first fragment.
#[inline(always)]
fn find(work: &mut Work) -> u32 {
    match fragments(work).find(&key(work), work.now_s) {
        Some(FragmentTarget::Flow { path, stamp, from_initiator }) => {
            let Some(hit) = flows().revisit(path, stamp) else { return SELECT };
            work.hit = hit;
            work.known = true;
            work.from_initiator = from_initiator;
            // Addresses do not always determine the direction: both may be equal.
            let initiator = hit.initiator();
            work.side = if from_initiator { initiator } else { initiator.other() };
            TRACK
        }
        Some(FragmentTarget::Return) => {
            work.verdict = VerdictCounter::Return;
            ENCAP
        }
        None => SELECT,
    }
}

/// Stores the flow for later fragments of this datagram.
#[inline(always)]
fn note(work: &mut Work) -> u32 {
    let hit = &work.hit;
    let target = if work.known {
        let front = if hit.is_front() { Some(hit.stamp) } else { flows().front_stamp(hit) };
        let stamp = front.unwrap_or(hit.stamp);
        FragmentTarget::Flow { path: hit.path, stamp, from_initiator: work.from_initiator }
    } else {
        FragmentTarget::Return
    };
    let table = fragments(work);
    let table = if work.no_fragment_slot { table.with_lifetime(EARLIER_S) } else { table };
    let done = table.remember_as_is(&key(work), target, work.now_s);
    if done == Err(NotKept::Full) && !work.no_fragment_slot {
        // Second attempt, which may reuse entries of an earlier second.
        work.no_fragment_slot = true;
        return REMEMBER;
    }
    let done = done.is_ok();
    work.remembered = true;
    // Without an entry, only the later fragments are lost.
    if !done {
        page().count(Counter::FragmentsUntracked, 1);
    }
    work.then
}
