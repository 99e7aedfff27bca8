//! Tests of restarts of the neighbor and of the speaker, and of a cut path that BFD detects.

use std::time::{Duration, Instant};

use bgp::peer::State;
use bgp::peer::settings::GracefulRestart;
use bgp::speaker::PeerBfd;
use routers::{DEFAULT_TIMEOUT, wait_for};

use crate::neighbor::{Kind, Neighbor, Plan};
use crate::network::*;

/// Routes that are announced before and after the restart.
const RETAINED: &str = "192.0.2.1/32";
const RETAINED_V6: &str = "2001:db8::1/128";
/// A route that is not announced any more after the restart.
const OLD: &str = "192.0.2.2/32";

/// Adds the IPv4 peer with these settings of graceful restart and BFD.
fn add_peer(local: &mut LocalSpeaker, graceful_restart: GracefulRestart, bfd: Option<PeerBfd>) {
    let mut config = peer_config(key(NEIGHBOR_V4));
    config.settings.graceful_restart = Some(graceful_restart);
    config.bfd = bfd;
    local.speaker.add(key(NEIGHBOR_V4), config);
}

/// Tests a restart of the speaker after its sockets were closed without a message: the neighbor
/// keeps the routes until End-of-RIB, and never loses a route that is announced again. Then tests a
/// restart of the neighbor.
fn restart_both(kind: Kind) -> Outcome {
    // GoBGP has no BFD.
    let bfd = kind != Kind::Gobgp;
    let (local_ns, remote_ns) = neighbors()?;
    let mut neighbor = Neighbor::start(kind, &remote_ns, &Plan { bfd, ..Plan::default() })?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    add_peer(&mut local, graceful_restart(), bfd.then(peer_bfd));
    let rows = || [(RETAINED, via("10.0.0.1")), (RETAINED_V6, via("fd00::1"))];
    local
        .speaker
        .set_routes(key(NEIGHBOR_V4), &table(rows().into_iter().chain([(OLD, via("10.0.0.1"))])));
    local.speaker.complete();
    for prefix in [RETAINED, RETAINED_V6, OLD] {
        neighbor.wait_for(prefix, "present", |route| route.is_some())?;
    }
    neighbor.wait_until_exchanged("10.0.0.1")?;
    if bfd {
        local.wait(key(NEIGHBOR_V4), "BFD up", |status| {
            status.bfd.as_ref().is_some_and(|bfd| bfd.up)
        })?;
    }
    local.wait_until_all_sent()?;
    let before = neighbor.session("10.0.0.1")?;

    let assert_retained = |neighbor: &Neighbor| -> routers::Result<()> {
        for prefix in [RETAINED, RETAINED_V6] {
            assert!(neighbor.route(prefix)?.is_some(), "{prefix} is gone at {kind:?}");
        }
        Ok(())
    };
    local.kill();
    for prefix in [RETAINED, RETAINED_V6, OLD] {
        neighbor.wait_for(prefix, "stale", |route| route.is_some_and(|route| route.stale))?;
    }
    assert!(!neighbor.session("10.0.0.1")?.up);

    let mut local = LocalSpeaker::start(&local_ns)?;
    let restarted = GracefulRestart { restarted: true, ..graceful_restart() };
    add_peer(&mut local, restarted, bfd.then(peer_bfd));
    local.speaker.set_routes(key(NEIGHBOR_V4), &table(rows()));
    for prefix in [RETAINED, RETAINED_V6] {
        wait_for(&format!("{prefix} advertised again"), DEFAULT_TIMEOUT, || {
            assert_retained(&neighbor)?;
            let all_sent =
                local.status(key(NEIGHBOR_V4)).peer.connection.is_some_and(|it| it.all_sent);
            let route = neighbor.route(prefix)?;
            let fresh = kind == Kind::Bird || route.is_some_and(|route| !route.stale);
            Ok((all_sent && fresh, String::new()))
        })?;
    }
    let after = neighbor.wait_until_up("10.0.0.1")?;
    assert_ne!(after.epoch, before.epoch);
    // The table is not complete yet: routes that were not sent again are still kept.
    assert!(neighbor.route(OLD)?.is_some_and(|route| route.stale), "{:?}", neighbor.route(OLD)?);
    local.speaker.complete();
    wait_for(&format!("{OLD} gone"), DEFAULT_TIMEOUT, || {
        assert_retained(&neighbor)?;
        Ok((neighbor.route(OLD)?.is_none(), String::new()))
    })?;
    assert_retained(&neighbor)?;
    if let Neighbor::Frr(frr) = &neighbor {
        let output = &frr.json("show bgp neighbors 10.0.0.1")?["10.0.0.1"]["gracefulRestartInfo"];
        assert_eq!((&output["rBit"], &output["nBit"]), (&true.into(), &true.into()), "{output}");
        assert_eq!(output["ipv4Unicast"]["fBit"], true, "{output}");
    }

    // Then the neighbor's daemon is killed and starts again, and receives all routes again.
    neighbor.kill()?;
    local.wait(key(NEIGHBOR_V4), "down", |status| status.peer.state != State::Established)?;
    neighbor.restart()?;
    local.wait_until_up(key(NEIGHBOR_V4))?;
    for prefix in [RETAINED, RETAINED_V6] {
        neighbor.wait_for(prefix, "present again", |route| route.is_some())?;
    }
    assert!(local.status(key(NEIGHBOR_V4)).peer.flaps >= 1);
    Ok(())
}

