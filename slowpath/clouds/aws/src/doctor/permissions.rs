//! Checks which of the required permissions this machine has.

use super::check_config::CheckConfig;
use super::collect::Observations;
use super::{Check, Verdict};
use crate::advice::permissions::PERMISSIONS;
use crate::types::{CallError, Failure};

/// Returns one check for each permission, and one for the permission to query commands on other
/// instances, if that was tried.
pub(super) fn evaluate(config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    let of = |(service, operations): &(&'static str, &'static [&'static str])| {
        let service = (*service).to_owned();
        operations.iter().map(move |operation| check(config, observed, &service, operation))
    };
    PERMISSIONS.iter().flat_map(of).chain(commands(observed)).collect()
}

/// Warns if the role may query commands on other instances, which an appliance does not need: the
/// role probably has the operator's policy.
fn commands(observed: &Observations) -> Option<Check> {
    const NAME: &str = "ssm:GetCommandInvocation";
    match observed.tried.get("GetCommandInvocation")? {
        Err(error) if error.kind == Failure::Denied => {
            Some(Check::ok(NAME, "not allowed, as intended on an appliance"))
        }
        Ok(()) | Err(CallError { kind: Failure::Absent, .. }) => Some(Check::new(
            NAME,
            Verdict::Warn,
            "this machine's role can query commands on other instances, and possibly send them",
            "remove ssm from the role's policy (config/aws/policy.json has none); operators use \
             config/aws/policy-operator.json",
        )),
        Err(_) => None,
    }
}

fn check(
    config: &CheckConfig,
    observed: &Observations,
    service: &str,
    operation: &'static str,
) -> Check {
    let name = format!("{service}:{operation}");
    let purpose = purpose(config, service, operation);
    let remedy = format!("allow {name} in the policy of the instance's role; {}", purpose.1);
    let denied = |text: &str| {
        let verdict = if purpose.0 { Verdict::Fail } else { Verdict::Warn };
        Check::new(&name, verdict, text, &remedy)
    };
    let by_slowpath = |outcome: &str| {
        let calls = observed.slowpath.as_ref().ok().map(|report| report.calls.as_slice());
        let mut calls = calls.unwrap_or_default().iter();
        calls.any(|call| call.operation == operation && call.outcome == outcome)
    };
    match observed.tried.get(operation) {
        Some(Ok(())) => Check::ok(&name, "allowed"),
        // AWS checks the permission before it looks up the resource.
        Some(Err(error)) if error.kind == Failure::Absent => Check::ok(&name, "allowed"),
        Some(Err(error)) if error.kind == Failure::Denied => denied(&error.message),
        Some(Err(error)) => Check::new(
            &name,
            Verdict::Warn,
            format!("unknown: {}", error.message),
            "try again; check which endpoints of AWS this machine can reach",
        ),
        None if by_slowpath("ok") => Check::ok(&name, "allowed: slowpath has used it"),
        None if by_slowpath("denied") => denied("denied to slowpath"),
        None => {
            let text = format!("not tested: {}", untested(operation, purpose.1));
            Check::new(&name, Verdict::Untested, text, "")
        }
    }
}

/// Returns whether the permission is needed with this configuration, and what for.
fn purpose(config: &CheckConfig, service: &str, operation: &str) -> (bool, &'static str) {
    match (service, operation) {
        ("autoscaling", _) => {
            (!config.routes() && config.settings.lifecycle.hook, "required by aws.hook")
        }
        ("tag", _) | ("elasticloadbalancing", _) => (!config.routes(), "required by mode gateway"),
        (_, "DescribeSecurityGroups") => (false, "required by `weir cloud doctor`"),
        (_, "DescribeInstances") if !config.routes() => {
            (false, "required for the addresses of peers")
        }
        (_, "DescribeNetworkInterfaces") if !config.routes() => {
            (false, "required by `weir cloud doctor`")
        }
        _ => (config.routes(), "required by mode routes"),
    }
}

/// Returns why the permission was not tested.
fn untested(operation: &str, purpose: &'static str) -> &'static str {
    match operation {
        "RegisterTargets" | "DeregisterTargets" => "it would make a change",
        "CompleteLifecycleAction" | "RecordLifecycleActionHeartbeat" => "no hook is waiting",
        "DescribeLifecycleHooks" => "the instance is in no Auto Scaling group",
        "ModifyNetworkInterfaceAttribute" | "ReplaceRoute" => purpose,
        _ => "an earlier request of the same check failed",
    }
}
