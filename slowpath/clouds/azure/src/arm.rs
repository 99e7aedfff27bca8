//! What is asked of Azure Resource Manager: resources as JSON that is kept whole, so that what we
//! don't know survives a read and a write; long operations as handles that can be stored, and
//! polled by whoever comes later.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use clouds::failure::{Operation, Setback};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A question on its way. To drop it is to take it back.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, Setback>> + Send + 'a>>;

/// What is asked, by its names, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Its service is the permission that it needs (`Microsoft.Network/loadBalancers/read`), its
    /// name what Azure's specification calls it (`LoadBalancers_List`).
    pub operation: Operation,
    /// From `/subscriptions/` on, as the resource's id is written.
    pub path: String,
    /// `api-version`.
    pub version: &'static str,
}

/// A resource as ARM tells it.
#[derive(Clone, PartialEq, Debug)]
pub struct Resource {
    /// All of it.
    pub body: Value,
    /// Its ETag, from the header or the body, for `If-Match`.
    pub etag: Option<String>,
}

/// An operation that goes on at Azure after its request was taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Handle {
    /// `Azure-AsyncOperation`: a document with a `status` is there.
    pub operation: Option<String>,
    /// `Location`: 202 there until it is over.
    pub location: Option<String>,
    /// Path of the resource that it is about.
    pub resource: String,
    /// What began it, for errors.
    pub name: String,
}

/// How a write was taken.
#[derive(Clone, PartialEq, Debug)]
pub enum Begun {
    /// It is done; the resource where the answer has it. A resource that was to be deleted and is
    /// not there is done as well.
    Done(Option<Resource>),
    /// It goes on; `after` is when to ask, by `Retry-After`.
    UnderWay {
        /// What to ask.
        handle: Handle,
        /// Not before.
        after: Option<Duration>,
    },
}

/// How an operation stands.
#[derive(Clone, PartialEq, Debug)]
pub enum Progress {
    /// Ask again, not before `after`.
    UnderWay {
        /// By `Retry-After`.
        after: Option<Duration>,
    },
    /// It succeeded.
    Done,
    /// It failed or was cancelled, for the reason that Azure tells.
    Failed(Setback),
}

/// Azure Resource Manager.
pub trait Arm: Send + Sync {
    /// A resource; [`Failure::Absent`](clouds::failure::Failure::Absent) where it is none.
    fn get<'a>(&'a self, ask: &'a Ask) -> Call<'a, Resource>;
    /// All resources of a list, from all of its pages.
    fn list<'a>(&'a self, ask: &'a Ask) -> Call<'a, Vec<Value>>;
    /// Makes or replaces a resource; with an ETag only if nobody changed it since
    /// ([`Failure::Conflict`](clouds::failure::Failure::Conflict)).
    fn put<'a>(&'a self, ask: &'a Ask, body: &'a Value, etag: Option<&'a str>) -> Call<'a, Begun>;
    /// Deletes a resource.
    fn delete<'a>(&'a self, ask: &'a Ask) -> Call<'a, Begun>;
    /// Looks how an operation stands.
    fn poll<'a>(&'a self, handle: &'a Handle) -> Call<'a, Progress>;
}
