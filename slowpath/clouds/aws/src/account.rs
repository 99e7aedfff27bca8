//! An AWS account as this machine reaches it: who we are, over which connections, how patiently.

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

use super::call::Call;
use super::connect::{CONNECT, connector, http_client};
use super::signed::{Kept, Question, Signed};
use super::told::{CallError, Failure};
use crate::failure::Refused;
use clouds::failure::{Operation, Setback};
use clouds::requests::{Counts, Requests};
use clouds::retry::{Pause, Policy};

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

/// An account. Clones share their connections and counts.
#[derive(Clone)]
pub struct Account {
    pub(super) elb: aws_sdk_elasticloadbalancingv2::Client,
    pub(super) tagging: aws_sdk_resourcegroupstagging::Client,
    signed: Signed,
    bound: Duration,
    requests: Requests,
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
            requests: Requests::new(settings.policy, settings.seed, cancel),
        })
    }

    /// The same account, asked with another patience.
    pub fn with_policy(&self, policy: Policy) -> Account {
        Account { requests: self.requests.with_policy(policy), ..self.clone() }
    }

    /// The same account, with time that passes otherwise between attempts.
    pub fn with_pause(&self, pause: Arc<dyn Pause>) -> Account {
        Account { requests: self.requests.with_pause(pause), ..self.clone() }
    }

    /// The region.
    pub fn region(&self) -> &str {
        &self.signed.region
    }

    /// What was asked so far.
    pub fn counts(&self) -> Counts {
        self.requests.counts()
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
        let sent = async { sent.await.map_err(|e| operation.sdk(e)) };
        self.requests.attempt(operation, self.bound, sent).await
    }

    /// Asks with a request of our own, within the bound: what the services without SDK are asked
    /// with, and scripts that need more than `Aws` has.
    pub async fn signed(
        &self,
        operation: Operation,
        question: &Question,
    ) -> Result<String, Setback> {
        let sent = self.signed.ask(operation, question);
        self.requests.attempt(operation, self.bound, sent).await
    }

    /// Asks as patiently as the policy says.
    pub(super) fn patiently<'a, T, F>(&'a self, ask: impl FnMut() -> F + Send + 'a) -> Call<'a, T>
    where
        T: Send + 'a,
        F: Future<Output = Result<T, Setback>> + Send + 'a,
    {
        Box::pin(async move { self.requests.persist(ask).await.map_err(|setback| setback.error) })
    }
}
