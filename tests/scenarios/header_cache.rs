//! The header cache gives the same result as the stages without a cache: for every frame of the
//! cases, and for some hundred thousand mutations of these frames.
//!
//! An lcore caches a frame's headers; then it receives a mutation of the frame. The resulting
//! packet state (all that the later stages read) is compared with the result of the stages up to
//! `classify`, which use no cache. For a packet that it returns immediately, verdict, exit and
//! every byte are compared. A fixed seed selects the mutations, so that a reported failure is
//! reproducible.

#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod differential {
    pub mod mutation;
    pub mod seeds;
}
mod planes {
    pub mod loaded;
    pub mod memory;
}

use differential::mutation::{self, Mutation, Trial};
use differential::seeds;
use fastpath::burst::{Arrival, Burst, PacketState};
use fastpath::classify::UnmatchedFilter;
use fastpath::lcore::Lcore;
use fastpath::port::Buffer;
use fastpath::port::memory::{Frame, HEADROOM};
use fastpath::{classify, decap, encap, parse, pipeline, verdict};
use fastrand::Rng;
use packet::flow::{FlowKey, Side};
use planes::loaded::Loaded;
use planes::memory::Memory;
use tests::cases::{self, Act, Case, Change, Counts, Exit, Plane, Setup};

/// The number of mutations per frame that combine two others.
const DOUBLE: usize = 400;
/// The maximum number of failures printed.
const MAX_REPORTED: usize = 12;

/// Counts of the comparisons.
#[derive(Default)]
struct Tally {
    frames: usize,
    cached: usize,
    mutations: usize,
    hits: usize,
    /// Packets that the cached headers sufficed to return to their gateway.
    returned: usize,
    failed: Vec<String>,
}

/// One lcore, and the burst for its frames. As in the poll loop, the burst is reused and contains
/// data of the previous frame.
struct Comparison {
    loaded: Loaded,
    burst: Burst<Frame>,
}

impl Comparison {
    fn new(loaded: Loaded) -> Comparison {
        Comparison { loaded, burst: Burst::default() }
    }

    fn lcore(&self) -> &Lcore<'static> {
        &self.loaded.lcore
    }

    /// Passes a frame through the stages that look up and fill the cache; returns packet state and
    /// frame.
    fn cached(&mut self, trial: &Trial) -> (PacketState, Vec<u8>) {
        self.burst.len = 0;
        self.burst.push(trial.frame(), trial.arm, trial.arrival);
        pipeline::parse_and_classify(&mut self.burst, &self.loaded.lcore);
        let frame = self.burst.buffers[0].take().expect("the stage accepts no packet");
        (self.burst.packets[0], frame.to_vec())
    }

    /// Passes a frame through the stages without a cache; returns packet state and frame.
    fn uncached(&self, trial: &Trial) -> (PacketState, Frame) {
        let (mut frame, mut work) = (trial.frame(), PacketState::default());
        work.reset(trial.arm, trial.arrival);
        parse::parse(&mut frame, &mut work, self.lcore());
        decap::decap(&mut frame, &mut work, self.lcore());
        UnmatchedFilter::of(self.lcore()).apply(&mut work);
        classify::classify(&frame.window(), &mut work, self.lcore());
        (work, frame)
    }

    fn is_cached(&self, trial: &Trial) -> bool {
        trial.arrival == Arrival::Plain && is_cached(self.lcore(), trial.frame(), trial.arm)
    }

    /// Passes a frame through the stages with and without the cache, and compares the results.
    fn compare(&mut self, trial: &Trial, tally: &mut Tally) -> Result<(), String> {
        tally.mutations += 1;
        tally.hits += usize::from(self.is_cached(trial));
        let (mut expected, mut frame) = self.uncached(trial);
        let (found, bytes) = self.cached(trial);
        let same = if found.exit == verdict::Exit::None {
            expected.headers == found.headers
                && expected.inner == found.inner
                && (!expected.is_undecided() || flow_of(&expected) == flow_of(&found))
        } else {
            tally.returned += 1;
            encap::encap(&mut frame, &mut expected, self.lcore());
            frame.to_vec() == bytes
        };
        let decided = (expected.verdict, expected.exit) == (found.verdict, found.exit);
        if same && decided { Ok(()) } else { Err(difference(&expected, &found)) }
    }
}

/// Returns whether the lcore finds the headers in its cache.
fn is_cached(lcore: &Lcore<'_>, mut frame: Frame, arm: u8) -> bool {
    let generation = lcore.snapshot().generation;
    let (cache, window) = (lcore.header_cache(), frame.window());
    let entry = cache.lookup(&window, arm, generation, cache.first());
    entry.is_some_and(|entry| entry.uncached_fields(&window, &entry.layout()).is_ok())
}

/// Returns the flow key, its hash and the sending end of a packet that is not decided yet.
fn flow_of(work: &PacketState) -> Option<(FlowKey, u64, Side)> {
    (work.hash != 0).then_some((work.key, work.hash, work.side))
}

fn difference(expected: &PacketState, found: &PacketState) -> String {
    format!(
        "  full parser: {:?}\n    {:?}\n    {:?}\n  header cache: {:?}\n    {:?}\n    {:?}",
        expected.verdict,
        expected.headers,
        expected.inner,
        found.verdict,
        found.headers,
        found.inner
    )
}

