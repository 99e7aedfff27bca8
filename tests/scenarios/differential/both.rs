//! Two planes with the same tables, seed and clock receive the same frames. Their outgoing frames,
//! counters and flows are compared.
//!
//! The XDP programs ("the kernel") receive frames one by one, the pipeline in memory in bursts.
//! Each frame is passed to the kernel immediately, so that a later frame of the burst can depend on
//! the result: an answer to a translated request needs the NAT port of the request.

use super::mutation::Trial;
use crate::planes::loaded::Loaded;
use crate::planes::memory::Memory;
use crate::planes::xdp::{SEED, Xdp};
use fastpath::burst::{Arrival, BURST, Burst};
use fastpath::port::memory::{Frame, HEADROOM};
use fastpath::verdict;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::thread::sleep;
use std::time::Duration;
use tables::counters::{ArmCounter, Counter, LcorePage, ServiceCounter, VerdictCounter};
use tables::flow::{Flows, Snapshot};
use tables::reason::DropReason;
use tests::cases::{Change, Exit, Plane, Setup};
use tests::frames::{describe, difference};

/// The outgoing frames for one frame, in order.
pub type Output = Vec<(Exit, Vec<u8>)>;

/// A permitted difference between the planes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exception {
    /// The kernel's test run rejects frames shorter than an Ethernet header, which no NIC
    /// delivers.
    Short,
    /// The kernel's test run has no buffers for such long frames, which no port accepts.
    Long,
    /// With XDP, outer UDP checksums are 0 where the service requests one: an XDP program cannot
    /// sum a whole packet.
    OuterSum,
}

/// The minimum number of bytes that the kernel's test run accepts as a frame and as first buffer.
const SHORTEST: usize = 14;
/// The maximum number of bytes after the first buffer: as many pages as a packet may have.
const REST: usize = 17 * 4_096;
/// The maximum number of bytes in a frame's first buffer with the kernel's test run: a page without
/// headroom and tailroom. The other plane gets the same buffers.
const FIRST: usize = 4_096 - 256 - 320;
/// The time in milliseconds before and after the start of each second in which no frame is sent:
/// the kernel's coarse clock lags by a tick, so that a program might read another second than the
/// one that was set.
const TICK_MS: u64 = 12;

/// Both planes.
pub struct PlanePair {
    memory: Memory,
    xdp: Xdp,
    setup: Setup,
    /// The second of this machine's clock for which the kernel plane's clock was last set.
    second: u32,
    /// Counters after the last burst.
    totals: Vec<u64>,
    /// Frames that the kernel has received since the last burst, and its outgoing frames for each.
    pending: Vec<(Trial, Output)>,
    /// The permitted differences that occurred.
    pub exceptions: BTreeMap<Exception, usize>,
    /// The sum of all counters over all setups, by name.
    pub sums: BTreeMap<String, u64>,
    /// The number of compared flows.
    pub flows: usize,
}

impl PlanePair {
    /// Creates both planes; must run in the namespace of [`Xdp::new`].
    pub fn new(setup: &Setup) -> PlanePair {
        PlanePair {
            memory: Memory::new(),
            xdp: Xdp::new(),
            setup: setup.clone(),
            second: 0,
            totals: Vec::new(),
            pending: Vec::new(),
            exceptions: BTreeMap::new(),
            sums: BTreeMap::new(),
            flows: 0,
        }
    }

    /// Restarts both planes with these tables.
    pub fn load(&mut self, setup: &Setup) {
        // One seed, because hashes appear in outgoing frames. The kernel's queue accepts
        // everything. New flows are not limited, because each plane would limit them by its own
        // clock, which the pipeline reads once per burst. Cases test the limits.
        let (seed, kernel_capacity, new_flows) = (Some(SEED), usize::MAX, "nat_new_per_s = 0");
        self.setup = Setup { seed, kernel_capacity, new_flows, ..setup.clone() };
        self.xdp.load(&self.setup);
        self.memory.load(&self.setup);
        let behind = self.now_s().wrapping_sub(self.xdp.loaded().lcore.now_s());
        self.xdp.loaded().lcore.advance_s(behind);
        self.sync_clock(true);
        self.totals = totals(&page(self.memory.loaded()));
        self.pending.clear();
    }

    /// Changes the control state of both planes.
    pub fn change(&mut self, change: &Change) {
        self.memory.change(change);
        self.xdp.change(change);
        self.totals = totals(&page(self.memory.loaded()));
    }

    /// Advances both clocks.
    pub fn advance_s(&mut self, seconds: u32) {
        self.memory.advance_s(seconds);
        self.xdp.advance_s(seconds);
        self.sync_clock(true);
    }

