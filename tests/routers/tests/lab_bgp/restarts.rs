//! Tests of restarts of slowpath after a kill or for an upgrade: routers with graceful restart keep
//! forwarding and no request fails; other routers withdraw the routes.

use std::time::Duration;

use nix::sys::signal::Signal;
use routers::{Bird, Frr, wait_for};
use serde_json::{Value, json};
use tests::lab::container::WEIR;
use tests::lab::settings::Plane;

use crate::lab::{
    BgpLab, KEY, Network, Outcome, PREFIX4, PREFIX6, Plan, TIMEOUT, alone, assert_no_failures,
    neighbor, policy,
};
use crate::routes::{
    RouteMonitor, bird, frr, path, session, session_number, wait_for_bfd, wait_until_gone,
    wait_until_in_kernel, wait_until_present,
};

/// How slowpath ends before it is restarted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// By SIGKILL, like after a crash.
    Killed,
    /// By SIGINT, as for an upgrade: no NOTIFICATION is sent.
    Interrupted,
}

impl End {
    /// Ends slowpath in this way.
    fn act(self, bgp_lab: &mut BgpLab) -> Outcome {
        match self {
            End::Killed => bgp_lab.weir.kill_slowpath()?,
            End::Interrupted => {
                let mut process = bgp_lab.weir.slowpath.take().ok_or("no slowpath")?;
                process.signal(Signal::SIGINT)?;
                let status = process.wait(TIMEOUT)?;
                assert!(status.success(), "{status}: {}", process.log_tail());
            }
        }
        Ok(())
    }
}

/// Returns a neighbor with graceful restart and BFD.
fn graceful_neighbor(over: Network) -> Value {
    neighbor(
        over,
        &json!({"bfd": {"enabled": true},
            "graceful_restart": {"enabled": true, "restart_s": 60}}),
    )
}

/// Ends slowpath under load, restarts it after more than BFD's detection time, and asserts that no
/// request fails and that the router's kernel never loses a route. `gone` and `back` wait until the
/// router has noticed the end and the restart.
fn restart_under_load(
    bgp_lab: &mut BgpLab,
    end: End,
    gone: impl Fn() -> Outcome,
    back: impl Fn() -> Outcome,
) -> Outcome {
    let monitor = RouteMonitor::start(&bgp_lab.router)?;
    let client = bgp_lab.load(u64::MAX, Duration::from_millis(2))?;
    client.wait_for(200, TIMEOUT)?;
    end.act(bgp_lab)?;
    gone()?;
    let answered = client.stats().right;
    std::thread::sleep(Duration::from_secs(2));
    client.wait_for(answered + 200, TIMEOUT)?;
    for prefix in [PREFIX4, PREFIX6] {
        wait_until_in_kernel(bgp_lab, prefix)?;
    }
    bgp_lab.weir.start_slowpath()?;
    back()?;
    bgp_lab.weir.wait_until_able()?;
    client.wait_for(client.stats().right + 500, TIMEOUT)?;
    client.stop_requests();
    assert_no_failures(&client.finish()?);
    for prefix in [PREFIX4, PREFIX6] {
        assert_eq!(monitor.lost(prefix), 0, "{prefix} was removed: {}", monitor.log());
        wait_until_in_kernel(bgp_lab, prefix)?;
    }
    Ok(())
}

/// Returns whether FRR marks both routes as stale.
fn is_stale(frr: &Frr) -> routers::Result<bool> {
    let both = [path(frr, PREFIX4)?, path(frr, PREFIX6)?];
    Ok(both.iter().all(|path| path.as_ref().is_some_and(|path| path["stale"] == true)))
}

