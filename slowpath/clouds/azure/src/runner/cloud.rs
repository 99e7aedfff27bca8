//! The Azure clients that the lifecycle uses, and cached addresses of members.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use clouds::requests::Counts;
use clouds::retry::{Clock, Pause, Policy, RetryCutoff};
use config::checked::Azure as Settings;
use tokio::sync::watch;

use crate::client::{self, Client};
use crate::credentials::{Credentials, Variables};
use crate::environment::Environment;
use crate::id::ResourceId;
use crate::imds::Metadata;
use crate::types::{CallError, Identity};

/// Clients for Resource Manager and for this machine's metadata. Clones share the clients, their
/// counters and the cache.
#[derive(Clone)]
pub struct Cloud {
    client_config: Arc<ClientConfig>,
    pause: Arc<dyn Pause>,
    retry_cutoff: RetryCutoff,
    client: Arc<OnceLock<Client>>,
    /// Addresses of pool members by IP configuration; `None` if the read failed permanently.
    addresses: Arc<Mutex<HashMap<ResourceId, Option<IpAddr>>>>,
}

struct ClientConfig {
    azure: Settings,
    metadata: Metadata,
    client: client::Settings,
    variables: Variables,
    cancel: watch::Receiver<bool>,
}

impl Cloud {
    /// Returns clients for the configuration and the environment variables. When `cancel` becomes
    /// true, all requests end.
    ///
    /// # Errors
    /// Fails if the configured address of the metadata service is not valid.
    pub fn new(
        azure: &Settings,
        seed: u64,
        cancel: watch::Receiver<bool>,
    ) -> Result<Cloud, CallError> {
        let settings = client::Settings { seed, ..client::Settings::default() };
        let pause = Arc::new(Clock::default());
        Cloud::with_settings(azure, settings, Variables::of_process(), pause, cancel)
    }

    /// Returns clients with these settings; `pause` is the clock for the time between attempts.
    ///
    /// # Errors
    /// Fails if the configured address of the metadata service is not valid.
    pub fn with_settings(
        azure: &Settings,
        client: client::Settings,
        variables: Variables,
        pause: Arc<dyn Pause>,
        cancel: watch::Receiver<bool>,
    ) -> Result<Cloud, CallError> {
        let (address, version) = (&azure.endpoints.metadata, &azure.endpoints.imds_version);
        let metadata = Metadata::new(address, version, client.seed, cancel.clone())?;
        // A single attempt: the callers repeat metadata requests themselves.
        let metadata = metadata.with_policy(Policy::ONCE).with_pause(Arc::clone(&pause));
        let azure = azure.clone();
        let client_config = Arc::new(ClientConfig { azure, metadata, client, variables, cancel });
        let (retry_cutoff, client, addresses) = Default::default();
        Ok(Cloud { client_config, pause, retry_cutoff, client, addresses })
    }

    /// Returns the seed of the retry jitter.
    pub(super) fn seed(&self) -> u64 {
        self.client_config.client.seed
    }

    /// Returns the client for the metadata service.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.client_config.metadata
    }

    /// Reads the identity of this machine.
    pub(crate) async fn identity(&self) -> Result<Identity, CallError> {
        self.metadata().instance().await
    }

    /// Returns the Resource Manager client. The first call creates it for `environment`, in which
    /// this machine is.
    pub(crate) fn arm(&self, environment: &str) -> Result<&Client, CallError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = self.connect(environment).map_err(|failed| failed.error)?;
        Ok(self.client.get_or_init(|| client))
    }

    fn connect(&self, environment: &str) -> Result<Client, clouds::failure::AttemptError> {
        let ClientConfig { azure, metadata, client, variables, cancel } = &*self.client_config;
        let cloud = Environment::of(environment, azure.endpoints.resource_manager.as_deref())?;
        let identity = (azure.credential, azure.client_id.as_deref());
        let roots = client.roots.as_deref();
        let credentials = Credentials::new(identity, variables.clone(), metadata, &cloud, roots)?;
        let connected = Client::new(client.clone(), &cloud, Arc::new(credentials), cancel.clone())?;
        Ok(connected.with_pause(self.retry_cutoff.wrap(Arc::clone(&self.pause))))
    }

    /// Cuts retries short while the machine is leaving, when requests must use [`Policy::ONCE`]
    /// (see [`RetryCutoff::trigger`]). A canceled scheduled event ends the drain, and the cutoff
    /// with it.
    pub(super) fn set_leaving(&self, leaving: bool) {
        match leaving {
            true => self.retry_cutoff.trigger(),
            false => self.retry_cutoff.reset(),
        }
    }

    /// Returns the clock for a change of entries. The cutoff ends the pauses of a change that began
    /// before the machine started to leave; a change while leaving has a short policy instead.
    pub(super) fn pause(&self, leaving: bool) -> Arc<dyn Pause> {
        let own = Arc::clone(&self.pause);
        if leaving { own } else { self.retry_cutoff.wrap(own) }
    }

    /// Returns the number of attempts since start; metadata requests are not counted.
    pub(super) fn calls(&self) -> Counts {
        self.client.get().map(Client::counts).unwrap_or_default()
    }

    /// Returns the cached address of a member, unless it could not be read.
    pub(super) fn cached_address(&self, configuration: &ResourceId) -> Option<IpAddr> {
        self.addresses().get(configuration).copied().flatten()
    }

    /// Returns true if a read of a member's address has succeeded or permanently failed before.
    pub(super) fn is_address_cached(&self, configuration: &ResourceId) -> bool {
        self.addresses().contains_key(configuration)
    }

    /// Drops the cached addresses of all IP configurations but these: one that is created later
    /// with the name of a deleted one may have another address.
    pub(super) fn retain_addresses(&self, configurations: &HashSet<ResourceId>) {
        self.addresses().retain(|id, _| configurations.contains(id));
    }

    pub(super) fn cache_address(&self, configuration: ResourceId, address: Option<IpAddr>) {
        self.addresses().insert(configuration, address);
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, HashMap<ResourceId, Option<IpAddr>>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
