//! 100,000 packets, well-formed and broken, on which both planes must agree: the pipeline in
//! memory and the XDP programs send the same bytes through the same ports, and have the same
//! counters and flows.
//!
//! The pipeline receives them as bursts of 1 to 64, and the kernel one by one.
//!
//! Every case gets an equal share of the frames, and every default setup gets client traffic in
//! addition. A seed selects the frames and their order: frames of the cases, mutations of them,
//! requests of a few clients, and answers to frames that left. Flows survive between frames, so
//! that a difference between the planes affects later frames too.

#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod malformed;
mod differential {
    pub mod both;
    pub mod malformed;
    pub mod mutation;
    pub mod seeds;
    pub mod traffic;
}
mod planes {
    pub mod loaded;
    pub mod memory;
    pub mod xdp;
}

use differential::both::{Exception, Output, PlanePair};
use differential::mutation::{self, Mutation, Trial};
use differential::{seeds, traffic};
use fastrand::Rng;
use planes::xdp::namespace;
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use tables::counters::VerdictCounter;
use tests::cases::addresses::EGRESS;
use tests::cases::{self, Act, Case, Exit, Setup, setups};

/// The minimum number of frames.
const FRAMES: usize = 100_000;
/// The seed of their selection.
const SEED: u64 = 0x5745_4952;
/// The number of frames of client traffic for each default setup.
const TRAFFIC: usize = 2_500;
/// Frames of the longest burst: the pipeline's maximum.
const LONGEST: usize = 64;
/// The number of recent frames that are kept, to be mutated or answered.
const REMEMBERED: usize = 24;
/// The number of flows that are begun for a step of many flows.
const MANY: u16 = 150;
/// The maximum number of failures printed.
const MAX_REPORTED: usize = 12;
/// The minimum number of drop reasons that must occur; fewer would mean too uniform frames.
const REASONS: usize = 20;

/// The test run: both planes, and the recent frames.
struct Run {
    both: PlanePair,
    /// The seed of the frames, [`SEED`] unless it is set in the environment: `WEIR_SEED=1 cargo
    /// test -p tests --test agreement`.
    seed: u64,
    rng: Rng,
    sent: usize,
    /// Frames of the current burst, unless an event ends it earlier.
    burst: usize,
    arrived: VecDeque<Trial>,
    left: VecDeque<(Exit, Vec<u8>)>,
    failed: Vec<String>,
}

impl Run {
    fn new(both: PlanePair) -> Run {
        let seed = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(SEED);
        Run {
            both,
            seed,
            rng: Rng::with_seed(seed),
            sent: 0,
            burst: 1,
            arrived: VecDeque::new(),
            left: VecDeque::new(),
            failed: Vec::new(),
        }
    }

    /// Passes one frame to both planes. Returns `None` if the planes have diverged.
    fn send(&mut self, mutation: &Mutation, trial: Trial) -> Option<()> {
        self.sent += 1;
        match self.both.send(&trial) {
            Ok(output) => self.remember(trial, output),
            Err(text) => return self.fail(&format!("{mutation:?}: {text}")),
        }
        match self.both.burst_len() >= self.burst {
            true => self.end_burst(),
            false => Some(()),
        }
    }

    /// Ends the burst and selects the length of the next one.
    fn end_burst(&mut self) -> Option<()> {
        self.burst = match self.rng.usize(..4) {
            0 => 1,
            1 => 2 + self.rng.usize(..7),
            _ => 1 + self.rng.usize(..LONGEST),
        };
        self.both.end_burst().or_else(|text| self.fail(&text).ok_or(())).ok()
    }

    /// Records a difference between the planes, and returns `None`.
    fn fail(&mut self, text: &str) -> Option<()> {
        self.failed.push(format!("frame {} of seed {}: {text}", self.sent, self.seed));
        None
    }

    /// Keeps a frame and its outgoing frames, from which later frames are made.
    fn remember(&mut self, trial: Trial, output: Output) {
        self.arrived.push_back(trial);
        // Most frames return to a gateway. Of these, every fourth is kept to be answered.
        let often = self.sent.is_multiple_of(4);
        let some = output.into_iter().filter(|(exit, _)| often || *exit == Exit::Port(EGRESS));
        self.left.extend(some);
        while self.arrived.len() > REMEMBERED {
            self.arrived.pop_front();
        }
        while self.left.len() > REMEMBERED {
            self.left.pop_front();
        }
    }

