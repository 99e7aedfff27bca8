//! Conditions of BGP policies.

use std::sync::Arc;
use std::time::SystemTime;

use announce::controller::ReconcileError;
use announce::routers::{PolicyDefect, Wrong};
use announce::select::{self, Origin, Policy};
use state::labels::Pairs;
use state::name::Precedence;
use state::object::{BgpPeeringPolicySpec, Change, Condition, Kind, Object, Objects, Spec, Truth};
use state::reflect::ACCEPTED;

/// Returns the changes that bring the policies' conditions up to date after a round with this
/// result.
pub(super) fn news(
    objects: &Objects,
    precedence: &Precedence,
    labels: &Pairs,
    result: &Result<(), ReconcileError>,
    now: SystemTime,
) -> Vec<Change> {
    let heard = select::heard(objects, precedence);
    let first = select::first_generation(&heard, labels);
    let label = |key: &str| labels.as_ref()?.get(key).map(|value| &**value);
    let policies = objects.of_kind(Kind::BgpPeeringPolicy).filter(|object| is_there(object));
    let told = policies.filter_map(|object| {
        let Spec::BgpPeeringPolicy(spec) = &object.spec else { return None };
        let is_heard = heard.iter().any(|policy| Arc::ptr_eq(&policy.spec, spec));
        let is_other = first && is_second(&heard, spec);
        let (status, reason, message) = match result {
            _ if !is_heard => {
                let message = "another source, which is preferred, says what it is";
                (Truth::False, "Shadowed", message.to_owned())
            }
            _ if is_other && spec.selects(label) => {
                let message = "a CiliumBGPPeeringPolicy selects this appliance, and Cilium's first \
                               generation is carried out where both do; delete it to move on";
                (Truth::False, "OtherGeneration", message.to_owned())
            }
            _ if !spec.selects(label) => {
                let message = "its node_selector does not select this appliance";
                (Truth::True, "NotSelected", message.to_owned())
            }
            Ok(()) => (Truth::True, "CarriedOut", String::new()),
            Err(error) => (Truth::False, reason(error), error.to_string()),
        };
        let accepted = condition(ACCEPTED, status, reason, message, now);
        // A policy that is not carried out needs no key.
        let carried_out: Result<(), ReconcileError> =
            match is_heard && !is_other && spec.selects(label) {
                true => result.clone(),
                false => Ok(()),
            };
        let missing = missing(object, &carried_out, now);
        change(object, std::iter::once(accepted).chain(missing).collect())
    });
    told.collect()
}

fn is_second(policies: &[Policy], spec: &Arc<BgpPeeringPolicySpec>) -> bool {
    let this = policies.iter().find(|policy| Arc::ptr_eq(&policy.spec, spec));
    this.is_some_and(|policy| policy.origin == Origin::CiliumSecond)
}

fn reason(error: &ReconcileError) -> &'static str {
    match error {
        ReconcileError::MultiplePolicies(_) => "MultiplePolicies",
        ReconcileError::State(_) => "BadAnnotation",
        ReconcileError::Policy(_) => "Defective",
    }
}

/// Type of the condition that lists the neighbors whose TCP-MD5 key can't be read. Cilium uses the
/// same name.
const MISSING_AUTH_SECRET: &str = "MissingAuthSecret";

/// Returns the condition of missing keys; `None` unless keys are missing or were before.
fn missing(
    object: &Object,
    result: &Result<(), ReconcileError>,
    now: SystemTime,
) -> Option<Condition> {
    let defects = match result {
        Err(ReconcileError::Policy(PolicyDefect(defects))) => defects.as_slice(),
        _ => &[],
    };
    let of_keys = defects.iter().filter(|d| matches!(d.wrong, Wrong::MissingAuthSecret { .. }));
    let told: Vec<String> = of_keys.map(ToString::to_string).collect();
    let before = object.life().status.iter().flat_map(|status| &status.conditions);
    let had = before.filter(|told| *told.aspect == *MISSING_AUTH_SECRET).count() > 0;
    let (status, reason) = match told.is_empty() {
        true if !had => return None,
        true => (Truth::False, "Found"),
        false => (Truth::True, "NotUsable"),
    };
    Some(condition(MISSING_AUTH_SECRET, status, reason, told.join("; "), now))
}

fn condition(
    aspect: &'static str,
    status: Truth,
    reason: &'static str,
    message: String,
    since: SystemTime,
) -> Condition {
    let message = message.into();
    Condition { aspect: aspect.into(), status, reason: reason.into(), message, since }
}

/// Returns the change that sets conditions on a policy; `None` if it has them already.
fn change(object: &Object, conditions: Vec<Condition>) -> Option<Change> {
    let before = object.life().status.as_ref();
    let is_so = before.is_some_and(|before| {
        let has = |wanted: &Condition| {
            before
                .conditions
                .iter()
                .any(|told| Condition { since: wanted.since, ..told.clone() } == *wanted)
        };
        before.observed == object.generation && conditions.iter().all(has)
    });
    let (key, observed) = (object.key(), object.generation);
    (!is_so).then_some(Change::Status { key, observed, conditions })
}

/// Returns whether a policy is evaluated: it is not being deleted.
pub(super) fn is_there(object: &Object) -> bool {
    object.life().deletion.is_none()
}

#[cfg(test)]
mod tests;
