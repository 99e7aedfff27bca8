//! Weir's own journey on one lcore: the stages between a port's receive and transmit calls.
//!
//!   journey <EAL arguments> -- --work return --flows 1024 --seconds 8 [--stages]
//!
//! With one port, what arrives there is forwarded and leaves there again. Between two `net_null`
//! ports, which give buffers without contents, each received buffer is filled with the next flow's
//! packet before the stages see it. That filling is part of the figure; `--work refill` measures it
//! alone. With `--stages` the time of each stage is told too.

use clap::Parser;
use dpdk_bindings::{Burst as Row, Eal, Mbuf, Mempool, Port, PortOptions, RxQueue, TxQueue, clock};
use dpdk_bindings::{lcore, port::Queues};
use fastpath::burst::{Arrival, BURST, Burst};
use fastpath::dispatch::{Exits, count_arrivals, dispatch};
use fastpath::lcore::{Lcore, Place};
use fastpath::{classify, decap, encap, parse, select, track};
use perf::meter::{self, Count};
use perf::world::{self, Feed, Work};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tables::flow::Flows;
use tables::region::Region;

/// What to measure; everything before `--` goes to DPDK.
#[derive(Parser)]
#[command(name = "journey")]
struct Arguments {
    /// What the packets ask for.
    #[arg(long, value_enum, default_value = "return")]
    work: Work,
    /// Different flows, in shuffled order.
    #[arg(long, default_value_t = 1024)]
    flows: u32,
    /// Seconds to run.
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Also tell the nanoseconds of each stage.
    #[arg(long)]
    stages: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let mut parts = all.splitn(2, |argument| argument == "--");
    let eal_arguments = parts.next().unwrap_or_default();
    let own = std::iter::once("journey".to_string());
    let arguments = Arguments::parse_from(own.chain(parts.next().unwrap_or_default().to_vec()));

    let eal = Eal::start(eal_arguments)?;
    let pool = Mempool::create(&eal, "frames", 8191, 250, 2176, -1)?;
    let mut queues = Vec::new();
    let mut ports = Vec::new();
    for name in Port::names(&eal) {
        let mut port = Port::by_name(&eal, &name)?;
        let options = PortOptions {
            rx_queues: 1,
            tx_queues: 1,
            rx_ring: 512,
            tx_ring: 512,
            mtu: None,
            rss: false,
            pool: &pool,
        };
        port.configure(&options)?;
        let Queues { rx, tx, .. } = port.start()?;
        queues.extend(rx.into_iter().zip(tx));
        ports.push(port);
    }
    if queues.is_empty() || queues.len() > 2 {
        return Err("one port, or two net_null ports, please".into());
    }
    let region = Arc::new(Region::anonymous(&world::sizes(arguments.flows))?);
    world::furnish(&region, arguments.work)?;
    Flows::new(&region).recover();
    let worker = lcore::workers(&eal).into_iter().next().ok_or("no second lcore: see -l")?;

    let (count, stop) = (Count::new(), Arc::new(AtomicBool::new(false)));
    let bench = Bench {
        queues,
        rows: [Row::new(), Row::new()],
        feed: Feed::new(arguments.flows),
        work: arguments.work,
        stages: arguments.stages,
        count: Arc::clone(&count),
        stop: Arc::clone(&stop),
        spent: [0; STAGES.len()],
    };
    let job = lcore::launch(&eal, worker, move || bench.run(&region))?;
    meter::tell(&count, arguments.seconds);
    stop.store(true, Ordering::Relaxed);
    let spent = job.wait().map_err(|_| "the polling lcore panicked")?;
    if arguments.stages {
        let per_packet = 1e9 / clock::ticks_per_second(&eal) as f64 / count.get() as f64;
        for (stage, ticks) in STAGES.iter().zip(spent) {
            println!("stage {stage:9} {:6.1} ns", ticks as f64 * per_packet);
        }
    }
    Ok(())
}

const STAGES: [&str; 9] =
    ["receive", "refill", "parse", "decap", "classify", "track", "select", "encap", "dispatch"];

/// What the polling lcore owns.
struct Bench {
    queues: Vec<(RxQueue, TxQueue)>,
    rows: [Row<BURST>; 2],
    feed: Feed,
    work: Work,
    stages: bool,
    count: Arc<Count>,
    stop: Arc<AtomicBool>,
    spent: [u64; STAGES.len()],
}

/// Frames leave by their arm's row.
struct Rows<'a>(&'a mut [Row<BURST>; 2]);

impl Exits<Mbuf> for Rows<'_> {
    #[inline(always)]
    fn port(&mut self, arm: u8, mut buffer: Mbuf) {
        buffer.reset_offloads();
        // A burst has no more packets than a row has room.
        drop(self.0[usize::from(arm & 1)].push(buffer));
    }

    fn kernel(&mut self, _: u8, _: Mbuf) -> bool {
        false
    }
}

impl Bench {
    fn run(mut self, region: &Region) -> [u64; STAGES.len()] {
        let place = Place { index: 0, count: 1, epoch: 1, macs: world::MACS };
        let Some(mut lcore) = Lcore::join(region, place) else { return self.spent };
        let mut burst = Burst::default();
        let mut row = Row::<BURST>::new();
        while !self.stop.load(Ordering::Relaxed) {
            lcore.turn();
            let mut mark = self.mark();
            let got = self.queues[0].0.receive(&mut row);
            self.lap(0, &mut mark);
            let refill = self.queues.len() == 2;
            for mut packet in row.drain() {
                if refill {
                    self.feed.write(packet.bytes_mut());
                }
                if self.work == Work::Refill {
                    Rows(&mut self.rows).port(1, packet);
                } else {
                    burst.push(packet, 0, Arrival::Plain);
                }
            }
            self.lap(1, &mut mark);
            if self.work != Work::Refill {
                self.forward(&mut lcore, &mut burst, mark);
            }
            for arm in 0..2 {
                let port = arm.min(self.queues.len() - 1);
                self.queues[port].1.send(&mut self.rows[arm]);
                self.rows[arm].clear();
            }
            self.count.add(got as u64);
        }
        self.spent
    }

    #[inline(always)]
    fn forward(&mut self, lcore: &mut Lcore<'_>, burst: &mut Burst<Mbuf>, mut mark: u64) {
        if !self.stages {
            return lcore.forward(burst, &mut Rows(&mut self.rows));
        }
        count_arrivals(burst, lcore);
        parse::parse(burst, lcore.macs());
        self.lap(2, &mut mark);
        decap::decap(burst, lcore);
        self.lap(3, &mut mark);
        classify::classify(burst, lcore);
        self.lap(4, &mut mark);
        track::track(burst, lcore);
        self.lap(5, &mut mark);
        select::select(burst, lcore);
        self.lap(6, &mut mark);
        encap::encap(burst, lcore);
        self.lap(7, &mut mark);
        dispatch(burst, lcore, &mut Rows(&mut self.rows));
        self.lap(8, &mut mark);
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
