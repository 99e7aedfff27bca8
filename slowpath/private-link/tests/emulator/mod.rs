//! The Azure emulator without HTTP: its clock, calls that are refused, hang or get lost, operations
//! that fail or never end, and a record of what Weir created.

pub mod driver;
pub mod sample;

use std::collections::BTreeSet;
use std::future::{Future, pending, ready};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use azure::arm::{Arm, ArmFuture, ArmRequest, OperationHandle, Progress, Resource, WriteOutcome};
use azure::failure::{ClassifyError, ErrorBody};
use cloud_emulators::azure::operation::{End, Outcome};
use cloud_emulators::azure::{AzureResponse, AzureState as Emulator, ParsedRequest};
use clouds::failure::{AttemptError, Failure, Operation};
use clouds::retry::Pause;
use fastrand::Rng;
use serde_json::{Value, json};

/// Base URL for polling the emulator's operations.
const BASE: &str = "https://azure.test";
/// Operation that errors of polls name.
const POLL: Operation = Operation::new("", "Operation");

/// A deviation from the normal result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call fails with this error.
    Refused(Failure),
    /// No response arrives, and nothing was done.
    Hangs,
    /// The call takes effect, but no response arrives.
    Lost,
    /// The process ends during the call, before the call takes effect.
    EndsBefore,
    /// The process ends during the call, after the call has taken effect.
    EndsAfter,
    /// A write continues as a long operation without a URL for polling.
    NoHandle,
    /// A write continues as a long operation and fails.
    Fails,
    /// A write continues as a long operation and never ends.
    Never,
}

/// The emulator, and the faults of its calls.
pub struct FaultyAzure {
    pub azure: Emulator,
    /// Duration of long operations in seconds; with `rng`, the maximum of a random duration. With
    /// 0, writes complete at once.
    pub slowness: u64,
    /// With `rng`, one call in this number has a random fault on average; 0 for none.
    pub faults: u64,
    /// Faults of the next calls, by operation.
    pub script: Vec<(&'static str, Fault)>,
    /// Source of random durations and faults; `None` for neither.
    pub rng: Option<Rng>,
    /// The time limit of the current call expires.
    hanging: bool,
    /// Ids of resources that Weir created, in lower case. An id stays here after a deletion.
    made: BTreeSet<String>,
    /// Changes that Weir made to resources of others.
    pub foreign_changes: Vec<String>,
    /// Names of the operations that were called.
    pub calls: Vec<String>,
    /// Delay that [`Failure::Throttled`] requests.
    pub retry_after: Option<Duration>,
}

/// The emulator, shared by all callers.
#[derive(Clone)]
pub struct Azure(Arc<Mutex<FaultyAzure>>);

impl Azure {
    /// Returns an emulator without faults, whose operations complete at once.
    pub fn new(azure: Emulator) -> Azure {
        Azure(Arc::new(Mutex::new(FaultyAzure {
            azure,
            slowness: 0,
            faults: 0,
            script: Vec::new(),
            rng: None,
            hanging: false,
            made: BTreeSet::new(),
            foreign_changes: Vec::new(),
            calls: Vec::new(),
            retry_after: None,
        })))
    }

    pub fn state(&self) -> MutexGuard<'_, FaultyAzure> {
        self.0.lock().unwrap()
    }
}

/// Polls a future once and drops it if it is pending, as when a process is killed.
pub fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Time limits expire at once if a call hangs, and never otherwise.
impl Pause for Azure {
    fn now(&self) -> Duration {
        Duration::from_secs(self.state().now())
    }

