//! Launch: starts the lcores from the checked configuration, and shuts everything down again.
//!
//! The order matters. The region comes first, so that a fast path that cannot claim it changes
//! neither NIC nor kernel. DPDK follows, which determines the ports' MAC addresses; then the TAPs,
//! which use these addresses; and finally the lcores.

mod eal_arguments;
mod progress;

use crate::capture::watch::Watch;
use crate::exception::{Exception, LcoreRings, Lost};
use crate::exchange::{ArmQueues, Exchange};
use crate::lcore::{Lcore, LcoreConfig};
use crate::nic::rules::{self, Setup};
use crate::nic::target::{self, Target};
use crate::nic::{ArmNic, Context};
use crate::poll::{self, LcoreQueues};
use crate::tap::{Tap, TapError};
use config::Config;
use config::checked::{Device, DeviceName, Plane, frame_buffer_bytes};
use dpdk_bindings::lcore::{LcoreError, LcoreHandle, launch};
use dpdk_bindings::{Eal, EalError, Errno, Mempool, MempoolError, Port, PortError};
use host::Root;
use host::driver::Version;
use host::nic::Inventory;
use host::process;
use host::service_manager::ServiceManager;
use hugepages::{OpenError, Unreadable};
use progress::PollProgress;
use rustix::event::Timespec;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tables::counters::ArmCounter;
use tables::flow::Flows;
use tables::region::{Region, RegionError, Role};

// `weir doctor` and the check of the configuration say what DPDK demands.
const _: () = assert!(
    frame_buffer_bytes(1500) as usize == dpdk_bindings::PortOptions::frame_buffer_bytes(1500)
);

/// The number of buffers in each lcore's cache of the mempool.
const POOL_CACHE: u32 = 256;

/// DPDK's socket number for memory of any NUMA node.
const ANY_SOCKET: i32 = -1;

/// The time that the control thread waits for the kernel when idle: 500 µs.
const IDLE_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000 };

