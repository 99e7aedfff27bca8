//! Tests of replaced keys in established sessions: with a neighbor that replaces its key in place
//! too, and with routers that end the session when their password changes.

use std::net::Ipv4Addr;
use std::time::Duration;

use bgp::peer::State;
use bgp::peer::settings::{AoAlgorithm, AoKey, GracefulRestart, Settings, Transport};
use bgp::speaker::{PeerConfig, PeerKey};
use bgp::wire::Family;
use routers::{DEFAULT_TIMEOUT, LabError, Netns, wait_for};

use crate::lifetime::counter;
use crate::neighbor::{Kind, Neighbor, Plan};
use crate::network::*;

/// Routes announced before the key is replaced.
const BEFORE: &str = "192.0.2.1/32";
const BEFORE_V6: &str = "2001:db8::1/128";
/// Route announced with the new key.
const AFTER: &str = "192.0.2.2/32";

fn md5(key: &str) -> Transport {
    Transport { md5: Some(key.to_owned()), ..Transport::default() }
}

/// Returns TCP-AO keys, each with its ID and secret.
fn ao(keys: &[(u8, &str)]) -> Transport {
    let key = |(id, secret): &(u8, &str)| AoKey {
        send_id: *id,
        receive_id: *id,
        algorithm: AoAlgorithm::HmacSha1,
        secret: (*secret).to_owned(),
    };
    Transport { tcp_ao: keys.iter().map(key).collect(), ..Transport::default() }
}

/// Returns the kernel's counter `name` of dropped segments.
fn drops(ns: &Netns, name: &str) -> Result<u64, LabError> {
    Ok(counter(&ns.command("cat", &["/proc/net/netstat"])?, name))
}

/// Waits until the kernel's counter `name` of dropped segments exceeds `before`.
fn wait_for_drops(ns: &Netns, name: &str, before: u64) -> Outcome {
    wait_for(&format!("{name} above {before}"), DEFAULT_TIMEOUT, || {
        let count = drops(ns, name)?;
        Ok((count > before, count.to_string()))
    })?;
    Ok(())
}

/// Two speakers that are each other's peers, one in each namespace, with the same authentication
/// keys.
struct Pair {
    speakers: [LocalSpeaker; 2],
    /// Identifies the peer of each speaker.
    peer_keys: [PeerKey; 2],
}

impl Pair {
    /// Establishes a session over IPv4 or IPv6.
    fn establish(namespaces: [&Netns; 2], ip: Family, transport: &Transport) -> Outcome<Pair> {
        let (local, remote) = match ip {
            Family::Ipv4Unicast => ("10.0.0.1", NEIGHBOR_V4),
            Family::Ipv6Unicast => ("fd00::1", NEIGHBOR_V6),
        };
        let there = PeerKey {
            local_asn: THEIR_ASN,
            peer: (local.parse::<std::net::IpAddr>()?, 179).into(),
        };
        let peer_keys = [key(remote), there];
        let mut speakers =
            [LocalSpeaker::start(namespaces[0])?, LocalSpeaker::start(namespaces[1])?];
        let identifier = Ipv4Addr::new(10, 0, 0, 2);
        let settings = Settings::new(THEIR_ASN, identifier, there.peer, OUR_ASN);
        let their = PeerConfig { settings, listen_port: Some(179), interface: None, bfd: None };
        for ((speaker, key), mut config) in
            speakers.iter_mut().zip(peer_keys).zip([peer_config(key(remote)), their])
        {
            config.settings.connect_retry = Duration::from_secs(2);
            config.settings.transport.md5.clone_from(&transport.md5);
            config.settings.transport.tcp_ao.clone_from(&transport.tcp_ao);
            speaker.speaker.add(key, config);
        }
        let pair = Pair { speakers, peer_keys };
        for (speaker, key) in pair.each() {
            speaker.wait_until_up(key)?;
        }
        Ok(pair)
    }

    /// Returns each speaker with the key of its peer.
    fn each(&self) -> impl Iterator<Item = (&LocalSpeaker, PeerKey)> {
        self.speakers.iter().zip(self.peer_keys)
    }

    fn set_keys(&mut self, which: usize, transport: &Transport) {
        self.speakers[which].speaker.set_keys(self.peer_keys[which], transport);
    }