    /// Returns the second of both planes' clock, which stands still between two
    /// [`PlanePair::advance_s`].
    fn now_s(&mut self) -> u32 {
        self.memory.loaded().lcore.now_s()
    }

    /// Returns the current second of this machine's clock, after a wait if the second has just
    /// begun or is about to end.
    fn second(&mut self) -> u32 {
        let region = self.memory.loaded().region;
        loop {
            let now_ms = region.now_ms();
            let part = now_ms % 1_000;
            if (TICK_MS..1_000 - TICK_MS).contains(&part) {
                return (now_ms / 1_000) as u32;
            }
            sleep(Duration::from_millis(TICK_MS / 4));
        }
    }

    /// Sets the kernel plane's clock to that of the other plane, if `force` or if a new second of
    /// this machine's clock has begun.
    fn sync_clock(&mut self, force: bool) {
        let second = self.second();
        if force || second != self.second {
            self.second = second;
            let now_s = self.now_s();
            self.xdp.set_clock(now_s);
            // Refills the other plane's punt limits, as the kernel's are by its clock.
            self.memory.loaded().lcore.advance_s(0);
        }
    }

    /// Passes a frame to the kernel, and keeps it for the burst that [`PlanePair::end_burst`]
    /// passes to the other plane; returns the kernel's outgoing frames.
    pub fn send(&mut self, trial: &Trial) -> Result<Output, String> {
        let len = trial.bytes.len();
        if len < SHORTEST || len > first(trial) + REST {
            self.allow(if len < SHORTEST { Exception::Short } else { Exception::Long });
            return Ok(Output::new());
        }
        if self.second() != self.second {
            self.end_burst()?;
            self.sync_clock(false);
        }
        let found = arrive(&mut self.xdp, trial);
        self.pending.push((trial.clone(), found.clone()));
        Ok(found)
    }

    /// Returns the number of frames passed to the kernel since the last burst ended.
    pub fn burst_len(&self) -> usize {
        self.pending.len()
    }

    /// Passes the frames that the kernel plane received since the last burst to the other plane, in
    /// bursts. Compares the outgoing frames of each frame, then all counters and flows.
    pub fn end_burst(&mut self) -> Result<(), String> {
        let pending = std::mem::take(&mut self.pending);
        // Frames from the kernel arrive through their own ring, and therefore as their own
        // bursts.
        let is_kernels = |(trial, _): &(Trial, Output)| trial.arrival == Arrival::Kernel;
        let parts = pending.chunk_by(|one, next| is_kernels(one) == is_kernels(next));
        for part in parts.flat_map(|part| part.chunks(BURST)) {
            self.compare_burst(part).map_err(|text| format!("{text}{}", list_burst(part)))?;
        }
        if pending.is_empty() {
            return Ok(());
        }
        let same = self.compare_counters().and_then(|()| self.compare_flows());
        same.map_err(|text| {
            format!(
                "after a burst, with tables {}:\n{text}{}",
                self.setup.name,
                list_burst(&pending)
            )
        })
    }

    /// Passes frames to the pipeline as one burst, and compares its outgoing frames with the
    /// kernel's.
    fn compare_burst(&mut self, part: &[(Trial, Output)]) -> Result<(), String> {
        let before = ends(&page(self.memory.loaded()));
        let mut burst = Burst::default();
        for (trial, _) in part {
            let arrival = trial.arrival;
            let frame = match arrival {
                Arrival::Kernel => Frame::new(&trial.bytes),
                _ => Frame::split(&trial.bytes, first(trial), HEADROOM),
            };
            burst.push(frame, trial.arm, arrival);
        }
        let mut left = self.memory.forward(&mut burst).into_iter();
        let exits = burst.packets.iter().map(|work| work.exit);
        for (n, ((trial, found), exit)) in part.iter().zip(exits).enumerate() {
            let taken = usize::from(exit != verdict::Exit::None);
            let expected: Output = left.by_ref().take(taken).collect();
            self.compare_frames(&expected, found).map_err(|text| {
                format!(
                    "number {n} of a burst, {trial:?}{}\n  with tables {}\n{text}",
                    describe(&trial.bytes),
                    self.setup.name
                )
            })?;
        }
        let after = ends(&page(self.memory.loaded()));
        check_counted_once(part.len(), before, after)
    }

    /// Counts a permitted difference.
    fn allow(&mut self, exception: Exception) {
        *self.exceptions.entry(exception).or_default() += 1;
    }

