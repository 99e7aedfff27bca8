//! Traces: sampled packets are followed stage by stage.
//!
//! `weir trace` gives each lcore a filter and a number of packets. After each stage the lcore sends
//! slowpath the state of the matching packets. The stages themselves are unaware of traces; while
//! no trace is on, the cost is one comparison per burst.

use crate::burst::{Burst, Work};
use crate::verdict::{Exit, Verdict};
pub use tables::command::Stage;
use tables::command::{Decision, Event, Seen, TraceFilter, Way};

/// A trace on one lcore.
#[derive(Debug, Default)]
pub struct Trace {
    filter: Option<TraceFilter>,
    left: u32,
    next_packet: u32,
}

impl Trace {
    /// Starts a trace and replaces a running one.
    pub fn start(&mut self, filter: TraceFilter) {
        self.left = filter.count;
        self.filter = Some(filter);
    }

    /// Returns true while a trace is on.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.filter.is_some()
    }

    /// Selects the packets of a burst to follow. Called after decap.
    pub fn choose<B>(&mut self, burst: &mut Burst<B>) {
        let Some(filter) = self.filter else { return };
        for work in &mut burst.work[..burst.len] {
            let ip = &work.inner;
            if self.left > 0 && filter.matches(ip.src, ip.sport, ip.dst, ip.dport, ip.proto) {
                self.left -= 1;
                self.next_packet += 1;
                work.traced = self.next_packet;
            }
        }
    }

    /// Ends the trace if it has no packets left. Called after the last stage of a burst.
    pub fn burst_done(&mut self) {
        if self.left == 0 {
            self.filter = None;
        }
    }

    /// Returns the event that reports the state of `work` after `stage`.
    pub fn event(work: &Work, stage: Stage) -> Event {
        let (decision, reason) = decided(work.verdict);
        let (way, exit_arm) = match work.exit {
            Exit::None => (Way::Nowhere, 0),
            Exit::Port(arm) => (Way::Port, arm),
            Exit::Kernel(arm) => (Way::Kernel, arm),
        };
        let seen = Seen {
            decision: decision as u8,
            reason,
            way: way as u8,
            exit_arm,
            known: work.hit.is_some(),
            arm: work.arm,
            service: work.service,
            backend: work.backend,
            scope: work.front.scope,
            bytes: u32::from(work.inner.end - work.inner.at),
            hash: work.hash,
            sport: work.inner.sport,
            dport: work.inner.dport,
        };
        Event::TraceStage { packet: work.traced, stage: stage as u8, words: seen.words() }
    }
}

/// Returns the verdict without its values, and for a drop the number of its reason.
fn decided(verdict: Verdict) -> (Decision, u8) {
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
