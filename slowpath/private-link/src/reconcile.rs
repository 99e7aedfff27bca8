//! One round over one object: what is there, the next thing that is missing, how far it has come.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use crate::course::{Course, DRIFT, Event};
use crate::errors::{Cause, Outcome, SOON, Stop};
use crate::object::{Aspect, Fixed, HeldOff, Object, Reason, Status, Truth, Wrong};
use crate::turn::{Standing, Turn};
use crate::{delete, dns, endpoint, service};

/// What its owner has not made yet, an observer looks for after so long.
const ABSENT: Duration = Duration::from_secs(2 * 60);

/// What a round came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Round {
    /// The object's status from now on.
    pub status: Status,
    /// What becomes of the finalizer, after the status is kept.
    pub finalizer: Option<Finalizer>,
    /// When the next round is due.
    pub next: Next,
    /// What people should know.
    pub events: Vec<Event>,
}

/// What becomes of the finalizer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finalizer {
    /// It is put on the object.
    Hold,
    /// It is taken off: everything is taken back.
    Release,
}

/// When the next round is due; a change of the object makes one due at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// At once, when what this one said is kept.
    Now,
    /// After so long.
    After(Duration),
    /// By the queue's own back-off: what is wanted can't be.
    BackOff,
    /// Never: there is nothing left to do.
    Never,
}

/// One round. It asks Azure a bounded number of questions, each for a bounded time, and waits for
/// no operation.
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
    /// Another appliance looks after it: what is there is read, and nothing is written.
    async fn observe(mut self, owner: &str, heir: bool) -> Round {
        let message = format!("{owner} looks after it; this appliance reads and writes nothing");
        self.tell(Aspect::Observed, (true, Reason::OtherOwner), &message);
        // Azure's pauses count for an observer as for the owner: they share the quota.
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
            // Its owner takes everything back. Who may become the owner waits for that.
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
        // What is about to be made is written down first, so that it can be taken back whatever
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

    /// For how long a side asks nothing yet.
    pub(crate) fn held_off(&self, before: Option<HeldOff>) -> Option<Duration> {
        let HeldOff { generation, deleting, until } = before?;
        let same =
            (generation, deleting) == (self.object.generation, self.object.deletion.is_some());
        (same && until > self.turn.now).then(|| until.since(self.turn.now))
    }

    /// Since Azure refused.
    pub(crate) fn hold_off<T>(&self, ended: &Outcome<T>) -> Option<HeldOff> {
        let Break(stop) = ended else { return None };
        if stop.cause != Cause::Failed {
            return None;
        }
        let (generation, deleting) = (self.object.generation, self.object.deletion.is_some());
        Some(HeldOff { generation, deleting, until: self.turn.now.after(stop.after) })
    }

    /// What is wanted, if it can be.
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

    /// Tells where one side got no further.
    pub(crate) fn stopped(&mut self, stop: &Stop) {
        let Stop { aspect, reason, message, .. } = stop;
        // What works goes on working while it is changed.
        // What leads elsewhere does so until the change is through.
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

    /// It is available when all that is wanted of it is.
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

    /// The round is over. What is told otherwise than before is an event.
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
