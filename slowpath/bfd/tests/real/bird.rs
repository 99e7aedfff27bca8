//! Tests against BIRD.

use std::time::Instant;

use crate::network::{Ours, Outcome, neighbours, single_hop_keys};
use bfd::machine::{Change, Reason};
use bfd::{Key, Settings};
use routers::{Bird, PATIENCE, beyond_a_router, wait_for};

const BIRD: &str = "\
log stderr all;
router id 10.0.0.2;
protocol device {}
protocol bfd {
  interface \"there\" { min tx interval 250 ms; min rx interval 400 ms; multiplier 5; };
  multihop { min tx interval 150 ms; min rx interval 100 ms; multiplier 3; };
";

/// Waits until BIRD shows a session with this state, interval and detection time in seconds.
fn wait(bird: &Bird, address: &str, wanted: [&str; 3]) -> routers::Result<()> {
    wait_for(&format!("{address} at BIRD: {wanted:?}"), PATIENCE, || {
        let said = bird.ask("show bfd sessions")?;
        let row = said.lines().find(|line| line.split_whitespace().next() == Some(address));
        let words: Vec<&str> = row.unwrap_or_default().split_whitespace().collect();
        let so = matches!(words[..], [_, _, state, _, every, patience]
            if [state, every, patience] == wanted);
        Ok((so, said))
    })
    .map(drop)
}

#[test]
fn both_families_come_up_and_a_death_or_a_plan_is_known_as_what_it_is() -> Outcome {
    let (here, there) = neighbours()?;
    let configuration = format!("{BIRD} neighbor 10.0.0.1; neighbor fd00::1; }}");
    let mut bird = Bird::start(&there, &configuration)?;
    let mut ours = Ours::start(&here, 5)?;
    let keys = single_hop_keys();
    let settings =
        Settings { transmit_ms: 300, receive_ms: 200, multiplier: 4, ..Settings::default() };
    let up = |ours: &mut Ours| -> Result<Vec<bfd::Told>, Box<dyn std::error::Error>> {
        let mut told = Vec::new();
        for key in &keys {
            ours.wait_until_up(key)?;
            assert_eq!(ours.event(key)?.change, Change::Up);
            told.push(ours.wait(key, "timers", |told| {
                (told.transmit_us, told.receive_us, told.detection_us)
                    == (400_000, 250_000, 1_250_000)
            })?);
        }
        Ok(told)
    };
    for key in &keys {
        ours.bfd.set(key.clone(), settings)?;
    }
    let before = up(&mut ours)?;
    for address in ["10.0.0.1", "fd00::1"] {
        wait(&bird, address, ["Up", "0.250", "1.600"])?;
    }

    let cut = Instant::now();
    bird.kill()?;
    ours.expires_each(&[&keys[0], &keys[1]], &before, cut);
    bird.restart(false)?;
    up(&mut ours)?;

    // One session is ended here, one by BIRD.
    ours.bfd.remove(keys[0].clone());
    assert_eq!(ours.event(&keys[0])?.change, Change::Down(Reason::Stopped));
    wait_for("down at BIRD", PATIENCE, || {
        let said = bird.ask("show bfd sessions")?;
        Ok((said.lines().any(|l| l.contains("10.0.0.1") && l.contains("Down")), said))
    })?;
    bird.ask("disable bfd1")?;
    // BIRD sends no AdminDown, so that the detection time expires.
    assert_eq!(ours.event(&keys[1])?.change, Change::Down(Reason::Expired));
    Ok(())
}

#[test]
fn over_a_router() -> Outcome {
    let [here, _middle, there] = beyond_a_router()?;
    let configuration = format!(
        "{BIRD} neighbor 10.0.1.1 local 10.0.2.2 multihop on; \
         neighbor fd01::1 local fd02::2 multihop on; }}"
    );
    let bird = Bird::start(&there, &configuration)?;
    let ours = Ours::start(&here, 6)?;
    for (peer, local) in [("10.0.2.2", "10.0.1.1"), ("fd02::2", "fd01::1")] {
        let key = Key {
            peer: peer.parse()?,
            local: Some(local.parse()?),
            interface: None,
            multihop: true,
        };
        // BIRD sends with TTL 64 instead of 255, and there is one router on the path.
        ours.bfd.set(key.clone(), Settings::default())?;
        ours.wait(&key, "packets with few hops", |told| told.discarded.contains_key("hops"))?;
        ours.bfd.set(key.clone(), Settings { minimum_ttl: 63, ..Settings::default() })?;
        ours.wait_until_up(&key)?;
        ours.wait(&key, "timers", |told| told.detection_us == 900_000)?;
        wait(&bird, local, ["Up", "0.300", "0.900"])?;
    }
    Ok(())
}
