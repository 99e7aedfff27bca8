//! Tests of long-lived graceful restart (RFC 9494) and of BFD in AdminDown.

use std::time::Duration;

use bgp::peer::State;
use bgp::peer::settings::GracefulRestart;
use routers::{PATIENCE, wait_for};

use crate::network::*;
use crate::theirs::{Kind, Plan, Theirs};

const KEPT: &str = "192.0.2.1/32";
/// Community of routes that the neighbor keeps as a last resort (RFC 9494).
const LLGR_STALE: u32 = 0xffff_0006;

/// The speaker is killed and stays away for longer than the restart time: the neighbor keeps the
/// route as a last resort, marks it with the community, and restores it afterwards.
fn away_for_longer(kind: Kind) -> Outcome {
    let (here, there) = neighbours()?;
    let theirs = Theirs::start(kind, &there, &Plan { long_lived: true, ..Plan::default() })?;
    let begin = |restarted: bool| -> Outcome<Ours> {
        let mut ours = Ours::start(&here)?;
        let mut wanted = wanted(key(FOUR));
        wanted.settings.graceful_restart = Some(GracefulRestart {
            time: Duration::from_secs(2),
            long_lived: Some(Duration::from_secs(600)),
            restarted,
            forwarding: true,
        });
        ours.speaker.add(key(FOUR), wanted);
        ours.speaker.set_routes(key(FOUR), &table([(KEPT, by("10.0.0.1"))]));
        ours.speaker.complete();
        ours.wait_until_up(key(FOUR))?;
        ours.wait_until_told()?;
        Ok(ours)
    };
    let ours = begin(false)?;
    theirs.wait_for(KEPT, "there", |route| {
        route.is_some_and(|route| !route.communities.contains(&LLGR_STALE))
    })?;
    ours.kill();
    wait_for(&format!("{KEPT}: a last resort"), PATIENCE, || {
        let route = theirs.route(KEPT)?;
        assert!(route.is_some(), "{KEPT} is gone at {kind:?}");
        let marked = route.as_ref().is_some_and(|it| it.communities.contains(&LLGR_STALE));
        Ok((marked, format!("{route:?}")))
    })?;
    assert!(!theirs.session("10.0.0.1")?.up);
    let _ours = begin(true)?;
    theirs.wait_for(KEPT, "as before", |route| {
        route.is_some_and(|route| !route.communities.contains(&LLGR_STALE) && !route.stale)
    })
}

#[test]
fn frr_keeps_a_route_as_a_last_resort_until_we_are_back() -> Outcome {
    away_for_longer(Kind::Frr)
}

#[test]
fn bird_keeps_a_route_as_a_last_resort_until_we_are_back() -> Outcome {
    away_for_longer(Kind::Bird)
}

#[test]
fn gobgp_keeps_a_route_as_a_last_resort_until_we_are_back() -> Outcome {
    away_for_longer(Kind::Gobgp)
}

/// Drops BFD packets in both directions; other packets pass.
const DEAF_AND_MUTE: &str = "table inet silent { \
    chain to { type filter hook input priority 0; udp dport 3784 drop; }; \
    chain from { type filter hook output priority 0; udp dport 3784 drop; }; }";

#[test]
fn what_frr_holds_down_ends_no_session_and_lets_strict_peers_begin() -> Outcome {
    let (here, there) = neighbours()?;
    // FRR's BFD runs but its BGP does not use it: any effect on sessions is caused by the speaker.
    let plan = Plan { bfd: true, frr: " no neighbor ADDRESS bfd\n", ..Plan::default() };
    let theirs = Theirs::start(Kind::Frr, &there, &plan)?;
    let Theirs::Frr(frr) = &theirs else { unreachable!() };
    let hold = |down: bool| {
        frr.configure(&["bfd", "peer 10.0.0.1", if down { "shutdown" } else { "no shutdown" }])
    };
    hold(false)?;
    let mut ours = Ours::start(&here)?;
    let mut wanted = wanted(key(FOUR));
    wanted.settings.strict_bfd = true;
    wanted.bfd = Some(watched());
    ours.speaker.add(key(FOUR), wanted);
    let up = |ours: &Ours, up: bool| {
        ours.wait(key(FOUR), "BFD", |told| told.bfd.as_ref().is_some_and(|bfd| bfd.up == up))
    };
    ours.wait_until_up(key(FOUR))?;
    let before = up(&ours, true)?.peer.flaps;

    // AdminDown while the session is up: the speaker keeps the BGP session.
    hold(true)?;
    let told = up(&ours, false)?;
    assert_eq!((told.peer.state, told.peer.flaps), (State::Established, before), "{told:?}");
    hold(false)?;
    up(&ours, true)?;
    ours.wait_until_up(key(FOUR))?;

    // BFD lost: a strict peer waits, even if it receives the neighbor's packets again but not vice
    // versa.
    here.fed("nft", &["-f", "-"], DEAF_AND_MUTE)?;
    ours.wait(key(FOUR), "waits", |told| told.peer.state == State::Idle)?;
    here.command("nft", &["flush", "chain", "inet", "silent", "to"])?;
    wait_for("a word of the neighbour", PATIENCE, || {
        let report = ours.bfd_report();
        Ok((report.sessions[0].state == bfd::packet::State::Init, format!("{report:?}")))
    })?;
    assert_eq!(ours.told(key(FOUR)).peer.state, State::Idle);
    // AdminDown: the peer does not wait for BFD.
    hold(true)?;
    let told = ours.wait_until_up(key(FOUR))?;
    assert!(told.bfd.is_some_and(|bfd| !bfd.up), "{:?}", ours.bfd_report());
    theirs.wait_until_up("10.0.0.1").map(drop)
}