impl Trial {
    fn frame(&self) -> Frame {
        Frame::split(&self.bytes, self.first, HEADROOM)
    }
}

/// Caches the headers of `seed`, and compares each of `others`, a mutation and the mutated frame.
fn prime_and_compare<'a>(
    comparison: &mut Comparison,
    seed: &Trial,
    others: impl Iterator<Item = (Mutation, Trial)> + 'a,
    claim: &str,
    tally: &mut Tally,
) {
    for (mutation, trial) in others {
        comparison.cached(seed);
        if let Err(text) = comparison.compare(&trial, tally) {
            tally.failed.push(format!("\"{claim}\": {mutation:?} of {seed:?}\n{text}"));
        }
        // Headers that the mutation put into the cache must be valid for the frame itself too.
        if let Err(text) = comparison.compare(seed, tally) {
            tally.failed.push(format!("\"{claim}\": {seed:?} after {mutation:?} of it\n{text}"));
        }
        if tally.failed.len() > MAX_REPORTED {
            return;
        }
    }
}

/// Compares the frames of a case: each with its mutations and with all earlier frames in the cache.
fn compare_case(case: &Case, tally: &mut Tally, rng: &mut Rng) {
    let mut comparison = Comparison::new(Loaded::new(&case.setup));
    let mut earlier: Vec<Trial> = Vec::new();
    for step in &case.steps {
        if let Act::Change(change) = &step.act {
            comparison.loaded.apply(change);
            // Headers that were cached with the previous tables must not be used again.
            for trial in &earlier {
                if let Err(text) = comparison.compare(trial, tally) {
                    tally.failed.push(format!("\"{}\": {trial:?} later\n{text}", case.claim));
                }
            }
        }
        let Some(seed) = seeds::first_frame(&step.act) else { continue };
        if earlier.contains(&seed) {
            continue;
        }
        tally.frames += 1;
        comparison.cached(&seed);
        let cached = comparison.is_cached(&seed);
        tally.cached += usize::from(cached);
        for other in &earlier {
            let splices = mutation::splices(&seed, other);
            prime_and_compare(&mut comparison, &seed, splices, case.claim, tally);
            let complete = std::iter::once((Mutation::Another, other.clone()));
            prime_and_compare(&mut comparison, &seed, complete, case.claim, tally);
        }
        let single = mutation::all(&seed, rng);
        let double = mutation::double(&single, DOUBLE, rng);
        let few = single.len() / 16;
        let single = single.into_iter().take(if cached { usize::MAX } else { few });
        let mutated = single.chain(double).map(|m| {
            let trial = m.apply_to(&seed);
            (m, trial)
        });
        prime_and_compare(&mut comparison, &seed, mutated, case.claim, tally);
        earlier.push(seed);
    }
}

#[test]
fn cached_headers_are_handled_like_uncached_ones() {
    let (mut tally, mut rng) = (Tally::default(), Rng::with_seed(0x5745_4952));
    for case in seeds::cases().iter().chain(&cases::all()) {
        compare_case(case, &mut tally, &mut rng);
        if tally.failed.len() > MAX_REPORTED {
            break;
        }
    }
    let Tally { frames, cached, mutations, hits, returned, failed } = tally;
    println!(
        "{frames} frames, {cached} cached; {mutations} comparisons, {hits} hits, {returned} \
         returned"
    );
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
    // With few hits, the uncached stages would only have been compared with themselves.
    assert!(cached > 50 && hits > 50_000, "{cached} cached, {hits} hits");
    assert!(mutations - hits > 50_000, "{mutations} compared, {hits} hits");
    assert!(returned > 5_000, "{returned} returned");
}

/// The plane `memory`, whose lcore caches each frame's headers just before the frame arrives.
struct PrimedMemory {
    memory: Memory,
    hits: usize,
}

impl PrimedMemory {
    /// Caches a frame's headers.
    fn prime(&mut self, arm: u8, frame: &Frame) {
        let lcore = &self.memory.loaded().lcore;
        let mut burst = Burst::default();
        burst.push(frame.clone(), arm, Arrival::Plain);
        pipeline::parse_and_classify(&mut burst, lcore);
        self.hits += usize::from(is_cached(lcore, frame.clone(), arm));
    }
}

impl Plane for PrimedMemory {
    fn name(&self) -> &str {
        "memory, cached headers"
    }

    fn load(&mut self, setup: &Setup) {
        self.memory.load(setup);
    }

    fn change(&mut self, change: &Change) {
        self.memory.change(change);
    }

    fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        self.prime(arm, &Frame::new(frame));
        self.memory.send(arm, frame)
    }

    fn send_split(&mut self, arm: u8, frame: &[u8], first: usize) -> Vec<(Exit, Vec<u8>)> {
        self.prime(arm, &Frame::split(frame, first, HEADROOM));
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
fn every_case_passes_with_cached_headers() {
    let mut plane = PrimedMemory { memory: Memory::new(), hits: 0 };
    let all = cases::all();
    let failed: Vec<String> =
        all.iter().filter_map(|case| cases::run(case, &mut plane).err()).collect();
    println!("{} cases, {} header cache hits, {} failed", all.len(), plane.hits, failed.len());
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
    assert!(plane.hits > 100, "only {} header cache hits", plane.hits);
}
