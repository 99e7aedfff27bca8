//! The packet pipeline: the stages in order, and nothing else.
//!
//! ```text
//!  parse > decap > sift > classify | find        | track > select | encap
//!          returns    prefetches   | prefetches  |                |
//!          unmatched  the flow's   | the flow's  |                |
//!          packets    bucket       | path        |                |
//! ```
//! Each stage examines one packet and sets a [`crate::verdict::Verdict`] if it can decide. Stages
//! neither send nor free packets; [`crate::lcore`] does so after the last stage. A burst passes
//! through four loops: short loops let the CPU work on several packets at once, and what one loop
//! prefetches is in the cache when the next loop reads it. A packet whose outer headers are cached
//! and that matches no service is returned in the first loop, and a burst of such packets skips the
//! other three.

use crate::burst::{Arrival, Burst, Work};
use crate::classify::Strangers;
use crate::familiar::{Build, Seen};
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
        return traced(burst, lcore);
    }
    loops(burst, lcore, |_| {});
}

/// The loops, named after the stages that they run.
pub const LOOPS: [&str; 4] = ["parse to classify", "find", "track, select", "encap"];

/// Runs the four loops; calls `after` with each loop's index in [`LOOPS`], for measurements.
#[inline(always)]
pub fn loops<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>, mut after: impl FnMut(usize)) {
    let left = open(burst, lcore);
    after(0);
    if left {
        find(burst, lcore);
        after(1);
        settle(burst, lcore);
        after(2);
        carry_out(burst, 0..burst.len, lcore);
        after(3);
    }
}

/// Parses and classifies the packets of a burst. Returns false if none is left for further stages.
/// Public for the test that compares it with the separate stages.
#[inline(never)]
pub fn open<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) -> bool {
    let (familiar, generation) = (lcore.familiar(), lcore.snapshot().generation);
    let strangers = Strangers::of(lcore);
    let (mut strange, mut last, mut left) = (None, familiar.first(), false);
    burst.each(|buffer, work| {
        let plain = work.front.arrival == Arrival::Plain;
        let window = &mut buffer.window();
        let known = match plain {
            true => familiar.recognise(window, work.arm, generation, last),
            false => None,
        };
        last = known.unwrap_or(last);
        let opened = match known {
            Some(seen) if seen.is_usual() => open_usual(window, work, seen, &strangers, lcore),
            Some(seen) => open_familiar(window, work, seen, &strangers, lcore),
            None => Opened::Strange,
        };
        match opened {
            Opened::Through => return,
            Opened::Left => {}
            Opened::Refused(reason) => decap::refuse(buffer, work, reason),
            Opened::Strange => {
                unfamiliar(buffer, work, &strangers, lcore);
                if plain && work.front.arrival != Arrival::Plain {
                    strange = Some((buffer, work));
                }
            }
        }
        left = true;
    });
    drop(familiar);
    // At most one per burst: learning costs as much as two packets.
    if let Some((buffer, work)) = strange {
        lcore.learn(&buffer.window(), work);
    }
    left
}

/// The outcome of opening a packet whose outer headers are in the cache.
enum Opened {
    /// It was sent back in place, and its other state was not written.
    Through,
    /// It is classified and continues with the next stage.
    Left,
    /// It cannot be opened.
    Refused(DropReason),
    /// Its headers do not match the cache entry.
    Strange,
}

/// Opens a packet with the most frequent header layout, so that all offsets are constants. Sends
/// it back to the gateway if it matches no service, else classifies it immediately, while its state
/// is in registers. The inner header is written to memory only if it is needed.
#[inline(always)]
fn open_usual(
    window: &mut Window<'_>,
    work: &mut Work,
    seen: &Seen,
    strangers: &Strangers<'_>,
    lcore: &Lcore<'_>,
) -> Opened {
    let build = Build::USUAL;
    let Ok(own) = seen.own(window, &build) else { return Opened::Strange };
    match decap::inner(window, build.inner_at, build.inner_type, own.end) {
        Ok(inner) if strangers.meet_in(&inner, &seen.front) => {
            encap::turn_around(window, work, &seen.front, lcore);
            Opened::Through
        }
        Ok(inner) => {
            own.write(&seen.front, &mut work.front);
            work.inner = inner;
            classify::classify(window, work, lcore);
            Opened::Left
        }
        Err(reason) => {
            own.write(&seen.front, &mut work.front);
            Opened::Refused(reason)
        }
    }
}

