//! Malformed and hostile frames: both planes send the same bytes, have the same counters and flows,
//! and count each frame exactly once.
//!
//! The frames are generated from a seed. `WEIR_SEED=7 cargo test -p tests --test agreement
//! malformed` runs other frames, `WEIR_FRAMES=5000000` that many.

use super::differential::both::{Exception, PlanePair};
use super::differential::malformed::{Fault, Malformed};
use super::differential::traffic;
use super::planes::xdp::namespace;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::error::Error;
use tests::cases::setups;

/// The number of frames, unless `WEIR_FRAMES` is set.
const FRAMES: usize = 250_000;
/// The seed, unless `WEIR_SEED` is set.
const SEED: u64 = 0x006d_616c_666f_726d;
/// One in this many frames is a well-formed request, so that flows exist to which malformed frames
/// belong.
const WELL_FORMED_ONE_IN: usize = 6;
/// Frames per burst, after which counters and flows are compared.
const BURST: usize = 64;
/// The maximum number of failures printed.
const MAX_REPORTED: usize = 8;
/// The minimum number of drop reasons that must occur; fewer would mean too uniform frames.
const REASONS: usize = 16;

/// Returns the number in an environment variable, or `otherwise` if the variable is not set.
fn env_number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")),
        Err(_) => otherwise,
    }
}

#[derive(Default)]
struct Outcome {
    sent: BTreeMap<Option<Fault>, usize>,
    flows: usize,
    sums: BTreeMap<String, u64>,
    exceptions: BTreeMap<Exception, usize>,
    failed: Vec<String>,
}

fn run(seed: u64, frames: usize) -> Outcome {
    let setups = setups::default_setups();
    let mut both = PlanePair::new(&setups[0]);
    let mut rng = Rng::with_seed(seed);
    let mut outcome = Outcome::default();
    for setup in &setups {
        both.load(setup);
        let mut malformed = Malformed::new(setup);
        let last = frames.div_ceil(setups.len());
        for n in 1..=last {
            let waits = rng.usize(..400) == 0;
            let mut ended = Ok(());
            if waits || both.burst_len() >= BURST {
                ended = both.end_burst();
            }
            if waits {
                both.advance_s(1 + rng.u32(..20));
            }
            let (fault, trial) = if rng.usize(..WELL_FORMED_ONE_IN) == 0 {
                (None, traffic::request(setup, &mut rng))
            } else {
                let (fault, trial) = malformed.next(&mut rng);
                (Some(fault), trial)
            };
            *outcome.sent.entry(fault).or_default() += 1;
            if n == last {
                ended = ended.and_then(|()| both.send(&trial)).and_then(|_| both.end_burst());
            } else {
                ended = ended.and_then(|()| both.send(&trial).map(drop));
            }
            if let Err(text) = ended {
                let sent: usize = outcome.sent.values().sum();
                outcome.failed.push(format!("frame {sent} of seed {seed}, {fault:?}: {text}"));
                // The planes' tables have diverged.
                break;
            }
        }
        both.end_setup();
        if outcome.failed.len() > MAX_REPORTED {
            break;
        }
    }
    (outcome.flows, outcome.sums) = (both.flows, both.sums);
    outcome.exceptions = both.exceptions;
    outcome
}

#[test]
fn both_planes_agree_on_malformed_frames_and_count_each_once() -> Result<(), Box<dyn Error>> {
    let seed = env_number("WEIR_SEED", SEED);
    let frames = env_number("WEIR_FRAMES", FRAMES as u64) as usize;
    let namespace = namespace("malformed")?;
    let Outcome { sent, flows, sums, exceptions, failed } =
        namespace.run(move || run(seed, frames))?;
    let drops: BTreeMap<&str, u64> = sums
        .iter()
        .filter_map(|(name, n)| Some((name.strip_prefix("drop ")?, *n)))
        .filter(|(_, n)| *n > 0)
        .collect();
    println!("{sent:?} frames; {flows} flows compared; exceptions {exceptions:?}");
    println!("{} reasons: {drops:?}", drops.len());
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
    let faulty: usize = sent.iter().filter(|(fault, _)| fault.is_some()).map(|(_, n)| n).sum();
    let malformed_share = frames * (WELL_FORMED_ONE_IN - 1) / WELL_FORMED_ONE_IN;
    assert!(faulty * 100 >= malformed_share * 95, "only {faulty} malformed frames");
    for fault in Fault::ALL {
        let count = sent.get(&Some(fault)).copied().unwrap_or_default();
        assert!(count * 25 >= frames, "{fault:?}: only {count} frames");
    }
    // Each exception is rare, or it would hide other differences.
    let allowed: usize = exceptions.values().sum();
    assert!(allowed * 100 < frames, "{allowed} of {frames}: {exceptions:?}");
    assert!(drops.len() >= REASONS, "{drops:?}");
    Ok(())
}
