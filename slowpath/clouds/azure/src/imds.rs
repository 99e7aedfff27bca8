//! Client for the instance metadata service (IMDS): identity, tunnels of the pools, scheduled
//! events, and tokens of the managed identity.

mod read;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use azure_core::credentials::Secret;
use azure_core::http::{Method, Pipeline, RawResponse, Request, Url};
use clouds::failure::{Failure, Operation, Setback};
use clouds::requests::Requests;
use clouds::retry::{Pause, Policy};
use serde_json::json;
use tokio::sync::watch;

use crate::failure::{Refused, Said, retry_after};
use crate::told::{CallError, Family, Identity, ScheduledEvent, Tunnels};
use crate::wire::{SETTINGS, Wire, send};

pub use read::{events, identity, mac, tunnels};

/// Time limit of one attempt; IMDS runs on the machine's host and answers quickly or not at all.
const BOUND: Duration = Duration::from_secs(5);
/// Time limit for scheduled events; the first request enables the service, which takes up to two
/// minutes.
const EVENTS_BOUND: Duration = Duration::from_secs(150);
/// Minimum delay before a retry, as Azure requires after a 5xx.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// Retry policy. With 410 the service announces that it is back within 70 s, so the last attempt is
/// made after that.
const PATIENCE: Policy = Policy {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(10),
    whole: Duration::from_secs(80),
};
/// Values of `api-version` for scheduled events and for tokens.
const EVENTS_VERSION: &str = "2020-07-01";
const TOKEN_VERSION: &str = "2018-02-01";

/// Operation names for errors; IMDS has paths instead of operations, and no permissions.
const INSTANCE: Operation = Operation::new("imds", "Instance");
const BALANCER: Operation = Operation::new("imds", "LoadBalancer");
const EVENTS: Operation = Operation::new("imds", "ScheduledEvents");
const TOKEN: Operation = Operation::new("imds", "Token");

/// Client for the instance metadata service. Clones share their connections.
#[derive(Clone)]
pub struct Metadata {
    pipeline: Pipeline,
    address: Url,
    version: String,
    requests: Requests,
}

/// A token of the managed identity.
pub struct Token {
    /// The token itself.
    pub secret: Secret,
    /// Remaining lifetime, by Azure's clock.
    pub lifetime: Duration,
}

impl Metadata {
    /// Returns a client for an address (`azure.metadata`) and an `api-version`
    /// (`azure.imds_version`). When `cancel` becomes true, all requests end.
    ///
    /// # Errors
    /// Fails if the address is not an `http://` URL.
    pub fn new(
        address: &str,
        version: &str,
        seed: u64,
        cancel: watch::Receiver<bool>,
    ) -> Result<Metadata, CallError> {
        let parsed = Url::parse(address).ok().filter(|url| url.scheme() == "http");
        let address = parsed.ok_or_else(|| {
            let why = format!("azure.metadata is `{address}`, which begins not with http://");
            SETTINGS.failed(Failure::Invalid, "NoAddress", why).error
        })?;
        Ok(Metadata {
            pipeline: Wire::to_host().map_err(|setback| setback.error)?.pipeline(Vec::new()),
            address,
            version: version.to_owned(),
            requests: Requests::new(PATIENCE, seed, cancel),
        })
    }

    /// Returns a clone with another retry policy.
    pub fn with_policy(&self, policy: Policy) -> Metadata {
        Metadata { requests: self.requests.with_policy(policy), ..self.clone() }
    }

    /// Returns a clone with another clock for the time between attempts.
    pub fn with_pause(&self, pause: Arc<dyn Pause>) -> Metadata {
        Metadata { requests: self.requests.with_pause(pause), ..self.clone() }
    }

    /// Reads the identity of this machine.
    pub async fn instance(&self) -> Result<Identity, CallError> {
        let url = self.url("/metadata/instance", &self.version, &[]);
        let answer = self.patiently(INSTANCE, BOUND, &url, None).await?;
        identity(answer.body()).map_err(|why| INSTANCE.garbled(why).error)
    }

