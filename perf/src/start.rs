//! Start of a DPDK program: its arguments, its ports, one queue pair each.

use clap::Parser;
use dpdk_bindings::{
    Eal, Mempool, MempoolError, Port, PortError, PortOptions, RxQueue, TxQueue, port::Queues,
};

/// Number of buffers that suffices for the rings of all ports, the caches and the bursts.
const BUFFERS: u32 = 8191;

/// Size of an lcore's cache of free buffers.
const CACHE_SIZE: u32 = 250;

/// Bytes of a buffer, headroom included.
const BUFFER_BYTES: usize = 2176;

/// A started port with its one queue pair.
#[derive(Debug)]
pub struct StartedPort {
    /// The receive queue.
    pub rx: RxQueue,
    /// The transmit queue.
    pub tx: TxQueue,
    /// Keeps the port open; dropped last.
    _port: Port,
}

/// Returns DPDK's arguments, which come first, and the program's own, which follow `--`.
pub fn arguments<A: Parser>(program: &str) -> (Vec<String>, A) {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let mut parts = all.splitn(2, |argument| argument == "--");
    let eal = parts.next().unwrap_or_default().to_vec();
    let own = std::iter::once(program.to_string());
    (eal, A::parse_from(own.chain(parts.next().unwrap_or_default().to_vec())))
}

/// Creates the pool of frames, with `extra` additional buffers.
///
/// # Errors
/// DPDK's error if memory is short.
pub fn pool(eal: &Eal, extra: u32) -> Result<Mempool, MempoolError> {
    Mempool::create(eal, "frames", BUFFERS + extra, CACHE_SIZE, BUFFER_BYTES, -1)
}

/// Starts all ports of the EAL arguments and returns them in the order of their numbers.
///
/// # Errors
/// The error of the first port that fails to start.
pub fn start_ports(eal: &Eal, pool: &Mempool) -> Result<Vec<StartedPort>, PortError> {
    let one = |name: String| {
        let mut port = Port::by_name(eal, &name)?;
        port.configure(&PortOptions {
            rx_queues: 1,
            tx_queues: 1,
            rx_ring: 512,
            tx_ring: 512,
            mtu: None,
            rss: false,
            fast_free: false,
            pool,
        })?;
        let Queues { rx, tx, .. } = port.start()?;
        Ok((port, rx, tx))
    };
    let mut ports = Vec::new();
    for name in Port::names(eal) {
        let (port, rx, tx) = one(name)?;
        let queues = rx.into_iter().zip(tx).next();
        ports.extend(queues.map(|(rx, tx)| StartedPort { rx, tx, _port: port }));
    }
    Ok(ports)
}
