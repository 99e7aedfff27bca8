//! One round for one object: read the observed state, perform the next missing step, report the
//! progress.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use crate::context::{Role, RoundContext};
use crate::errors::{Cause, Outcome, SHORT_DELAY, Stop};
use crate::object::{
    Aspect, Backoff, ConditionStatus, ImmutableSpec, Object, Reason, Status, ValidationError,
};
use crate::round::{DRIFT_INTERVAL, Event, RoundState};
use crate::{delete, dns, endpoint, service};

/// Interval at which an observer looks for a service that the owner has not created yet.
const ABSENT_RECHECK: Duration = Duration::from_secs(2 * 60);

/// Result of a round.
#[derive(Clone, PartialEq, Debug)]
pub struct Round {
    /// New status of the object.
    pub status: Status,
    /// Change of the finalizer, to be made after the status is stored.
    pub finalizer: Option<Finalizer>,
    /// When the next round is due.
    pub next: Next,
    /// Events for the operator.
    pub events: Vec<Event>,
}

/// Change of the finalizer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finalizer {
    /// Add the finalizer to the object.
    Add,
    /// Remove the finalizer: everything that was created for the object is deleted, or another
    /// appliance deletes it.
    Remove,
}

/// When the next round is due. A change of the object makes one due at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// At once, after the result of this one is stored.
    Now,
    /// After this delay.
    After(Duration),
    /// After the controller's growing delay, 3 s to 30 s: the object is invalid, the round
    /// panicked, or its result could not be stored.
    BackOff,
    /// Nothing is left to do. The controller runs the next round after an hour.
    Never,
}

/// Runs one round. The round makes a bounded number of calls to Azure, each with a time limit, and
/// does not wait for long operations.
pub async fn reconcile(context: &RoundContext<'_>, object: &Object) -> Round {
    let status = Status { observed: object.generation, ..object.status.clone() };
    let mut round = RoundState { context, object, status, events: Vec::new() };
    if let Role::Observer { owner, candidate } = context.role {
        return round.observe(owner, *candidate).await;
    }
    round.status.clear_condition(Aspect::Observed);
    if object.deletion.is_some() {
        if !object.has_finalizer {
            return round.end(Next::Never, None);
        }
        return match delete::delete_all(&mut round).await {
            None => round.end(Next::Never, Some(Finalizer::Remove)),
            Some(pause) => round.end(Next::After(pause), None),
        };
    }
    if !object.has_finalizer {
        return round.end(Next::Now, Some(Finalizer::Add));
    }
    round.reconcile_owned().await
}

