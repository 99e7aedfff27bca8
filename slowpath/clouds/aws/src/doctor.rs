//! Checks of `weir cloud doctor` for this machine's setup at AWS, each with a remedy.
//!
//! [`collect`] collects observations, [`evaluate`] turns them into checks. Nothing is changed:
//! writes are only tried as EC2 dry runs, or not at all.

use super::advice::advise;
use super::types::{CallError, Failure, Identity, NetworkInterface, Target, TargetState};
use clouds::check::from_report;
use clouds::report::Finding;

pub use clouds::check::{Check, Verdict};

mod check_config;
mod collect;
mod permissions;
mod security;

pub use check_config::CheckConfig;
pub use collect::{Observations, TriedOperations, collect};

use collect::own_target;
pub use security::admits;

/// Size in bytes of the largest packet that a gateway load balancer sends: an inner packet of its
/// MTU of 8,500, and 68 of encapsulation.
const MTU: u32 = 8_568;

/// Returns all checks, in the order in which to troubleshoot.
pub fn evaluate(config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    let mut checks = vec![metadata(observed), credentials(observed)];
    checks.extend(permissions::evaluate(config, observed));
    if !config.routes() {
        checks.extend(target(config, observed));
    }
    checks.extend(security::evaluate(config, observed));
    checks.extend(mtu(config, observed));
    checks.extend(source_check(config, observed));
    if config.routes() {
        checks.extend(leader(observed));
    }
    if let Some((group, attributes)) =
        observed.group.as_ref().ok().zip(observed.attributes.as_ref())
    {
        checks.extend(advise(group, attributes, &config.local).into_iter().map(advised));
    }
    checks.extend(slowpath(observed));
    checks
}

fn advised(finding: Finding) -> Check {
    let Finding { name, text, remedy } = finding;
    Check::new(&format!("advice {name}"), Verdict::Warn, text, &remedy)
}

fn metadata(observed: &Observations) -> Check {
    match &observed.identity {
        Ok(Identity { instance_id, instance_type, zone, interfaces, .. }) => {
            let text = format!("{instance_id}, {instance_type} in {zone}");
            Check::ok("metadata", format!("{text}, {} interfaces", interfaces.len()))
        }
        Err(error) => Check::new(
            "metadata",
            Verdict::Fail,
            error.to_string(),
            "run the doctor on the appliance, as a user with access to 169.254.169.254",
        ),
    }
}

fn credentials(observed: &Observations) -> Check {
    let concerns_credentials =
        |error: &&CallError| error.code == "NoCredentials" || is_rejected(error);
    let mut errors = observed.tried.values().filter_map(|tried| tried.as_ref().err());
    let remedy = "give the instance a profile with the role of config/aws/policy.json";
    match (&observed.account, errors.find(concerns_credentials)) {
        (Some(error), _) => {
            let remedy = "see the message for the remedy";
            Check::new("credentials", Verdict::Fail, error.message.clone(), remedy)
        }
        (None, Some(error)) => {
            Check::new("credentials", Verdict::Fail, error.message.clone(), remedy)
        }
        _ if observed.tried.values().any(Result::is_ok) => {
            Check::ok("credentials", "accepted by AWS")
        }
        _ => {
            let text = "unknown: no request to AWS succeeded";
            Check::new("credentials", Verdict::Warn, text, remedy)
        }
    }
}

/// Returns true if AWS does not accept the credentials, so that a change of the policy would not
/// help.
fn is_rejected(error: &CallError) -> bool {
    error.kind == Failure::Denied && super::failure::is_unauthenticated(&error.code)
}

fn target(config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    let group = match &observed.group {
        Ok(group) => group,
        Err(why) => {
            let remedy = "check aws.cluster and aws.target_group";
            return vec![Check::new("target group", Verdict::Fail, why, remedy)];
        }
    };
    let found = format!("{}, GENEVE, port {}", group.arn, group.port);
    let mut checks = vec![Check::ok("target group", found)];
    if !config.ports.contains(&group.port) {
        let text = format!(
            "the group sends to port {}, but the gateway's ports are {:?}",
            group.port, config.ports
        );
        let remedy = "set gateway.port to the group's port";
        checks.push(Check::new("target port", Verdict::Fail, text, remedy));
    }
    let Ok(identity) = &observed.identity else { return checks };
    match own_target(config, group, identity, observed.mac) {
        Ok(target) => {
            let kind = format!("{:?}", group.target_type).to_lowercase();
            let text = format!("{kind}: this machine's target is {target}");
            checks.push(Check::ok("target type", text));
            checks.push(registered(&target, observed.target.as_ref()));
        }
        Err(error) => {
            let remedy = "see the message for the remedy";
            checks.push(Check::new("target type", Verdict::Fail, error.to_string(), remedy));
        }
    }
    checks
}

