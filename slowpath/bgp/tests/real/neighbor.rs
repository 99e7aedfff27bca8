//! The neighbor's routing daemon, with the same queries for each kind.

use std::collections::BTreeSet;
use std::sync::Arc;

use bgp::wire::Family;
use routers::{Bird, DEFAULT_TIMEOUT, Daemon, Frr, Gobgp, Netns, wait_for};
use serde_json::Value;

use crate::network::Outcome;
pub use crate::plan::Plan;
use crate::plan::name;

/// Routing daemons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Frr,
    Bird,
    Gobgp,
}

/// A running routing daemon.
pub enum Neighbor {
    Frr(Frr),
    Bird(Bird),
    Gobgp(Gobgp),
}

/// Status of a session as the neighbor shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    pub up: bool,
    /// Hold time in use, in seconds.
    pub hold: u64,
    /// Text that differs for each session: the number of sessions so far (FRR) or the start time
    /// (BIRD, GoBGP).
    pub epoch: String,
}

impl Session {
    /// Returns whether the session has not ended since `before`. BIRD recomputes the start time at
    /// each query, with an error of about a millisecond: less than 50 ms count as equal.
    pub fn is_still(&self, before: &Session) -> bool {
        let milliseconds = |epoch: &str| {
            let parts: Vec<f64> = epoch.split(':').map_while(|part| part.parse().ok()).collect();
            let [hours, minutes, seconds] = parts[..] else { return None };
            Some(((hours * 60.0 + minutes) * 60.0 + seconds) * 1000.0)
        };
        let near = milliseconds(&self.epoch).zip(milliseconds(&before.epoch));
        self.epoch == before.epoch || near.is_some_and(|(now, then)| (now - then).abs() < 50.0)
    }
}

/// A route as the neighbor shows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Route {
    pub next_hop: String,
    pub path: Vec<u32>,
    pub med: Option<u64>,
    pub local_pref: Option<u64>,
    pub communities: BTreeSet<u32>,
    pub large: BTreeSet<String>,
    /// The route is stale (graceful restart). BIRD shows this for a session, not for a route: all
    /// routes count as stale until it has received End-of-RIB.
    pub stale: bool,
}

impl Neighbor {
    pub fn start(kind: Kind, ns: &Arc<Netns>, plan: &Plan) -> Outcome<Neighbor> {
        Ok(match kind {
            Kind::Frr => {
                let daemons: &[Daemon] =
                    if plan.bfd { &[Daemon::Bgpd, Daemon::Bfdd] } else { &[Daemon::Bgpd] };
                Neighbor::Frr(Frr::start(ns, daemons, &plan.frr())?)
            }
            Kind::Bird => Neighbor::Bird(Bird::start(ns, &plan.bird())?),
            Kind::Gobgp => Neighbor::Gobgp(Gobgp::start(ns, &plan.gobgp())?),
        })
    }

    /// Kills the daemon; of FRR, bgpd alone.
    pub fn kill(&mut self) -> Outcome {
        match self {
            Neighbor::Frr(frr) => frr.kill(Daemon::Bgpd)?,
            Neighbor::Bird(bird) => bird.kill()?,
            Neighbor::Gobgp(gobgp) => gobgp.kill()?,
        }
        Ok(())
    }

    /// Waits until FRR shows that the initial exchange of routes is complete in both directions;
    /// returns at once for other daemons. If BFD comes up at the same time as BGP, FRR 8.4 may end
    /// the new BGP session with Cease/BFD Down just after it received our routes. After the
    /// exchange this no longer happens.
    pub fn wait_until_exchanged(&self, local: &str) -> Outcome {
        let Neighbor::Frr(frr) = self else { return Ok(()) };
        wait_for(&format!("{local}: all routes exchanged"), DEFAULT_TIMEOUT, || {
            frr.exchanged(local)
        })?;
        Ok(())
    }

    /// Starts the killed daemon again.
    pub fn restart(&mut self) -> Outcome {
        match self {
            Neighbor::Frr(frr) => frr.restart(Daemon::Bgpd)?,
            Neighbor::Bird(bird) => bird.restart()?,
            Neighbor::Gobgp(gobgp) => gobgp.restart()?,
        }
        Ok(())
    }

    /// Replaces the TCP-MD5 key: with FRR, of the session with 10.0.0.1; with BIRD, of both
    /// sessions.
    pub fn set_password(&self, password: &'static str) -> Outcome {
        match self {
            Neighbor::Frr(frr) => {
                let router = format!("router bgp {}", crate::network::THEIR_ASN);
                let neighbor = format!("neighbor 10.0.0.1 password {password}");
                frr.configure(&[&router, &neighbor])?;
            }
            Neighbor::Bird(bird) => {
                bird.configure(&Plan { password: Some(password), ..Plan::default() }.bird())?;
            }
            Neighbor::Gobgp(_) => return Err("GoBGP has no command to replace a key".into()),
        }
        Ok(())
    }

