//! Cached headers give the same result as the stages without a cache: for every frame of the
//! cases, and for some hundred thousand mutations of them.
//!
//! An lcore caches a frame's headers; then it receives a mutation of the frame. The resulting
//! packet state (all that the later stages read) is compared with the result of the stages up to
//! `classify`, which use no cache. For a packet that it returns immediately, verdict, exit and
//! every byte are compared. Mutations come from a fixed seed, so that a reported failure is
//! reproducible.

#![expect(clippy::panic, reason = "a test that can't be set up fails")]

mod nearly {
    pub mod mutation;
    pub mod seeds;
}
mod planes {
    pub mod loaded;
    pub mod memory;
}

use fastpath::burst::{Arrival, Burst, Work};
use fastpath::classify::Strangers;
use fastpath::lcore::Lcore;
use fastpath::port::Buffer;
use fastpath::port::memory::{Frame, HEADROOM};
use fastpath::{classify, decap, encap, parse, pipeline, verdict};
use fastrand::Rng;
use nearly::mutation::{self, Mutation, Trial};
use nearly::seeds;
use packet::flow::{FlowKey, Side};
use planes::loaded::Loaded;
use planes::memory::Memory;
use tests::cases::{self, Act, Case, Counts, Exit, Plane, Setup};

/// Mutations of one frame that combine two others.
const DOUBLE: usize = 400;
/// The maximum number of failures printed.
const TOLD: usize = 12;

/// Counts of the comparisons.
#[derive(Default)]
struct Tally {
    frames: usize,
    learnt: usize,
    mutations: usize,
    recognised: usize,
    /// Returned immediately.
    turned: usize,
    failed: Vec<String>,
}

/// One lcore, and the burst for its frames. Data of the previous frame stays in the burst, as in
/// the poll loop.
struct Judge {
    loaded: Loaded,
    burst: Burst<Frame>,
}

impl Judge {
    fn new(loaded: Loaded) -> Judge {
        Judge { loaded, burst: Burst::default() }
    }

    fn lcore(&self) -> &Lcore<'static> {
        &self.loaded.lcore
    }

    /// Returns the packet state after the loop that uses the cache, and the frame.
    fn open(&mut self, trial: &Trial) -> (Work, Vec<u8>) {
        self.burst.len = 0;
        self.burst.push(trial.frame(), trial.arm, trial.arrival);
        pipeline::open(&mut self.burst, &self.loaded.lcore);
        let frame = self.burst.buffers[0].take().expect("no loop takes it");
        (self.burst.work[0], frame.to_vec())
    }

    /// Returns the result of the stages without a cache, and the frame as it arrived.
    fn long_way(&self, trial: &Trial) -> (Work, Frame) {
        let (mut frame, mut work) = (trial.frame(), Work::default());
        work.begin(trial.arm, trial.arrival);
        parse::parse(&mut frame, &mut work, self.lcore());
        decap::decap(&mut frame, &mut work, self.lcore());
        Strangers::of(self.lcore()).sift(&mut work);
        classify::classify(&frame.window(), &mut work, self.lcore());
        (work, frame)
    }

    fn recognises(&self, trial: &Trial) -> bool {
        trial.arrival == Arrival::Plain && recognises(self.lcore(), trial.frame(), trial.arm)
    }

    /// Passes a frame through both and compares.
    fn compare(&mut self, trial: &Trial, tally: &mut Tally) -> Result<(), String> {
        tally.mutations += 1;
        tally.recognised += usize::from(self.recognises(trial));
        let (mut expected, mut frame) = self.long_way(trial);
        let (found, bytes) = self.open(trial);
        let same = if found.exit == verdict::Exit::None {
            expected.front == found.front
                && expected.inner == found.inner
                && (!expected.open() || flow_of(&expected) == flow_of(&found))
        } else {
            tally.turned += 1;
            encap::encap(&mut frame, &mut expected, self.lcore());
            frame.to_vec() == bytes
        };
        let decided = (expected.verdict, expected.exit) == (found.verdict, found.exit);
        if same && decided { Ok(()) } else { Err(difference(&expected, &found)) }
    }
}

/// Returns whether the lcore finds the headers in its cache.
fn recognises(lcore: &Lcore<'_>, mut frame: Frame, arm: u8) -> bool {
    let generation = lcore.snapshot().generation;
    let (familiar, window) = (lcore.familiar(), frame.window());
    let seen = familiar.recognise(&window, arm, generation, familiar.first());
    seen.is_some_and(|seen| seen.own(&window, &seen.build()).is_ok())
}

/// Returns the flow key, its hash and the sending end of an open packet.
fn flow_of(work: &Work) -> Option<(FlowKey, u64, Side)> {
    (work.hash != 0).then_some((work.key, work.hash, work.side))
}

fn difference(expected: &Work, found: &Work) -> String {
    format!(
        "  the long way: {:?}\n    {:?}\n    {:?}\n  the familiar way: {:?}\n    {:?}\n    {:?}",
        expected.verdict, expected.front, expected.inner, found.verdict, found.front, found.inner
    )
}

impl Trial {
    fn frame(&self) -> Frame {
        Frame::split(&self.bytes, self.first, HEADROOM)
    }
}

