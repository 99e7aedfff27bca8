//! The packet pipeline: the stages in order, and the loops that run them over a burst.
//!
//! ```text
//!  parse > decap > filter > classify | find        | track > select | encap
//!          returns      prefetches   | prefetches  |                |
//!          unmatched    the flow's   | the flow's  |                |
//!          packets      bucket       | path        |                |
//! ```
//! Each stage examines one packet and sets a [`crate::verdict::Verdict`] if it can decide. Stages
//! neither send nor free packets; [`crate::dispatch`] does so after the last stage. A burst passes
//! through four loops: short loops let the CPU work on several packets at once, and what one loop
//! prefetches is in the cache when the next loop reads it. A packet whose outer headers are cached
//! and that matches no service is returned in the first loop, and a burst of such packets skips the
//! other three.

use crate::burst::{Arrival, Burst, PacketState};
use crate::classify::UnmatchedFilter;
use crate::header_cache::{CachedHeader, HeaderLayout};
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::trace::Stage;
use crate::verdict::{Exit, Verdict};
use crate::{classify, decap, encap, parse, pmtu, select, track};
use packet::window::Window;
use std::ops::Range;
use tables::flow::Hit;
use tables::reason::DropReason;
use tables::record::NONE;

/// Runs a burst through all stages; afterwards each packet has a verdict and an exit.
#[inline(always)]
pub fn run<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    if lcore.is_tracing() {
        return run_traced(burst, lcore);
    }
    loops(burst, lcore, |_| {});
}

/// Like [`run`], but fills in the state of all packets, as captures need it: without the cache of
/// outer headers, by which packets are returned whose state is not written.
#[cold]
#[inline(never)]
pub fn run_uncached<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    if lcore.is_tracing() {
        return run_traced(burst, lcore);
    }
    let filter = UnmatchedFilter::of(lcore);
    burst.each(|buffer, pkt| {
        pkt.reset_flow();
        parse_uncached(buffer, pkt, &filter, lcore);
    });
    find(burst, lcore);
    decide_burst(burst, lcore);
    carry_out(burst, 0..burst.len, lcore);
}

/// The loops, named after the stages that they run.
pub const LOOPS: [&str; 4] = ["parse to classify", "find", "track, select", "encap"];

/// Runs the four loops; calls `after` with the index in [`LOOPS`] of each loop that ran, for
/// measurements.
#[inline(always)]
pub fn loops<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>, mut after: impl FnMut(usize)) {
    let remaining = parse_and_classify(burst, lcore);
    after(0);
    if remaining {
        find(burst, lcore);
        after(1);
        decide_burst(burst, lcore);
        after(2);
        carry_out(burst, 0..burst.len, lcore);
        after(3);
    }
}

/// Parses and classifies the packets of a burst. Returns false if none is left for further stages.
/// Public for the test that compares it with the separate stages.
#[inline(never)]
pub fn parse_and_classify<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) -> bool {
    let (header_cache, generation) = (lcore.header_cache(), lcore.snapshot().generation);
    let filter = UnmatchedFilter::of(lcore);
    let (mut uncached, mut last, mut remaining) = (None, header_cache.first(), false);
    burst.each(|buffer, pkt| {
        let plain = pkt.headers.arrival == Arrival::Plain;
        let window = &mut buffer.window();
        let cached = match plain {
            true => header_cache.lookup(window, pkt.arm, generation, last),
            false => None,
        };
        last = cached.unwrap_or(last);
        let outcome = match cached {
            Some(cached) if cached.is_usual() => parse_usual(window, pkt, cached, &filter, lcore),
            Some(cached) => parse_cached(window, pkt, cached, &filter, lcore),
            None => ParseOutcome::NotCached,
        };
        match outcome {
            ParseOutcome::Returned => return,
            ParseOutcome::Classified => {}
            ParseOutcome::Rejected(reason) => decap::reject(buffer, pkt, reason),
            ParseOutcome::NotCached => {
                parse_uncached(buffer, pkt, &filter, lcore);
                if plain && pkt.headers.arrival != Arrival::Plain {
                    uncached = Some((buffer, pkt));
                }
            }
        }
        remaining = true;
    });
    drop(header_cache);
    // At most one header per burst is cached: caching costs as much as processing two packets.
    if let Some((buffer, pkt)) = uncached {
        lcore.cache_header(&buffer.window(), pkt);
    }
    remaining
}

