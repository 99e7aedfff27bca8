//! Tests of the BFD driver with FRR as neighbor.

use std::time::Instant;

use crate::network::{LocalDriver, Outcome, neighbors, single_hop_keys};
use bfd::machine::{Change, Reason};
use bfd::packet::{Diagnostic, State};
use bfd::{Key, Settings};
use routers::{DEFAULT_TIMEOUT, Daemon, Frr, routed_namespaces, wait_for};
use serde_json::Value;

const FRR: &str = "\
bfd
 peer 10.0.0.1
  transmit-interval 250
  receive-interval 400
  detect-multiplier 5
 exit
 peer fd00::1 local-address fd00::2 interface there
  transmit-interval 150
  receive-interval 100
 exit
";

/// Returns what FRR shows for the session with `address`; null if there is none.
fn peer_status(frr: &Frr, address: &str) -> routers::Result<Value> {
    let all = frr.json("show bfd peers")?;
    let mut peers = all.as_array().into_iter().flatten();
    Ok(peers.find(|peer| peer["peer"] == address).cloned().unwrap_or_default())
}

/// Waits until FRR shows these values for a session.
fn wait(frr: &Frr, address: &str, expected: &[(&str, Value)]) -> routers::Result<()> {
    wait_for(&format!("{address} at FRR: {expected:?}"), DEFAULT_TIMEOUT, || {
        let output = peer_status(frr, address)?;
        Ok((expected.iter().all(|(key, value)| output[*key] == *value), output.to_string()))
    })
    .map(drop)
}

#[test]
fn frr_sessions_negotiate_timers_and_change_them_while_up() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let frr = Frr::start(&remote_ns, &[Daemon::Bfdd], FRR)?;
    let mut local = LocalDriver::start(&local_ns, 1)?;
    let [four, six] = single_hop_keys();
    let settings =
        Settings { transmit_ms: 300, receive_ms: 200, multiplier: 4, ..Settings::default() };
    local.bfd.set(four.clone(), settings)?;
    local.bfd.set(six.clone(), Settings { passive: true, ..settings })?;
    let timers =
        |status: &bfd::SessionStatus| (status.transmit_us, status.receive_us, status.detection_us);
    local.wait_until_up(&four)?;
    local.wait(&four, "timers", |status| timers(status) == (400_000, 250_000, 1_250_000))?;
    local.wait_until_up(&six)?;
    local.wait(&six, "timers", |status| timers(status) == (300_000, 200_000, 600_000))?;
    let expected = |transmit: u32, receive: u32, multiplier: u32| {
        [
            ("status", Value::from("up")),
            ("remote-transmit-interval", transmit.into()),
            ("remote-receive-interval", receive.into()),
            ("remote-detect-multiplier", multiplier.into()),
        ]
    };
    for address in ["10.0.0.1", "fd00::1"] {
        wait(&frr, address, &expected(300, 200, 4))?;
    }

    // Our timers become longer, shorter and longer again; then FRR's change.
    let slower = Settings { transmit_ms: 700, receive_ms: 600, multiplier: 3, ..settings };
    for settings in [slower, settings, slower] {
        local.bfd.set(four.clone(), settings)?;
        let Settings { transmit_ms, receive_ms, multiplier, .. } = settings;
        wait(&frr, "10.0.0.1", &expected(transmit_ms, receive_ms, multiplier.into()))?;
    }
    frr.configure(&["bfd", "peer 10.0.0.1", "transmit-interval 900", "receive-interval 800"])?;
    local.wait(&four, "timers", |status| timers(status) == (800_000, 900_000, 4_500_000))?;
    frr.configure(&["bfd", "peer 10.0.0.1", "transmit-interval 100", "receive-interval 100"])?;
    local.wait(&four, "timers", |status| timers(status) == (700_000, 600_000, 3_000_000))?;
    let all = local.events();
    assert_eq!(all.len(), 2, "up and nothing else: {all:?}");
    assert!(local.status().discarded.is_empty(), "{:?}", local.status().discarded);
    Ok(())
}

