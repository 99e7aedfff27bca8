//! Frames that a NIC loses are counted as its driver's row in `host/src/driver` says, here by
//! net_tap, whose other end is the kernel: the poll loop stops, the pool is empty, frames are too
//! long. Packets of the kernel's own that do not fit into a buffer are counted as well.
//! `tests/nics` shows the same for emulated PCI NICs. Requires root.
//!
//! DPDK can be started once per process, so there is a single test here.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    #[expect(dead_code, reason = "this test uses a part of it")]
    pub mod loaded;
}

use config::checked::{ArmName, Idle};
use dpdk_bindings::{Eal, Mempool};
use fastpath::exception::{Exception, LcoreRings, Lost};
use fastpath::exchange::Exchange;
use fastpath::nic::rules::Setup;
use fastpath::nic::target::Target;
use fastpath::nic::{ArmNic, Context};
use fastpath::poll::{self, LcoreQueues};
use fastpath::tap::Tap;
use host::Root;
use host::driver::Version;
use host::nic::Inventory;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::SockProtocol;
use patience::{check, eventually};
use planes::loaded::Loaded;
use rtrb::RingBuffer;
use slowpath::control::report::{NicReport, nics};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tables::reason::DropReason;
use tests::cases::setups::aws_return;
use tests::lab::gateway::wire_socket::PacketSocket;

/// The kernel's end of the port.
const INTERFACE: &str = "wl0";

/// The number of frames that arrive while nothing polls: more than the kernel's queue of the
/// interface holds (500 or 1,000).
const FLOOD: usize = 3000;

/// An appliance with one lcore and one port.
struct Appliance<'a> {
    loaded: Loaded,
    queues: LcoreQueues,
    nic: ArmNic,
    context: Context<'a>,
    wire: PacketSocket,
    now: Instant,
}

