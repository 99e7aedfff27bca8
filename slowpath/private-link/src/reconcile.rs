//! One round for one object: read the observed state, perform the next missing step, report the
//! progress.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use crate::course::{Course, DRIFT, Event};
use crate::errors::{Cause, Outcome, SOON, Stop};
use crate::object::{Aspect, Fixed, HeldOff, Object, Reason, Status, Truth, Wrong};
use crate::turn::{Standing, Turn};
use crate::{delete, dns, endpoint, service};

/// Interval at which an observer looks for a service that its owner has not created yet.
const ABSENT: Duration = Duration::from_secs(2 * 60);

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
    /// Add it to the object.
    Hold,
    /// Remove it: everything at Azure is removed.
    Release,
}

/// When the next round is due. A change of the object makes one due at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// At once, after the result of this one is stored.
    Now,
    /// After this delay.
    After(Duration),
    /// After the queue's back-off delay: the desired state is invalid.
    BackOff,
    /// Never: nothing is left to do.
    Never,
}

/// Runs one round. It makes a bounded number of calls to Azure, each with a time limit, and does
/// not wait for long operations.
pub async fn reconcile(turn: &Turn<'_>, object: &Object) -> Round {
    let status = Status { observed: object.generation, ..object.status.clone() };
    let mut course = Course { turn, object, status, events: Vec::new() };
    if let Standing::Observer { owner, heir } = turn.standing {
        return course.observe(owner, *heir).await;
    }
    course.status.untell(Aspect::Observed);
    if object.deletion.is_some() {
        if !object.held {
            return course.end(Next::Never, None);
        }
        return match delete::take_back(&mut course).await {
            None => course.end(Next::Never, Some(Finalizer::Release)),
            Some(pause) => course.end(Next::After(pause), None),
        };
    }
    if !object.held {
        return course.end(Next::Now, Some(Finalizer::Hold));
    }
    course.keep().await
}

