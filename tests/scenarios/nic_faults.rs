//! A NIC that requests a reset, accepts no frames or is removed works again without a restart of
//! fastpath, and every frame is accounted for.
//!
//! DPDK can be started once per process, so there is a single test here.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    #[expect(dead_code, reason = "this test uses a part of it")]
    pub mod loaded;
}

use config::checked::{ArmName, Idle};
use dpdk_bindings::{Eal, Mbuf, Mempool, PortEvents};
use fastpath::exception::LcoreRings;
use fastpath::exchange::Exchange;
use fastpath::nic::rules::Setup;
use fastpath::nic::target::Target;
use fastpath::nic::{ArmNic, Context};
use fastpath::poll::{self, LcoreQueues};
use host::Root;
use host::driver::Version;
use host::nic::Inventory;
use planes::loaded::Loaded;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tables::counters::ArmCounter;
use tables::nic::{Nic, NicState};
use tables::reason::DropReason;
use tests::cases::addresses::IN_MAC;
use tests::cases::setups::aws_return;

/// One lcore on a port whose frames come back to it, and the control thread's view of the port.
struct Appliance<'a> {
    loaded: Loaded,
    queues: LcoreQueues,
    kernel: Producer<(u8, Mbuf)>,
    punted: Consumer<(u8, Mbuf)>,
    nic: ArmNic,
    eal: &'a Eal,
    pool: &'a Mempool,
    exchange: &'a Exchange,
    now: Instant,
}

impl Appliance<'_> {
    /// Runs the poll loop until it is idle.
    fn poll(&mut self) {
        poll::run(&mut self.loaded.lcore, &mut self.queues, &AtomicBool::new(true), Idle::Yield);
    }

    /// Runs the control thread's check of the NIC `after` the last one. Returns whether the link is
    /// up.
    fn step(&mut self, after: Duration) -> bool {
        self.now += after;
        let (eal, pool, region, exchange) =
            (self.eal, self.pool, self.loaded.region, self.exchange);
        self.nic.step(&Context { eal, pool, region, exchange }, self.now)
    }

    /// Sends ARP requests as the kernel does. The port loops them back, and they are punted.
    /// Returns the number of punted frames.
    fn send(&mut self, frames: usize) -> usize {
        for _ in 0..frames {
            let mut frame = self.pool.alloc().expect("a free buffer");
            let bytes = frame.append(60).expect("space for a frame");
            bytes.fill(0);
            bytes[..6].fill(0xff);
            bytes[6..12].copy_from_slice(&IN_MAC);
            // Ethernet and IPv4, a request.
            bytes[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
            self.kernel.push((0, frame)).expect("a ring with space");
        }
        self.poll();
        std::iter::from_fn(|| self.punted.pop().ok()).count()
    }

    /// Returns the NIC's status in the region.
    fn published(&self) -> Nic {
        self.loaded.region.nics().read(0).expect("no write is going on")
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.loaded.region.counters().sum(|page| page.dropped(0, reason))
    }

    /// Asserts that the NIC is in this state, that frames are dropped and counted meanwhile, and
    /// that the control thread makes the NIC work again.
    fn assert_recovers_from(&mut self, state: NicState) {
        assert_eq!(self.published().state, state);
        assert!(!self.published().detail.is_empty());
        assert!(!self.step(Duration::ZERO), "the lcore still has the queues");
        let before = self.dropped(DropReason::NicUnavailable);
        assert_eq!(self.send(5), 0);
        assert_eq!(self.dropped(DropReason::NicUnavailable), before + 5);
        // The control thread resets the port, or closes it and opens it again.
        let mut steps = 0;
        while !self.step(Duration::ZERO) {
            steps += 1;
            assert!(steps < 5, "{:?}", self.published());
        }
        assert_eq!(self.published().state, NicState::Running);
        assert_eq!(self.published().detail, "");
        assert_eq!(self.send(10), 10);
    }
}

