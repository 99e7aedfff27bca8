//! Drain, which keeps the sessions, and shutdown, which sends a NOTIFICATION.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use routers::{Frr, wait_for};
use serde_json::{Value, json};

use crate::place::{
    FOUR, Outcome, Over, PATIENCE, Place, Plan, SIX, all_went_well, alone, neighbor, policy,
};
use crate::routes::{
    epoch, frr, path, session, wait_for_path, wait_until_gone, wait_until_in_kernel,
    wait_until_there,
};

const OVER: Over = Over::DataPort;

fn begin(config: &'static str) -> Outcome<(Place, Frr)> {
    let graceful = json!({"graceful_restart": {"enabled": true}});
    let plan = Plan { config, ..Plan::new(policy(&neighbor(OVER, &graceful))) };
    let mut place = Place::new(&plan)?;
    let frr = frr(&place, OVER, &[])?;
    wait_until_there(&mut place, &frr, FOUR)?;
    wait_until_there(&mut place, &frr, SIX)?;
    Ok((place, frr))
}

#[test]
fn a_drain_withdraws_and_serves_on_and_an_undo_brings_routes_back() -> Outcome {
    let _alone = alone();
    let (mut place, frr) = begin("")?;
    let before = epoch(&frr, OVER)?;
    // Packets that still arrive are served.
    place.router.ip(&["route add 203.0.113.0/24 via 10.0.1.10 dev data"])?;
    let client = place.load(400, Duration::from_millis(5))?;
    client.wait_for(50, PATIENCE)?;
    place.command(&["drain"])?;
    wait_until_gone(&mut place, &frr, FOUR)?;
    wait_until_gone(&mut place, &frr, SIX)?;
    assert!(!place.weir.status()?.able);
    all_went_well(&client.finish()?);
    // The drain is a state of the appliance, not of a process.
    place.weir.kill_slowpath()?;
    place.weir.start_slowpath()?;
    stays_away(&mut place, &frr)?;
    let again = epoch(&frr, OVER)?;
    assert_ne!(again, before);
    place.command(&["drain", "--undo"])?;
    wait_until_there(&mut place, &frr, FOUR)?;
    wait_until_there(&mut place, &frr, SIX)?;
    assert_eq!(epoch(&frr, OVER)?, again, "an undone drain is no new session");
    place.asks()
}

fn is_shutting(path: Option<&Value>) -> bool {
    let list = path.and_then(|path| path["community"]["list"].as_array());
    list.into_iter().flatten().any(|word| word == "gracefulShutdown")
}

#[test]
fn a_drain_says_graceful_shutdown_before_it_withdraws() -> Outcome {
    let _alone = alone();
    let (mut place, frr) = begin("[bgp]\ngraceful_shutdown_s = 4\n")?;
    let before = epoch(&frr, OVER)?;
    let begun = Instant::now();
    place.command(&["drain"])?;
    for prefix in [FOUR, SIX] {
        wait_for_path(&mut place, &frr, prefix, "about to go", is_shutting)?;
    }
    let gone = wait_until_gone(&mut place, &frr, FOUR)?;
    wait_until_gone(&mut place, &frr, SIX)?;
    // On a loaded machine the withdrawal may be seen later, but never earlier.
    assert!(gone - begun >= Duration::from_secs(4), "{:?}", gone - begun);
    place.command(&["drain", "--undo"])?;
    for prefix in [FOUR, SIX] {
        let whole = |path: Option<&Value>| path.is_some() && !is_shutting(path);
        wait_for_path(&mut place, &frr, prefix, "as before", whole)?;
    }
    // Undone in the middle: nothing was withdrawn.
    place.command(&["drain"])?;
    wait_for_path(&mut place, &frr, FOUR, "about to go", is_shutting)?;
    place.command(&["drain", "--undo"])?;
    wait_for_path(&mut place, &frr, FOUR, "as before", |path| {
        path.is_some() && !is_shutting(path)
    })?;
    assert_eq!(epoch(&frr, OVER)?, before, "one session all the time");

    // A restart in the middle of a drain announces nothing.
    place.command(&["drain"])?;
    wait_until_gone(&mut place, &frr, FOUR)?;
    place.weir.kill_slowpath()?;
    place.weir.start_slowpath()?;
    stays_away(&mut place, &frr)?;
    place.command(&["drain", "--undo"])?;
    wait_until_there(&mut place, &frr, FOUR)?;
    wait_until_there(&mut place, &frr, SIX)?;
    place.asks()
}

