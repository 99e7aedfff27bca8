//! One polling lcore of Weir's own cases: it fills received buffers with packets, forwards them,
//! and counts them.

use crate::feed::{ANSWER, Answers, Order, REQUEST, Requests};
use crate::fixture::{self, Family, Workload};
use crate::meter::Count;
use crate::start::StartedPort;
use dpdk_bindings::{Burst as Row, Mbuf, Mempool, clock};
use fastpath::burst::{Arrival, BURST, Burst};
use fastpath::capture::Taps;
use fastpath::dispatch::{Exits, count_arrivals, dispatch};
use fastpath::lcore::{Lcore, LcoreConfig};
use fastpath::pipeline;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tables::region::Region;

/// The stages that `--stages` times.
pub const STAGES: [&str; 7] = {
    let [parse, find, decide, encap] = pipeline::LOOPS;
    ["receive", "refill", parse, find, decide, encap, "dispatch"]
};

/// An error on an lcore.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PollerError {
    /// The region has no capacity for the lcore.
    #[error("the region has no status line for lcore {0}")]
    Lcore(u32),
    /// The frames' length differs from the packets'.
    #[error("frames do not have {0} bytes: set `size={0}` for net_null (see perf/README.md)")]
    Size(usize),
    /// The pool is empty.
    #[error("no buffers left for the first packets of all flows")]
    Buffers,
    /// The first packet of a flow was not forwarded.
    #[error("the first packet of flow {0} was not sent on arm {1}")]
    Lost(u32, u8),
}

/// The state that lcores and the main thread share.
#[derive(Debug, Default)]
pub struct Switches {
    /// The lcores that forward now, one bit each; the others wait without polling.
    pub active: AtomicU32,
    /// Set at the end of the measurement.
    pub stop: AtomicBool,
}

/// Number of frames that an lcore writes ahead of their use if frames are to be cold. Each takes
/// five cache lines (two of its buffer's header, three of its own); together they take five times
/// an L2 cache of 1 MiB.
pub const WAITING: usize = 16_384;

/// The packets that an lcore forwards, and the arm at which they arrive.
pub struct Feed {
    source: Source,
    /// If frames are to be cold: frames written and not yet forwarded, and how many of them must
    /// wait.
    waiting: Option<(VecDeque<Mbuf>, usize)>,
}

/// The source of a feed's packets.
enum Source {
    /// A gateway: the first flow's number, and the order of the flows after it.
    Gateway(Requests, u32, Order),
    /// Backends.
    Backends(Answers),
}

impl Feed {
    /// Creates a feed of a gateway's packets: flows from `first` on, in this order.
    pub fn gateway(requests: Requests, first: u32, order: Order) -> Feed {
        Feed { source: Source::Gateway(requests, first, order), waiting: None }
    }

    /// Creates a feed of backends' packets.
    pub fn backends(answers: Answers) -> Feed {
        Feed { source: Source::Backends(answers), waiting: None }
    }

    /// Evicts frames from the L1 and L2 caches before a stage reads them. `feeds` feeds share the
    /// waiting frames.
    pub fn cold(self, feeds: usize) -> Feed {
        let count = WAITING / feeds.max(1);
        Feed { waiting: Some((VecDeque::with_capacity(count + BURST), count)), ..self }
    }

    /// Returns the arm at which its packets arrive, and their length in bytes.
    fn arm(&self) -> (u8, usize) {
        match self.source {
            Source::Gateway(..) => (0, REQUEST),
            Source::Backends(_) => (1, ANSWER),
        }
    }

    /// Writes the next packet. Returns false if the frame has another length.
    #[inline(always)]
    fn fill(&mut self, frame: &mut [u8]) -> bool {
        match &mut self.source {
            Source::Gateway(requests, first, order) => requests.write(*first + order.step(), frame),
            Source::Backends(answers) => answers.write_next(frame),
        }
    }
}

/// The state of a polling lcore.
pub struct Poller {
    /// The lcore's index, the number of lcores, and Weir's MAC addresses.
    pub config: LcoreConfig,
    /// Its ports: one for both directions, or one per arm (`net_null`, whose buffers are filled
    /// here).
    pub ports: Vec<StartedPort>,
    /// The feeds, used in turn, one burst each.
    pub feeds: Vec<Feed>,
    /// The handling of the packets.
    pub work: Workload,
    /// Whether to time the stages.
    pub stages: bool,
    /// Maximum packets per poll.
    pub burst: usize,
    /// Forwarded packets.
    pub count: Arc<Count>,
    /// Whether to forward now, and whether to stop.
    pub switches: Arc<Switches>,
    /// The captures that are on.
    pub taps: Taps,
    /// Ticks by stage.
    pub spent: [u64; STAGES.len()],
}

