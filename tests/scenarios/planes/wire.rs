//! The plane `wire`: the fastpath's poll loop over DPDK ports on veth pairs.
//!
//! ```text
//!   tester port 2 ---- veth ---- port 0 (ingress) \
//!                                                  poll loop -- rings of the exception path
//!   tester port 3 ---- veth ---- port 1 (egress)  /
//! ```
//! All four are ports of this process, in a network namespace of its own: every frame passes the
//! kernel, a driver, and fastpath's receive and transmit code, in both directions.

use super::loaded::Loaded;
use config::checked::Idle;
use dpdk_bindings::{Burst, Eal, Mbuf, Mempool, Port, PortOptions, RxQueue, TxQueue};
use fastpath::burst::Arrival;
use fastpath::dispatch::Exits;
use fastpath::exception::LcoreRings;
use fastpath::exchange::ArmQueues;
use fastpath::poll::{self, LcoreQueues};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tables::counters::{ArmCounter, LcorePage};
use tests::cases::{Change, Counts, Exit, Plane, Setup};

/// The time limit for a frame on a veth pair.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The default capacity of the exception path, in frames.
const KERNEL_QUEUE: usize = 64;
/// Bytes of a buffer: a frame of the af_packet ring, which the driver requires to fit, and
/// headroom.
const BUFFER_BYTES: usize = 16_384 + 128;

/// A DPDK driver of a kernel interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Driver {
    /// `net_pcap`: libpcap, frame by frame.
    Pcap,
    /// `net_af_packet`: a packet socket's ring. The socket is in a fanout group, for which the
    /// kernel reassembles IP fragments.
    AfPacket,
}

impl Driver {
    fn device(self) -> &'static str {
        match self {
            Driver::Pcap => "net_pcap",
            Driver::AfPacket => "net_af_packet",
        }
    }

    /// Returns the first letter of the driver's interfaces.
    fn letter(self) -> &'static str {
        match self {
            Driver::Pcap => "p",
            Driver::AfPacket => "a",
        }
    }

    /// Returns the interfaces of the driver's ports: ingress, egress, and the far ends of both
    /// links, which the tester uses.
    fn interfaces(self) -> [String; 4] {
        ["in0", "out0", "in1", "out1"].map(|name| format!("{}{name}", self.letter()))
    }

    /// Returns the `ip` lines that create the driver's two links, with the MACs of the cases.
    pub fn link_commands(self) -> Vec<String> {
        let [near_in, near_out, far_in, far_out] = self.interfaces();
        let mut lines = Vec::new();
        for (near, far, mac) in
            [(&near_in, &far_in, "02:00:00:00:00:01"), (&near_out, &far_out, "02:00:00:00:00:02")]
        {
            lines.push(format!("link add {near} type veth peer name {far}"));
            lines.push(format!("link set {near} address {mac} mtu 9001 up"));
            lines.push(format!("link set {far} mtu 9001 up"));
        }
        lines
    }

    /// Returns the EAL arguments that create the driver's ports.
    pub fn arguments(self) -> impl Iterator<Item = String> {
        let ring = match self {
            Driver::Pcap => "",
            Driver::AfPacket => ",blocksz=65536,framesz=16384,framecnt=64",
        };
        let ports = self.interfaces().into_iter().enumerate();
        ports.map(move |(n, interface)| {
            format!("--vdev={}{n},iface={interface}{ring}", self.device())
        })
    }
}

/// EAL arguments of DPDK itself.
pub const ARGUMENTS: [&str; 10] = [
    "-l",
    "0",
    "--no-huge",
    "--no-shconf",
    "--no-pci",
    "-m",
    "256",
    "--no-telemetry",
    "--log-level",
    "error",
];

/// A frame on the exception path, with its arm.
type KernelFrame = (u8, Mbuf);

/// The outgoing frames of an injected buffer, and the page that counts them.
struct Captured {
    frames: Vec<(Exit, Vec<u8>)>,
    page: LcorePage<'static>,
}

impl Exits<Mbuf> for Captured {
    fn port(&mut self, arm: u8, mbuf: Mbuf) {
        self.page.arm(arm, ArmCounter::TxPackets, 1);
        self.frames.push((Exit::Port(arm), mbuf.segments().flatten().copied().collect()));
    }

