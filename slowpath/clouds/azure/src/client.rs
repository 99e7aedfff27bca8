//! Resource Manager as this machine reaches it: as whom, over which connections, how patiently.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use azure_core::http::headers::{CONTENT_TYPE, IF_MATCH};
use azure_core::http::policies::auth::BearerTokenAuthorizationPolicy;
use azure_core::http::{Method, Pipeline, RawResponse, Request, Url};
use clouds::failure::{Failure, Operation, Setback};
use clouds::report::Asked;
use clouds::retry::{Clock, Pause, Policy, Retry, persist};
use serde_json::Value;
use tokio::sync::watch;

use crate::arm::{Arm, Ask, Begun, Call, Handle, Progress, Resource};
use crate::credentials::Credentials;
use crate::failure::Refused;
use crate::long::{self, POLL};
use crate::sovereign::Sovereign;
use crate::wire::{Wire, send};

/// No list that we read has more pages.
const MOST_PAGES: usize = 200;

/// How Resource Manager is reached.
#[derive(Clone, Debug)]
pub struct Settings {
    /// More roots for its certificate, in PEM, beside the system's (`SSL_CERT_FILE` counts).
    pub roots: Option<String>,
    /// Longest wait for the answer to one request.
    pub bound: Duration,
    /// How to ask again.
    pub policy: Policy,
    /// Of the jitter between attempts.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { roots: None, bound: Duration::from_secs(20), policy: Policy::API, seed: 0 }
    }
}

/// What was asked, and what came of it: attempts by operation and outcome (`ok`, `throttled`,
/// `transient`, `conflict`, `denied`, `absent`, `invalid`).
pub type Counts = BTreeMap<(&'static str, &'static str), u64>;

/// Azure Resource Manager. Clones share their connections, tokens and counts.
#[derive(Clone)]
pub struct Client {
    pipeline: Pipeline,
    base: Url,
    credentials: Arc<Credentials>,
    bound: Duration,
    policy: Policy,
    pause: Arc<dyn Pause>,
    cancel: watch::Receiver<bool>,
    seed: Arc<AtomicU64>,
    counts: Arc<Mutex<Counts>>,
}

impl Client {
    /// Of one of Azure's clouds, as somebody. Nothing is asked yet. `cancel` ends all that is being
    /// asked when it says true.
    ///
    /// # Errors
    /// No TLS.
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
            policy: settings.policy,
            pause: Arc::new(Clock::default()),
            cancel,
            seed: Arc::new(AtomicU64::new(settings.seed)),
            counts: Arc::default(),
        })
    }

    /// The same, asked with another patience.
    pub fn with_policy(&self, policy: Policy) -> Client {
        Client { policy, ..self.clone() }
    }

    /// The same, with time that passes otherwise between attempts.
    pub fn with_pause(&self, pause: Arc<dyn Pause>) -> Client {
        Client { pause, ..self.clone() }
    }

    /// What was asked so far.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same as a report tells it.
    pub fn asked(&self) -> Vec<Asked> {
        let told = |((operation, outcome), times): ((&str, &str), u64)| Asked {
            operation: operation.to_owned(),
            outcome: outcome.to_owned(),
            times,
        };
        self.counts().into_iter().map(told).collect()
    }

    /// Where a question goes.
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

    /// Asks as patiently as the policy says.
    async fn patiently<T, F: Future<Output = Result<T, Setback>>>(
        &self,
        ask: impl FnMut() -> F,
    ) -> Result<T, Setback> {
        let retry = Retry::new(self.policy, self.seed.fetch_add(1, Ordering::Relaxed));
        persist(retry, self.pause.as_ref(), self.cancel.clone(), ask).await
    }

    /// Asks once, within the bound, and counts it. What `read` makes of the answer counts too.
    async fn once<T>(
        &self,
        operation: Operation,
        request: &Request,
        read: impl FnOnce(&RawResponse) -> Result<T, Setback>,
    ) -> Result<T, Setback> {
        let asked = self.sent(operation, request.clone());
        let told = tokio::time::timeout(self.bound, asked).await;
        let told = told.unwrap_or_else(|_| Err(operation.late(self.bound)));
        let told = told.and_then(|answer| read(&answer));
        let outcome = told.as_ref().map_or_else(|setback| setback.error.kind.as_str(), |_| "ok");
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((operation.name, outcome)).or_default() += 1;
        drop(counts);
        told
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
        // The token was refused before its time: a clock was set, or a key withdrawn. The bearer
        // policy has forgotten it; another one is tried once.
        self.credentials.forget().await;
        send(&self.pipeline, operation, &mut request).await
    }

    async fn read(&self, ask: &Ask) -> Result<Resource, Setback> {
        let request = Request::new(self.url(ask)?, Method::Get);
        let read = |answer: &RawResponse| {
            good(ask.operation, answer)?;
            long::resource(ask.operation, answer)
        };
        self.patiently(|| self.once(ask.operation, &request, read)).await
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
            let page = self.patiently(|| self.once(ask.operation, &request, read)).await?;
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
        self.patiently(|| self.once(ask.operation, &request, read)).await
    }

    async fn look(&self, handle: &Handle) -> Result<Progress, Setback> {
        let url = long::address(&self.base, handle)
            .map_err(|why| POLL.failed(Failure::Invalid, "ForeignPoll", why))?;
        let request = Request::new(url, Method::Get);
        let read = |answer: &RawResponse| long::progress(handle, answer);
        self.patiently(|| self.once(POLL, &request, read)).await
    }
}

/// An answer that is one, and not a refusal.
fn good(operation: Operation, answer: &RawResponse) -> Result<(), Setback> {
    if answer.status().is_success() { Ok(()) } else { Err(operation.refused(answer)) }
}

/// A page of a list, and where the next is.
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