/// The interval between checks of the NICs and TAPs.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which the CPU time and memory of the process are published.
const USAGE_INTERVAL: Duration = Duration::from_secs(1);

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
    /// The region cannot be claimed, for example because another process uses it.
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
    /// Events of ports cannot be received.
    #[error("cannot watch the NICs for resets and removals: {0}")]
    Events(Errno),
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
    /// An arm's NIC does not support the arm's MTU.
    #[error(
        "{arm}.mtu = {mtu}: the NIC {arm}.device = \"{device}\" allows {min} to {max}: set \
         {arm}.mtu = {max}, and lower inner_mtu of the gateways with it"
    )]
    Mtu {
        /// Name of the arm.
        arm: &'static str,
        /// The configured device.
        device: String,
        /// The configured MTU in bytes.
        mtu: u16,
        /// Minimum MTU in bytes.
        min: u16,
        /// Maximum MTU in bytes.
        max: u16,
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

impl LaunchError {
    /// Returns whether only a change of the configuration helps, so that a restart is useless. The
    /// memory, NICs and processes that other errors name may change while the service manager tries
    /// again: the region of the other plane, for example, until its process has ended.
    pub fn is_permanent(&self) -> bool {
        matches!(self, LaunchError::OtherPlane)
    }
}

/// Runs the fast path until SIGTERM or SIGINT.
pub fn run(config: &Config) -> Result<(), LaunchError> {
    let begun = Instant::now();
    check_preconditions(config)?;
    for warning in &config.warnings {
        tracing::warn!(event = "configuration_warning", %warning, "configuration warning");
    }
    let manager = ServiceManager::from_environment();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(LaunchError::Signals)?;
    }
    let memory = Memory::check(config)?;
    let targets = find_targets(config)?;
    let region = Arc::new(open_region(config)?);
    let last_ms = region.lcores().iter().map(|lcore| lcore.polled_ms()).max().unwrap_or(0);
    let claim = region.claim(Role::Fastpath)?;
    let flows = Flows::new(&region);
    flows.set_unconfirmed_budget(config.region.unconfirmed_percent);
    if let Some(message) = region.recover().log_message() {
        tracing::info!(event = "data_plane_note", note = %message, "data plane note");
    }

    memory.check_region(config);
    manager.status("starting DPDK and the NICs");
    let eal = Eal::start(&eal_arguments::of(config, &targets, memory.numa_node))
        .map_err(|source| LaunchError::Eal { devices: describe_devices(config), source })?;
    let lcores = config.fastpath.lcores.len();
    let mut nics = open_nics(&eal, config, &region, targets)?;
    let pool = create_pool(&eal, config, &nics)?;
    let macs = [nics[0].mac(), nics[nics.len() - 1].mac()];
    let mut taps = Vec::with_capacity(nics.len());
    for ((name, arm), nic) in config.arms().zip(&nics) {
        taps.push(Tap::open(name.as_str(), arm, nic.mac())?);
    }
    let (mut exception, kernel) = Exception::new(taps, pool.clone(), lcores);
    let exchange = Exchange::new(lcores);
    let burst = usize::from(config.fastpath.burst);
    let queues = start_nics(&mut nics, &pool, &exchange, kernel, burst)?;
    let lcore_config = LcoreConfig { index: 0, count: lcores as u32, epoch: claim.epoch(), macs };
    let running = launch_lcores(&eal, config, &region, lcore_config, queues, &stop)?;
    tracing::info!(
        event = "data_plane_ready",
        dpdk = %Eal::version(),
        ports = nics.iter().filter_map(ArmNic::port).map(Port::name).collect::<Vec<_>>().join(" "),
        lcores,
        start_ms = begun.elapsed().as_millis() as u64,
        outage_ms = outage_ms(last_ms, &region),
        "data plane ready"
    );
    let context = Context { eal: &eal, pool: &pool, region: &region, exchange: &exchange };
    let outcome = run_control(&context, &mut exception, &mut nics, (&running, &manager), &stop);
    manager.stopping("stopping the lcores and the NICs");
    stop.store(true, Ordering::Relaxed);
    for lcore in running {
        let number = lcore.lcore();
        lcore.wait().map_err(|_| LaunchError::LcoreEnded(number))?;
    }
    // Both hold buffers and queues, which must be freed before the ports are closed.
    drop((exception, exchange));
    for nic in nics {
        let (arm, device) = (nic.arm(), nic.device().to_owned());
        nic.close().map_err(|source| port_error(arm, &device, source))?;
    }
    tracing::info!(event = "data_plane_stopped", "data plane stopped");
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

/// Returns the configured devices with their keys, for an error message.
fn describe_devices(config: &Config) -> String {
    let arms = config.arms();
    let each =
        arms.map(|(name, arm)| format!("{}.device = \"{}\"", name.as_str(), arm.device.as_str()));
    each.collect::<Vec<_>>().join(" and ")
}

/// Returns the time in milliseconds since an lcore of the previous fast path last polled; 0 if none
/// has polled since boot.
fn outage_ms(last_ms: u64, region: &Region) -> u64 {
    match last_ms {
        0 => 0,
        last => region.now_ms().saturating_sub(last),
    }
}

/// The memory of this machine before the start.
struct Memory {
    machine: Option<hugepages::Machine>,
    /// The NUMA node of the NICs, on a machine with several nodes.
    numa_node: Option<u32>,
}

impl Memory {
    /// Checks that the required pages are available, logs warnings (such as pages on another node
    /// than the NICs), and determines the NICs' node.
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
            tracing::warn!(event = "data_plane_warning", %warning, "data plane warning");
        }
        let numa_node = hugepages::numa::nic_node(&plan, &machine);
        Ok(Memory { machine: Some(machine), numa_node })
    }

    /// Warns if the region's pages are on another node than the NICs. Called after they are mapped.
    fn check_region(&self, config: &Config) {
        let Some(machine) = &self.machine else { return };
        // A kernel without NUMA support has no such file and a single node.
        let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
        let plan = hugepages::plan(config);
        if let Some(warning) = hugepages::numa::region_warning(&plan, machine, &maps) {
            tracing::warn!(event = "data_plane_warning", %warning, "data plane warning");
        }
    }
}