/// Like [`open_usual`], for any layout; not inlined, so that the likely path keeps its registers.
/// The inner header is parsed directly into `work`: copying what was just written would stall.
#[inline(never)]
fn open_familiar(
    window: &mut Window<'_>,
    work: &mut Work,
    seen: &Seen,
    strangers: &Strangers<'_>,
    lcore: &Lcore<'_>,
) -> Opened {
    let build = seen.build();
    let Ok(own) = seen.own(window, &build) else { return Opened::Strange };
    let inner = &mut work.inner;
    let read = decap::inner_to(window, build.inner_at, build.inner_type, own.end, inner);
    if read.is_ok() && strangers.meet_in(inner, &seen.front) {
        encap::turn_around(window, work, &seen.front, lcore);
        return Opened::Through;
    }
    own.write(&seen.front, &mut work.front);
    if let Err(reason) = read {
        return Opened::Refused(reason);
    }
    classify::classify(window, work, lcore);
    Opened::Left
}

/// Parses, decapsulates and classifies a packet whose outer headers are not in the cache.
#[inline(never)]
fn unfamiliar<B: Buffer>(
    buffer: &mut B,
    work: &mut Work,
    strangers: &Strangers<'_>,
    lcore: &Lcore<'_>,
) {
    parse::parse(buffer, work, lcore);
    decap::decap(buffer, work, lcore);
    strangers.sift(work);
    classify::classify(&buffer.window(), work, lcore);
}

/// Looks up the flows and prefetches the records that they refer to.
#[inline(never)]
fn find<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    burst.each(|_, work| {
        track::find(work, lcore);
        if work.hit.is_none() {
            select::look_up(work, lcore);
        }
    });
}

/// The key hashes of flows that began in this burst, one bit each: the burst's lookups precede
/// them.
#[derive(Default)]
struct Begun([u64; 4]);

impl Begun {
    #[inline(always)]
    fn add(&mut self, work: &Work) {
        for hash in [work.hash, work.back_hash] {
            self.0[hash as usize >> 6 & 3] |= 1 << (hash & 63);
        }
    }

    /// Returns true if a flow whose key has this hash may have begun.
    #[inline(always)]
    fn may_have(&self, hash: u64) -> bool {
        self.0[hash as usize >> 6 & 3] >> (hash & 63) & 1 != 0
    }
}

/// The reason for which [`decide_row`] stopped, with the packet's index.
enum Stop {
    /// Before this packet: a flow may begin with it and evict one that an earlier packet still
    /// reads.
    Before(usize),
    /// After this packet, which has [`Work::pending`] changes.
    Behind(usize),
}

/// Decides on all packets as if each were completed before the next one is examined. A table change
/// that an earlier packet of the burst could still observe in [`carry_out`] is postponed until that
/// packet is completed. Such changes are rare, so that most bursts are decided in a single run.
#[inline(never)]
fn settle<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    let mut begun = Begun::default();
    let (mut from, mut next) = (0, 0);
    while let Some(stop) = decide_row(burst, next, lcore, &mut begun) {
        let (Stop::Before(at) | Stop::Behind(at)) = stop;
        carry_out(burst, from..at, lcore);
        next = at;
        if let Stop::Behind(at) = stop {
            change(burst, at, lcore, &mut begun);
            next = at + 1;
            carry_out(burst, at..next, lcore);
        }
        from = next;
    }
}

/// Decides on the packets from `next` on. A new flow is inserted one packet later: the memory that
/// the insert reads is rarely cached, and is prefetched while the next packet's backend is
/// selected. Packets that could depend on the flow wait for the insert.
#[inline(always)]
fn decide_row<B: Buffer>(
    burst: &mut Burst<B>,
    next: usize,
    lcore: &Lcore<'_>,
    begun: &mut Begun,
) -> Option<Stop> {
    let mut prepared: Option<(&mut B, &mut Work)> = None;
    // Whether an earlier packet reads its flow when it is carried out: a new flow may evict that.
    let mut answers = false;
    let packets = burst.buffers[next..burst.len].iter_mut().zip(&mut burst.work[next..]);
    for (at, (buffer, work)) in (next..).zip(packets) {
        let Some(buffer) = buffer else { continue };
        if !work.open() {
            continue;
        }
        let unknown = work.hit.is_none();
        let begins_too = unknown && work.service != NONE;
        if begins_too && answers {
            return Some(Stop::Before(at));
        }
        let again = unknown && begun.may_have(work.hash);
        if let Some((buffer, work)) = prepared.take_if(|_| !begins_too || again) {
            select::begin(buffer, work, lcore);
        }
        if !again || !track::again(buffer, work, lcore) {
            decide(buffer, work, lcore, begun);
        }
        if work.pending == 0 {
            answers |= work.verdict == Verdict::Answer;
        } else if work.pending == Work::BEGINS && !answers {
            if let Some((buffer, before)) = prepared.take() {
                select::begin(buffer, before, lcore);
                if before.frees_ports {
                    select::claim_again(work, lcore);
                }
            }
            if work.pending != 0 {
                begun.add(work);
                prepared = Some((buffer, work));
            }
        } else {
            if let Some((buffer, work)) = prepared {
                select::begin(buffer, work, lcore);
            }
            return Some(Stop::Behind(at));
        }
    }
    if let Some((buffer, work)) = prepared {
        select::begin(buffer, work, lcore);
    }
    None
}

