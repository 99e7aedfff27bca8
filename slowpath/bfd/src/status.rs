//! Status of BFD sessions, for peer status, the API and the metrics.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::machine::Machine;
use crate::packet::{Diagnostic, Discards, State};
use crate::settings::{Key, Settings};

/// Status of a session. `receive_us` and `detection_us` are 0 until a packet of the neighbor
/// arrives, and again after the detection time has expired.
#[derive(Clone, Debug, Serialize)]
pub struct SessionStatus {
    /// Key of the session.
    #[serde(flatten)]
    pub key: Key,
    /// Configured settings.
    pub settings: Settings,
    /// Local state.
    pub state: State,
    /// State that the neighbor last reported; down before its first packet and after the detection
    /// time has expired.
    pub remote_state: State,
    /// Local diagnostic: reason for the last change of state.
    pub diagnostic: Diagnostic,
    /// Diagnostic that the neighbor last reported.
    pub remote_diagnostic: Diagnostic,
    /// Local discriminator.
    pub discriminator: u32,
    /// Discriminator of the neighbor; 0 if unknown.
    pub remote_discriminator: u32,
    /// The neighbor sets the C bit: its BFD is independent of its control plane.
    pub remote_independent: bool,
    /// Interval between sent packets in microseconds, before jitter: the larger of our transmit
    /// interval and the neighbor's receive interval.
    pub transmit_us: u64,
    /// Minimum interval between packets from the neighbor, in microseconds.
    pub receive_us: u64,
    /// Detection multiplier of the neighbor.
    pub remote_multiplier: u8,
    /// Detection time in microseconds: the session goes down after this time without a packet.
    pub detection_us: u64,
    /// Time in the current state, in seconds.
    pub since_s: u64,
    /// How many times the session came up.
    pub ups: u64,
    /// How many times the session went down from Up.
    pub downs: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that could not be sent because of a local error.
    pub unsent: u64,
    /// Packets received and accepted.
    pub received: u64,
    /// Packets for this session that were discarded, by reason.
    pub discarded: BTreeMap<String, u64>,
    /// The error of the last attempt to send; absent if it succeeded.
    #[serde(rename = "error")]
    pub last_error: Option<String>,
}

/// Status of all sessions.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BfdStatus {
    /// Sessions, ordered by key.
    pub sessions: Vec<SessionStatus>,
    /// All discarded packets, by reason: those without a session and those discarded by a session.
    pub discarded: BTreeMap<String, u64>,
}

/// State of a session outside of its state machine.
pub(crate) struct SocketStats<'a> {
    pub(crate) discards: &'a Discards,
    pub(crate) unsent: u64,
    pub(crate) last_error: Option<&'a String>,
}

impl SessionStatus {
    pub(crate) fn of(
        key: &Key,
        machine: &Machine,
        stats: &SocketStats<'_>,
        now: Instant,
    ) -> SessionStatus {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let received = machine.remote.discriminator != 0;
        let if_received = |time: Duration| if received { micros(time) } else { 0 };
        SessionStatus {
            key: key.clone(),
            settings: machine.settings,
            state: machine.state,
            remote_state: machine.remote.state,
            diagnostic: machine.diagnostic,
            remote_diagnostic: machine.remote.diagnostic,
            discriminator: machine.local,
            remote_discriminator: machine.remote.discriminator,
            remote_independent: machine.remote.independent,
            transmit_us: micros(machine.transmit_interval()),
            receive_us: if_received(machine.receive_interval()),
            remote_multiplier: machine.remote.multiplier,
            detection_us: if_received(machine.detection_time()),
            since_s: now.saturating_duration_since(machine.since).as_secs(),
            ups: machine.counts.ups,
            downs: machine.counts.downs,
            sent: machine.counts.sent,
            unsent: stats.unsent,
            received: machine.counts.received,
            discarded: by_name(stats.discards),
            last_error: stats.last_error.cloned(),
        }
    }
}

/// Converts discard counters to a map by reason name.
pub(crate) fn by_name(discards: &Discards) -> BTreeMap<String, u64> {
    discards.nonzero().map(|(why, count)| (why.name().to_owned(), count)).collect()
}
