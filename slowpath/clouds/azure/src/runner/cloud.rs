//! Azure as the driver asks it: Resource Manager, the machine's metadata, and what they told once.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use clouds::requests::Counts;
use clouds::retry::{Clock, Hurry, Pause, Policy};
use config::checked::Azure as Settings;
use tokio::sync::watch;

use crate::client::{self, Client};
use crate::credentials::{Credentials, Variables};
use crate::id::ResourceId;
use crate::imds::Metadata;
use crate::sovereign::Sovereign;
use crate::told::{CallError, Identity};

/// Azure and the metadata of the machine that this is. Clones share what they know.
#[derive(Clone)]
pub struct Cloud {
    reach: Arc<Reach>,
    pause: Arc<dyn Pause>,
    hurry: Hurry,
    client: Arc<OnceLock<Client>>,
    /// Of members of our pools; none where nobody told.
    addresses: Arc<Mutex<HashMap<ResourceId, Option<IpAddr>>>>,
}

struct Reach {
    azure: Settings,
    metadata: Metadata,
    client: client::Settings,
    variables: Variables,
    cancel: watch::Receiver<bool>,
}

impl Cloud {
    /// As the configuration and the environment have it. `cancel` ends what is being asked when it
    /// says true.
    ///
    /// # Errors
    /// An address that is none.
    pub fn new(
        azure: &Settings,
        seed: u64,
        cancel: watch::Receiver<bool>,
    ) -> Result<Cloud, CallError> {
        let settings = client::Settings { seed, ..client::Settings::default() };
        let pause = Arc::new(Clock::default());
        Cloud::over(azure, settings, Variables::of_process(), pause, cancel)
    }

    /// The same with these settings and variables; `pause` is how time passes between attempts.
    ///
    /// # Errors
    /// An address that is none.
    pub fn over(
        azure: &Settings,
        client: client::Settings,
        variables: Variables,
        pause: Arc<dyn Pause>,
        cancel: watch::Receiver<bool>,
    ) -> Result<Cloud, CallError> {
        let (address, version) = (&azure.endpoints.metadata, &azure.endpoints.imds_version);
        let metadata = Metadata::new(address, version, client.seed, cancel.clone())?;
        // Who asks for metadata here comes back by himself.
        let metadata = metadata.with_policy(Policy::ONCE).with_pause(Arc::clone(&pause));
        let azure = azure.clone();
        let reach = Arc::new(Reach { azure, metadata, client, variables, cancel });
        let (hurry, client, addresses) = Default::default();
        Ok(Cloud { reach, pause, hurry, client, addresses })
    }

    /// Of jitter.
    pub(super) fn seed(&self) -> u64 {
        self.reach.client.seed
    }

    /// The machine's metadata.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.reach.metadata
    }

    /// Who this machine is.
    pub(crate) async fn identity(&self) -> Result<Identity, CallError> {
        self.metadata().instance().await
    }

    /// Resource Manager of the cloud that the metadata names, asked as long as there is hope.
    pub(crate) fn arm(&self, environment: &str) -> Result<&Client, CallError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = self.connect(environment).map_err(|setback| setback.error)?;
        Ok(self.client.get_or_init(|| client))
    }

    fn connect(&self, environment: &str) -> Result<Client, clouds::failure::Setback> {
        let Reach { azure, metadata, client, variables, cancel } = &*self.reach;
        let cloud = Sovereign::of(environment, azure.endpoints.resource_manager.as_deref())?;
        let who = (azure.credential, azure.client_id.as_deref());
        let roots = client.roots.as_deref();
        let credentials = Credentials::new(who, variables.clone(), metadata, &cloud, roots)?;
        let made = Client::new(client.clone(), &cloud, Arc::new(credentials), cancel.clone())?;
        Ok(made.with_pause(self.hurry.pause(Arc::clone(&self.pause))))
    }

    /// From now on nothing is asked for minutes, and what is, is asked once more at most.
    pub(super) fn hurry(&self) {
        self.hurry.now();
    }

    /// How time passes for a change: while leaving it has a short patience of its own, and what
    /// was begun before ends when somebody leaves.
    pub(super) fn pause(&self, leaving: bool) -> Arc<dyn Pause> {
        let own = Arc::clone(&self.pause);
        if leaving { own } else { self.hurry.pause(own) }
    }

    /// What was asked so far.
    pub(super) fn calls(&self) -> Counts {
        self.client.get().map(Client::counts).unwrap_or_default()
    }

    /// A member's address, where it was told.
    pub(super) fn address(&self, configuration: &ResourceId) -> Option<IpAddr> {
        self.addresses().get(configuration).copied().flatten()
    }

    /// Whether a member's address was asked for.
    pub(super) fn was_asked(&self, configuration: &ResourceId) -> bool {
        self.addresses().contains_key(configuration)
    }

    /// Forgets all others: who comes back by the same name may have another address.
    pub(super) fn keep_addresses(&self, of: &HashSet<ResourceId>) {
        self.addresses().retain(|configuration, _| of.contains(configuration));
    }

    pub(super) fn note_address(&self, configuration: ResourceId, address: Option<IpAddr>) {
        self.addresses().insert(configuration, address);
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, HashMap<ResourceId, Option<IpAddr>>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
