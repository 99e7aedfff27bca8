//! What an lcore says of familiar headers, it says of them the long way too: for every frame that
//! the cases bring, and for some hundred thousand that are nearly the same.
//!
//! An lcore learns a frame's headers; then it is shown a mutation of the frame. What it knows of
//! the packet afterwards (all that the later stages read) is compared with what the stages up to
//! `classify` find out one by one, which remember nothing. Of a packet that it turned around at
//! once, verdict, exit and every byte are. Mutations come from a fixed seed: a failure names one,
//! and it comes again.

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

/// Mutations of one frame that are made of two others.
const DOUBLE: usize = 400;
/// Failures that are told; more say nothing new.
const TOLD: usize = 12;

/// What was compared.
#[derive(Default)]
struct Tally {
    frames: usize,
    learnt: usize,
    mutations: usize,
    recognised: usize,
    /// Turned around at once.
    turned: usize,
    failed: Vec<String>,
}

/// One lcore, and the burst in which it is shown a frame. What the frame before left in the burst
/// stays there, as it does in the poll loop.
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

    /// What is known of a frame after the loop that may recognise it, and the frame.
    fn open(&mut self, trial: &Trial) -> (Work, Vec<u8>) {
        self.burst.len = 0;
        self.burst.push(trial.frame(), trial.arm, trial.arrival);
        pipeline::open(&mut self.burst, &self.loaded.lcore);
        let frame = self.burst.buffers[0].take().expect("no loop takes it");
        (self.burst.work[0], frame.to_vec())
    }

    /// What the stages find out that remember nothing, and the frame as it came.
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

    /// Shows a frame, and compares.
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

/// Whether the lcore would take the short way.
fn recognises(lcore: &Lcore<'_>, mut frame: Frame, arm: u8) -> bool {
    let generation = lcore.snapshot().generation;
    let (familiar, window) = (lcore.familiar(), frame.window());
    let seen = familiar.recognise(&window, arm, generation, familiar.first());
    seen.is_some_and(|seen| seen.own(&window, &seen.build()).is_ok())
}

/// Which flow an open packet would be of, and which end sent it.
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

/// Teaches `seed` and shows each of `others`, which stand beside what they are called.
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
        // What the mutation may have taught must be true of the frame itself too.
        if let Err(text) = judge.compare(seed, tally) {
            tally.failed.push(format!("\"{claim}\": {seed:?} after {mutation:?} of it\n{text}"));
        }
        if tally.failed.len() > TOLD {
            return;
        }
    }
}

/// Plays the frames of a case that arrive, each against its mutations and all others.
fn judge_case(case: &Case, tally: &mut Tally, rng: &mut Rng) {
    let mut judge = Judge::new(Loaded::new(&case.setup));
    let mut shown: Vec<Trial> = Vec::new();
    for step in &case.steps {
        if let Act::Services(file) = &step.act {
            judge.loaded.change(file);
            // Nothing of what was learnt by the tables before may be said again.
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
    // Else nothing would have been compared but the long way with itself.
    assert!(learnt > 50 && recognised > 50_000, "{learnt} learnt, {recognised} recognised");
    assert!(mutations - recognised > 50_000, "{mutations} compared, {recognised} recognised");
    assert!(turned > 5_000, "{turned} turned around");
}

/// The plane `memory`, on which the lcore has learnt each frame's headers just before it comes.
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
