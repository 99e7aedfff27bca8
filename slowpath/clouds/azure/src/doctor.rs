//! Checks of `weir cloud doctor` for this machine's setup at Azure, each with a remedy.
//!
//! [`ask`] collects observations, [`judge`] evaluates them. Nothing is changed: write permissions
//! are read from the role assignments, or not tested.

use clouds::check::reported;
use clouds::report::{Ends, Finding};
use config::checked::{MadeBy, Told};

use crate::advice::advise;
use crate::balancer::{self, Rule, entries, rules};
use crate::life::Admin;
use crate::member::{own, the_pool, title};
use crate::place::{Place, Pool};
use crate::told::{End, Family, Tunnels};

mod ask;
mod grant;
mod machine;
mod permissions;
mod security;
mod wants;

pub use ask::{Seen, Tried, ask};
pub use clouds::check::{Check, Verdict};
pub use grant::Grant;
pub use security::admits;
pub use wants::{Fed, Wants};

/// Returns all checks, in the order in which to troubleshoot.
pub fn judge(wants: &Wants, seen: &Seen) -> Vec<Check> {
    let mut checks = vec![machine::metadata(seen), machine::token(seen)];
    checks.extend(permissions::judge(wants, seen));
    checks.extend(machine::interface(wants, seen));
    checks.extend(place(wants, seen));
    checks.extend(security::judge(wants, seen));
    checks.extend(machine::mtu(wants, seen));
    checks.extend(machine::timestamps(seen));
    checks.extend(machine::events(wants, seen));
    checks.extend(slowpath(wants, seen));
    checks
}

/// Checks pools, this machine's entries, tunnels and rules.
fn place(wants: &Wants, seen: &Seen) -> Vec<Check> {
    let (place, told) = match (&seen.place, &seen.balancer) {
        (Ok(place), Some(told)) => (place, told),
        (Err(why), _) => {
            let remedy = "the message says what to change";
            return vec![Check::new("pool", Verdict::Fail, why, remedy)];
        }
        (Ok(_), None) => return Vec::new(),
    };
    let mut checks = Vec::new();
    for (pool, fed) in place.pools.iter().zip(&wants.gateways) {
        let Ok(document) = the_pool(told, pool) else { continue };
        checks.push(Check::ok("pool", pool.id.as_str()));
        checks.push(membership(wants, place, pool, &entries(document)));
        checks.push(tunnels((wants, fed), pool, balancer::tunnels(document), seen));
        checks.extend(rules(told, &pool.id).iter().map(rule));
    }
    checks.extend(advise(place, told, &wants.ours).into_iter().map(advised));
    checks
}

fn advised(finding: Finding) -> Check {
    let Finding { name, text, remedy } = finding;
    Check::new(&format!("advice {name}"), Verdict::Warn, text, &remedy)
}

/// Checks this machine's entry in a pool, and lists the other members with their kind.
fn membership(wants: &Wants, place: &Place, pool: &Pool, entries: &[balancer::Entry]) -> Check {
    let name = format!("member of {}", pool.id.name());
    let way = |by: MadeBy| if by == MadeBy::Nic { "nic" } else { "ip" };
    let others = entries.iter().filter(|entry| own(std::slice::from_ref(entry), pool).is_none());
    let others: Vec<String> = others.map(|e| format!("{} by {}", title(e), way(e.by))).collect();
    let beside = if others.is_empty() { "nobody else".into() } else { others.join(", ") };
    let Some(entry) = own(entries, pool) else {
        let text = format!("this machine is not in it; {beside}");
        if place.managed && wants.settings.membership == MadeBy::Nic {
            let remedy = "name the pool in the scale set's model, and upgrade the instances";
            return Check::new(&name, Verdict::Fail, text, remedy);
        }
        if entries.iter().any(|entry| entry.by != wants.settings.membership) {
            let text = format!("{text}; azure.membership is the other way, and one pool has one");
            let remedy = "set azure.membership as the others are, or remove them";
            return Check::new(&name, Verdict::Fail, text, remedy);
        }
        let remedy = "start slowpath: it joins when it is able";
        return Check::new(&name, Verdict::Warn, text, remedy);
    };
    let text = format!("as {} by {}, with {beside}", title(entry), way(entry.by));
    match entry.admin {
        Admin::None => Check::ok(&name, text),
        Admin::Down => {
            let text = format!("{text}; its administrative state is Down: it gets no new flows");
            let remedy = "set it to None, unless somebody meant it";
            Check::new(&name, Verdict::Fail, text, remedy)
        }
        Admin::Up => {
            let text = format!("{text}; its administrative state is Up: probes change nothing");
            Check::new(&name, Verdict::Warn, text, "set it to None, or a drain has no effect")
        }
    }
}