fn with_frr(plane: Plane, over: Network, end: End) -> Outcome {
    let mut bgp_lab = BgpLab::new(&Plan { plane, ..Plan::new(policy(&graceful_neighbor(over))) })?;
    let frr = frr(&bgp_lab, over, &["neighbor APPLIANCE bfd"])?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
    wait_for_bfd(&frr, over)?;
    let before = session_number(&frr, over)?;
    let gone = || {
        wait_for("stale routes at FRR", TIMEOUT, || {
            Ok((
                is_stale(&frr)? && session_number(&frr, over)?.is_none(),
                session(&frr, over)?.to_string(),
            ))
        })?;
        Ok(())
    };
    let back = || {
        wait_for("fresh routes and End-of-RIB at FRR", TIMEOUT, || {
            let state = session(&frr, over)?;
            let restart = &state["gracefulRestartInfo"];
            let ended = &restart["endOfRibRecv"];
            let all = ["ipv4Unicast", "ipv6Unicast"].iter().all(|family| ended[family] == true);
            let fresh = [path(&frr, PREFIX4)?, path(&frr, PREFIX6)?]
                .iter()
                .all(|path| path.as_ref().is_some_and(|path| path["stale"] != true));
            Ok((all && fresh && state["bgpState"] == "Established", state.to_string()))
        })?;
        let state = session(&frr, over)?;
        let restart = &state["gracefulRestartInfo"];
        assert_eq!(restart["rBit"], true, "the restart bit is set: {state}");
        assert_eq!(restart["ipv4Unicast"]["fBit"], true, "the forwarding bit is set: {state}");
        assert_eq!(restart["ipv6Unicast"]["fBit"], true, "{state}");
        Ok(())
    };
    restart_under_load(&mut bgp_lab, end, gone, back)?;
    assert_ne!(session_number(&frr, over)?, before);
    wait_for_bfd(&frr, over)
}

#[test]
fn frr_keeps_forwarding_while_slowpath_is_killed_and_restarts() -> Outcome {
    let _alone = alone();
    with_frr(Plane::Dpdk, Network::DataPort, End::Killed)
}

#[test]
fn frr_keeps_forwarding_while_the_xdp_slowpath_is_killed_and_restarts() -> Outcome {
    let _alone = alone();
    with_frr(Plane::Xdp { native: false }, Network::DataPort, End::Killed)
}

#[test]
fn frr_on_the_management_port_keeps_forwarding_while_slowpath_is_upgraded() -> Outcome {
    let _alone = alone();
    with_frr(Plane::from_env(), Network::Management, End::Interrupted)
}

fn with_bird(over: Network, end: End) -> Outcome {
    let bgp_lab = BgpLab::new(&Plan::new(policy(&graceful_neighbor(over))))?;
    restart_with_bird(bgp_lab, over, end, "")
}

/// Tests a restart with BFD and graceful restart; `options` are further options of BIRD's BGP
/// protocol.
fn restart_with_bird(mut bgp_lab: BgpLab, over: Network, end: End, options: &str) -> Outcome {
    let bird = bird(&bgp_lab, over, &format!("bfd graceful; {options}"))?;
    let shows = |what: &str, present: &[&str], absent: &[&str]| -> Outcome {
        wait_for(what, TIMEOUT, || {
            let output = bird.query("show protocols all weir")?;
            let has = |text: &&str| output.contains(*text);
            Ok((present.iter().all(has) && !absent.iter().any(has), output))
        })?;
        Ok(())
    };
    let stale = "Neighbor graceful restart active";
    for prefix in [PREFIX4, PREFIX6] {
        wait_until_in_kernel(&bgp_lab, prefix)?;
    }
    shows("the session at BIRD", &["Established"], &[stale])?;
    wait_for_bird_bfd(&bird)?;
    let gone = || shows("retained routes at BIRD", &[stale], &["BGP state:          Established"]);
    // BIRD shows `stale` until End-of-RIB has arrived for both families.
    let back = || shows("fresh routes at BIRD", &["BGP state:          Established"], &[stale]);
    restart_under_load(&mut bgp_lab, end, gone, back)?;
    wait_for_bird_bfd(&bird)
}

fn wait_for_bird_bfd(bird: &Bird) -> Outcome {
    wait_for("BFD up at BIRD", TIMEOUT, || {
        let output = bird.query("show bfd sessions")?;
        Ok((output.contains("Up"), output))
    })?;
    Ok(())
}

#[test]
fn bird_keeps_forwarding_while_slowpath_is_killed_and_restarts() -> Outcome {
    let _alone = alone();
    with_bird(Network::DataPort, End::Killed)
}

