//! An AWS account as this machine reaches it: who we are, over which connections, how patiently.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_elasticloadbalancingv2::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use tokio::sync::watch;

use super::call::Call;
use super::connect::{CONNECT, connector, http_client};
use super::signed::{Kept, Question, Signed};
use super::told::{CallError, Failure};
use crate::failure::Refused;
use clouds::failure::{Operation, Setback};
use clouds::retry::{Clock, Pause, Policy, Retry, persist};

/// How an account is reached. What is not given is taken from the environment, the files in
/// `~/.aws`, and the instance's metadata, in the order of all AWS programs.
#[derive(Clone)]
pub struct Settings {
    /// `eu-central-1`.
    pub region: Option<String>,
    /// One URL for all services; else `AWS_ENDPOINT_URL`, else AWS's own.
    pub endpoint: Option<String>,
    /// Who we are, where somebody knows better.
    pub credentials: Option<SharedCredentialsProvider>,
    /// Longest wait for the answer to one request.
    pub bound: Duration,
    /// How to ask again.
    pub policy: Policy,
    /// Of the jitter between attempts.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        let bound = Duration::from_secs(10);
        Settings {
            region: None,
            endpoint: None,
            credentials: None,
            bound,
            policy: Policy::API,
            seed: 0,
        }
    }
}

/// What was asked, and what came of it: attempts by operation and outcome (`ok`, `throttled`,
/// `transient`, `denied`, `absent`, `invalid`).
pub type Counts = BTreeMap<(&'static str, &'static str), u64>;

/// An account. Clones share their connections and counts.
#[derive(Clone)]
pub struct Account {
    pub(super) elb: aws_sdk_elasticloadbalancingv2::Client,
    pub(super) tagging: aws_sdk_resourcegroupstagging::Client,
    signed: Signed,
    bound: Duration,
    policy: Policy,
    pause: Arc<dyn Pause>,
    cancel: watch::Receiver<bool>,
    seed: Arc<AtomicU64>,
    counts: Arc<Mutex<Counts>>,
}

impl Account {
    /// Reads where and who we are. Nothing is asked of AWS yet, the instance's metadata excepted
    /// where no region is given. `cancel` ends all that is being asked when it says true.
    pub async fn load(
        settings: Settings,
        cancel: watch::Receiver<bool>,
    ) -> Result<Account, CallError> {
        let connector = connector();
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http_client(connector.clone()))
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT).build());
        if let Some(region) = settings.region.clone() {
            loader = loader.region(Region::new(region));
        }
        if let Some(credentials) = settings.credentials.clone() {
            loader = loader.credentials_provider(credentials);
        }
        if let Some(endpoint) = &settings.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        Account::new(loader.load().await, connector, settings, cancel).map_err(|s| s.error)
    }

    fn new(
        sdk: SdkConfig,
        connector: SharedHttpConnector,
        settings: Settings,
        cancel: watch::Receiver<bool>,
    ) -> Result<Account, Setback> {
        let start = Operation::new("sts", "Configuration");
        let missing = |code: &str, why: &str| start.failed(Failure::Invalid, code, why);
        let region = sdk.region().ok_or_else(|| {
            missing(
                "NoRegion",
                "no region is known: set AWS_REGION, or let the instance reach its metadata (IMDS)",
            )
        })?;
        let source = sdk
            .credentials_provider()
            .ok_or_else(|| missing("NoCredentials", "no source of credentials is known"))?;
        let kept = Kept { source, last: tokio::sync::Mutex::new(None) };
        let credentials = SharedCredentialsProvider::new(kept);
        let signed = Signed {
            connector,
            credentials: credentials.clone(),
            region: region.as_ref().to_owned(),
            endpoint: sdk.endpoint_url().map(str::to_owned),
        };
        let sdk = sdk.into_builder().credentials_provider(credentials).build();
        Ok(Account {
            elb: aws_sdk_elasticloadbalancingv2::Client::new(&sdk),
            tagging: aws_sdk_resourcegroupstagging::Client::new(&sdk),
            signed,
            bound: settings.bound,
            policy: settings.policy,
            pause: Arc::new(Clock::default()),
            cancel,
            seed: Arc::new(AtomicU64::new(settings.seed)),
            counts: Arc::default(),
        })
    }

    /// The same account, asked with another patience.
    pub fn with_policy(&self, policy: Policy) -> Account {
        Account { policy, ..self.clone() }
    }

    /// The same account, with time that passes otherwise between attempts.
    pub fn with_pause(&self, pause: Arc<dyn Pause>) -> Account {
        Account { pause, ..self.clone() }
    }

    /// The region.
    pub fn region(&self) -> &str {
        &self.signed.region
    }

    /// What was asked so far.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends an SDK's question, within the bound.
    pub(super) async fn sdk<T, E>(
        &self,
        operation: Operation,
        sent: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    ) -> Result<T, Setback>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        self.bounded(operation, async { sent.await.map_err(|e| operation.sdk(e)) }).await
    }

    /// Asks with a request of our own, within the bound: what the services without SDK are asked
    /// with, and scripts that need more than `Aws` has.
    pub async fn signed(
        &self,
        operation: Operation,
        question: &Question,
    ) -> Result<String, Setback> {
        self.bounded(operation, self.signed.ask(operation, question)).await
    }

    async fn bounded<T>(
        &self,
        operation: Operation,
        asked: impl Future<Output = Result<T, Setback>>,
    ) -> Result<T, Setback> {
        let told = tokio::time::timeout(self.bound, asked).await;
        let told = told.unwrap_or_else(|_| Err(operation.late(self.bound)));
        let outcome = told.as_ref().map_or_else(|setback| setback.error.kind.as_str(), |_| "ok");
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((operation.name, outcome)).or_default() += 1;
        drop(counts);
        told
    }

    /// Asks as patiently as the policy says.
    pub(super) fn patiently<'a, T, F>(&'a self, ask: impl FnMut() -> F + Send + 'a) -> Call<'a, T>
    where
        T: Send + 'a,
        F: Future<Output = Result<T, Setback>> + Send + 'a,
    {
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        let retry = Retry::new(self.policy, seed);
        Box::pin(async move {
            let told = persist(retry, self.pause.as_ref(), self.cancel.clone(), ask);
            told.await.map_err(|setback| setback.error)
        })
    }
}