/// Creates the pool of packet buffers on the NUMA node of the first NIC that has one. If that node
/// has too little memory, any node is used: packets then cost more, but are forwarded.
fn create_pool(eal: &Eal, config: &Config, nics: &[ArmNic]) -> Result<Mempool, MempoolError> {
    let fastpath = &config.fastpath;
    let create = |socket| {
        let bytes = usize::from(fastpath.buffer_bytes);
        Mempool::create(eal, "weir", fastpath.buffers, POOL_CACHE, bytes, socket)
    };
    let of_nic = nics.iter().find_map(|nic| Some((nic, nic.port()?.socket()?)));
    let Some((nic, socket)) = of_nic else { return create(ANY_SOCKET) };
    create(socket).or_else(|error| {
        let pool = create(ANY_SOCKET)?;
        let warning = format!(
            "fastpath.buffers are on another NUMA node than {}.device = \"{}\" ({error}): packets \
             cross nodes; type: weir hugepages apply",
            nic.arm(),
            nic.device()
        );
        tracing::warn!(event = "data_plane_warning", warning, "data plane warning");
        Ok(pool)
    })
}

/// Opens or creates the region. A region in an unreadable format is reported and replaced, so that
/// the appliance starts with an empty one instead of failing.
fn open_region(config: &Config) -> Result<Region, LaunchError> {
    let opened = hugepages::open_region(config, Unreadable::Replace)?;
    for note in &opened.notes {
        tracing::info!(event = "data_plane_note", note, "data plane note");
    }
    Ok(opened.region)
}

fn port_error(arm: &'static str, device: &str, source: PortError) -> LaunchError {
    let device = device.to_owned();
    match source {
        PortError::Mtu { mtu, min, max, .. } => LaunchError::Mtu { arm, device, mtu, min, max },
        source => LaunchError::Port { arm, device, source },
    }
}

/// Finds the arms' devices on this machine.
fn find_targets(config: &Config) -> Result<Vec<Target>, LaunchError> {
    let root = Root::default();
    let is_virtual = |device: &Device| matches!(device.name(), DeviceName::Vdev(_));
    let inventory = match config.arms().all(|(_, arm)| is_virtual(&arm.device)) {
        true => Inventory::default(),
        false => target::read_inventory(&root).map_err(LaunchError::NoDevice)?,
    };
    let kernel = rustix::system::uname();
    let version = |text: &str| rules::version(text).unwrap_or(Version(0, 0));
    let (dpdk, kernel) = (version(&Eal::version()), version(&kernel.release().to_string_lossy()));
    let lcores = config.fastpath.lcores.len() as u16;
    let targets = config.arms().map(|(name, arm)| {
        let setup = Setup { arm, lcores, dpdk, kernel };
        Target::find(name, setup, &inventory, &root).map_err(|error| {
            let (name, device) = (name.as_str(), arm.device.as_str());
            LaunchError::NoDevice(format!("{name}.device = \"{device}\": {error}"))
        })
    });
    targets.collect()
}

/// Opens the arms' NICs.
fn open_nics(
    eal: &Eal,
    config: &Config,
    region: &Region,
    targets: Vec<Target>,
) -> Result<Vec<ArmNic>, LaunchError> {
    let removable = targets.iter().any(Target::is_removable);
    eal.record_port_events(removable).map_err(LaunchError::Events)?;
    let lcores = config.fastpath.lcores.len() as u16;
    let arms = config.arms().zip(targets).enumerate();
    arms.map(|(index, ((name, arm), target))| {
        let opened = ArmNic::open(eal, region, (index, name.as_str()), arm, target, lcores);
        opened.map_err(|source| port_error(name.as_str(), arm.device.as_str(), source))
    })
    .collect()
}

