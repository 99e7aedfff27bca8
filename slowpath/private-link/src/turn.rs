//! Context of a round: Azure clients, time, and time limits of calls.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use azure::arm::{Arm, Ask, Begun, Handle, Progress, Resource};
use clouds::failure::{Failure, Operation, Setback};
use clouds::retry::Pause;
use serde_json::Value;

use crate::errors::{Cause, Outcome, Stop, overlaps};
use crate::object::{Aspect, Reason, Running, Step};
use crate::time::Time;

/// Time limit of a call on the service side.
const SERVICE_BOUND: Duration = Duration::from_secs(120);
/// Time limit of a call on the consumer side.
const ENDPOINT_BOUND: Duration = Duration::from_secs(30);
/// Interval of polls if Azure requests none.
const POLL: Duration = Duration::from_secs(10);
/// Time after which a long operation is no longer polled, and the resource itself is read instead.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Azure clients of both sides; the same client if one identity has access to both.
#[derive(Clone, Copy)]
pub struct Arms<'a> {
    /// Client for the service, its load balancer and its subnet.
    pub service: &'a dyn Arm,
    /// Client for the endpoint and its DNS zones.
    pub endpoint: &'a dyn Arm,
}

/// Settings shared by all rounds of an appliance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Name of the fleet, the group of appliances that share the objects. All created resources are
    /// tagged with it.
    pub fleet: String,
}

/// Whether this appliance may write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// This appliance is the owner.
    Owner,
    /// Another appliance is the owner.
    Observer {
        /// Name of the owner, or why it is unknown.
        owner: String,
        /// True if this appliance may become the owner. It then keeps an object that is being
        /// deleted until its service is gone.
        heir: bool,
    },
}

/// Context of one round.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// Start of the round.
    pub now: Time,
    /// Azure clients.
    pub arms: Arms<'a>,
    /// Clock for the time limits of calls.
    pub pause: &'a dyn Pause,
    /// Settings of the appliance.
    pub settings: &'a Settings,
    /// Whether this appliance may write.
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

/// The Azure client of one side, with a time limit for each call.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) arm: &'a dyn Arm,
    pub(crate) pause: &'a dyn Pause,
    pub(crate) bound: Duration,
    pub(crate) now: Time,
}

impl Side<'_> {
    /// Reads a resource; `None` if it does not exist.
    pub(crate) async fn get(&self, ask: &Ask) -> Result<Option<Resource>, Setback> {
        match self.bounded(ask.operation, self.arm.get(ask)).await {
            Ok(resource) => Ok(Some(resource)),
            Err(setback) if setback.error.kind == Failure::Absent => Ok(None),
            Err(setback) => Err(setback),
        }
    }

    /// Reads a list; empty if its parent does not exist.
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

    /// Deletes a resource; one that does not exist counts as deleted.
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

    /// Stores the handle of a long operation, and stops the round's side if there is one.
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

    /// Polls the long operation in progress. Continues if there is none or it succeeded.
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
            // The resource to delete no longer exists.
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
            // Azure no longer knows the operation: the state of the resource shows its result.
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
        // Not later than the end of [`PATIENCE`].
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

/// State of a resource, from its `provisioningState`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The resource may be used and written.
    Ready,
    /// An operation is in progress.
    Busy,
    /// The last operation failed, and the resource has to be written again.
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

/// Returns the stop for a resource with an operation in progress whose handle is not known.
pub(crate) fn busy(aspect: Aspect, what: &str, body: &Value) -> Stop {
    let state = body["properties"]["provisioningState"].as_str().unwrap_or_default();
    let message = format!("{what} is in state {state} at Azure");
    Stop::wait(aspect, Reason::UnderWay, message)
}
