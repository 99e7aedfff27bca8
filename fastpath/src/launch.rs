//! Launch: starts the lcores from the checked configuration, and shuts everything down again.
//!
//! The order matters. The region comes first, so that a fast path that cannot claim it changes
//! neither NIC nor kernel. DPDK follows, which determines the ports' MAC addresses; then the TAPs,
//! which use these addresses; and finally the lcores.

mod devices;

use crate::exception::{Exception, LcoreRings, Lost};
use crate::lcore::{Lcore, LcoreConfig};
use crate::poll::{self, ArmQueues, LcoreQueues};
use crate::tap::{Tap, TapError};
use config::Config;
use config::checked::{Arm, Plane};
use dpdk_bindings::burst::Burst as Row;
use dpdk_bindings::lcore::{LcoreError, LcoreHandle, launch};
use dpdk_bindings::port::Queues;
use dpdk_bindings::{Eal, EalError, Mempool, MempoolError, Port, PortError, PortOptions};
use hugepages::{OpenError, Unreadable};
use rustix::event::Timespec;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tables::counters::ArmCounter;
use tables::flow::Flows;
use tables::region::{Region, RegionError, Role};

/// The number of buffers in each lcore's cache of the pool.
const CACHE: u32 = 256;

/// DPDK's socket number for memory of any NUMA node.
const ANY_SOCKET: i32 = -1;

/// The time that the control thread waits for the kernel when idle: 500 µs.
const IDLE_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000 };

/// The interval between link state checks.
const LINK_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The reason for which the fast path did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The process does not run as root.
    #[error(
        "root privileges are required to map hugepages, open the NIC and create TAP devices; \
         type `sudo fastpath ...`"
    )]
    NotRoot,
    /// Too little hugepage memory is available.
    #[error("{0}")]
    Hugepages(String),
    /// The configuration selects another plane.
    #[error("plane = \"xdp\": start ebpf-fallback instead, or set plane = \"dpdk\"")]
    OtherPlane,
    /// The region cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another process uses the region.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// DPDK did not start.
    #[error("{source}; configured devices: {devices}")]
    Eal {
        /// The configured devices with their keys.
        devices: String,
        /// The error from DPDK.
        source: EalError,
    },
    /// The hardware or interface of an arm's device does not exist.
    #[error("{0}")]
    NoDevice(String),
    /// The buffer pool could not be created.
    #[error(transparent)]
    Pool(#[from] MempoolError),
    /// A port could not be opened, configured, started or closed.
    #[error("{arm}.device = \"{device}\": {source}")]
    Port {
        /// Name of the arm.
        arm: &'static str,
        /// The configured device.
        device: String,
        /// The error from DPDK.
        source: PortError,
    },
    /// A TAP device could not be set up.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// An lcore could not be launched.
    #[error(transparent)]
    Lcore(#[from] LcoreError),
    /// Signal handlers could not be installed.
    #[error("cannot install signal handlers: {0}")]
    Signals(std::io::Error),
    /// An lcore panicked, or ended without a signal, which is a bug in Weir.
    #[error(
        "lcore {0} panicked, or ended although fastpath received no SIGTERM or SIGINT; this is a \
         bug in Weir: report it with the output of fastpath"
    )]
    LcoreEnded(u32),
}

/// Runs the fast path until SIGTERM or SIGINT.
pub fn run(config: &Config) -> Result<(), LaunchError> {
    let begun = Instant::now();
    check_preconditions(config)?;
    for warning in &config.warnings {
        eprintln!("fastpath: warning: {warning}");
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(LaunchError::Signals)?;
    }
    let memory = Memory::check(config)?;
    devices::check(config).map_err(LaunchError::NoDevice)?;
    let region = Arc::new(open_region(config)?);
    let last_ms = region.lcores().iter().map(|lcore| lcore.polled_ms()).max().unwrap_or(0);
    let claim = region.claim(Role::Fastpath)?;
    let flows = Flows::new(&region);
    flows.set_unconfirmed_budget(config.region.unconfirmed_percent);
    if let Some(message) = region.recover().log_message() {
        println!("fastpath: {message}");
    }

    memory.check_region(config);
    let eal = Eal::start(&devices::eal_arguments(config, memory.numa_node))
        .map_err(|source| LaunchError::Eal { devices: devices::describe(config), source })?;
    let lcores = config.fastpath.lcores.len();
    let mut arms = open_arms(&eal, config)?;
    let pool = create_pool(&eal, config, &arms)?;
    configure_arms(&mut arms, config, &pool, lcores)?;
    let macs = [arms[0].mac, arms[arms.len() - 1].mac];
    let mut taps = Vec::with_capacity(arms.len());
    for ((name, arm), opened) in config.arms().zip(&arms) {
        taps.push(Tap::open(name.as_str(), arm, opened.mac)?);
    }
    let (mut exception, kernel) = Exception::new(taps, pool, lcores);
    let queues = start_ports(&mut arms, kernel, usize::from(config.fastpath.burst))?;
    let lcore_config = LcoreConfig { index: 0, count: lcores as u32, epoch: claim.epoch(), macs };
    let running = launch_lcores(&eal, config, &region, lcore_config, queues, &stop)?;
    println!(
        "fastpath: ready: {} on {}, {lcores} lcore(s), started in {} ms{}",
        Eal::version(),
        arms.iter().map(|a| a.port.name()).collect::<Vec<_>>().join(" and "),
        begun.elapsed().as_millis(),
        outage_text(last_ms, &region),
    );
    let outcome = run_control(&region, &mut exception, &arms, &running, &stop);
    stop.store(true, Ordering::Relaxed);
    for lcore in running {
        let number = lcore.lcore();
        lcore.wait().map_err(|_| LaunchError::LcoreEnded(number))?;
    }
    drop(exception);
    for arm in arms {
        arm.port.close().map_err(|source| port_error(arm.name, &arm.device, source))?;
    }
    println!("fastpath: stopped");
    outcome
}

