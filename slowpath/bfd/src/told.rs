//! What is told of sessions: for the output of peers, the API and metrics.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::machine::Machine;
use crate::packet::{Diagnostic, Discards, State};
use crate::settings::{Key, Settings};

/// One session. Times of a neighbour that nothing was heard of are 0.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    /// Which.
    #[serde(flatten)]
    pub key: Key,
    /// What was asked for.
    pub settings: Settings,
    /// Ours.
    pub state: State,
    /// The neighbour's, as it said last.
    pub remote_state: State,
    /// Why it is not up any more.
    pub diagnostic: Diagnostic,
    /// The same of the neighbour's side.
    pub remote_diagnostic: Diagnostic,
    /// Our name for the session.
    pub discriminator: u32,
    /// The neighbour's.
    pub remote_discriminator: u32,
    /// The neighbour claims that its BFD goes on while its control plane doesn't.
    pub remote_independent: bool,
    /// So often we send, at most: ours and the neighbour's settings together.
    pub transmit_us: u64,
    /// So often the neighbour sends, at most.
    pub receive_us: u64,
    /// So many intervals may be missing, as the neighbour says.
    pub remote_multiplier: u8,
    /// So long may nothing come.
    pub detection_us: u64,
    /// For so long it is in its state.
    pub since_s: u64,
    /// How often it came up.
    pub ups: u64,
    /// How often it went down again.
    pub downs: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that this machine could not send.
    pub unsent: u64,
    /// Packets taken.
    pub received: u64,
    /// Packets for this session that were not, by reason.
    pub discarded: BTreeMap<String, u64>,
    /// Why nothing can be sent, where that is so.
    pub trouble: Option<String>,
}

/// All sessions, and what was for none of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// By neighbour.
    pub sessions: Vec<Told>,
    /// Packets that were not taken, by reason, those of sessions among them.
    pub discarded: BTreeMap<String, u64>,
}

/// What a driver knows of a session beside its machine.
pub(crate) struct Beside<'a> {
    pub(crate) discards: &'a Discards,
    pub(crate) unsent: u64,
    pub(crate) trouble: Option<&'a String>,
}

impl Told {
    pub(crate) fn of(key: &Key, machine: &Machine, beside: &Beside<'_>, now: Instant) -> Told {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let heard = machine.remote.discriminator != 0;
        let if_heard = |time: Duration| if heard { micros(time) } else { 0 };
        Told {
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
            receive_us: if_heard(machine.receive_interval()),
            remote_multiplier: machine.remote.multiplier,
            detection_us: if_heard(machine.detection_time()),
            since_s: now.saturating_duration_since(machine.since).as_secs(),
            ups: machine.counts.ups,
            downs: machine.counts.downs,
            sent: machine.counts.sent,
            unsent: beside.unsent,
            received: machine.counts.received,
            discarded: named(beside.discards),
            trouble: beside.trouble.cloned(),
        }
    }
}

/// Reasons by their names.
pub(crate) fn named(discards: &Discards) -> BTreeMap<String, u64> {
    discards.seen().map(|(why, count)| (why.name().to_owned(), count)).collect()
}