/// Checks that slowpath restarted in a drain: its session is established, without routes for two
/// seconds.
fn stays_away(place: &mut Place, frr: &Frr) -> Outcome {
    wait_for("the session again", PATIENCE, || Ok((epoch(frr, OVER)?.is_some(), String::new())))?;
    place.weir.wait_for("the tables to be in force", PATIENCE, |weir| {
        let now = weir.status()?;
        Ok((now.reasons.len() == 1 && now.reasons[0].contains("draining"), format!("{now:?}")))
    })?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        for prefix in [FOUR, SIX] {
            let said = path(frr, prefix)?;
            assert!(said.is_none(), "{said:?}");
        }
    }
    Ok(())
}

/// Returns whether FRR received the shutdown: a hard reset (RFC 8538) with the content of RFC
/// 9003.
fn heard_the_farewell(frr: &Frr) -> routers::Result<(bool, String)> {
    let said = session(frr, OVER)?;
    let right = said["lastResetDueTo"] == "BGP Notification received"
        && said["lastNotificationHardReset"] == true
        && said["lastNotificationReason"] == "Cease/Administrative Shutdown"
        && said["lastShutdownDescription"] == "this appliance leaves";
    Ok((right && said["bgpState"] != "Established", said.to_string()))
}

#[test]
fn a_stop_withdraws_waits_and_says_why_and_a_second_one_ends_at_once() -> Outcome {
    let _alone = alone();
    let (mut place, frr) = begin("[bgp]\nsettle_s = 3\n")?;
    let mut slowpath = place.weir.slowpath.take().ok_or("no slowpath")?;
    let before = epoch(&frr, OVER)?;
    slowpath.signal(Signal::SIGTERM)?;
    let gone = wait_until_gone(&mut place, &frr, FOUR)?;
    wait_until_gone(&mut place, &frr, SIX)?;
    assert_eq!(epoch(&frr, OVER)?, before, "routers move the traffic while we are there");
    let status = slowpath.wait(PATIENCE)?;
    let took = gone.elapsed();
    assert!(status.success(), "{status}: {}", slowpath.last_words());
    println!("the process ended {took:.1?} after the withdrawal was seen");
    // It was observed a little after it was sent.
    assert!(took >= Duration::from_secs(2), "it waited for routers: {took:?}");
    wait_for("the farewell at FRR", PATIENCE, || heard_the_farewell(&frr))?;
    // A hard reset: no route is kept, although the neighbor supports graceful restart.
    wait_until_gone(&mut place, &frr, FOUR)?;

    place.weir.start_slowpath()?;
    wait_until_there(&mut place, &frr, FOUR)?;
    wait_until_in_kernel(&place, SIX)?;
    place.asks()
}

#[test]
fn a_second_stop_does_not_wait_for_routers() -> Outcome {
    let _alone = alone();
    let (mut place, frr) = begin("[bgp]\nsettle_s = 600\n")?;
    let mut slowpath = place.weir.slowpath.take().ok_or("no slowpath")?;
    slowpath.signal(Signal::SIGTERM)?;
    wait_until_gone(&mut place, &frr, FOUR)?;
    std::thread::sleep(Duration::from_millis(500));
    slowpath.must_live()?;
    slowpath.signal(Signal::SIGTERM)?;
    let status = slowpath.wait(PATIENCE)?;
    assert!(status.success(), "{status}: {}", slowpath.last_words());
    Ok(())
}
