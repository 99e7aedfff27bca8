//! Tests of restarts of the neighbor and of the speaker.

use std::time::{Duration, Instant};

use bgp::peer::State;
use routers::{PATIENCE, wait_for};

use crate::network::*;
use crate::theirs::{Kind, Plan, Theirs};

const KEPT: &str = "192.0.2.1/32";
const KEPT_SIX: &str = "2001:db8::1/128";
/// A route that is not announced any more after the restart.
const OLD: &str = "192.0.2.2/32";

fn begin(ours: &mut Ours, restarted: bool, bfd: bool) {
    let mut wanted = wanted(key(FOUR));
    wanted.settings.graceful_restart = graceful(restarted);
    wanted.bfd = bfd.then(watched);
    ours.speaker.add(key(FOUR), wanted);
}

/// The speaker dies with its sockets and comes back; the neighbor keeps its routes until
/// End-of-RIB, and never misses a route that stays.
fn we_come_back(kind: Kind, bfd: bool) -> Outcome {
    let (here, there) = neighbours()?;
    let mut theirs = Theirs::start(kind, &there, &Plan { bfd, ..Plan::default() })?;
    let mut ours = Ours::start(&here)?;
    begin(&mut ours, false, bfd);
    let rows = || [(KEPT, by("10.0.0.1")), (KEPT_SIX, by("fd00::1"))];
    ours.speaker.set_routes(key(FOUR), &table(rows().into_iter().chain([(OLD, by("10.0.0.1"))])));
    ours.speaker.complete();
    for prefix in [KEPT, KEPT_SIX, OLD] {
        theirs.wait_for(prefix, "there", |route| route.is_some())?;
    }
    theirs.wait_until_exchanged("10.0.0.1")?;
    if bfd {
        ours.wait(key(FOUR), "BFD up", |told| told.bfd.as_ref().is_some_and(|bfd| bfd.up))?;
    }
    ours.wait_until_told()?;
    let before = theirs.session("10.0.0.1")?;

    let look = |theirs: &Theirs| -> routers::Result<()> {
        for prefix in [KEPT, KEPT_SIX] {
            assert!(theirs.route(prefix)?.is_some(), "{prefix} is gone at {kind:?}");
        }
        Ok(())
    };
    ours.kill();
    for prefix in [KEPT, KEPT_SIX, OLD] {
        theirs.wait_for(prefix, "kept", |route| route.is_some_and(|route| route.stale))?;
    }
    assert!(!theirs.session("10.0.0.1")?.up);

    let mut ours = Ours::start(&here)?;
    begin(&mut ours, true, bfd);
    ours.speaker.set_routes(key(FOUR), &table(rows()));
    for prefix in [KEPT, KEPT_SIX] {
        wait_for(&format!("{prefix} said again"), PATIENCE, || {
            look(&theirs)?;
            let told = ours.told(key(FOUR)).peer.connection.is_some_and(|it| it.told_all);
            let route = theirs.route(prefix)?;
            let fresh = kind == Kind::Bird || route.is_some_and(|route| !route.stale);
            Ok((told && fresh, String::new()))
        })?;
    }
    let after = theirs.wait_until_up("10.0.0.1")?;
    assert_ne!(after.epoch, before.epoch);
    // The table is not complete yet: routes that were not sent again are still kept.
    assert!(theirs.route(OLD)?.is_some_and(|route| route.stale), "{:?}", theirs.route(OLD)?);
    ours.speaker.complete();
    wait_for(&format!("{OLD} gone"), PATIENCE, || {
        look(&theirs)?;
        Ok((theirs.route(OLD)?.is_none(), String::new()))
    })?;
    look(&theirs)?;
    if let Theirs::Frr(frr) = &theirs {
        let said = &frr.json("show bgp neighbors 10.0.0.1")?["10.0.0.1"]["gracefulRestartInfo"];
        assert_eq!((&said["rBit"], &said["nBit"]), (&true.into(), &true.into()), "{said}");
        assert_eq!(said["ipv4Unicast"]["fBit"], true, "{said}");
    }

    // Then the neighbor dies, comes back, and gets all routes again.
    theirs.kill()?;
    ours.wait(key(FOUR), "down", |told| told.peer.state != State::Established)?;
    theirs.restart()?;
    ours.wait_until_up(key(FOUR))?;
    for prefix in [KEPT, KEPT_SIX] {
        theirs.wait_for(prefix, "there again", |route| route.is_some())?;
    }
    assert!(ours.told(key(FOUR)).peer.flaps >= 1);
    Ok(())
}

