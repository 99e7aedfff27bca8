//! Azure's other side and a client there, for the tests.

use std::sync::Arc;
use std::time::Duration;

use azure::client::{Client, Settings};
use azure::credentials::{Credentials, Variables};
use azure::imds::Metadata;
use azure::sovereign::Sovereign;
use clouds::retry::Policy;
use config::checked::AzureCredential;
use simulation::Moved;
use standins::azure::{Standin, World};
use tokio::sync::watch;

/// A stand-in, the metadata of its `own` machine, and a client with that machine's identity.
pub struct Side {
    pub azure: Standin,
    pub client: Client,
    pub metadata: Metadata,
    pub pause: Arc<Moved<Standin>>,
    pub stop: watch::Sender<bool>,
}

/// Whoever the variables make us, else the machine's own identity.
pub async fn side_as(
    world: World,
    kind: (AzureCredential, Option<&str>),
    variables: Variables,
) -> Side {
    let azure = Standin::start(world).await.unwrap();
    let (stop, cancel) = watch::channel(false);
    let pause = Arc::new(Moved(azure.clone()));
    let metadata = Metadata::new(&azure.imds, "2023-07-01", 7, cancel.clone()).unwrap();
    let metadata = metadata.with_pause(pause.clone());
    let environment = azure.with(|world| world.environment.clone());
    let cloud = Sovereign::of(&environment, Some(&azure.url)).unwrap();
    // The login is where Resource Manager is.
    let authority = variables.authority.clone().or(Some(azure.url.clone()));
    let variables = Variables { authority, ..variables };
    let roots = Some(azure.ca.clone());
    let credentials =
        Credentials::new(kind, variables, &metadata, &cloud, roots.as_deref()).unwrap();
    // Long enough for a machine that stands still, short enough for a test of it.
    let bound = Duration::from_secs(5);
    let settings = Settings { roots, bound, policy: Policy::API, seed: 7 };
    let client = Client::new(settings, &cloud, Arc::new(credentials), cancel).unwrap();
    let client = client.with_pause(pause.clone());
    Side { azure, client, metadata, pause, stop }
}

/// With the machine's own identity.
pub async fn side(world: World) -> Side {
    side_as(world, (AzureCredential::Auto, None), Variables::default()).await
}

impl Side {
    /// How often an operation was asked, since calls were last taken.
    pub fn asked(&self, operation: &str) -> usize {
        self.azure.calls().iter().filter(|call| call.operation == operation).count()
    }
}
