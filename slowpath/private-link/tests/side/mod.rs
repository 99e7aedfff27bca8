//! The Azure emulator with the real client, and an object whose rounds run by the emulator's clock.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::time::Duration;

use azure::credentials::Variables;
use cloud_emulators::azure::{AzureState, Emulator};
use clouds::retry::{Pause, Policy};
use config::checked::AzureCredential;
use private_link::object::{EndpointSpec, Object, ResourceRef, Spec, Status, Zone};
use private_link::time::Time;
use private_link::{ArmClients, Next, Role, RoundContext};
use serde_json::{Value, json};
use simulation::azure_fixture::{self, Timeouts};

use azure::id::ResourceId;

#[path = "../player/mod.rs"]
mod player;

use player::{Player, settings};

pub const PROVIDER: &str = "00000000-0000-0000-0000-0000000000aa";
pub const GUEST: &str = "00000000-0000-0000-0000-0000000000bb";

pub fn provider(kind: &str, name: &str) -> ResourceId {
    ResourceId::network(PROVIDER, "north", kind, name)
}

pub fn guest(kind: &str, name: &str) -> ResourceId {
    ResourceId::network(GUEST, "guest", kind, name)
}

/// Returns the emulator's sample, with a consumer subscription that has a network.
pub fn sample_state() -> AzureState {
    let mut cloud = AzureState::sample();
    cloud.groups.push(format!("/subscriptions/{GUEST}/resourceGroups/guest"));
    let subnet = json!({ "name": "endpoints", "properties": { "addressPrefix": "10.7.0.0/24" } });
    let properties = json!({
        "addressSpace": { "addressPrefixes": ["10.7.0.0/16"] }, "subnets": [subnet],
    });
    let spoke = guest("virtualNetworks", "spoke");
    cloud.write(spoke.as_str(), json!({ "location": "westeurope", "properties": properties }));
    cloud.pace = Duration::from_secs(25);
    cloud
}

/// Limits each call to 20 s of real time, so that a hanging call ends.
struct RealTimeLimit;

impl Pause for RealTimeLimit {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wait(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(Duration::from_secs(20)))
    }
}

/// Reads the emulator's clock; waits in real time.
pub struct EmulatorClock(Emulator);

impl Pause for EmulatorClock {
    fn now(&self) -> Duration {
        self.0.with(|cloud| cloud.now)
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(pause))
    }
}

/// The emulator with its clients, and an object.
pub struct Side {
    pub at: azure_fixture::Fixture,
    player: Player,
    /// Delay after the last round; `None` if no other is due.
    pub last: Option<Duration>,
}

fn object() -> Object {
    let network = guest("virtualNetworks", "spoke");
    let zone = |name: &str, records: &[&str]| Zone {
        name: name.to_owned(),
        records: records.iter().map(|&record| record.to_owned()).collect(),
        link: None,
    };
    let endpoint = EndpointSpec {
        subnet: ResourceRef(network.child("subnets", "endpoints")),
        network: ResourceRef(network),
        resource_group: None,
        zones: vec![zone("web.hypershift.local", &["api", "*.apps"])],
    };
    let spec = Spec {
        load_balancer_ip: Some("10.1.0.5".parse().unwrap()),
        subscription: PROVIDER.to_owned(),
        resource_group: "north".to_owned(),
        location: "westeurope".to_owned(),
        endpoint: Some(endpoint),
        ..Spec::default()
    };
    Object {
        name: "shop/web".to_owned(),
        generation: 1,
        created: Time(0),
        spec,
        status: Status::default(),
        deletion: None,
        has_finalizer: false,
    }
}

pub async fn side(cloud: AzureState) -> Side {
    // The client does not repeat failed calls: later rounds do.
    let timeouts = Timeouts { attempt: Duration::from_millis(1_500), policy: Policy::ONCE };
    let kind = (AzureCredential::Auto, None);
    let at = azure_fixture::fixture_with(cloud, kind, Variables::default(), timeouts).await;
    Side { at, player: Player::new(object()), last: None }
}

impl Deref for Side {
    type Target = Player;

    fn deref(&self) -> &Player {
        &self.player
    }
}

impl DerefMut for Side {
    fn deref_mut(&mut self) -> &mut Player {
        &mut self.player
    }
}

impl Side {
    pub fn now(&self) -> u64 {
        self.at.azure.with(|cloud| cloud.clock())
    }

    /// Returns the emulator's clock.
    pub fn clock(&self) -> EmulatorClock {
        EmulatorClock(self.at.azure.clone())
    }

    /// Runs a round as the owner.
    pub async fn round(&mut self) -> Next {
        let (now, settings, role) = (Time(self.now()), settings(), Role::Owner);
        let clients = ArmClients { service: &self.at.client, endpoint: &self.at.client };
        let context =
            RoundContext { now, clients, pause: &RealTimeLimit, settings: &settings, role: &role };
        let next = self.player.play_round(&context).await;
        let pause = Duration::from_secs(self.player.due.saturating_sub(now.0));
        self.last = (next != Next::Never).then_some(pause);
        next
    }

    /// Runs rounds as they are due, until this number of seconds has passed or the object is gone.
    pub async fn play(&mut self, seconds: u64) {
        let end = self.now() + seconds;
        self.until(end, |_| false).await;
        let left = end.saturating_sub(self.now());
        self.at.azure.advance(Duration::from_secs(left));
    }

    /// Runs rounds as they are due, until the condition is true, the object is gone, or none is due
    /// by `end`.
    pub async fn until(&mut self, end: u64, condition: impl Fn(&Side) -> bool) {
        while !self.gone && self.due <= end && !condition(self) {
            let wait = self.due.saturating_sub(self.now());
            self.at.azure.advance(Duration::from_secs(wait));
            self.round().await;
        }
    }

    pub fn delete(&mut self) {
        let now = self.now();
        self.delete_at(now);
    }

    /// Returns the stored body of a resource; `Null` if it does not exist.
    pub fn body(&self, id: &ResourceId) -> Value {
        let found = self.at.azure.with(|cloud| cloud.find(id.as_str()).map(|f| f.body.clone()));
        found.unwrap_or(Value::Null)
    }

    /// Returns the object's status for assertion messages.
    pub fn dump(&self) -> String {
        format!("{:#?}", self.object.status)
    }
}