impl RoundState<'_> {
    /// Runs the round of an observer: reads the service, and writes nothing at Azure.
    async fn observe(mut self, owner: &str, candidate: bool) -> Round {
        let message = format!("the object is managed by {owner}; this appliance only reads it");
        self.set_condition(Aspect::Observed, (true, Reason::OtherOwner), &message);
        // Delays after errors apply to an observer too, because it shares the owner's request quota
        // at Azure.
        let exists = match self.remaining_backoff(self.status.service.backoff) {
            Some(pause) => Err(pause),
            None => {
                let exists = service::observe(&mut self).await;
                self.status.service.backoff = self.backoff_after(&exists);
                match exists {
                    Continue(found) => Ok(found),
                    Break(stop) => Err(stop.after),
                }
            }
        };
        let pause = match (&exists, self.object.deletion) {
            (Err(pause), _) => *pause,
            (Ok(true), None) => DRIFT_INTERVAL,
            (Ok(false), None) => ABSENT_RECHECK,
            (Ok(_), Some(_)) => SHORT_DELAY,
        };
        match (self.object.deletion, self.object.has_finalizer) {
            (None, _) => self.end(Next::After(pause), None),
            (Some(_), false) => self.end(Next::Never, None),
            // The owner deletes the resources. An appliance that may become the owner keeps the
            // object until the service is gone.
            (Some(_), true) if candidate && exists != Ok(false) => {
                self.end(Next::After(pause), None)
            }
            (Some(_), true) => self.end(Next::Never, Some(Finalizer::Remove)),
        }
    }

    async fn reconcile_owned(mut self) -> Round {
        let immutable = match self.validate() {
            Ok(immutable) => immutable,
            Err(wrong) => {
                self.record_stop(&Stop::blocked(
                    Aspect::Service,
                    Reason::Invalid,
                    wrong.to_string(),
                ));
                return self.end(Next::BackOff, None);
            }
        };
        if let Some(until) = self.object.spec.paused.until(self.context.now) {
            let message = "spec.paused is set: nothing is created or changed";
            self.set_condition(Aspect::Paused, (true, Reason::Paused), message);
            let pause = until.since(self.context.now).min(DRIFT_INTERVAL);
            return self.end(Next::After(pause), None);
        }
        self.status.clear_condition(Aspect::Paused);
        // Ids and names are stored before anything is created, so that a later round finds the
        // resources even if this process ends in between.
        let intent_changed = dns::record_intent(&mut self, &immutable);
        if self.status.immutable.as_ref() != Some(&immutable) || intent_changed {
            self.status.immutable = Some(immutable);
            return self.end(Next::Now, None);
        }
        let alias = self.status.service.alias.clone();
        let service = match self.remaining_backoff(self.status.service.backoff) {
            Some(pause) => pause,
            None => {
                let ended = service::reconcile(&mut self, &immutable).await;
                self.status.service.backoff = self.backoff_after(&ended);
                self.delay_of(ended)
            }
        };
        let alias_changed = self.status.service.alias != alias;
        // After a change of the alias, the delay of an earlier error does not apply: the error may
        // have been caused by the previous alias.
        let endpoint = match self.remaining_backoff(self.status.endpoint.backoff) {
            Some(pause) if !alias_changed => pause,
            _ => {
                let ended = endpoint::reconcile(&mut self, &immutable).await;
                self.status.endpoint.backoff = self.backoff_after(&ended);
                self.delay_of(ended)
            }
        };
        self.update_available();
        match service.min(endpoint) {
            Duration::ZERO => self.end(Next::Now, None),
            pause => self.end(Next::After(pause), None),
        }
    }

    /// Returns the time left of `before`, the stored delay of one side after a failed call. `None`
    /// if there is no delay, it is over, or the desired state has changed since.
    pub(crate) fn remaining_backoff(&self, before: Option<Backoff>) -> Option<Duration> {
        let Backoff { generation, deleting, until } = before?;
        let same =
            (generation, deleting) == (self.object.generation, self.object.deletion.is_some());
        (same && until > self.context.now).then(|| until.since(self.context.now))
    }

    /// Returns the delay to store for a side that ended with `ended`; `None` unless a call failed.
    pub(crate) fn backoff_after<T>(&self, ended: &Outcome<T>) -> Option<Backoff> {
        let Break(stop) = ended else { return None };
        if stop.cause != Cause::Failed {
            return None;
        }
        let (generation, deleting) = (self.object.generation, self.object.deletion.is_some());
        Some(Backoff { generation, deleting, until: self.context.now.after(stop.after) })
    }

    /// Returns the immutable parts of the desired state, if it is valid.
    fn validate(&self) -> Result<ImmutableSpec, ValidationError> {
        self.object.spec.complete()?;
        self.object.spec.check()?;
        let immutable = ImmutableSpec::of(&self.object.name, &self.object.spec)?;
        let before = self.status.immutable.as_ref();
        before.and_then(|before| before.forbidden_change(&immutable)).map_or(Ok(immutable), Err)
    }

    /// Returns the delay of a side until its next step, and records its stop if it has one.
    fn delay_of(&mut self, ended: Outcome<Duration>) -> Duration {
        match ended {
            Continue(pause) => pause,
            Break(stop) => {
                self.record_stop(&stop);
                stop.after
            }
        }
    }

    /// Sets the conditions that follow from a stop.
    pub(crate) fn record_stop(&mut self, stop: &Stop) {
        let Stop { aspect, reason, message, .. } = stop;
        // An operation in progress replaces neither a condition that holds, nor the report that the
        // service points to another frontend: both stay true until the operation completes.
        let differs = self.status.condition(*aspect);
        let differs = differs.is_some_and(|condition| condition.reason == Reason::FrontendDiffers);
        if *reason == Reason::InProgress && (differs || self.status.is(*aspect)) {
            return;
        }
        self.set_condition(*aspect, (false, *reason), message);
        if *aspect == Aspect::Balancer {
            self.set_condition(Aspect::Service, (false, *reason), message);
        }
        if matches!(aspect, Aspect::Balancer | Aspect::Service) {
            self.set_condition(Aspect::Available, (false, *reason), message);
        }
    }

    pub(crate) fn set_condition(&mut self, aspect: Aspect, holds: (bool, Reason), why: &str) {
        self.status.set_condition(self.context.now, aspect, holds, why);
    }

    /// Sets the condition `Available`, which holds if all desired aspects do. Removes the
    /// conditions of aspects that are not desired.
    fn update_available(&mut self) {
        let endpoint = self.object.spec.endpoint.as_ref();
        let named = endpoint.is_some_and(|endpoint| !endpoint.zones.is_empty());
        let desired = [
            (true, Aspect::Service),
            (endpoint.is_some(), Aspect::Endpoint),
            (named, Aspect::Names),
        ];
        for (desired, aspect) in desired {
            if !desired {
                self.status.clear_condition(aspect);
            }
        }
        let missing = desired.iter().find(|(desired, aspect)| *desired && !self.status.is(*aspect));
        let (holds, message) = match missing {
            None => ((true, Reason::AzureSuccess), "all desired resources are ready".to_owned()),
            Some((_, aspect)) => match self.status.condition(*aspect) {
                Some(condition) => ((false, condition.reason), condition.message.clone()),
                None => ((false, Reason::InProgress), format!("waiting for {}", aspect.as_str())),
            },
        };
        self.set_condition(Aspect::Available, holds, &message);
    }

    /// Ends the round. Each condition whose status or reason changed becomes an event.
    fn end(mut self, next: Next, finalizer: Option<Finalizer>) -> Round {
        for condition in &self.status.conditions {
            let before = self.object.status.condition(condition.aspect);
            let same = before.is_some_and(|before| {
                (before.status, before.reason) == (condition.status, condition.reason)
            });
            if !same {
                let warning = condition.status == ConditionStatus::False
                    && !matches!(condition.reason, Reason::InProgress | Reason::Deleting);
                let message = format!("{}: {}", condition.aspect.as_str(), condition.message);
                let reason = condition.reason.as_str();
                self.events.push(Event { warning, reason, message });
            }
        }
        Round { status: self.status, finalizer, next, events: self.events }
    }
}
