//! Tests of long-lived graceful restart (RFC 9494) and of BFD in AdminDown.

use std::time::Duration;

use bgp::peer::State;
use bgp::peer::settings::GracefulRestart;
use routers::{DEFAULT_TIMEOUT, wait_for};

use crate::neighbor::{Kind, Neighbor, Plan};
use crate::network::*;

/// The route that the neighbor keeps.
const RETAINED: &str = "192.0.2.1/32";
/// Community LLGR_STALE of routes that the neighbor keeps as a last resort (RFC 9494).
const LLGR_STALE: u32 = 0xffff_0006;

/// The speaker is killed and stays away for longer than the restart time. The neighbor keeps the
/// route as a last resort, marked with LLGR_STALE, until the speaker announces it again.
fn restart_after_the_restart_time(kind: Kind) -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let plan = Plan { long_lived: true, ..Plan::default() };
    let neighbor = Neighbor::start(kind, &remote_ns, &plan)?;
    let start_speaker = |restarted: bool| -> Outcome<LocalSpeaker> {
        let mut local = LocalSpeaker::start(&local_ns)?;
        let mut config = peer_config(key(NEIGHBOR_V4));
        config.settings.graceful_restart = Some(GracefulRestart {
            time: Duration::from_secs(2),
            long_lived: Some(Duration::from_secs(600)),
            restarted,
            forwarding: true,
        });
        local.speaker.add(key(NEIGHBOR_V4), config);
        local.speaker.set_routes(key(NEIGHBOR_V4), &table([(RETAINED, via("10.0.0.1"))]));
        local.speaker.complete();
        local.wait_until_up(key(NEIGHBOR_V4))?;
        local.wait_until_all_sent()?;
        Ok(local)
    };
    let (first, restarted) = (false, true);
    let local = start_speaker(first)?;
    neighbor.wait_for(RETAINED, "present", |route| {
        route.is_some_and(|route| !route.communities.contains(&LLGR_STALE))
    })?;
    local.kill();
    wait_for(&format!("{RETAINED}: a last resort"), DEFAULT_TIMEOUT, || {
        let route = neighbor.route(RETAINED)?;
        assert!(route.is_some(), "{RETAINED} is gone at {kind:?}");
        let marked = route.as_ref().is_some_and(|it| it.communities.contains(&LLGR_STALE));
        Ok((marked, format!("{route:?}")))
    })?;
    assert!(!neighbor.session("10.0.0.1")?.up);
    let _local = start_speaker(restarted)?;
    neighbor.wait_for(RETAINED, "as before", |route| {
        route.is_some_and(|route| !route.communities.contains(&LLGR_STALE) && !route.stale)
    })
}

#[test]
fn frr_keeps_routes_with_long_lived_graceful_restart() -> Outcome {
    restart_after_the_restart_time(Kind::Frr)
}

#[test]
fn bird_keeps_routes_with_long_lived_graceful_restart() -> Outcome {
    restart_after_the_restart_time(Kind::Bird)
}

#[test]
fn gobgp_keeps_routes_with_long_lived_graceful_restart() -> Outcome {
    restart_after_the_restart_time(Kind::Gobgp)
}

/// Drops BFD packets in both directions; other packets pass.
const DROP_BFD: &str = "table inet silent { \
    chain to { type filter hook input priority 0; udp dport 3784 drop; }; \
    chain from { type filter hook output priority 0; udp dport 3784 drop; }; }";

#[test]
fn admin_down_at_frr_ends_no_session_and_unblocks_strict_peers() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    // FRR's BFD runs but its BGP does not use it: any effect on sessions is caused by the speaker.
    let plan = Plan { bfd: true, frr: " no neighbor ADDRESS bfd\n", ..Plan::default() };
    let neighbor = Neighbor::start(Kind::Frr, &remote_ns, &plan)?;
    let Neighbor::Frr(frr) = &neighbor else { unreachable!() };
    let set_admin_down = || frr.configure(&["bfd", "peer 10.0.0.1", "shutdown"]);
    let undo_admin_down = || frr.configure(&["bfd", "peer 10.0.0.1", "no shutdown"]);
    undo_admin_down()?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    let mut config = peer_config(key(NEIGHBOR_V4));
    config.settings.strict_bfd = true;
    config.bfd = Some(peer_bfd());
    local.speaker.add(key(NEIGHBOR_V4), config);
    let wait_for_bfd = |what: &str, up: bool| {
        local.wait(key(NEIGHBOR_V4), what, |status| {
            status.bfd.as_ref().is_some_and(|bfd| bfd.up == up)
        })
    };
    local.wait_until_up(key(NEIGHBOR_V4))?;
    let before = wait_for_bfd("BFD up", true)?.peer.flaps;

    // AdminDown while the session is up: the speaker keeps the BGP session.
    set_admin_down()?;
    let status = wait_for_bfd("BFD down", false)?;
    assert_eq!((status.peer.state, status.peer.flaps), (State::Established, before), "{status:?}");
    undo_admin_down()?;
    wait_for_bfd("BFD up", true)?;
    local.wait_until_up(key(NEIGHBOR_V4))?;

    // BFD detects a failure: a strict peer waits for BFD, also when the neighbor's packets arrive
    // again but the neighbor still receives none.
    local_ns.command_with_input("nft", &["-f", "-"], DROP_BFD)?;
    local.wait(key(NEIGHBOR_V4), "waits", |status| status.peer.state == State::Idle)?;
    local_ns.command("nft", &["flush", "chain", "inet", "silent", "to"])?;
    wait_for("packets of the neighbor", DEFAULT_TIMEOUT, || {
        let report = local.bfd_status();
        Ok((report.sessions[0].state == bfd::packet::State::Init, format!("{report:?}")))
    })?;
    assert_eq!(local.status(key(NEIGHBOR_V4)).peer.state, State::Idle);
    // AdminDown: the peer does not wait for BFD.
    set_admin_down()?;
    let status = local.wait_until_up(key(NEIGHBOR_V4))?;
    assert!(status.bfd.is_some_and(|bfd| !bfd.up), "{:?}", local.bfd_status());
    neighbor.wait_until_up("10.0.0.1").map(drop)
}
