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

/// What a polling lcore owns.
pub struct Poller {
    /// Which of the lcores it is.
    pub place: Place,
    /// Its ports: one for both ways, or the arms' (`net_null`, whose buffers are filled here).
    pub pairs: Vec<Pair>,
    /// What it is fed with by the gateway, and which flows' packets in which order.
    pub requests: Requests,
    /// The flows, from the first one named here on.
    pub order: (u32, Order),
    /// What it is fed with by backends, if it is.
    pub answers: Option<Answers>,
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

/// Sends the first packet of each of so many flows, which come by so many pairs of a gateway's
/// endpoint and node, and learns what backends will answer. In the
/// order of their numbers, so that what is remembered of them lies in another order than that in
/// which they are met later.
///
/// # Errors
/// [`Failed`]; each packet must come out where its work says.
pub fn begin_flows(
    region: &Region,
    place: Place,
    pool: &Mempool,
    (work, family): (Work, Family),
    (flows, pairs): (u32, u32),
) -> Result<Answers, Failed> {
    let lcore = Lcore::join(region, place).ok_or(Failed::Lcore(place.index))?;
    let requests = Requests::by_pairs(work, family, pairs);
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
        while !self.switches.stop.load(Ordering::Relaxed) {
            if self.switches.active.load(Ordering::Relaxed) >> self.place.index & 1 == 0 {
                std::hint::spin_loop();
                continue;
            }
            // What a turn costs beside its packets is Weir's, not the writing's.
            if self.work != Work::Refill {
                lcore.turn();
            }
            let mut got = self.turn::<0>(&lcore, &mut burst, &mut rows)?;
            if self.answers.is_some() {
                got += self.turn::<1>(&lcore, &mut burst, &mut rows)?;
            }
            self.count.add(got as u64);
        }
        Ok(self.spent)
    }

    /// A burst of an arm's, from end to end.
    #[inline(always)]
    fn turn<const ARM: u8>(
        &mut self,
        lcore: &Lcore<'_>,
        burst: &mut Burst<Mbuf>,
        rows: &mut [Row<BURST>; 2],
    ) -> Result<usize, Failed> {
        let mut row = Row::<BURST>::new();
        let mut mark = self.mark();
        let got = self.pairs[usize::from(ARM)].rx.receive_at_most(&mut row, self.burst);
        self.lap(0, &mut mark);
        let refill = self.pairs.len() == 2;
        for mut packet in row.drain() {
            if refill && !self.fill::<ARM>(packet.bytes_mut()) {
                let size = [crate::feed::REQUEST, crate::feed::ANSWER];
                return Err(Failed::Size(size[usize::from(ARM)]));
            }
            if self.work == Work::Refill {
                Rows(rows).port(1, packet);
            } else {
                burst.push(packet, ARM, Arrival::Plain);
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
    fn fill<const ARM: u8>(&mut self, frame: &mut [u8]) -> bool {
        match &mut self.answers {
            Some(answers) if ARM == 1 => answers.write_next(frame),
            _ => self.requests.write(self.order.0 + self.order.1.step(), frame),
        }
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

/// The place of an lcore in these cases.
pub fn place(index: u32, count: u32) -> Place {
    Place { index, count, epoch: 1, macs: world::MACS }
}
