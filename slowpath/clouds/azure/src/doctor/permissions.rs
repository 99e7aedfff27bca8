//! Checks which of the required permissions this machine has.

use config::checked::{MembershipMode, Remove};

use super::check_config::CheckConfig;
use super::collect::Observations;
use super::{Check, Verdict};
use crate::operations::{self, ArmOperation};
use crate::requests;
use crate::types::Failure;

/// Returns one check for each permission.
pub(super) fn evaluate(check_config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    let needed: Vec<ArmOperation> =
        requests::ALL.iter().filter(|k| needs(check_config, observed, k)).copied().collect();
    operations::permissions(&needed).into_iter().map(|name| check(observed, name)).collect()
}

/// Returns true if the operation is needed with this configuration.
fn needs(check_config: &CheckConfig, observed: &Observations, known: &ArmOperation) -> bool {
    let scale_set = observed.nic.as_ref().is_ok_and(|nic| nic.managed);
    let leaves = check_config.settings.lifecycle.remove != Remove::Never;
    let by_nic = check_config.settings.membership == MembershipMode::Nic;
    match known.operation.name {
        name if name == operations::INTERFACES_PUT.operation.name => by_nic && leaves && !scale_set,
        name if name == operations::POOLS_PUT.operation.name => !(scale_set && by_nic),
        name if name == operations::MACHINES_GET.operation.name => !scale_set,
        name if name == operations::INTERFACES_GET.operation.name => !scale_set,
        _ => scale_set || !known.operation.service.contains("virtualMachineScaleSets"),
    }
}

fn check(observed: &Observations, name: &'static str) -> Check {
    let remedy = format!("allow {name} in the machine's role, see config/azure/role.json");
    let operations = requests::ALL.iter().filter(|known| known.operation.service == name);
    let operations: Vec<&str> = operations.map(|known| known.operation.name).collect();
    let by_slowpath = |outcome: &str| {
        let calls = observed.slowpath.as_ref().ok().map(|report| report.calls.as_slice());
        let mut calls = calls.unwrap_or_default().iter();
        calls.any(|a| operations.contains(&a.operation.as_str()) && a.outcome == outcome)
    };
    let granted =
        || observed.grants.as_ref().map(|all| all.iter().any(|grant| grant.permits(name)));
    match observed.results.get(name) {
        Some(Ok(())) => Check::ok(name, "allowed"),
        // Azure checks the permission before it looks up the resource.
        Some(Err(error)) if error.kind == Failure::Absent => Check::ok(name, "allowed"),
        Some(Err(error)) if error.kind == Failure::Denied => {
            Check::new(name, Verdict::Fail, error.message.clone(), &remedy)
        }
        Some(Err(error)) => {
            let remedy = "try again; check that this machine reaches Azure Resource Manager";
            Check::new(name, Verdict::Warn, format!("unknown: {}", error.message), remedy)
        }
        None if granted() == Some(true) => Check::ok(name, "allowed by the machine's role"),
        None if by_slowpath("denied") => {
            Check::new(name, Verdict::Fail, "denied to slowpath", &remedy)
        }
        None if by_slowpath("ok") => Check::ok(name, "allowed: slowpath has used it"),
        // This is only a warning: a role may be assigned at a single resource, and the grants at
        // the resource group do not show that.
        None if granted() == Some(false) => {
            Check::new(name, Verdict::Warn, "no role at the resource group allows it", &remedy)
        }
        None => {
            let text = "not tested: the operation would make a change, or an earlier request \
                        failed";
            Check::new(name, Verdict::Untested, text, "")
        }
    }
}