/// Collects frames in the row of their arm.
struct Rows<'a>(&'a mut [Row<BURST>; 2]);

impl Exits<Mbuf> for Rows<'_> {
    #[inline(always)]
    fn port(&mut self, arm: u8, buffer: Mbuf) {
        // A row's capacity is that of a burst.
        drop(self.0[usize::from(arm & 1)].push(buffer));
    }

    fn kernel(&mut self, _: u8, _: Mbuf) -> bool {
        false
    }
}

/// Sends the first packet of each of `flows` flows, as `requests` writes them, and records the
/// backends' answers. The flows begin in the order of their numbers, so that their table entries
/// lie in another order than the one in which they are used later.
///
/// # Errors
/// [`PollerError`]; each packet must leave as its work demands.
pub fn begin_flows(
    region: &Region,
    config: LcoreConfig,
    pool: &Mempool,
    (work, family): (Workload, Family),
    (flows, requests): (u32, &Requests),
) -> Result<Answers, PollerError> {
    let lcore = Lcore::join(region, config).ok_or(PollerError::Lcore(config.index))?;
    let mut answers = Answers::new(work, family);
    let mut warmup =
        Warmup { lcore, pool, burst: Burst::default(), rows: [Row::new(), Row::new()] };
    let creates_flows = !matches!(work, Workload::Return | Workload::Elsewhere);
    for first in (0..flows).step_by(BURST) {
        let last = flows.min(first + BURST as u32);
        let request = |flow, frame: &mut [u8]| requests.write(flow, frame);
        let out = warmup.send(first..last, u8::from(creates_flows), REQUEST, request)?;
        match work {
            Workload::Nat => out.iter().for_each(|packet| answers.learn(&packet.bytes()[14..])),
            Workload::Tunnel => {
                let mut frame = [0; REQUEST];
                for flow in first..last {
                    if !requests.write(flow, &mut frame) {
                        return Err(PollerError::Size(REQUEST));
                    }
                    answers.learn(&frame[REQUEST - 64..]);
                }
            }
            Workload::Return | Workload::Elsewhere | Workload::Refill => {}
        }
        if creates_flows {
            // An answer and one more request: the connection is established, as most are.
            warmup.send(first..last, 0, ANSWER, |flow, frame| answers.write(flow, frame))?;
            warmup.send(first..last, 1, REQUEST, request)?;
        }
    }
    Ok(answers)
}

/// Sends packets before the measurement begins.
struct Warmup<'a> {
    lcore: Lcore<'a>,
    pool: &'a Mempool,
    burst: Burst<Mbuf>,
    rows: [Row<BURST>; 2],
}

impl Warmup<'_> {
    /// Sends a packet of `len` bytes for each flow, written by `write`, from the gateway's arm
    /// or, for answers, the backends'. All must leave by arm `to`; returns the frames.
    fn send(
        &mut self,
        flows: Range<u32>,
        to: u8,
        len: usize,
        write: impl Fn(u32, &mut [u8]) -> bool,
    ) -> Result<&[Mbuf], PollerError> {
        let (count, mut fresh) = (flows.len(), Row::<BURST>::new());
        if !self.pool.alloc_bulk(&mut fresh, count) {
            return Err(PollerError::Buffers);
        }
        let from = u8::from(len == ANSWER);
        for (flow, mut packet) in flows.clone().zip(fresh.drain()) {
            let bytes = packet.append(len).ok_or(PollerError::Buffers)?;
            if !write(flow, bytes) {
                return Err(PollerError::Size(len));
            }
            self.burst.push(packet, from, Arrival::Plain);
        }
        self.rows.iter_mut().for_each(Row::clear);
        self.lcore.forward(&mut self.burst, &mut Rows(&mut self.rows));
        let out = self.rows[usize::from(to)].as_slice();
        if out.len() != count {
            return Err(PollerError::Lost(flows.start + out.len() as u32, to));
        }
        Ok(out)
    }
}

