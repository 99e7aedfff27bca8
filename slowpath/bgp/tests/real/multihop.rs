//! Tests of a neighbor beyond a router: hop limits, and multihop BFD.

use std::time::Instant;

use bgp::peer::State;
use bgp::speaker::{PeerBfd, PeerConfig, PeerKey};
use routers::{DEFAULT_TIMEOUT, routed_namespaces, wait_for};

use crate::lifetime::counter;
use crate::neighbor::{Kind, Neighbor, Plan};
use crate::network::*;
use crate::plan::Topology;
use crate::restarts::DETECTION_LIMIT;

/// Announced prefixes, of IPv4 and IPv6.
const PREFIXES: [&str; 2] = ["192.0.2.1/32", "2001:db8::1/128"];

/// Returns the configuration of a peer at most `hops` away, with multihop BFD if `minimum_ttl` is
/// given.
fn multihop_peer(hops: u8, local: &str, key: PeerKey, minimum_ttl: Option<u8>) -> PeerConfig {
    let mut config = peer_config(key);
    config.settings.transport.local = Some(local.parse().expect("an address"));
    config.settings.transport.hops = Some(hops);
    let settings = |minimum_ttl| bfd::Settings { minimum_ttl, ..bfd::Settings::default() };
    let bfd = minimum_ttl.map(|minimum| PeerBfd { multihop: true, settings: settings(minimum) });
    PeerConfig { interface: None, bfd, ..config }
}

/// Tests two sessions through a router. With one hop allowed, no packet arrives; with two, both
/// sessions are established and routes arrive. `minimum_ttl` is the TTL of the neighbor's BFD
/// packets behind the router; if given, BFD detects a failure of the path.
fn over_a_router(kind: Kind, minimum_ttl: Option<u8>) -> Outcome {
    let [local_ns, middle, remote_ns] = routed_namespaces()?;
    let plan = Plan { topology: Topology::Routed, bfd: minimum_ttl.is_some(), ..Plan::default() };
    let neighbor = Neighbor::start(kind, &remote_ns, &plan)?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    let ends = Topology::Routed.ends();
    let keys = ends.map(|(_, neighbor)| key(neighbor));

    for ((own, _), key) in ends.into_iter().zip(keys) {
        // The neighbor must not connect, so that all observed packets are the speaker's.
        local
            .speaker
            .add(key, PeerConfig { listen_port: None, ..multihop_peer(1, own, key, None) });
    }
    wait_for("packets that end at the router", DEFAULT_TIMEOUT, || {
        let four = counter(&middle.command("cat", &["/proc/net/snmp"])?, "OutTimeExcds");
        Ok((four > 2, four.to_string()))
    })?;
    for ((own, _), key) in ends.into_iter().zip(keys) {
        assert_ne!(local.status(key).peer.state, State::Established);
        assert!(!neighbor.session(own)?.up);
    }

    for ((own, _), key) in ends.into_iter().zip(keys) {
        local.speaker.add(key, multihop_peer(2, own, key, minimum_ttl));
    }
    let rows = || [(PREFIXES[0], via("10.0.1.1")), (PREFIXES[1], via("fd01::1"))];
    keys.iter().for_each(|key| local.speaker.set_routes(*key, &table(rows())));
    local.speaker.complete();
    let up = || -> Outcome {
        for ((own, _), key) in ends.into_iter().zip(keys) {
            local.wait_until_up(key)?;
            neighbor.wait_until_up(own)?;
            if minimum_ttl.is_some() {
                local
                    .wait(key, "BFD up", |status| status.bfd.as_ref().is_some_and(|bfd| bfd.up))?;
            }
        }
        for (prefix, (own, _)) in PREFIXES.into_iter().zip(ends) {
            neighbor
                .wait_for(prefix, "present", |route| route.is_some_and(|r| r.next_hop == own))?;
        }
        Ok(())
    };
    up()?;
    if minimum_ttl.is_none() {
        return Ok(());
    }

    // The path fails while all links stay up: the router drops forwarded packets.
    wait_for("negotiated timers", DEFAULT_TIMEOUT, || {
        let output: Vec<u64> =
            local.bfd_status().sessions.iter().map(|status| status.detection_us).collect();
        Ok((output == [900_000, 900_000], format!("{output:?}")))
    })?;
    let closed = "table inet closed { chain through { type filter hook forward priority 0; \
                  policy drop; }; }";
    let cut = Instant::now();
    middle.command_with_input("nft", &["-f", "-"], closed)?;
    for ((own, _), key) in ends.into_iter().zip(keys) {
        let status =
            local.wait(key, "down by BFD", |status| status.peer.state != State::Established)?;
        let output = status.peer.last_sent.expect("a NOTIFICATION was sent").description;
        assert!(output.contains("BFD down"), "{output}");
        assert!(cut.elapsed() < DETECTION_LIMIT, "{:?}", cut.elapsed());
        wait_for("down at the neighbor", DEFAULT_TIMEOUT, || {
            let output = neighbor.session(own)?;
            Ok((!output.up, format!("{output:?}")))
        })?;
        println!("{kind:?} {key}: both ends down {:.0?} after the cut", cut.elapsed());
        assert!(cut.elapsed() < 2 * DETECTION_LIMIT, "{:?}", cut.elapsed());
    }
    middle.command("nft", &["delete", "table", "inet", "closed"])?;
    up()
}

#[test]
fn frr_multihop_session_and_bfd_failure_detection() -> Outcome {
    over_a_router(Kind::Frr, Some(254))
}

#[test]
fn bird_multihop_session_and_bfd_failure_detection() -> Outcome {
    over_a_router(Kind::Bird, Some(63))
}

#[test]
fn gobgp_multihop_session_is_established() -> Outcome {
    over_a_router(Kind::Gobgp, None)
}
