//! Checks of `weir cloud doctor` for this machine's setup at Azure, each with a remedy.
//!
//! [`collect`] collects observations, [`evaluate`] turns them into checks. Nothing is changed:
//! write permissions are read from the machine's role, or not tested.

use clouds::check::from_report;
use clouds::report::{Finding, TunnelPair};
use config::checked::{MembershipMode, TunnelPolicy};

use crate::advice::advise;
use crate::balancer::{self, Rule, entries, rules};
use crate::location::{Location, Pool};
use crate::membership::AdminState;
use crate::pool_entries::{display_name, find_pool, own_entry};
use crate::types::{Family, TunnelEnd, Tunnels};

mod check_config;
mod collect;
mod grant;
mod machine;
mod permissions;
mod security;

pub use check_config::{CheckConfig, PoolGateway};
pub use clouds::check::{Check, Verdict};
pub use collect::{Observations, PermissionResults, collect};
pub use grant::Grant;
pub use security::admits;

/// Returns all checks, in the order in which to troubleshoot.
pub fn evaluate(check_config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    let mut checks = vec![machine::metadata(observed), machine::token(observed)];
    checks.extend(permissions::evaluate(check_config, observed));
    checks.extend(machine::interface(check_config, observed));
    checks.extend(check_pools(check_config, observed));
    checks.extend(security::evaluate(check_config, observed));
    checks.extend(machine::mtu(check_config, observed));
    checks.extend(machine::timestamps(observed));
    checks.extend(machine::events(check_config, observed));
    checks.extend(slowpath(check_config, observed));
    checks
}

/// Checks pools, this machine's entries, tunnels and rules.
fn check_pools(check_config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    let (location, balancer) = match (&observed.location, &observed.balancer) {
        (Ok(location), Some(balancer)) => (location, balancer),
        (Err(why), _) => {
            let remedy = "see the message for the remedy";
            return vec![Check::new("pool", Verdict::Fail, why, remedy)];
        }
        (Ok(_), None) => return Vec::new(),
    };
    let mut checks = Vec::new();
    for (pool, pool_gateway) in location.pools.iter().zip(&check_config.gateways) {
        let Ok(document) = find_pool(balancer, pool) else { continue };
        checks.push(Check::ok("pool", pool.id.as_str()));
        checks.push(membership(check_config, location, pool, &entries(document)));
        checks.push(tunnels(
            (check_config, pool_gateway),
            pool,
            balancer::tunnels(document),
            observed,
        ));
        checks.extend(rules(balancer, &pool.id).iter().map(rule));
    }
    checks.extend(
        advise(location, balancer, &check_config.appliance_settings).into_iter().map(advice_check),
    );
    checks
}

fn advice_check(finding: Finding) -> Check {
    let Finding { name, text, remedy } = finding;
    Check::new(&format!("advice {name}"), Verdict::Warn, text, &remedy)
}

/// Checks this machine's entry in a pool, and lists the other members with their membership mode.
fn membership(
    check_config: &CheckConfig,
    location: &Location,
    pool: &Pool,
    entries: &[balancer::Entry],
) -> Check {
    let name = format!("member of {}", pool.id.name());
    let mode_name = |mode: MembershipMode| if mode == MembershipMode::Nic { "nic" } else { "ip" };
    let others =
        entries.iter().filter(|entry| own_entry(std::slice::from_ref(entry), pool).is_none());
    let others: Vec<String> =
        others.map(|e| format!("{} by {}", display_name(e), mode_name(e.mode))).collect();
    let other_members = match others.is_empty() {
        true => "no other member".to_owned(),
        false => others.join(", "),
    };
    let Some(entry) = own_entry(entries, pool) else {
        let text = format!("this machine is not a member; {other_members}");
        if location.managed && check_config.settings.membership == MembershipMode::Nic {
            let remedy = "name the pool in the scale set's model, and upgrade the instances";
            return Check::new(&name, Verdict::Fail, text, remedy);
        }
        if entries.iter().any(|entry| entry.mode != check_config.settings.membership) {
            let text = format!("{text}; azure.membership differs, and a pool has only one kind");
            let remedy = "set azure.membership to the kind of the other members, or remove them";
            return Check::new(&name, Verdict::Fail, text, remedy);
        }
        let remedy = "start slowpath: it joins when it is able";
        return Check::new(&name, Verdict::Warn, text, remedy);
    };
    let text =
        format!("as {} by {}, with {other_members}", display_name(entry), mode_name(entry.mode));
    match entry.admin {
        AdminState::None => Check::ok(&name, text),
        AdminState::Down => {
            let text = format!("{text}; its administrative state is Down: it gets no new flows");
            let remedy = "set it to None, unless it is intended";
            Check::new(&name, Verdict::Fail, text, remedy)
        }
        AdminState::Up => {
            let text = format!("{text}; its administrative state is Up: probes have no effect");
            Check::new(&name, Verdict::Warn, text, "set it to None, or a drain has no effect")
        }
    }
}

