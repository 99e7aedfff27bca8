//! What policies are told became of them.

use std::sync::Arc;
use std::time::SystemTime;

use announce::controller::ReconcileError;
use announce::select;
use state::name::Precedence;
use state::object::{Change, Condition, Kind, Object, Objects, Spec, Truth};
use state::reflect::ACCEPTED;
use state::service::Pairs;

use super::around::is_there;

/// What is to be noted on policies after a round that ended so; nothing where all of it is.
pub(super) fn news(
    objects: &Objects,
    precedence: &Precedence,
    labels: &Pairs,
    result: &Result<(), ReconcileError>,
    now: SystemTime,
) -> Vec<Change> {
    let heard = select::heard(objects, precedence);
    let label = |key: &str| labels.as_ref()?.get(key).map(|value| &**value);
    let policies = objects.of_kind(Kind::BgpPeeringPolicy).filter(|object| is_there(object));
    let told = policies.filter_map(|object| {
        let Spec::BgpPeeringPolicy(spec) = &object.spec else { return None };
        let is_heard = heard.iter().any(|policy| Arc::ptr_eq(&policy.spec, spec));
        let (status, reason, message) = match result {
            _ if !is_heard => {
                let message = "another source, which is preferred, says what it is";
                (Truth::False, "Shadowed", message.to_owned())
            }
            _ if !spec.selects(label) => {
                let message = "its node_selector does not select this appliance";
                (Truth::True, "NotSelected", message.to_owned())
            }
            Ok(()) => (Truth::True, "CarriedOut", String::new()),
            Err(error) => (Truth::False, reason(error), error.to_string()),
        };
        change(object, status, reason, &message, now)
    });
    told.collect()
}

fn reason(error: &ReconcileError) -> &'static str {
    match error {
        ReconcileError::MultiplePolicies(_) => "MultiplePolicies",
        ReconcileError::State(_) => "BadAnnotation",
        ReconcileError::Policy(_) => "Defective",
    }
}

fn change(
    object: &Object,
    status: Truth,
    reason: &'static str,
    message: &str,
    now: SystemTime,
) -> Option<Change> {
    let before = object.life().status.as_ref();
    let is_so = before.is_some_and(|before| {
        let same = |told: &Condition| {
            *told.aspect == *ACCEPTED
                && told.status == status
                && *told.reason == *reason
                && *told.message == *message
        };
        before.observed == object.generation && before.conditions.iter().any(same)
    });
    let condition = Condition {
        aspect: ACCEPTED.into(),
        status,
        reason: reason.into(),
        message: message.into(),
        since: now,
    };
    let (key, observed) = (object.key(), object.generation);
    (!is_so).then(|| Change::Status { key, observed, conditions: vec![condition] })
}
