//! Tests of a drain, which keeps the sessions, and of the shutdown of slowpath, which ends them
//! with a NOTIFICATION.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use routers::{Frr, wait_for};
use serde_json::{Value, json};

use crate::lab::{
    BgpLab, Network, Outcome, PREFIX4, PREFIX6, Plan, TIMEOUT, alone, assert_no_failures, neighbor,
    policy,
};
use crate::routes::{
    frr, path, session, session_number, wait_for_path, wait_until_gone, wait_until_in_kernel,
    wait_until_present,
};

/// The network of the session.
const SESSION_NETWORK: Network = Network::DataPort;

/// Starts the appliance, and FRR with graceful restart, and waits until FRR has both routes.
fn begin(config: &'static str) -> Outcome<(BgpLab, Frr)> {
    let graceful = json!({"graceful_restart": {"enabled": true}});
    let plan = Plan { config, ..Plan::new(policy(&neighbor(SESSION_NETWORK, &graceful))) };
    let mut bgp_lab = BgpLab::new(&plan)?;
    let frr = frr(&bgp_lab, SESSION_NETWORK, &[])?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
    Ok((bgp_lab, frr))
}

#[test]
fn a_drain_withdraws_routes_and_keeps_forwarding_until_undone() -> Outcome {
    let _alone = alone();
    let (mut bgp_lab, frr) = begin("")?;
    let before = session_number(&frr, SESSION_NETWORK)?;
    // The client's packets still arrive by a static route, and are served.
    bgp_lab.router.ip(&["route add 203.0.113.0/24 via 10.0.1.10 dev data"])?;
    let client = bgp_lab.load(400, Duration::from_millis(5))?;
    client.wait_for(50, TIMEOUT)?;
    bgp_lab.command(&["drain"])?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX6)?;
    assert!(!bgp_lab.weir.status()?.able);
    assert_no_failures(&client.finish()?);
    // The drain persists when slowpath restarts.
    bgp_lab.weir.kill_slowpath()?;
    bgp_lab.weir.start_slowpath()?;
    assert_stays_withdrawn(&mut bgp_lab, &frr)?;
    let again = session_number(&frr, SESSION_NETWORK)?;
    assert_ne!(again, before);
    bgp_lab.command(&["drain", "--undo"])?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
    assert_eq!(
        session_number(&frr, SESSION_NETWORK)?,
        again,
        "undoing a drain does not restart the session"
    );
    bgp_lab.check_responses()
}

/// Returns whether a path has the GRACEFUL_SHUTDOWN community.
fn has_graceful_shutdown(path: Option<&Value>) -> bool {
    let list = path.and_then(|path| path["community"]["list"].as_array());
    list.into_iter().flatten().any(|community| community == "gracefulShutdown")
}

#[test]
fn a_drain_sends_graceful_shutdown_before_withdrawing() -> Outcome {
    let _alone = alone();
    let (mut bgp_lab, frr) = begin("[bgp]\ngraceful_shutdown_s = 4\n")?;
    let before = session_number(&frr, SESSION_NETWORK)?;
    let begun = Instant::now();
    bgp_lab.command(&["drain"])?;
    for prefix in [PREFIX4, PREFIX6] {
        wait_for_path(&mut bgp_lab, &frr, prefix, "GRACEFUL_SHUTDOWN", has_graceful_shutdown)?;
    }
    let gone = wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX6)?;
    // On a loaded machine the withdrawal may be observed later, but never earlier.
    assert!(gone - begun >= Duration::from_secs(4), "{:?}", gone - begun);
    bgp_lab.command(&["drain", "--undo"])?;
    for prefix in [PREFIX4, PREFIX6] {
        let plain = |path: Option<&Value>| path.is_some() && !has_graceful_shutdown(path);
        wait_for_path(&mut bgp_lab, &frr, prefix, "without GRACEFUL_SHUTDOWN", plain)?;
    }
    // If the drain is undone before the withdrawal, nothing is withdrawn.
    bgp_lab.command(&["drain"])?;
    wait_for_path(&mut bgp_lab, &frr, PREFIX4, "GRACEFUL_SHUTDOWN", has_graceful_shutdown)?;
    bgp_lab.command(&["drain", "--undo"])?;
    wait_for_path(&mut bgp_lab, &frr, PREFIX4, "without GRACEFUL_SHUTDOWN", |path| {
        path.is_some() && !has_graceful_shutdown(path)
    })?;
    assert_eq!(session_number(&frr, SESSION_NETWORK)?, before, "the session did not restart");

    // A restart in the middle of a drain announces nothing.
    bgp_lab.command(&["drain"])?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    bgp_lab.weir.kill_slowpath()?;
    bgp_lab.weir.start_slowpath()?;
    assert_stays_withdrawn(&mut bgp_lab, &frr)?;
    bgp_lab.command(&["drain", "--undo"])?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
    bgp_lab.check_responses()
}

