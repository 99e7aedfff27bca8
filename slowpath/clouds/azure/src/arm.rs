//! Interface to Azure Resource Manager (ARM). Resources are complete JSON bodies, so that unknown
//! members survive a read and a write. A long-running operation is represented by a handle that can
//! be stored and polled later, also by another process.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use clouds::failure::{AttemptError, Operation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A call in progress. Dropping it cancels the call.
pub type ArmFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, AttemptError>> + Send + 'a>>;

/// A request: operation, path and API version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArmRequest {
    /// The operation. Its service is the required permission
    /// (`Microsoft.Network/loadBalancers/read`), its name is that of Azure's specification
    /// (`LoadBalancers_List`).
    pub operation: Operation,
    /// Path from `/subscriptions/` on, as in the resource's id; may have a query.
    pub path: String,
    /// Value of the `api-version` parameter.
    pub version: &'static str,
}

/// A resource as Resource Manager returns it.
#[derive(Clone, PartialEq, Debug)]
pub struct Resource {
    /// Complete JSON body.
    pub body: Value,
    /// ETag from the header or the body, for `If-Match`.
    pub etag: Option<String>,
}

/// A long-running operation, which continues at Azure after its request was accepted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OperationHandle {
    /// URL from `Azure-AsyncOperation`, which returns a body with a `status`.
    pub operation: Option<String>,
    /// URL from `Location`, which returns 202 until the operation is complete.
    pub location: Option<String>,
    /// Path of the resource.
    pub resource: String,
    /// Name of the request's operation, for errors and to recognize deletions.
    pub name: String,
}

/// Result of a write request.
#[derive(Clone, PartialEq, Debug)]
pub enum WriteOutcome {
    /// The write is complete. Contains the resource if the response does. Deleting an absent
    /// resource counts as complete.
    Done(Option<Resource>),
    /// The write continues at Azure.
    InProgress {
        /// Handle to poll.
        handle: OperationHandle,
        /// Minimum delay before the first poll, by `Retry-After`.
        after: Option<Duration>,
    },
}

/// State of a long-running operation.
#[derive(Clone, PartialEq, Debug)]
pub enum Progress {
    /// The operation continues.
    InProgress {
        /// Minimum delay before the next poll, by `Retry-After`.
        after: Option<Duration>,
    },
    /// The operation succeeded.
    Done,
    /// The operation failed or was canceled, with the reason that Azure gives.
    Failed(AttemptError),
}

/// Azure Resource Manager.
pub trait Arm: Send + Sync {
    /// Reads a resource; [`Failure::Absent`](clouds::failure::Failure::Absent) if it does not
    /// exist.
    fn get<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Resource>;
    /// Reads all resources of a list, from all pages.
    fn list<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Vec<Value>>;
    /// Creates or replaces a resource. If `etag` is given, the resource is replaced only if it
    /// still has that ETag; the error is [`Failure::Conflict`](clouds::failure::Failure::Conflict)
    /// otherwise.
    fn put<'a>(
        &'a self,
        request: &'a ArmRequest,
        body: &'a Value,
        etag: Option<&'a str>,
    ) -> ArmFuture<'a, WriteOutcome>;
    /// Deletes a resource; deleting an absent one succeeds.
    fn delete<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, WriteOutcome>;
    /// Polls a long-running operation.
    fn poll<'a>(&'a self, handle: &'a OperationHandle) -> ArmFuture<'a, Progress>;
}