/// Compares the pool's tunnels with those in force, or if slowpath does not answer, with those
/// configured.
fn tunnels(
    (wants, fed): (&Wants, &Fed),
    pool: &Pool,
    told: Result<Tunnels, String>,
    seen: &Seen,
) -> Check {
    let name = format!("tunnels of {}", pool.id.name());
    let told = match told {
        Ok(told) => told,
        Err(why) => return Check::new(&name, Verdict::Fail, why, "the message says what to do"),
    };
    let by_imds = seen.tunnels.as_ref().ok().and_then(|all| {
        all.iter().find(|(family, _)| *family == pool.family).map(|(_, tunnels)| *tunnels)
    });
    if by_imds.is_some_and(|by_imds| by_imds != told) {
        let text = format!("{}, and the metadata service still tells others", words(&told));
        return Check::new(&name, Verdict::Warn, text, "wait a minute, and ask again");
    }
    let family = if pool.family == Family::V6 { "ipv6" } else { "ipv4" };
    let report = seen.slowpath.as_ref().ok().map(|report| report.tunnels.as_slice());
    let mut carried = report.unwrap_or_default().iter().map(|of| (of, of.carried));
    let carried = carried.find(|(of, _)| of.gateway == pool.gateway && of.family == family);
    let (in_force, what) = match (carried, &fed.tunnels) {
        (Some((_, ends)), _) => (Some(read(ends)), "in force"),
        (None, written) => (*written, "written"),
    };
    match in_force {
        Some(ours) if ours == told => Check::ok(&name, format!("{}, as {what}", words(&told))),
        Some(ours) => {
            let follows = wants.settings.life.tunnels == Told::Follow && what == "written";
            let verdict = if follows { Verdict::Warn } else { Verdict::Fail };
            let text = format!("{}; {what} are {}", words(&told), words(&ours));
            let remedy = "write the pool's as the gateway's external and internal; with \
                          azure.tunnels = \"follow\" slowpath takes them by itself";
            Check::new(&name, verdict, text, remedy)
        }
        None => {
            let text = format!("{}; no [[gateway]] has such", words(&told));
            Check::new(&name, Verdict::Fail, text, "write a [[gateway]] of kind azure for it")
        }
    }
}

fn read(ends: Ends) -> Tunnels {
    let Ends { external_port, external_vni, internal_port, internal_vni } = ends;
    Tunnels {
        external: End { port: external_port, vni: external_vni },
        internal: End { port: internal_port, vni: internal_vni },
    }
}

fn words(Tunnels { external, internal }: &Tunnels) -> String {
    let one = |end: &End| format!("port {} vni {}", end.port, end.vni);
    format!("external {}, internal {}", one(external), one(internal))
}

/// Describes a rule; its problems are reported as advice.
fn rule(rule: &Rule) -> Check {
    let ports = if rule.whole { "all ports" } else { "some ports" };
    let probed = rule.probe.as_ref().map_or("no probe".to_owned(), |probe| {
        let path = &probe.path;
        let (protocol, port) = (&probe.protocol, probe.port);
        let every = probe.interval.as_secs();
        let well = if protocol.eq_ignore_ascii_case("Tcp") { "" } else { ", only 200 is well" };
        format!(
            "probe {protocol} port {port} {path} every {every} s, down after {}{well}",
            probe.failures
        )
    });
    let idle = rule.idle.as_secs();
    let text = format!("{ports}, TCP flows forgotten after {idle} s, {probed}");
    Check::ok(&format!("rule {}", rule.name), text)
}

fn slowpath(wants: &Wants, seen: &Seen) -> Vec<Check> {
    let settings = match (&seen.place, &seen.balancer) {
        (Ok(place), Some(told)) => advise(place, told, &wants.ours),
        _ => Vec::new(),
    };
    reported(&seen.slowpath, "start it; without it nobody joins the pool", &settings)
}

#[cfg(test)]
mod tests;
