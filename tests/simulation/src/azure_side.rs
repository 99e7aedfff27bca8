//! The Azure emulator with the real client, and an appliance behind the emulated gateway.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use azure::client::{Client, Settings};
use azure::credentials::{Credentials, Variables};
use azure::imds::Metadata;
use azure::runner::Gateways;
use azure::sovereign::Sovereign;
use azure::told::Tunnels;
use clouds::retry::Policy;
use config::checked::AzureCredential;
use standins::azure::{Standin, World};
use tokio::sync::watch;

use crate::recorder::{Probes, Recorder};
use crate::time::Moved;

/// The emulator with the clients of its `own` machine.
pub struct Side {
    /// The emulator.
    pub azure: Standin,
    /// Client for Resource Manager.
    pub client: Client,
    /// Client for the metadata service.
    pub metadata: Metadata,
    /// The emulator's clock, which advances at once when the client waits.
    pub pause: Arc<Moved<Standin>>,
    /// Ends the client's calls.
    pub stop: watch::Sender<bool>,
}

/// Time limit and retry policy of a client.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Time limit of one attempt.
    pub bound: Duration,
    /// Retry policy.
    pub policy: Policy,
}

impl Patience {
    /// Long enough for a stalled test machine, short enough for tests of timeouts.
    pub const USUAL: Patience = Patience { bound: Duration::from_secs(5), policy: Policy::API };
}

/// Starts an emulator with clients that use a credential and these environment variables.
pub async fn side_as(
    world: World,
    kind: (AzureCredential, Option<&str>),
    variables: Variables,
) -> Side {
    side_by(world, kind, variables, Patience::USUAL).await
}

/// Starts an emulator with clients that use the machine's own identity.
pub async fn side(world: World) -> Side {
    side_as(world, (AzureCredential::Auto, None), Variables::default()).await
}

/// Like [`side_as`], with other time limits.
#[expect(clippy::unwrap_used, reason = "a test goes no further without")]
pub async fn side_by(
    world: World,
    kind: (AzureCredential, Option<&str>),
    variables: Variables,
    patience: Patience,
) -> Side {
    let azure = Standin::start(world).await.unwrap();
    let (stop, cancel) = watch::channel(false);
    let pause = Arc::new(Moved(azure.clone()));
    let metadata = Metadata::new(&azure.imds, "2023-07-01", 7, cancel.clone()).unwrap();
    let metadata = metadata.with_pause(pause.clone());
    let environment = azure.with(|world| world.environment.clone());
    let cloud = Sovereign::of(&environment, Some(&azure.url)).unwrap();
    // The login service has the address of Resource Manager.
    let authority = variables.authority.clone().or(Some(azure.url.clone()));
    let variables = Variables { authority, ..variables };
    let roots = Some(azure.ca.clone());
    let credentials = Credentials::new(kind, variables, &metadata, &cloud, roots.as_deref());
    let Patience { bound, policy } = patience;
    let settings = Settings { roots, bound, policy, seed: 7 };
    let client = Client::new(settings, &cloud, Arc::new(credentials.unwrap()), cancel).unwrap();
    let client = client.with_pause(pause.clone());
    Side { azure, client, metadata, pause, stop }
}

impl Side {
    /// Returns the number of calls of an operation since the calls were last taken.
    pub fn asked(&self, operation: &str) -> usize {
        self.azure.calls().iter().filter(|call| call.operation == operation).count()
    }
}

/// A machine behind the emulator's gateway.
pub struct Member {
    azure: Standin,
    /// Pool ids, each with the machine's address in the pool.
    pools: Vec<(String, String)>,
    /// Probes pass although the machine is not able.
    pub passes: AtomicBool,
    carried: Mutex<BTreeMap<String, Tunnels>>,
    followed: watch::Sender<u64>,
}

impl Member {
    /// Returns a machine with these addresses in pools, and with tunnels in force by gateway.
    pub fn new(
        azure: &Standin,
        pools: Vec<(String, String)>,
        carried: BTreeMap<String, Tunnels>,
    ) -> Member {
        let (azure, carried) = (azure.clone(), Mutex::new(carried));
        let (passes, followed) = (AtomicBool::new(false), watch::Sender::default());
        Member { azure, pools, passes, carried, followed }
    }

    /// Returns how often tunnels were set.
    pub fn followed(&self) -> u64 {
        *self.followed.borrow()
    }
}

impl Probes for Member {
    type Seen = ();

    fn answered(&self, pass: bool) {
        self.azure.with(|world| {
            self.pools.iter().for_each(|(pool, address)| world.probed(pool, address, pass));
        });
    }
}

#[expect(clippy::unwrap_used, reason = "no test goes on after a panic")]
impl Gateways for Recorder<Member> {
    fn tunnels(&self, gateway: &str) -> Option<Tunnels> {
        self.probes.carried.lock().unwrap().get(gateway).copied()
    }

    fn follow(&self, tunnels: &[(String, Tunnels)]) {
        self.probes.carried.lock().unwrap().extend(tunnels.iter().cloned());
        self.probes.followed.send_modify(|times| *times += 1);
    }

    fn preboot(&self, pass: bool) {
        self.probes.passes.store(pass, Ordering::Relaxed);
    }
}
