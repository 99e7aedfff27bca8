//! Which BFD settings of a neighbor keep our routes when the control process is killed and
//! restarted. BGP on our side is GoBGP; BFD is the driver under test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::network::{LocalDriver, Outcome, neighbors, single_hop_keys};
use bfd::Settings;
use routers::{Bird, DEFAULT_TIMEOUT, Daemon, Frr, Gobgp, Netns, wait_for};

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

/// A line of FRR's configuration, in addition to `neighbor 10.0.0.1 bfd`: when BFD goes down, FRR
/// also considers BFD's C bit and graceful restart.
const CHECK_CONTROL_PLANE: &str = " neighbor 10.0.0.1 bfd check-control-plane-failure\n";

const ROUTE: &str = "192.0.2.1/32";

/// The neighbor's routing daemon.
enum Neighbor {
    Frr(Frr),
    Bird(Bird),
}

impl Neighbor {
    fn frr(ns: &Arc<Netns>, more: &str) -> routers::Result<Neighbor> {
        let text = format!(
            "router bgp 65002\n bgp router-id 10.0.0.2\n no bgp ebgp-requires-policy\n \
             neighbor 10.0.0.1 remote-as 65001\n neighbor 10.0.0.1 timers connect 1\n \
             neighbor 10.0.0.1 bfd\n{more}"
        );
        Ok(Neighbor::Frr(Frr::start(ns, &[Daemon::Bgpd, Daemon::Bfdd], &text)?))
    }

    fn bird(ns: &Arc<Netns>, bfd: &str) -> routers::Result<Neighbor> {
        let text = format!(
            "log stderr all;\nrouter id 10.0.0.2;\nprotocol device {{}}\n\
             protocol bfd {{ interface \"there\" {{ interval 300 ms; multiplier 3; }}; }}\n\
             protocol bgp {{ local as 65002; neighbor 10.0.0.1 as 65001; {bfd}; \
             connect retry time 1; connect delay time 1; error wait time 1, 2;\n  \
             ipv4 {{ import all; export none; }}; }}\n"
        );
        Ok(Neighbor::Bird(Bird::start(ns, &text)?))
    }

    fn has_route(&self) -> routers::Result<bool> {
        Ok(match self {
            Neighbor::Frr(frr) => frr.json("show bgp ipv4 unicast")?["routes"].get(ROUTE).is_some(),
            Neighbor::Bird(bird) => bird.query("show route")?.contains(ROUTE),
        })
    }

    /// Returns whether the initial exchange of routes is complete in both directions, and what was
    /// observed. Only FRR is queried: with BIRD, BFD may come up at the same time as BGP, because
    /// its BFD session has the source address from the start.
    fn exchanged(&self) -> routers::Result<(bool, String)> {
        match self {
            Neighbor::Frr(frr) => frr.exchanged("10.0.0.1"),
            Neighbor::Bird(_) => Ok((true, String::new())),
        }
    }

    fn bfd_is(&self, up: bool) -> routers::Result<(bool, String)> {
        Ok(match self {
            Neighbor::Frr(frr) => {
                let output = frr.json("show bfd peers")?;
                (output[0]["status"] == if up { "up" } else { "down" }, output.to_string())
            }
            Neighbor::Bird(bird) => {
                let output = bird.query("show bfd sessions")?;
                let row = output.lines().find(|line| line.starts_with("10.0.0.1"));
                let is_up = row.is_some_and(|row| row.contains(" Up "));
                (is_up == up, output)
            }
        })
    }
}

fn announce(gobgp: &Gobgp) -> routers::Result<()> {
    gobgp.query(&["global", "rib", "add", ROUTE]).map(drop)
}

/// How our side fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Failure {
    /// The process is killed and restarted. The kernel closes its connections.
    Killed,
    /// BFD sends AdminDown, then the process is killed and restarted.
    AdminDownFirst,
    /// The machine fails: no packets are sent any more, not even the end of a connection.
    Gone,
}

/// Polls whether the neighbor has the route.
struct RouteWatch<'a> {
    neighbor: &'a Neighbor,
    started: Instant,
    /// Time from the start until the route was first absent.
    absent: Option<Duration>,
}