    /// Requests all routes again (ROUTE-REFRESH).
    pub fn request_refresh(&self, local: &str) -> Outcome {
        match self {
            Neighbor::Frr(frr) => drop(frr.query(&format!("clear bgp {local} soft in"))?),
            Neighbor::Bird(bird) => drop(bird.query(&format!("reload in {}", name(local)))?),
            Neighbor::Gobgp(gobgp) => drop(gobgp.query(&["neighbor", local, "softresetin"])?),
        }
        Ok(())
    }

    /// Returns the neighbor's status of the session with one of the speaker's addresses.
    pub fn session(&self, local: &str) -> routers::Result<Session> {
        Ok(match self {
            Neighbor::Frr(frr) => {
                let output = &frr.json(&format!("show bgp neighbors {local}"))?[local];
                Session {
                    up: output["bgpState"] == "Established",
                    hold: output["bgpTimerHoldTimeMsecs"].as_u64().unwrap_or(0) / 1_000,
                    epoch: output["connectionsEstablished"].to_string(),
                }
            }
            Neighbor::Bird(bird) => {
                let output = bird.query(&format!("show protocols all {}", name(local)))?;
                let after = |what: &str| {
                    let line = output.lines().find_map(|l| l.trim().strip_prefix(what));
                    line.unwrap_or_default().trim().to_owned()
                };
                let row = after(&format!("{} ", name(local)));
                Session {
                    up: after("BGP state:") == "Established",
                    hold: after("Hold timer:")
                        .split('/')
                        .nth(1)
                        .and_then(|n| n.parse().ok())
                        .unwrap_or(0),
                    epoch: row.split_whitespace().nth(3).unwrap_or_default().to_owned(),
                }
            }
            Neighbor::Gobgp(gobgp) => {
                let output = gobgp.json(&["neighbor", local])?;
                let timers = &output["timers"]["state"];
                Session {
                    up: output["state"]["session_state"] == 6,
                    hold: timers["negotiated_hold_time"].as_f64().unwrap_or(0.0) as u64,
                    epoch: timers["uptime"].to_string(),
                }
            }
        })
    }

    /// Returns a route, if the neighbor has it.
    pub fn route(&self, prefix: &str) -> routers::Result<Option<Route>> {
        let six = prefix.contains(':');
        match self {
            Neighbor::Frr(frr) => {
                let family = if six { "ipv6" } else { "ipv4" };
                let output = frr.json(&format!("show bgp {family} unicast {prefix}"))?;
                Ok(output["paths"].get(0).map(parse_frr_route))
            }
            Neighbor::Bird(bird) => {
                let output = bird.query(&format!("show route {prefix} all"));
                let sessions = bird.query("show protocols all")?;
                let stale = sessions.contains("Neighbor graceful restart active");
                // birdc treats "Network not found" as an error.
                let route = output.ok().and_then(|output| parse_bird_route(&output));
                Ok(route.map(|route| Route { stale, ..route }))
            }
            Neighbor::Gobgp(gobgp) => {
                let family = if six { "ipv6" } else { "ipv4" };
                let output = gobgp.json(&["global", "rib", "-a", family])?;
                Ok(output[prefix].get(0).map(parse_gobgp_route))
            }
        }
    }

    /// Returns the number of routes of `family`.
    pub fn count(&self, family: Family) -> routers::Result<usize> {
        let six = family == Family::Ipv6Unicast;
        let number = |output: &str, at: usize| {
            let fields = output.split([' ', ',', '\n']).filter(|word| !word.is_empty());
            let numbers = fields.filter_map(|word| word.parse().ok());
            numbers.clone().nth(at).unwrap_or(0)
        };
        let family = if six { "ipv6" } else { "ipv4" };
        Ok(match self {
            Neighbor::Frr(frr) => {
                let output = frr.json(&format!("show bgp {family} unicast statistics"))?;
                let tables = output.as_object().and_then(|families| families.values().next());
                tables.and_then(|all| all[0]["totalPrefixes"].as_u64()).unwrap_or(0) as usize
            }
            Neighbor::Bird(bird) => {
                let table = if six { "master6" } else { "master4" };
                number(&bird.query(&format!("show route count table {table}"))?, 1)
            }
            Neighbor::Gobgp(gobgp) => {
                number(&gobgp.query(&["global", "rib", "summary", "-a", family])?, 0)
            }
        })
    }

