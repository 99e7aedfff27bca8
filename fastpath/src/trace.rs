//! Following sampled packets stage by stage.
//!
//! `weir trace` gives each lcore a filter and a number of packets. Between two stages the lcore
//! tells slowpath what it knows of the packets that match; nothing inside the stages knows of it,
//! and when no trace is on, it costs one comparison a stage.

use crate::burst::{Burst, Work};
use crate::verdict::{Exit, Verdict};
use tables::command::{Event, TraceFilter};
use tables::reason::DropReason;

/// The stage that a packet has just left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Stage {
    /// Outer headers found.
    Parse = 0,
    /// Tunnel recognised, inner packet found.
    Decap = 1,
    /// Flow key known.
    Classify = 2,
    /// Known flow or not.
    Track = 3,
    /// Backend chosen.
    Select = 4,
    /// Rewritten, ready to leave.
    Encap = 5,
}

/// One trace on one lcore.
#[derive(Debug, Default)]
pub struct Trace {
    filter: Option<TraceFilter>,
    left: u32,
    next_packet: u32,
}

impl Trace {
    /// Starts a trace, in place of the one that runs.
    pub fn start(&mut self, filter: TraceFilter) {
        self.left = filter.count;
        self.filter = Some(filter);
    }

    /// True while packets are still to be followed.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.filter.is_some()
    }

    /// After decap: chooses which packets of the burst to follow.
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

    /// The burst has left the last stage: a trace without packets left is over.
    pub fn burst_done(&mut self) {
        if self.left == 0 {
            self.filter = None;
        }
    }

    /// What is known of `work` after `stage`.
    pub fn event(work: &Work, stage: Stage) -> Event {
        let (verdict, detail) = numbers(work.verdict);
        let exit = match work.exit {
            Exit::None => 0,
            Exit::Port(arm) => 1 | u64::from(arm) << 8,
            Exit::Kernel(arm) => 2 | u64::from(arm) << 8,
        };
        let known = u64::from(work.hit.is_some());
        Event::TraceStage {
            packet: work.traced,
            stage: stage as u8,
            words: [
                verdict | detail << 8 | exit << 16 | known << 32 | u64::from(work.arm) << 40,
                u64::from(work.service) << 32 | u64::from(work.backend),
                u64::from(work.scope) << 32 | u64::from(work.inner.end - work.inner.at),
                work.hash,
                u64::from(work.inner.sport) << 16 | u64::from(work.inner.dport),
            ],
        }
    }
}

/// A verdict as two numbers: which, and for a drop its reason. `weir trace` has the names.
fn numbers(verdict: Verdict) -> (u64, u64) {
    match verdict {
        Verdict::Undecided => (0, 0),
        Verdict::Return => (1, 0),
        Verdict::Nat => (2, 0),
        Verdict::Tunnel => (3, 0),
        Verdict::Answer => (4, 0),
        Verdict::Punt => (5, 0),
        Verdict::Reply(_) => (6, 0),
        Verdict::Forward => (7, 0),
        Verdict::Probe => (8, 0),
        Verdict::Drop(reason) => (9, reason_number(reason)),
    }
}

fn reason_number(reason: DropReason) -> u64 {
    reason as u64
}
