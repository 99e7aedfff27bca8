//! The packet's journey: the stages in order, and nothing else.
//!
//! ```text
//!  parse > decap | sift         | classify       | find           | track > select | encap
//!                | what is only | asks the cache | asks the cache |                |
//!                | to return    | for the flow   | for its path   |                |
//! ```
//! Each stage looks at one packet and leaves a [`crate::verdict::Verdict`] where it can decide; no
//! stage sends or frees, [`crate::lcore`] does that when all are through. A burst goes through
//! six loops: short ones let the processor work on several packets at once, and what a look-up
//! asked of the cache is there when the next loop reads it.

use crate::burst::{Arrival, Burst, Work};
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::trace::Stage;
use crate::{classify, decap, encap, parse, select, track};

/// Takes a burst through all stages; afterwards each packet has a verdict and an exit.
#[inline(always)]
pub fn run<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    if lcore.is_tracing() {
        return traced(burst, lcore);
    }
    loops(burst, lcore, |_| {});
}

/// The loops by the stages that they run.
pub const LOOPS: [&str; 6] = ["parse, decap", "sift", "classify", "find", "track, select", "encap"];

/// The six loops; `after` each, its number in [`LOOPS`] is called, to measure.
#[inline(always)]
pub fn loops<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>, mut after: impl FnMut(usize)) {
    open(burst, lcore);
    after(0);
    let left = classify::sift(burst, lcore);
    after(1);
    if left {
        classify(burst, lcore);
        after(2);
        find(burst, lcore);
        after(3);
        settle(burst, lcore);
        after(4);
    }
    carry_out(burst, lcore);
    after(5);
}

/// What the packets are. Public for the test that compares it with the long way.
#[inline(never)]
pub fn open<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    let (familiar, generation) = (lcore.familiar(), lcore.snapshot().generation);
    let (mut strange, mut last) = (None, 0);
    burst.each(|buffer, work| {
        let window = buffer.window();
        let plain = work.front.arrival == Arrival::Plain;
        let known = match plain {
            true => familiar.recognise(&window, work, generation, &mut last),
            false => None,
        };
        if let Some((at, ethertype)) = known {
            if let Err(reason) = decap::inner(&window, work, at, ethertype) {
                decap::refuse(buffer, work, reason);
            }
        } else {
            unfamiliar(buffer, work, lcore);
            if plain && work.front.arrival != Arrival::Plain {
                strange = Some((buffer, work));
            }
        }
    });
    drop(familiar);
    // One a burst: it costs as much as two packets.
    if let Some((buffer, work)) = strange {
        lcore.learn(&buffer.window(), work);
    }
}

/// The long way.
#[inline(never)]
fn unfamiliar<B: Buffer>(buffer: &mut B, work: &mut Work, lcore: &Lcore<'_>) {
    parse::parse(buffer, work, lcore);
    decap::decap(buffer, work, lcore);
}

/// Which flows they would be of.
#[inline(never)]
fn classify<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    burst.each(|buffer, work| classify::classify(buffer, work, lcore));
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

/// Decides.
#[inline(never)]
fn settle<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    burst.each(|buffer, work| {
        if work.open() {
            decide(buffer, work, lcore);
        }
    });
}

/// Carries it out.
#[inline(never)]
fn carry_out<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    burst.each(|buffer, work| encap::encap(buffer, work, lcore));
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
    classify::sift(burst, lcore);
    classify(burst, lcore);
    lcore.trace(burst, Stage::Classify);
    find(burst, lcore);
    burst.each(|buffer, work| track::track(buffer, work, lcore));
    lcore.trace(burst, Stage::Track);
    burst.each(|_, work| select::look_up(work, lcore));
    burst.each(|buffer, work| select::select(buffer, work, lcore));
    lcore.trace(burst, Stage::Select);
    burst.each(|buffer, work| encap::encap(buffer, work, lcore));
    lcore.trace(burst, Stage::Encap);
}