    /// Compares the outgoing frames for one frame: the pipeline's (`expected`) and the kernel's.
    fn compare_frames(&mut self, expected: &Output, found: &Output) -> Result<(), String> {
        if expected == found {
            return Ok(());
        }
        let mut text = String::new();
        for n in 0..expected.len().max(found.len()) {
            match (expected.get(n), found.get(n)) {
                (Some((exit, one)), Some((by, other))) if exit == by => {
                    if without_sum(one, other).as_deref() == Some(other) {
                        self.allow(Exception::OuterSum);
                    } else if let Some(how) = difference(one, other) {
                        text += &format!("  at {exit:?}, the kernel's frame second:{how}");
                    }
                }
                (one, other) => {
                    for (plane, left) in [("memory", one), ("the kernel", other)] {
                        let described = left.map(|(exit, frame)| (exit, describe(frame)));
                        let _ = match described {
                            Some((exit, frame)) => writeln!(text, "  {plane}: {exit:?}{frame}"),
                            None => writeln!(text, "  {plane}: nothing"),
                        };
                    }
                }
            }
        }
        if text.is_empty() {
            return Ok(());
        }
        let counted = self.compare_counters().err().unwrap_or_default();
        Err(text + &counted)
    }

    /// Compares all counters of both planes since their start.
    fn compare_counters(&mut self) -> Result<(), String> {
        let (memory, xdp) = (page(self.memory.loaded()), page(self.xdp.loaded()));
        let (in_memory, kernels) = (totals(&memory), totals(&xdp));
        let before = std::mem::replace(&mut self.totals, in_memory);
        if self.totals == kernels {
            return Ok(());
        }
        let mut text = String::new();
        for (n, name) in names().into_iter().enumerate() {
            let (one, other, before) = (self.totals[n], kernels[n], before[n]);
            if one != before || other != before {
                let (one, other) = (one.wrapping_sub(before), other.wrapping_sub(before));
                let mark = if one == other { "" } else { "  <--" };
                let _ = writeln!(text, "  {name}: memory {one}, the kernel {other}{mark}");
            }
        }
        Err(text)
    }

    /// Compares all flows of both planes.
    fn compare_flows(&mut self) -> Result<(), String> {
        let (in_memory, kernels) = (flows(self.memory.loaded()), flows(self.xdp.loaded()));
        self.flows += in_memory.iter().flatten().count();
        let both = in_memory.iter().zip(&kernels).enumerate();
        let differ =
            both.into_iter().find(|(_, (one, other))| !alike(one.as_ref(), other.as_ref()));
        match differ {
            None => Ok(()),
            Some((path, (one, other))) => Err(format!(
                "flow {path} of tables {}:\n  memory: {one:?}\n  the kernel: {other:?}",
                self.setup.name
            )),
        }
    }

    /// Adds the counters of the current setup to `sums`.
    pub fn end_setup(&mut self) {
        for (name, n) in names().into_iter().zip(totals(&page(self.memory.loaded()))) {
            *self.sums.entry(name).or_default() += n;
        }
    }
}

fn arrive(plane: &mut dyn Plane, trial: &Trial) -> Output {
    match trial.arrival {
        Arrival::Kernel => plane.kernel_sends(trial.arm, &trial.bytes),
        _ => plane.send_split(trial.arm, &trial.bytes, first(trial)),
    }
}

/// Returns the number of bytes in the first buffer.
fn first(trial: &Trial) -> usize {
    trial.first.clamp(SHORTEST, FIRST).min(trial.bytes.len())
}

/// Returns `frame` with an outermost UDP checksum of 0, if that of `other` is 0; `None` if it is
/// not, or if the outermost packet is not UDP.
fn without_sum(frame: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let l3 = if frame.get(12..14)? == [0x81, 0] { 18 } else { 14 };
    let (proto, l4) = match frame.get(l3)? >> 4 {
        4 => (frame.get(l3 + 9)?, l3 + usize::from(frame.get(l3)? & 15) * 4),
        _ => (frame.get(l3 + 6)?, l3 + 40),
    };
    let field = l4 + 6..l4 + 8;
    if *proto != 17 || other.get(field.clone())? != [0, 0] {
        return None;
    }
    let mut frame = frame.to_vec();
    frame.get_mut(field)?.fill(0);
    Some(frame)
}

fn page(loaded: &Loaded) -> LcorePage<'static> {
    loaded.region.counters().lcore(0).expect("the lcore's counter page")
}

fn flows(loaded: &Loaded) -> Vec<Option<Snapshot>> {
    let flows = Flows::new(loaded.region);
    (0..flows.capacity()).map(|path| flows.snapshot(path)).collect()
}