/// The outcome of parsing a packet by the cache of outer headers.
enum ParseOutcome {
    /// It is sent back to its gateway: its verdict and exit are set, and its other state was not
    /// written.
    Returned,
    /// It is classified and continues with the next stage.
    Classified,
    /// Its inner packet is malformed.
    Rejected(DropReason),
    /// No cache entry matches its headers.
    NotCached,
}

/// Parses a packet with the most frequent header layout, so that all offsets are constants. Returns
/// it to the gateway if it matches no service, else classifies it immediately, while its state is
/// in registers. The inner header is written to memory only if it is needed.
#[inline(always)]
fn parse_usual(
    window: &mut Window<'_>,
    pkt: &mut PacketState,
    cached: &CachedHeader,
    filter: &UnmatchedFilter<'_>,
    lcore: &Lcore<'_>,
) -> ParseOutcome {
    let layout = HeaderLayout::USUAL;
    let Ok(fields) = cached.uncached_fields(window, &layout) else {
        return ParseOutcome::NotCached;
    };
    match decap::parse_inner_packet(window, layout.inner_at, layout.inner_type, fields.end) {
        Ok(inner) if filter.is_unmatched(&inner, &cached.headers) => {
            encap::return_cached(window, pkt, &cached.headers, lcore);
            ParseOutcome::Returned
        }
        Ok(inner) => {
            fields.write(&cached.headers, &mut pkt.headers);
            pkt.inner = inner;
            classify::classify(window, pkt, lcore);
            ParseOutcome::Classified
        }
        Err(reason) => {
            fields.write(&cached.headers, &mut pkt.headers);
            ParseOutcome::Rejected(reason)
        }
    }
}

/// Like [`parse_usual`], for any layout; not inlined, so that the likely path keeps its registers.
/// The inner header is parsed directly into `pkt`: copying what was just written would stall.
#[inline(never)]
fn parse_cached(
    window: &mut Window<'_>,
    pkt: &mut PacketState,
    cached: &CachedHeader,
    filter: &UnmatchedFilter<'_>,
    lcore: &Lcore<'_>,
) -> ParseOutcome {
    let layout = cached.layout();
    let Ok(fields) = cached.uncached_fields(window, &layout) else {
        return ParseOutcome::NotCached;
    };
    let inner = &mut pkt.inner;
    let read =
        decap::read_inner_packet(window, layout.inner_at, layout.inner_type, fields.end, inner);
    if read.is_ok() && filter.is_unmatched(inner, &cached.headers) {
        encap::return_cached(window, pkt, &cached.headers, lcore);
        return ParseOutcome::Returned;
    }
    fields.write(&cached.headers, &mut pkt.headers);
    if let Err(reason) = read {
        return ParseOutcome::Rejected(reason);
    }
    classify::classify(window, pkt, lcore);
    ParseOutcome::Classified
}

/// Parses, decapsulates and classifies a packet whose outer headers are not in the cache.
#[inline(never)]
fn parse_uncached<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    filter: &UnmatchedFilter<'_>,
    lcore: &Lcore<'_>,
) {
    parse::parse(buffer, pkt, lcore);
    decap::decap(buffer, pkt, lcore);
    filter.apply(pkt);
    classify::classify(&buffer.window(), pkt, lcore);
}

/// Looks up the flows and prefetches the records that they refer to.
#[inline(never)]
fn find<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    burst.each(|_, pkt| {
        track::find(pkt, lcore);
        if pkt.hit.is_none() {
            select::lookup_service(pkt, lcore);
        }
    });
}

/// A filter of the key hashes of flows that began in this burst, one bit each. The burst's lookups
/// ran before these flows began and must be repeated for packets that match the filter.
#[derive(Default)]
struct BegunFlows([u64; 4]);

impl BegunFlows {
    #[inline(always)]
    fn add(&mut self, pkt: &PacketState) {
        for hash in [pkt.hash, pkt.back_hash] {
            self.0[hash as usize >> 6 & 3] |= 1 << (hash & 63);
        }
    }

    /// Returns true if a flow whose key has this hash may have begun.
    #[inline(always)]
    fn may_have(&self, hash: u64) -> bool {
        self.0[hash as usize >> 6 & 3] >> (hash & 63) & 1 != 0
    }
}

