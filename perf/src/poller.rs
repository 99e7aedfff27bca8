//! One polling lcore of Weir's own cases: it fills what it receives, forwards it, and counts.

use crate::feed::{ANSWER, Answers, Order, REQUEST, Requests};
use crate::meter::Count;
use crate::start::Pair;
use crate::world::{self, Family, Work};
use dpdk_bindings::{Burst as Row, Mbuf, Mempool, clock};
use fastpath::burst::{Arrival, BURST, Burst};
use fastpath::dispatch::{Exits, count_arrivals, dispatch};
use fastpath::lcore::{Lcore, Place};
use fastpath::pipeline;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tables::region::Region;

/// What is timed with `--stages`.
pub const STAGES: [&str; 7] = {
    let [open, find, settle, encap] = pipeline::LOOPS;
    ["receive", "refill", open, find, settle, encap, "dispatch"]
};

/// What went wrong on an lcore.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failed {
    /// The region has no room for it.
    #[error("the region has no room for lcore {0}")]
    Lcore(u32),
    /// Frames of another length than the packets.
    #[error("frames have not {0} bytes: give net_null that size (see README.md)")]
    Size(usize),
    /// The pool is empty.
    #[error("no buffers left for the first packets of all flows")]
    Buffers,
    /// A first packet of a flow was not forwarded.
    #[error("the first packet of flow {0} did not come out on arm {1}")]
    Lost(u32, u8),
}

/// What the lcores and the main thread share.
#[derive(Debug, Default)]
pub struct Switches {
    /// The lcores that forward now, a bit each; the others wait, polling nothing.
    pub active: AtomicU32,
    /// It is over.
    pub stop: AtomicBool,
}

/// Frames of an lcore that are written ahead of their turn where frames are to be cold. Each takes
/// five cache lines (two of its buffer's header, three of its own), together five times a
/// second-level cache of 1 MiB.
pub const WAITING: usize = 16_384;

/// Packets that an lcore forwards, and where they arrive.
pub struct Feed {
    source: Source,
    /// Frames written and not yet forwarded, where frames are to be cold, and how many wait.
    waiting: Option<(VecDeque<Mbuf>, usize)>,
}

/// What writes the packets of a feed.
enum Source {
    /// A gateway: packets of flows from this one on, in that order.
    Gateway(Requests, u32, Order),
    /// Backends.
    Backends(Answers),
}

impl Feed {
    /// Packets from the gateway: of the flows from `first` on, in that order.
    pub fn gateway(requests: Requests, first: u32, order: Order) -> Feed {
        Feed { source: Source::Gateway(requests, first, order), waiting: None }
    }

    /// Packets from backends.
    pub fn backends(answers: Answers) -> Feed {
        Feed { source: Source::Backends(answers), waiting: None }
    }

    /// The same with frames that have left the first two caches before a stage reads them. So many
    /// feeds share the frames that wait.
    pub fn cold(self, feeds: usize) -> Feed {
        let count = WAITING / feeds.max(1);
        Feed { waiting: Some((VecDeque::with_capacity(count + BURST), count)), ..self }
    }

    /// The arm that its packets arrive at, and their bytes.
    fn arm(&self) -> (u8, usize) {
        match self.source {
            Source::Gateway(..) => (0, REQUEST),
            Source::Backends(_) => (1, ANSWER),
        }
    }

    /// Writes the next packet. False when the frame has another length.
    #[inline(always)]
    fn fill(&mut self, frame: &mut [u8]) -> bool {
        match &mut self.source {
            Source::Gateway(requests, first, order) => requests.write(*first + order.step(), frame),
            Source::Backends(answers) => answers.write_next(frame),
        }
    }
}