#[test]
fn a_faulty_nic_works_again_and_every_frame_is_counted() {
    let arguments =
        ["--no-huge", "--no-shconf", "--no-pci", "-m", "64", "--no-telemetry", "-l", "0"];
    let more = ["--log-level", "error", "--vdev=net_ring0"];
    let arguments: Vec<String> = arguments.iter().chain(&more).map(ToString::to_string).collect();
    let eal = Eal::start(&arguments).unwrap();
    eal.record_port_events(false).unwrap();
    let pool = Mempool::create(&eal, "packets", 1023, 32, 2176, -1).unwrap();
    let config = config::from_toml(
        "[fastpath]\nlcores = [1]\n[ingress]\ndevice = \"net_ring0\"\naddress = \"10.0.1.10/24\"\n\
         mtu = 1500\nrx_descriptors = 256\ntx_descriptors = 256",
    )
    .unwrap_or_else(|error| panic!("{}", error.render()));
    let loaded = Loaded::new(&aws_return());
    let (inventory, root) = (Inventory::default(), Root::default());
    let (dpdk, kernel) = (Version(22, 11), Version(6, 1));
    let setup = Setup { arm: &config.ingress, lcores: 1, dpdk, kernel };
    let target = Target::find(ArmName::Ingress, setup, &inventory, &root).unwrap();
    let (region, arm) = (loaded.region, (0, "ingress"));
    let mut nic = ArmNic::open(&eal, region, arm, &config.ingress, target, 1).unwrap();
    let exchange = Exchange::new(1);
    let mailbox = exchange.mailboxes().next().unwrap();
    let (to_kernel, punted) = RingBuffer::new(64);
    let (kernel, from_kernel) = RingBuffer::new(64);
    let rings = LcoreRings { to_kernel, from_kernel: Some(from_kernel) };
    let queues = LcoreQueues::new(nic.start(&pool).unwrap(), mailbox, rings, 32);
    let now = Instant::now();
    let (eal, pool, exchange) = (&eal, &pool, &exchange);
    let mut appliance = Appliance { loaded, queues, kernel, punted, nic, eal, pool, exchange, now };

    assert!(appliance.step(Duration::ZERO));
    assert_eq!(appliance.send(10), 10);
    assert!(appliance.step(Duration::from_secs(1)));
    let published = appliance.published();
    assert_eq!((published.state, published.driver.as_str()), (NicState::Running, "net_ring"));
    assert_eq!((published.counters.received, published.counters.sent), (10, 10));
    assert!(published.xstats.contains(&("rx_good_packets".to_owned(), 10)));

    let raise = |appliance: &Appliance<'_>, reset, removed| {
        appliance.nic.port().unwrap().raise(PortEvents { reset, removed });
    };
    raise(&appliance, true, false);
    assert!(!appliance.step(Duration::ZERO));
    appliance.assert_recovers_from(NicState::Resetting);

    raise(&appliance, false, true);
    assert!(!appliance.step(Duration::ZERO));
    appliance.assert_recovers_from(NicState::Removed);

    // By the counters, all frames of a second were dropped because the transmit queue was full.
    assert!(appliance.step(Duration::from_secs(1)));
    let page = region.counters().lcore(0).unwrap();
    page.drop(0, DropReason::TxQueueFull);
    assert!(!appliance.step(Duration::from_secs(1)));
    appliance.assert_recovers_from(NicState::Resetting);
    // A NIC that is still stalled a second after a reset is not reset again at once.
    assert!(appliance.step(Duration::from_secs(1)));
    page.drop(0, DropReason::TxQueueFull);
    assert!(appliance.step(Duration::from_secs(1)));

    let nic = appliance.published();
    let events = nic.events;
    assert_eq!((events.resets, events.removals, events.returns), (1, 1, 1));
    assert_eq!((events.send_stalls, events.failures), (1, 0));
    assert_eq!(nic.counters.received, 40, "counters continue across resets and removals");
    let count = |counter| region.counters().sum(|page| page.arm_count(0, counter));
    let drops: u64 = DropReason::ALL.iter().map(|reason| appliance.dropped(*reason)).sum();
    // The test itself counted two of these drops, without packets.
    assert_eq!(
        count(ArmCounter::RxPackets) + count(ArmCounter::FromKernelPackets),
        count(ArmCounter::TxPackets) + count(ArmCounter::ToKernelPackets) + drops - 2,
    );
    assert_eq!(count(ArmCounter::RxPackets), nic.counters.received);
}
