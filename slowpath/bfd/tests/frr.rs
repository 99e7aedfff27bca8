//! Our BFD with FRR's.

mod network;

use std::time::Instant;

use bfd::machine::{Change, Reason};
use bfd::packet::{Diagnostic, State};
use bfd::{Key, Settings};
use network::{Ours, Outcome, beyond_a_router, neighbours};
use routers::{Daemon, Frr, PATIENCE, wait_for};
use serde_json::Value;

const SETTINGS: Settings = Settings {
    transmit_ms: 300,
    receive_ms: 200,
    multiplier: 4,
    passive: false,
    independent: false,
    minimum_ttl: 254,
};

fn of(frr: &Frr, address: &str) -> routers::Result<Value> {
    let all = frr.json("show bfd peers")?;
    let mut peers = all.as_array().into_iter().flatten();
    Ok(peers.find(|peer| peer["peer"] == address).cloned().unwrap_or_default())
}

fn wait(
    frr: &Frr,
    address: &str,
    what: &str,
    so: impl Fn(&Value) -> bool,
) -> routers::Result<Value> {
    wait_for(&format!("{address} at FRR: {what}"), PATIENCE, || {
        let said = of(frr, address)?;
        Ok((so(&said), said.to_string()))
    })?;
    of(frr, address)
}

#[test]
fn single_hop() -> Outcome {
    let (ours, theirs) = neighbours()?;
    let mut frr = Frr::start(
        &theirs,
        &[Daemon::Bfdd],
        "bfd\n peer 10.0.0.1\n  transmit-interval 250\n  receive-interval 400\n  detect-multiplier 5\n exit\n \
         peer fd00::1 local-address fd00::2 interface there\n  transmit-interval 150\n  receive-interval 100\n exit\n",
    )?;
    let mut bfd = Ours::start(&ours, 1)?;
    let four = Key::single_hop("10.0.0.2".parse()?);
    let six = Key {
        interface: Some("here".into()),
        local: Some("fd00::1".parse()?),
        ..Key::single_hop("fd00::2".parse()?)
    };
    bfd.bfd.set(four.clone(), SETTINGS)?;
    bfd.bfd.set(six.clone(), SETTINGS)?;
    for key in [&four, &six] {
        println!("{:?}", bfd.wait_until_up(key)?);
    }
    println!("{}", wait(&frr, "10.0.0.1", "up", |p| p["status"] == "up")?);
    println!("{}", wait(&frr, "fd00::1", "up", |p| p["status"] == "up")?);
    std::thread::sleep(std::time::Duration::from_secs(3));
    println!("{}", frr.ask("show bfd peers counters json")?);
    println!("{}", wait(&frr, "10.0.0.1", "up", |p| p["status"] == "up")?);
    println!("{}", wait(&frr, "fd00::1", "up", |p| p["status"] == "up")?);
    println!("{:#?}", bfd.report());
    bfd.bfd.remove(four.clone());
    std::thread::sleep(std::time::Duration::from_secs(1));
    println!("{}", of(&frr, "10.0.0.1")?);
    println!("{}", frr.ask("show bfd peers")?);
    println!("{:#?}", bfd.events());
    Ok(())
}
