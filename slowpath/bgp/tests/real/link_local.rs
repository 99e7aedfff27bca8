//! Tests of link-local neighbors and of missing interfaces.

use bgp::peer::{State, Stop};
use bgp::speaker::{PeerConfig, PeerKey};
use routers::{DEFAULT_TIMEOUT, End, namespace, veth_pair, wait_for};

use crate::neighbor::{Kind, Neighbor, Plan};
use crate::network::*;
use crate::plan::Topology;

/// Link-local address of the neighbor.
const LINK_LOCAL: &str = "fe80::2";

/// Returns the configuration of a link-local peer on the interface `here`.
fn link_local_peer(key: PeerKey) -> PeerConfig {
    let mut config = peer_config(key);
    config.settings.transport.local = Some("fe80::1".parse().expect("an address"));
    PeerConfig { interface: Some("here".to_owned()), bfd: None, ..config }
}

/// Establishes a link-local session on an interface, opened by the neighbor and then by the
/// speaker, while the listener of another peer has the same port on all interfaces. BFD is used
/// where the neighbor supports it.
fn link_local(kind: Kind) -> Outcome {
    let [local_ns, remote_ns] = [namespace("local")?, namespace("remote")?];
    for ns in [&local_ns, &remote_ns] {
        // Disables automatic link-local addresses.
        ns.sysctl("ipv6/conf/default/addr_gen_mode", "1")?;
    }
    let local_addrs = ["10.0.0.1/24", "fd00::1/64", "fe80::1/64"];
    let remote_addrs = ["10.0.0.2/24", "fd00::2/64", "fe80::2/64"];
    veth_pair(
        End { ns: &local_ns, device: "here", addresses: &local_addrs },
        End { ns: &remote_ns, device: "there", addresses: &remote_addrs },
    )?;
    let with_bfd = kind != Kind::Gobgp;
    let plan = Plan { topology: Topology::LinkLocal, bfd: with_bfd, ..Plan::default() };
    let neighbor = Neighbor::start(kind, &remote_ns, &plan)?;
    let local_addr = if kind == Kind::Gobgp { "fe80::1%there" } else { "fe80::1" };
    let mut local = LocalSpeaker::start(&local_ns)?;
    // A wildcard listener on the same port, for a peer that does not exist.
    let mut absent = peer_config(key("fd00::9"));
    (absent.interface, absent.settings.transport.local) = (None, None);
    absent.settings.passive = true;
    local.speaker.add(key("fd00::9"), absent);
    local.speaker.add(key(NEIGHBOR_V4), peer_config(key(NEIGHBOR_V4)));

    let key = key(LINK_LOCAL);
    use bgp::session::Direction::{Inbound, Outbound};
    // FRR connects only to link-local addresses that it learned from router advertisements, which a
    // gateway does not send: with FRR, only the speaker connects.
    let directions: &[_] = if kind == Kind::Frr { &[Outbound] } else { &[Inbound, Outbound] };
    for &direction in directions {
        let mut config = link_local_peer(key);
        config.bfd = with_bfd.then(peer_bfd);
        match direction {
            Inbound => config.settings.passive = true,
            Outbound => config.listen_port = None,
        }
        local.speaker.add(key, config);
        local.speaker.set_routes(key, &table([("2001:db8::1/128", via("fd00::1"))]));
        let status = local.wait_until_up(key)?;
        assert_eq!(status.peer.connection.map(|it| it.direction), Some(direction));
        neighbor.wait_until_up(local_addr)?;
        neighbor.wait_for("2001:db8::1/128", "present", |route| {
            route.is_some_and(|route| route.next_hop.starts_with("fd00::1"))
        })?;
        if with_bfd {
            local.wait(key, "BFD up", |status| status.bfd.as_ref().is_some_and(|bfd| bfd.up))?;
        }
        local.speaker.remove(key, Stop::Deconfigured);
        neighbor.wait_until_gone("2001:db8::1/128")?;
    }
    local.wait_until_up(crate::network::key(NEIGHBOR_V4))?;
    let report = local.speaker.status(std::time::Instant::now());
    assert!(report.listeners.iter().all(|it| it.last_error.is_none()), "{report:?}");
    Ok(())
}

#[test]
fn frr_link_local_session_on_an_interface() -> Outcome {
    link_local(Kind::Frr)
}

#[test]
fn bird_link_local_session_on_an_interface() -> Outcome {
    link_local(Kind::Bird)
}

#[test]
fn gobgp_link_local_session_on_an_interface() -> Outcome {
    link_local(Kind::Gobgp)
}

#[test]
fn missing_interface_is_reported_until_it_appears() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let mut local = LocalSpeaker::start(&local_ns)?;
    let key = key(LINK_LOCAL);
    let mut config = link_local_peer(key);
    config.interface = Some("later".to_owned());
    config.bfd = Some(peer_bfd());
    local.speaker.add(key, config);
    let reports_missing = |last_error: Option<&String>| {
        last_error.is_some_and(|why| why.contains("there is no interface `later`"))
    };
    let bfd_reports_missing = |local: &LocalSpeaker| {
        let bfd = local.speaker.bfd().map(|_| local.bfd_status());
        bfd.is_some_and(|report| {
            report.sessions.iter().any(|status| reports_missing(status.last_error.as_ref()))
        })
    };
    wait_for("the interface reported missing", DEFAULT_TIMEOUT, || {
        let report = local.speaker.status(std::time::Instant::now());
        let listener = reports_missing(report.listeners[0].last_error.as_ref());
        let both = reports_missing(report.peers[0].last_error.as_ref()) && listener;
        Ok((both && bfd_reports_missing(&local), format!("{report:?}")))
    })?;
    assert_ne!(local.status(key).peer.state, State::Established);
    veth_pair(
        End { ns: &local_ns, device: "later", addresses: &["fe80::1/64"] },
        End { ns: &remote_ns, device: "sooner", addresses: &[] },
    )?;
    wait_for("the listener, and no missing interface", DEFAULT_TIMEOUT, || {
        let report = local.speaker.status(std::time::Instant::now());
        let listens = report.listeners[0].listens && report.listeners[0].last_error.is_none();
        let silent = !reports_missing(report.peers[0].last_error.as_ref());
        Ok((listens && silent && !bfd_reports_missing(&local), format!("{report:?}")))
    })?;
    Ok(())
}
