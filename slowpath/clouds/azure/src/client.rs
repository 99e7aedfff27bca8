//! Resource Manager client: credentials, connections and retries.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use azure_core::http::headers::{CONTENT_TYPE, IF_MATCH};
use azure_core::http::policies::auth::BearerTokenAuthorizationPolicy;
use azure_core::http::{Method, Pipeline, RawResponse, Request, Url};
use clouds::failure::{Failure, Operation, Setback};
use clouds::requests::{Counts, Requests};
use clouds::retry::{Pause, Policy};
use serde_json::Value;
use tokio::sync::watch;

use crate::arm::{Arm, Ask, Begun, Call, Handle, Progress, Resource};
use crate::credentials::Credentials;
use crate::failure::Refused;
use crate::long::{self, POLL};
use crate::sovereign::Sovereign;
use crate::wire::{Wire, send};

/// Maximum number of pages of a list.
const MOST_PAGES: usize = 200;

/// Settings of the Resource Manager client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Additional root certificates in PEM, besides the system's (`SSL_CERT_FILE` is honored).
    pub roots: Option<String>,
    /// Time limit of one attempt.
    pub bound: Duration,
    /// Retry policy.
    pub policy: Policy,
    /// Seed of the retry jitter.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { roots: None, bound: Duration::from_secs(20), policy: Policy::API, seed: 0 }
    }
}

/// Client for Azure Resource Manager. Clones share connections, tokens and counters.
#[derive(Clone)]
pub struct Client {
    pipeline: Pipeline,
    base: Url,
    credentials: Arc<Credentials>,
    bound: Duration,
    requests: Requests,
}

