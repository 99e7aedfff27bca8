//! slowpath restarts after a kill or for an upgrade: routers with graceful restart keep
//! forwarding, and no request fails.

use std::time::Duration;

use nix::sys::signal::Signal;
use routers::{Bird, Frr, wait_for};
use serde_json::{Value, json};
use tests::lab::settings::Plane;

use crate::place::{
    FOUR, Outcome, Over, PATIENCE, Place, Plan, SIX, all_went_well, alone, neighbor, policy,
};
use crate::routes::{
    Followed, bird, epoch, frr, path, session, wait_for_bfd, wait_until_gone, wait_until_in_kernel,
    wait_until_there,
};

/// How slowpath ends before it is restarted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// By SIGKILL, as by a defect.
    Killed,
    /// As in an upgrade.
    Interrupted,
}

impl End {
    fn act(self, place: &mut Place) -> Outcome {
        match self {
            End::Killed => place.weir.kill_slowpath()?,
            End::Interrupted => {
                let mut process = place.weir.slowpath.take().ok_or("no slowpath")?;
                process.signal(Signal::SIGINT)?;
                let status = process.wait(PATIENCE)?;
                assert!(status.success(), "{status}: {}", process.last_words());
            }
        }
        Ok(())
    }
}

/// A neighbor with graceful restart and BFD.
fn graceful(over: Over) -> Value {
    neighbor(
        over,
        &json!({"bfd": {"enabled": true},
            "graceful_restart": {"enabled": true, "restart_s": 60}}),
    )
}

/// Stops slowpath for longer than BFD's detection time, and restarts it, under load.
fn away(
    place: &mut Place,
    end: End,
    gone: impl Fn() -> Outcome,
    back: impl Fn() -> Outcome,
) -> Outcome {
    let followed = Followed::start(&place.router)?;
    let client = place.load(u64::MAX, Duration::from_millis(2))?;
    client.wait_for(200, PATIENCE)?;
    end.act(place)?;
    gone()?;
    let answered = client.seen().right;
    std::thread::sleep(Duration::from_secs(2));
    client.wait_for(answered + 200, PATIENCE)?;
    for prefix in [FOUR, SIX] {
        wait_until_in_kernel(place, prefix)?;
    }
    place.weir.start_slowpath()?;
    back()?;
    place.weir.wait_until_able()?;
    client.wait_for(client.seen().right + 500, PATIENCE)?;
    client.no_more();
    all_went_well(&client.finish()?);
    for prefix in [FOUR, SIX] {
        assert_eq!(followed.lost(prefix), 0, "{prefix} stayed all the time: {}", followed.log());
        wait_until_in_kernel(place, prefix)?;
    }
    Ok(())
}

/// Returns whether FRR marks both routes as stale.
fn is_stale(frr: &Frr) -> routers::Result<bool> {
    let both = [path(frr, FOUR)?, path(frr, SIX)?];
    Ok(both.iter().all(|path| path.as_ref().is_some_and(|path| path["stale"] == true)))
}

fn with_frr(plane: Plane, over: Over, end: End) -> Outcome {
    let mut place = Place::new(&Plan { plane, ..Plan::new(policy(&graceful(over))) })?;
    let frr = frr(&place, over, &["neighbor OURS bfd"])?;
    wait_until_there(&mut place, &frr, FOUR)?;
    wait_until_there(&mut place, &frr, SIX)?;
    wait_for_bfd(&frr, over)?;
    let before = epoch(&frr, over)?;
    let gone = || {
        wait_for("FRR to keep the routes as stale", PATIENCE, || {
            Ok((is_stale(&frr)? && epoch(&frr, over)?.is_none(), session(&frr, over)?.to_string()))
        })?;
        Ok(())
    };
    let back = || {
        wait_for("FRR to have all anew, by End-of-RIB", PATIENCE, || {
            let said = session(&frr, over)?;
            let restart = &said["gracefulRestartInfo"];
            let ended = &restart["endOfRibRecv"];
            let all = ["ipv4Unicast", "ipv6Unicast"].iter().all(|family| ended[family] == true);
            let fresh = [path(&frr, FOUR)?, path(&frr, SIX)?]
                .iter()
                .all(|path| path.as_ref().is_some_and(|path| path["stale"] != true));
            Ok((all && fresh && said["bgpState"] == "Established", said.to_string()))
        })?;
        let said = session(&frr, over)?;
        let restart = &said["gracefulRestartInfo"];
        assert_eq!(restart["rBit"], true, "we say that we restarted: {said}");
        assert_eq!(restart["ipv4Unicast"]["fBit"], true, "and went on forwarding: {said}");
        assert_eq!(restart["ipv6Unicast"]["fBit"], true, "{said}");
        Ok(())
    };
    away(&mut place, end, gone, back)?;
    assert_ne!(epoch(&frr, over)?, before);
    wait_for_bfd(&frr, over)
}

#[test]
fn frr_sends_on_while_slowpath_is_killed_and_comes_back() -> Outcome {
    let _alone = alone();
    with_frr(Plane::Dpdk, Over::DataPort, End::Killed)
}