fn check_preconditions(config: &Config) -> Result<(), LaunchError> {
    if config.plane != Plane::Dpdk {
        return Err(LaunchError::OtherPlane);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(LaunchError::NotRoot);
    }
    Ok(())
}

/// Returns how long no lcore polled, for the log, if an earlier fast path since boot recorded its
/// time.
fn outage_text(last_ms: u64, region: &Region) -> String {
    match last_ms {
        0 => String::new(),
        last => format!(", {} ms without polling", region.now_ms().saturating_sub(last)),
    }
}

/// The memory of this machine before the start.
struct Memory {
    machine: Option<hugepages::Machine>,
    /// The NUMA node of the NICs, on a machine with several nodes.
    numa_node: Option<u32>,
}

impl Memory {
    /// Checks that the required pages are available, prints warnings (such as pages on another
    /// node than the NICs), and determines the NICs' node.
    fn check(config: &Config) -> Result<Memory, LaunchError> {
        let Ok(machine) = hugepages::Machine::read(Path::new("/")) else {
            return Ok(Memory { machine: None, numa_node: None });
        };
        let plan = hugepages::plan(config);
        let verdict = hugepages::check(&plan, &machine);
        if config.fastpath.hugepages && !verdict.problems.is_empty() {
            return Err(LaunchError::Hugepages(verdict.problems.join("\n")));
        }
        for warning in &verdict.warnings {
            eprintln!("fastpath: warning: {warning}");
        }
        let numa_node = hugepages::numa::nic_node(&plan, &machine);
        Ok(Memory { machine: Some(machine), numa_node })
    }

    /// Warns if the region's pages are on another node. They are mapped by now.
    fn check_region(&self, config: &Config) {
        let Some(machine) = &self.machine else { return };
        // A kernel without NUMA support has no such file and a single node.
        let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
        let plan = hugepages::plan(config);
        if let Some(warning) = hugepages::numa::region_warning(&plan, machine, &maps) {
            eprintln!("fastpath: warning: {warning}");
        }
    }
}

/// Creates the pool of packet buffers on the NUMA node of the first NIC that has one. If that node
/// has too little memory, any node is used: packets then cost more, but are forwarded.
fn create_pool(eal: &Eal, config: &Config, arms: &[OpenArm]) -> Result<Mempool, MempoolError> {
    let fastpath = &config.fastpath;
    let create = |socket| {
        let bytes = usize::from(fastpath.buffer_bytes);
        Mempool::create(eal, "weir", fastpath.buffers, CACHE, bytes, socket)
    };
    let of_nic = arms.iter().find_map(|arm| Some((arm, arm.port.socket()?)));
    let Some((arm, socket)) = of_nic else { return create(ANY_SOCKET) };
    create(socket).or_else(|error| {
        let pool = create(ANY_SOCKET)?;
        eprintln!(
            "fastpath: warning: fastpath.buffers are on another NUMA node than {}.device = \"{}\" \
             ({error}): packets cross nodes; type: weir hugepages apply",
            arm.name, arm.device
        );
        Ok(pool)
    })
}

/// Opens or creates the region. A region in an unreadable format is reported and replaced, so that
/// the appliance starts with an empty one instead of failing.
fn open_region(config: &Config) -> Result<Region, LaunchError> {
    let opened = hugepages::open_region(config, Unreadable::Replace)?;
    for note in &opened.notes {
        eprintln!("fastpath: {note}");
    }
    Ok(opened.region)
}

struct OpenArm {
    name: &'static str,
    device: String,
    port: Port,
    mac: [u8; 6],
    rx_queues: u16,
}

fn port_error(arm: &'static str, device: &str, source: PortError) -> LaunchError {
    LaunchError::Port { arm, device: device.to_owned(), source }
}

fn open_arms(eal: &Eal, config: &Config) -> Result<Vec<OpenArm>, LaunchError> {
    let mut arms = Vec::new();
    for (name, arm) in config.arms() {
        let name = name.as_str();
        let device = arm.device.as_str().to_owned();
        let opened = Port::by_name(eal, arm.device.port_name());
        let opened = opened.and_then(|port| Ok((port.mac()?, port)));
        let (mac, port) = opened.map_err(|source| port_error(name, &device, source))?;
        arms.push(OpenArm { name, device, port, mac, rx_queues: arm.queues });
    }
    Ok(arms)
}