impl Course<'_> {
    /// Another appliance owns the object: read the service, write nothing.
    async fn observe(mut self, owner: &str, heir: bool) -> Round {
        let message = format!("{owner} looks after it; this appliance reads and writes nothing");
        self.tell(Aspect::Observed, (true, Reason::OtherOwner), &message);
        // Delays requested by Azure apply to an observer too, because it shares the owner's quota.
        let there = match self.held_off(self.status.service.held_off) {
            Some(pause) => Err(pause),
            None => {
                let there = service::look(&mut self).await;
                self.status.service.held_off = self.hold_off(&there);
                match there {
                    Continue(found) => Ok(found),
                    Break(stop) => Err(stop.after),
                }
            }
        };
        let pause = match (&there, self.object.deletion) {
            (Err(pause), _) => *pause,
            (Ok(true), None) => DRIFT,
            (Ok(false), None) => ABSENT,
            (Ok(_), Some(_)) => SOON,
        };
        match (self.object.deletion, self.object.held) {
            (None, _) => self.end(Next::After(pause), None),
            (Some(_), false) => self.end(Next::Never, None),
            // The owner removes everything. An appliance that may become the owner waits for that.
            (Some(_), true) if heir && there != Ok(false) => self.end(Next::After(pause), None),
            (Some(_), true) => self.end(Next::Never, Some(Finalizer::Release)),
        }
    }

    async fn keep(mut self) -> Round {
        let fixed = match self.accept() {
            Ok(fixed) => fixed,
            Err(wrong) => {
                self.stopped(&Stop::mend(Aspect::Service, Reason::Invalid, wrong.to_string()));
                return self.end(Next::BackOff, None);
            }
        };
        if let Some(until) = self.object.spec.paused.until(self.turn.now) {
            let message = "spec.paused says so: nothing is made or changed meanwhile";
            self.tell(Aspect::Paused, (true, Reason::Paused), message);
            let pause = until.since(self.turn.now).min(DRIFT);
            return self.end(Next::After(pause), None);
        }
        self.status.untell(Aspect::Paused);
        // The location is stored before anything is created, so that it can be removed whatever
        // happens in between.
        let noted = dns::note(&mut self, &fixed);
        if self.status.fixed.as_ref() != Some(&fixed) || noted {
            self.status.fixed = Some(fixed);
            return self.end(Next::Now, None);
        }
        let alias = self.status.service.alias.clone();
        let service = match self.held_off(self.status.service.held_off) {
            Some(pause) => pause,
            None => {
                let ended = service::keep(&mut self, &fixed).await;
                self.status.service.held_off = self.hold_off(&ended);
                self.pause_of(ended)
            }
        };
        let news = self.status.service.alias != alias;
        let endpoint = match self.held_off(self.status.endpoint.held_off) {
            Some(pause) if !news => pause,
            _ => {
                let ended = endpoint::keep(&mut self, &fixed).await;
                self.status.endpoint.held_off = self.hold_off(&ended);
                self.pause_of(ended)
            }
        };
        self.summarize();
        match service.min(endpoint) {
            Duration::ZERO => self.end(Next::Now, None),
            pause => self.end(Next::After(pause), None),
        }
    }

    /// Returns the rest of a side's delay, if it has one.
    pub(crate) fn held_off(&self, before: Option<HeldOff>) -> Option<Duration> {
        let HeldOff { generation, deleting, until } = before?;
        let same =
            (generation, deleting) == (self.object.generation, self.object.deletion.is_some());
        (same && until > self.turn.now).then(|| until.since(self.turn.now))
    }

    /// Returns the delay to store after an error of Azure.
    pub(crate) fn hold_off<T>(&self, ended: &Outcome<T>) -> Option<HeldOff> {
        let Break(stop) = ended else { return None };
        if stop.cause != Cause::Failed {
            return None;
        }
        let (generation, deleting) = (self.object.generation, self.object.deletion.is_some());
        Some(HeldOff { generation, deleting, until: self.turn.now.after(stop.after) })
    }

    /// Returns the immutable parts of the desired state, if it is valid.
    fn accept(&self) -> Result<Fixed, Wrong> {
        self.object.spec.complete()?;
        self.object.spec.check()?;
        let fixed = Fixed::of(&self.object.name, &self.object.spec)?;
        let before = self.status.fixed.as_ref();
        before.and_then(|before| before.differs(&fixed)).map_or(Ok(fixed), Err)
    }

    fn pause_of(&mut self, side: Outcome<Duration>) -> Duration {
        match side {
            Continue(pause) => pause,
            Break(stop) => {
                self.stopped(&stop);
                stop.after
            }
        }
    }

    /// Sets the conditions after one side stopped early.
    pub(crate) fn stopped(&mut self, stop: &Stop) {
        let Stop { aspect, reason, message, .. } = stop;
        // What works keeps working while it is changed, and a service that points elsewhere does so
        // until the change is complete.
        let differs = self.status.condition(*aspect);
        let differs = differs.is_some_and(|told| told.reason == Reason::FrontendDiffers);
        if *reason == Reason::UnderWay && (differs || self.status.is(*aspect)) {
            return;
        }
        self.tell(*aspect, (false, *reason), message);
        if *aspect == Aspect::Balancer {
            self.tell(Aspect::Service, (false, *reason), message);
        }
        if matches!(aspect, Aspect::Balancer | Aspect::Service) {
            self.tell(Aspect::Available, (false, *reason), message);
        }
    }

    pub(crate) fn tell(&mut self, aspect: Aspect, holds: (bool, Reason), why: &str) {
        self.status.tell(self.turn.now, aspect, holds, why);
    }

    /// Sets the condition `Available`, which holds if all desired aspects do.
    fn summarize(&mut self) {
        let endpoint = self.object.spec.endpoint.as_ref();
        let named = endpoint.is_some_and(|endpoint| !endpoint.zones.is_empty());
        let wanted = [
            (true, Aspect::Service),
            (endpoint.is_some(), Aspect::Endpoint),
            (named, Aspect::Names),
        ];
        for (wanted, aspect) in wanted {
            if !wanted {
                self.status.untell(aspect);
            }
        }
        let missing = wanted.iter().find(|(wanted, aspect)| *wanted && !self.status.is(*aspect));
        let (holds, message) = match missing {
            None => ((true, Reason::AzureSuccess), "all that is wanted works".to_owned()),
            Some((_, aspect)) => match self.status.condition(*aspect) {
                Some(condition) => ((false, condition.reason), condition.message.clone()),
                None => ((false, Reason::UnderWay), format!("{} comes first", aspect.as_str())),
            },
        };
        self.tell(Aspect::Available, holds, &message);
    }

    /// Ends the round. Each condition whose status or reason changed becomes an event.
    fn end(mut self, next: Next, finalizer: Option<Finalizer>) -> Round {
        for condition in &self.status.conditions {
            let before = self.object.status.condition(condition.aspect);
            let same = before.is_some_and(|before| {
                (before.status, before.reason) == (condition.status, condition.reason)
            });
            if !same {
                let warning = condition.status == Truth::False
                    && !matches!(condition.reason, Reason::UnderWay | Reason::Deleting);
                let message = format!("{}: {}", condition.aspect.as_str(), condition.message);
                let reason = condition.reason.as_str();
                self.events.push(Event { warning, reason, message });
            }
        }
        Round { status: self.status, finalizer, next, events: self.events }
    }
}
