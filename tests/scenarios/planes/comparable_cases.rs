//! Runs the cases of which both planes have the same outcome.

use super::differences::find_difference;
use tests::cases::{self, Plane};

/// Runs all cases, and returns for each what `observe` finds on the plane. On the XDP programs, the
/// cases with a known difference run as well, but are left out.
pub fn run_all<P: Plane, T>(plane: &mut P, observe: impl Fn(&P) -> T) -> Vec<(&'static str, T)> {
    let mut observed = Vec::new();
    for case in cases::all() {
        let done = cases::run(&case, plane);
        let known = find_difference(case.claim).filter(|_| plane.name() == "xdp");
        if let Some(known) = known {
            println!("{}: not compared: {}", case.claim, known.because);
            continue;
        }
        done.unwrap_or_else(|text| panic!("{text}"));
        observed.push((case.claim, observe(plane)));
    }
    observed
}
