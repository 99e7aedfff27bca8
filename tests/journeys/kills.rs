//! Daemons killed under load: what must not be lost, and what must not move.

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::lab::client::Seen;
use tests::lab::gateway::{Check, Setup};
use tests::lab::journey::{Totals, Wires, at_rest, restless, service};
use tests::lab::settings::Settings;
use tests::lab::topology::Lab;
use tests::lab::traffic::Traffic;
use tests::lab::weir::Weir;

type Outcome = Result<(), Box<dyn Error>>;

/// One at a time: two poll loops on two cores would measure each other.
static ALONE: Mutex<()> = Mutex::new(());

const PAUSE: Duration = Duration::from_millis(5);

/// Nobody failed, nobody was moved.
#[track_caller]
fn all_went_on(clients: &[(&str, Seen)]) {
    for (name, seen) in clients {
        println!("{name}: {seen}");
        assert!(seen.right > 0 && seen.failed == 0 && seen.moved == 0, "{name}: {seen}");
    }
}

#[test]
fn slowpath_killed_under_load_loses_nothing_and_moves_nothing() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1", "web-2", "web-3"])?;
    let gateway = lab.aws_gateway(restless())?;
    let two = [service(&lab, &[(0, "active"), (1, "active")])];
    let mut weir = Weir::start(&lab, &Settings::default(), &two)?;
    let (before, wires) = (Totals::now(&weir)?, Wires::now(&lab)?);
    let traffic = Traffic::start(&lab, PAUSE)?;
    traffic.until(300)?;
    weir.kill_slowpath()?;
    // What the operator changes meanwhile is found at the restart.
    traffic.until(600)?;
    weir.change_services(&[service(&lab, &[(0, "active"), (1, "active"), (2, "active")])])?;
    traffic.until(800)?;
    weir.start_slowpath()?;
    weir.wait_until_able()?;
    weir.wait_for_generation(1)?;
    traffic.until(1_500)?;
    let clients = traffic.finish()?;
    all_went_on(&clients);
    let third: u64 = clients.iter().filter_map(|(_, seen)| seen.by_backend.get("web-3")).sum();
    assert!(third > 0, "the change of the file took effect after the restart");
    let report = gateway.stop()?;
    assert!(report.clean() && report.returned > 0 && report.answered > 0, "{report}");
    let (totals, frames) = at_rest(&lab, &mut weir, &before, &wires)?;
    println!("{totals}");
    assert_eq!(totals.sides().0, totals.sides().1, "{totals}");
    assert_eq!((frames.to_weir, frames.from_weir), (totals.rx, totals.tx));
    weir.stop()?;
    Ok(())
}

#[test]
fn fastpath_killed_under_load_moves_no_flow_and_connections_go_on() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1", "web-2", "web-3"])?;
    let gateway = lab.aws_gateway(Setup { patience: Duration::from_secs(5), ..restless() })?;
    let all = [service(&lab, &[(0, "active"), (1, "active"), (2, "active")])];
    let mut weir = Weir::start(&lab, &Settings::default(), &all)?;
    let traffic = Traffic::start(&lab, PAUSE)?;
    traffic.until(500)?;
    let killed = Instant::now();
    weir.kill_fastpath()?;
    weir.start_fastpath()?;
    let before = traffic.answered();
    traffic.until(before + 1)?;
    println!("the gap, from SIGKILL to the next answered request: {:.0?}", killed.elapsed());
    weir.wait_until_able()?;
    traffic.until(1_500)?;
    let clients = traffic.finish()?;
    all_went_on(&clients);
    let report = gateway.stop()?;
    println!("{report}");
    // What was on the wire during the gap is lost; all that came back came back right.
    let lost = report.failed(Check::Lost);
    let wrong: u64 = report.failures.values().map(|failure| failure.count).sum();
    assert!(lost > 0, "the gap was noticed: {report}");
    assert_eq!(wrong, lost, "{report}");
    weir.stop()?;
    Ok(())
}

#[test]
fn a_drained_poll_loop_loses_nothing_that_it_received() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new(&["web-1"])?;
    let gateway = lab.aws_gateway(Setup { patience: Duration::from_secs(5), ..restless() })?;
    let mut weir = Weir::start(&lab, &Settings::default(), &[service(&lab, &[(0, "active")])])?;
    let before = Totals::now(&weir)?;
    let traffic = Traffic::start(&lab, PAUSE)?;
    traffic.until(300)?;
    let process = weir.fastpath.take().ok_or("no fastpath")?;
    process.stop(Duration::from_secs(10))?;
    let totals = Totals::now(&weir)?.since(&before);
    println!("{totals}");
    assert_eq!(totals.sides().0, totals.sides().1, "{totals}");
    weir.start_fastpath()?;
    weir.wait_until_able()?;
    traffic.until(600)?;
    all_went_on(&traffic.finish()?);
    let report = gateway.stop()?;
    let wrong: u64 = report.failures.values().map(|failure| failure.count).sum();
    assert_eq!(wrong, report.failed(Check::Lost), "{report}");
    Ok(())
}
