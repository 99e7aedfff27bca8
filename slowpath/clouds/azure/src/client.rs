//! Resource Manager client: credentials, connections and retries.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use azure_core::http::headers::{CONTENT_TYPE, IF_MATCH};
use azure_core::http::policies::auth::BearerTokenAuthorizationPolicy;
use azure_core::http::{Method, Pipeline, RawResponse, Request, Url};
use clouds::failure::{AttemptError, Failure, Operation};
use clouds::requests::{Counts, Requests};
use clouds::retry::{Pause, Policy};
use serde_json::Value;
use tokio::sync::watch;

use crate::arm::{Arm, ArmFuture, ArmRequest, OperationHandle, Progress, Resource, WriteOutcome};
use crate::credentials::Credentials;
use crate::environment::Environment;
use crate::failure::ClassifyError;
use crate::long_running::{self, POLL};
use crate::transport::{HttpTransport, send};

/// Maximum number of pages of a list; a longer list is an error.
const MAX_PAGES: usize = 200;

/// Settings of the Resource Manager client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Additional root certificates in PEM, besides the system's (`SSL_CERT_FILE` is honored).
    pub roots: Option<String>,
    /// Time limit of one attempt.
    pub timeout: Duration,
    /// Retry policy.
    pub policy: Policy,
    /// Seed of the retry jitter.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { roots: None, timeout: Duration::from_secs(20), policy: Policy::API, seed: 0 }
    }
}

/// Client for Azure Resource Manager. Clones share connections, tokens and counters.
#[derive(Clone)]
pub struct Client {
    pipeline: Pipeline,
    base: Url,
    credentials: Arc<Credentials>,
    timeout: Duration,
    requests: Requests,
}

impl Client {
    /// Returns a client for an Azure environment with these credentials. No request is sent yet.
    /// When `cancel` becomes true, all requests end.
    ///
    /// # Errors
    /// Fails if TLS cannot be set up.
    pub fn new(
        settings: Settings,
        cloud: &Environment,
        credentials: Arc<Credentials>,
        cancel: watch::Receiver<bool>,
    ) -> Result<Client, AttemptError> {
        let scope = format!("{}.default", cloud.audience);
        let bearer = BearerTokenAuthorizationPolicy::new(credentials.clone(), [scope]);
        let transport = HttpTransport::to_services(settings.roots.as_deref())?;
        Ok(Client {
            pipeline: transport.pipeline(vec![Arc::new(bearer)]),
            base: cloud.resources.clone(),
            credentials,
            timeout: settings.timeout,
            requests: Requests::new(settings.policy, settings.seed, cancel),
        })
    }

    /// Returns a clone with another retry policy.
    pub fn with_policy(&self, policy: Policy) -> Client {
        Client { requests: self.requests.with_policy(policy), ..self.clone() }
    }

    /// Returns a clone with another clock for the time between attempts.
    pub fn with_pause(&self, pause: Arc<dyn Pause>) -> Client {
        Client { requests: self.requests.with_pause(pause), ..self.clone() }
    }

    /// Returns the number of attempts since start, by operation and outcome.
    pub fn counts(&self) -> Counts {
        self.requests.counts()
    }

