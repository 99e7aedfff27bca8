//! Starts all parts and waits for a signal. The control loop, the store's writer, the file reader,
//! the monitor of the heartbeat, the audit log, the exporter of telemetry, the health checker and
//! BGP have a thread each. Listeners, the cloud's lifecycle and private links are tasks of a tokio
//! runtime.

mod prepare;
mod previous;
mod service;
mod shutdown;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use api::Api;
use api::audit::Audit;
use config::checked::{Config, Plane};
use host::service_manager::ServiceManager;
use hugepages::{OpenError, Opened, Unreadable};
use parking_lot::Mutex;
use state::reconcile::Now;
use state::sources::Sources;
use tables::capture_file;
use tables::region::{Region, RegionError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::cloud;
use crate::cloud::private_link;
use crate::control::listening;
use crate::control::peer::Groups;
use crate::control::report::StoreStatus;
use crate::control::{self, ControlError};
use crate::health::checks;
use crate::kernel::neighbors::kernel::LinuxKernel;
use crate::kernel::privileges;
use crate::kernel::probe_addresses::ProbeAddresses;
use crate::live::{Live, Shared};
use crate::measurements::Stage;
use crate::plane::region::RegionPlane;
use crate::reconcile::{Observer, Reconcile, wake};
use crate::routing::{self, BgpHandle, BgpLoopFailed};
use crate::sources;
use crate::sources::desired::{Store, open_store};
use crate::sources::file::{ConfigFile, Files, watch};
use crate::start::service::{EXTENSION, EXTENSION_INTERVAL, LoopReports};
use crate::start::shutdown::Shutdown;
use crate::telemetry;

pub use prepare::prepare;
pub use previous::Previous;

/// Error that keeps slowpath from starting, or ends it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The process lacks capabilities.
    #[error(
        "missing capabilities: {0}; type `systemctl start weir-slowpath`, which grants them, or \
         `sudo slowpath ...`"
    )]
    Privileges(String),
    /// The region can't be opened.
    #[error("{0}")]
    Region(#[from] OpenError),
    /// The tables in the region can't be used.
    #[error("{0}")]
    Tables(#[from] RegionError),
    /// The store can't be opened.
    #[error("control.state = {path:?}: {source}; the data plane keeps the current tables")]
    State {
        /// Folder of the store.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The control socket can't be opened.
    #[error("{0}")]
    Control(#[from] ControlError),
    /// The rtnetlink socket can't be opened.
    #[error("cannot query the kernel's routes and neighbors (rtnetlink): {0}")]
    Netlink(std::io::Error),
    /// The control loop ended by an internal error. The log has the cause.
    #[error("the control loop failed (see the log); the data plane keeps the current tables")]
    Loop,
    /// The health checker ended by an internal error.
    #[error("the health checker failed (see the log); the data plane keeps the current tables")]
    Checker,
    /// BGP ended by an internal error.
    #[error(transparent)]
    Bgp(#[from] BgpLoopFailed),
    /// The client for the cloud can't be created.
    #[error(transparent)]
    Cloud(#[from] cloud::CloudError),
    /// An operation of the system failed, or a listener's task panicked.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The I/O error.
        source: std::io::Error,
    },
}

/// Returns a function that turns an I/O error of the operation `what` into a [`StartError`].
fn system(what: &'static str) -> impl Fn(std::io::Error) -> StartError + Copy {
    move |source| StartError::System { what, source }
}

/// Opens the region of `config`, and creates it if this is the first process to start.
pub fn open_region(config: &Config) -> Result<Region, StartError> {
    let Opened { region, notes } = hugepages::open_region(config, Unreadable::Fail)?;
    for note in notes {
        tracing::info!(event = "region_note", %note, "region opened");
    }
    if config.plane == Plane::Dpdk && !region.in_huge_pages() {
        tracing::warn!(
            event = "region_in_small_pages",
            path = %config.region.path.display(),
            "region is in 4 kB pages"
        );
    }
    Ok(region)
}

/// How long the work of requests on blocking threads may take when the process ends. The
/// connections themselves are closed at once, because the runtime ends their tasks.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the control loop, the store's writer and the removal of the socket may take to end
/// after that. A thread that a disk blocks is left behind: what it is writing has not been
/// acknowledged.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which the control loop's heartbeat is checked, to notify TCP probes, BGP and the
/// cloud's lifecycle of a stall.
const STALL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Whether all parts but the cloud's lifecycle have started.
static HAS_STARTED: AtomicBool = AtomicBool::new(false);

/// Returns whether [`run`] has started all parts but the cloud's lifecycle: an error is then a
/// failure of slowpath and not of its start.
pub fn has_started() -> bool {
    HAS_STARTED.load(Ordering::Relaxed)
}

/// Creates the runtime for listeners and other tasks.
fn listener_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("slowpath-serve")
        .enable_all()
        .build()
}

/// Runs until a shutdown after SIGTERM is complete, until SIGINT, or until a fatal error. After
/// that the fastpath continues with the tables as they are. `file` is the configuration file to
/// watch, `previous` the state before this process.
pub fn run(
    config: Config,
    file: Option<ConfigFile>,
    previous: &Previous,
) -> Result<(), StartError> {
    if let Some(missing) = privileges::missing(&config) {
        return Err(StartError::Privileges(missing));
    }
    let manager = Arc::new(ServiceManager::from_environment());
    for warning in &config.warnings {
        tracing::warn!(event = "configuration_warning", %warning, "configuration warning");
    }
    let config = Arc::new(config);
    // Leaked, so that all threads can refer to it until the process ends.
    let region: &'static Region = Box::leak(Box::new(open_region(&config)?));
    privileges::give_up_file_access().map_err(system("giving up capabilities"))?;
    // Read before the first commit: whether the region has tables of a previous slowpath, by which
    // packets may have been forwarded meanwhile.
    let restarted = region.generation() > 0;
    let plane = RegionPlane::attach(region, &config)?;
    let (store, store_ended) = start_store(&config)?;
    let kernel = Box::new(LinuxKernel::open().map_err(StartError::Netlink)?);
    let shared = Arc::new(Shared::new(config.health.stall_timeout));
    shared.publish_store(StoreStatus::new(config.control.state.as_deref(), &store));
    observe_store(&store, &config, &shared);
    let files = start_files(&config, file, &shared).map_err(system("starting threads"))?;
    let audit = Audit::start(config.control.state.as_deref(), config.audit_max_bytes)
        .map_err(system("starting threads"))?;
    let live = Arc::new(Live::new(region, Arc::clone(&config), Arc::clone(&shared), audit.clone()));
    let telemetry = telemetry::start(&live).map_err(system("starting threads"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = listener_runtime().map_err(system("starting threads"))?;
    // Open the control socket before the control loop starts, so that a failure changes no tables.
    let socket = {
        let _inside = runtime.enter();
        control::listen(&config.control)?
    };
    let api = api(&config, &store, &shared);
    runtime.spawn(wake_on_write(store.watch(), Arc::clone(&shared)));
    let (stopped, shared_loop) = (Arc::clone(&stop), Arc::clone(&shared));
    let (loop_config, heartbeat, loop_store) =
        (Arc::clone(&config), Arc::clone(&shared), Arc::clone(&store));
    // Both senders are dropped when the loop's thread ends for any reason. One receiver is awaited
    // while serving, the other one is waited for with a timeout at the end.
    let (async_guard, loop_ended) = tokio::sync::oneshot::channel::<()>();
    let (blocking_guard, loop_ended_blocking) = channel::<()>();
    let mut reports = LoopReports::new(Arc::clone(&manager), Arc::clone(&shared));
    let (checker_sender, checker_inputs) = std::sync::mpsc::sync_channel(1);
    let observer = Observer::new(previous);
    let control_loop = std::thread::Builder::new()
        .name("slowpath-loop".into())
        .spawn(move || {
            let _guards = (async_guard, blocking_guard);
            let now = || Now { steady: Instant::now(), wall: SystemTime::now() };
            let addresses = ProbeAddresses::new(&loop_config);
            let mut reconcile =
                Reconcile::new(loop_config, plane, kernel, shared_loop, loop_store, files, now());
            reconcile.set_probe_addresses(addresses);
            reconcile.set_observer(observer);
            let _ = checker_sender.send(reconcile.connect_checker());
            while !stopped.load(Ordering::Relaxed) {
                heartbeat.beat();
                reconcile.step(now());
                reports.step(reconcile.take_reloaded(), Instant::now());
                heartbeat.rest(reconcile.rest(Instant::now()));
            }
        })
        .map_err(system("starting the control loop"))?;

    let served = checker_inputs.recv().map_err(|_| StartError::Loop).and_then(|inputs| {
        let checker_ended =
            checks::start(&config, &live, inputs).map_err(system("starting the health checker"))?;
        let bgp = routing::start(&live, &api.store, restarted).map_err(system("starting BGP"))?;
        let documents = routing::documents(&live).into();
        let credentials = live.listening().credentials().cloned();
        let api = Api { documents, credentials, audit, ..api };
        let ends = [loop_ended, checker_ended];
        runtime.block_on(serve((&config, &manager, previous), &live, (socket, api), bgp, ends))
    });
    stop.store(true, Ordering::Relaxed);
    shared.wake();
    runtime.shutdown_timeout(RESPONSE_TIMEOUT);
    // Threads of captures may still run, and end with this process.
    if let Some(location) = region.location() {
        capture_file::remove_all(location);
    }
    store.close();
    let loop_has_ended = await_threads(&config, loop_ended_blocking, store_ended);
    if let Some(telemetry) = telemetry {
        telemetry.stop();
    }
    match loop_has_ended {
        true => served.and(control_loop.join().map_err(|_| StartError::Loop)),
        false => served,
    }
}

/// Removes the control socket, and waits for the threads to end, at most for [`JOIN_TIMEOUT`].
/// Returns whether the control loop's thread has ended.
fn await_threads(config: &Config, loop_ended: Receiver<()>, store_ended: Receiver<()>) -> bool {
    let until = Instant::now() + JOIN_TIMEOUT;
    let ends = [
        ("control loop", loop_ended),
        ("store writer", store_ended),
        ("removal of control.socket", remove(config.control.socket.clone())),
    ];
    let [loop_has_ended, ..] = ends.map(|(what, end)| has_ended(what, &end, until));
    loop_has_ended
}

/// Opens the store and starts its thread. The receiver is disconnected when the thread ends.
fn start_store(config: &Config) -> Result<(Arc<Store>, Receiver<()>), StartError> {
    let folder = config.control.state.as_deref();
    let path = folder.unwrap_or(Path::new("")).to_owned();
    let store = open_store(folder).map_err(|source| StartError::State { path, source })?;
    let store = Arc::new(store);
    let ended = store.start().map_err(system("starting the store's thread"))?;
    Ok((store, ended))
}

/// Measures the store and its writes.
fn observe_store(store: &Store, config: &Config, shared: &Arc<Shared>) {
    let (shared, is_on_disk) = (Arc::clone(shared), config.control.state.is_some());
    let measure_size = move |shared: &Shared, bytes| {
        shared.measurements.set_store_bytes(if is_on_disk { bytes } else { 0 });
    };
    measure_size(&shared, store.store().bytes());
    store.set_observer(Box::new(move |written| {
        let (measurements, now) = (&shared.measurements, SystemTime::now());
        measurements.record_stage(Stage::Store, written.measured, None);
        for source in written.completed {
            measurements.set_listed(source.as_str(), now);
        }
        measure_size(&shared, written.bytes);
    }));
}

/// Starts the thread that reads files, and the one that checks the control loop's heartbeat.
fn start_files(
    config: &Arc<Config>,
    file: Option<ConfigFile>,
    shared: &Arc<Shared>,
) -> std::io::Result<Files> {
    let (files, reader) = watch(config, file, wake(shared));
    std::thread::Builder::new().name("slowpath-files".into()).spawn(|| reader.run())?;
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("slowpath-stall".into()).spawn(move || {
        loop {
            shared.check_heartbeat();
            std::thread::sleep(STALL_CHECK_INTERVAL);
        }
    })?;
    Ok(files)
}

/// Removes a file on a thread of its own, because a disk may block it. The receiver is disconnected
/// when the file is removed.
fn remove(path: PathBuf) -> Receiver<()> {
    let (alive, ended) = channel();
    // If the thread can't be created, the next slowpath replaces the file.
    let _ = std::thread::Builder::new().name("slowpath-remove".into()).spawn(move || {
        let _alive = alive;
        let _ = std::fs::remove_file(path);
    });
    ended
}

/// Waits until the sender of `end` is dropped or the deadline has passed. Returns whether it was
/// dropped in time.
fn has_ended(what: &str, end: &Receiver<()>, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    let late = matches!(end.recv_timeout(left), Err(RecvTimeoutError::Timeout));
    if late {
        tracing::warn!(event = "task_late", task = what, "task has not ended in time");
    }
    !late
}

/// Returns the state of the API below `/v1`, which the control socket and the TCP listeners share.
/// The leases of sources start anew.
fn api(config: &Config, store: &Arc<Store>, shared: &Arc<Shared>) -> Api {
    let settings = sources::settings(config);
    shared.publish_sources(settings.clone());
    let now = Now { steady: Instant::now(), wall: SystemTime::now() };
    let sources = Sources::new(settings, &store.objects(), now);
    let (store, control) = (Arc::clone(store), Arc::clone(shared) as _);
    let (sources, documents) = (Arc::new(Mutex::new(sources)), Arc::default());
    // The other fields follow when their parts have started.
    Api { store, control, sources, documents, audit: Audit::default(), credentials: None }
}

/// Wakes the control loop after each write to the store.
async fn wake_on_write(mut written: tokio::sync::watch::Receiver<u64>, shared: Arc<Shared>) {
    while written.changed().await.is_ok() {
        shared.wake();
    }
}

/// Serves everything until a signal arrives or a part fails.
async fn serve(
    (config, manager, previous): (&Config, &ServiceManager, &Previous),
    live: &Arc<Live>,
    (socket, api): ((tokio::net::UnixListener, Groups), Api),
    bgp: BgpHandle,
    [mut loop_ended, mut checker_ended]: [tokio::sync::oneshot::Receiver<()>; 2],
) -> Result<(), StartError> {
    let mut tasks = tokio::task::JoinSet::new();
    let leases = api.clone();
    tasks.spawn(async move {
        api::watch_leases(leases).await;
        Ok(())
    });
    let (links, controller) = private_link::open(config, &api.store);
    if let Some(controller) = controller {
        live.set_private_links(links.clone());
        tasks.spawn(async move {
            controller.await;
            Ok(())
        });
    }
    listening::start(&mut tasks, config, live, (socket, api, links));
    let signals = system("waiting for signals");
    let mut terminate = signal(SignalKind::terminate()).map_err(signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(signals)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(signals)?;
    let mut shutdown = Shutdown::new(cloud::start(config, live)?, bgp);
    previous.report();
    HAS_STARTED.store(true, Ordering::Relaxed);
    tracing::info!(
        event = "slowpath_started",
        version = env!("CARGO_PKG_VERSION"),
        socket = %config.control.socket.display(),
        metrics = ?config.metrics.listen,
        "slowpath started"
    );
    manager.ready(&live.status_line());
    let mut extend = tokio::time::interval(EXTENSION_INTERVAL);
    // The interval is polled during shutdown only: ticks missed before do not fire in a burst.
    extend.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = terminate.recv() => {
                shutdown.request();
                manager.stopping("deregistering from the cloud and withdrawing routes");
            }
            finished = shutdown.finished() => {
                manager.stopping("ending");
                return Ok(finished?);
            }
            _ = interrupt.recv() => {
                manager.stopping("ending without deregistration");
                return Ok(());
            }
            _ = hangup.recv() => {
                manager.reloading();
                live.reload();
            }
            // The deregistration may take longer than the unit's timeout: `drain_cap_s` limits it.
            _ = extend.tick(), if shutdown.is_requested() => manager.extend_timeout(EXTENSION),
            _ = &mut loop_ended => return Err(StartError::Loop),
            _ = &mut checker_ended => return Err(StartError::Checker),
            ended = tasks.join_next() => match ended {
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => return Err(error),
                Some(Err(error)) => {
                    return Err(system("listener task")(std::io::Error::other(error)));
                }
                None => return Ok(()),
            },
        }
    }
}