/// Configures the ports and their queues, which DPDK allocates on the NUMA node of each port.
fn configure_arms(
    arms: &mut [OpenArm],
    config: &Config,
    pool: &Mempool,
    lcores: usize,
) -> Result<(), LaunchError> {
    for (opened, (_, arm)) in arms.iter_mut().zip(config.arms()) {
        let configured = configure_port(&mut opened.port, arm, pool, lcores);
        configured.map_err(|source| port_error(opened.name, &opened.device, source))?;
    }
    Ok(())
}

fn configure_port(
    port: &mut Port,
    arm: &Arm,
    pool: &Mempool,
    lcores: usize,
) -> Result<(), PortError> {
    port.configure(&PortOptions {
        rx_queues: arm.queues,
        tx_queues: lcores as u16,
        rx_ring: arm.rx_descriptors,
        tx_ring: arm.tx_descriptors,
        mtu: Some(arm.mtu),
        rss: arm.queues > 1,
        pool,
    })?;
    // Neighbor discovery needs multicast. Drivers that receive all frames anyway may reject the
    // call.
    let _ = port.set_all_multicast(true);
    Ok(())
}

/// Starts the ports and assigns their queues: each lcore gets a transmit queue of each arm, and the
/// first lcores get the receive queues.
fn start_ports(
    arms: &mut [OpenArm],
    kernel: Vec<LcoreRings>,
    burst: usize,
) -> Result<Vec<LcoreQueues>, LaunchError> {
    let mut assigned: Vec<Vec<ArmQueues>> = kernel.iter().map(|_| Vec::new()).collect();
    for arm in arms.iter_mut() {
        let queues = arm.port.start().map_err(|e| port_error(arm.name, &arm.device, e))?;
        let Queues { rx, tx, .. } = queues;
        debug_assert_eq!(rx.len(), usize::from(arm.rx_queues));
        let mut rx = rx.into_iter();
        let sends_chains = arm.port.sends_chains();
        for (lcore, tx) in assigned.iter_mut().zip(tx) {
            lcore.push(ArmQueues { rx: rx.next(), tx, sends_chains });
        }
    }
    let queues = assigned.into_iter().zip(kernel).map(|(arms, kernel)| {
        let rows = arms.iter().map(|_| Row::new()).collect();
        LcoreQueues { arms, kernel, rows, burst }
    });
    Ok(queues.collect())
}

fn launch_lcores(
    eal: &Eal,
    config: &Config,
    region: &Arc<Region>,
    lcore_config: LcoreConfig,
    queues: Vec<LcoreQueues>,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<LcoreHandle<()>>, LaunchError> {
    let mut running = Vec::new();
    let idle = config.fastpath.idle;
    for ((index, mut queues), cpu) in (0..).zip(queues).zip(&config.fastpath.lcores) {
        let (region, stop) = (Arc::clone(region), Arc::clone(stop));
        let lcore_config = LcoreConfig { index, ..lcore_config };
        running.push(launch(eal, u32::from(*cpu), move || {
            if let Some(mut lcore) = Lcore::join(&region, lcore_config) {
                poll::run(&mut lcore, &mut queues, &stop, idle);
            }
        })?);
    }
    Ok(running)
}

/// Counts frames that the kernel rejected since the last call. The control thread is the only
/// writer of this counter, which is on the first lcore's page.
fn count_lost(region: &Region, lost: Lost, counted: &mut Lost) {
    let Some(page) = region.counters().lcore(0) else { return };
    for (arm, (now, before)) in (0..).zip(lost.to_kernel.into_iter().zip(counted.to_kernel)) {
        page.arm(arm, ArmCounter::KernelLost, now - before);
    }
    *counted = lost;
}

/// Runs the control thread until `stop` is set: moves frames to and from the kernel, publishes link
/// states, and counts frames that the kernel rejected. Returns an error if an lcore has ended.
fn run_control(
    region: &Region,
    exception: &mut Exception,
    arms: &[OpenArm],
    running: &[LcoreHandle<()>],
    stop: &AtomicBool,
) -> Result<(), LaunchError> {
    let mut last_check: Option<Instant> = None;
    let mut counted = Lost::default();
    while !stop.load(Ordering::Relaxed) {
        exception.move_frames(IDLE_WAIT);
        if last_check.is_some_and(|at| at.elapsed() < LINK_CHECK_INTERVAL) {
            continue;
        }
        last_check = Some(Instant::now());
        count_lost(region, exception.lost(), &mut counted);
        for lcore in region.lcores().iter().take(running.len()) {
            for (i, arm) in arms.iter().enumerate() {
                lcore.set_link(i, arm.port.link_up());
            }
        }
        // The signal may have arrived during this iteration, and an lcore may already have ended.
        if let Some(ended) = running.iter().find(|lcore| lcore.is_finished())
            && !stop.load(Ordering::Relaxed)
        {
            return Err(LaunchError::LcoreEnded(ended.lcore()));
        }
    }
    // Frames that the lcores punted last are still passed to the kernel.
    exception.move_frames(Timespec { tv_sec: 0, tv_nsec: 0 });
    Ok(())
}
