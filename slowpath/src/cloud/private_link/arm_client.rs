//! Client for Azure Resource Manager that private links use. It connects at the first request, so
//! that startup does not wait for Azure. If the connection fails, the next request attempts it
//! again.

use std::sync::Arc;

use azure::arm::{Arm, ArmFuture, ArmRequest, OperationHandle, Progress, Resource, WriteOutcome};
use azure::client::{Client, Settings};
use azure::credentials::{Credentials, Variables};
use azure::environment::Environment;
use azure::imds::Metadata;
use clouds::failure::{AttemptError, CallError};
use clouds::requests::Counts;
use clouds::retry::Policy;
use config::checked::PrivateLink;
use serde_json::Value;
use tokio::sync::{OnceCell, watch};

/// A lazily connected client for Azure Resource Manager with one identity.
pub(super) struct ArmClient {
    settings: PrivateLink,
    client_id: Option<String>,
    seed: u64,
    cancel: watch::Receiver<bool>,
    client: OnceCell<Client>,
}

impl ArmClient {
    pub(super) fn new(
        settings: &PrivateLink,
        client_id: Option<String>,
        seed: u64,
        cancel: watch::Receiver<bool>,
    ) -> ArmClient {
        let client = OnceCell::new();
        ArmClient { settings: settings.clone(), client_id, seed, cancel, client }
    }

    /// Returns the number of requests so far by operation and outcome.
    pub(super) fn call_counts(&self) -> Counts {
        self.client.get().map(Client::counts).unwrap_or_default()
    }

    async fn client(&self) -> Result<&Client, AttemptError> {
        self.client.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Client, AttemptError> {
        let PrivateLink { endpoints, environment, credential, .. } = &self.settings;
        let (address, version) = (&endpoints.metadata, &endpoints.imds_version);
        let metadata = Metadata::new(address, version, self.seed, self.cancel.clone());
        // The private link controller retries, so the client does not.
        let metadata = metadata.map_err(attempt_error)?.with_policy(Policy::ONCE);
        let environment = match environment {
            Some(set) => set.clone(),
            None => metadata.instance().await.map_err(attempt_error)?.environment,
        };
        let cloud = Environment::of(&environment, endpoints.resource_manager.as_deref())?;
        let identity = (*credential, self.client_id.as_deref());
        let credentials =
            Credentials::new(identity, Variables::of_process(), &metadata, &cloud, None)?;
        let settings = Settings { policy: Policy::ONCE, seed: self.seed, ..Settings::default() };
        Client::new(settings, &cloud, Arc::new(credentials), self.cancel.clone())
    }
}

fn attempt_error(error: CallError) -> AttemptError {
    AttemptError { error, after: None }
}

impl Arm for ArmClient {
    fn get<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Resource> {
        Box::pin(async move { self.client().await?.get(request).await })
    }

    fn list<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Vec<Value>> {
        Box::pin(async move { self.client().await?.list(request).await })
    }

    fn put<'a>(
        &'a self,
        request: &'a ArmRequest,
        body: &'a Value,
        etag: Option<&'a str>,
    ) -> ArmFuture<'a, WriteOutcome> {
        Box::pin(async move { self.client().await?.put(request, body, etag).await })
    }

    fn delete<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, WriteOutcome> {
        Box::pin(async move { self.client().await?.delete(request).await })
    }

    fn poll<'a>(&'a self, handle: &'a OperationHandle) -> ArmFuture<'a, Progress> {
        Box::pin(async move { self.client().await?.poll(handle).await })
    }
}