    /// Waits until the neighbor shows a session as up, and returns its status.
    pub fn wait_until_up(&self, local: &str) -> Outcome<Session> {
        let mut up = None;
        wait_for(&format!("the session with {local}"), DEFAULT_TIMEOUT, || {
            let output = self.session(local)?;
            let observed = format!("{output:?}");
            up = output.up.then_some(output);
            Ok((up.is_some(), observed))
        })?;
        up.ok_or_else(|| "wait_for returned before the session was up".into())
    }

    /// Waits until a route, or its absence, satisfies `condition`.
    pub fn wait_for(
        &self,
        prefix: &str,
        what: &str,
        condition: impl Fn(Option<&Route>) -> bool,
    ) -> Outcome {
        wait_for(&format!("{prefix}: {what}"), DEFAULT_TIMEOUT, || {
            let output = self.route(prefix)?;
            Ok((condition(output.as_ref()), format!("{output:?}")))
        })?;
        Ok(())
    }

    pub fn wait_until_gone(&self, prefix: &str) -> Outcome {
        self.wait_for(prefix, "gone", |route| route.is_none())
    }
}

/// Returns the strings of a JSON array.
fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn parse_frr_route(path: &Value) -> Route {
    let community = |word: &str| match word {
        "noExport" => 0xffff_ff01,
        "gracefulShutdown" => 0xffff_0000,
        "llgrStale" => 0xffff_0006,
        pair => pair.split(':').fold(0, |sum, part| (sum << 16) | part.parse::<u32>().unwrap_or(0)),
    };
    let asns = path["aspath"]["string"].as_str().unwrap_or_default().split_whitespace();
    Route {
        next_hop: path["nexthops"][0]["ip"].as_str().unwrap_or_default().to_owned(),
        path: asns.filter_map(|asn| asn.parse().ok()).collect(),
        med: path["metric"].as_u64(),
        local_pref: path["locPrf"].as_u64(),
        communities: strings(&path["community"]["list"]).map(community).collect(),
        large: strings(&path["largeCommunity"]["list"]).map(str::to_owned).collect(),
        stale: path["stale"] == true,
    }
}

fn parse_bird_route(output: &str) -> Option<Route> {
    let after = |what: &str| output.lines().find_map(|line| line.trim().strip_prefix(what));
    let numbers = |what: &str| {
        let output = after(what).unwrap_or_default();
        let numbers = output.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
        numbers.filter_map(|n| n.parse::<u32>().ok()).collect::<Vec<_>>()
    };
    let next_hop = after("BGP.next_hop:")?.split_whitespace().next()?.to_owned();
    let pairs = numbers("BGP.community:");
    let triples = numbers("BGP.large_community:");
    let large = triples.chunks(3).map(|n| format!("{}:{}:{}", n[0], n[1], n[2]));
    Some(Route {
        next_hop,
        path: numbers("BGP.as_path:"),
        med: numbers("BGP.med:").first().map(|n| u64::from(*n)),
        local_pref: numbers("BGP.local_pref:").first().map(|n| u64::from(*n)),
        communities: pairs.chunks(2).map(|n| (n[0] << 16) | n[1]).collect(),
        large: large.collect(),
        stale: false,
    })
}

fn parse_gobgp_route(path: &Value) -> Route {
    let attribute = |number: u64| {
        let mut all = path["attrs"].as_array().into_iter().flatten();
        all.find(|attribute| attribute["type"] == number)
    };
    let numbers = |list: &Value| -> Vec<u32> {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(|n| n.as_u64().map(|n| n as u32)).collect()
    };
    let number = |at: u64, name: &str| attribute(at).and_then(|value| value[name].as_u64());
    let hop = attribute(3).or_else(|| attribute(14)).and_then(|value| value["nexthop"].as_str());
    let large = attribute(32).map(|large| large["value"].clone()).unwrap_or_default();
    let large = large
        .as_array()
        .into_iter()
        .flatten()
        .map(|n| format!("{}:{}:{}", n["ASN"], n["LocalData1"], n["LocalData2"]));
    Route {
        next_hop: hop.unwrap_or_default().to_owned(),
        path: attribute(2).map(|path| numbers(&path["as_paths"][0]["asns"])).unwrap_or_default(),
        med: number(4, "metric"),
        local_pref: number(5, "value"),
        communities: attribute(8)
            .map(|list| numbers(&list["communities"]).into_iter().collect())
            .unwrap_or_default(),
        large: large.collect(),
        stale: path["stale"] == true,
    }
}
