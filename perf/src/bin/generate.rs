//! Sends frames into a port as fast as it takes them and counts what comes back.
//!
//!   generate <EAL arguments> -- --kind aws --flows 1024 --seconds 8
//!
//! One lcore does both, so a port's two directions share it. Prints `Mpps <rate of frames that came
//! back>` once a second, and a summary at the end.

use clap::Parser;
use dpdk_bindings::{Burst, Eal, Mempool, Port, PortOptions, RxQueue, TxQueue, lcore};
use perf::frames::{self, Kind};
use perf::meter::{self, Count};
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What to send; everything before `--` goes to DPDK.
#[derive(Parser)]
#[command(name = "generate")]
struct Arguments {
    /// What the frames are.
    #[arg(long, value_enum, default_value = "aws")]
    kind: Kind,
    /// Different flows, sent in turn (1 to 65536).
    #[arg(long, default_value_t = 1024)]
    flows: usize,
    /// Seconds to run.
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Send only, and count what was sent.
    #[arg(long)]
    one_way: bool,
}

/// Frames in a burst, as the forwarders take them.
const BURST: usize = 32;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("generate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let mut parts = all.splitn(2, |argument| argument == "--");
    let eal_arguments = parts.next().unwrap_or_default();
    let own = std::iter::once("generate".to_string());
    let arguments = Arguments::parse_from(own.chain(parts.next().unwrap_or_default().to_vec()));

    let eal = Eal::start(eal_arguments)?;
    let pool = Mempool::create(&eal, "frames", 8191, 250, 2176, -1)?;
    let name = Port::names(&eal).into_iter().next().ok_or("no port: give DPDK a --vdev")?;
    let mut port = Port::by_name(&eal, &name)?;
    port.configure(&PortOptions {
        rx_queues: 1,
        tx_queues: 1,
        rx_ring: 512,
        tx_ring: 512,
        mtu: None,
        rss: false,
        pool: &pool,
    })?;
    let mut queues = port.start()?;
    let (Some(rx), Some(tx)) = (queues.rx.pop(), queues.tx.pop()) else {
        return Err("the port has no queues".into());
    };
    let worker = lcore::workers(&eal).into_iter().next().ok_or("no second lcore: see -l")?;

    let (sent, back) = (Count::new(), Count::new());
    let stop = Arc::new(AtomicBool::new(false));
    let generator = Generator {
        frames: frames::frames(arguments.kind, arguments.flows),
        pool,
        sent: Arc::clone(&sent),
        back: Arc::clone(&back),
        stop: Arc::clone(&stop),
    };
    let job = lcore::launch(&eal, worker, move || generator.run(rx, tx))?;
    meter::tell(if arguments.one_way { &sent } else { &back }, arguments.seconds);
    stop.store(true, Ordering::Relaxed);
    if job.wait().is_err() {
        return Err("the polling lcore panicked".into());
    }
    println!("sent {} came back {}", sent.get(), back.get());
    Ok(())
}

/// What the polling lcore owns.
struct Generator {
    frames: Vec<Vec<u8>>,
    pool: Mempool,
    sent: Arc<Count>,
    back: Arc<Count>,
    stop: Arc<AtomicBool>,
}

impl Generator {
    fn run(self, mut rx: RxQueue, mut tx: TxQueue) {
        let mut outgoing = Burst::<BURST>::new();
        let mut incoming = Burst::<BURST>::new();
        let mut next = 0;
        while !self.stop.load(Ordering::Relaxed) {
            // What the port does not take now is offered again before anything new is made.
            if outgoing.is_empty() && self.pool.alloc_bulk(&mut outgoing, BURST) {
                for packet in outgoing.as_mut_slice() {
                    let frame = &self.frames[next];
                    if let Some(bytes) = packet.append(frame.len()) {
                        bytes.copy_from_slice(frame);
                    }
                    next = if next + 1 == self.frames.len() { 0 } else { next + 1 };
                }
            }
            self.sent.add(tx.send(&mut outgoing) as u64);
            self.back.add(rx.receive(&mut incoming) as u64);
            incoming.clear();
        }
    }
}
