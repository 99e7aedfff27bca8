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
use crate::verdict::Exit;
use crate::{classify, decap, encap, parse, select, track};
use packet::window::Window;
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
        carry_out(burst, lcore);
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

/// Decides. A flow that begins is inserted one packet later: what the insert reads is in no cache
/// as a rule, and is on its way while the next packet's backend is chosen. Whatever could depend on
/// the flow waits for the insert.
#[inline(never)]
fn settle<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    let mut prepared: Option<(&mut B, &mut Work)> = None;
    // Of the hashes of flows that began in this burst a bit each: the look-ups went before them.
    let (mut begun, bit) = (0_u128, |work: &Work| 1 << (work.hash & 127));
    burst.each(|buffer, work| {
        if !work.open() {
            return;
        }
        let begins_too = work.hit.is_none() && work.service != NONE;
        let same = |other: &mut (&mut B, &mut Work)| other.1.hash == work.hash;
        if let Some((buffer, work)) = prepared.take_if(|other| !begins_too || same(other)) {
            select::begin(buffer, work, lcore);
        }
        if begins_too && begun & bit(work) != 0 {
            track::again(buffer, work, lcore);
        }
        decide(buffer, work, lcore);
        if work.begins {
            begun |= bit(work);
            if let Some((buffer, work)) = prepared.replace((buffer, work)) {
                select::begin(buffer, work, lcore);
            }
        }
    });
    if let Some((buffer, work)) = prepared {
        select::begin(buffer, work, lcore);
    }
}

/// Carries it out.
#[inline(never)]
fn carry_out<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    burst.each(|buffer, work| {
        if work.exit == Exit::None {
            encap::encap(buffer, work, lcore);
        }
    });
}

#[inline(always)]
fn decide<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) {
    let known = work.hit.is_some();
    track::track(buffer, work, lcore);
    if known {
        // Where the flow's backend is gone, the packet is as good as a new one.
        select::look_up(work, lcore);
    }
    select::select(buffer, work, lcore);
}

/// The same the long way and stage by stage, for a trace.
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
    find(burst, lcore);
    burst.each(|buffer, work| track::track(buffer, work, lcore));
    lcore.trace(burst, Stage::Track);
    burst.each(|_, work| select::look_up(work, lcore));
    burst.each(|buffer, work| {
        select::select(buffer, work, lcore);
        if work.begins {
            select::begin(buffer, work, lcore);
        }
    });
    lcore.trace(burst, Stage::Select);
    burst.each(|buffer, work| encap::encap(buffer, work, lcore));
    lcore.trace(burst, Stage::Encap);
}