impl Client {
    /// Returns a client for an Azure cloud with these credentials. No request is sent yet. When
    /// `cancel` becomes true, all requests end.
    ///
    /// # Errors
    /// Fails if TLS cannot be set up.
    pub fn new(
        settings: Settings,
        cloud: &Sovereign,
        credentials: Arc<Credentials>,
        cancel: watch::Receiver<bool>,
    ) -> Result<Client, Setback> {
        let scope = format!("{}.default", cloud.audience);
        let bearer = BearerTokenAuthorizationPolicy::new(credentials.clone(), [scope]);
        let wire = Wire::to_services(settings.roots.as_deref())?;
        Ok(Client {
            pipeline: wire.pipeline(vec![Arc::new(bearer)]),
            base: cloud.resources.clone(),
            credentials,
            bound: settings.bound,
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

    /// Returns the number of calls since start.
    pub fn counts(&self) -> Counts {
        self.requests.counts()
    }

    /// Returns the URL of a request.
    fn url(&self, ask: &Ask) -> Result<Url, Setback> {
        let (path, query) = ask.path.split_once('?').unwrap_or((&ask.path, ""));
        let mut parts = path.split('/').skip(1);
        let right = path.starts_with('/') && parts.all(|part| !matches!(part, "" | "." | ".."));
        if !right {
            let why = format!("`{path}` is no path of a resource");
            return Err(ask.operation.failed(Failure::Invalid, "Unasked", why));
        }
        let mut url = self.base.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}{path}"));
        url.set_query((!query.is_empty()).then_some(query));
        url.query_pairs_mut().append_pair("api-version", ask.version);
        Ok(url)
    }

    /// Makes one attempt with the time limit, and counts it. An error of `read` counts as a failed
    /// attempt.
    async fn once<T>(
        &self,
        operation: Operation,
        request: &Request,
        read: impl FnOnce(&RawResponse) -> Result<T, Setback>,
    ) -> Result<T, Setback> {
        let sent = async { read(&self.sent(operation, request.clone()).await?) };
        self.requests.attempt(operation, self.bound, sent).await
    }

    async fn sent(
        &self,
        operation: Operation,
        mut request: Request,
    ) -> Result<RawResponse, Setback> {
        let answer = send(&self.pipeline, operation, &mut request).await?;
        if u16::from(answer.status()) != 401 {
            return Ok(answer);
        }
        // The token was rejected before it expired, after a clock change or a revoked key. The
        // bearer policy has dropped it; one more attempt is made with a new token.
        self.credentials.forget().await;
        send(&self.pipeline, operation, &mut request).await
    }

    async fn read(&self, ask: &Ask) -> Result<Resource, Setback> {
        let request = Request::new(self.url(ask)?, Method::Get);
        let read = |answer: &RawResponse| {
            good(ask.operation, answer)?;
            long::resource(ask.operation, answer)
        };
        self.requests.persist(|| self.once(ask.operation, &request, read)).await
    }

    async fn pages(&self, ask: &Ask) -> Result<Vec<Value>, Setback> {
        let mut next = Some(self.url(ask)?);
        let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
        while let Some(url) = next {
            if !seen.insert(url.to_string()) || seen.len() > MOST_PAGES {
                let why = format!("its pages lead in a circle, or are more than {MOST_PAGES}");
                return Err(ask.operation.garbled(why));
            }
            let request = Request::new(url, Method::Get);
            let read = |answer: &RawResponse| page(&self.base, ask.operation, answer);
            let page = self.requests.persist(|| self.once(ask.operation, &request, read)).await?;
            found.extend(page.0);
            next = page.1;
        }
        Ok(found)
    }

    async fn write(
        &self,
        ask: &Ask,
        method: Method,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> Result<Begun, Setback> {
        let url = self.url(ask)?;
        let mut request = Request::new(url.clone(), method);
        if let Some(body) = body {
            request.insert_header(CONTENT_TYPE, "application/json");
            request.set_body(body.to_string());
        }
        if let Some(etag) = etag {
            request.insert_header(IF_MATCH, etag.to_owned());
        }
        let read = |answer: &RawResponse| long::begun((&self.base, &url), ask, method, answer);
        self.requests.persist(|| self.once(ask.operation, &request, read)).await
    }

    async fn look(&self, handle: &Handle) -> Result<Progress, Setback> {
        let url = long::address(&self.base, handle)
            .map_err(|why| POLL.failed(Failure::Invalid, "ForeignPoll", why))?;
        let request = Request::new(url, Method::Get);
        let read = |answer: &RawResponse| long::progress(handle, answer);
        self.requests.persist(|| self.once(POLL, &request, read)).await
    }
}

/// Returns an error unless the status is a success.
fn good(operation: Operation, answer: &RawResponse) -> Result<(), Setback> {
    if answer.status().is_success() { Ok(()) } else { Err(operation.refused(answer)) }
}

/// Parses a page of a list; returns its items and the URL of the next page.
fn page(
    base: &Url,
    operation: Operation,
    answer: &RawResponse,
) -> Result<(Vec<Value>, Option<Url>), Setback> {
    good(operation, answer)?;
    let mut body = long::json(operation, answer)?;
    let Some(Value::Array(found)) = body.get_mut("value").map(Value::take) else {
        return Err(operation.garbled("it has no `value` that is a list"));
    };
    let next = body["nextLink"].as_str().filter(|link| !link.is_empty());
    let next = next.map(|link| {
        long::ours(base, link).ok_or_else(|| {
            let host = base.host_str().unwrap_or_default();
            operation.garbled(format!("its next page is not at {host}: no token is sent there"))
        })
    });
    Ok((found, next.transpose()?))
}

impl Arm for Client {
    fn get<'a>(&'a self, ask: &'a Ask) -> Call<'a, Resource> {
        Box::pin(self.read(ask))
    }

    fn list<'a>(&'a self, ask: &'a Ask) -> Call<'a, Vec<Value>> {
        Box::pin(self.pages(ask))
    }

    fn put<'a>(&'a self, ask: &'a Ask, body: &'a Value, etag: Option<&'a str>) -> Call<'a, Begun> {
        Box::pin(self.write(ask, Method::Put, Some(body), etag))
    }

    fn delete<'a>(&'a self, ask: &'a Ask) -> Call<'a, Begun> {
        Box::pin(self.write(ask, Method::Delete, None, None))
    }

    fn poll<'a>(&'a self, handle: &'a Handle) -> Call<'a, Progress> {
        Box::pin(self.look(handle))
    }
}
