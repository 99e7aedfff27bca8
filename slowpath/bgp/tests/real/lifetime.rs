//! Tests of the routes that each router receives over the lifetime of a session, from the first
//! route to a drain, and of TCP-MD5.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bgp::advertise::{GRACEFUL_SHUTDOWN, Table};
use bgp::peer::Stop;
use bgp::wire::{Attributes, Family};
use routers::{DEFAULT_TIMEOUT, Daemon, wait_for};

use crate::neighbor::{Kind, Neighbor, Plan, Route, Session};
use crate::network::*;

/// Well-known community NO_EXPORT (RFC 1997).
const NO_EXPORT: u32 = 0xffff_ff01;

/// Returns attributes with all values that an external peer can be sent.
fn rich(next_hop: &str, med: u32) -> Attributes {
    Attributes {
        prepend: 2,
        med: Some(med),
        communities: vec![0xfde8_0001, NO_EXPORT],
        large: vec![[OUR_ASN, 1, 2], [OUR_ASN, 3, u32::MAX]],
        ..via(next_hop)
    }
}

/// Returns the route with the attributes of [`rich`] as the neighbor shows it.
fn expected_rich(next_hop: &str, med: u32) -> Route {
    Route {
        next_hop: next_hop.to_owned(),
        path: vec![OUR_ASN; 3],
        med: Some(med.into()),
        local_pref: None,
        communities: BTreeSet::from([0xfde8_0001, NO_EXPORT]),
        large: [format!("{OUR_ASN}:1:2"), format!("{OUR_ASN}:3:{}", u32::MAX)].into(),
        stale: false,
    }
}

/// The speaker and the neighbor, with an IPv4 and an IPv6 session.
struct Sessions {
    local: LocalSpeaker,
    neighbor: Neighbor,
    /// The neighbor's status of both sessions once they were established.
    before: [Session; 2],
    /// Number of sessions that ended before both were established: if both sides connect at once,
    /// each may close the connection that the other already counts as established (RFC 4271 section
    /// 6.8).
    flaps: Vec<u64>,
}

impl Sessions {
    fn wait_for(&self, prefix: &str, expected: &Route) -> Outcome {
        self.neighbor.wait_for(prefix, &format!("{expected:?}"), |route| {
            // Only some routers show a local preference for routes of external peers.
            let comparable = route.map(|route| Route { local_pref: None, ..route.clone() });
            comparable.as_ref() == Some(expected)
        })
    }

    /// Asserts that no session has ended, as seen by either side.
    fn assert_still_up(&self) -> Outcome {
        for (address, before) in ["10.0.0.1", "fd00::1"].iter().zip(&self.before) {
            let now = self.neighbor.session(address)?;
            assert!(now.up && now.is_still(before), "{before:?} {now:?}");
        }
        let status = self.local.speaker.peers(std::time::Instant::now());
        assert_eq!(flaps(&self.local), self.flaps, "{status:?}");
        Ok(())
    }
}

/// Returns how many times each session ended.
fn flaps(local: &LocalSpeaker) -> Vec<u64> {
    let peers = local.speaker.peers(std::time::Instant::now());
    peers.iter().map(|(_, status)| status.flaps).collect()
}

/// Establishes both sessions with a hold time of 9 s and checks that all attributes arrive.
fn establish(kind: Kind) -> Outcome<Sessions> {
    let (local_ns, remote_ns) = neighbors()?;
    let neighbor = Neighbor::start(kind, &remote_ns, &Plan::default())?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    for address in [NEIGHBOR_V4, NEIGHBOR_V6] {
        let mut config = peer_config(key(address));
        config.settings.hold = Duration::from_secs(9);
        config.settings.keepalive = Duration::from_secs(3);
        config.settings.graceful_restart = Some(graceful_restart());
        config.settings.extended_next_hop = kind != Kind::Gobgp;
        local.speaker.add(key(address), config);
    }
    let four = [
        ("192.0.2.1/32", rich("10.0.0.1", 7)),
        ("198.51.100.0/24", via("10.0.0.1")),
        ("2001:db8::1/128", rich("fd00::1", 7)),
    ];
    let six = [("192.0.2.6/32", rich("fd00::1", 8)), ("2001:db8::6/128", rich("fd00::1", 8))];
    local.speaker.set_routes(key(NEIGHBOR_V4), &table(four));
    local.speaker.set_routes(key(NEIGHBOR_V6), &table(six));
    local.speaker.complete();
    for address in [NEIGHBOR_V4, NEIGHBOR_V6] {
        local.wait_until_up(key(address))?;
    }
    let before = [neighbor.wait_until_up("10.0.0.1")?, neighbor.wait_until_up("fd00::1")?];
    assert_eq!([before[0].hold, before[1].hold], [9, 9]);
    let flaps = flaps(&local);
    let sessions = Sessions { local, neighbor, before, flaps };
    sessions.wait_for("192.0.2.1/32", &expected_rich("10.0.0.1", 7))?;
    sessions.wait_for("2001:db8::1/128", &expected_rich("fd00::1", 7))?;
    sessions.wait_for("2001:db8::6/128", &expected_rich("fd00::1", 8))?;
    if kind != Kind::Gobgp {
        sessions.wait_for("192.0.2.6/32", &expected_rich("fd00::1", 8))?;
    }
    // The neighbor's routes are counted. GoBGP announces none.
    if kind != Kind::Gobgp {
        sessions.local.wait(
            key(NEIGHBOR_V4),
            "a route of the neighbor in each family",
            |status| status.peer.families.iter().all(|family| family.received.prefixes >= 1),
        )?;
    }
    Ok(sessions)
}