/// Returns whether two flows are equal, except that the times of their last packets may differ by
/// a second: the kernel has its own clock, and on a busy machine a second may begin between setting
/// the clock and the packet.
fn alike(one: Option<&Snapshot>, other: Option<&Snapshot>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) if one.last_seen_s.abs_diff(other.last_seen_s) <= 1 => {
            *one == Snapshot { last_seen_s: one.last_seen_s, ..*other }
        }
        _ => one == other,
    }
}

/// Lcore counters that both planes must agree on: not bursts, which the kernel does not have, nor
/// messages between lcores and slowpath.
const COUNTERS: [Counter; 6] = [
    Counter::AnswersUntracked,
    Counter::AffinitiesUntracked,
    Counter::FlowsUntracked,
    Counter::FragmentsUntracked,
    Counter::GatewayLegChanges,
    Counter::GatewayLegsShared,
];
/// The number of services and of backends to compare; no case has more.
const OBJECTS: u32 = 16;

/// Returns the compared counters of an lcore, in the order of [`names`].
fn totals(page: &LcorePage<'_>) -> Vec<u64> {
    let mut out = Vec::with_capacity(400);
    for arm in 0..2 {
        out.extend(ArmCounter::ALL.iter().map(|counter| page.arm_count(arm, *counter)));
        out.extend(DropReason::ALL.iter().map(|reason| page.dropped(arm, *reason)));
    }
    out.extend(VerdictCounter::ALL.iter().map(|verdict| page.verdict_count(*verdict)));
    out.extend(COUNTERS.map(|counter| page.lcore_count(counter)));
    for id in 0..OBJECTS {
        out.extend(ServiceCounter::ALL.iter().map(|counter| page.service_count(id, *counter)));
        out.extend(ServiceCounter::ALL.iter().map(|counter| page.backend_count(id, *counter)));
    }
    out
}

/// Returns the packets that arrived, that Weir originated, and that ended: sent, passed to the
/// kernel or dropped.
fn ends(page: &LcorePage<'_>) -> [u64; 3] {
    let sum = |counters: &[ArmCounter]| -> u64 {
        let of = |arm| counters.iter().map(move |counter| page.arm_count(arm, *counter));
        (0..2).flat_map(of).sum()
    };
    let dropped: u64 = (0..2)
        .flat_map(|arm| DropReason::ALL.iter().map(move |reason| page.dropped(arm, *reason)))
        .sum();
    [
        sum(&[ArmCounter::RxPackets, ArmCounter::FromKernelPackets]),
        sum(&[ArmCounter::OriginatedPackets]),
        sum(&[ArmCounter::TxPackets, ArmCounter::ToKernelPackets]) + dropped,
    ]
}

/// Lists the frames of a burst, one per line.
fn list_burst(part: &[(Trial, Output)]) -> String {
    let mut text = String::from("\n  the burst:\n");
    for (n, (trial, output)) in part.iter().enumerate() {
        let exits: Vec<&Exit> = output.iter().map(|(exit, _)| exit).collect();
        let _ = writeln!(text, "  {n}: {trial:?} -> {exits:?}");
    }
    text
}

/// Checks that `packets` packets arrived, and that each of them and of the originated ones ended
/// exactly once. `before` and `after` are results of [`ends`].
fn check_counted_once(packets: usize, before: [u64; 3], after: [u64; 3]) -> Result<(), String> {
    let [arrived, made, ended] = std::array::from_fn(|n| after[n].wrapping_sub(before[n]));
    if arrived == packets as u64 && arrived + made == ended {
        return Ok(());
    }
    Err(format!("  counted: {arrived} arrived, {made} originated, {ended} ended"))
}

/// Returns the names of the elements of [`totals`].
fn names() -> Vec<String> {
    let mut out = Vec::new();
    for arm in 0..2 {
        out.extend(ArmCounter::ALL.iter().map(|counter| format!("arm {arm} {}", counter.name())));
        out.extend(DropReason::ALL.iter().map(|reason| format!("drop {}", reason.name())));
    }
    out.extend(VerdictCounter::ALL.iter().map(|verdict| format!("verdict {}", verdict.name())));
    out.extend(COUNTERS.map(|counter| counter.name().to_owned()));
    for id in 0..OBJECTS {
        for what in ["service", "backend"] {
            let name = |counter: &ServiceCounter| format!("{what} {id} {}", counter.name());
            out.extend(ServiceCounter::ALL.iter().map(name));
        }
    }
    out
}
