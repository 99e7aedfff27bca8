//! Access to an AWS account from this machine: credentials, connections and retries.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_elasticloadbalancingv2::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use tokio::sync::watch;

use super::call::AwsFuture;
use super::connect::{CONNECT, connector, http_client};
use super::signed::{CachedCredentials, RequestBody, SignedClient};
use super::types::{CallError, Failure};
use crate::failure::ErrorMapping;
use clouds::failure::{AttemptError, Operation};
use clouds::requests::{Counts, Requests};
use clouds::retry::{Pause, Policy};

/// Settings of the access to an account. A missing region or credential is taken from the
/// environment, the files in `~/.aws` or the instance metadata, in the SDKs' usual order.
#[derive(Clone)]
pub struct Settings {
    /// Region, `eu-central-1` for instance.
    pub region: Option<String>,
    /// One endpoint URL for all services; else `AWS_ENDPOINT_URL`, else AWS's own endpoints.
    pub endpoint: Option<String>,
    /// Credentials to use instead of the default sources.
    pub credentials: Option<SharedCredentialsProvider>,
    /// Time limit of one attempt.
    pub timeout: Duration,
    /// Retry policy.
    pub policy: Policy,
    /// Seed of the retry jitter.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        let timeout = Duration::from_secs(10);
        Settings {
            region: None,
            endpoint: None,
            credentials: None,
            timeout,
            policy: Policy::API,
            seed: 0,
        }
    }
}

/// An AWS account in one region. Clones share connections and counters.
#[derive(Clone)]
pub struct Account {
    pub(super) elb: aws_sdk_elasticloadbalancingv2::Client,
    pub(super) tagging: aws_sdk_resourcegroupstagging::Client,
    signed: SignedClient,
    timeout: Duration,
    requests: Requests,
}

impl Account {
    /// Loads the region and the source of credentials. No request is sent, except to the instance
    /// metadata if no region is configured. When `cancel` becomes true, all requests end.
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
    ) -> Result<Account, AttemptError> {
        let start = Operation::new("sts", "Configuration");
        let missing = |code: &str, why: &str| start.failed(Failure::Invalid, code, why);
        let region = sdk.region().ok_or_else(|| {
            missing(
                "NoRegion",
                "no region: set AWS_REGION, or give the instance access to its metadata (IMDS)",
            )
        })?;
        let source = sdk
            .credentials_provider()
            .ok_or_else(|| missing("NoCredentials", "no source of credentials"))?;
        let cached = CachedCredentials { source, last: tokio::sync::Mutex::new(None) };
        let credentials = SharedCredentialsProvider::new(cached);
        let signed = SignedClient {
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
            timeout: settings.timeout,
            requests: Requests::new(settings.policy, settings.seed, cancel),
        })
    }

    /// Returns a clone with another retry policy.
    pub fn with_policy(&self, policy: Policy) -> Account {
        Account { requests: self.requests.with_policy(policy), ..self.clone() }
    }

    /// Returns a clone with another clock for the time between attempts.
    pub fn with_pause(&self, pause: Arc<dyn Pause>) -> Account {
        Account { requests: self.requests.with_pause(pause), ..self.clone() }
    }

    /// Returns the region.
    pub fn region(&self) -> &str {
        &self.signed.region
    }

    /// Returns the number of attempts since start, by operation and outcome.
    pub fn counts(&self) -> Counts {
        self.requests.counts()
    }

    /// Makes one attempt of an SDK's request, limited to the timeout, and counts it.
    pub(super) async fn sdk<T, E>(
        &self,
        operation: Operation,
        sent: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    ) -> Result<T, AttemptError>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let sent = async { sent.await.map_err(|e| operation.sdk(e)) };
        self.requests.attempt(operation, self.timeout, sent).await
    }

    /// Makes one attempt of a request that Weir signs itself, limited to the timeout, and counts
    /// it. Public because the tests against moto (an independent emulator of AWS) need operations
    /// that [`Aws`](super::call::Aws) does not have.
    pub async fn signed(
        &self,
        operation: Operation,
        body_spec: &RequestBody,
    ) -> Result<String, AttemptError> {
        let sent = self.signed.send(operation, body_spec);
        self.requests.attempt(operation, self.timeout, sent).await
    }

    /// Repeats a request as the retry policy allows.
    pub(super) fn with_retries<'a, T, F>(
        &'a self,
        request: impl FnMut() -> F + Send + 'a,
    ) -> AwsFuture<'a, T>
    where
        T: Send + 'a,
        F: Future<Output = Result<T, AttemptError>> + Send + 'a,
    {
        Box::pin(
            async move { self.requests.with_retries(request).await.map_err(|failed| failed.error) },
        )
    }
}
