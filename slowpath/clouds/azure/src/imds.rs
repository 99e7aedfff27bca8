//! Client for the instance metadata service (IMDS): identity, tunnels of the pools, scheduled
//! events, and tokens of the managed identity.

mod read;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use azure_core::credentials::Secret;
use azure_core::http::{Method, Pipeline, RawResponse, Request, Url};
use clouds::failure::{AttemptError, Failure, Operation};
use clouds::requests::Requests;
use clouds::retry::{Pause, Policy};
use serde_json::json;
use tokio::sync::watch;

use crate::failure::{ClassifyError, ErrorBody, retry_after};
use crate::transport::{HttpTransport, SETTINGS, send};
use crate::types::{CallError, Family, Identity, ScheduledEvent, Tunnels};

pub use read::{parse_events, parse_identity, parse_mac, parse_subnets, parse_tunnels};

/// Time limit of one attempt; IMDS is local to the machine's host, so a slow response is not
/// expected.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for scheduled events; the first request enables the service, which takes up to two
/// minutes.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(150);
/// Minimum delay before a retry. Azure requires it after a 5xx; Weir uses it after all temporary
/// errors.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Retry policy. Status 410 means that the service is back within 70 s, so the retries last longer
/// than that.
const RETRY_POLICY: Policy = Policy {
    first_pause: Duration::from_secs(1),
    max_pause: Duration::from_secs(10),
    max_elapsed: Duration::from_secs(80),
};
/// Value of `api-version` for scheduled events.
const EVENTS_VERSION: &str = "2020-07-01";
/// Value of `api-version` for tokens.
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
            let why = format!("azure.metadata: `{address}` is not a URL that begins with http://");
            SETTINGS.failed(Failure::Invalid, "NoAddress", why).error
        })?;
        Ok(Metadata {
            pipeline: HttpTransport::to_host().map_err(|failed| failed.error)?.pipeline(Vec::new()),
            address,
            version: version.to_owned(),
            requests: Requests::new(RETRY_POLICY, seed, cancel),
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
        let response = self.instance_response().await?;
        parse_identity(response.body()).map_err(|why| INSTANCE.malformed(why).error)
    }

    /// Reads the identity of this machine, and the subnets of each of its interfaces.
    pub async fn instance_with_subnets(
        &self,
    ) -> Result<(Identity, Vec<Vec<(IpAddr, u8)>>), CallError> {
        let response = self.instance_response().await?;
        let parsed = parse_identity(response.body())
            .and_then(|identity| Ok((identity, parse_subnets(response.body())?)));
        parsed.map_err(|why| INSTANCE.malformed(why).error)
    }

    async fn instance_response(&self) -> Result<RawResponse, CallError> {
        let url = self.url("/metadata/instance", &self.version, &[]);
        self.with_retries(INSTANCE, TIMEOUT, &url, None).await
    }

    /// Reads the tunnels of the machine's pools; empty if the machine is in no pool of a gateway
    /// load balancer.
    pub async fn tunnels(&self) -> Result<Vec<(Family, Tunnels)>, CallError> {
        let url = self.url("/metadata/loadbalancer", &self.version, &[]);
        match self.with_retries(BALANCER, TIMEOUT, &url, None).await {
            Ok(response) => {
                parse_tunnels(response.body()).map_err(|why| BALANCER.malformed(why).error)
            }
            Err(error) if error.kind == Failure::Absent => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Reads the scheduled events that affect the machine of that name.
    pub async fn events(&self, machine: &str) -> Result<Vec<ScheduledEvent>, CallError> {
        let url = self.url("/metadata/scheduledevents", EVENTS_VERSION, &[]);
        let response = self.with_retries(EVENTS, EVENTS_TIMEOUT, &url, None).await?;
        parse_events(response.body(), machine).map_err(|why| EVENTS.malformed(why).error)
    }

    /// Acknowledges an event, so that it may start.
    pub async fn acknowledge(&self, id: &str) -> Result<(), CallError> {
        let url = self.url("/metadata/scheduledevents", EVENTS_VERSION, &[]);
        let body = json!({ "StartRequests": [{ "EventId": id }] }).to_string();
        self.with_retries(EVENTS, EVENTS_TIMEOUT, &url, Some(&body)).await.map(drop)
    }

    /// Requests a token for an audience, of the system-assigned identity or of the user-assigned
    /// one with `client_id`. Only one attempt is made, because the request that needs the token is
    /// retried itself.
    ///
    /// # Errors
    /// The error contains the delay that the metadata service requests.
    pub async fn token(
        &self,
        audience: &str,
        client_id: Option<&str>,
    ) -> Result<Token, AttemptError> {
        let mut members = vec![("resource", audience)];
        members.extend(client_id.map(|id| ("client_id", id)));
        let url = self.url("/metadata/identity/oauth2/token", TOKEN_VERSION, &members);
        let response = self.attempt(TOKEN, TIMEOUT, &url, None).await?;
        let token = read::parse_token(response.headers(), response.body());
        let (secret, lifetime) = token.map_err(|why| TOKEN.malformed(why))?;
        Ok(Token { secret: Secret::new(secret), lifetime })
    }

    fn url(&self, path: &str, version: &str, members: &[(&str, &str)]) -> Url {
        let mut url = self.address.clone();
        url.set_path(path);
        url.query_pairs_mut().append_pair("api-version", version).extend_pairs(members);
        url
    }

    async fn with_retries(
        &self,
        operation: Operation,
        timeout: Duration,
        url: &Url,
        body: Option<&str>,
    ) -> Result<RawResponse, CallError> {
        let result =
            self.requests.with_retries(|| self.attempt(operation, timeout, url, body)).await;
        result.map_err(|failed| failed.error)
    }

    async fn attempt(
        &self,
        operation: Operation,
        timeout: Duration,
        url: &Url,
        body: Option<&str>,
    ) -> Result<RawResponse, AttemptError> {
        let method = if body.is_some() { Method::Post } else { Method::Get };
        let mut request = Request::new(url.clone(), method);
        request.insert_header("metadata", "true");
        if let Some(body) = body {
            request.insert_header("content-type", "application/json");
            request.set_body(body.to_owned());
        }
        let sent = send(&self.pipeline, operation, &mut request);
        let response = operation
            .with_timeout(timeout, sent)
            .await
            .map_err(|failed| unreached(operation, failed))?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(failed(operation, &response))
        }
    }
}

/// Adds the most likely cause, and a delay before the next attempt, to a connection error.
fn unreached(operation: Operation, failed: AttemptError) -> AttemptError {
    if failed.error.code != "NoAnswer" {
        return failed;
    }
    let message = format!(
        "no connection to the metadata service: check that this is an Azure machine, and that \
         nothing is between it and its host; {}",
        failed.error.message
    );
    AttemptError {
        after: Some(MIN_RETRY_DELAY),
        ..operation.failed(Failure::Transient, "NoAnswer", message)
    }
}

/// Returns the error for a metadata response, by IMDS's own retry rules: 404, 410, 429 and 5xx are
/// temporary, all others permanent. Exceptions: a 404 because the machine has no load balancer is
/// permanent, and 400 and 403 for a token mean that the identity does not exist.
fn failed(operation: Operation, response: &RawResponse) -> AttemptError {
    let (status, error_body) = (u16::from(response.status()), ErrorBody::read(response.body()));
    if operation == BALANCER
        && status == 404
        && error_body.message.contains("No load balancer metadata")
    {
        return operation.error_response(response);
    }
    if operation == TOKEN && matches!(status, 400 | 403) {
        let why = format!(
            "this machine has no such identity: assign one (az vm identity assign), or set \
             azure.client_id to that of an assigned one; Azure reports: {}",
            error_body.message
        );
        return operation.failed(Failure::Denied, "NoCredentials", why);
    }
    let mut failed = operation.error_response(response);
    if matches!(status, 404 | 410 | 429 | 500..) {
        let throttled = status == 429;
        failed.error.kind = if throttled { Failure::Throttled } else { Failure::Transient };
        let requested = retry_after(response.headers(), SystemTime::now());
        failed.after = Some(requested.unwrap_or_default().max(MIN_RETRY_DELAY));
    } else if failed.error.kind.is_temporary() {
        failed.error.kind = Failure::Invalid;
    }
    failed
}

#[cfg(test)]
mod tests;