#[test]
fn admin_down_is_no_failure_at_either_end() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let frr = Frr::start(&remote_ns, &[Daemon::Bfdd], FRR)?;
    let mut local = LocalDriver::start(&local_ns, 2)?;
    let [four, six] = single_hop_keys();
    for key in [&four, &six] {
        local.bfd.set(key.clone(), Settings::default())?;
        local.wait_until_up(key)?;
        assert_eq!(local.event(key)?.change, Change::Up);
    }
    let admin_down = [
        ("status", Value::from("down")),
        ("diagnostic", "neighbor signaled session down".into()),
        ("remote-diagnostic", "administratively down".into()),
    ];
    // The driver under test removes a session and adds it again.
    local.bfd.remove(four.clone());
    wait(&frr, "10.0.0.1", &admin_down)?;
    assert_eq!(local.event(&four)?.change, Change::Down(Reason::Stopped));
    local.bfd.set(four.clone(), Settings::default())?;
    local.wait_until_up(&four)?;
    assert_eq!(local.event(&four)?.change, Change::Up);

    // The neighbor's session is administratively down.
    frr.configure(&["bfd", "peer 10.0.0.1", "shutdown"])?;
    let change = local.event(&four)?.change;
    assert_eq!(change, Change::Down(Reason::NeighborAdminDown));
    let status = local.wait(&four, "AdminDown of the neighbor", |status| {
        status.remote_state == State::AdminDown
    })?;
    assert_eq!(status.diagnostic, Diagnostic::NeighborSignaledDown);
    frr.configure(&["bfd", "peer 10.0.0.1", "no shutdown"])?;
    local.wait_until_up(&four)?;

    // Planned shutdown of all sessions.
    local.stop();
    for address in ["10.0.0.1", "fd00::1"] {
        wait(&frr, address, &admin_down)?;
    }
    Ok(())
}

#[test]
fn killed_neighbor_and_link_loss_are_detected_in_time() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let mut frr = Frr::start(&remote_ns, &[Daemon::Bfdd], FRR)?;
    let mut local = LocalDriver::start(&local_ns, 3)?;
    let [four, six] = single_hop_keys();
    let up =
        |local: &mut LocalDriver| -> Result<Vec<bfd::SessionStatus>, Box<dyn std::error::Error>> {
            let mut statuses = Vec::new();
            for key in [&four, &six] {
                local.wait_until_up(key)?;
                assert_eq!(local.event(key)?.change, Change::Up);
                // FRR advertises 1 s until its session is up.
                statuses.push(local.wait(key, "timers", |status| status.receive_us < 1_000_000)?);
            }
            Ok(statuses)
        };
    for key in [&four, &six] {
        local.bfd.set(key.clone(), Settings::default())?;
    }
    let before = up(&mut local)?;
    let cut = Instant::now();
    frr.kill(Daemon::Bfdd)?;
    local.assert_each_expires(&[&four, &six], &before, cut);

    frr.restart(Daemon::Bfdd)?;
    let before = up(&mut local)?;
    let cut = Instant::now();
    remote_ns.ip(&["link set dev there down"])?;
    local.assert_each_expires(&[&four, &six], &before, cut);
    let status = local.session_status(&four);
    assert_eq!((status.downs, status.diagnostic), (2, Diagnostic::DetectionTimeExpired));

    // Sessions recover by themselves. The device lost its IPv6 address when the link went down.
    remote_ns.ip(&["link set dev there up", "address replace fd00::2/64 dev there"])?;
    up(&mut local)?;
    Ok(())
}

#[test]
fn frr_multihop_session_enforces_minimum_ttl() -> Outcome {
    let [local_ns, _middle, remote_ns] = routed_namespaces()?;
    let frr = Frr::start(
        &remote_ns,
        &[Daemon::Bfdd],
        "bfd\n peer 10.0.1.1 multihop local-address 10.0.2.2\n exit\n \
         peer fd01::1 multihop local-address fd02::2\n exit\n",
    )?;
    let local = LocalDriver::start(&local_ns, 4)?;
    let key = |peer: &str, local: &str| Key {
        peer: peer.parse().expect("an address"),
        local: Some(local.parse().expect("an address")),
        interface: None,
        multihop: true,
    };
    let [four, six] = [key("10.0.2.2", "10.0.1.1"), key("fd02::2", "fd01::1")];
    let strict = Settings { minimum_ttl: 255, ..Settings::default() };
    local.bfd.set(four.clone(), Settings::default())?;
    local.bfd.set(six.clone(), strict)?;
    local.wait_until_up(&four)?;
    wait(&frr, "10.0.1.1", &[("status", "up".into()), ("multihop", true.into())])?;
    // FRR's packets pass one router, and `minimum_ttl` 255 allows none.
    let status =
        local.wait(&six, "packets over a hop", |status| status.discarded.contains_key("hops"))?;
    assert_eq!((status.state, status.received), (State::Down, 0));
    local.bfd.set(six.clone(), Settings::default())?;
    local.wait_until_up(&six)?;
    wait(&frr, "fd01::1", &[("status", "up".into()), ("multihop", true.into())])?;
    Ok(())
}
