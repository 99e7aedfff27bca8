//! Client for Azure that private links use. It connects at the first request, so that startup does
//! not wait for Azure. A connection that fails is attempted again by the next request.

use std::sync::Arc;

use azure::arm::{Arm, Ask, Begun, Call, Handle, Progress, Resource};
use azure::client::{Client, Settings};
use azure::credentials::{Credentials, Variables};
use azure::imds::Metadata;
use azure::sovereign::Sovereign;
use clouds::failure::{CallError, Setback};
use clouds::requests::Counts;
use clouds::retry::Policy;
use config::checked::PrivateLink;
use serde_json::Value;
use tokio::sync::{OnceCell, watch};

/// A lazily connected client for Azure with one identity.
pub(super) struct Reach {
    settings: PrivateLink,
    client_id: Option<String>,
    seed: u64,
    cancel: watch::Receiver<bool>,
    client: OnceCell<Client>,
}

impl Reach {
    pub(super) fn new(
        settings: &PrivateLink,
        client_id: Option<String>,
        seed: u64,
        cancel: watch::Receiver<bool>,
    ) -> Reach {
        let client = OnceCell::new();
        Reach { settings: settings.clone(), client_id, seed, cancel, client }
    }

    /// Returns the number of requests so far.
    pub(super) fn asked(&self) -> Counts {
        self.client.get().map(Client::counts).unwrap_or_default()
    }

    async fn client(&self) -> Result<&Client, Setback> {
        self.client.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Client, Setback> {
        let PrivateLink { endpoints, environment, credential, .. } = &self.settings;
        let (address, version) = (&endpoints.metadata, &endpoints.imds_version);
        let metadata = Metadata::new(address, version, self.seed, self.cancel.clone());
        // The reconciler retries, so the client does not.
        let metadata = metadata.map_err(setback)?.with_policy(Policy::ONCE);
        let environment = match environment {
            Some(told) => told.clone(),
            None => metadata.instance().await.map_err(setback)?.environment,
        };
        let cloud = Sovereign::of(&environment, endpoints.resource_manager.as_deref())?;
        let who = (*credential, self.client_id.as_deref());
        let credentials = Credentials::new(who, Variables::of_process(), &metadata, &cloud, None)?;
        let settings = Settings { policy: Policy::ONCE, seed: self.seed, ..Settings::default() };
        Client::new(settings, &cloud, Arc::new(credentials), self.cancel.clone())
    }
}

fn setback(error: CallError) -> Setback {
    Setback { error, after: None }
}

impl Arm for Reach {
    fn get<'a>(&'a self, ask: &'a Ask) -> Call<'a, Resource> {
        Box::pin(async move { self.client().await?.get(ask).await })
    }

    fn list<'a>(&'a self, ask: &'a Ask) -> Call<'a, Vec<Value>> {
        Box::pin(async move { self.client().await?.list(ask).await })
    }

    fn put<'a>(&'a self, ask: &'a Ask, body: &'a Value, etag: Option<&'a str>) -> Call<'a, Begun> {
        Box::pin(async move { self.client().await?.put(ask, body, etag).await })
    }

    fn delete<'a>(&'a self, ask: &'a Ask) -> Call<'a, Begun> {
        Box::pin(async move { self.client().await?.delete(ask).await })
    }

    fn poll<'a>(&'a self, handle: &'a Handle) -> Call<'a, Progress> {
        Box::pin(async move { self.client().await?.poll(handle).await })
    }
}
