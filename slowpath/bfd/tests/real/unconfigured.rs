//! Tests of the driver without a BFD neighbor: discarded packets, source ports, errors of sending,
//! port conflicts and invalid settings.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};

use bfd::packet::{Packet, State};
use bfd::{Key, SessionStatus, Settings};
use routers::{DEFAULT_TIMEOUT, Netns, wait_for};
use socket2::SockRef;

use crate::network::{LocalDriver, Outcome, neighbors, single_hop_keys};

/// Sends a datagram from the neighbor's namespace with a given TTL.
fn send_from(remote_ns: &Netns, from: &str, to: &str, ttl: u32, bytes: Vec<u8>) -> Outcome {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse()?, to.parse()?);
    remote_ns.run(move || -> std::io::Result<()> {
        let socket = UdpSocket::bind(from)?;
        match to {
            SocketAddr::V4(_) => SockRef::from(&socket).set_ttl_v4(ttl)?,
            SocketAddr::V6(_) => SockRef::from(&socket).set_unicast_hops_v6(ttl)?,
        }
        socket.send_to(&bytes, to).map(drop)
    })??;
    Ok(())
}

/// Sends a datagram from the neighbor's address.
fn send(remote_ns: &Netns, to: &str, ttl: u32, bytes: Vec<u8>) -> Outcome {
    let from = if to.starts_with('[') { "[fd00::2]:0" } else { "10.0.0.2:0" };
    send_from(remote_ns, from, to, ttl, bytes)
}

#[test]
fn discarded_packets_are_counted_by_reason_without_effect_on_sessions() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let local = LocalDriver::start(&local_ns, 11)?;
    let [four, six] = single_hop_keys();
    // The multihop session with the same neighbor has a discriminator of its own.
    let far = Key { multihop: true, local: Some("10.0.0.1".parse()?), ..four.clone() };
    for key in [&four, &six, &far] {
        local.bfd.set(key.clone(), Settings { passive: true, ..Settings::default() })?;
    }
    let down = Packet {
        state: State::Down,
        multiplier: 3,
        my_discriminator: 9,
        desired_transmit_us: 1_000_000,
        required_receive_us: 1_000_000,
        ..Packet::default()
    };
    let (near4, near6, far4) = ("10.0.0.1:3784", "[fd00::1]:3784", "10.0.0.1:4784");
    let valid = down.emit().to_vec();
    let discriminator = local.session_status(&four).discriminator;
    let addressed =
        |state, your_discriminator| Packet { state, your_discriminator, ..down }.emit().to_vec();
    let with = |at: usize, value: u8| {
        let mut bytes = valid.clone();
        bytes[at] = value;
        bytes
    };
    let mut authenticated = [with(1, 0x44), vec![0; 8]].concat();
    authenticated[3] = 32;
    let all = [
        ("hops", near4, 254, valid.clone()),
        ("hops", near6, 254, valid.clone()),
        ("hops", far4, 253, valid.clone()),
        ("short", near4, 255, vec![0x20; 23]),
        ("short", near6, 255, Vec::new()),
        ("version", near4, 255, with(0, 0x40)),
        ("length-too-small", near4, 255, with(3, 23)),
        ("length-beyond-datagram", near4, 255, with(3, 25)),
        ("multiplier", near4, 255, with(2, 0)),
        ("multipoint", near4, 255, with(1, 0x41)),
        ("my-discriminator", near4, 255, with(7, 0)),
        ("no-discriminator", near4, 255, addressed(State::Up, 0)),
        ("unknown-discriminator", near4, 255, addressed(State::Up, discriminator ^ 1)),
        // The discriminator of a single-hop session on the multihop port does not match, because
        // the TTL rules differ.
        ("unknown-discriminator", far4, 255, addressed(State::Up, discriminator)),
        ("authenticated", near4, 255, authenticated),
    ];
    let mut expected = BTreeMap::<String, u64>::new();
    for (why, to, ttl, bytes) in all {
        send(&remote_ns, to, ttl, bytes)?;
        *expected.entry(why.to_owned()).or_default() += 1;
    }
    remote_ns.ip(&["address add 10.0.0.3/24 dev there"])?;
    send_from(&remote_ns, "10.0.0.3:0", near4, 255, valid.clone())?;
    expected.insert("unknown-neighbor".to_owned(), 1);
    wait_for("all to be counted", DEFAULT_TIMEOUT, || {
        let discarded = local.status().discarded;
        Ok((discarded == expected, format!("{discarded:?}")))
    })?;
    for status in local.status().sessions {
        assert_eq!((status.state, status.received, status.sent), (State::Down, 0, 0), "{status:?}");
        assert_eq!(status.discarded.get("hops").copied(), status.key.multihop.then_some(1));
    }
    // The same packet from the neighbor is accepted.
    send(&remote_ns, near4, 255, valid)?;
    local.wait(&four, "a packet", |status| status.received == 1 && status.state == State::Init)?;
    Ok(())
}

