//! 100,000 packets, well-formed and broken, of which both planes make the same: the pipeline in
//! memory and the kernel's program send the same bytes by the same ports, count the same and keep
//! the same flows.
//!
//! The pipeline takes them as bursts of 1 to 64, and the kernel one by one.
//!
//! Every set-up of the cases has its share. Frames come in an order that a seed decides: the
//! cases' own, such as are nearly the same, requests of a few clients, and answers to what left.
//! Flows live on between frames, so that what one plane does otherwise shows in later frames too.

#![expect(clippy::panic, reason = "a test that can't be set up fails")]

mod malformed;
mod nearly {
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

use fastrand::Rng;
use nearly::both::{Both, Came, Exception};
use nearly::mutation::{self, Mutation, Trial};
use nearly::{seeds, traffic};
use planes::xdp::DEVICES;
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use tables::counters::VerdictCounter;
use tests::cases::world::EGRESS;
use tests::cases::{self, Act, Case, Exit, Setup, setups};
use tests::lab::netns::Netns;

/// Frames that are shown, at least.
const FRAMES: usize = 100_000;
/// What decides which ones.
const SEED: u64 = 0x5745_4952;
/// Of these, frames of each set-up in which nothing but traffic comes, so that flows grow old.
const TRAFFIC: usize = 2_500;
/// Frames of the longest burst; the pipeline takes it as bursts of its own size.
const LONGEST: usize = 64;
/// Frames that are remembered, to be changed or answered.
const REMEMBERED: usize = 24;
/// Flows of an act that brings many.
const MANY: u16 = 150;
/// Failures that are told; more say nothing new.
const TOLD: usize = 12;
/// Drop reasons that must have occurred: else frames would be too much alike to prove anything.
const REASONS: usize = 20;

/// The run: both planes, and what has been shown to them.
struct Run {
    both: Both,
    /// Another one can be asked for: `WEIR_SEED=1 cargo test -p tests --test agreement`.
    seed: u64,
    rng: Rng,
    shown: usize,
    /// Frames of the burst that is being shown, unless something ends it earlier.
    burst: usize,
    arrived: VecDeque<Trial>,
    left: VecDeque<(Exit, Vec<u8>)>,
    failed: Vec<String>,
}

impl Run {
    fn new(both: Both) -> Run {
        let seed = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(SEED);
        Run {
            both,
            seed,
            rng: Rng::with_seed(seed),
            shown: 0,
            burst: 1,
            arrived: VecDeque::new(),
            left: VecDeque::new(),
            failed: Vec::new(),
        }
    }

    /// Shows one frame. `None` when the planes differ from here on.
    fn show(&mut self, mutation: &Mutation, trial: Trial) -> Option<()> {
        self.shown += 1;
        match self.both.show(&trial) {
            Ok(came) => self.remember(trial, came),
            Err(text) => return self.fail(&format!("{mutation:?}: {text}")),
        }
        match self.both.burst_len() >= self.burst {
            true => self.end_burst(),
            false => Some(()),
        }
    }

    /// Ends the burst, and decides how long the next one is.
    fn end_burst(&mut self) -> Option<()> {
        self.burst = match self.rng.usize(..4) {
            0 => 1,
            1 => 2 + self.rng.usize(..7),
            _ => 1 + self.rng.usize(..LONGEST),
        };
        self.both.end_burst().or_else(|text| self.fail(&text).ok_or(())).ok()
    }

    fn fail(&mut self, text: &str) -> Option<()> {
        self.failed.push(format!("frame {} of seed {}: {text}", self.shown, self.seed));
        None
    }

    fn remember(&mut self, trial: Trial, came: Came) {
        self.arrived.push_back(trial);
        // What goes back to a gateway is by far most, and answered least.
        let often = self.shown.is_multiple_of(4);
        self.left.extend(came.into_iter().filter(|(exit, _)| often || *exit == Exit::Port(EGRESS)));
        while self.arrived.len() > REMEMBERED {
            self.arrived.pop_front();
        }
        while self.left.len() > REMEMBERED {
            self.left.pop_front();
        }
    }

    /// What comes next: of every kind something, most of it whole.
    fn next(&mut self, setup: &Setup, nearly: &[(Mutation, Trial)]) -> (Mutation, Trial) {
        let Run { rng, arrived, left, .. } = self;
        let what = rng.usize(..16);
        let one = rng.usize(..arrived.len().max(1));
        let before = arrived.get(one);
        let whole = |trial| (Mutation::Another, trial);
        let changed =
            |mutation: Mutation| before.map(|trial| (mutation.clone(), mutation.of(trial)));
        let found = match what {
            0..4 => {
                let answered = left.get(rng.usize(..left.len().max(1)));
                answered.and_then(|(exit, frame)| traffic::answer(*exit, frame, rng)).map(whole)
            }
            4..6 => before.cloned().map(whole),
            6..11 if !nearly.is_empty() => Some(nearly[rng.usize(..nearly.len())].clone()),
            11 => changed(Mutation::OtherArmsOwn),
            12 => {
                let at = rng.usize(..before.map_or(1, |trial| trial.bytes.len().max(1)));
                changed(Mutation::Mended(Box::new(Mutation::Bit(at, rng.u8(..8)))))
            }
            13 => before
                .zip(arrived.back())
                .and_then(|(seed, other)| mutation::splices(seed, other).nth(rng.usize(..112))),
            _ => None,
        };
        found.unwrap_or_else(|| whole(traffic::request(setup, rng)))
    }

