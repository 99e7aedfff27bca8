//! What a neighbour does with our routes when our control process dies and comes back, BFD and all:
//! which of its settings keep them. The BGP of our side is GoBGP's; BFD is ours.

mod network;

use std::time::{Duration, Instant};

use bfd::{Key, Settings};
use network::{Ours, Outcome, neighbours};
use routers::{Bird, Daemon, Frr, Gobgp, Netns, PATIENCE, wait_for};

const GOBGP: &str = "\
[global.config]
  as = 65001
  router-id = \"10.0.0.1\"
[[neighbors]]
  [neighbors.config]
    neighbor-address = \"10.0.0.2\"
    peer-as = 65002
  [neighbors.graceful-restart.config]
    enabled = true
    restart-time = 60
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = \"ipv4-unicast\"
    [neighbors.afi-safis.mp-graceful-restart.config]
      enabled = true
";

const ROUTE: &str = "192.0.2.1/32";

#[derive(Clone, Copy, Debug)]
enum How { Killed, Planned, Cut }

/// The neighbour.
enum Theirs {
    Frr(Frr),
    Bird(Bird),
}

impl Theirs {
    fn frr(ns: &std::sync::Arc<Netns>, more: &str) -> routers::Result<Theirs> {
        let text = format!(
            "router bgp 65002\n bgp router-id 10.0.0.2\n no bgp ebgp-requires-policy\n \
             neighbor 10.0.0.1 remote-as 65001\n neighbor 10.0.0.1 timers connect 1\n \
             neighbor 10.0.0.1 bfd\n{more}"
        );
        Ok(Theirs::Frr(Frr::start(ns, &[Daemon::Bgpd, Daemon::Bfdd], &text)?))
    }

    fn bird(ns: &std::sync::Arc<Netns>, bfd: &str) -> routers::Result<Theirs> {
        let text = format!(
            "log stderr all;\nrouter id 10.0.0.2;\nprotocol device {{}}\n\
             protocol bfd {{ interface \"there\" {{ interval 300 ms; multiplier 3; }}; }}\n\
             protocol bgp {{ local as 65002; neighbor 10.0.0.1 as 65001; {bfd}; \
             connect retry time 1; connect delay time 1; error wait time 1, 2;\n  \
             ipv4 {{ import all; export none; }}; }}\n"
        );
        Ok(Theirs::Bird(Bird::start(ns, &text)?))
    }

    fn has_route(&self) -> routers::Result<bool> {
        Ok(match self {
            Theirs::Frr(frr) => frr.json("show bgp ipv4 unicast")?["routes"].get(ROUTE).is_some(),
            Theirs::Bird(bird) => bird.ask("show route")?.contains(ROUTE),
        })
    }

    fn bfd_is(&self, up: bool) -> routers::Result<(bool, String)> {
        Ok(match self {
            Theirs::Frr(frr) => {
                let said = frr.json("show bfd peers")?;
                (said[0]["status"] == if up { "up" } else { "down" }, said.to_string())
            }
            Theirs::Bird(bird) => {
                let said = bird.ask("show bfd sessions")?;
                let row = said.lines().find(|line| line.starts_with("10.0.0.1"));
                let is_up = row.is_some_and(|row| row.contains(" Up "));
                (is_up == up, said)
            }
        })
    }
}

fn announce(gobgp: &Gobgp) -> routers::Result<()> {
    gobgp.ask(&["global", "rib", "add", ROUTE]).map(drop)
}