#[test]
fn each_session_sends_from_its_own_port() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    local_ns.ip(&["address add 10.0.0.7/24 dev here"])?;
    let listen = || -> std::io::Result<UdpSocket> {
        let socket = UdpSocket::bind("10.0.0.2:3784")?;
        socket.set_read_timeout(Some(DEFAULT_TIMEOUT))?;
        Ok(socket)
    };
    let socket = remote_ns.run(listen)??;
    let driver = LocalDriver::start(&local_ns, 12)?;
    for local in ["10.0.0.1", "10.0.0.7"] {
        let key = Key { local: Some(local.parse()?), ..single_hop_keys()[0].clone() };
        driver.bfd.set(key, Settings::default())?;
    }
    let mut observed = BTreeSet::new();
    for _ in 0..6 {
        let mut bytes = [0; 64];
        let (length, from) = socket.recv_from(&mut bytes)?;
        assert!(from.port() >= 49_152, "{from}");
        let packet = Packet::parse(&bytes[..length]).map_err(|why| why.name())?;
        assert_eq!((packet.state, packet.desired_transmit_us), (State::Down, 1_000_000));
        observed.insert((from, packet.my_discriminator));
    }
    assert_eq!(observed.len(), 2, "a session changed its port or discriminator: {observed:?}");
    let ports: BTreeSet<u16> = observed.iter().map(|(from, _)| from.port()).collect();
    assert_eq!(ports.len(), 2, "{observed:?}");
    Ok(())
}

#[test]
fn send_errors_are_reported_and_retried() -> Outcome {
    let (local_ns, _remote_ns) = neighbors()?;
    let local = LocalDriver::start(&local_ns, 13)?;
    let [four, _] = single_hop_keys();
    let elsewhere = Key { local: Some("10.0.0.8".parse()?), ..four.clone() };
    let gone = Key { interface: Some("nowhere".to_owned()), ..four };
    for key in [&elsewhere, &gone] {
        local.bfd.set(key.clone(), Settings::default())?;
        let failed = |status: &SessionStatus| status.last_error.is_some() && status.unsent > 0;
        let status = local.wait(key, "an error", failed)?;
        assert_eq!(status.state, State::Down);
    }
    local_ns.ip(&["address add 10.0.0.8/24 dev here"])?;
    local.wait(&elsewhere, "no error", |status| status.last_error.is_none())?;
    Ok(())
}

#[test]
fn second_driver_reports_the_port_conflict() -> Outcome {
    let (local_ns, _remote_ns) = neighbors()?;
    let _first = LocalDriver::start(&local_ns, 14)?;
    let second = LocalDriver::start(&local_ns, 15).err();
    let error = second.ok_or("a second driver started")?.to_string();
    assert!(error.contains("UDP port 3784") && error.contains("bfdd"), "{error}");
    Ok(())
}

#[test]
fn settings_out_of_range_are_rejected_by_name() -> Outcome {
    let (local_ns, _remote_ns) = neighbors()?;
    let local = LocalDriver::start(&local_ns, 16)?;
    let [key, _] = single_hop_keys();
    let usual = Settings::default();
    let wrong = [
        (Settings { transmit_ms: 9, ..usual }, "transmit_ms is 9; allowed: 10 to 60000"),
        (Settings { receive_ms: 60_001, ..usual }, "receive_ms is 60001; allowed: 10 to 60000"),
        (Settings { multiplier: 1, ..usual }, "multiplier is 1; allowed: 2 to 255"),
        (Settings { minimum_ttl: 0, ..usual }, "minimum_ttl is 0; allowed: 1 to 255"),
    ];
    for (settings, text) in wrong {
        let error = local.bfd.set(key.clone(), settings).err().ok_or("accepted")?;
        assert_eq!(error.to_string(), text);
    }
    assert!(local.status().sessions.is_empty());
    Ok(())
}
