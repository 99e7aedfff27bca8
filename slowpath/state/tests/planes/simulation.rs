//! Lifetimes of an appliance: changes, faults, and restarts. A restart keeps the maps; the tables
//! are written again.
//!
//! Each lifetime is determined by its seed. `SIMULATION_SEED=7 cargo test -p state --test planes`
//! replays one lifetime; `SIMULATIONS=10000` sets the number of lifetimes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fixture::model::Model;
use crate::fixture::{Fixture, ops};
use fastrand::Rng;
use state::address::Address;
use state::dump::Record;
use state::plane::Plane;

/// Default number of lifetimes.
const LIFETIMES: u64 = 60;

#[test]
fn maps_converge_in_random_lifetimes() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match number("SIMULATION_SEED") {
        Some(seed) => run_lifetime(seed),
        None => (1..=number("SIMULATIONS").unwrap_or(LIFETIMES)).for_each(run_lifetime),
    }
}

/// Guard that prints the seed of a lifetime when it is dropped during a panic.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("reproduce with: SIMULATION_SEED={seed} cargo test -p state --test planes");
        }
    }
}

/// Runs a lifetime with one to four restarts.
fn run_lifetime(seed: u64) {
    let seed_on_panic = Seed(seed);
    let rng = &mut Rng::with_seed(seed);
    let (mut fixture, mut model) = (Fixture::new(), Model::default());
    for _ in 0..1 + rng.usize(..4) {
        work(&mut fixture, &mut model, rng);
        if rng.u32(..2) == 0 {
            fixture.settle();
            fixture.assert_is(&model);
        }
        fixture = restart(fixture, &mut model, rng);
    }
    drop(seed_on_panic);
}

/// Makes random changes and steps, with random fault rates.
fn work(fixture: &mut Fixture, model: &mut Model, rng: &mut Rng) {
    for _ in 0..rng.usize(..60) {
        fixture.plane.maps_mut().per_mille = [0, 10, 100, 500][rng.usize(..4)];
        ops::change(fixture, model, rng.u64(..));
        // The reconciler may observe several changes in one step.
        for _ in 0..rng.usize(..3) {
            fixture.step();
        }
    }
}

/// Restarts the process in any state. While it is stopped, sources change; afterwards they write
/// their lists to the new process one after the other.
fn restart(fixture: Fixture, model: &mut Model, rng: &mut Rng) -> Fixture {
    let before = identifiers(&fixture);
    let lines_before = fixture.lines();
    let mut fixture = fixture.restart();
    assert_eq!(fixture.lines(), lines_before, "attaching to the maps changes nothing");
    change_while_stopped(model, rng);
    fixture.appliance.addresses = model.addresses.clone();
    fixture.plane.set_addresses(model.addresses.clone());
    fixture.plane.maps_mut().per_mille = [0, 100][rng.usize(..2)];

    let sources: BTreeMap<u8, _> =
        (0..3).map(|n| (n, fixture.writer.register_initializer(&format!("source-{n}")))).collect();
    fixture.steps();
    assert_eq!(fixture.lines(), lines_before, "nothing is written before all sources are complete");
    let mut remaining: Vec<u8> = sources.keys().copied().collect();
    let passes_timeout = rng.u32(..3) == 0;
    while !remaining.is_empty() {
        let source = remaining.swap_remove(rng.usize(..remaining.len()));
        fixture.write(|to| {
            for number in 0..ops::SERVICES {
                match source {
                    2 => ops::write_service(model, number, to),
                    from => ops::write_backends(model, number, from, to),
                }
            }
            to.complete(&sources[&source]);
        });
        if passes_timeout {
            fixture.advance(Duration::from_secs(61));
        }
        fixture.steps();
    }
    fixture.write(|to| ops::write_health(model, to));
    fixture.settle();
    fixture.assert_is(model);
    let after = identifiers(&fixture);
    for (address, id) in &before {
        // At an address of the appliance, a frontend and a copy of a wildcard may have replaced
        // each other, and then the identifier differs.
        let own = ops::OWN_ADDRESSES.contains(&address.prefix.addr.to_string().as_str());
        if !own && after.contains_key(address) {
            assert_eq!(after[address], *id, "{address} has another identifier");
        }
    }
    fixture
}

/// Applies changes to the model only, as if sources changed while no process runs.
fn change_while_stopped(model: &mut Model, rng: &mut Rng) {
    let mut scratch = Fixture::new();
    scratch.write(|to| {
        for number in 0..ops::SERVICES {
            ops::write_service(model, number, to);
            ops::write_backends(model, number, 0, to);
            ops::write_backends(model, number, 1, to);
        }
        ops::write_health(model, to);
    });
    for _ in 0..rng.usize(..4) {
        ops::change(&mut scratch, model, rng.u64(..));
    }
}

/// Returns the identifier of each frontend.
fn identifiers(fixture: &Fixture) -> BTreeMap<Address, u32> {
    let records = fixture.plane.dump().into_iter();
    let of = |record| match record {
        Record::Service { id, address, .. } => Some((address, id)),
        _ => None,
    };
    records.filter_map(of).collect()
}

#[test]
fn crash_at_any_write_is_repaired_by_the_next_process() {
    for crash in 0..200 {
        let mut rng = Rng::with_seed(crash);
        let (mut fixture, mut model) = (Fixture::new(), Model::default());
        for _ in 0..10 {
            ops::change(&mut fixture, &mut model, rng.u64(..));
        }
        fixture.steps();
        for _ in 0..5 {
            ops::change(&mut fixture, &mut model, rng.u64(..));
        }
        // After this number of writes, all writes fail.
        fixture.plane.maps_mut().maps.crash_after(crash % 40);
        fixture.step();
        let mut fixture = fixture.restart();
        fixture.plane.maps_mut().maps.recover();
        fixture.plane.set_addresses(model.addresses.clone());
        fixture.write(|to| {
            for number in 0..ops::SERVICES {
                ops::write_service(&model, number, to);
                ops::write_backends(&model, number, 0, to);
                ops::write_backends(&model, number, 1, to);
            }
            ops::write_health(&model, to);
        });
        fixture.settle();
        fixture.assert_is(&model);
    }
}