/// Compares the pool's tunnels with those in force as slowpath reports them, or without its report
/// with the configured ones.
fn tunnels(
    (check_config, pool_gateway): (&CheckConfig, &PoolGateway),
    pool: &Pool,
    reported: Result<Tunnels, String>,
    observed: &Observations,
) -> Check {
    let name = format!("tunnels of {}", pool.id.name());
    let reported = match reported {
        Ok(reported) => reported,
        Err(why) => return Check::new(&name, Verdict::Fail, why, "see the message for the remedy"),
    };
    let from_imds = observed.tunnels.as_ref().ok().and_then(|all| {
        all.iter().find(|(family, _)| *family == pool.family).map(|(_, tunnels)| *tunnels)
    });
    if from_imds.is_some_and(|from_imds| from_imds != reported) {
        let reported = describe(&reported);
        let text = format!("{reported}, but the metadata service still reports others");
        return Check::new(&name, Verdict::Warn, text, "wait a minute, and try again");
    }
    let family = if pool.family == Family::V6 { "ipv6" } else { "ipv4" };
    let report = observed.slowpath.as_ref().ok().map(|report| report.tunnels.as_slice());
    let mut in_force = report.unwrap_or_default().iter().map(|of| (of, of.in_force));
    let in_force = in_force.find(|(of, _)| of.gateway == pool.gateway && of.family == family);
    let (current, what) = match (in_force, &pool_gateway.tunnels) {
        (Some((_, ends)), _) => (Some(to_tunnels(ends)), "in force"),
        (None, written) => (*written, "configured"),
    };
    match current {
        Some(current) if current == reported => {
            Check::ok(&name, format!("{}, as {what}", describe(&reported)))
        }
        Some(current) => {
            let follows = check_config.settings.lifecycle.tunnels == TunnelPolicy::Follow
                && what == "configured";
            let verdict = if follows { Verdict::Warn } else { Verdict::Fail };
            let text = format!("{}; {what}: {}", describe(&reported), describe(&current));
            let remedy = "set external and internal of the gateway to the pool's; with \
                          azure.tunnels = \"follow\" slowpath adopts them";
            Check::new(&name, verdict, text, remedy)
        }
        None => {
            let text = format!("{}; no [[gateway]] has these tunnels", describe(&reported));
            Check::new(&name, Verdict::Fail, text, "add a [[gateway]] of kind azure for the pool")
        }
    }
}

fn to_tunnels(ends: TunnelPair) -> Tunnels {
    let TunnelPair { external_port, external_vni, internal_port, internal_vni } = ends;
    Tunnels {
        external: TunnelEnd { port: external_port, vni: external_vni },
        internal: TunnelEnd { port: internal_port, vni: internal_vni },
    }
}

fn describe(Tunnels { external, internal }: &Tunnels) -> String {
    let one = |end: &TunnelEnd| format!("port {} vni {}", end.port, end.vni);
    format!("external {}, internal {}", one(external), one(internal))
}

/// Describes a rule; its problems are reported as advice.
fn rule(rule: &Rule) -> Check {
    let ports = if rule.all_ports { "all ports" } else { "some ports" };
    let probed = rule.probe.as_ref().map_or("no probe".to_owned(), |probe| {
        let path = &probe.path;
        let (protocol, port) = (&probe.protocol, probe.port);
        let every = probe.interval.as_secs();
        let condition = match protocol.eq_ignore_ascii_case("Tcp") {
            true => "",
            false => ", only status 200 passes",
        };
        format!(
            "probe {protocol} port {port} {path} every {every} s, down after {}{condition}",
            probe.failures
        )
    });
    let idle = rule.idle.as_secs();
    let text = format!("{ports}, TCP idle timeout {idle} s, {probed}");
    Check::ok(&format!("rule {}", rule.name), text)
}

fn slowpath(check_config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    let settings = match (&observed.location, &observed.balancer) {
        (Ok(location), Some(balancer)) => {
            advise(location, balancer, &check_config.appliance_settings)
        }
        _ => Vec::new(),
    };
    from_report(&observed.slowpath, "start slowpath, which joins the pool", &settings)
}

#[cfg(test)]
mod tests;
