//! Traces: selected packets are followed stage by stage.
//!
//! `weir trace` gives each lcore a filter and a number of packets. After each stage from decap on,
//! the lcore sends slowpath the state of the first packets that match the filter. The stages
//! contain no code for traces; while no trace is on, the cost is one comparison per burst.

use crate::burst::{Burst, PacketState};
use crate::verdict::{Exit, Verdict};
pub use tables::command::Stage;
use tables::command::{Decision, Event, TraceExit, TraceFilter, TraceState};

/// A trace on one lcore.
#[derive(Debug, Default)]
pub struct Trace {
    /// `None` if no trace is on.
    filter: Option<TraceFilter>,
    /// Number of packets still to select.
    remaining: u32,
    /// Number of the packet selected last; numbers begin with 1.
    next_packet: u32,
}

impl Trace {
    /// Starts a trace and replaces a running one.
    pub fn start(&mut self, filter: TraceFilter) {
        self.remaining = filter.count;
        self.filter = Some(filter);
    }

    /// Returns true while a trace is on.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.filter.is_some()
    }

    /// Selects the packets of a burst to follow. Called after decap.
    pub fn select<B>(&mut self, burst: &mut Burst<B>) {
        let Some(filter) = self.filter else { return };
        for pkt in &mut burst.packets[..burst.len] {
            let ip = &pkt.inner;
            if self.remaining > 0 && filter.matches(ip.src, ip.sport, ip.dst, ip.dport, ip.proto) {
                self.remaining -= 1;
                self.next_packet += 1;
                pkt.traced = self.next_packet;
            }
        }
    }

    /// Ends the trace if it has no packets left. Called after the last stage of a burst.
    pub fn burst_done(&mut self) {
        if self.remaining == 0 {
            self.filter = None;
        }
    }

    /// Returns the event that reports the state of `pkt` after `stage`.
    pub fn event(pkt: &PacketState, stage: Stage) -> Event {
        let (decision, reason) = decision_of(pkt.verdict);
        let (exit, exit_arm) = match pkt.exit {
            Exit::None => (TraceExit::NoExit, 0),
            Exit::Port(arm) => (TraceExit::Port, arm),
            Exit::Kernel(arm) => (TraceExit::Kernel, arm),
        };
        let state = TraceState {
            decision: decision as u8,
            reason,
            exit: exit as u8,
            exit_arm,
            has_flow: pkt.hit.is_some(),
            arm: pkt.arm,
            service: pkt.service,
            backend: pkt.backend,
            scope: pkt.headers.scope,
            bytes: u32::from(pkt.inner.end - pkt.inner.at),
            hash: pkt.hash,
            sport: pkt.inner.sport,
            dport: pkt.inner.dport,
        };
        Event::TraceStage { packet: pkt.traced, stage: stage as u8, words: state.words() }
    }
}

/// Returns the verdict without its values, and for a drop the number of its reason.
fn decision_of(verdict: Verdict) -> (Decision, u8) {
    let decision = match verdict {
        Verdict::Undecided => Decision::Undecided,
        Verdict::Return => Decision::Return,
        Verdict::Nat => Decision::Nat,
        Verdict::Tunnel => Decision::Tunnel,
        Verdict::Answer => Decision::Answer,
        Verdict::Redirect => Decision::Redirect,
        Verdict::Punt => Decision::Punt,
        Verdict::Reply(_) => Decision::Reply,
        Verdict::Forward => Decision::Forward,
        Verdict::Probe => Decision::Probe,
        Verdict::Drop(reason) => return (Decision::Drop, reason as u8),
    };
    (decision, 0)
}