    fn kernel(&mut self, arm: u8, mbuf: Mbuf) -> bool {
        self.frames.push((Exit::Kernel(arm), mbuf.segments().flatten().copied().collect()));
        true
    }
}

/// A port of the tester.
struct Tester {
    rx: RxQueue,
    tx: TxQueue,
}

/// The poll loop with one lcore on two ports.
pub struct Wire {
    driver: Driver,
    loaded: Option<Loaded>,
    /// The lcore's queues of both ports, and its ends of the exception path's rings.
    ends: LcoreQueues,
    testers: Vec<Tester>,
    /// Frames from the lcore to the kernel.
    punted: Consumer<KernelFrame>,
    /// Frames from the kernel to the lcore.
    kernel: Producer<KernelFrame>,
    /// Whether the tester takes frames to the kernel out of the ring. If a case limits the kernel's
    /// queue, frames stay in the ring.
    kernel_reads: bool,
    /// The number of frames that stay in the ring.
    waiting: usize,
    pool: Mempool,
    /// The ports, which are stopped on drop, after their queues.
    _ports: Vec<Port>,
}

impl Wire {
    /// Opens the driver's four ports.
    pub fn new(eal: &Eal, driver: Driver) -> Wire {
        let pool =
            Mempool::create(eal, driver.device(), 1023, 32, BUFFER_BYTES, -1).expect("buffers");
        let (mut ports, mut queues) = (Vec::new(), Vec::new());
        for number in 0..4 {
            let mut port =
                Port::by_name(eal, &format!("{}{number}", driver.device())).expect("a port");
            let options = PortOptions {
                rx_queues: 1,
                tx_queues: 1,
                rx_ring: 64,
                tx_ring: 64,
                mtu: None,
                rss: false,
                fast_free: false,
                pool: &pool,
            };
            port.configure(&options).expect("a port that accepts the setup");
            let mut started = port.start().expect("a port that starts");
            let both = started.rx.pop().zip(started.tx.pop()).expect("one queue per direction");
            queues.push((both, port.sends_chains()));
            ports.push(port);
        }
        let testers = queues.split_off(2);
        let arms = queues.into_iter().map(|((rx, tx), sends_chains)| ArmQueues {
            rx: Some(rx),
            tx: Some(tx),
            sends_chains,
        });
        let (kernel_end, punted, kernel) = exception(KERNEL_QUEUE);
        let ends = LcoreQueues::new(arms.collect(), Arc::default(), kernel_end, 32);
        Wire {
            driver,
            loaded: None,
            ends,
            testers: testers.into_iter().map(|((rx, tx), _)| Tester { rx, tx }).collect(),
            punted,
            kernel,
            kernel_reads: true,
            waiting: 0,
            pool,
            _ports: ports,
        }
    }

    fn loaded(&mut self) -> &mut Loaded {
        self.loaded.as_mut().expect("a loaded case")
    }

    /// Allocates a buffer with these bytes.
    fn buffer(&self, bytes: &[u8]) -> Mbuf {
        let mut mbuf = self.pool.alloc().expect("a free buffer");
        mbuf.append(bytes.len()).expect("capacity for a frame").copy_from_slice(bytes);
        mbuf
    }

    /// Passes a buffer through the pipeline as if the driver had received it.
    fn inject(&mut self, mbuf: Mbuf, arm: u8) -> Vec<(Exit, Vec<u8>)> {
        let mut burst = fastpath::burst::Burst::default();
        burst.push(mbuf, arm, Arrival::Plain);
        let loaded = self.loaded();
        let page = loaded.region.counters().lcore(0).expect("the lcore's counter page");
        let mut output = Captured { frames: Vec::new(), page };
        loaded.lcore.forward(&mut burst, &mut output);
        output.frames
    }

    /// Receives a frame while no buffer of the pool is free.
    pub fn send_without_buffers(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        let mbuf = self.buffer(frame);
        let allocated: Vec<Mbuf> = std::iter::from_fn(|| self.pool.alloc()).collect();
        let output = self.inject(mbuf, arm);
        drop(allocated);
        output
    }

    /// Sends a frame from the kernel `count` times, without collecting the outgoing frames.
    pub fn kernel_floods(&mut self, arm: u8, frame: &[u8], count: usize) {
        for _ in 0..count {
            let mbuf = self.buffer(frame);
            self.kernel.push((arm, mbuf)).expect("an empty ring");
            let loaded = self.loaded.as_mut().expect("a loaded case");
            poll::run(&mut loaded.lcore, &mut self.ends, &AtomicBool::new(true), Idle::Yield);
        }
    }