    /// Shows `count` frames of all kinds; now and then time passes.
    fn mix(&mut self, setup: &Setup, nearly: &[(Mutation, Trial)], count: usize) -> Option<()> {
        for _ in 0..count {
            if self.rng.usize(..100) == 0 {
                self.end_burst()?;
                let most = [3, 15, 140][self.rng.usize(..3)];
                self.both.advance_s(1 + self.rng.usize(..most) as u32);
            }
            let (mutation, trial) = self.next(setup, nearly);
            self.show(&mutation, trial)?;
        }
        self.end_burst()
    }

    /// A case's frames, behind each of them `share` others.
    fn play(&mut self, case: &Case, share: usize) -> Option<()> {
        for step in &case.steps {
            self.end_burst()?;
            match &step.act {
                Act::Services(file) => self.both.change(file),
                Act::Wait(seconds) => self.both.advance_s(*seconds),
                Act::Until { arm, make, .. } | Act::Flood { arm, make, .. } => {
                    for n in 0..MANY {
                        self.show(&Mutation::Another, traffic::arrives(*arm, make(n).bytes()))?;
                    }
                }
                _ => {}
            }
            let Some(seed) = seeds::shown_by(&step.act) else { continue };
            self.show(&Mutation::Another, seed.clone())?;
            let single = mutation::all(&seed, &mut self.rng);
            let double = mutation::double(&single, share / 4, &mut self.rng);
            let chosen = single.into_iter().take(share).chain(double);
            let nearly: Vec<(Mutation, Trial)> = chosen.map(|m| (m.clone(), m.of(&seed))).collect();
            self.mix(&case.setup, &nearly, share)?;
        }
        self.end_burst()
    }

    /// A set-up's tables, and then `frames`.
    fn with(&mut self, setup: &Setup, frames: impl FnOnce(&mut Run) -> Option<()>) {
        if self.failed.len() > TOLD {
            return;
        }
        self.both.load(setup);
        self.arrived.clear();
        self.left.clear();
        // What differs is among the failures.
        let _ = frames(self);
        self.both.close();
    }
}

fn run() -> Run {
    let all: Vec<Case> = seeds::cases().into_iter().chain(cases::all()).collect();
    let mut run = Run::new(Both::new(&all[0].setup));
    let usual = setups::usual();
    for setup in &usual {
        run.with(setup, |run| run.mix(setup, &[], TRAFFIC));
    }
    let share = (FRAMES - usual.len() * TRAFFIC).div_ceil(all.len());
    for case in &all {
        let steps = case.steps.iter().filter_map(|step| seeds::shown_by(&step.act)).count();
        run.with(&case.setup, |run| run.play(case, share.div_ceil(steps.max(1))));
    }
    run
}

#[test]
fn both_planes_agree_on_100_000_packets() -> Result<(), Box<dyn Error>> {
    let namespace = Netns::new("agreement")?;
    let lines = DEVICES.map(|device| format!("link add {device} type veth peer {device}-far"));
    namespace.ip(&lines.each_ref().map(String::as_str))?;
    let run = namespace.run(run)?;
    let Run { both, shown, failed, .. } = run;
    let began = |start: &str| {
        let spread = both.spread.iter().filter(|(name, n)| name.starts_with(start) && **n > 0);
        spread.map(|(name, n)| (name.clone(), *n)).collect::<BTreeMap<String, u64>>()
    };
    let (verdicts, drops) = (began("verdict "), began("drop "));
    println!("{shown} frames; {} flows compared; {verdicts:?}", both.flows);
    println!("{} reasons: {drops:?}; exceptions: {:?}", drops.len(), both.exceptions);
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
    assert!(shown >= FRAMES, "only {shown} frames");
    // Each exception is rare, or it would hide what it is not meant for.
    let allowed: usize = both.exceptions.values().sum();
    assert!(allowed * 100 < shown, "{allowed} of {shown}: {:?}", both.exceptions);
    assert!(both.exceptions.contains_key(&Exception::OuterSum), "no outer checksum was asked for");
    // Frames that all went one way would prove nothing.
    assert_eq!(verdicts.len(), VerdictCounter::ALL.len(), "{verdicts:?}");
    assert!(verdicts.values().all(|n| *n >= 100), "{verdicts:?}");
    assert!(drops.len() >= REASONS, "{drops:?}");
    Ok(())
}
