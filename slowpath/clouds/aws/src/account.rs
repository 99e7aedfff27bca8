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
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::{
    HttpConnectorSettings, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use tokio::sync::watch;

use super::call::{Aws, Call, Pointed, Waiting};
use super::ec2::{Instance, RouteTable, SecurityGroup};
use super::scaling::{Hook, ScalingInstance};
use super::signed::{Kept, Question, Signed};
use super::ssm::Invocation;
use super::told::{Attributes, CallError, Failure, Group, NetworkInterface, Target};
use super::{ec2, elb, scaling, ssm};
use crate::failure::Refused;
use clouds::failure::{Operation, Setback};
use clouds::retry::{Clock, Pause, Policy, Retry, persist};

/// A connection that is not there after so long will not come.
const CONNECT: Duration = Duration::from_secs(3);

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

/// Connections for SDKs, metadata and ourselves: TLS by rustls and ring, the system's roots.
pub fn connector() -> SharedHttpConnector {
    let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT).build();
    let builder = Connector::builder().connector_settings(settings);
    SharedHttpConnector::new(builder.tls_provider(Provider::Rustls(CryptoMode::Ring)).build())
}

/// The same as the SDKs want it.
pub fn http_client(connector: SharedHttpConnector) -> SharedHttpClient {
    http_client_fn(move |_, _| connector.clone())
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
    fn patiently<'a, T, F>(&'a self, ask: impl FnMut() -> F + Send + 'a) -> Call<'a, T>
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

impl Aws for Account {
    fn groups_by_tag<'a>(&'a self, key: &'a str, value: &'a str) -> Call<'a, Vec<String>> {
        self.patiently(move || elb::groups_by_tag(self, key, value))
    }

    fn groups<'a>(&'a self, arns: &'a [String]) -> Call<'a, Vec<Group>> {
        self.patiently(move || elb::groups(self, arns))
    }

    fn attributes<'a>(&'a self, group: &'a Group) -> Call<'a, Attributes> {
        self.patiently(move || elb::attributes(self, group))
    }

    fn targets<'a>(&'a self, group: &'a str, only: Option<&'a str>) -> Call<'a, Vec<Target>> {
        self.patiently(move || elb::targets(self, group, only))
    }

    fn register<'a>(&'a self, group: &'a str, target: &'a str) -> Call<'a, ()> {
        self.patiently(move || elb::register(self, group, target))
    }

    fn deregister<'a>(&'a self, group: &'a str, target: &'a str) -> Call<'a, ()> {
        self.patiently(move || elb::deregister(self, group, target))
    }

    fn instances<'a>(&'a self, ids: &'a [String]) -> Call<'a, Vec<Instance>> {
        self.patiently(move || ec2::instances(self, ids))
    }

    fn instances_by_tag<'a>(
        &'a self,
        vpc: &'a str,
        key: &'a str,
        value: Option<&'a str>,
    ) -> Call<'a, Vec<Instance>> {
        self.patiently(move || ec2::instances_by_tag(self, vpc, key, value))
    }

    fn network_interfaces<'a>(&'a self, instance: &'a str) -> Call<'a, Vec<NetworkInterface>> {
        self.patiently(move || ec2::network_interfaces(self, instance))
    }

    fn security_groups<'a>(&'a self, ids: &'a [String]) -> Call<'a, Vec<SecurityGroup>> {
        self.patiently(move || ec2::security_groups(self, ids))
    }

    fn route_tables<'a>(&'a self, vpc: &'a str) -> Call<'a, Vec<RouteTable>> {
        self.patiently(move || ec2::route_tables(self, vpc))
    }

    fn replace_route<'a>(&'a self, route: &'a Pointed, dry: bool) -> Call<'a, ()> {
        self.patiently(move || ec2::replace_route(self, route, dry))
    }

    fn create_route<'a>(&'a self, route: &'a Pointed, dry: bool) -> Call<'a, ()> {
        self.patiently(move || ec2::create_route(self, route, dry))
    }

    fn set_source_dest_check<'a>(
        &'a self,
        interface: &'a str,
        on: bool,
        dry: bool,
    ) -> Call<'a, ()> {
        self.patiently(move || ec2::set_source_dest_check(self, interface, on, dry))
    }

    fn send_command<'a>(
        &'a self,
        instance: &'a str,
        script: &'a str,
        timeout: Duration,
    ) -> Call<'a, String> {
        self.patiently(move || ssm::send_command(self, instance, script, timeout))
    }

    fn invocation<'a>(&'a self, command: &'a str, instance: &'a str) -> Call<'a, Invocation> {
        self.patiently(move || ssm::invocation(self, command, instance))
    }

    fn scaling_instance<'a>(&'a self, instance: &'a str) -> Call<'a, Option<ScalingInstance>> {
        self.patiently(move || scaling::scaling_instance(self, instance))
    }

    fn lifecycle_hooks<'a>(&'a self, group: &'a str) -> Call<'a, Vec<Hook>> {
        self.patiently(move || scaling::lifecycle_hooks(self, group))
    }

    fn complete_lifecycle<'a>(&'a self, at: &'a Waiting) -> Call<'a, ()> {
        self.patiently(move || scaling::complete_lifecycle(self, at))
    }

    fn lifecycle_heartbeat<'a>(&'a self, at: &'a Waiting) -> Call<'a, ()> {
        self.patiently(move || scaling::lifecycle_heartbeat(self, at))
    }
}