    /// Selects the next frame: a mix of all kinds, most of them well-formed.
    fn next(&mut self, setup: &Setup, mutated: &[(Mutation, Trial)]) -> (Mutation, Trial) {
        let Run { rng, arrived, left, .. } = self;
        let what = rng.usize(..16);
        let one = rng.usize(..arrived.len().max(1));
        let before = arrived.get(one);
        let another = |trial| (Mutation::Another, trial);
        let changed =
            |mutation: Mutation| before.map(|trial| (mutation.clone(), mutation.apply_to(trial)));
        let found = match what {
            0..4 => {
                let answered = left.get(rng.usize(..left.len().max(1)));
                answered.and_then(|(exit, frame)| traffic::answer(*exit, frame, rng)).map(another)
            }
            4..6 => before.cloned().map(another),
            6..11 if !mutated.is_empty() => Some(mutated[rng.usize(..mutated.len())].clone()),
            11 => changed(Mutation::OtherArmsOwn),
            12 => {
                let at = rng.usize(..before.map_or(1, |trial| trial.bytes.len().max(1)));
                changed(Mutation::WithChecksum(Box::new(Mutation::Bit(at, rng.u8(..8)))))
            }
            13 => before
                .zip(arrived.back())
                .and_then(|(seed, other)| mutation::splices(seed, other).nth(rng.usize(..112))),
            _ => None,
        };
        found.unwrap_or_else(|| another(traffic::request(setup, rng)))
    }

    /// Passes `count` frames of all kinds; at intervals time advances.
    fn mix(&mut self, setup: &Setup, mutated: &[(Mutation, Trial)], count: usize) -> Option<()> {
        for _ in 0..count {
            if self.rng.usize(..100) == 0 {
                self.end_burst()?;
                let max = [3, 15, 140][self.rng.usize(..3)];
                self.both.advance_s(1 + self.rng.usize(..max) as u32);
            }
            let (mutation, trial) = self.next(setup, mutated);
            self.send(&mutation, trial)?;
        }
        self.end_burst()
    }

    /// Passes a case's frames, each followed by `share` frames of all kinds.
    fn run_case(&mut self, case: &Case, share: usize) -> Option<()> {
        for step in &case.steps {
            self.end_burst()?;
            match &step.act {
                Act::Change(change) => self.both.change(change),
                Act::Wait(seconds) => self.both.advance_s(*seconds),
                Act::Until { arm, make, .. } | Act::Flood { arm, make, .. } => {
                    for n in 0..MANY {
                        self.send(&Mutation::Another, traffic::arrives(*arm, make(n).bytes()))?;
                    }
                }
                _ => {}
            }
            let Some(seed) = seeds::first_frame(&step.act) else { continue };
            self.send(&Mutation::Another, seed.clone())?;
            let single = mutation::all(&seed, &mut self.rng);
            let double = mutation::double(&single, share / 4, &mut self.rng);
            let chosen = single.into_iter().take(share).chain(double);
            let mutated: Vec<(Mutation, Trial)> =
                chosen.map(|m| (m.clone(), m.apply_to(&seed))).collect();
            self.mix(&case.setup, &mutated, share)?;
        }
        self.end_burst()
    }

    /// Loads a setup's tables into both planes, and runs `frames`.
    fn with(&mut self, setup: &Setup, frames: impl FnOnce(&mut Run) -> Option<()>) {
        if self.failed.len() > MAX_REPORTED {
            return;
        }
        self.both.load(setup);
        self.arrived.clear();
        self.left.clear();
        // A divergence is already recorded in `failed`.
        let _ = frames(self);
        self.both.end_setup();
    }
}

/// Passes client traffic of the default setups and all cases to both planes.
fn run() -> Run {
    let all: Vec<Case> = seeds::cases().into_iter().chain(cases::all()).collect();
    let mut run = Run::new(PlanePair::new(&all[0].setup));
    let default_setups = setups::default_setups();
    for setup in &default_setups {
        run.with(setup, |run| run.mix(setup, &[], TRAFFIC));
    }
    let share = (FRAMES - default_setups.len() * TRAFFIC).div_ceil(all.len());
    for case in &all {
        let steps = case.steps.iter().filter_map(|step| seeds::first_frame(&step.act)).count();
        run.with(&case.setup, |run| run.run_case(case, share.div_ceil(steps.max(1))));
    }
    run
}

#[test]
fn both_planes_agree_on_100_000_packets() -> Result<(), Box<dyn Error>> {
    let namespace = namespace("agreement")?;
    let run = namespace.run(run)?;
    let Run { both, sent, failed, .. } = run;
    let increased = |start: &str| {
        let sums = both.sums.iter().filter(|(name, n)| name.starts_with(start) && **n > 0);
        sums.map(|(name, n)| (name.clone(), *n)).collect::<BTreeMap<String, u64>>()
    };
    let (verdicts, drops) = (increased("verdict "), increased("drop "));
    println!("{sent} frames; {} flows compared; {verdicts:?}", both.flows);
    println!("{} reasons: {drops:?}; exceptions: {:?}", drops.len(), both.exceptions);
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
    assert!(sent >= FRAMES, "only {sent} frames");
    // Each exception is rare, or it would hide other differences.
    let allowed: usize = both.exceptions.values().sum();
    assert!(allowed * 100 < sent, "{allowed} of {sent}: {:?}", both.exceptions);
    assert!(both.exceptions.contains_key(&Exception::OuterSum), "no service has outer_checksum");
    // Frames that all have the same verdict would prove nothing.
    assert_eq!(verdicts.len(), VerdictCounter::ALL.len(), "{verdicts:?}");
    assert!(verdicts.values().all(|n| *n >= 100), "{verdicts:?}");
    assert!(drops.len() >= REASONS, "{drops:?}");
    Ok(())
}