    /// Runs the poll loop until it has received one more packet, then collects the outgoing
    /// frames.
    fn settle(&mut self) -> Vec<(Exit, Vec<u8>)> {
        let before = self.counts();
        let deadline = Instant::now() + TIMEOUT;
        // The stop flag is set from the start: each run then ends at an iteration without packets.
        let stop = AtomicBool::new(true);
        while self.counts().entered() == before.entered() {
            if Instant::now() > deadline {
                return Vec::new(); // The case fails, because no counter has changed.
            }
            let loaded = self.loaded.as_mut().expect("a loaded case");
            poll::run(&mut loaded.lcore, &mut self.ends, &stop, Idle::Yield);
        }
        let mut output = Vec::new();
        if self.kernel_reads {
            while let Ok((arm, mbuf)) = self.punted.pop() {
                output.push((Exit::Kernel(arm), mbuf.bytes().to_vec()));
            }
        } else if let Ok(waiting) = self.punted.read_chunk(self.punted.slots()) {
            let (first, second) = waiting.as_slices();
            for (arm, mbuf) in first.iter().chain(second).skip(self.waiting) {
                output.push((Exit::Kernel(*arm), mbuf.bytes().to_vec()));
            }
            self.waiting = waiting.len();
        }
        let sent = self.counts().sent - before.sent;
        let deadline = Instant::now() + TIMEOUT;
        let mut row = Burst::<32>::new();
        let mut arrived = 0;
        while arrived < sent && Instant::now() < deadline {
            for (arm, tester) in self.testers.iter_mut().enumerate() {
                tester.rx.receive(&mut row);
                for mut mbuf in row.drain() {
                    // The kernel removes VLAN tags from the frame and passes them as metadata.
                    assert!(mbuf.restore_vlan(), "headroom for a VLAN tag");
                    output.push((Exit::Port(arm as u8), mbuf.bytes().to_vec()));
                    arrived += 1;
                }
            }
        }
        output
    }
}

/// Creates the rings of an lcore's exception path, with capacity for `capacity` punted frames: the
/// lcore's ends, the consumer of punted frames, and the producer of the kernel's frames.
fn exception(capacity: usize) -> (LcoreRings, Consumer<KernelFrame>, Producer<KernelFrame>) {
    let (to_kernel, punted) = RingBuffer::new(capacity);
    let (kernel, from_kernel) = RingBuffer::new(KERNEL_QUEUE);
    (LcoreRings { to_kernel, from_kernel: Some(from_kernel) }, punted, kernel)
}

impl Plane for Wire {
    fn name(&self) -> &str {
        self.driver.device()
    }

    fn load(&mut self, setup: &Setup) {
        self.loaded = None;
        let capacity = setup.kernel_capacity.min(KERNEL_QUEUE);
        (self.kernel_reads, self.waiting) = (setup.kernel_capacity == usize::MAX, 0);
        (self.ends.kernel, self.punted, self.kernel) = exception(capacity);
        self.loaded = Some(Loaded::new(setup));
    }

    fn change(&mut self, change: &Change) {
        self.loaded().apply(change);
    }

    fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        let mut row = Burst::<32>::new();
        row.push(self.buffer(frame)).expect("an empty row");
        let sent = self.testers[usize::from(arm)].tx.send(&mut row);
        assert_eq!(sent, 1, "the wire accepts one frame");
        self.settle()
    }

    fn send_split(&mut self, arm: u8, frame: &[u8], first: usize) -> Vec<(Exit, Vec<u8>)> {
        // The drivers never receive chains, so the chain is passed to the pipeline directly.
        let (head, rest) = frame.split_at(first);
        let mut mbuf = self.buffer(rest);
        mbuf.chain_front(self.buffer(head)).expect("a chain of two segments");
        self.inject(mbuf, arm)
    }

    fn kernel_sends(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        let mbuf = self.buffer(frame);
        self.kernel.push((arm, mbuf)).expect("an empty ring");
        self.settle()
    }

    fn advance_s(&mut self, seconds: u32) {
        self.loaded().advance_s(seconds);
    }

    fn counts(&self) -> Counts {
        self.loaded.as_ref().map(Loaded::counts).unwrap_or_default()
    }
}
