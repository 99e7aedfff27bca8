//! Histories that follow from their seeds: the schedule of what happens, and the loop that checks
//! that an appliance left alone is ready and an appliance told to leave is gone in time.

use fastrand::Rng;

/// Plays histories, one for each seed from 1 on, after those of `pinned` seeds, which went wrong
/// once. `SIMULATION_SEED=7` plays a single one again, `SIMULATIONS=100000` as many. A history that
/// goes wrong says which seed it had, and `test`, the test's package and name for cargo.
#[expect(clippy::expect_used, reason = "a variable of the environment that is no number")]
pub fn play(test: &str, pinned: &[u64], histories: u64, history: impl Fn(&mut Rng)) {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().expect("a number"))
    };
    let (pinned, seeds) = match number("SIMULATION_SEED") {
        Some(seed) => (&[][..], seed..=seed),
        None => (pinned, 1..=number("SIMULATIONS").unwrap_or(histories)),
    };
    for seed in pinned.iter().copied().chain(seeds) {
        let told = Seed { seed, test };
        history(&mut Rng::with_seed(seed));
        drop(told);
    }
}

/// Prints the seed of a history that goes wrong.
struct Seed<'a> {
    seed: u64,
    test: &'a str,
}

impl Drop for Seed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("play it again: SIMULATION_SEED={} cargo test -p {}", self.seed, self.test);
        }
    }
}

/// An appliance at a cloud, as a history drives it.
pub trait World {
    /// The appliance begins.
    fn begin(&mut self, rng: &mut Rng);
    /// A second of everything passes.
    fn second(&mut self, rng: &mut Rng);
    /// The appliance can take traffic or can't from now on.
    fn turn(&mut self, able: impl FnOnce(bool, &mut Rng) -> bool, rng: &mut Rng);
    /// Somebody interferes, or the cloud's weather changes.
    fn disturb(&mut self, rng: &mut Rng);
    /// What happens now and then at this cloud alone, the process's end among it.
    fn happen(&mut self, rng: &mut Rng);
    /// SIGTERM.
    fn signal(&mut self, rng: &mut Rng);
    /// Nobody interferes any more; in the end the appliance is ready.
    fn stay(&mut self, rng: &mut Rng);
    /// Something has the appliance leave.
    fn leave(&mut self, rng: &mut Rng);
    /// Whether what has it leave is still to come: SIGTERM does.
    fn lacks_signal(&self) -> bool;
    /// Whether it has left, which is checked, or the machine is gone.
    fn is_over(&mut self) -> bool;
}

/// A history: trouble, perhaps peace, and the way out, on which as much may go wrong.
pub fn live(world: &mut impl World, rng: &mut Rng) {
    let meddling = rng.u32(..2) == 0;
    world.begin(rng);
    for _ in 0..rng.u64(..500) {
        // More often than not it is able.
        maybe(rng, 15, |rng| world.turn(|able, rng| !able || rng.u32(..3) == 0, rng));
        maybe(rng, if meddling { 40 } else { 0 }, |rng| world.disturb(rng));
        world.happen(rng);
        world.second(rng);
        if world.is_over() {
            return;
        }
    }
    maybe(rng, 2, |rng| world.stay(rng));
    world.leave(rng);
    let impatient = rng.u32(..4) == 0;
    for _ in 0..1000 {
        if world.is_over() {
            return;
        }
        if world.lacks_signal() || impatient && rng.u32(..60) == 0 {
            world.signal(rng);
        }
        maybe(rng, 30, |rng| world.turn(|able, _| !able, rng));
        maybe(rng, if meddling { 20 } else { 0 }, |rng| world.disturb(rng));
        world.second(rng);
    }
    assert!(world.is_over(), "it never ends");
}

/// Does it once in so many times; 0 is never.
fn maybe(rng: &mut Rng, times: u32, act: impl FnOnce(&mut Rng)) {
    if times > 0 && rng.u32(..times) == 0 {
        act(rng);
    }
}