/// Returns `count` prefixes, half of each family. 64 prefixes share attributes, so that many
/// messages are needed.
fn many(count: u32) -> Arc<Table> {
    let mut routes = std::collections::BTreeMap::new();
    for index in 0..count / 2 {
        let mut four = via("10.0.0.1");
        four.communities = vec![0xfde8_0000 + index / 64];
        let mut six = via("fd00::1");
        six.communities = vec![0xfde8_0000 + index / 64];
        let prefix = std::net::Ipv4Addr::from(0x0b00_0000 + index);
        routes.insert(host(prefix), Arc::new(four));
        let prefix =
            std::net::Ipv6Addr::from((0x2001_0db8_u128 << 96) + 0x10000 + u128::from(index));
        routes.insert(host(prefix), Arc::new(six));
    }
    Arc::new(Table { routes })
}

fn wait_for_count(neighbor: &Neighbor, count: usize) -> Outcome {
    wait_for(&format!("{count} routes of each family"), 4 * DEFAULT_TIMEOUT, || {
        let output = [neighbor.count(Family::Ipv4Unicast)?, neighbor.count(Family::Ipv6Unicast)?];
        Ok((output.iter().all(|output| *output >= count), format!("{output:?}")))
    })?;
    Ok(())
}

/// Tests both sessions from the first route to the end, with changes, a refresh and a drain.
fn full_lifecycle(kind: Kind) -> Outcome {
    let mut sessions = establish(kind)?;

    // Changed attributes and a withdrawn route arrive without an end of the session.
    let other = [("192.0.2.1/32", rich("10.0.0.1", 9)), ("2001:db8::1/128", via("fd00::1"))];
    sessions.local.speaker.set_routes(key(NEIGHBOR_V4), &table(other));
    sessions.wait_for("192.0.2.1/32", &expected_rich("10.0.0.1", 9))?;
    let bare = Route { next_hop: "fd00::1".into(), path: vec![OUR_ASN], ..Route::default() };
    let is_bare = |route: Option<&Route>| {
        let observed = route.map(|r| (&r.next_hop, &r.path, &r.communities, &r.large));
        observed == Some((&bare.next_hop, &bare.path, &bare.communities, &bare.large))
    };
    sessions.neighbor.wait_for("2001:db8::1/128", "without attributes", is_bare)?;
    sessions.neighbor.wait_until_gone("198.51.100.0/24")?;
    sessions.assert_still_up()?;

    // All routes are sent again on request. GoBGP never requests them, because it stores all routes
    // that it received.
    sessions.neighbor.request_refresh("10.0.0.1")?;
    sessions.local.wait(
        key(NEIGHBOR_V4),
        "all routes sent again after a route refresh",
        |status| {
            let connection = status.peer.connection.as_ref();
            let requested = |refreshes: u64| refreshes > 0 || kind == Kind::Gobgp;
            connection.is_some_and(|it| requested(it.messages.refreshes) && it.all_sent)
        },
    )?;
    sessions.wait_for("192.0.2.1/32", &expected_rich("10.0.0.1", 9))?;
    sessions.assert_still_up()?;

    sessions.local.speaker.set_routes(key(NEIGHBOR_V4), &many(20_000));
    wait_for_count(&sessions.neighbor, 10_000)?;
    sessions.local.wait_until_all_sent()?;
    sessions.assert_still_up()?;

    // A drain: graceful shutdown, withdrawal, and the end of the session with a message.
    sessions
        .local
        .speaker
        .set_routes(key(NEIGHBOR_V4), &table([("192.0.2.1/32", via("10.0.0.1"))]));
    sessions.local.speaker.graceful_shutdown(true);
    sessions.neighbor.wait_for("192.0.2.1/32", "graceful shutdown", |route| {
        route.is_some_and(|route| route.communities.contains(&GRACEFUL_SHUTDOWN))
    })?;
    for address in [NEIGHBOR_V4, NEIGHBOR_V6] {
        sessions.local.speaker.set_routes(key(address), &Arc::default());
    }
    sessions.local.wait_until_all_sent()?;
    for prefix in ["192.0.2.1/32", "2001:db8::6/128", "11.0.0.0/32"] {
        sessions.neighbor.wait_until_gone(prefix)?;
    }
    sessions.assert_still_up()?;
    sessions.end()
}

