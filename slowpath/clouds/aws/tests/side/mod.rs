//! Clients of an emulated account, for tests.

use std::sync::Arc;
use std::time::Duration;

use aws::account::{Account, Settings};
use aws::imds::Metadata;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use clouds::retry::Policy;
use simulation::Moved;
use standins::Standin;
use standins::world::World;
use tokio::sync::watch;

/// An emulator, an account there, and the metadata of its first instance.
pub struct Side {
    pub aws: Standin,
    pub account: Account,
    pub metadata: Metadata,
    _stay: watch::Sender<bool>,
}

/// Starts an emulator with clients that use the credentials of the sample's role.
pub async fn side(targets: &str) -> Side {
    let aws = Standin::start(World::sample(targets)).await.unwrap();
    let (stay, cancel) = watch::channel(false);
    let settings = Settings {
        region: Some("eu-central-1".into()),
        endpoint: Some(aws.url.clone()),
        credentials: Some(SharedCredentialsProvider::new(key())),
        bound: Duration::from_millis(1_500),
        policy: Policy::API,
        seed: 7,
    };
    let pause = Arc::new(Moved(aws.clone()));
    let account = Account::load(settings, cancel.clone()).await.unwrap().with_pause(pause.clone());
    let metadata = Metadata::new(Some(&aws.url), 7, cancel).unwrap().with_pause(pause);
    Side { aws, account, metadata, _stay: stay }
}

fn key() -> Credentials {
    let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    Credentials::new("AKIDEXAMPLE", secret, None, None, "sample")
}
