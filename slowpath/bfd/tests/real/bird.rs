//! Tests of the BFD driver with BIRD as neighbor.

use std::time::Instant;

use crate::network::{LocalDriver, Outcome, neighbors, single_hop_keys};
use bfd::machine::{Change, Reason};
use bfd::{Key, Settings};
use routers::{Bird, DEFAULT_TIMEOUT, routed_namespaces, wait_for};

const BIRD: &str = "\
log stderr all;
router id 10.0.0.2;
protocol device {}
protocol bfd {
  interface \"there\" { min tx interval 250 ms; min rx interval 400 ms; multiplier 5; };
  multihop { min tx interval 150 ms; min rx interval 100 ms; multiplier 3; };
";

/// Waits until BIRD shows a session with this state, interval and detection time in seconds.
fn wait(bird: &Bird, address: &str, expected: [&str; 3]) -> routers::Result<()> {
    wait_for(&format!("{address} at BIRD: {expected:?}"), DEFAULT_TIMEOUT, || {
        let output = bird.query("show bfd sessions")?;
        let row = output.lines().find(|line| line.split_whitespace().next() == Some(address));
        let columns: Vec<&str> = row.unwrap_or_default().split_whitespace().collect();
        let matches = matches!(columns[..], [_, _, state, _, interval, detection_time]
            if [state, interval, detection_time] == expected);
        Ok((matches, output))
    })
    .map(drop)
}

#[test]
fn bird_loss_expires_and_bird_receives_admin_down() -> Outcome {
    let (local_ns, remote_ns) = neighbors()?;
    let configuration = format!("{BIRD} neighbor 10.0.0.1; neighbor fd00::1; }}");
    let mut bird = Bird::start(&remote_ns, &configuration)?;
    let mut local = LocalDriver::start(&local_ns, 5)?;
    let keys = single_hop_keys();
    let settings =
        Settings { transmit_ms: 300, receive_ms: 200, multiplier: 4, ..Settings::default() };
    let up =
        |local: &mut LocalDriver| -> Result<Vec<bfd::SessionStatus>, Box<dyn std::error::Error>> {
            let mut statuses = Vec::new();
            for key in &keys {
                local.wait_until_up(key)?;
                assert_eq!(local.event(key)?.change, Change::Up);
                statuses.push(local.wait(key, "timers", |status| {
                    (status.transmit_us, status.receive_us, status.detection_us)
                        == (400_000, 250_000, 1_250_000)
                })?);
            }
            Ok(statuses)
        };
    for key in &keys {
        local.bfd.set(key.clone(), settings)?;
    }
    let before = up(&mut local)?;
    for address in ["10.0.0.1", "fd00::1"] {
        wait(&bird, address, ["Up", "0.250", "1.600"])?;
    }

    let cut = Instant::now();
    bird.kill()?;
    local.assert_each_expires(&[&keys[0], &keys[1]], &before, cut);
    bird.restart()?;
    up(&mut local)?;

    // The driver under test ends one session, for which BIRD receives AdminDown. BIRD ends the
    // other.
    local.bfd.remove(keys[0].clone());
    assert_eq!(local.event(&keys[0])?.change, Change::Down(Reason::Stopped));
    wait_for("down at BIRD", DEFAULT_TIMEOUT, || {
        let output = bird.query("show bfd sessions")?;
        Ok((output.lines().any(|l| l.contains("10.0.0.1") && l.contains("Down")), output))
    })?;
    bird.query("disable bfd1")?;
    // BIRD sends no AdminDown, so the detection time expires.
    assert_eq!(local.event(&keys[1])?.change, Change::Down(Reason::Expired));
    Ok(())
}

#[test]
fn bird_multihop_session_with_minimum_ttl() -> Outcome {
    let [local_ns, _middle, remote_ns] = routed_namespaces()?;
    let configuration = format!(
        "{BIRD} neighbor 10.0.1.1 local 10.0.2.2 multihop on; \
         neighbor fd01::1 local fd02::2 multihop on; }}"
    );
    let bird = Bird::start(&remote_ns, &configuration)?;
    let driver = LocalDriver::start(&local_ns, 6)?;
    for (peer, local) in [("10.0.2.2", "10.0.1.1"), ("fd02::2", "fd01::1")] {
        let key = Key {
            peer: peer.parse()?,
            local: Some(local.parse()?),
            interface: None,
            multihop: true,
        };
        // BIRD sends with TTL 64 instead of 255, and there is one router on the path.
        driver.bfd.set(key.clone(), Settings::default())?;
        driver
            .wait(&key, "packets with a low TTL", |status| status.discarded.contains_key("hops"))?;
        driver.bfd.set(key.clone(), Settings { minimum_ttl: 63, ..Settings::default() })?;
        driver.wait_until_up(&key)?;
        driver.wait(&key, "timers", |status| status.detection_us == 900_000)?;
        wait(&bird, local, ["Up", "0.300", "0.900"])?;
    }
    Ok(())
}