impl Appliance<'_> {
    /// Sends frames of `length` bytes for another MAC address, which Weir drops. Returns how many
    /// the kernel accepted.
    fn send(&self, length: usize, number: usize) -> usize {
        let mut frame = vec![0; length];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 0x77, 2, 0, 0, 0, 0, 0x99, 0x88, 0xb5]);
        (0..number).filter(|_| self.wire.send(&frame)).count()
    }

    /// Runs the poll loop until it is idle.
    fn poll(&mut self) {
        poll::run(&mut self.loaded.lcore, &mut self.queues, &AtomicBool::new(true), Idle::Yield);
    }

    /// Returns what `weir status` shows.
    fn report(&mut self) -> NicReport {
        self.now += Duration::from_secs(1);
        assert!(self.nic.step(&self.context, self.now), "the link is up");
        let [report] = nics(self.loaded.region, 1).try_into().expect("one NIC");
        report
    }

    /// Polls until every frame that the kernel has sent to the port is accounted for, checks the
    /// counters of drops and losses, and returns the report.
    fn settle(&mut self) -> NicReport {
        let mut last = None;
        eventually("every frame at the NIC is accounted for", || {
            self.poll();
            let report = self.report();
            let rests = last.replace(report.arrived) == Some(report.arrived);
            let sent = kernel_count("packets");
            check(rests && report.arrived == sent, || format!("{sent} sent, {report:?}"))
        });
        let report = self.report();
        let dropped = self
            .loaded
            .region
            .counters()
            .sum(|page| DropReason::ALL.iter().map(|reason| page.dropped(0, *reason)).sum());
        assert_eq!(report.taken, dropped, "Weir drops every frame that it takes");
        let lost = report.counter("no_buffer_events") + report.counter("receive_errors");
        assert_eq!(report.arrived, report.taken + lost, "{report:?}");
        assert_eq!(report.counter("missed_packets"), 0, "net_tap has no counter for them");
        report
    }
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns a counter of the frames that the kernel sent to the port.
fn kernel_count(name: &str) -> u64 {
    let text = ip(&format!("-s -j link show dev {INTERFACE}"));
    let links: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    links[0]["stats64"]["tx"][name].as_u64().unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn lost_frames_are_counted_with_a_stopped_poll_loop_an_empty_pool_and_bad_frames() {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace of this thread's own");
    // The kernel itself sends nothing.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("root privileges");
    let config = config::from_toml(&format!(
        "[fastpath]\nlcores = [1]\n[ingress]\ndevice = \"net_tap0,iface={INTERFACE}\"\n\
         address = \"10.0.1.10/24\"\nmtu = 1500\nrx_descriptors = 256\ntx_descriptors = 256"
    ))
    .unwrap_or_else(|error| panic!("{}", error.render()));
    let (inventory, root) = (Inventory::default(), Root::default());
    let setup =
        Setup { arm: &config.ingress, lcores: 1, dpdk: Version(22, 11), kernel: Version(6, 1) };
    let target = Target::find(ArmName::Ingress, setup, &inventory, &root).unwrap();
    let arguments =
        ["--no-huge", "--no-shconf", "--no-pci", "-m", "64", "--no-telemetry", "-l", "0"];
    let arguments = arguments.into_iter().chain(["--log-level", "error"]).map(str::to_owned);
    let arguments: Vec<String> = arguments.chain([target.eal_argument()]).collect();
    let eal = Eal::start(&arguments).unwrap();
    let pool = Mempool::create(&eal, "packets", 1023, 32, 2176, -1).unwrap();
    let loaded = Loaded::new(&aws_return());
    let region = loaded.region;
    let arm = (0, "ingress");
    let mut nic = ArmNic::open(&eal, region, arm, &config.ingress, target, 1).unwrap();
    let exchange = Exchange::new(1);
    let mailbox = exchange.mailboxes().next().unwrap();
    let (to_kernel, _punted) = RingBuffer::new(64);
    let rings = LcoreRings { to_kernel, from_kernel: None };
    let queues = LcoreQueues::new(nic.start(&pool).unwrap(), mailbox, rings, 32);
    let wire = PacketSocket::open(INTERFACE, SockProtocol::EthAll).unwrap();
    let context = Context { eal: &eal, pool: &pool, region, exchange: &exchange };
    let mut appliance = Appliance { loaded, queues, nic, context, wire, now: Instant::now() };

    assert_eq!(appliance.send(60, 10), 10);
    let usual = appliance.settle();
    assert_eq!((usual.arrived, usual.taken, usual.losses().count()), (10, 10, 0));

    // The poll loop stops: the kernel drops what its queue does not hold, and only its own counter
    // of the interface includes these frames.
    let dropped_before = kernel_count("dropped");
    let accepted = appliance.send(60, FLOOD) as u64;
    let stopped = appliance.settle();
    let held = stopped.taken - usual.taken;
    assert!((100..FLOOD as u64).contains(&held), "{held} frames were in the kernel's queue");
    assert_eq!(held + kernel_count("dropped") - dropped_before, accepted);
    assert_eq!(stopped.losses().count(), 0, "{stopped:?}");

    // The pool is empty: the driver loses the frames that it has read.
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    for _ in 0..20 {
        assert_eq!(appliance.send(60, 1), 1);
        appliance.poll();
    }
    let lost = |report: &NicReport, name: &str| report.losses().find(|l| l.0 == name).map(|l| l.1);
    eventually("frames lost without a buffer", || {
        appliance.poll();
        let report = appliance.report();
        check(lost(&report, "no_buffer_events").is_some(), || format!("{report:?}"))
    });
    drop(all);
    // A new frame makes the driver read the waiting frames.
    assert_eq!(appliance.send(60, 1), 1);
    let empty = appliance.settle();
    let without_buffer = lost(&empty, "no_buffer_events").unwrap_or_default();
    assert!((1..=20).contains(&without_buffer), "{empty:?}");
    assert_eq!(empty.taken - stopped.taken, 21 - without_buffer);

    // Frames that are longer than a buffer.
    ip(&format!("link set dev {INTERFACE} mtu 9000"));
    assert_eq!(appliance.send(3000, 5), 5);
    let bad = appliance.settle();
    assert_eq!((lost(&bad, "receive_errors"), bad.taken), (Some(5), empty.taken));
    assert_eq!(bad.arrived, usual.arrived + held + 21 + 5);

    // The exception path: packets of the kernel that do not fit into a buffer.
    let small = Mempool::create(&eal, "small", 63, 0, 256, -1).unwrap();
    let mut tap = config.ingress.clone();
    tap.tap = "weir-in".into();
    tap.addresses.clear();
    let taps = vec![Tap::open("ingress", &tap, [2, 0, 0, 0, 0, 0x55]).unwrap()];
    let (mut exception, mut rings) = Exception::new(taps, small, 1);
    let kernel = PacketSocket::open("weir-in", SockProtocol::EthAll).unwrap();
    let mut frame = vec![0; 500];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    assert!(kernel.send(&frame[..60]) && kernel.send(&frame) && kernel.send(&frame));
    eventually("two lost packets", || {
        exception.move_frames(Default::default());
        let lost = exception.lost();
        check(lost == Lost { from_kernel: [2, 0], ..Lost::default() }, || format!("{lost:?}"))
    });
    let passed = rings[0].from_kernel.as_mut().unwrap();
    assert_eq!(passed.pop().map(|(arm, mbuf)| (arm, mbuf.len())), Ok((0, 60)));
    assert!(passed.pop().is_err());
}
