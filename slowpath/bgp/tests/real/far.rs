//! Tests of a neighbor beyond a router: hop limits, and multihop BFD.

use std::time::Instant;

use bgp::peer::State;
use bgp::speaker::{PeerKey, Wanted, Watched};
use routers::{PATIENCE, beyond_a_router, wait_for};

use crate::network::*;
use crate::plan::Place;
use crate::restarts::DETECTED;
use crate::speaks::counter;
use crate::theirs::{Kind, Plan, Theirs};

const PREFIXES: [&str; 2] = ["192.0.2.1/32", "2001:db8::1/128"];

fn far(hops: u8, ours: &str, key: PeerKey, minimum_ttl: Option<u8>) -> Wanted {
    let mut wanted = wanted(key);
    wanted.settings.transport.local = Some(ours.parse().expect("an address"));
    wanted.settings.transport.hops = Some(hops);
    let settings = |minimum_ttl| bfd::Settings { minimum_ttl, ..bfd::Settings::default() };
    let bfd = minimum_ttl.map(|least| Watched { multihop: true, settings: settings(least) });
    Wanted { interface: None, bfd, ..wanted }
}

/// With one hop no packets arrive; with two, both sessions are established and routes arrive.
/// `minimum_ttl` is the TTL of the neighbor's BFD packets behind the router.
fn over_a_router(kind: Kind, minimum_ttl: Option<u8>) -> Outcome {
    let [here, middle, there] = beyond_a_router()?;
    let plan = Plan { place: Place::Far, bfd: minimum_ttl.is_some(), ..Plan::default() };
    let theirs = Theirs::start(kind, &there, &plan)?;
    let mut ours = Ours::start(&here)?;
    let ends = Place::Far.ends();
    let keys = ends.map(|(_, theirs)| key(theirs));

    for ((own, _), key) in ends.into_iter().zip(keys) {
        // The neighbor must not connect, so that all observed packets are the speaker's.
        ours.speaker.add(key, Wanted { listen_port: None, ..far(1, own, key, None) });
    }
    wait_for("packets that end at the router", PATIENCE, || {
        let four = counter(&middle.command("cat", &["/proc/net/snmp"])?, "OutTimeExcds");
        Ok((four > 2, four.to_string()))
    })?;
    for ((own, _), key) in ends.into_iter().zip(keys) {
        assert_ne!(ours.told(key).peer.state, State::Established);
        assert!(!theirs.session(own)?.up);
    }

    for ((own, _), key) in ends.into_iter().zip(keys) {
        ours.speaker.add(key, far(2, own, key, minimum_ttl));
    }
    let rows = || [(PREFIXES[0], by("10.0.1.1")), (PREFIXES[1], by("fd01::1"))];
    keys.iter().for_each(|key| ours.speaker.set_routes(*key, &table(rows())));
    ours.speaker.complete();
    let up = || -> Outcome {
        for ((own, _), key) in ends.into_iter().zip(keys) {
            ours.wait_until_up(key)?;
            theirs.wait_until_up(own)?;
            if minimum_ttl.is_some() {
                ours.wait(key, "BFD up", |told| told.bfd.as_ref().is_some_and(|bfd| bfd.up))?;
            }
        }
        for (prefix, (own, _)) in PREFIXES.into_iter().zip(ends) {
            theirs.wait_for(prefix, "there", |route| route.is_some_and(|r| r.next_hop == own))?;
        }
        Ok(())
    };
    up()?;
    if minimum_ttl.is_none() {
        return Ok(());
    }

    // All links stay up, and the router drops forwarded packets.
    wait_for("timers as agreed on", PATIENCE, || {
        let said: Vec<u64> =
            ours.bfd_report().sessions.iter().map(|told| told.detection_us).collect();
        Ok((said == [900_000, 900_000], format!("{said:?}")))
    })?;
    let closed = "table inet closed { chain through { type filter hook forward priority 0; \
                  policy drop; }; }";
    let cut = Instant::now();
    middle.fed("nft", &["-f", "-"], closed)?;
    for ((own, _), key) in ends.into_iter().zip(keys) {
        let told = ours.wait(key, "down by BFD", |told| told.peer.state != State::Established)?;
        let said = told.peer.last_sent.expect("why").words;
        assert!(said.contains("BFD down"), "{said}");
        assert!(cut.elapsed() < DETECTED, "{:?}", cut.elapsed());
        wait_for("down at the neighbour", PATIENCE, || {
            let said = theirs.session(own)?;
            Ok((!said.up, format!("{said:?}")))
        })?;
        println!("{kind:?} {key}: both ends know {:.0?} after the cut", cut.elapsed());
        assert!(cut.elapsed() < 2 * DETECTED, "{:?}", cut.elapsed());
    }
    middle.command("nft", &["delete", "table", "inet", "closed"])?;
    up()
}

#[test]
fn an_frr_beyond_a_router_is_reached_and_missed_by_bfd() -> Outcome {
    over_a_router(Kind::Frr, Some(254))
}

#[test]
fn a_bird_beyond_a_router_is_reached_and_missed_by_bfd() -> Outcome {
    over_a_router(Kind::Bird, Some(63))
}

#[test]
fn a_gobgp_beyond_a_router_is_reached() -> Outcome {
    over_a_router(Kind::Gobgp, None)
}
