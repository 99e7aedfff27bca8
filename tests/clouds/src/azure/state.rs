//! State of the Azure emulator: resources, operations, tokens, scheduled events, probes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::azure::path::same;

mod backend;
mod event;
mod login;
mod operation;
mod resource;
mod sample;

pub use backend::Backend;
pub use event::Event;
pub use login::{Application, Token};
pub use operation::{End, Operation, Outcome};
pub use resource::{Resource, guid};

/// State of the emulator. All of it can be read and set, also over HTTP.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AzureState {
    /// Time since the emulator's start; changed by `advance` only.
    pub now: Duration,
    /// Time of the emulator's start, in seconds since 1970.
    pub epoch: u64,
    /// Error of the emulated Azure clock (`Date`, times of tokens), in seconds; positive if it is
    /// ahead.
    pub skew: i64,
    /// Azure environment, as IMDS spells it: `AzurePublicCloud`.
    pub environment: String,
    /// Id of the tenant.
    pub tenant: String,
    /// Ids of the resource groups. Only the subscriptions in these ids exist.
    pub groups: Vec<String>,
    /// Region, `westeurope` for instance.
    pub location: String,
    /// Maximum length of a page of any list; `None` for no limit.
    pub page: Option<usize>,
    /// Resources of the types that are stored separately; the others are stored inside them (see
    /// the module `kind`).
    pub resources: Vec<Resource>,
    /// Number of writes, from which ETags are derived.
    pub writes: u64,
    /// Long operations.
    pub operations: Vec<Operation>,
    /// Duration of long operations. If zero, they complete with their response.
    pub pace: Duration,
    /// `Retry-After` of responses about long operations, in seconds.
    pub pause: u64,
    /// Results of the next long operations, in order.
    pub outcomes: Vec<Outcome>,
    /// Denied actions: `Microsoft.Network/networkInterfaces/write`, or a prefix followed by `*`.
    pub forbidden: Vec<String>,
    /// Default tunnels of a gateway load balancer's pool.
    pub tunnels: Value,
    /// Applications that may log in.
    pub applications: Vec<Application>,
    /// Client ids of the machines' identities, the default one first.
    pub identities: Vec<String>,
    /// Tokens that were issued.
    pub tokens: Vec<Token>,
    /// Lifetime of tokens, in seconds.
    #[serde(rename = "token_life")]
    pub token_lifetime: u64,
    /// Id of the machine whose metadata service is at the emulator's `imds` URL.
    pub own: String,
    /// `DocumentIncarnation` of the scheduled events.
    pub incarnation: u64,
    /// Scheduled events.
    pub events: Vec<Event>,
    /// Interval of health probes.
    pub interval: Duration,
    /// True if the probes of new members succeed.
    pub good: bool,
    /// Probe state of pool members.
    pub backends: Vec<Backend>,
}

impl AzureState {
    /// Returns the time by Azure's clock, in seconds since 1970.
    pub fn clock(&self) -> u64 {
        (self.epoch + self.now.as_secs()).saturating_add_signed(self.skew)
    }

    /// Returns the id of a `Microsoft.Network` resource in the first resource group.
    pub fn network(&self, rest: &str) -> String {
        let group = self.groups.first().map_or("", String::as_str);
        format!("{group}/providers/Microsoft.Network/{rest}")
    }

    /// Returns a separately stored resource.
    pub fn find(&self, id: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| same(&resource.id, id))
    }

    /// Returns a separately stored resource for modification.
    pub fn find_mut(&mut self, id: &str) -> Option<&mut Resource> {
        self.resources.iter_mut().find(|resource| same(&resource.id, id))
    }

    /// Writes a resource, which gets a new ETag.
    pub fn write(&mut self, id: &str, body: Value) {
        self.writes += 1;
        let version = self.writes;
        match self.find_mut(id) {
            Some(found) => (found.version, found.failed, found.body) = (version, false, body),
            None => {
                let id = id.to_owned();
                self.resources.push(Resource { id, version, failed: false, body });
            }
        }
    }

    /// Gives a resource a new ETag, after a change other than a write of its own.
    pub fn touch(&mut self, id: &str) {
        self.writes += 1;
        let version = self.writes;
        if let Some(found) = self.find_mut(id) {
            found.version = version;
        }
    }

    /// Advances the clock.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        self.settle();
        self.run_events();
        self.run_probes();
    }

    /// Returns true if an action is denied.
    pub fn forbids(&self, action: &str) -> bool {
        self.forbidden.iter().any(|rule| match rule.strip_suffix('*') {
            Some(start) => action.get(..start.len()).is_some_and(|a| a.eq_ignore_ascii_case(start)),
            None => rule.eq_ignore_ascii_case(action),
        })
    }
}
