//! Tests against FRR.

use std::time::Instant;

use crate::network::{Ours, Outcome, neighbours, single_hop_keys};
use bfd::machine::{Change, Reason};
use bfd::packet::{Diagnostic, State};
use bfd::{Key, Settings};
use routers::{Daemon, Frr, PATIENCE, beyond_a_router, wait_for};
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

fn of(frr: &Frr, address: &str) -> routers::Result<Value> {
    let all = frr.json("show bfd peers")?;
    let mut peers = all.as_array().into_iter().flatten();
    Ok(peers.find(|peer| peer["peer"] == address).cloned().unwrap_or_default())
}

/// Waits until FRR shows these values for a session.
fn wait(frr: &Frr, address: &str, wanted: &[(&str, Value)]) -> routers::Result<()> {
    wait_for(&format!("{address} at FRR: {wanted:?}"), PATIENCE, || {
        let said = of(frr, address)?;
        Ok((wanted.iter().all(|(key, value)| said[*key] == *value), said.to_string()))
    })
    .map(drop)
}

#[test]
fn both_families_come_up_with_the_timers_of_both_ends_and_change_them_while_up() -> Outcome {
    let (here, there) = neighbours()?;
    let frr = Frr::start(&there, &[Daemon::Bfdd], FRR)?;
    let mut ours = Ours::start(&here, 1)?;
    let [four, six] = single_hop_keys();
    let settings =
        Settings { transmit_ms: 300, receive_ms: 200, multiplier: 4, ..Settings::default() };
    ours.bfd.set(four.clone(), settings)?;
    ours.bfd.set(six.clone(), Settings { passive: true, ..settings })?;
    let timers = |told: &bfd::Told| (told.transmit_us, told.receive_us, told.detection_us);
    ours.wait_until_up(&four)?;
    ours.wait(&four, "timers", |told| timers(told) == (400_000, 250_000, 1_250_000))?;
    ours.wait_until_up(&six)?;
    ours.wait(&six, "timers", |told| timers(told) == (300_000, 200_000, 600_000))?;
    let ours_there = |transmit: u32, receive: u32, multiplier: u32| {
        [
            ("status", Value::from("up")),
            ("remote-transmit-interval", transmit.into()),
            ("remote-receive-interval", receive.into()),
            ("remote-detect-multiplier", multiplier.into()),
        ]
    };
    for address in ["10.0.0.1", "fd00::1"] {
        wait(&frr, address, &ours_there(300, 200, 4))?;
    }

    // Changes our timers, to longer and to shorter ones, then FRR's.
    let slower = Settings { transmit_ms: 700, receive_ms: 600, multiplier: 3, ..settings };
    for settings in [slower, settings, slower] {
        ours.bfd.set(four.clone(), settings)?;
        let Settings { transmit_ms, receive_ms, multiplier, .. } = settings;
        wait(&frr, "10.0.0.1", &ours_there(transmit_ms, receive_ms, multiplier.into()))?;
    }
    frr.configure(&["bfd", "peer 10.0.0.1", "transmit-interval 900", "receive-interval 800"])?;
    ours.wait(&four, "timers", |told| timers(told) == (800_000, 900_000, 4_500_000))?;
    frr.configure(&["bfd", "peer 10.0.0.1", "transmit-interval 100", "receive-interval 100"])?;
    ours.wait(&four, "timers", |told| timers(told) == (700_000, 600_000, 3_000_000))?;
    let all = ours.events();
    assert_eq!(all.len(), 2, "up and nothing else: {all:?}");
    assert!(ours.report().discarded.is_empty(), "{:?}", ours.report().discarded);
    Ok(())
}

