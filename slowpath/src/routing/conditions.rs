//! Conditions of BGP policies. A round is one run of BGP's control loop, in which it applies the
//! policies.

use std::sync::Arc;
use std::time::SystemTime;

use announce::apply::{DefectKind, PolicyDefects};
use announce::controller::ReconcileError;
use announce::select::{self, Origin, Policy};
use state::labels::Pairs;
use state::name::Precedence;
use state::object::{
    BgpPeeringPolicySpec, Change, Condition, ConditionStatus, Kind, Object, Objects, Spec,
};
use state::reflect::ACCEPTED;

/// Returns the changes that bring the conditions of all policies up to date after a round with this
/// `result`.
pub(super) fn status_changes(
    objects: &Objects,
    precedence: &Precedence,
    labels: &Pairs,
    result: &Result<(), ReconcileError>,
    now: SystemTime,
) -> Vec<Change> {
    let preferred = select::preferred_policies(objects, precedence);
    // If a policy of Cilium's first generation applies, those of the second are not used.
    let first = select::first_generation(&preferred, labels);
    let label = |key: &str| labels.as_ref()?.get(key).map(|value| &**value);
    let policies = objects.of_kind(Kind::BgpPeeringPolicy).filter(|object| is_active(object));
    let changes = policies.filter_map(|object| {
        let Spec::BgpPeeringPolicy(spec) = &object.spec else { return None };
        let is_preferred_source = preferred.iter().any(|policy| Arc::ptr_eq(&policy.spec, spec));
        let is_other_generation = first && is_second_generation(&preferred, spec);
        let (status, reason, message) = match result {
            _ if !is_preferred_source => {
                let message = "a preferred source defines this policy";
                (ConditionStatus::False, "Shadowed", message.to_owned())
            }
            _ if is_other_generation && spec.selects(label) => {
                let message = "a CiliumBGPPeeringPolicy selects this appliance and takes \
                               precedence over Cilium's second generation; delete it to apply \
                               this one";
                (ConditionStatus::False, "OtherGeneration", message.to_owned())
            }
            _ if !spec.selects(label) => {
                let message = "its node_selector does not select this appliance";
                (ConditionStatus::True, "NotSelected", message.to_owned())
            }
            Ok(()) => (ConditionStatus::True, "Applied", String::new()),
            Err(error) => (ConditionStatus::False, reason(error), error.to_string()),
        };
        let accepted = condition(ACCEPTED, status, reason, message, now);
        // A policy that is not applied needs no TCP-MD5 key.
        let applied: Result<(), ReconcileError> =
            match is_preferred_source && !is_other_generation && spec.selects(label) {
                true => result.clone(),
                false => Ok(()),
            };
        let missing_secret = missing_secret(object, &applied, now);
        change(object, std::iter::once(accepted).chain(missing_secret).collect())
    });
    changes.collect()
}

/// Returns whether a policy was read from objects of the second generation of Cilium's BGP control
/// plane (`CiliumBGPClusterConfig` and others).
fn is_second_generation(policies: &[Policy], spec: &Arc<BgpPeeringPolicySpec>) -> bool {
    let this = policies.iter().find(|policy| Arc::ptr_eq(&policy.spec, spec));
    this.is_some_and(|policy| policy.origin == Origin::CiliumSecond)
}

fn reason(error: &ReconcileError) -> &'static str {
    match error {
        ReconcileError::MultiplePolicies(_) => "MultiplePolicies",
        ReconcileError::Annotation(_) => "BadAnnotation",
        ReconcileError::Policy(_) => "Defective",
    }
}

/// Type of the condition that lists the neighbors whose TCP-MD5 key cannot be read. Cilium uses the
/// same name.
const MISSING_AUTH_SECRET: &str = "MissingAuthSecret";

/// Returns the condition of missing keys; `None` if no keys are missing and the policy does not
/// have the condition.
fn missing_secret(
    object: &Object,
    result: &Result<(), ReconcileError>,
    now: SystemTime,
) -> Option<Condition> {
    let defects = match result {
        Err(ReconcileError::Policy(PolicyDefects(defects))) => defects.as_slice(),
        _ => &[],
    };
    let of_keys = defects.iter().filter(|d| matches!(d.kind, DefectKind::MissingAuthSecret { .. }));
    let messages: Vec<String> = of_keys.map(ToString::to_string).collect();
    let before = object.lifecycle().status.iter().flat_map(|status| &status.conditions);
    let was_set = before.filter(|condition| *condition.aspect == *MISSING_AUTH_SECRET).count() > 0;
    let (status, reason) = match messages.is_empty() {
        true if !was_set => return None,
        true => (ConditionStatus::False, "Found"),
        false => (ConditionStatus::True, "NotUsable"),
    };
    Some(condition(MISSING_AUTH_SECRET, status, reason, messages.join("; "), now))
}

fn condition(
    aspect: &'static str,
    status: ConditionStatus,
    reason: &'static str,
    message: String,
    since: SystemTime,
) -> Condition {
    let message = message.into();
    Condition { aspect: aspect.into(), status, reason: reason.into(), message, since }
}

/// Returns the change that sets conditions on a policy; `None` if it has them already.
fn change(object: &Object, conditions: Vec<Condition>) -> Option<Change> {
    let before = object.lifecycle().status.as_ref();
    let is_current = before.is_some_and(|before| {
        let has = |new: &Condition| {
            before
                .conditions
                .iter()
                .any(|condition| Condition { since: new.since, ..condition.clone() } == *new)
        };
        before.observed == object.generation && conditions.iter().all(has)
    });
    let (key, observed) = (object.key(), object.generation);
    (!is_current).then_some(Change::Status { key, observed, conditions })
}

/// Returns whether a policy is evaluated: not if it is being deleted.
pub(super) fn is_active(object: &Object) -> bool {
    object.lifecycle().deletion.is_none()
}

#[cfg(test)]
mod tests;