/// Configures and starts the NICs, and assigns their queues to the lcores.
fn start_nics(
    nics: &mut [ArmNic],
    pool: &Mempool,
    exchange: &Exchange,
    kernel: Vec<LcoreRings>,
    burst: usize,
) -> Result<Vec<LcoreQueues>, LaunchError> {
    let mut assigned: Vec<Vec<ArmQueues>> = kernel.iter().map(|_| Vec::new()).collect();
    for nic in nics.iter_mut() {
        let queues = nic.start(pool);
        let queues = queues.map_err(|source| port_error(nic.arm(), nic.device(), source))?;
        for (lcore, queues) in assigned.iter_mut().zip(queues) {
            lcore.push(queues);
        }
    }
    let lcores = assigned.into_iter().zip(exchange.mailboxes()).zip(kernel);
    let queues = lcores
        .map(|((arms, mailbox), kernel)| LcoreQueues::new(arms, mailbox, kernel, burst))
        .collect();
    Ok(queues)
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

/// Counts frames lost between the lcores and the kernel since the last call. The control thread is
/// the only writer of this counter, which is on the first lcore's page.
fn count_lost(region: &Region, lost: Lost, counted: &mut Lost) {
    let Some(page) = region.counters().lcore(0) else { return };
    for arm in 0..2 {
        let since = |all: fn(&Lost) -> [u64; 2]| all(&lost)[arm] - all(counted)[arm];
        let new = since(|lost| lost.to_kernel) + since(|lost| lost.from_kernel);
        page.arm(arm as u8, ArmCounter::KernelLost, new);
    }
    *counted = lost;
}

/// Runs the control thread until `stop` is set: moves frames to and from the kernel, watches the
/// NICs and the TAPs' MAC addresses, publishes link states, begins and ends captures, and counts
/// frames lost between lcores and kernel. Returns an error if an lcore has ended.
fn run_control(
    context: &Context<'_>,
    exception: &mut Exception,
    nics: &mut [ArmNic],
    (running, manager): (&[LcoreHandle<()>], &ServiceManager),
    stop: &AtomicBool,
) -> Result<(), LaunchError> {
    let region = context.region;
    let (mut last_check, mut usage_at): (Option<Instant>, Option<Instant>) = (None, None);
    let mut counted = Lost::default();
    let (mut progress, mut is_ready) = (PollProgress::default(), false);
    let mut captures = Watch::new(region, running.len() as u32);
    while !stop.load(Ordering::Relaxed) {
        exception.move_frames(IDLE_WAIT);
        let now = Instant::now();
        // A NIC in transition waits for the lcores, which act within microseconds.
        let waits = nics.iter().any(ArmNic::is_in_transition);
        if !waits && last_check.is_some_and(|at| now - at < CHECK_INTERVAL) {
            continue;
        }
        last_check = Some(now);
        if usage_at.is_none_or(|at| now - at >= USAGE_INTERVAL) {
            usage_at = Some(now);
            process::publish_usage(region);
        }
        context.eal.manage_timers();
        exception.restore_macs();
        count_lost(region, exception.lost(), &mut counted);
        captures.step(region, context.exchange);
        let lcores = &region.lcores()[..running.len()];
        let mut links = Vec::with_capacity(nics.len());
        for (arm, nic) in nics.iter_mut().enumerate() {
            let up = nic.step(context, now);
            lcores.iter().for_each(|lcore| lcore.set_link(arm, up));
            links.push(up);
        }
        let arms = nics.iter().zip(links).map(|(nic, up)| (nic.arm(), nic.device(), up));
        let line = progress::status_line(running.len(), &arms.collect::<Vec<_>>());
        if is_ready {
            manager.status(&line);
        } else if region.live_lcores().count() == running.len() {
            is_ready = true;
            manager.ready(&line);
        }
        manager.beat_if(now, || progress.all_polled(lcores));
        // The signal may have arrived during this iteration, and an lcore may already have ended.
        if let Some(ended) = running.iter().find(|lcore| lcore.is_finished())
            && !stop.load(Ordering::Relaxed)
        {
            return Err(LaunchError::LcoreEnded(ended.lcore()));
        }
    }
    // Frames that the lcores punted last are still passed to the kernel.
    exception.move_frames(Timespec { tv_sec: 0, tv_nsec: 0 });
    nics.iter_mut().for_each(|nic| nic.publish_final(region));
    Ok(())
}
