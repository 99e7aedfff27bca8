//! The main scenario of `make demo`: every claim must hold.

use std::error::Error;
use std::time::Duration;
use tests::lab::scenario::{self, Plan};
use tests::lab::topology::Lab;

#[test]
fn no_packet_is_lost_with_both_gateways_and_changing_backends() -> Result<(), Box<dyn Error>> {
    let mut lab = Lab::new(&["web-1", "web-2", "web-3", "web-4"])?;
    let plan = Plan {
        requests: 1_500,
        pause: Duration::from_millis(5),
        report_interval: Duration::from_secs(1),
    };
    let outcome = scenario::run(&mut lab, plan, &mut |progress| {
        println!("{:.1?} {}", progress.elapsed, progress.step);
    })?;
    let claims = outcome.claims();
    claims.iter().for_each(|claim| println!("{} {}", claim.holds, claim.text));
    assert!(claims.iter().all(|claim| claim.holds), "{:#?}\n{outcome:#?}", claims);
    Ok(())
}