#[test]
fn frr_sends_on_while_slowpath_of_xdp_is_killed_and_comes_back() -> Outcome {
    let _alone = alone();
    with_frr(Plane::Xdp { native: false }, Over::DataPort, End::Killed)
}

#[test]
fn frr_sends_on_by_the_management_port_while_slowpath_is_upgraded() -> Outcome {
    let _alone = alone();
    with_frr(Plane::asked(), Over::Management, End::Interrupted)
}

fn with_bird(over: Over, end: End) -> Outcome {
    let mut place = Place::new(&Plan::new(policy(&graceful(over))))?;
    let bird = bird(&place, over, "bfd graceful;")?;
    let says = |what: &str, words: &[&str], not: &[&str]| -> Outcome {
        wait_for(what, PATIENCE, || {
            let said = bird.ask("show protocols all weir")?;
            let has = |word: &&str| said.contains(*word);
            Ok((words.iter().all(has) && !not.iter().any(has), said))
        })?;
        Ok(())
    };
    let kept = "Neighbor graceful restart active";
    for prefix in [FOUR, SIX] {
        wait_until_in_kernel(&place, prefix)?;
    }
    says("BIRD's session", &["Established"], &[kept])?;
    wait_for_bird_bfd(&bird)?;
    let gone = || says("BIRD to keep the routes", &[kept], &["BGP state:          Established"]);
    // BIRD shows it until the last End-of-RIB.
    let back = || says("BIRD to have all anew", &["BGP state:          Established"], &[kept]);
    away(&mut place, end, gone, back)?;
    wait_for_bird_bfd(&bird)
}

fn wait_for_bird_bfd(bird: &Bird) -> Outcome {
    wait_for("BFD up at BIRD", PATIENCE, || {
        let said = bird.ask("show bfd sessions")?;
        Ok((said.contains("Up"), said))
    })?;
    Ok(())
}

#[test]
fn bird_sends_on_while_slowpath_is_killed_and_comes_back() -> Outcome {
    let _alone = alone();
    with_bird(Over::DataPort, End::Killed)
}

#[test]
fn bird_sends_on_while_slowpath_is_upgraded() -> Outcome {
    let _alone = alone();
    with_bird(Over::Management, End::Interrupted)
}

/// Without graceful restart a router treats the end of the session as that of the appliance: the
/// route and its traffic disappear immediately, and return with slowpath. The fastpath keeps
/// serving.
fn plain(end: End) -> Outcome {
    let over = Over::DataPort;
    let mut place = Place::new(&Plan::new(policy(&neighbor(over, &json!({})))))?;
    let frr = frr(&place, over, &[])?;
    wait_until_there(&mut place, &frr, FOUR)?;
    end.act(&mut place)?;
    wait_until_gone(&mut place, &frr, FOUR)?;
    wait_until_gone(&mut place, &frr, SIX)?;
    // Traffic that is routed without BGP is served.
    place.router.ip(&["route replace 203.0.113.10/32 via 10.0.1.10 dev data proto static"])?;
    let seen = place.load(200, Duration::ZERO)?.finish()?;
    all_went_well(&seen);
    place.router.ip(&["route del 203.0.113.10/32 via 10.0.1.10 dev data proto static"])?;
    place.weir.start_slowpath()?;
    wait_until_there(&mut place, &frr, FOUR)?;
    wait_until_there(&mut place, &frr, SIX)?;
    place.asks()
}

#[test]
fn a_router_without_graceful_restart_withdraws_while_slowpath_is_killed() -> Outcome {
    let _alone = alone();
    plain(End::Killed)
}

#[test]
fn a_router_without_graceful_restart_withdraws_while_slowpath_is_upgraded() -> Outcome {
    let _alone = alone();
    plain(End::Interrupted)
}

/// slowpath restarts and finds that the data plane has ended: routes that routers kept must be
/// withdrawn, long before the restart time expires.
#[test]
fn who_comes_back_to_a_dead_plane_has_the_kept_routes_removed() -> Outcome {
    let _alone = alone();
    let over = Over::Management;
    let mut place = Place::new(&Plan {
        plane: Plane::Dpdk,
        ..Plan::new(policy(&neighbor(
            over,
            &json!({"graceful_restart": {"enabled": true, "restart_s": 300}}),
        )))
    })?;
    let frr = frr(&place, over, &[])?;
    wait_until_there(&mut place, &frr, FOUR)?;
    wait_until_there(&mut place, &frr, SIX)?;
    place.weir.kill_slowpath()?;
    wait_for("FRR to keep the routes as stale", PATIENCE, || Ok((is_stale(&frr)?, String::new())))?;
    place.weir.kill_fastpath()?;
    place.weir.start_slowpath()?;
    wait_until_gone(&mut place, &frr, FOUR)?;
    wait_until_gone(&mut place, &frr, SIX)?;
    assert!(epoch(&frr, over)?.is_some(), "by our word: {}", session(&frr, over)?);
    place.weir.start_fastpath()?;
    wait_until_there(&mut place, &frr, FOUR)?;
    wait_until_there(&mut place, &frr, SIX)?;
    place.weir.wait_until_able()?;
    place.asks()
}