/// Whether the route stays at the neighbour all the time, while we die and come back.
fn stays(
    theirs: impl Fn(&std::sync::Arc<Netns>) -> routers::Result<Theirs>,
    independent: bool,
    planned: bool,
) -> Result<bool, Box<dyn std::error::Error>> {
    let (here, there) = neighbours()?;
    let theirs = theirs(&there)?;
    let mut gobgp = Gobgp::start(&here, GOBGP)?;
    announce(&gobgp)?;
    let key = Key::single_hop("10.0.0.2".parse()?);
    let settings = Settings { independent, ..Settings::default() };
    let ours = Ours::start(&here, 7)?;
    ours.bfd.set(key.clone(), settings)?;
    wait_for("the route", PATIENCE, || Ok((theirs.has_route()?, String::new())))?;
    ours.wait_until_up(&key)?;
    wait_for("BFD up at the neighbour", PATIENCE, || theirs.bfd_is(true))?;
    wait_for("fast timers", PATIENCE, || {
        Ok((ours.told(&key).detection_us == 900_000, String::new()))
    })?;

    let mut absent = None;
    let begun = Instant::now();
    let mut look = |theirs: &Theirs| -> routers::Result<()> {
        if !theirs.has_route()? && absent.is_none() {
            absent = Some(begun.elapsed());
        }
        Ok(())
    };
    match how {
        How::Killed => { gobgp.kill()?; ours.kill(); }
        How::Planned => {
            ours.stop();
            wait_for("BFD down", PATIENCE, || { look(&theirs)?; theirs.bfd_is(false) })?;
            for _ in 0..40 { look(&theirs)?; std::thread::sleep(Duration::from_millis(25)); }
            gobgp.kill()?;
        }
        How::Cut => {
            here.fed("nft", &["-f", "-"], "table inet cut { chain out { type filter hook output priority 0; policy drop; }; chain in { type filter hook input priority 0; policy drop; }; }")?;
            wait_for("BFD down", PATIENCE, || { look(&theirs)?; theirs.bfd_is(false) })?;
            println!("BFD down at the neighbour after {:?}", begun.elapsed());
            for _ in 0..120 { look(&theirs)?; std::thread::sleep(Duration::from_millis(25)); }
            println!("absent first: {absent:?}; all took {:?}", begun.elapsed());
            return Ok(absent.is_none());
        }
    }
    wait_for("BFD down", PATIENCE, || { look(&theirs)?; theirs.bfd_is(false) })?;
    println!("BFD down at the neighbour after {:?}", begun.elapsed());
    for _ in 0..40 { look(&theirs)?; std::thread::sleep(Duration::from_millis(25)); }
    gobgp.restart(true)?;
    announce(&gobgp)?;
    let ours = Ours::start(&here, 8)?;
    ours.bfd.set(key.clone(), settings)?;
    wait_for("BGP up again", PATIENCE, || {
        look(&theirs)?;
        let said = gobgp.json(&["neighbor"])?;
        Ok((said[0]["state"]["session_state"] == 6, said[0]["state"].to_string()))
    })?;
    wait_for("BFD up again", PATIENCE, || {
        look(&theirs)?;
        theirs.bfd_is(true)
    })?;
    for _ in 0..40 {
        look(&theirs)?;
        std::thread::sleep(Duration::from_millis(25));
    }
    println!("absent first: {absent:?}; all took {:?}", begun.elapsed());
    Ok(absent.is_none())
}

#[test]
fn experiment() -> Outcome {
    let check = " neighbor 10.0.0.1 bfd check-control-plane-failure\n";
    let gr = " bgp graceful-restart\n";
    for planned in [How::Cut] {
        for independent in [false, true] {
            for more in [String::new(), check.to_owned(), gr.to_owned(), format!("{gr}{check}")] {
                match stays(|ns| Theirs::frr(ns, &more), independent, planned) {
                    Ok(kept) => {
                        println!("== FRR {planned:?} C {independent} {more:?}: kept {kept}")
                    }
                    Err(error) => {
                        println!("== FRR {planned:?} C {independent} {more:?}: {error}")
                    }
                }
            }
        }
        for bfd in ["bfd on", "bfd graceful", "bfd on; graceful restart on"] {
            match stays(|ns| Theirs::bird(ns, bfd), false, planned) {
                Ok(kept) => println!("== BIRD {planned:?} {bfd:?}: kept {kept}"),
                Err(error) => println!("== BIRD {planned:?} {bfd:?}: {error}"),
            }
        }
    }
    Ok(())
}