#[test]
fn frr_keeps_our_routes_while_we_restart_and_has_them_again_when_it_does() -> Outcome {
    we_come_back(Kind::Frr, true)
}

#[test]
fn bird_keeps_our_routes_while_we_restart_and_has_them_again_when_it_does() -> Outcome {
    we_come_back(Kind::Bird, true)
}

#[test]
fn gobgp_keeps_our_routes_while_we_restart_and_has_them_again_when_it_does() -> Outcome {
    we_come_back(Kind::Gobgp, false)
}

/// Maximum time until both sides detect the loss by BFD with 900 ms; the rest is slack for busy
/// machines. Only BFD detects it before the hold time of 90 s.
pub const DETECTED: Duration = Duration::from_secs(10);

/// Cuts the path while all links stay up, so that only BFD detects it.
fn cut(kind: Kind) -> Outcome {
    let (here, there) = neighbours()?;
    let theirs = Theirs::start(kind, &there, &Plan { bfd: true, ..Plan::default() })?;
    let mut ours = Ours::start(&here)?;
    let keys = [key(FOUR), key(SIX)];
    for key in keys {
        let mut wanted = wanted(key);
        // Routes are not kept if BFD detects a failure.
        wanted.settings.graceful_restart = graceful(false);
        wanted.bfd = Some(watched());
        ours.speaker.add(key, wanted);
    }
    ours.speaker.set_routes(keys[0], &table([(KEPT, by("10.0.0.1"))]));
    ours.speaker.complete();
    for (key, ours_at) in keys.into_iter().zip(["10.0.0.1", "fd00::1"]) {
        theirs.wait_until_exchanged(ours_at)?;
        ours.wait_until_up(key)?;
        ours.wait(key, "BFD up", |told| told.bfd.as_ref().is_some_and(|bfd| bfd.up))?;
    }
    wait_for("timers as agreed on", PATIENCE, || {
        let said: Vec<u64> =
            ours.bfd_report().sessions.iter().map(|told| told.detection_us).collect();
        Ok((said == [900_000, 900_000], format!("{said:?}")))
    })?;
    theirs.wait_for(KEPT, "there", |route| route.is_some())?;
    let cut = Instant::now();
    let closed = "table inet closed { \
        chain in { type filter hook input priority 0; policy drop; }; \
        chain out { type filter hook output priority 0; policy drop; }; }";
    here.fed("nft", &["-f", "-"], closed)?;
    for key in keys {
        let told = ours.wait(key, "down by BFD", |told| told.peer.state != State::Established)?;
        println!("{kind:?} {key}: down {:.0?} after the cut", cut.elapsed());
        assert!(cut.elapsed() < DETECTED, "{:?}", cut.elapsed());
        let said = told.peer.last_sent.expect("why").words;
        assert!(said.contains("BFD down"), "{said}");
        assert!(told.bfd.is_some_and(|bfd| !bfd.up && bfd.why.is_some()));
    }
    // BIRD is configured to keep the routes as in a restart (`bfd graceful`); FRR removes them.
    match kind {
        Kind::Bird => theirs.wait_for(KEPT, "kept", |route| route.is_some_and(|it| it.stale))?,
        Kind::Frr | Kind::Gobgp => theirs.wait_for(KEPT, "gone", |route| route.is_none())?,
    }
    for ours in ["10.0.0.1", "fd00::1"] {
        wait_for("down at the neighbour", PATIENCE, || {
            let said = theirs.session(ours)?;
            Ok((!said.up, format!("{said:?}")))
        })?;
    }
    println!("{kind:?}: it knows {:.0?} after the cut", cut.elapsed());
    assert!(cut.elapsed() < 2 * DETECTED, "{:?}", cut.elapsed());

    here.command("nft", &["delete", "table", "inet", "closed"])?;
    for key in keys {
        ours.wait_until_up(key)?;
        ours.wait(key, "BFD up", |told| told.bfd.as_ref().is_some_and(|bfd| bfd.up))?;
    }
    theirs.wait_for(KEPT, "there again", |route| route.is_some_and(|route| !route.stale))
}

#[test]
fn a_way_that_is_cut_takes_the_session_down_in_the_time_that_bfd_agreed_on() -> Outcome {
    cut(Kind::Frr)?;
    cut(Kind::Bird)
}