fn registered(id: &str, target: Option<&Target>) -> Check {
    let Some(target) = target else {
        let remedy = "check the permission for DescribeTargetHealth";
        return Check::new("target state", Verdict::Warn, format!("{id}: unknown"), remedy);
    };
    let why = [&target.reason, &target.description].into_iter().flatten();
    let why: Vec<&str> = why.map(String::as_str).collect();
    let text = format!("{} {}", super::types::state_text(target.state), why.join(": "));
    let not_registered = target.reason.as_deref() == Some("Target.NotRegistered");
    let (verdict, remedy) = match target.state {
        TargetState::Healthy => (Verdict::Ok, ""),
        TargetState::Initial => (Verdict::Warn, "wait for the first health checks"),
        TargetState::Unused if not_registered => {
            (Verdict::Fail, "start slowpath: it registers the instance when it is able")
        }
        TargetState::Unused => {
            (Verdict::Fail, "add a load balancer listener that forwards to the group")
        }
        TargetState::Draining => {
            (Verdict::Warn, "deregistration is in progress; start slowpath to register again")
        }
        TargetState::Unavailable => (Verdict::Warn, "enable the group's health checks"),
        TargetState::Unhealthy | TargetState::UnhealthyDraining => (
            Verdict::Fail,
            "see `weir status` for the appliance's own health, and the security group check for \
             the port",
        ),
    };
    Check::new("target state", verdict, text.trim_end(), remedy)
}

fn mtu(config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    if config.routes() {
        return Vec::new();
    }
    let configured = match config.mtu {
        MTU.. => Check::ok("mtu", format!("ingress.mtu = {}", config.mtu)),
        mtu => Check::new(
            "mtu",
            Verdict::Fail,
            format!("ingress.mtu = {mtu}: the gateway's packets of up to {MTU} bytes are dropped"),
            "set ingress.mtu to 9001",
        ),
    };
    let of_kernel = observed.kernel_mtu.as_ref().map(|(interface, mtu)| match mtu {
        MTU.. => Check::ok("kernel mtu", format!("{interface} has {mtu}")),
        _ if config.kernel_carries => Check::new(
            "kernel mtu",
            Verdict::Fail,
            format!("{interface} has {mtu}, less than {MTU}: larger packets are dropped"),
            "run `ip link set INTERFACE mtu 9001`; on ENA, XDP's native mode does not support such \
             frames: use generic mode, or DPDK",
        ),
        _ => Check::new(
            "kernel mtu",
            Verdict::Warn,
            format!("{interface} has {mtu}, less than {MTU}: it only carries local traffic"),
            "restart fastpath, which sets it",
        ),
    });
    [Some(configured), of_kernel].into_iter().flatten().collect()
}

fn source_check(config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    if !config.forwards || observed.interfaces.is_empty() {
        return Vec::new();
    }
    let name = "source/destination check";
    let of_arms = |nic: &&NetworkInterface| {
        let mut all = config.addresses.iter().chain(&config.egress);
        observed.forwarding.contains(&nic.id) || all.any(|a| nic.addresses.contains(a))
    };
    let checked = |nic: &NetworkInterface| match nic.source_dest_check {
        false => Check::ok(name, format!("off at {}", nic.id)),
        true => Check::new(
            name,
            Verdict::Warn,
            format!(
                "on at {}: with NAT, two arms or routes EC2 drops packets that are neither from \
                 nor to the interface's own addresses, while the target looks healthy",
                nic.id
            ),
            &format!(
                "aws ec2 modify-network-interface-attribute --no-source-dest-check \
                 --network-interface-id {}",
                nic.id
            ),
        ),
    };
    observed.interfaces.iter().filter(of_arms).map(checked).collect()
}

fn leader(observed: &Observations) -> Vec<Check> {
    let Some(result) = &observed.leader else { return Vec::new() };
    let check = match result {
        Ok(leader) => Check::ok("leader", format!("{leader} is the leader")),
        Err(why) => Check::new("leader", Verdict::Fail, why, "tag the peers as the message says"),
    };
    let remedy = "use a gateway load balancer: a route table does not detect a failed appliance";
    let old = Check::new("mode", Verdict::Warn, "aws.mode = \"routes\" is deprecated", remedy);
    vec![check, old]
}

fn slowpath(observed: &Observations) -> Vec<Check> {
    let settings = match observed.group.as_ref().ok().zip(observed.attributes.as_ref()) {
        Some((group, attributes)) => advise(group, attributes, &observed.local),
        None => Vec::new(),
    };
    from_report(&observed.slowpath, "start slowpath, which registers the instance", &settings)
}

#[cfg(test)]
mod tests;