    /// Reads the tunnels of the machine's pools; empty if it is in no pool of a gateway load
    /// balancer.
    pub async fn tunnels(&self) -> Result<Vec<(Family, Tunnels)>, CallError> {
        let url = self.url("/metadata/loadbalancer", &self.version, &[]);
        match self.patiently(BALANCER, BOUND, &url, None).await {
            Ok(answer) => tunnels(answer.body()).map_err(|why| BALANCER.garbled(why).error),
            Err(error) if error.kind == Failure::Absent => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Reads the scheduled events that affect the machine of that name.
    pub async fn events(&self, machine: &str) -> Result<Vec<ScheduledEvent>, CallError> {
        let url = self.url("/metadata/scheduledevents", EVENTS_VERSION, &[]);
        let answer = self.patiently(EVENTS, EVENTS_BOUND, &url, None).await?;
        events(answer.body(), machine).map_err(|why| EVENTS.garbled(why).error)
    }

    /// Acknowledges an event, so that it may start.
    pub async fn acknowledge(&self, id: &str) -> Result<(), CallError> {
        let url = self.url("/metadata/scheduledevents", EVENTS_VERSION, &[]);
        let body = json!({ "StartRequests": [{ "EventId": id }] }).to_string();
        self.patiently(EVENTS, EVENTS_BOUND, &url, Some(&body)).await.map(drop)
    }

    /// Requests a token for an audience, of the system-assigned or a user-assigned identity. Only
    /// one attempt is made, because the request that needs the token is retried itself.
    ///
    /// # Errors
    /// The error contains the delay that the metadata service requests.
    pub async fn token(&self, audience: &str, client_id: Option<&str>) -> Result<Token, Setback> {
        let mut members = vec![("resource", audience)];
        members.extend(client_id.map(|id| ("client_id", id)));
        let url = self.url("/metadata/identity/oauth2/token", TOKEN_VERSION, &members);
        let answer = self.once(TOKEN, BOUND, &url, None).await?;
        let (secret, lifetime) =
            read::token(answer.headers(), answer.body()).map_err(|why| TOKEN.garbled(why))?;
        Ok(Token { secret: Secret::new(secret), lifetime })
    }

    fn url(&self, path: &str, version: &str, members: &[(&str, &str)]) -> Url {
        let mut url = self.address.clone();
        url.set_path(path);
        url.query_pairs_mut().append_pair("api-version", version).extend_pairs(members);
        url
    }

    async fn patiently(
        &self,
        operation: Operation,
        bound: Duration,
        url: &Url,
        body: Option<&str>,
    ) -> Result<RawResponse, CallError> {
        let told = self.requests.persist(|| self.once(operation, bound, url, body)).await;
        told.map_err(|setback| setback.error)
    }

    async fn once(
        &self,
        operation: Operation,
        bound: Duration,
        url: &Url,
        body: Option<&str>,
    ) -> Result<RawResponse, Setback> {
        let method = if body.is_some() { Method::Post } else { Method::Get };
        let mut request = Request::new(url.clone(), method);
        request.insert_header("metadata", "true");
        if let Some(body) = body {
            request.insert_header("content-type", "application/json");
            request.set_body(body.to_owned());
        }
        let sent = send(&self.pipeline, operation, &mut request);
        let answer =
            operation.within(bound, sent).await.map_err(|setback| unreached(operation, setback))?;
        if answer.status().is_success() { Ok(answer) } else { Err(failed(operation, &answer)) }
    }
}

/// Adds the most likely reason to a connection error.
fn unreached(operation: Operation, setback: Setback) -> Setback {
    if setback.error.code != "NoAnswer" {
        return setback;
    }
    let message = format!(
        "no connection to the metadata service: is this an Azure machine, and nothing between it \
         and its host? {}",
        setback.error.message
    );
    Setback {
        after: Some(LEAST_PAUSE),
        ..operation.failed(Failure::Transient, "NoAnswer", message)
    }
}

/// Returns the error for a metadata response, by IMDS's own retry rules: 404, 410, 429 and 5xx are
/// temporary, all others permanent.
fn failed(operation: Operation, answer: &RawResponse) -> Setback {
    let (status, said) = (u16::from(answer.status()), Said::read(answer.body()));
    if operation == BALANCER && status == 404 && said.message.contains("No load balancer metadata")
    {
        return operation.refused(answer);
    }
    if operation == TOKEN && matches!(status, 400 | 403) {
        let why = format!(
            "this machine has no such identity: give it one (az vm identity assign), or set \
             azure.client_id to that of one it has; Azure says: {}",
            said.message
        );
        return operation.failed(Failure::Denied, "NoCredentials", why);
    }
    let mut setback = operation.refused(answer);
    if matches!(status, 404 | 410 | 429 | 500..) {
        let throttled = status == 429;
        setback.error.kind = if throttled { Failure::Throttled } else { Failure::Transient };
        let asked = retry_after(answer.headers(), SystemTime::now());
        setback.after = Some(asked.unwrap_or_default().max(LEAST_PAUSE));
    } else if setback.error.kind.passes() {
        setback.error.kind = Failure::Invalid;
    }
    setback
}

#[cfg(test)]
mod tests;
