//! The identity of a request: its caller, the caller's role, and the listener.

use std::sync::Arc;

use crate::role::Role;

/// The caller of a request. Each listener adds it to the extensions of its requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    /// Name of the token, or user of the process: `uid=1000(name)`; `anonymous` if the listener
    /// requires no token.
    pub name: Arc<str>,
    /// What the caller may do.
    pub role: Role,
    /// The listener, and where the request comes from.
    pub origin: Origin,
}

/// The listener of a request, and where the request comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The listener.
    pub listener: Listener,
    /// Address of the client; empty for a process of this machine.
    pub source: Arc<str>,
}

impl Origin {
    /// Returns the origin of requests over the control socket.
    pub fn socket() -> Origin {
        Origin { listener: Listener::Socket, source: "".into() }
    }
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
    /// Returns the principal of a process of this machine; `name` is its user.
    pub fn local(name: &str, role: Role) -> Principal {
        Principal { name: name.into(), role, origin: Origin::socket() }
    }
}
