//! Context of a round: Azure clients, time, and time limits of calls.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use azure::arm::{Arm, ArmRequest, OperationHandle, Progress, Resource, WriteOutcome};
use clouds::failure::{AttemptError, Failure, Operation};
use clouds::retry::Pause;
use serde_json::Value;

use crate::errors::{Cause, Outcome, Stop, is_link_conflict};
use crate::object::{Aspect, Reason, RunningOperation, Step};
use crate::time::Time;

/// Time limit of a call on the service side.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit of a call on the consumer side.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between polls of a long operation if Azure requests none.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Time after which a long operation is no longer polled, and the resource itself is read instead.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Azure clients of both sides; the same client if one identity has access to both.
#[derive(Clone, Copy)]
pub struct ArmClients<'a> {
    /// Client for the service, its load balancer and its subnet.
    pub service: &'a dyn Arm,
    /// Client for the endpoint and its DNS zones.
    pub endpoint: &'a dyn Arm,
}

/// Settings shared by all rounds of an appliance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Name of the fleet, the group of appliances that share the objects. Created resources are
    /// tagged with it, except subnets, which have no tags.
    pub fleet: String,
}

/// Whether this appliance may write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// This appliance is the owner.
    Owner,
    /// Another appliance is the owner.
    Observer {
        /// Name of the owner, or why it is unknown.
        owner: String,
        /// True if this appliance may become the owner. It then keeps the finalizer of an object
        /// that is being deleted until the object's service is gone.
        candidate: bool,
    },
}

/// Context of one round.
#[derive(Clone, Copy)]
pub struct RoundContext<'a> {
    /// Start of the round.
    pub now: Time,
    /// Azure clients.
    pub clients: ArmClients<'a>,
    /// Clock for the time limits of calls.
    pub pause: &'a dyn Pause,
    /// Settings of the appliance.
    pub settings: &'a Settings,
    /// Whether this appliance may write.
    pub role: &'a Role,
}

impl<'a> RoundContext<'a> {
    /// Returns the client of the service side.
    pub(crate) fn service_client(&self) -> SideClient<'a> {
        let RoundContext { now, clients, pause, .. } = *self;
        SideClient { arm: clients.service, pause, timeout: SERVICE_TIMEOUT, now }
    }

    /// Returns the client of the endpoint side.
    pub(crate) fn endpoint_client(&self) -> SideClient<'a> {
        let RoundContext { now, clients, pause, .. } = *self;
        SideClient { arm: clients.endpoint, pause, timeout: ENDPOINT_TIMEOUT, now }
    }
}

/// The Azure client of one side, with a time limit for each call.
#[derive(Clone, Copy)]
pub(crate) struct SideClient<'a> {
    pub(crate) arm: &'a dyn Arm,
    pub(crate) pause: &'a dyn Pause,
    pub(crate) timeout: Duration,
    pub(crate) now: Time,
}