    fn wait(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let azure = self.clone();
        Box::pin(std::future::poll_fn(move |_| match azure.state().hanging {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    }
}

fn key(id: &str) -> String {
    id.to_ascii_lowercase()
}

impl FaultyAzure {
    pub fn now(&self) -> u64 {
        self.azure.clock()
    }

    /// Advances the clock to `to`, in seconds since 1970.
    pub fn pass(&mut self, to: u64) {
        self.azure.advance(Duration::from_secs(to.saturating_sub(self.now())));
    }

    /// Returns a resource in the form that Azure returns.
    pub fn get(&self, id: &str) -> Option<Value> {
        self.azure.get(id)
    }

    /// Returns all items of the list at a path.
    pub fn below(&mut self, list: &str) -> Vec<Value> {
        let list = ArmRequest { operation: POLL, path: list.to_owned(), version: "2024-05-01" };
        listed(self.request("GET", &list, None, None))
    }

    /// Creates a resource as another party, without validation.
    pub fn set(&mut self, id: &str, body: Value) {
        if self.get(id).is_none() {
            self.made.remove(&key(id));
        }
        self.azure.store(id, body);
    }

    /// Changes a resource as another party.
    pub fn edit(&mut self, id: &str, change: impl FnOnce(&mut Value)) {
        self.azure.edit(id, change);
    }

    /// Deletes a resource with those nested in it, as another party.
    pub fn remove(&mut self, id: &str) {
        let own = self.azure.operations.iter_mut().filter(|o| key(&o.item) == key(id));
        own.for_each(|operation| operation.settled = true);
        self.azure.remove(id);
    }

    /// Requests a connection from a foreign endpoint; returns true if Azure accepted it.
    pub fn request_connection(
        &mut self,
        subscription: &str,
        name: &str,
        alias: Option<&str>,
    ) -> bool {
        let of = |kind: &str, name: &str| sample::network(subscription, kind, name);
        let (id, subnet) = (of("privateEndpoints", name), of("virtualNetworks", "theirs"));
        let connections =
            json!([{ "name": name, "properties": { "privateLinkServiceId": alias } }]);
        let body = json!({ "location": "westeurope", "properties": {
            "subnet": { "id": subnet.child("subnets", "endpoints") },
            "manualPrivateLinkServiceConnections": connections,
        }});
        self.remove(id.as_str());
        self.azure.pace = Duration::ZERO;
        let put = ArmRequest { operation: POLL, path: id.to_string(), version: "2024-05-01" };
        self.request("PUT", &put, Some(&body), None).status < 300
    }

    /// Ends the operations that never end.
    pub fn end_all(&mut self) {
        let now = self.azure.now;
        let operations = self.azure.operations.iter_mut();
        operations.for_each(|operation| operation.over = operation.over.or(Some(now)));
    }

    pub fn is_own(&self, id: &str) -> bool {
        self.made.contains(&key(id))
    }

    /// Returns the ids of the resources that Weir created, without connections and resources that
    /// Azure creates by itself.
    pub fn own_ids(&self) -> Vec<String> {
        self.resource_ids().into_iter().filter(|id| self.is_own(id)).collect()
    }

    /// Returns the ids of the resources that others created, without connections and resources that
    /// Azure creates by itself.
    pub fn foreign_ids(&self) -> Vec<String> {
        self.resource_ids().into_iter().filter(|id| !self.is_own(id)).collect()
    }

    fn resource_ids(&self) -> Vec<String> {
        let of_azure = ["/networkInterfaces/", "/SOA/"];
        let own = self.azure.resources.iter();
        let own = own.filter(|of| !of_azure.iter().any(|kind| of.id.contains(kind)));
        let subnets = self.azure.resources.iter().flat_map(|network| {
            let list = network.body["properties"]["subnets"].as_array().into_iter().flatten();
            let names = list.filter_map(|subnet| subnet["name"].as_str());
            names.map(|name| format!("{}/subnets/{name}", network.id))
        });
        own.map(|of| of.id.clone()).chain(subnets).collect()
    }

    fn fault(&mut self, name: &str) -> Option<Fault> {
        self.calls.push(name.to_owned());
        if let Some(at) = self.script.iter().position(|(operation, _)| *operation == name) {
            return Some(self.script.remove(at).1);
        }
        let times = self.faults;
        let rng = self.rng.as_mut()?;
        if times == 0 || rng.u64(..times) != 0 {
            return None;
        }
        Some(match rng.u64(..12) {
            0 => Fault::Refused(Failure::Throttled),
            1 => Fault::Refused(Failure::Transient),
            2 => Fault::Refused(Failure::Conflict),
            3 => Fault::Refused(Failure::Denied),
            4 => Fault::Refused(Failure::Invalid),
            5 => Fault::Hangs,
            6 => Fault::Lost,
            7 => Fault::EndsAfter,
            8 => Fault::EndsBefore,
            9 => Fault::NoHandle,
            10 => Fault::Fails,
            _ => Fault::Never,
        })
    }

    fn request(
        &mut self,
        method: &str,
        request: &ArmRequest,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> AzureResponse {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        assert!(query.is_empty() || query.starts_with("api-version="), "{query}");
        self.azure.answer(&ParsedRequest {
            method: method.to_owned(),
            path: path.to_owned(),
            query: vec![("api-version".to_owned(), request.version.to_owned())],
            headers: etag
                .map(|etag| ("if-match".to_owned(), etag.to_owned()))
                .into_iter()
                .collect(),
            body: body.cloned().unwrap_or_default(),
            base: BASE.to_owned(),
        })
    }

    /// Performs a write. Its operation takes up to `slowness`, and ends according to the fault.
    fn write(
        &mut self,
        (method, request): (&str, &ArmRequest),
        body: Option<&Value>,
        etag: Option<&str>,
        fault: Option<Fault>,
    ) -> Result<WriteOutcome, AttemptError> {
        let existed = self.get(&request.path).is_some();
        let lost =
            if method == "DELETE" { self.foreign_records(&request.path) } else { Vec::new() };
        let end = match fault {
            Some(Fault::Fails) => {
                let (code, message) = ("InternalServerError", "it failed for the test");
                Some(End::Fail { code: code.to_owned(), message: message.to_owned() })
            }
            Some(Fault::Never) => Some(End::Hang),
            Some(Fault::NoHandle) => Some(End::Succeed),
            _ => None,
        };
        let takes = match self.rng.as_mut() {
            Some(rng) if self.slowness > 0 => rng.u64(..self.slowness + 1),
            _ => self.slowness,
        };
        self.azure.pace = Duration::from_secs(takes.max(u64::from(end.is_some())));
        let outcome = |end| Outcome { operation: "*".to_owned(), end, times: Some(1) };
        self.azure.outcomes = end.map(outcome).into_iter().collect();
        let response = success(request.operation, self.request(method, request, body, etag))?;
        if !existed {
            self.made.insert(key(&request.path));
        } else if !request.path.contains("privateEndpointConnections") {
            let foreign = (!self.is_own(&request.path)).then(|| request.path.clone());
            let touched = lost.into_iter().chain(foreign);
            self.foreign_changes.extend(touched.map(|id| format!("{method} {id}")));
        }
        Ok(write_outcome(request, &response, fault != Some(Fault::NoHandle)))
    }

    /// Returns the records of a zone that others created.
    fn foreign_records(&self, zone: &str) -> Vec<String> {
        let within = key(zone) + "/";
        let all = self.foreign_ids().into_iter();
        all.filter(|id| key(id).starts_with(&within)).collect()
    }
}

/// Returns the response if its status is 2xx, or else its error.
fn success(operation: Operation, response: AzureResponse) -> Result<AzureResponse, AttemptError> {
    if (200..300).contains(&response.status) {
        return Ok(response);
    }
    let error =
        response.body.as_ref().map(|body| ErrorBody::of(&body["error"])).unwrap_or_default();
    Err(operation.classified(response.status, &error))
}

fn listed(response: AzureResponse) -> Vec<Value> {
    match response.body.unwrap_or_default()["value"].take() {
        Value::Array(list) => list,
        _ => Vec::new(),
    }
}

/// Parses the response to a write. Unless `pollable`, the handle has no URL for polling.
fn write_outcome(request: &ArmRequest, response: &AzureResponse, pollable: bool) -> WriteOutcome {
    let header = |name: &str| response.header(name).map(str::to_owned);
    let (operation, location) = (header("azure-asyncoperation"), header("location"));
    if operation.is_none() && location.is_none() {
        return WriteOutcome::Done(None);
    }
    let handle = OperationHandle {
        operation: operation.filter(|_| pollable),
        location: location.filter(|_| pollable),
        resource: request.path.clone(),
        name: request.operation.name.to_owned(),
    };
    WriteOutcome::InProgress { handle, after: None }
}

/// Parses the state of an operation from either kind of response.
fn progress(handle: &OperationHandle, response: AzureResponse) -> Result<Progress, AttemptError> {
    let failed = |error: &Value| Progress::Failed(POLL.classified(0, &ErrorBody::of(error)));
    let body = response.body.clone().unwrap_or_default();
    Ok(match (handle.operation.is_some(), body["status"].as_str()) {
        (true, Some("Succeeded")) => Progress::Done,
        (true, Some("InProgress")) => Progress::InProgress { after: None },
        (true, Some(_)) => failed(&body["error"]),
        (false, _) if response.status == 202 => Progress::InProgress { after: None },
        (false, _) if matches!(response.status, 400 | 409) => failed(&body["error"]),
        _ => success(POLL, response).map(|_| Progress::Done)?,
    })
}

/// How a call ends for the caller.
enum CallEnd<T> {
    /// With this response or error.
    Returns(Result<T, AttemptError>),
    /// At its time limit.
    Hangs,
    /// Not at all: the process ends first.
    Killed,
}

impl Azure {
    fn answer<'a, T: Send + 'a>(&self, end: CallEnd<T>) -> ArmFuture<'a, T> {
        self.state().hanging = matches!(end, CallEnd::Hangs);
        match end {
            CallEnd::Returns(result) => Box::pin(ready(result)),
            CallEnd::Hangs | CallEnd::Killed => Box::pin(pending()),
        }
    }

    /// Performs a call with its fault, if it has one.
    fn call<'a, T: Send + 'a>(
        &self,
        operation: Operation,
        act: impl FnOnce(&mut FaultyAzure, Option<Fault>) -> Result<T, AttemptError>,
    ) -> ArmFuture<'a, T> {
        let mut cloud = self.state();
        let fault = cloud.fault(operation.name);
        let end = match fault {
            Some(Fault::Refused(kind)) => {
                let after = cloud.retry_after.filter(|_| kind == Failure::Throttled);
                let refused = operation.failed(kind, "TestFault", "refused for the test");
                CallEnd::Returns(Err(AttemptError { after, ..refused }))
            }
            Some(Fault::Hangs) => CallEnd::Hangs,
            Some(Fault::EndsBefore) => CallEnd::Killed,
            _ => {
                let result = act(&mut cloud, fault);
                match fault {
                    Some(Fault::Lost) => CallEnd::Hangs,
                    Some(Fault::EndsAfter) => CallEnd::Killed,
                    _ => CallEnd::Returns(result),
                }
            }
        };
        drop(cloud);
        self.answer(end)
    }
}

impl Arm for Azure {
    fn get<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Resource> {
        self.call(request.operation, |cloud, _| {
            let response = success(request.operation, cloud.request("GET", request, None, None))?;
            let etag = response.header("etag").map(str::to_owned);
            Ok(Resource { body: response.body.unwrap_or_default(), etag })
        })
    }

    fn list<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Vec<Value>> {
        self.call(request.operation, |cloud, _| {
            Ok(listed(success(request.operation, cloud.request("GET", request, None, None))?))
        })
    }

    fn put<'a>(
        &'a self,
        request: &'a ArmRequest,
        body: &'a Value,
        etag: Option<&'a str>,
    ) -> ArmFuture<'a, WriteOutcome> {
        self.call(request.operation, |cloud, fault| {
            cloud.write(("PUT", request), Some(body), etag, fault)
        })
    }

    fn delete<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, WriteOutcome> {
        self.call(request.operation, |cloud, fault| {
            cloud.write(("DELETE", request), None, None, fault)
        })
    }

    fn poll<'a>(&'a self, handle: &'a OperationHandle) -> ArmFuture<'a, Progress> {
        let at = handle.operation.as_ref().or(handle.location.as_ref()).unwrap();
        let path = at.strip_prefix(BASE).unwrap().to_owned();
        let request = ArmRequest { operation: POLL, path, version: "2024-05-01" };
        self.call(POLL, |cloud, _| progress(handle, cloud.request("GET", &request, None, None)))
    }
}
