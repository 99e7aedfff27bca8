//! What a round has at hand: Azure, the time, and bounds on both.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use azure::arm::{Arm, Ask, Begun, Handle, Progress, Resource};
use clouds::failure::{Failure, Operation, Setback};
use clouds::retry::Pause;
use serde_json::Value;

use crate::errors::{Cause, Outcome, Stop, overlaps};
use crate::object::{Aspect, Reason, Running, Step};
use crate::time::Time;

/// A call of the service's side may take so long.
const SERVICE_BOUND: Duration = Duration::from_secs(120);
/// A call of the endpoint's side.
const ENDPOINT_BOUND: Duration = Duration::from_secs(30);
/// An operation is looked at so often where Azure names no time.
const POLL: Duration = Duration::from_secs(10);
/// An operation that goes on for longer is not waited for: the resource itself is looked at.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Azure as either side reaches it; the same where one identity may do both.
#[derive(Clone, Copy)]
pub struct Arms<'a> {
    /// For the service, its load balancer and its subnet.
    pub service: &'a dyn Arm,
    /// For the endpoint and its names.
    pub endpoint: &'a dyn Arm,
}

/// What all rounds of an appliance have alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Name of the appliances that look after the same objects. It is a tag of all that they make.
    pub fleet: String,
}

/// Whether this appliance may write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is the owner.
    Owner,
    /// Another one is.
    Observer {
        /// Who, or why nobody knows.
        owner: String,
        /// This one may become the owner: it does not let go of what is being deleted before it is
        /// gone.
        heir: bool,
    },
}

/// One round's means.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// The time at which it begins.
    pub now: Time,
    /// Azure.
    pub arms: Arms<'a>,
    /// How time passes for the bounds of calls.
    pub pause: &'a dyn Pause,
    /// What is set.
    pub settings: &'a Settings,
    /// Whether it may write.
    pub standing: &'a Standing,
}

impl<'a> Turn<'a> {
    pub(crate) fn service(&self) -> Side<'a> {
        let Turn { now, arms, pause, .. } = *self;
        Side { arm: arms.service, pause, bound: SERVICE_BOUND, now }
    }

    pub(crate) fn endpoint(&self) -> Side<'a> {
        let Turn { now, arms, pause, .. } = *self;
        Side { arm: arms.endpoint, pause, bound: ENDPOINT_BOUND, now }
    }
}

/// Azure from one side, each call bounded.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) arm: &'a dyn Arm,
    pub(crate) pause: &'a dyn Pause,
    pub(crate) bound: Duration,
    pub(crate) now: Time,
}

