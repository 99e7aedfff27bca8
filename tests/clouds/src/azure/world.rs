//! All that there is: resources, operations on their way, tokens, scheduled events, probes.

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

/// What Azure knows. Everything in it can be read and set, over HTTP too.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct World {
    /// The time since its beginning; it moves by `advance` only.
    pub now: Duration,
    /// When it began, in seconds since 1970.
    pub epoch: u64,
    /// How far Azure's clock (`Date`, tokens' times) is off, in seconds.
    pub skew: i64,
    /// `AzurePublicCloud`, as the metadata service spells it.
    pub environment: String,
    /// Whose login it is.
    pub tenant: String,
    /// Resource groups as ids; their subscriptions are all that there are.
    pub groups: Vec<String>,
    /// `westeurope`.
    pub location: String,
    /// No page of any list is longer.
    pub page: Option<usize>,
    /// Resources that are kept as their own; others lie in them.
    pub resources: Vec<Resource>,
    /// Writes that there were: the source of ETags.
    pub writes: u64,
    /// Long operations.
    pub operations: Vec<Operation>,
    /// How long they take. Zero: their answer says that they are over.
    pub pace: Duration,
    /// `Retry-After` of answers about them, in seconds.
    pub pause: u64,
    /// How the next of them end, in order.
    pub outcomes: Vec<Outcome>,
    /// Actions that nobody is allowed: `Microsoft.Network/networkInterfaces/write`, or the
    /// beginning and `*`.
    pub forbidden: Vec<String>,
    /// What a pool's tunnels are when nobody says.
    pub tunnels: Value,
    /// Who may log in.
    pub applications: Vec<Application>,
    /// Client ids of the machines' identities, the first one where nobody says.
    pub identities: Vec<String>,
    /// Tokens that were given out.
    pub tokens: Vec<Token>,
    /// How long they are good, in seconds.
    pub token_life: u64,
    /// The machine whose metadata service is at the stand-in's `imds`, by id.
    pub own: String,
    /// `DocumentIncarnation` of the scheduled events.
    pub incarnation: u64,
    /// Scheduled events.
    pub events: Vec<Event>,
    /// How often members are probed.
    pub interval: Duration,
    /// What new members' probes bring.
    pub good: bool,
    /// Members by what their probes say.
    pub backends: Vec<Backend>,
}

impl World {
    /// Azure's own idea of the time, in seconds since 1970.
    pub fn clock(&self) -> u64 {
        (self.epoch + self.now.as_secs()).saturating_add_signed(self.skew)
    }

    /// The id of something of `Microsoft.Network` in the first resource group.
    pub fn network(&self, rest: &str) -> String {
        let group = self.groups.first().map_or("", String::as_str);
        format!("{group}/providers/Microsoft.Network/{rest}")
    }

    /// A resource that is kept as its own.
    pub fn find(&self, id: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| same(&resource.id, id))
    }

    /// The same, to change it.
    pub fn find_mut(&mut self, id: &str) -> Option<&mut Resource> {
        self.resources.iter_mut().find(|resource| same(&resource.id, id))
    }

    /// Writes a resource: its ETag is a new one.
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

    /// A resource changed by something beside a write of its own.
    pub fn touch(&mut self, id: &str) {
        self.writes += 1;
        let version = self.writes;
        if let Some(found) = self.find_mut(id) {
            found.version = version;
        }
    }

    /// Lets time pass.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        self.settle();
        self.run_events();
        self.run_probes();
    }

    /// An action is forbidden.
    pub fn forbids(&self, action: &str) -> bool {
        self.forbidden.iter().any(|rule| match rule.strip_suffix('*') {
            Some(start) => action.get(..start.len()).is_some_and(|a| a.eq_ignore_ascii_case(start)),
            None => rule.eq_ignore_ascii_case(action),
        })
    }
}