/// Caches `seed` and passes each of `others`, which are paired with their mutations.
fn teach_and_show<'a>(
    judge: &mut Judge,
    seed: &Trial,
    others: impl Iterator<Item = (Mutation, Trial)> + 'a,
    claim: &str,
    tally: &mut Tally,
) {
    for (mutation, trial) in others {
        judge.open(seed);
        if let Err(text) = judge.compare(&trial, tally) {
            tally.failed.push(format!("\"{claim}\": {mutation:?} of {seed:?}\n{text}"));
        }
        // Headers that the mutation put into the cache must be valid for the frame itself too.
        if let Err(text) = judge.compare(seed, tally) {
            tally.failed.push(format!("\"{claim}\": {seed:?} after {mutation:?} of it\n{text}"));
        }
        if tally.failed.len() > TOLD {
            return;
        }
    }
}

/// Runs the frames of a case that arrive, each against its mutations and all others.
fn judge_case(case: &Case, tally: &mut Tally, rng: &mut Rng) {
    let mut judge = Judge::new(Loaded::new(&case.setup));
    let mut shown: Vec<Trial> = Vec::new();
    for step in &case.steps {
        if let Act::Services(file) = &step.act {
            judge.loaded.change(file);
            // Headers that were cached with the previous tables must not be used again.
            for trial in &shown {
                if let Err(text) = judge.compare(trial, tally) {
                    tally.failed.push(format!("\"{}\": {trial:?} later\n{text}", case.claim));
                }
            }
        }
        let Some(seed) = seeds::shown_by(&step.act) else { continue };
        if shown.contains(&seed) {
            continue;
        }
        tally.frames += 1;
        judge.open(&seed);
        let learnt = judge.recognises(&seed);
        tally.learnt += usize::from(learnt);
        for other in &shown {
            let splices = mutation::splices(&seed, other);
            teach_and_show(&mut judge, &seed, splices, case.claim, tally);
            let whole = std::iter::once((Mutation::Another, other.clone()));
            teach_and_show(&mut judge, &seed, whole, case.claim, tally);
        }
        let single = mutation::all(&seed, rng);
        let double = mutation::double(&single, DOUBLE, rng);
        let few = single.len() / 16;
        let single = single.into_iter().take(if learnt { usize::MAX } else { few });
        let mutated = single.chain(double).map(|m| {
            let trial = m.of(&seed);
            (m, trial)
        });
        teach_and_show(&mut judge, &seed, mutated, case.claim, tally);
        shown.push(seed);
    }
}

#[test]
fn familiar_headers_are_judged_as_strange_ones_are() {
    let (mut tally, mut rng) = (Tally::default(), Rng::with_seed(0x5745_4952));
    for case in seeds::cases().iter().chain(&cases::all()) {
        judge_case(case, &mut tally, &mut rng);
        if tally.failed.len() > TOLD {
            break;
        }
    }
    let Tally { frames, learnt, mutations, recognised, turned, failed } = tally;
    println!(
        "{frames} frames, {learnt} learnt; {mutations} comparisons, {recognised} familiar, \
         {turned} turned around"
    );
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
    // Otherwise only the uncached stages would have been compared with themselves.
    assert!(learnt > 50 && recognised > 50_000, "{learnt} learnt, {recognised} recognised");
    assert!(mutations - recognised > 50_000, "{mutations} compared, {recognised} recognised");
    assert!(turned > 5_000, "{turned} turned around");
}

/// The plane `memory` whose lcore has cached each frame's headers just before the frame arrives.
struct Taught {
    memory: Memory,
    recognised: usize,
}

impl Taught {
    fn teach(&mut self, arm: u8, frame: &Frame) {
        let lcore = &self.memory.loaded().lcore;
        let mut burst = Burst::default();
        burst.push(frame.clone(), arm, Arrival::Plain);
        pipeline::open(&mut burst, lcore);
        self.recognised += usize::from(recognises(lcore, frame.clone(), arm));
    }
}

impl Plane for Taught {
    fn name(&self) -> &str {
        "memory, headers learnt"
    }

    fn load(&mut self, setup: &Setup) {
        self.memory.load(setup);
    }

    fn change(&mut self, services: &str) {
        self.memory.change(services);
    }

    fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        self.teach(arm, &Frame::new(frame));
        self.memory.send(arm, frame)
    }

    fn send_split(&mut self, arm: u8, frame: &[u8], first: usize) -> Vec<(Exit, Vec<u8>)> {
        self.teach(arm, &Frame::split(frame, first, HEADROOM));
        self.memory.send_split(arm, frame, first)
    }

    fn kernel_sends(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        self.memory.kernel_sends(arm, frame)
    }

    fn advance_s(&mut self, seconds: u32) {
        self.memory.advance_s(seconds);
    }

    fn counts(&self) -> Counts {
        self.memory.counts()
    }
}

#[test]
fn every_case_holds_behind_familiar_headers() {
    let mut plane = Taught { memory: Memory::new(), recognised: 0 };
    let all = cases::all();
    let failed: Vec<String> =
        all.iter().filter_map(|case| cases::run(case, &mut plane).err()).collect();
    println!(
        "{} cases, {} frames recognised, {} failed",
        all.len(),
        plane.recognised,
        failed.len()
    );
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
    assert!(plane.recognised > 100, "only {} frames came the short way", plane.recognised);
}