impl Poller {
    /// Forwards until stopped, and returns the ticks of the stages.
    ///
    /// # Errors
    /// [`PollerError`].
    pub fn run(mut self, region: &Region) -> Result<[u64; STAGES.len()], PollerError> {
        let joined = Lcore::join(region, self.config);
        let mut lcore = joined.ok_or(PollerError::Lcore(self.config.index))?;
        lcore.exchange_taps(&mut self.taps);
        let mut rows = [Row::new(), Row::new()];
        let mut burst = Burst::default();
        let mut feeds = std::mem::take(&mut self.feeds);
        while !self.switches.stop.load(Ordering::Relaxed) {
            if self.switches.active.load(Ordering::Relaxed) >> self.config.index & 1 == 0 {
                std::hint::spin_loop();
                continue;
            }
            // The fixed cost of an iteration is part of Weir's cases, but not of `refill`, which
            // measures the writing of frames.
            if self.work != Workload::Refill {
                lcore.run_periodic();
            }
            for feed in &mut feeds {
                let received = self.process_burst(feed, &lcore, &mut burst, &mut rows)?;
                self.count.add(received as u64);
            }
        }
        Ok(self.spent)
    }

    /// Processes one burst of a feed from receive to transmit.
    #[inline(always)]
    fn process_burst(
        &mut self,
        feed: &mut Feed,
        lcore: &Lcore<'_>,
        burst: &mut Burst<Mbuf>,
        rows: &mut [Row<BURST>; 2],
    ) -> Result<usize, PollerError> {
        let (arm, size) = feed.arm();
        let mut row = Row::<BURST>::new();
        let mut mark = self.mark();
        let rx = &mut self.ports[usize::from(arm)].rx;
        let mut received = rx.receive_at_most(&mut row, self.burst);
        self.lap(0, &mut mark);
        let refill = self.ports.len() == 2;
        for packet in row.as_mut_slice() {
            if refill && !feed.fill(packet.bytes_mut()) {
                return Err(PollerError::Size(size));
            }
        }
        if let Some((waiting, count)) = &mut feed.waiting {
            received = delay(waiting, *count, &mut row);
        }
        for packet in row.drain() {
            if self.work == Workload::Refill {
                Rows(rows).port(1, packet);
            } else {
                burst.push(packet, arm, Arrival::Plain);
            }
        }
        self.lap(1, &mut mark);
        if self.work != Workload::Refill {
            self.forward(lcore, burst, rows, mark);
        }
        for (arm, row) in rows.iter_mut().enumerate().filter(|(_, row)| !row.is_empty()) {
            let port = arm.min(self.ports.len() - 1);
            self.ports[port].tx.send(row);
            row.clear();
        }
        Ok(received)
    }

    #[inline(always)]
    fn forward(
        &mut self,
        lcore: &Lcore<'_>,
        burst: &mut Burst<Mbuf>,
        rows: &mut [Row<BURST>; 2],
        mut mark: u64,
    ) {
        if !self.stages {
            return lcore.forward(burst, &mut Rows(rows));
        }
        count_arrivals(burst, lcore);
        pipeline::loops(burst, lcore, |done| self.lap(2 + done, &mut mark));
        dispatch(burst, lcore, &mut Rows(rows));
        self.lap(2 + pipeline::LOOPS.len(), &mut mark);
    }

    #[inline(always)]
    fn mark(&self) -> u64 {
        if self.stages { clock::ticks() } else { 0 }
    }

    /// Adds the ticks since `mark` to a stage.
    #[inline(always)]
    fn lap(&mut self, stage: usize, mark: &mut u64) {
        if self.stages {
            let now = clock::ticks();
            self.spent[stage] += now - *mark;
            *mark = now;
        }
    }
}

/// Appends a burst to the waiting frames, and takes the oldest ones out once enough are waiting.
/// Returns how many were taken out. Prefetches the headers of the buffers that follow, because a
/// driver would write these just before it hands them over; prefetches the frames as the poll loop
/// does.
fn delay(waiting: &mut VecDeque<Mbuf>, count: usize, row: &mut Row<BURST>) -> usize {
    let received = row.len();
    waiting.extend(row.drain());
    if waiting.len() < count {
        return 0;
    }
    waiting.range(received..(2 * received).min(waiting.len())).for_each(Mbuf::prefetch);
    for packet in waiting.drain(..received) {
        packet.prefetch_frame();
        // As many leave as arrived, so the row has capacity.
        drop(row.push(packet));
    }
    received
}

/// Returns the configuration of lcore `index` of `count`.
pub fn lcore_config(index: u32, count: u32) -> LcoreConfig {
    LcoreConfig { index, count, epoch: 1, macs: fixture::MACS }
}