#[test]
fn frr_keeps_routes_over_our_restart_and_gets_them_after_its_own() -> Outcome {
    restart_both(Kind::Frr)
}

#[test]
fn bird_keeps_routes_over_our_restart_and_gets_them_after_its_own() -> Outcome {
    restart_both(Kind::Bird)
}

#[test]
fn gobgp_keeps_routes_over_our_restart_and_gets_them_after_its_own() -> Outcome {
    restart_both(Kind::Gobgp)
}

/// Maximum time until the speaker detects a cut path by BFD: the detection time of 900 ms and slack
/// for busy machines. Without BFD, detection takes the hold time of 90 s.
pub const DETECTION_LIMIT: Duration = Duration::from_secs(10);

/// Tests that both ends detect by BFD that the path is cut while all links stay up, and that the
/// sessions come back after the cut.
fn cut_path(kind: Kind) -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let neighbor = Neighbor::start(kind, &remote_ns, &Plan { bfd: true, ..Plan::default() })?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    let keys = [key(NEIGHBOR_V4), key(NEIGHBOR_V6)];
    for key in keys {
        let mut config = peer_config(key);
        // Graceful restart must not keep the routes if BFD detects a failure.
        config.settings.graceful_restart = Some(graceful_restart());
        config.bfd = Some(peer_bfd());
        local.speaker.add(key, config);
    }
    local.speaker.set_routes(keys[0], &table([(RETAINED, via("10.0.0.1"))]));
    local.speaker.complete();
    for (key, local_addr) in keys.into_iter().zip(["10.0.0.1", "fd00::1"]) {
        neighbor.wait_until_exchanged(local_addr)?;
        local.wait_until_up(key)?;
        local.wait(key, "BFD up", |status| status.bfd.as_ref().is_some_and(|bfd| bfd.up))?;
    }
    wait_for("negotiated timers", DEFAULT_TIMEOUT, || {
        let output: Vec<u64> =
            local.bfd_status().sessions.iter().map(|status| status.detection_us).collect();
        Ok((output == [900_000, 900_000], format!("{output:?}")))
    })?;
    neighbor.wait_for(RETAINED, "present", |route| route.is_some())?;
    let cut = Instant::now();
    let closed = "table inet closed { \
        chain in { type filter hook input priority 0; policy drop; }; \
        chain out { type filter hook output priority 0; policy drop; }; }";
    local_ns.command_with_input("nft", &["-f", "-"], closed)?;
    for key in keys {
        let status =
            local.wait(key, "down by BFD", |status| status.peer.state != State::Established)?;
        println!("{kind:?} {key}: down {:.0?} after the cut", cut.elapsed());
        assert!(cut.elapsed() < DETECTION_LIMIT, "{:?}", cut.elapsed());
        let output = status.peer.last_sent.expect("a NOTIFICATION was sent").description;
        assert!(output.contains("BFD down"), "{output}");
        assert!(status.bfd.is_some_and(|bfd| !bfd.up && bfd.why.is_some()));
    }
    // FRR removes the routes. BIRD is configured to keep them nevertheless (`bfd graceful`).
    match kind {
        Kind::Bird => {
            neighbor.wait_for(RETAINED, "stale", |route| route.is_some_and(|r| r.stale))?
        }
        Kind::Frr | Kind::Gobgp => neighbor.wait_for(RETAINED, "gone", |route| route.is_none())?,
    }
    for local in ["10.0.0.1", "fd00::1"] {
        wait_for("down at the neighbor", DEFAULT_TIMEOUT, || {
            let output = neighbor.session(local)?;
            Ok((!output.up, format!("{output:?}")))
        })?;
    }
    println!("{kind:?}: down at the neighbor {:.0?} after the cut", cut.elapsed());
    assert!(cut.elapsed() < 2 * DETECTION_LIMIT, "{:?}", cut.elapsed());

    local_ns.command("nft", &["delete", "table", "inet", "closed"])?;
    for key in keys {
        local.wait_until_up(key)?;
        local.wait(key, "BFD up", |status| status.bfd.as_ref().is_some_and(|bfd| bfd.up))?;
    }
    neighbor.wait_for(RETAINED, "present again", |route| route.is_some_and(|route| !route.stale))
}

#[test]
fn bfd_ends_the_session_of_a_cut_path_long_before_the_hold_timer() -> Outcome {
    cut_path(Kind::Frr)?;
    cut_path(Kind::Bird)
}