impl Sessions {
    /// Ends the sessions with a message; the neighbor keeps no routes, even with graceful restart.
    fn end(mut self) -> Outcome {
        self.local
            .speaker
            .set_routes(key(NEIGHBOR_V4), &table([("192.0.2.1/32", via("10.0.0.1"))]));
        self.neighbor.wait_for("192.0.2.1/32", "back", |route| route.is_some())?;
        for address in [NEIGHBOR_V4, NEIGHBOR_V6] {
            self.local.speaker.remove(key(address), Stop::Shutdown("mended by noon".to_owned()));
        }
        self.local.end();
        wait_for("down at the neighbor", DEFAULT_TIMEOUT, || {
            let output = self.neighbor.session("10.0.0.1")?;
            Ok((!output.up, format!("{output:?}")))
        })?;
        self.neighbor.wait_until_gone("192.0.2.1/32")?;
        if let Neighbor::Frr(frr) = &self.neighbor {
            // The log is read because FRR's status soon shows a later event instead.
            wait_for("the message in FRR's log", DEFAULT_TIMEOUT, || {
                let output = frr.log(Daemon::Bgpd);
                let reason = "received from neighbor 10.0.0.1 6/2 (Cease/Administrative Shutdown)";
                let both =
                    output.lines().any(|l| l.contains(reason) && l.contains("mended by noon"));
                Ok((both && output.contains("Hard Reset"), output))
            })?;
        }
        Ok(())
    }
}

#[test]
fn frr_session_from_first_route_to_drain() -> Outcome {
    full_lifecycle(Kind::Frr)
}

#[test]
fn bird_session_from_first_route_to_drain() -> Outcome {
    full_lifecycle(Kind::Bird)
}

#[test]
fn gobgp_session_from_first_route_to_drain() -> Outcome {
    full_lifecycle(Kind::Gobgp)
}

/// Tests TCP-MD5 with different and with equal keys, with one session that only the neighbor opens
/// and one that only the speaker opens, and the attributes that only internal peers get.
fn md5_authentication(kind: Kind) -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let plan = Plan { internal: true, password: Some("secret"), ..Plan::default() };
    let neighbor = Neighbor::start(kind, &remote_ns, &plan)?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    let add = |local: &mut LocalSpeaker, md5: &str| {
        for address in [NEIGHBOR_V4, NEIGHBOR_V6] {
            let mut config = peer_config(key(address));
            config.settings.peer_asn = OUR_ASN;
            config.settings.transport.md5 = Some(md5.to_owned());
            match address {
                NEIGHBOR_V4 => config.settings.passive = true,
                _ => config.listen_port = None,
            }
            local.speaker.add(key(address), config);
        }
    };
    let failures = |ns: &routers::Netns| -> routers::Result<u64> {
        Ok(counter(&ns.command("cat", &["/proc/net/netstat"])?, "TCPMD5Failure"))
    };
    // The SYNs of each side fail authentication at the other side.
    add(&mut local, "Secret");
    for ns in [&local_ns, &remote_ns] {
        wait_for("signatures that fail", DEFAULT_TIMEOUT, || {
            let output = failures(ns)?;
            Ok((output > 1, output.to_string()))
        })?;
    }
    for (local_addr, address) in [("10.0.0.1", NEIGHBOR_V4), ("fd00::1", NEIGHBOR_V6)] {
        assert!(!neighbor.session(local_addr)?.up);
        assert_eq!(local.status(key(address)).peer.flaps, 0);
    }
    local.wait(key(NEIGHBOR_V6), "an error", |status| {
        status.last_error.as_ref().is_some_and(|last_error| last_error.contains("TCP-MD5"))
    })?;

    add(&mut local, "secret");
    let route = Attributes { local_pref: Some(250), ..rich("fd00::1", 3) };
    local.speaker.set_routes(key(NEIGHBOR_V6), &table([("2001:db8::6/128", route)]));
    use bgp::session::Direction::{Inbound, Outbound};
    for (address, direction) in [(NEIGHBOR_V4, Inbound), (NEIGHBOR_V6, Outbound)] {
        let status = local.wait_until_up(key(address))?;
        assert_eq!(status.peer.connection.map(|it| it.direction), Some(direction), "{address}");
        assert_eq!(status.last_error, None);
    }
    let expected = Route { path: Vec::new(), local_pref: Some(250), ..expected_rich("fd00::1", 3) };
    neighbor.wait_for("2001:db8::6/128", &format!("{expected:?}"), |route| route == Some(&expected))
}

/// Returns a counter of `/proc/net/netstat`, which has names in one line and numbers in the next.
pub fn counter(output: &str, name: &str) -> u64 {
    let lines: Vec<&str> = output.lines().collect();
    let found = lines.chunks(2).find_map(|pair| {
        let at = pair[0].split(' ').position(|word| word == name)?;
        pair[1].split(' ').nth(at)?.parse().ok()
    });
    found.unwrap_or(0)
}

#[test]
fn frr_needs_equal_md5_keys_and_gets_local_pref_internally() -> Outcome {
    md5_authentication(Kind::Frr)
}

#[test]
fn bird_needs_equal_md5_keys_and_gets_local_pref_internally() -> Outcome {
    md5_authentication(Kind::Bird)
}

#[test]
fn gobgp_needs_equal_md5_keys_and_gets_local_pref_internally() -> Outcome {
    md5_authentication(Kind::Gobgp)
}
