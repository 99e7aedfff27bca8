//! The identity of a request: who sends it, with which role, over which listener.

use std::sync::Arc;

use crate::role::Role;

/// Who sends a request. Each listener adds it to the extensions of its requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    /// Name of the token, or user of the process: `uid=1000(name)`.
    pub name: Arc<str>,
    /// What the caller may do.
    pub role: Role,
    /// The listener, and where the request comes from.
    pub transport: Transport,
}

/// The listener of a request, and where the request comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transport {
    /// The listener.
    pub listener: Listener,
    /// Address of the client; empty for a process of this machine.
    pub source: Arc<str>,
}

/// A listener with calls that need a role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listener {
    /// `api.listen`.
    Api,
    /// `metrics.listen`.
    Metrics,
    /// `control.socket`.
    Socket,
}

impl Listener {
    /// Returns the configuration key of the listener's addresses.
    pub fn key(self) -> &'static str {
        match self {
            Listener::Api => "api.listen",
            Listener::Metrics => "metrics.listen",
            Listener::Socket => "control.socket",
        }
    }
}

impl Principal {
    /// Returns a process of this machine, by its user.
    pub fn local(name: &str, role: Role) -> Principal {
        let transport = Transport { listener: Listener::Socket, source: "".into() };
        Principal { name: name.into(), role, transport }
    }
}