/// Checks that slowpath, restarted during a drain, establishes its session and announces no routes
/// for two seconds.
fn assert_stays_withdrawn(bgp_lab: &mut BgpLab, frr: &Frr) -> Outcome {
    wait_for("a new session", TIMEOUT, || {
        Ok((session_number(frr, SESSION_NETWORK)?.is_some(), String::new()))
    })?;
    bgp_lab.weir.wait_for("tables in force", TIMEOUT, |weir| {
        let now = weir.status()?;
        Ok((now.reasons.len() == 1 && now.reasons[0].contains("draining"), format!("{now:?}")))
    })?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        for prefix in [PREFIX4, PREFIX6] {
            let found = path(frr, prefix)?;
            assert!(found.is_none(), "{found:?}");
        }
    }
    Ok(())
}

/// Returns whether FRR received the NOTIFICATION of the shutdown, a hard reset (RFC 8538) with the
/// message of RFC 9003, and FRR's status of the session.
fn received_shutdown_notification(frr: &Frr) -> routers::Result<(bool, String)> {
    let state = session(frr, SESSION_NETWORK)?;
    let right = state["lastResetDueTo"] == "BGP Notification received"
        && state["lastNotificationHardReset"] == true
        && state["lastNotificationReason"] == "Cease/Administrative Shutdown"
        && state["lastShutdownDescription"] == "appliance shutdown";
    Ok((right && state["bgpState"] != "Established", state.to_string()))
}

#[test]
fn shutdown_withdraws_routes_and_waits_before_it_ends_the_session() -> Outcome {
    let _alone = alone();
    let (mut bgp_lab, frr) = begin("[bgp]\nsettle_s = 3\n")?;
    let mut slowpath = bgp_lab.weir.slowpath.take().ok_or("no slowpath")?;
    let before = session_number(&frr, SESSION_NETWORK)?;
    slowpath.signal(Signal::SIGTERM)?;
    let gone = wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX6)?;
    assert_eq!(
        session_number(&frr, SESSION_NETWORK)?,
        before,
        "the session stays while routers move the traffic"
    );
    let status = slowpath.wait(TIMEOUT)?;
    let took = gone.elapsed();
    assert!(status.success(), "{status}: {}", slowpath.log_tail());
    println!("the process ended {took:.1?} after the withdrawal was observed");
    // Less than `settle_s`, because the withdrawal was observed a little after it was sent.
    assert!(took >= Duration::from_secs(2), "it did not wait for routers: {took:?}");
    wait_for("the shutdown notification at FRR", TIMEOUT, || received_shutdown_notification(&frr))?;
    // After a hard reset FRR keeps no route, although it supports graceful restart.
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;

    bgp_lab.weir.start_slowpath()?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_in_kernel(&bgp_lab, PREFIX6)?;
    bgp_lab.check_responses()
}

#[test]
fn a_second_sigterm_does_not_wait_for_routers() -> Outcome {
    let _alone = alone();
    let (mut bgp_lab, frr) = begin("[bgp]\nsettle_s = 600\n")?;
    let mut slowpath = bgp_lab.weir.slowpath.take().ok_or("no slowpath")?;
    slowpath.signal(Signal::SIGTERM)?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    std::thread::sleep(Duration::from_millis(500));
    slowpath.check_running()?;
    slowpath.signal(Signal::SIGTERM)?;
    let status = slowpath.wait(TIMEOUT)?;
    assert!(status.success(), "{status}: {}", slowpath.log_tail());
    Ok(())
}