/// What a polling lcore owns.
pub struct Poller {
    /// Which of the lcores it is.
    pub place: Place,
    /// Its ports: one for both ways, or the arms' (`net_null`, whose buffers are filled here).
    pub pairs: Vec<Pair>,
    /// What it is fed with, a burst of each in turn.
    pub feeds: Vec<Feed>,
    /// What the packets ask for.
    pub work: Work,
    /// Whether to time the stages.
    pub stages: bool,
    /// Packets that a poll asks for.
    pub burst: usize,
    /// Packets that went through.
    pub count: Arc<Count>,
    /// When to forward and when to stop.
    pub switches: Arc<Switches>,
    /// Ticks by stage.
    pub spent: [u64; STAGES.len()],
}

/// Frames leave by their arm's row.
struct Rows<'a>(&'a mut [Row<BURST>; 2]);

impl Exits<Mbuf> for Rows<'_> {
    #[inline(always)]
    fn port(&mut self, arm: u8, buffer: Mbuf) {
        // A row has as much room as a burst.
        drop(self.0[usize::from(arm & 1)].push(buffer));
    }

    fn kernel(&mut self, _: u8, _: Mbuf) -> bool {
        false
    }
}

/// Sends the first packet of each of so many flows, as `requests` writes them, and learns what
/// backends will answer. In the order of their numbers, so that what is remembered of them lies in
/// another order than that in which they are met later.
///
/// # Errors
/// [`Failed`]; each packet must come out where its work says.
pub fn begin_flows(
    region: &Region,
    place: Place,
    pool: &Mempool,
    (work, family): (Work, Family),
    (flows, requests): (u32, &Requests),
) -> Result<Answers, Failed> {
    let lcore = Lcore::join(region, place).ok_or(Failed::Lcore(place.index))?;
    let mut answers = Answers::new(work, family);
    let mut way = Way { lcore, pool, burst: Burst::default(), rows: [Row::new(), Row::new()] };
    let begun = !matches!(work, Work::Return | Work::Elsewhere);
    for first in (0..flows).step_by(BURST) {
        let last = flows.min(first + BURST as u32);
        let request = |flow, frame: &mut [u8]| requests.write(flow, frame);
        let out = way.send(first..last, u8::from(begun), REQUEST, request)?;
        match work {
            Work::Nat => out.iter().for_each(|packet| answers.learn(&packet.bytes()[14..])),
            Work::Tunnel => {
                let mut frame = [0; REQUEST];
                for flow in first..last {
                    if !requests.write(flow, &mut frame) {
                        return Err(Failed::Size(REQUEST));
                    }
                    answers.learn(&frame[REQUEST - 64..]);
                }
            }
            Work::Return | Work::Elsewhere | Work::Refill => {}
        }
        if begun {
            // An answer and one more request: the connection is established, as most are.
            way.send(first..last, 0, ANSWER, |flow, frame| answers.write(flow, frame))?;
            way.send(first..last, 1, REQUEST, request)?;
        }
    }
    Ok(answers)
}

/// What packets are sent by while nothing is measured yet.
struct Way<'a> {
    lcore: Lcore<'a>,
    pool: &'a Mempool,
    burst: Burst<Mbuf>,
    rows: [Row<BURST>; 2],
}

impl Way<'_> {
    /// Sends a packet of `len` bytes for each flow, written by `write`, from the gateway's arm,
    /// or for answers the backends'. All must leave by arm `to`; gives what left.
    fn send(
        &mut self,
        flows: Range<u32>,
        to: u8,
        len: usize,
        write: impl Fn(u32, &mut [u8]) -> bool,
    ) -> Result<&[Mbuf], Failed> {
        let (count, mut fresh) = (flows.len(), Row::<BURST>::new());
        if !self.pool.alloc_bulk(&mut fresh, count) {
            return Err(Failed::Buffers);
        }
        let from = u8::from(len == ANSWER);
        for (flow, mut packet) in flows.clone().zip(fresh.drain()) {
            let bytes = packet.append(len).ok_or(Failed::Buffers)?;
            if !write(flow, bytes) {
                return Err(Failed::Size(len));
            }
            self.burst.push(packet, from, Arrival::Plain);
        }
        self.rows.iter_mut().for_each(Row::clear);
        self.lcore.forward(&mut self.burst, &mut Rows(&mut self.rows));
        let out = self.rows[usize::from(to)].as_slice();
        if out.len() != count {
            return Err(Failed::Lost(flows.start + out.len() as u32, to));
        }
        Ok(out)
    }
}