    /// Announces this number of routes from the first speaker.
    fn announce(&mut self, count: u8) {
        let prefix = |host: u8| (format!("192.0.2.{host}/32"), via("10.0.0.1"));
        let rows: Vec<_> = (1..=count).map(prefix).collect();
        let rows = rows.iter().map(|(prefix, attributes)| (prefix.as_str(), attributes.clone()));
        self.speakers[0].speaker.set_routes(self.peer_keys[0], &table(rows));
    }

    /// Waits until the second speaker has received this number of routes.
    fn wait_for_routes(&self, count: usize) -> Outcome {
        self.speakers[1].wait(self.peer_keys[1], &format!("{count} routes"), |status| {
            let received = status.peer.families.iter().map(|family| family.received.prefixes);
            received.sum::<usize>() == count
        })?;
        Ok(())
    }

    fn flaps(&self) -> Vec<u64> {
        self.each().map(|(speaker, key)| speaker.status(key).peer.flaps).collect()
    }

    /// Asserts that no session has ended since `flaps` were counted.
    fn assert_still_up(&self, flaps: &[u64]) {
        assert_eq!(self.flaps(), flaps);
        for (speaker, key) in self.each() {
            let status = speaker.status(key);
            assert_eq!((status.peer.state, &status.last_error), (State::Established, &None));
        }
    }
}

/// Replaces the key at one side and then at the other, and again in the other order. While the keys
/// differ, each kernel drops what the other side sends; the session stays.
fn replace_md5_keys(ip: Family) -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let mut pair = Pair::establish([&local_ns, &remote_ns], ip, &md5("first"))?;
    let flaps = pair.flaps();
    pair.announce(1);
    pair.wait_for_routes(1)?;
    for (round, order) in [[0, 1], [1, 0]].into_iter().enumerate() {
        let keys = md5(&format!("key {round}"));
        let failed = drops(&remote_ns, "TCPMD5Failure")?;
        pair.set_keys(order[0], &keys);
        let count = round as u8 + 2;
        pair.announce(count);
        wait_for_drops(&remote_ns, "TCPMD5Failure", failed)?;
        if order[0] == 0 {
            // The other way round, the route may arrive before the receiver has replaced the key.
            pair.wait_for_routes(usize::from(count) - 1)?;
        }
        pair.set_keys(order[1], &keys);
        pair.wait_for_routes(usize::from(count))?;
        pair.assert_still_up(&flaps);
    }
    // A session that begins later uses the new key at both sides.
    pair.speakers[0].speaker.remove(pair.peer_keys[0], bgp::peer::Stop::Changed);
    let mut config = peer_config(pair.peer_keys[0]);
    config.settings.transport.md5 = Some("key 1".to_owned());
    pair.speakers[0].speaker.add(pair.peer_keys[0], config);
    for (speaker, key) in pair.each() {
        speaker.wait_until_up(key)?;
    }
    Ok(())
}

#[test]
fn session_goes_on_while_both_sides_replace_the_md5_key_over_ipv4() -> Outcome {
    replace_md5_keys(Family::Ipv4Unicast)
}

#[test]
fn session_goes_on_while_both_sides_replace_the_md5_key_over_ipv6() -> Outcome {
    replace_md5_keys(Family::Ipv6Unicast)
}

/// A key that is replaced before the session is established is used by the next attempt.
#[test]
fn replaced_md5_key_is_used_by_the_next_attempt_to_connect() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let plan = Plan { password: Some("second"), ..Plan::default() };
    let neighbor = Neighbor::start(Kind::Bird, &remote_ns, &plan)?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    for address in [NEIGHBOR_V4, NEIGHBOR_V6] {
        let mut config = peer_config(key(address));
        config.settings.transport.md5 = Some("first".to_owned());
        match address {
            NEIGHBOR_V4 => config.settings.passive = true,
            _ => config.listen_port = None,
        }
        local.speaker.add(key(address), config);
    }
    wait_for_drops(&local_ns, "TCPMD5Failure", 0)?;
    wait_for_drops(&remote_ns, "TCPMD5Failure", 0)?;
    for address in [NEIGHBOR_V4, NEIGHBOR_V6] {
        local.speaker.set_keys(key(address), &md5("second"));
    }
    for (address, local_addr) in [(NEIGHBOR_V4, "10.0.0.1"), (NEIGHBOR_V6, "fd00::1")] {
        local.wait_until_up(key(address))?;
        neighbor.wait_until_up(local_addr)?;
    }
    Ok(())
}