/// Tests that slowpath's unit permits what BGP needs of the kernel: port 179 without root, TCP-MD5,
/// TTL security, and the sockets of single-hop BFD. (The router is BIRD, because FRR uses multihop
/// BFD where TTL security is on.)
#[test]
fn bird_keeps_forwarding_while_slowpath_is_killed_under_its_unit() -> Outcome {
    let _alone = alone();
    let (over, under_units) = (Network::DataPort, true);
    let mut neighbor = graceful_neighbor(over);
    neighbor["ttl_security"] = true.into();
    neighbor["password"] = json!({"file": "key"});
    let plan = Plan { plane: Plane::Dpdk, under_units, ..Plan::new(policy(&neighbor)) };
    let bgp_lab = BgpLab::new(&plan)?;
    bgp_lab.write_key("key", KEY)?;
    let slowpath = bgp_lab.weir.slowpath.as_ref().ok_or("no slowpath")?.id();
    let status = std::fs::read_to_string(format!("/proc/{slowpath}/status"))?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).ok_or("no user")?;
    assert!(ids.split_whitespace().all(|id| id == WEIR.to_string()), "{ids}");
    let keys = format!("password {KEY:?}; ttl security on;");
    restart_with_bird(bgp_lab, over, End::Killed, &keys)
}

#[test]
fn bird_keeps_forwarding_while_slowpath_is_upgraded() -> Outcome {
    let _alone = alone();
    with_bird(Network::Management, End::Interrupted)
}

/// Tests a router without graceful restart, which withdraws the routes as soon as the session ends
/// and has them again once slowpath runs. Meanwhile fastpath keeps serving packets.
fn without_graceful_restart(end: End) -> Outcome {
    let over = Network::DataPort;
    let mut bgp_lab = BgpLab::new(&Plan::new(policy(&neighbor(over, &json!({})))))?;
    let frr = frr(&bgp_lab, over, &[])?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    end.act(&mut bgp_lab)?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX6)?;
    // Traffic that reaches the appliance by a static route is served.
    bgp_lab.router.ip(&["route replace 203.0.113.10/32 via 10.0.1.10 dev data proto static"])?;
    let stats = bgp_lab.load(200, Duration::ZERO)?.finish()?;
    assert_no_failures(&stats);
    bgp_lab.router.ip(&["route del 203.0.113.10/32 via 10.0.1.10 dev data proto static"])?;
    bgp_lab.weir.start_slowpath()?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
    bgp_lab.check_responses()
}

#[test]
fn a_router_without_graceful_restart_withdraws_while_slowpath_is_killed() -> Outcome {
    let _alone = alone();
    without_graceful_restart(End::Killed)
}

#[test]
fn a_router_without_graceful_restart_withdraws_while_slowpath_is_upgraded() -> Outcome {
    let _alone = alone();
    without_graceful_restart(End::Interrupted)
}

/// slowpath restarts and finds that the data plane has ended. The router must then drop the routes
/// that it kept: within [`TIMEOUT`], long before the restart time of 300 s expires.
#[test]
fn a_restart_without_a_working_plane_removes_the_retained_routes() -> Outcome {
    let _alone = alone();
    let over = Network::Management;
    let mut bgp_lab = BgpLab::new(&Plan {
        plane: Plane::Dpdk,
        ..Plan::new(policy(&neighbor(
            over,
            &json!({"graceful_restart": {"enabled": true, "restart_s": 300}}),
        )))
    })?;
    let frr = frr(&bgp_lab, over, &[])?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
    bgp_lab.weir.kill_slowpath()?;
    wait_for("stale routes at FRR", TIMEOUT, || Ok((is_stale(&frr)?, String::new())))?;
    bgp_lab.weir.kill_fastpath()?;
    bgp_lab.weir.start_slowpath()?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX6)?;
    assert!(session_number(&frr, over)?.is_some(), "the session is up: {}", session(&frr, over)?);
    bgp_lab.weir.start_fastpath()?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
    bgp_lab.weir.wait_until_able()?;
    bgp_lab.check_responses()
}
