//! `fastpath.burst` limits the packets that one iteration of the poll loop receives, from a NIC
//! and from the kernel.
//!
//! DPDK can be started once per process, so there is a single test here.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    #[expect(dead_code, reason = "this test uses a part of it")]
    pub mod loaded;
}

use config::checked::{Idle, MAX_BURST};
use dpdk_bindings::{Eal, Mbuf, Mempool, Port, PortOptions};
use fastpath::burst::BURST;
use fastpath::exception::LcoreRings;
use fastpath::exchange::ArmQueues;
use fastpath::poll::{self, LcoreQueues};
use planes::loaded::Loaded;
use rtrb::{Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tables::counters::{ArmCounter, Counter, LcorePage};
use tests::cases::setups::aws_return;

/// The number of frames from the kernel that wait in the ring.
const FROM_KERNEL: usize = 150;

/// Creates an lcore's end of the exception path, and the producer of the kernel's frames.
fn exception() -> (LcoreRings, Producer<(u8, Mbuf)>) {
    let (to_kernel, _) = RingBuffer::new(1);
    let (kernel, from_kernel) = RingBuffer::new(FROM_KERNEL);
    (LcoreRings { to_kernel, from_kernel: Some(from_kernel) }, kernel)
}

/// Returns the bursts, NIC packets and kernel packets that an lcore has counted.
fn counted(page: &LcorePage<'_>) -> [u64; 3] {
    [
        page.lcore_count(Counter::Bursts),
        page.arm_count(0, ArmCounter::RxPackets),
        page.arm_count(0, ArmCounter::FromKernelPackets),
    ]
}

#[test]
fn an_iteration_receives_at_most_the_configured_burst() {
    let arguments = [
        "-l",
        "0",
        "--no-huge",
        "--no-shconf",
        "--no-pci",
        "-m",
        "64",
        "--no-telemetry",
        "--log-level",
        "error",
        "--vdev=net_null0",
    ];
    let eal = Eal::start(&arguments.map(String::from)).unwrap();
    let pool = Mempool::create(&eal, "packets", 1023, 32, 2176, -1).unwrap();
    let mut port = Port::by_name(&eal, "net_null0").unwrap();
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
    port.configure(&options).unwrap();
    let mut queues = port.start().unwrap();
    let (rx, tx) = (queues.rx.pop().unwrap(), queues.tx.pop().unwrap());
    let arm = ArmQueues { rx: Some(rx), tx: Some(tx), sends_chains: true };
    let mut ends = LcoreQueues::new(vec![arm], Arc::default(), exception().0, 1);
    assert_eq!(BURST, usize::from(MAX_BURST));
    for burst in [1, 7, 32, BURST] {
        let mut loaded = Loaded::new(&aws_return());
        let page = loaded.region.counters().lcore(0).unwrap();
        ends.burst = burst;
        // net_null returns as many packets as requested. The stop flag is set from the start, so
        // that the poll loop makes a bounded number of iterations.
        poll::run(&mut loaded.lcore, &mut ends, &AtomicBool::new(true), Idle::Yield);
        let [bursts, received, _] = counted(&page);
        assert!(bursts > 1, "a stopped poll loop still makes some iterations");
        assert_eq!(received, bursts * burst as u64);

        let (end, mut kernel) = exception();
        let rx = ends.arms[0].rx.take();
        ends.kernel = end;
        for _ in 0..FROM_KERNEL {
            let mut frame = pool.alloc().unwrap();
            frame.append(64).unwrap().fill(0);
            kernel.push((0, frame)).unwrap();
        }
        let before = counted(&page);
        let mut iterations = 0;
        while counted(&page)[2] < FROM_KERNEL as u64 {
            poll::run(&mut loaded.lcore, &mut ends, &AtomicBool::new(true), Idle::Yield);
            iterations += 1;
            assert!(iterations <= FROM_KERNEL, "each iteration takes at least one packet");
        }
        let bursts = counted(&page)[0] - before[0];
        assert_eq!(bursts as usize, FROM_KERNEL.div_ceil(burst));
        ends.arms[0].rx = rx;
    }
}