/// FRR and BIRD end the session when their own password changes, and drop the routes. Until then
/// they keep both, and after that a session with the new key brings the routes back.
///
/// `graceful_restart` is negotiated if given. Without it, a new connection does not replace an
/// established one (RFC 4271 section 6.8), except one on which nothing was received since its key
/// was replaced.
fn router_changes_its_password(kind: Kind, graceful_restart: Option<GracefulRestart>) -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let plan = Plan { password: Some("first"), ..Plan::default() };
    let neighbor = Neighbor::start(kind, &remote_ns, &plan)?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    let mut config = peer_config(key(NEIGHBOR_V4));
    config.settings.transport.md5 = Some("first".to_owned());
    config.settings.graceful_restart = graceful_restart;
    local.speaker.add(key(NEIGHBOR_V4), config);
    let rows = || [(BEFORE, via("10.0.0.1")), (BEFORE_V6, via("fd00::1"))];
    local.speaker.set_routes(key(NEIGHBOR_V4), &table(rows()));
    local.speaker.complete();
    neighbor.wait_for(BEFORE, "present", |route| route.is_some())?;
    neighbor.wait_for(BEFORE_V6, "present", |route| route.is_some())?;
    if graceful_restart.is_some() {
        // FRR sends End-of-RIB only if graceful restart was negotiated.
        neighbor.wait_until_exchanged("10.0.0.1")?;
    }
    let before = neighbor.wait_until_up("10.0.0.1")?;
    let failed = drops(&remote_ns, "TCPMD5Failure")?;

    local.speaker.set_keys(key(NEIGHBOR_V4), &md5("second"));
    let more = rows().into_iter().chain([(AFTER, via("10.0.0.1"))]);
    local.speaker.set_routes(key(NEIGHBOR_V4), &table(more));
    wait_for_drops(&remote_ns, "TCPMD5Failure", failed)?;
    let now = neighbor.session("10.0.0.1")?;
    assert!(now.up && now.is_still(&before), "{before:?} {now:?}");
    for prefix in [BEFORE, BEFORE_V6] {
        assert!(neighbor.route(prefix)?.is_some(), "{prefix} is gone at {kind:?}");
    }
    neighbor.set_password("second")?;
    for prefix in [AFTER, BEFORE, BEFORE_V6] {
        neighbor.wait_for(prefix, "present", |route| route.is_some())?;
    }
    neighbor.wait_until_up("10.0.0.1")?;
    local.wait_until_up(key(NEIGHBOR_V4))?;
    Ok(())
}

#[test]
fn frr_keeps_session_and_routes_until_its_password_changes_and_gets_them_again() -> Outcome {
    router_changes_its_password(Kind::Frr, Some(graceful_restart()))?;
    router_changes_its_password(Kind::Frr, None)
}

#[test]
fn bird_keeps_session_and_routes_until_its_password_changes_and_gets_them_again() -> Outcome {
    router_changes_its_password(Kind::Bird, Some(graceful_restart()))?;
    router_changes_its_password(Kind::Bird, None)
}

/// The rollover of RFC 5925: both sides get the new key, prefer it, and lose the previous one.
#[test]
#[ignore = "needs a kernel with TCP-AO: make tcp-ao"]
fn session_goes_on_while_both_sides_replace_the_tcp_ao_key() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    for ip in Family::ALL {
        let namespaces = [&*local_ns, &*remote_ns];
        let mut pair = Pair::establish(namespaces, ip, &ao(&[(1, "first")]))?;
        let flaps = pair.flaps();
        pair.announce(1);
        pair.wait_for_routes(1)?;
        let steps = [
            ao(&[(1, "first"), (2, "second")]),
            ao(&[(2, "second"), (1, "first")]),
            ao(&[(2, "second")]),
        ];
        for (count, keys) in (2..).zip(&steps) {
            for which in [0, 1] {
                pair.set_keys(which, keys);
            }
            pair.announce(count);
            pair.wait_for_routes(usize::from(count))?;
            pair.assert_still_up(&flaps);
        }
        // The key is replaced by an unknown one on one side first.
        let next = ao(&[(3, "third")]);
        let unknown = drops(&remote_ns, "TCPAOKeyNotFound")?;
        pair.set_keys(0, &next);
        pair.announce(6);
        wait_for_drops(&remote_ns, "TCPAOKeyNotFound", unknown)?;
        pair.set_keys(1, &next);
        pair.wait_for_routes(6)?;
        pair.assert_still_up(&flaps);
    }
    Ok(())
}
