//! The Azure emulator with the real client, and an appliance behind the emulated gateway.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use azure::client::{Client, Settings};
use azure::credentials::{Credentials, Variables};
use azure::environment::Environment;
use azure::imds::Metadata;
use azure::runner::AzureAppliance;
use azure::types::Tunnels;
use cloud_emulators::azure::{AzureState, Emulator};
use clouds::retry::Policy;
use config::checked::AzureCredential;
use tokio::sync::watch;

use crate::clock::SkippingClock;
use crate::recorder::{Probes, Recorder};

/// The emulator with the clients of its `own` machine.
pub struct Fixture {
    /// The emulator.
    pub azure: Emulator,
    /// Client for Resource Manager.
    pub client: Client,
    /// Client for the metadata service.
    pub metadata: Metadata,
    /// The emulator's clock, for pauses that end at once and advance the emulator's time.
    pub pause: Arc<SkippingClock<Emulator>>,
    /// Ends the client's calls.
    pub stop: watch::Sender<bool>,
}

/// Time limit and retry policy of a client.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time limit of one attempt.
    pub attempt: Duration,
    /// Retry policy.
    pub policy: Policy,
}

impl Timeouts {
    /// Five seconds per attempt: long enough for a stalled test machine, short enough for tests of
    /// timeouts.
    pub const DEFAULT: Timeouts = Timeouts { attempt: Duration::from_secs(5), policy: Policy::API };
}

/// Starts an emulator with clients that use a credential and these environment variables.
pub async fn fixture_as(
    state: AzureState,
    kind: (AzureCredential, Option<&str>),
    variables: Variables,
) -> Fixture {
    fixture_with(state, kind, variables, Timeouts::DEFAULT).await
}

/// Starts an emulator with clients that use the machine's own identity.
pub async fn fixture(state: AzureState) -> Fixture {
    fixture_as(state, (AzureCredential::Auto, None), Variables::default()).await
}

/// Like [`fixture_as`], with other time limits.
#[expect(clippy::unwrap_used, reason = "a test ends at the first failure")]
pub async fn fixture_with(
    state: AzureState,
    kind: (AzureCredential, Option<&str>),
    variables: Variables,
    timeouts: Timeouts,
) -> Fixture {
    let azure = Emulator::start(state).await.unwrap();
    let (stop, cancel) = watch::channel(false);
    let pause = Arc::new(SkippingClock(azure.clone()));
    let metadata = Metadata::new(&azure.imds, "2023-07-01", 7, cancel.clone()).unwrap();
    let metadata = metadata.with_pause(pause.clone());
    let environment = azure.with(|cloud| cloud.environment.clone());
    let cloud = Environment::of(&environment, Some(&azure.url)).unwrap();
    // The emulator's login service has the address of its Resource Manager.
    let authority = variables.authority.clone().or(Some(azure.url.clone()));
    let variables = Variables { authority, ..variables };
    let roots = Some(azure.ca.clone());
    let credentials = Credentials::new(kind, variables, &metadata, &cloud, roots.as_deref());
    let Timeouts { attempt, policy } = timeouts;
    let settings = Settings { roots, timeout: attempt, policy, seed: 7 };
    let client = Client::new(settings, &cloud, Arc::new(credentials.unwrap()), cancel).unwrap();
    let client = client.with_pause(pause.clone());
    Fixture { azure, client, metadata, pause, stop }
}

impl Fixture {
    /// Returns the number of calls of an operation since the emulator's calls were last taken.
    pub fn call_count(&self, operation: &str) -> usize {
        self.azure.calls().iter().filter(|call| call.operation == operation).count()
    }
}

/// A machine behind the emulator's gateway.
pub struct Member {
    azure: Emulator,
    /// Pool ids, each with the machine's address in the pool.
    pools: Vec<(String, String)>,
    /// Whether probes pass although the machine is not able (`preboot_health = "pass"`).
    pub passes: AtomicBool,
    tunnels: Mutex<BTreeMap<String, Tunnels>>,
    tunnel_updates: watch::Sender<u64>,
}

impl Member {
    /// Creates a machine with these addresses in pools, and with these tunnels in force by gateway.
    pub fn new(
        azure: &Emulator,
        pools: Vec<(String, String)>,
        tunnels: BTreeMap<String, Tunnels>,
    ) -> Member {
        let (azure, tunnels) = (azure.clone(), Mutex::new(tunnels));
        let (passes, tunnel_updates) = (AtomicBool::new(false), watch::Sender::default());
        Member { azure, pools, passes, tunnels, tunnel_updates }
    }

    /// Returns how often tunnels were set.
    pub fn tunnel_updates(&self) -> u64 {
        *self.tunnel_updates.borrow()
    }
}

impl Probes for Member {
    type State = ();

    fn set_passing(&self, pass: bool) {
        self.azure.with(|cloud| {
            self.pools
                .iter()
                .for_each(|(pool, address)| cloud.set_probe_result(pool, address, pass));
        });
    }
}

#[expect(clippy::unwrap_used, reason = "a test ends at the first panic")]
impl AzureAppliance for Recorder<Member> {
    fn tunnels(&self, gateway: &str) -> Option<Tunnels> {
        self.probes.tunnels.lock().unwrap().get(gateway).copied()
    }

    fn set_tunnels(&self, tunnels: &[(String, Tunnels)]) {
        self.probes.tunnels.lock().unwrap().extend(tunnels.iter().cloned());
        self.probes.tunnel_updates.send_modify(|times| *times += 1);
    }

    fn set_preboot_pass(&self, pass: bool) {
        self.probes.passes.store(pass, Ordering::Relaxed);
    }
}
