//! The packet's journey: the stages in order, and nothing else.
//!
//! Each stage is one plain loop over the burst and leaves a [`crate::verdict::Verdict`] where it
//! can decide. No stage sends or frees: [`crate::lcore`] does that when the list is through.

use crate::burst::Burst;
use crate::lcore::Lcore;
use crate::port::Buffer;
use crate::trace::Stage;
use crate::{classify, decap, encap, parse, select, track};

/// Takes a burst through all stages; afterwards each packet has a verdict and an exit.
pub fn run<B: Buffer>(burst: &mut Burst<B>, lcore: &Lcore<'_>) {
    parse::parse(burst, lcore.macs());
    lcore.trace(burst, Stage::Parse);

    decap::decap(burst, lcore);
    lcore.trace(burst, Stage::Decap);

    classify::classify(burst, lcore);
    lcore.trace(burst, Stage::Classify);

    track::track(burst, lcore);
    lcore.trace(burst, Stage::Track);

    select::select(burst, lcore);
    lcore.trace(burst, Stage::Select);

    encap::encap(burst, lcore);
    lcore.trace(burst, Stage::Encap);
}