/// The reason for which [`decide_run`] stopped, with the packet's index.
enum Stop {
    /// Before this packet: a flow may begin with it and evict one that an earlier packet still
    /// reads.
    Before(usize),
    /// After this packet, which has [`PacketState::pending`] changes.
    After(usize),
}

/// Decides on all packets as if each were completed before the next one is examined. A table change
/// that an earlier packet of the burst could still observe in [`carry_out`] is postponed until that
/// packet is completed. Such changes are rare, so that most bursts are decided in a single run.
#[inline(never)]
fn decide_burst<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    let mut begun = BegunFlows::default();
    let (mut from, mut next) = (0, 0);
    while let Some(stop) = decide_run(burst, next, lcore, &mut begun) {
        let (Stop::Before(at) | Stop::After(at)) = stop;
        carry_out(burst, from..at, lcore);
        next = at;
        if let Stop::After(at) = stop {
            apply_pending(burst, at, lcore, &mut begun);
            next = at + 1;
            carry_out(burst, at..next, lcore);
        }
        from = next;
    }
}

/// Decides on the packets from `next` on. A new flow is inserted one packet later: the memory that
/// the insert reads is rarely cached, and is prefetched while the next packet's backend is
/// selected. Packets that could depend on the flow wait for the insert. Returns where it stopped,
/// or `None` at the end of the burst.
#[inline(always)]
fn decide_run<B: Buffer>(
    burst: &mut Burst<B>,
    next: usize,
    lcore: &Lcore<'_>,
    begun: &mut BegunFlows,
) -> Option<Stop> {
    let mut prepared: Option<(&mut B, &mut PacketState)> = None;
    // Whether an earlier packet reads its flow in `carry_out`: a new flow may evict that flow.
    let mut answers = false;
    let packets = burst.buffers[next..burst.len].iter_mut().zip(&mut burst.packets[next..]);
    for (at, (buffer, pkt)) in (next..).zip(packets) {
        let Some(buffer) = buffer else { continue };
        if !pkt.is_undecided() {
            continue;
        }
        let without_flow = pkt.hit.is_none();
        let may_begin = without_flow && pkt.service != NONE;
        if may_begin && answers {
            return Some(Stop::Before(at));
        }
        let has_begun = without_flow && begun.may_have(pkt.hash);
        if let Some((buffer, pkt)) = prepared.take_if(|_| !may_begin || has_begun) {
            select::begin(buffer, pkt, lcore);
        }
        if !has_begun || !track::retrack(buffer, pkt, lcore) {
            decide(buffer, pkt, lcore, begun);
        }
        if pkt.pending == 0 {
            answers |= pkt.verdict == Verdict::Answer;
        } else if pkt.pending == PacketState::NEW_FLOW && !answers {
            if let Some((buffer, previous)) = prepared.take() {
                select::begin(buffer, previous, lcore);
                if previous.frees_ports {
                    select::claim_again(pkt, lcore);
                }
            }
            if pkt.pending != 0 {
                begun.add(pkt);
                prepared = Some((buffer, pkt));
            }
        } else {
            if let Some((buffer, pkt)) = prepared {
                select::begin(buffer, pkt, lcore);
            }
            return Some(Stop::After(at));
        }
    }
    if let Some((buffer, pkt)) = prepared {
        select::begin(buffer, pkt, lcore);
    }
    None
}

/// Applies the pending changes of packet `at`, and repeats the lookups of later packets of its
/// flow.
#[cold]
fn apply_pending<B: Buffer>(
    burst: &mut Burst<B>,
    at: usize,
    lcore: &Lcore<'_>,
    begun: &mut BegunFlows,
) {
    let (decided, later) = burst.packets[..burst.len].split_at_mut(at + 1);
    let (Some(buffer), Some(pkt)) = (&mut burst.buffers[at], decided.last_mut()) else { return };
    let (changed, hash) = (pkt.hit.map(|hit| hit.path), pkt.hash);
    if resolve(buffer, pkt, lcore) {
        begun.add(pkt);
    }
    for pkt in later {
        let same = |hit: Hit| Some(hit.path) == changed || pkt.hash == hash;
        if pkt.is_undecided() && pkt.hit.is_some_and(same) {
            track::find_again(pkt, lcore);
            if pkt.hit.is_none() {
                select::lookup_service(pkt, lcore);
            }
        }
    }
}

