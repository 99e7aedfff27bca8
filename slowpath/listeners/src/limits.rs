//! What a listener allows, and what it counted.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use config::checked::Prefix;
use parking_lot::RwLock;

/// Evicted connections that may still hold their descriptor before no further ones are accepted.
pub(crate) const CLOSING: usize = 32;

/// How many connections a listener has at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Of sources without reserved slots.
    pub connections: usize,
    /// Of one source, reserved or not.
    pub per_source: usize,
    /// Of sources with reserved slots, in addition.
    pub reserved: usize,
}

impl Limits {
    /// The most descriptors that the connections take, evicted ones included.
    pub const fn descriptors(&self) -> usize {
        self.connections + self.reserved + CLOSING
    }

    /// The same in a process with fewer descriptors: so many percent, at least a few of each.
    pub fn scaled(&self, percent: usize) -> Limits {
        let part = |of: usize| (of * percent / 100).max(of.min(8));
        Limits {
            connections: part(self.connections),
            per_source: part(self.per_source),
            reserved: part(self.reserved),
        }
    }
}

/// The networks that reserved slots are for, shared by all listeners; they can change at any time.
#[derive(Clone, Default)]
pub struct Reserved(Arc<RwLock<Vec<Prefix>>>);

impl Reserved {
    /// From now on these.
    pub fn set(&self, networks: Vec<Prefix>) {
        *self.0.write() = networks;
    }

    pub(crate) fn contains(&self, addr: IpAddr) -> bool {
        self.0.read().iter().any(|network| network.contains(addr))
    }
}

/// Why a connection got no slot. All others that could have made room are being answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Its source has as many as it may.
    Source,
    /// The listener has as many as it may.
    Full,
}

/// What took too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timeout {
    /// A TLS handshake.
    Handshake,
    /// The head of a request, or the pause before it.
    Head,
    /// The body of a request.
    Body,
    /// The peer's reading of a response.
    Write,
}

impl Timeout {
    /// All, in the order of [`Counts::timeouts`].
    pub const ALL: [(Timeout, &'static str); 4] = [
        (Timeout::Handshake, "handshake"),
        (Timeout::Head, "head"),
        (Timeout::Body, "body"),
        (Timeout::Write, "write"),
    ];
}

/// How long a peer may take for each step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// For a TLS handshake.
    pub handshake: Duration,
    /// For the head of a request, the pause before it included.
    pub head: Duration,
    /// For the body of a request beyond what `body_rate` allows.
    pub body: Duration,
    /// Bytes a second that the body of a request comes with at least, on average.
    pub body_rate: u64,
    /// For reading what is written. The kernel calls a socket writable when a third of its send
    /// buffer is free, so that a peer which reads a little now and then is not waited for longer.
    pub write: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        let seconds = Duration::from_secs;
        Timeouts {
            handshake: seconds(10),
            head: seconds(10),
            body: seconds(10),
            body_rate: 32 << 10,
            write: seconds(30),
        }
    }
}

/// What a listener counted since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Connections that are open now.
    pub open: usize,
    /// Connections that got a slot.
    pub accepted: u64,
    /// Connections closed in favor of new ones.
    pub evicted: u64,
    /// New connections closed because their source had too many.
    pub refused_source: u64,
    /// New connections closed because the listener had too many.
    pub refused_full: u64,
    /// New connections closed because the process had no descriptor left.
    pub refused_descriptors: u64,
    /// Errors of `accept` other than that.
    pub accept_errors: u64,
    /// Connections closed because something took too long, as in [`Timeout::ALL`].
    pub timeouts: [u64; 4],
}

impl Counts {
    /// Of two listeners together.
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            open: self.open + other.open,
            accepted: self.accepted + other.accepted,
            evicted: self.evicted + other.evicted,
            refused_source: self.refused_source + other.refused_source,
            refused_full: self.refused_full + other.refused_full,
            refused_descriptors: self.refused_descriptors + other.refused_descriptors,
            accept_errors: self.accept_errors + other.accept_errors,
            timeouts: std::array::from_fn(|i| self.timeouts[i] + other.timeouts[i]),
        }
    }
}