impl Side<'_> {
    /// A resource; none where there is none.
    pub(crate) async fn get(&self, ask: &Ask) -> Result<Option<Resource>, Setback> {
        match self.bounded(ask.operation, self.arm.get(ask)).await {
            Ok(resource) => Ok(Some(resource)),
            Err(setback) if setback.error.kind == Failure::Absent => Ok(None),
            Err(setback) => Err(setback),
        }
    }

    /// All of a list; nothing where what would have them is not there.
    pub(crate) async fn list(&self, ask: &Ask) -> Result<Vec<Value>, Setback> {
        match self.bounded(ask.operation, self.arm.list(ask)).await {
            Err(setback) if setback.error.kind == Failure::Absent => Ok(Vec::new()),
            answered => answered,
        }
    }

    pub(crate) async fn put(
        &self,
        ask: &Ask,
        body: &Value,
        etag: Option<&str>,
    ) -> Result<Begun, Setback> {
        self.bounded(ask.operation, self.arm.put(ask, body, etag)).await
    }

    /// What is not there is deleted.
    pub(crate) async fn delete(&self, ask: &Ask) -> Result<Begun, Setback> {
        match self.bounded(ask.operation, self.arm.delete(ask)).await {
            Err(setback) if setback.error.kind == Failure::Absent => Ok(Begun::Done(None)),
            answered => answered,
        }
    }

    async fn poll(&self, handle: &Handle) -> Result<Progress, Setback> {
        let operation = Operation::new("", "Operation");
        self.bounded(operation, self.arm.poll(handle)).await
    }

    async fn bounded<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, Setback>>,
    ) -> Result<T, Setback> {
        tokio::select! {
            biased;
            answered = call => answered,
            () = self.pause.wait(self.bound) => Err(operation.late(self.bound)),
        }
    }

    /// Keeps the handle of an operation that goes on. What is done needs none.
    pub(crate) fn begun(
        &self,
        running: &mut Option<Running>,
        step: Step,
        begun: Begun,
    ) -> Outcome<()> {
        let Begun::UnderWay { handle, after } = begun else { return Continue(()) };
        let since = self.now;
        if handle.operation.is_none() && handle.location.is_none() {
            let message = format!("{}; Azure gave no way to follow it", step.as_str());
            return Break(Stop::taken(step.aspect(), message));
        }
        let next = since.after(after.unwrap_or(POLL));
        let kept = Running { handle, step, since, next };
        let stop = Stop { cause: Cause::Taken, ..kept.stop(self.now) };
        *running = Some(kept);
        Break(stop)
    }

    /// Looks after an operation that goes on: well when there is none, or it succeeded.
    pub(crate) async fn settle(&self, running: &mut Option<Running>) -> Outcome<()> {
        let Some(mut there) = running.take() else { return Continue(()) };
        let Running { step, since, .. } = there;
        let overdue = self.now >= since.after(PATIENCE);
        if there.next > self.now && !overdue {
            let stop = there.stop(self.now);
            *running = Some(there);
            return Break(stop);
        }
        let pause = match self.poll(&there.handle).await {
            Ok(Progress::Done) => return Continue(()),
            // What was to be deleted is not there.
            Ok(Progress::Failed(setback))
                if step.deletes() && setback.error.kind == Failure::Absent =>
            {
                return Continue(());
            }
            Ok(Progress::Failed(setback)) if overlaps(&setback) => {
                let message = setback.error.to_string();
                return Break(Stop::wait(step.aspect(), Reason::LinkedElsewhere, message));
            }
            Ok(Progress::Failed(setback)) => {
                return Break(Stop::failed(step.aspect(), step.reason(), &setback));
            }
            // Azure has forgotten the operation: the resource tells what became of it.
            Err(setback) if setback.error.kind == Failure::Absent => return Continue(()),
            Ok(Progress::UnderWay { after }) => after.unwrap_or(POLL),
            Err(setback) => crate::errors::pause_after(&setback),
        };
        if overdue {
            let minutes = self.now.since(since).as_secs() / 60;
            let message = format!(
                "{} for {minutes} min without an end; {} is looked at itself from now on",
                step.as_str(),
                there.handle.resource
            );
            return Break(Stop::wait(step.aspect(), step.reason(), message));
        }
        // Not later than when patience ends.
        there.next = self.now.after(pause.max(Duration::from_secs(1))).min(since.after(PATIENCE));
        let stop = there.stop(self.now);
        *running = Some(there);
        Break(stop)
    }
}

impl Running {
    fn stop(&self, now: Time) -> Stop {
        let (aspect, message) = (self.step.aspect(), self.step.as_str());
        let after = self.next.since(now);
        Stop { after, ..Stop::wait(aspect, Reason::UnderWay, message) }
    }
}

impl Step {
    fn as_str(self) -> &'static str {
        match self {
            Step::CreateService => "the private link service is being made",
            Step::UpdateService => "the private link service is being changed",
            Step::DeleteService => "the private link service is being deleted",
            Step::WriteSubnet => "the subnet for translated addresses is being made",
            Step::WriteEndpoint => "the private endpoint is being made",
            Step::DeleteEndpoint => "the private endpoint is being deleted",
            Step::WriteZone => "a private zone or its link is being written",
        }
    }

    pub(crate) fn aspect(self) -> Aspect {
        match self {
            Step::CreateService | Step::UpdateService | Step::DeleteService | Step::WriteSubnet => {
                Aspect::Service
            }
            Step::WriteEndpoint | Step::DeleteEndpoint => Aspect::Endpoint,
            Step::WriteZone => Aspect::Names,
        }
    }

    fn reason(self) -> Reason {
        match self {
            Step::CreateService => Reason::CreationFailed,
            Step::UpdateService => Reason::UpdateFailed,
            Step::WriteSubnet => Reason::SubnetFailed,
            _ => Reason::AzureError,
        }
    }

    fn deletes(self) -> bool {
        matches!(self, Step::DeleteService | Step::DeleteEndpoint | Step::WriteZone)
    }
}

/// How a resource stands that Azure tells as `provisioningState`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It may be used and written.
    Ready,
    /// An operation is at it.
    Busy,
    /// Its last operation failed: it is to be written again.
    Failed,
}

impl State {
    pub(crate) fn of(body: &Value) -> State {
        match body["properties"]["provisioningState"].as_str() {
            Some("Failed" | "Canceled") => State::Failed,
            Some("Succeeded") | None => State::Ready,
            Some(_) => State::Busy,
        }
    }
}

/// An operation of which nobody kept the handle is at a resource.
pub(crate) fn busy(aspect: Aspect, what: &str, body: &Value) -> Stop {
    let state = body["properties"]["provisioningState"].as_str().unwrap_or_default();
    let message = format!("{what} is in state {state} at Azure");
    Stop::wait(aspect, Reason::UnderWay, message)
}
