//! Sends frames into a port as fast as the port accepts them and counts those that return.
//!
//!   generate <EAL arguments> -- --kind aws --flows 1024 --seconds 8
//!
//! One lcore sends and receives. Prints `Mpps <rate of returned frames>` once a second (of sent
//! frames with `--one-way`), and the numbers of both at the end.

#![forbid(unsafe_code)]

use clap::Parser;
use dpdk_bindings::{Burst, Eal, Mempool, lcore};
use perf::frames::{self, Kind};
use perf::meter::{self, Count};
use perf::start::{self, StartedPort};
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Send frames into a port and count those that return; arguments before `--` go to DPDK.
#[derive(Parser)]
#[command(name = "generate")]
struct Arguments {
    /// Choose the frames to send.
    #[arg(long, value_enum, default_value = "aws")]
    kind: Kind,
    /// Set the number of flows, sent in turn (1 to 65536).
    #[arg(long, default_value_t = 1024)]
    flows: usize,
    /// Set the seconds to run.
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Send only, and count the sent frames.
    #[arg(long)]
    one_way: bool,
}

/// Frames per burst, as in the forwarders.
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
    let (eal_arguments, arguments) = start::arguments::<Arguments>("generate");
    let eal = Eal::start(&eal_arguments)?;
    let pool = start::pool(&eal, 0)?;
    let port = start::start_ports(&eal, &pool)?.into_iter().next();
    let port = port.ok_or("no port: pass a --vdev to DPDK")?;
    let worker = lcore::workers(&eal).into_iter().next().ok_or("no worker: pass -l 0,1")?;

    let (sent, back) = (Count::new(), Count::new());
    let stop = Arc::new(AtomicBool::new(false));
    let generator = Generator {
        frames: frames::frames(arguments.kind, arguments.flows),
        pool,
        sent: Arc::clone(&sent),
        back: Arc::clone(&back),
        stop: Arc::clone(&stop),
    };
    let job = lcore::launch(&eal, worker, move || generator.run(port))?;
    let counts = if arguments.one_way { &sent } else { &back };
    meter::print_rates(counts, arguments.seconds, || Ok(()))?;
    stop.store(true, Ordering::Relaxed);
    if job.wait().is_err() {
        return Err("the polling lcore panicked".into());
    }
    println!("sent {} returned {}", sent.get(), back.get());
    Ok(())
}

/// The state of the polling lcore.
struct Generator {
    frames: Vec<Vec<u8>>,
    pool: Mempool,
    sent: Arc<Count>,
    back: Arc<Count>,
    stop: Arc<AtomicBool>,
}

impl Generator {
    fn run(self, mut port: StartedPort) {
        let mut outgoing = Burst::<BURST>::new();
        let mut incoming = Burst::<BURST>::new();
        let mut next = 0;
        while !self.stop.load(Ordering::Relaxed) {
            // Frames that the port did not accept are offered again before new ones are built.
            if outgoing.is_empty() && self.pool.alloc_bulk(&mut outgoing, BURST) {
                for packet in outgoing.as_mut_slice() {
                    let frame = &self.frames[next];
                    if let Some(bytes) = packet.append(frame.len()) {
                        bytes.copy_from_slice(frame);
                    }
                    next = if next + 1 == self.frames.len() { 0 } else { next + 1 };
                }
            }
            self.sent.add(port.tx.send(&mut outgoing) as u64);
            self.back.add(port.rx.receive(&mut incoming) as u64);
            incoming.clear();
        }
    }
}