/// Applies the pending changes of packet `at`, and repeats the lookups of later packets of its
/// flow.
#[cold]
fn change<B: Buffer>(burst: &mut Burst<B>, at: usize, lcore: &Lcore<'_>, begun: &mut Begun) {
    let (these, later) = burst.work[..burst.len].split_at_mut(at + 1);
    let (Some(buffer), Some(work)) = (&mut burst.buffers[at], these.last_mut()) else { return };
    let (changed, hash) = (work.hit.map(|hit| hit.path), work.hash);
    if resolve(buffer, work, lcore) {
        begun.add(work);
    }
    for work in later {
        let same = |hit: Hit| Some(hit.path) == changed || work.hash == hash;
        if work.open() && work.hit.is_some_and(same) {
            track::find_again(work, lcore);
            if work.hit.is_none() {
                select::look_up(work, lcore);
            }
        }
    }
}

/// Applies a packet's pending changes after all earlier packets of its burst are completed. Returns
/// true if a flow began.
#[cold]
fn resolve<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) -> bool {
    if work.pending & Work::LEARNS != 0 {
        pmtu::learn(&buffer.window(), work, lcore);
    }
    if work.pending & Work::LEG != 0 {
        track::change_leg(&buffer.window(), work, lcore);
    }
    if work.ends_flow() {
        let resets = work.pending & Work::RESETS != 0;
        // Selection skips a packet whose flow is yet to end; this flow ends here.
        work.pending &= !(Work::MOVES | Work::RESETS);
        track::end(work, lcore, resets);
        select::look_up(work, lcore);
        select::select(buffer, work, lcore);
    }
    if work.pending & Work::EVICTS != 0 {
        select::evict(work, lcore);
    }
    let begins = work.pending & Work::BEGINS != 0;
    if begins {
        select::begin(buffer, work, lcore);
    }
    work.pending = 0;
    begins
}

/// Performs the actions that were decided on these packets.
#[inline(never)]
fn carry_out<B: Buffer>(burst: &mut Burst<B>, range: Range<usize>, lcore: &Lcore<'_>) {
    let packets = burst.buffers[range.clone()].iter_mut().zip(&mut burst.work[range]);
    for (buffer, work) in packets {
        if work.exit == Exit::None
            && let Some(buffer) = buffer
        {
            encap::encap(buffer, work, lcore);
        }
    }
}

#[inline(always)]
fn decide<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>, begun: &Begun) {
    let known = work.hit.is_some();
    track::track(buffer, work, lcore);
    if known && work.open() && !renew(buffer, work, lcore, begun) {
        return;
    }
    select::select(buffer, work, lcore);
}

/// Handles a packet that no longer belongs to the flow that it matched: if the flow has ended, the
/// packet is treated as the first of a new one. Returns false while the flow is yet to end.
#[cold]
fn renew<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>, begun: &Begun) -> bool {
    if work.ends_flow() {
        return false;
    }
    // An earlier packet of the burst may have begun it again.
    if begun.may_have(work.hash) && track::again(buffer, work, lcore) {
        return false;
    }
    select::look_up(work, lcore);
    true
}

/// The pipeline for traces: stage by stage up to classification, then each packet through all
/// further stages.
#[cold]
fn traced<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    burst.each(|buffer, work| {
        work.begin_flow();
        parse::parse(buffer, work, lcore);
    });
    burst.each(|buffer, work| decap::decap(buffer, work, lcore));
    lcore.trace(burst, Stage::Decap);
    let strangers = Strangers::of(lcore);
    burst.each(|_, work| strangers.sift(work));
    burst.each(|buffer, work| classify::classify(&buffer.window(), work, lcore));
    lcore.trace(burst, Stage::Classify);
    burst.each(|buffer, work| {
        track::find(work, lcore);
        track::track(buffer, work, lcore);
        lcore.trace_packet(work, Stage::Track);
        if !work.ends_flow() {
            select::look_up(work, lcore);
            select::select(buffer, work, lcore);
        }
        resolve(buffer, work, lcore);
        lcore.trace_packet(work, Stage::Select);
        encap::encap(buffer, work, lcore);
        lcore.trace_packet(work, Stage::Encap);
    });
    lcore.trace_done();
}