impl RouteWatch<'_> {
    fn poll(&mut self) -> routers::Result<()> {
        if self.absent.is_none() && !self.neighbor.has_route()? {
            self.absent = Some(self.started.elapsed());
        }
        Ok(())
    }

    /// Polls until `condition` returns true, and a little longer.
    fn until(
        &mut self,
        what: &str,
        condition: impl Fn() -> routers::Result<(bool, String)>,
    ) -> Outcome {
        wait_for(what, DEFAULT_TIMEOUT, || {
            self.poll()?;
            condition()
        })?;
        // The neighbor may react to the change a little later.
        for _ in 0..20 {
            self.poll()?;
        }
        Ok(())
    }
}

/// Returns whether the neighbor started by `begin` keeps the route throughout the failure and the
/// restart of our side; [`Failure::Gone`] has no restart.
fn keeps(
    begin: impl Fn(&Arc<Netns>) -> routers::Result<Neighbor>,
    failure: Failure,
) -> Result<bool, Box<dyn std::error::Error>> {
    let (local_ns, remote_ns) = neighbors()?;
    let neighbor = begin(&remote_ns)?;
    let mut gobgp = Gobgp::start(&local_ns, GOBGP)?;
    announce(&gobgp)?;
    wait_for("the route", DEFAULT_TIMEOUT, || Ok((neighbor.has_route()?, String::new())))?;
    wait_for("all routes exchanged", DEFAULT_TIMEOUT, || neighbor.exchanged())?;
    // BFD starts only now: if BFD comes up at the same time as BGP, FRR 8.4 may end the new BGP
    // session with Cease/BFD Down (RFC 9384) just after it received our routes, and then has no
    // routes to keep.
    let [key, _] = single_hop_keys();
    let local = LocalDriver::start(&local_ns, 7)?;
    local.bfd.set(key.clone(), Settings::default())?;
    wait_for("BFD up at the neighbor", DEFAULT_TIMEOUT, || neighbor.bfd_is(true))?;
    local.wait(&key, "fast timers", |status| status.detection_us == 900_000)?;

    let mut watch = RouteWatch { neighbor: &neighbor, started: Instant::now(), absent: None };
    let down = || neighbor.bfd_is(false);
    match failure {
        Failure::Killed => {
            gobgp.kill()?;
            local.kill();
            watch.until("BFD down", down)?;
        }
        Failure::AdminDownFirst => {
            local.stop();
            watch.until("BFD down", down)?;
            gobgp.kill()?;
        }
        Failure::Gone => {
            let rules = "table inet gone { chain out { type filter hook output priority 0; \
                         policy drop; }; }";
            local_ns.command_with_input("nft", &["-f", "-"], rules)?;
            watch.until("BFD down", down)?;
            println!("{failure:?}: route gone after {:?}", watch.absent);
            return Ok(watch.absent.is_none());
        }
    }
    gobgp.restart_gracefully()?;
    announce(&gobgp)?;
    let local = LocalDriver::start(&local_ns, 8)?;
    local.bfd.set(key.clone(), Settings::default())?;
    watch.until("BGP up again", || {
        let output = gobgp.json(&["neighbor"])?;
        Ok((output[0]["state"]["session_state"] == 6, output[0]["state"].to_string()))
    })?;
    watch.until("BFD up again", || neighbor.bfd_is(true))?;
    println!("{failure:?}: route gone after {:?}", watch.absent);
    Ok(watch.absent.is_none())
}

#[test]
fn frr_keeps_routes_of_a_killed_process_but_not_of_a_dead_host() -> Outcome {
    // With `neighbor 10.0.0.1 bfd` alone, FRR takes AdminDown for a failure.
    for (more, admin_down_first) in [("", false), (CHECK_CONTROL_PLANE, true)] {
        assert!(keeps(|ns| Neighbor::frr(ns, more), Failure::Killed)?, "{more}");
        assert!(!keeps(|ns| Neighbor::frr(ns, more), Failure::Gone)?, "{more}");
        let keeps_route = keeps(|ns| Neighbor::frr(ns, more), Failure::AdminDownFirst)?;
        assert_eq!(keeps_route, admin_down_first, "{more}");
    }
    Ok(())
}

#[test]
fn bird_keeps_routes_in_both_failures_only_with_graceful_bfd() -> Outcome {
    for (bfd, keeps_route) in [("bfd on", false), ("bfd graceful", true)] {
        for failure in [Failure::Killed, Failure::Gone] {
            assert_eq!(
                keeps(|ns| Neighbor::bird(ns, bfd), failure)?,
                keeps_route,
                "{bfd}, {failure:?}"
            );
        }
    }
    Ok(())
}
