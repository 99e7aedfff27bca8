//! The packet's journey: the stages in order, and nothing else.
//!
//! ```text
//!  parse > decap > sift > classify | find           | track > select | encap
//!          what is    asks the     | asks the cache |                |
//!          returned   cache for    | for the flow's |                |
//!          goes back  the flow     | path           |                |
//! ```
//! Each stage looks at one packet and leaves a [`crate::verdict::Verdict`] where it can decide; no
//! stage sends or frees, [`crate::lcore`] does that when all are through. A burst goes through
//! four loops: short ones let the processor work on several packets at once, and what a look-up
//! asked of the cache is there when the next loop reads it. What is familiar and only to return has
//! its exit after the first one, and a burst of such packets goes through no other.

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

/// Takes a burst through all stages; afterwards each packet has a verdict and an exit.
#[inline(always)]
pub fn run<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    if lcore.is_tracing() {
        return traced(burst, lcore);
    }
    loops(burst, lcore, |_| {});
}

/// The loops by the stages that they run.
pub const LOOPS: [&str; 4] = ["parse to classify", "find", "track, select", "encap"];

/// The four loops; `after` each, its number in [`LOOPS`] is called, to measure.
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

/// What the packets are, and which flows they would be of. False when all of them are through.
/// Public for the test that compares it with the long way.
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
    // One a burst: it costs as much as two packets.
    if let Some((buffer, work)) = strange {
        lcore.learn(&buffer.window(), work);
    }
    left
}

/// What became of a packet behind familiar headers.
enum Opened {
    /// It was turned around, and nothing about it noted down.
    Through,
    /// It is classified, and for the next stages.
    Left,
    /// It can't be opened.
    Refused(DropReason),
    /// Its headers are not that familiar.
    Strange,
}

/// Opens a packet of the build that gateways send by far most often, with all places as constants,
/// and returns it if it is between strangers, else classifies it: at once, while all that it takes
/// is at hand. The inner header stays in registers until it is known to be wanted.
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

/// As [`open_usual`], of any build, out of line, so that the likely way keeps its registers. The
/// inner header is written where it shall stand: a copy of what was written a moment ago would
/// wait for it.
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

/// The long way.
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

/// Looks the flows up, and asks the cache for what they lead to.
#[inline(never)]
fn find<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    burst.each(|_, work| {
        track::find(work, lcore);
        if work.hit.is_none() {
            select::look_up(work, lcore);
        }
    });
}

/// Hashes of the keys of flows that began in this burst, a bit each: its look-ups went before them.
#[derive(Default)]
struct Begun([u64; 4]);

impl Begun {
    #[inline(always)]
    fn add(&mut self, work: &Work) {
        for hash in [work.hash, work.back_hash] {
            self.0[hash as usize >> 6 & 3] |= 1 << (hash & 63);
        }
    }

    /// Whether a flow with a key of this hash may have begun.
    #[inline(always)]
    fn may_have(&self, hash: u64) -> bool {
        self.0[hash as usize >> 6 & 3] >> (hash & 63) & 1 != 0
    }
}

/// Why [`decide_row`] stopped, with the packet's index.
enum Stop {
    /// Before this packet, with which a flow may begin, and another end for it.
    Before(usize),
    /// Behind this packet, which has something [`Work::pending`].
    Behind(usize),
}

/// Decides, so that the outcome is as if each packet were through before the next one is looked at.
/// What a packet changes and an earlier one of the burst still reads ([`carry_out`]) is changed
/// once that is through; so few packets do that, that whole bursts are decided in one row.
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

/// Decides on the packets from `next` on. A flow that begins is inserted one packet later: what the
/// insert reads is in no cache as a rule, and is on its way while the next packet's backend is
/// chosen. Whatever could depend on the flow waits for the insert.
#[inline(always)]
fn decide_row<B: Buffer>(
    burst: &mut Burst<B>,
    next: usize,
    lcore: &Lcore<'_>,
    begun: &mut Begun,
) -> Option<Stop> {
    let mut prepared: Option<(&mut B, &mut Work)> = None;
    // Whether one of them reads its flow when it is carried out. A new flow may evict that.
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

/// Has packet `at` change what it is to change, and later ones of its flow looked up once more.
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

/// Changes what a packet is to change, when all earlier ones of its burst are through. True when a
/// flow began.
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
        // Selection leaves a packet alone whose flow is still to end; this one ends here.
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

/// Carries out what was decided on these packets.
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

/// What becomes of a packet whose flow is not its flow any more: it is as good as a new one, when
/// the flow has ended. False while that is still to end.
#[cold]
fn renew<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>, begun: &Begun) -> bool {
    if work.ends_flow() {
        return false;
    }
    // An earlier packet of the burst may have begun it anew.
    if begun.may_have(work.hash) && track::again(buffer, work, lcore) {
        return false;
    }
    select::look_up(work, lcore);
    true
}

/// The same the long way, for a trace: what the packets are stage by stage, and then each packet
/// through all further stages.
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