    /// Returns the URL of a request.
    fn url(&self, arm_request: &ArmRequest) -> Result<Url, AttemptError> {
        let (path, query) = arm_request.path.split_once('?').unwrap_or((&arm_request.path, ""));
        let mut parts = path.split('/').skip(1);
        let valid = path.starts_with('/') && parts.all(|part| !matches!(part, "" | "." | ".."));
        if !valid {
            let why = format!("`{path}` is not a path of a resource");
            return Err(arm_request.operation.failed(Failure::Invalid, "NotSent", why));
        }
        let mut url = self.base.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}{path}"));
        url.set_query((!query.is_empty()).then_some(query));
        url.query_pairs_mut().append_pair("api-version", arm_request.version);
        Ok(url)
    }

    /// Makes one attempt, limited to the timeout, and counts it. `read` parses the response; an
    /// error that it returns is the attempt's.
    async fn attempt<T>(
        &self,
        operation: Operation,
        request: &Request,
        read: impl FnOnce(&RawResponse) -> Result<T, AttemptError>,
    ) -> Result<T, AttemptError> {
        let sent = async { read(&self.send_authenticated(operation, request.clone()).await?) };
        self.requests.attempt(operation, self.timeout, sent).await
    }

    async fn send_authenticated(
        &self,
        operation: Operation,
        mut request: Request,
    ) -> Result<RawResponse, AttemptError> {
        let response = send(&self.pipeline, operation, &mut request).await?;
        if u16::from(response.status()) != 401 {
            return Ok(response);
        }
        // Azure rejected the token before it expired, for instance after a change of the clock or a
        // revocation. The bearer policy has dropped it, so this attempt gets a new token.
        self.credentials.discard().await;
        send(&self.pipeline, operation, &mut request).await
    }

    async fn read(&self, arm_request: &ArmRequest) -> Result<Resource, AttemptError> {
        let request = Request::new(self.url(arm_request)?, Method::Get);
        let read = |response: &RawResponse| {
            check_status(arm_request.operation, response)?;
            long_running::parse_resource(arm_request.operation, response)
        };
        self.requests.with_retries(|| self.attempt(arm_request.operation, &request, read)).await
    }

    async fn list_pages(&self, arm_request: &ArmRequest) -> Result<Vec<Value>, AttemptError> {
        let mut next = Some(self.url(arm_request)?);
        let (mut visited, mut found) = (BTreeSet::new(), Vec::new());
        while let Some(url) = next {
            if !visited.insert(url.to_string()) || visited.len() > MAX_PAGES {
                let why = format!("the pages form a loop, or are more than {MAX_PAGES}");
                return Err(arm_request.operation.malformed(why));
            }
            let request = Request::new(url, Method::Get);
            let read =
                |response: &RawResponse| parse_page(&self.base, arm_request.operation, response);
            let page = self
                .requests
                .with_retries(|| self.attempt(arm_request.operation, &request, read))
                .await?;
            found.extend(page.0);
            next = page.1;
        }
        Ok(found)
    }

    async fn write(
        &self,
        arm_request: &ArmRequest,
        method: Method,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> Result<WriteOutcome, AttemptError> {
        let url = self.url(arm_request)?;
        let mut request = Request::new(url.clone(), method);
        if let Some(body) = body {
            request.insert_header(CONTENT_TYPE, "application/json");
            request.set_body(body.to_string());
        }
        if let Some(etag) = etag {
            request.insert_header(IF_MATCH, etag.to_owned());
        }
        let read = |response: &RawResponse| {
            long_running::parse_write((&self.base, &url), arm_request, method, response)
        };
        self.requests.with_retries(|| self.attempt(arm_request.operation, &request, read)).await
    }

    async fn poll_operation(&self, handle: &OperationHandle) -> Result<Progress, AttemptError> {
        let url = long_running::poll_url(&self.base, handle)
            .map_err(|why| POLL.failed(Failure::Invalid, "ForeignPoll", why))?;
        let request = Request::new(url, Method::Get);
        let read = |response: &RawResponse| long_running::parse_progress(handle, response);
        self.requests.with_retries(|| self.attempt(POLL, &request, read)).await
    }
}

/// Returns an error unless the status is a success.
fn check_status(operation: Operation, response: &RawResponse) -> Result<(), AttemptError> {
    if response.status().is_success() { Ok(()) } else { Err(operation.error_response(response)) }
}

/// Parses a page of a list; returns its items and the URL of the next page.
fn parse_page(
    base: &Url,
    operation: Operation,
    response: &RawResponse,
) -> Result<(Vec<Value>, Option<Url>), AttemptError> {
    check_status(operation, response)?;
    let mut body = long_running::parse_json(operation, response)?;
    let Some(Value::Array(found)) = body.get_mut("value").map(Value::take) else {
        return Err(operation.malformed("no list `value`"));
    };
    let next = body["nextLink"].as_str().filter(|link| !link.is_empty());
    let next = next.map(|link| {
        long_running::same_service_url(base, link).ok_or_else(|| {
            let host = base.host_str().unwrap_or_default();
            operation.malformed(format!("next page not at {host}: the token is not sent there"))
        })
    });
    Ok((found, next.transpose()?))
}

impl Arm for Client {
    fn get<'a>(&'a self, arm_request: &'a ArmRequest) -> ArmFuture<'a, Resource> {
        Box::pin(self.read(arm_request))
    }

    fn list<'a>(&'a self, arm_request: &'a ArmRequest) -> ArmFuture<'a, Vec<Value>> {
        Box::pin(self.list_pages(arm_request))
    }

    fn put<'a>(
        &'a self,
        arm_request: &'a ArmRequest,
        body: &'a Value,
        etag: Option<&'a str>,
    ) -> ArmFuture<'a, WriteOutcome> {
        Box::pin(self.write(arm_request, Method::Put, Some(body), etag))
    }

    fn delete<'a>(&'a self, arm_request: &'a ArmRequest) -> ArmFuture<'a, WriteOutcome> {
        Box::pin(self.write(arm_request, Method::Delete, None, None))
    }

    fn poll<'a>(&'a self, handle: &'a OperationHandle) -> ArmFuture<'a, Progress> {
        Box::pin(self.poll_operation(handle))
    }
}