#[test]
fn what_a_person_holds_down_is_no_failure_at_either_end() -> Outcome {
    let (here, there) = neighbours()?;
    let frr = Frr::start(&there, &[Daemon::Bfdd], FRR)?;
    let mut ours = Ours::start(&here, 2)?;
    let [four, six] = single_hop_keys();
    for key in [&four, &six] {
        ours.bfd.set(key.clone(), Settings::default())?;
        ours.wait_until_up(key)?;
        assert_eq!(ours.event(key)?.change, Change::Up);
    }
    let held = [
        ("status", Value::from("down")),
        ("diagnostic", "neighbor signaled session down".into()),
        ("remote-diagnostic", "administratively down".into()),
    ];
    // Removes a session and adds it again.
    ours.bfd.remove(four.clone());
    wait(&frr, "10.0.0.1", &held)?;
    assert_eq!(ours.event(&four)?.change, Change::Down(Reason::Stopped));
    ours.bfd.set(four.clone(), Settings::default())?;
    ours.wait_until_up(&four)?;
    assert_eq!(ours.event(&four)?.change, Change::Up);

    // The neighbor's session is administratively down.
    frr.configure(&["bfd", "peer 10.0.0.1", "shutdown"])?;
    let change = ours.event(&four)?.change;
    assert_eq!(change, Change::Down(Reason::NeighbourAdminDown));
    let told = ours.wait(&four, "held", |told| told.remote_state == State::AdminDown)?;
    assert_eq!(told.diagnostic, Diagnostic::NeighborSignaledDown);
    frr.configure(&["bfd", "peer 10.0.0.1", "no shutdown"])?;
    ours.wait_until_up(&four)?;

    // Planned shutdown of all sessions.
    ours.stop();
    for address in ["10.0.0.1", "fd00::1"] {
        wait(&frr, address, &held)?;
    }
    Ok(())
}

#[test]
fn a_neighbour_that_dies_and_a_cable_that_is_cut_are_known_in_the_detection_time() -> Outcome {
    let (here, there) = neighbours()?;
    let mut frr = Frr::start(&there, &[Daemon::Bfdd], FRR)?;
    let mut ours = Ours::start(&here, 3)?;
    let [four, six] = single_hop_keys();
    let up = |ours: &mut Ours| -> Result<Vec<bfd::Told>, Box<dyn std::error::Error>> {
        let mut told = Vec::new();
        for key in [&four, &six] {
            ours.wait_until_up(key)?;
            assert_eq!(ours.event(key)?.change, Change::Up);
            // The neighbor advertises 1 s until it is up.
            told.push(ours.wait(key, "timers", |told| told.receive_us < 1_000_000)?);
        }
        Ok(told)
    };
    for key in [&four, &six] {
        ours.bfd.set(key.clone(), Settings::default())?;
    }
    let before = up(&mut ours)?;
    let cut = Instant::now();
    frr.kill(Daemon::Bfdd)?;
    ours.expires_each(&[&four, &six], &before, cut);

    frr.restart(Daemon::Bfdd)?;
    let before = up(&mut ours)?;
    let cut = Instant::now();
    there.ip(&["link set dev there down"])?;
    ours.expires_each(&[&four, &six], &before, cut);
    let told = ours.told(&four);
    assert_eq!((told.downs, told.diagnostic), (2, Diagnostic::DetectionTimeExpired));

    // Sessions recover by themselves. The link lost its IPv6 address when it went down.
    there.ip(&["link set dev there up", "address replace fd00::2/64 dev there"])?;
    up(&mut ours)?;
    Ok(())
}

#[test]
fn over_a_router_with_as_many_hops_as_allowed() -> Outcome {
    let [here, _middle, there] = beyond_a_router()?;
    let frr = Frr::start(
        &there,
        &[Daemon::Bfdd],
        "bfd\n peer 10.0.1.1 multihop local-address 10.0.2.2\n exit\n \
         peer fd01::1 multihop local-address fd02::2\n exit\n",
    )?;
    let ours = Ours::start(&here, 4)?;
    let key = |peer: &str, local: &str| Key {
        peer: peer.parse().expect("an address"),
        local: Some(local.parse().expect("an address")),
        interface: None,
        multihop: true,
    };
    let [four, six] = [key("10.0.2.2", "10.0.1.1"), key("fd02::2", "fd01::1")];
    let strict = Settings { minimum_ttl: 255, ..Settings::default() };
    ours.bfd.set(four.clone(), Settings::default())?;
    ours.bfd.set(six.clone(), strict)?;
    ours.wait_until_up(&four)?;
    wait(&frr, "10.0.1.1", &[("status", "up".into()), ("multihop", true.into())])?;
    // The packets pass one router more than allowed.
    let told = ours.wait(&six, "packets over a hop", |told| told.discarded.contains_key("hops"))?;
    assert_eq!((told.state, told.received), (State::Down, 0));
    ours.bfd.set(six.clone(), Settings::default())?;
    ours.wait_until_up(&six)?;
    wait(&frr, "fd01::1", &[("status", "up".into()), ("multihop", true.into())])?;
    Ok(())
}
