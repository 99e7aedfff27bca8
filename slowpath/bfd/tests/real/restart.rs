//! Which BFD settings of a neighbor keep our routes when the control process is killed and
//! restarted. BGP on our side is GoBGP; BFD is the driver under test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::network::{Ours, Outcome, neighbours, single_hop_keys};
use bfd::Settings;
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

/// FRR configuration in addition to `neighbor 10.0.0.1 bfd`.
const CHECK: &str = " neighbor 10.0.0.1 bfd check-control-plane-failure\n";

const ROUTE: &str = "192.0.2.1/32";

/// The neighbor's routing daemon.
enum Theirs {
    Frr(Frr),
    Bird(Bird),
}

impl Theirs {
    fn frr(ns: &Arc<Netns>, more: &str) -> routers::Result<Theirs> {
        let text = format!(
            "router bgp 65002\n bgp router-id 10.0.0.2\n no bgp ebgp-requires-policy\n \
             neighbor 10.0.0.1 remote-as 65001\n neighbor 10.0.0.1 timers connect 1\n \
             neighbor 10.0.0.1 bfd\n{more}"
        );
        Ok(Theirs::Frr(Frr::start(ns, &[Daemon::Bgpd, Daemon::Bfdd], &text)?))
    }

    fn bird(ns: &Arc<Netns>, bfd: &str) -> routers::Result<Theirs> {
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

    /// Returns whether the initial exchange of routes is complete in both directions. With BIRD
    /// this always holds, because its BFD session has its source address from the start.
    fn exchanged(&self) -> routers::Result<(bool, String)> {
        match self {
            Theirs::Frr(frr) => frr.exchanged("10.0.0.1"),
            Theirs::Bird(_) => Ok((true, String::new())),
        }
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

/// How our side fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// The process is killed and restarted. The kernel closes its connections.
    Killed,
    /// BFD sends AdminDown, then the process is killed and restarted.
    HeldDownFirst,
    /// The machine fails: no packets are sent any more, not even the end of a connection.
    Gone,
}

/// Polls whether the neighbor has the route.
struct Watch<'a> {
    theirs: &'a Theirs,
    begun: Instant,
    absent: Option<Duration>,
}

impl Watch<'_> {
    fn look(&mut self) -> routers::Result<()> {
        if self.absent.is_none() && !self.theirs.has_route()? {
            self.absent = Some(self.begun.elapsed());
        }
        Ok(())
    }

    /// Polls until `so` returns true.
    fn until(&mut self, what: &str, so: impl Fn() -> routers::Result<(bool, String)>) -> Outcome {
        wait_for(what, PATIENCE, || {
            self.look()?;
            so()
        })?;
        // Reactions to the change may follow a little later.
        for _ in 0..20 {
            self.look()?;
        }
        Ok(())
    }
}

/// Returns whether the neighbor keeps the route throughout.
fn keeps(
    begin: impl Fn(&Arc<Netns>) -> routers::Result<Theirs>,
    how: How,
) -> Result<bool, Box<dyn std::error::Error>> {
    let (here, there) = neighbours()?;
    let theirs = begin(&there)?;
    let mut gobgp = Gobgp::start(&here, GOBGP)?;
    announce(&gobgp)?;
    wait_for("the route", PATIENCE, || Ok((theirs.has_route()?, String::new())))?;
    wait_for("all routes exchanged", PATIENCE, || theirs.exchanged())?;
    // BFD starts only now: if BFD comes up at the same time as BGP, FRR 8.4 may end the new BGP
    // session with Cease/BFD Down (RFC 9384) just after it received our routes, and then has no
    // routes to keep.
    let [key, _] = single_hop_keys();
    let ours = Ours::start(&here, 7)?;
    ours.bfd.set(key.clone(), Settings::default())?;
    wait_for("BFD up at the neighbour", PATIENCE, || theirs.bfd_is(true))?;
    ours.wait(&key, "fast timers", |told| told.detection_us == 900_000)?;

    let mut watch = Watch { theirs: &theirs, begun: Instant::now(), absent: None };
    let down = || theirs.bfd_is(false);
    match how {
        How::Killed => {
            gobgp.kill()?;
            ours.kill();
            watch.until("BFD down", down)?;
        }
        How::HeldDownFirst => {
            ours.stop();
            watch.until("BFD down", down)?;
            gobgp.kill()?;
        }
        How::Gone => {
            let rules = "table inet gone { chain out { type filter hook output priority 0; \
                         policy drop; }; }";
            here.fed("nft", &["-f", "-"], rules)?;
            watch.until("BFD down", down)?;
            println!("{how:?}: route gone after {:?}", watch.absent);
            return Ok(watch.absent.is_none());
        }
    }
    gobgp.restart(true)?;
    announce(&gobgp)?;
    let ours = Ours::start(&here, 8)?;
    ours.bfd.set(key.clone(), Settings::default())?;
    watch.until("BGP up again", || {
        let said = gobgp.json(&["neighbor"])?;
        Ok((said[0]["state"]["session_state"] == 6, said[0]["state"].to_string()))
    })?;
    watch.until("BFD up again", || theirs.bfd_is(true))?;
    println!("{how:?}: route gone after {:?}", watch.absent);
    Ok(watch.absent.is_none())
}

#[test]
fn frr_keeps_routes_of_a_killed_process_and_gives_up_those_of_a_machine_that_is_gone() -> Outcome {
    // With `neighbor 10.0.0.1 bfd` alone, FRR treats AdminDown as a failure.
    for (more, held_down_first) in [("", false), (CHECK, true)] {
        assert!(keeps(|ns| Theirs::frr(ns, more), How::Killed)?, "{more}");
        assert!(!keeps(|ns| Theirs::frr(ns, more), How::Gone)?, "{more}");
        let kept = keeps(|ns| Theirs::frr(ns, more), How::HeldDownFirst)?;
        assert_eq!(kept, held_down_first, "{more}");
    }
    Ok(())
}

#[test]
fn bird_keeps_routes_of_both_or_of_neither() -> Outcome {
    for (bfd, kept) in [("bfd on", false), ("bfd graceful", true)] {
        for how in [How::Killed, How::Gone] {
            assert_eq!(keeps(|ns| Theirs::bird(ns, bfd), how)?, kept, "{bfd}, {how:?}");
        }
    }
    Ok(())
}