impl Poller {
    /// Forwards until it is told to stop, and says what the stages took.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn run(mut self, region: &Region) -> Result<[u64; STAGES.len()], Failed> {
        let joined = Lcore::join(region, self.place);
        let mut lcore = joined.ok_or(Failed::Lcore(self.place.index))?;
        let mut rows = [Row::new(), Row::new()];
        let mut burst = Burst::default();
        let mut feeds = std::mem::take(&mut self.feeds);
        while !self.switches.stop.load(Ordering::Relaxed) {
            if self.switches.active.load(Ordering::Relaxed) >> self.place.index & 1 == 0 {
                std::hint::spin_loop();
                continue;
            }
            // What a turn costs beside its packets is Weir's, not the writing's.
            if self.work != Work::Refill {
                lcore.turn();
            }
            for feed in &mut feeds {
                let got = self.turn(feed, &lcore, &mut burst, &mut rows)?;
                self.count.add(got as u64);
            }
        }
        Ok(self.spent)
    }

    /// A burst of a feed's, from end to end.
    #[inline(always)]
    fn turn(
        &mut self,
        feed: &mut Feed,
        lcore: &Lcore<'_>,
        burst: &mut Burst<Mbuf>,
        rows: &mut [Row<BURST>; 2],
    ) -> Result<usize, Failed> {
        let (arm, size) = feed.arm();
        let mut row = Row::<BURST>::new();
        let mut mark = self.mark();
        let rx = &mut self.pairs[usize::from(arm)].rx;
        let mut got = rx.receive_at_most(&mut row, self.burst);
        self.lap(0, &mut mark);
        let refill = self.pairs.len() == 2;
        for packet in row.as_mut_slice() {
            if refill && !feed.fill(packet.bytes_mut()) {
                return Err(Failed::Size(size));
            }
        }
        if let Some((waiting, count)) = &mut feed.waiting {
            got = delay(waiting, *count, &mut row);
        }
        for packet in row.drain() {
            if self.work == Work::Refill {
                Rows(rows).port(1, packet);
            } else {
                burst.push(packet, arm, Arrival::Plain);
            }
        }
        self.lap(1, &mut mark);
        if self.work != Work::Refill {
            self.forward(lcore, burst, rows, mark);
        }
        for (arm, row) in rows.iter_mut().enumerate().filter(|(_, row)| !row.is_empty()) {
            let port = arm.min(self.pairs.len() - 1);
            self.pairs[port].tx.send(row);
            row.clear();
        }
        Ok(got)
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

    /// Books the ticks since `mark` on a stage.
    #[inline(always)]
    fn lap(&mut self, stage: usize, mark: &mut u64) {
        if self.stages {
            let now = clock::ticks();
            self.spent[stage] += now - *mark;
            *mark = now;
        }
    }
}

/// Puts a burst at the end of those that wait, and takes the first one out once there are enough.
/// The headers of the buffers that follow are asked for, because a driver writes them just before
/// it hands them over; the frames are asked for as the poll loop does.
fn delay(waiting: &mut VecDeque<Mbuf>, count: usize, row: &mut Row<BURST>) -> usize {
    let came = row.len();
    waiting.extend(row.drain());
    if waiting.len() < count {
        return 0;
    }
    waiting.range(came..(2 * came).min(waiting.len())).for_each(Mbuf::prefetch);
    for packet in waiting.drain(..came) {
        packet.prefetch_frame();
        // As many leave as came, so the row has room.
        drop(row.push(packet));
    }
    came
}

/// The place of an lcore in these cases.
pub fn place(index: u32, count: u32) -> Place {
    Place { index, count, epoch: 1, macs: world::MACS }
}