impl SideClient<'_> {
    /// Reads a resource; `None` if it does not exist.
    pub(crate) async fn get(&self, request: &ArmRequest) -> Result<Option<Resource>, AttemptError> {
        match self.with_timeout(request.operation, self.arm.get(request)).await {
            Ok(resource) => Ok(Some(resource)),
            Err(failed) if failed.error.kind == Failure::Absent => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    /// Reads a list; empty if the resource that contains it does not exist.
    pub(crate) async fn list(&self, request: &ArmRequest) -> Result<Vec<Value>, AttemptError> {
        match self.with_timeout(request.operation, self.arm.list(request)).await {
            Err(failed) if failed.error.kind == Failure::Absent => Ok(Vec::new()),
            result => result,
        }
    }

    /// Writes a resource; with `etag`, only if the resource still has this ETag.
    pub(crate) async fn put(
        &self,
        request: &ArmRequest,
        body: &Value,
        etag: Option<&str>,
    ) -> Result<WriteOutcome, AttemptError> {
        self.with_timeout(request.operation, self.arm.put(request, body, etag)).await
    }

    /// Deletes a resource; one that does not exist counts as deleted.
    pub(crate) async fn delete(&self, request: &ArmRequest) -> Result<WriteOutcome, AttemptError> {
        match self.with_timeout(request.operation, self.arm.delete(request)).await {
            Err(failed) if failed.error.kind == Failure::Absent => Ok(WriteOutcome::Done(None)),
            result => result,
        }
    }

    /// Reads the progress of a long operation.
    async fn poll(&self, handle: &OperationHandle) -> Result<Progress, AttemptError> {
        let operation = Operation::new("", "Operation");
        self.with_timeout(operation, self.arm.poll(handle)).await
    }

    /// Awaits a call, and returns an error at its time limit.
    async fn with_timeout<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        tokio::select! {
            biased;
            result = call => result,
            () = self.pause.wait(self.timeout) => Err(operation.timed_out(self.timeout)),
        }
    }

    /// Stops the round on this side if a write started a long operation. If the operation can be
    /// polled, its handle is stored in `running`.
    pub(crate) fn track(
        &self,
        running: &mut Option<RunningOperation>,
        step: Step,
        outcome: WriteOutcome,
    ) -> Outcome<()> {
        let WriteOutcome::InProgress { handle, after } = outcome else { return Continue(()) };
        let since = self.now;
        if handle.operation.is_none() && handle.location.is_none() {
            let message = format!("{}; Azure returned no operation URL to poll", step.as_str());
            return Break(Stop::accepted(step.aspect(), message));
        }
        let next = since.after(after.unwrap_or(POLL_INTERVAL));
        let operation = RunningOperation { handle, step, since, next };
        let stop = Stop { cause: Cause::Accepted, ..operation.stop(self.now) };
        *running = Some(operation);
        Break(stop)
    }

    /// Polls the long operation in progress. Continues if there is none, if it succeeded, or if
    /// only the resource itself can show its result.
    pub(crate) async fn poll_running(&self, running: &mut Option<RunningOperation>) -> Outcome<()> {
        let Some(mut operation) = running.take() else { return Continue(()) };
        let RunningOperation { step, since, .. } = operation;
        let overdue = self.now >= since.after(OPERATION_TIMEOUT);
        if operation.next > self.now && !overdue {
            let stop = operation.stop(self.now);
            *running = Some(operation);
            return Break(stop);
        }
        let pause = match self.poll(&operation.handle).await {
            Ok(Progress::Done) => return Continue(()),
            // The resource to delete no longer exists.
            Ok(Progress::Failed(failed))
                if step.may_delete() && failed.error.kind == Failure::Absent =>
            {
                return Continue(());
            }
            Ok(Progress::Failed(failed)) if is_link_conflict(&failed) => {
                let message = failed.error.to_string();
                return Break(Stop::wait(step.aspect(), Reason::LinkedElsewhere, message));
            }
            Ok(Progress::Failed(failed)) => {
                return Break(Stop::failed(step.aspect(), step.reason(), &failed));
            }
            // Azure no longer knows the operation: the resource's state shows the result.
            Err(failed) if failed.error.kind == Failure::Absent => return Continue(()),
            Ok(Progress::InProgress { after }) => after.unwrap_or(POLL_INTERVAL),
            Err(failed) => crate::errors::delay_after(&failed),
        };
        if overdue {
            let minutes = self.now.since(since).as_secs() / 60;
            let message = format!(
                "{} for {minutes} min without a result; {} itself is polled from now on",
                step.as_str(),
                operation.handle.resource
            );
            return Break(Stop::wait(step.aspect(), step.reason(), message));
        }
        // The last poll is at the end of [`OPERATION_TIMEOUT`].
        operation.next =
            self.now.after(pause.max(Duration::from_secs(1))).min(since.after(OPERATION_TIMEOUT));
        let stop = operation.stop(self.now);
        *running = Some(operation);
        Break(stop)
    }
}

impl RunningOperation {
    /// Returns the stop that reports the operation as in progress, until the next poll.
    fn stop(&self, now: Time) -> Stop {
        let (aspect, message) = (self.step.aspect(), self.step.as_str());
        let after = self.next.since(now);
        Stop { after, ..Stop::wait(aspect, Reason::InProgress, message) }
    }
}

impl Step {
    /// Returns the message while the operation is in progress.
    fn as_str(self) -> &'static str {
        match self {
            Step::CreateService => "the private link service is being created",
            Step::UpdateService => "the private link service is being updated",
            Step::DeleteService => "the private link service is being deleted",
            Step::WriteSubnet => "the NAT subnet is being created or updated",
            Step::WriteEndpoint => "the private endpoint is being created or updated",
            Step::DeleteEndpoint => "the private endpoint is being deleted",
            Step::WriteZone => "a private DNS zone or its link is being created or deleted",
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

    /// Returns the reason to report if the operation fails.
    fn reason(self) -> Reason {
        match self {
            Step::CreateService => Reason::CreationFailed,
            Step::UpdateService => Reason::UpdateFailed,
            Step::WriteSubnet => Reason::SubnetFailed,
            _ => Reason::AzureError,
        }
    }

    /// Returns true if the operation may be a deletion.
    fn may_delete(self) -> bool {
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

/// Returns the stop for a resource on which an operation without a known handle is in progress.
pub(crate) fn busy(aspect: Aspect, what: &str, body: &Value) -> Stop {
    let state = body["properties"]["provisioningState"].as_str().unwrap_or_default();
    let message = format!("Azure reports {what} in provisioning state {state}");
    Stop::wait(aspect, Reason::InProgress, message)
}
