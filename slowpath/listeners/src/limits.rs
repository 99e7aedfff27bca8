//! Limits, timeouts and counters of a listener.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use config::checked::Prefix;
use parking_lot::RwLock;

/// Maximum number of evicted connections that still hold their descriptor; once it is reached, no
/// connection is accepted until one of them is closed.
pub(crate) const MAX_CLOSING: usize = 32;

/// Maximum numbers of concurrent connections of a listener, or of several that share slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections of sources without reserved slots.
    pub connections: usize,
    /// Connections of a single source, with or without reserved slots.
    pub per_source: usize,
    /// Additional connections of sources with reserved slots.
    pub reserved: usize,
}

impl Limits {
    /// Returns the maximum number of descriptors that connections use, evicted ones included.
    pub const fn descriptors(&self) -> usize {
        self.connections + self.reserved + MAX_CLOSING
    }

    /// Returns lower limits, for a process with few descriptors: each is this percentage of the
    /// original, but at least 8, or the original itself if that is lower than 8.
    pub fn scaled(&self, percent: usize) -> Limits {
        let part = |of: usize| (of * percent / 100).max(of.min(8));
        Limits {
            connections: part(self.connections),
            per_source: part(self.per_source),
            reserved: part(self.reserved),
        }
    }
}

/// Networks with reserved slots, shared by all listeners; may change at any time.
#[derive(Clone, Default)]
pub struct ReservedNetworks(Arc<RwLock<Vec<Prefix>>>);

impl ReservedNetworks {
    /// Replaces the networks.
    pub fn set(&self, networks: Vec<Prefix>) {
        *self.0.write() = networks;
    }

    pub(crate) fn contains(&self, addr: IpAddr) -> bool {
        self.0.read().iter().any(|network| network.contains(addr))
    }
}

/// Reason why a connection got no slot. No connection could be evicted in its favor, because all
/// that count towards the limit are being served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotError {
    /// The source has reached its limit.
    Source,
    /// The listener has reached its limit.
    Full,
}

/// Step that timed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timeout {
    /// TLS handshake.
    Handshake,
    /// Head of a request, including the idle time before it.
    Head,
    /// Body of a request.
    Body,
    /// Write of a response, which the peer does not read.
    Write,
}

impl Timeout {
    /// All values with their names, in the order of [`Counts::timeouts`].
    pub const ALL: [(Timeout, &'static str); 4] = [
        (Timeout::Handshake, "handshake"),
        (Timeout::Head, "head"),
        (Timeout::Body, "body"),
        (Timeout::Write, "write"),
    ];
}

/// Timeouts of a connection's steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// TLS handshake.
    pub handshake: Duration,
    /// Head of a request, including the idle time before it.
    pub head: Duration,
    /// Body of a request, in addition to the time that `body_rate` allows.
    pub body: Duration,
    /// Minimum average rate of a request's body in bytes per second.
    pub body_rate: u64,
    /// Maximum time for which a write may block. Reading a few bytes now and then does not extend
    /// it: the kernel reports a TCP socket as writable only when a third of its send buffer is
    /// free.
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

/// Number of open connections of a listener, and its counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Open connections, including evicted ones that have not been closed yet.
    pub open: usize,
    /// Connections that got a slot.
    pub accepted: u64,
    /// Connections closed in favor of new ones.
    pub evicted: u64,
    /// New connections closed because their source had reached its limit.
    pub refused_source: u64,
    /// New connections closed because the listener had reached its limit.
    pub refused_full: u64,
    /// New connections closed because the process had no descriptor left.
    pub refused_descriptors: u64,
    /// Other errors of `accept`.
    pub accept_errors: u64,
    /// Connections closed because of a timeout, in the order of [`Timeout::ALL`].
    pub timeouts: [u64; 4],
}

impl Counts {
    /// Returns the sum of the counts of two listeners.
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