/// Applies a packet's pending changes after all earlier packets of its burst are completed. Returns
/// true if a flow began.
#[cold]
fn resolve<B: Buffer>(buffer: &mut B, pkt: &mut PacketState, lcore: &Lcore<'_>) -> bool {
    if pkt.pending & PacketState::LEARN_MTU != 0 {
        pmtu::learn(&buffer.window(), pkt, lcore);
    }
    if pkt.pending & PacketState::UPDATE_LEG != 0 {
        track::change_leg(&buffer.window(), pkt, lcore);
    }
    if pkt.ends_flow() {
        let resets = pkt.pending & PacketState::RESET_FLOW != 0;
        // Selection skips a packet whose flow is yet to end; this flow ends here.
        pkt.pending &= !(PacketState::MOVE_FLOW | PacketState::RESET_FLOW);
        track::end(pkt, lcore, resets);
        select::lookup_service(pkt, lcore);
        select::select(buffer, pkt, lcore);
    }
    if pkt.pending & PacketState::EVICT_PORT != 0 {
        select::claim_or_evict(pkt, lcore);
    }
    let begins = pkt.pending & PacketState::NEW_FLOW != 0;
    if begins {
        select::begin(buffer, pkt, lcore);
    }
    pkt.pending = 0;
    begins
}

/// Performs the actions that were decided on these packets.
#[inline(never)]
fn carry_out<B: Buffer>(burst: &mut Burst<B>, range: Range<usize>, lcore: &Lcore<'_>) {
    let packets = burst.buffers[range.clone()].iter_mut().zip(&mut burst.packets[range]);
    for (buffer, pkt) in packets {
        if pkt.exit == Exit::None
            && let Some(buffer) = buffer
        {
            encap::encap(buffer, pkt, lcore);
        }
    }
}

/// Decides on a packet: by its flow, or as the first packet of a new flow.
#[inline(always)]
fn decide<B: Buffer>(buffer: &mut B, pkt: &mut PacketState, lcore: &Lcore<'_>, begun: &BegunFlows) {
    let known = pkt.hit.is_some();
    track::track(buffer, pkt, lcore);
    if known && pkt.is_undecided() && !restart_flow(buffer, pkt, lcore, begun) {
        return;
    }
    select::select(buffer, pkt, lcore);
}

/// Handles a packet that does not belong to the flow that it matched: looks up its service, as for
/// the first packet of a new flow, and returns true. Returns false if the packet's flow is yet to
/// end: the one that it matched, or one that an earlier packet of the burst has begun since.
#[cold]
fn restart_flow<B: Buffer>(
    buffer: &mut B,
    pkt: &mut PacketState,
    lcore: &Lcore<'_>,
    begun: &BegunFlows,
) -> bool {
    if pkt.ends_flow() {
        return false;
    }
    // An earlier packet of the burst may have begun it again.
    if begun.may_have(pkt.hash) && track::retrack(buffer, pkt, lcore) {
        return false;
    }
    select::lookup_service(pkt, lcore);
    true
}

/// The pipeline for traces: stage by stage up to classification, then each packet through all
/// further stages.
#[cold]
fn run_traced<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    burst.each(|buffer, pkt| {
        pkt.reset_flow();
        parse::parse(buffer, pkt, lcore);
    });
    burst.each(|buffer, pkt| decap::decap(buffer, pkt, lcore));
    lcore.trace(burst, Stage::Decap);
    let filter = UnmatchedFilter::of(lcore);
    burst.each(|_, pkt| filter.apply(pkt));
    burst.each(|buffer, pkt| classify::classify(&buffer.window(), pkt, lcore));
    lcore.trace(burst, Stage::Classify);
    burst.each(|buffer, pkt| {
        track::find(pkt, lcore);
        track::track(buffer, pkt, lcore);
        lcore.trace_packet(pkt, Stage::Track);
        if !pkt.ends_flow() {
            select::lookup_service(pkt, lcore);
            select::select(buffer, pkt, lcore);
        }
        resolve(buffer, pkt, lcore);
        lcore.trace_packet(pkt, Stage::Select);
        encap::encap(buffer, pkt, lcore);
        lcore.trace_packet(pkt, Stage::Encap);
    });
    lcore.trace_done();
}
