//! Random histories of an appliance at a cloud, reproducible by seed: the schedule of events, and
//! the checks that an undisturbed appliance becomes ready and that a leaving one ends in time.

use fastrand::Rng;

/// Runs the histories of the seeds from 1 to `histories`. `SIMULATION_SEED=7` in the environment
/// runs that seed only, `SIMULATIONS=100000` that many. For a failing history the command that
/// repeats it is printed; `test` is the package and the name of the test for cargo.
#[expect(clippy::expect_used, reason = "an environment variable that is not a number")]
pub fn run_histories(test: &str, histories: u64, history: impl Fn(&mut Rng)) {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().expect("SIMULATION_SEED and SIMULATIONS are numbers"))
    };
    let seeds = match number("SIMULATION_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("SIMULATIONS").unwrap_or(histories),
    };
    for seed in seeds {
        let printed_on_failure = Seed { seed, test };
        history(&mut Rng::with_seed(seed));
        drop(printed_on_failure);
    }
}

/// Prints the seed if the history panics.
struct Seed<'a> {
    seed: u64,
    test: &'a str,
}

impl Drop for Seed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay: SIMULATION_SEED={} cargo test -p {}", self.seed, self.test);
        }
    }
}

/// An appliance at a cloud, as driven by a history.
pub trait Scenario {
    /// Starts the appliance.
    fn start(&mut self, rng: &mut Rng);
    /// Advances the appliance, the cloud and the clock by a second.
    fn tick(&mut self, rng: &mut Rng);
    /// Changes whether the appliance can take traffic: `able` converts the current value to the
    /// next.
    fn set_able(&mut self, able: impl FnOnce(bool, &mut Rng) -> bool, rng: &mut Rng);
    /// Lets another party interfere, or changes the cloud's reliability.
    fn disturb(&mut self, rng: &mut Rng);
    /// Performs random events specific to this cloud, including the end of the process.
    fn random_events(&mut self, rng: &mut Rng);
    /// Sends SIGTERM.
    fn signal(&mut self, rng: &mut Rng);
    /// Ends all interference, and checks that the appliance becomes ready.
    fn settle(&mut self, rng: &mut Rng);
    /// Makes the appliance leave.
    fn leave(&mut self, rng: &mut Rng);
    /// Returns true if the appliance leaves only after a SIGTERM that is still to be sent.
    fn needs_signal(&self) -> bool;
    /// Returns true if the machine is gone, or if the appliance has left; then also checks what it
    /// left behind.
    fn is_over(&mut self) -> bool;
}

/// Runs a history: disturbances, an optional undisturbed period, then leaving, again with
/// disturbances.
pub fn run_history(scenario: &mut impl Scenario, rng: &mut Rng) {
    let interference = rng.u32(..2) == 0;
    scenario.start(rng);
    for _ in 0..rng.u64(..500) {
        // An appliance that is not able becomes able; an able one stays able in a third of cases.
        maybe(rng, 15, |rng| scenario.set_able(|able, rng| !able || rng.u32(..3) == 0, rng));
        maybe(rng, if interference { 40 } else { 0 }, |rng| scenario.disturb(rng));
        scenario.random_events(rng);
        scenario.tick(rng);
        if scenario.is_over() {
            return;
        }
    }
    maybe(rng, 2, |rng| scenario.settle(rng));
    scenario.leave(rng);
    let impatient = rng.u32(..4) == 0;
    for _ in 0..1000 {
        if scenario.is_over() {
            return;
        }
        if scenario.needs_signal() || impatient && rng.u32(..60) == 0 {
            scenario.signal(rng);
        }
        maybe(rng, 30, |rng| scenario.set_able(|able, _| !able, rng));
        maybe(rng, if interference { 20 } else { 0 }, |rng| scenario.disturb(rng));
        scenario.tick(rng);
    }
    assert!(scenario.is_over(), "the lifecycle did not end");
}

/// Performs an action with a probability of one in `one_in`; never if 0.
fn maybe(rng: &mut Rng, one_in: u32, action: impl FnOnce(&mut Rng)) {
    if one_in > 0 && rng.u32(..one_in) == 0 {
        action(rng);
    }
}
