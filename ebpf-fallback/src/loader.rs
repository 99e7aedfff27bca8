//! The loader: attaches the programs to the arms' interfaces and performs the background work of
//! lcores on their behalf.
//!
//! The order of its steps matters. The configuration and the interfaces are checked before an
//! interface or a program is changed; flows are recovered only while no program writes them;
//! programs are fully configured before they are attached. When the loader ends, the programs stay
//! attached and forward packets, and the next loader replaces them in place.

mod addresses;
mod attach;
mod background;
mod captures;
mod counters;
mod kernel_veth;
mod nic;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use config::Config;
use config::checked::Plane;
use host::service_manager::ServiceManager;
use host::xdp::{self, Choice};
use hugepages::{OpenError, Unreadable};
use netlink::Netlink;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use signal_hook::consts::{SIGINT, SIGTERM};
use tables::command::Event;
use tables::flow::Flows;
use tables::region::{Claim, Label, Region, RegionError, RegionLocation, Role};

use addresses::AddedSettings;
pub use attach::AttachError;
use attach::{Links, error_chain};
use background::{BackgroundTask, INTERVAL};
use captures::Captures;
use counters::Counters;
use nic::{Kernel, Nic};

use crate::losses::LossCounters;
use crate::program::{self, Program};
use crate::runtime_config::{Port, RuntimeConfig};
use crate::watched::Watched;

/// File with the numbers of the online CPUs.
const ONLINE_CPUS: &str = "/sys/devices/system/cpu/online";

/// Error of loading or attaching the programs.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Another data plane is configured.
    #[error("plane = \"dpdk\": start fastpath instead, or set plane = \"xdp\"")]
    OtherPlane,
    /// The user is not root.
    #[error(
        "root privileges are required to load and attach programs; type `sudo ebpf-fallback ...`"
    )]
    NotRoot,
    /// The region cannot be created or opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The region is in use or damaged.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The interface of an arm is missing or unsuitable.
    #[error("{arm}.device = \"{device}\": {what}")]
    Device {
        /// Name of the arm.
        arm: &'static str,
        /// Configured device.
        device: String,
        /// What is wrong, and the command that corrects it.
        what: String,
    },
    /// The veth pair through which the kernel's packets enter the programs cannot be created.
    #[error("{arm}.tap = \"{tap}\": {what}")]
    KernelVeth {
        /// Name of the arm.
        arm: &'static str,
        /// Configured name of its interface.
        tap: String,
        /// What is wrong, with the command that failed.
        what: String,
    },
    /// The kernel cannot be queried for its interfaces.
    #[error("cannot query the kernel's interfaces: {0}")]
    Kernel(std::io::Error),
    /// The numbers of the online CPUs cannot be read.
    #[error("cannot read the online CPUs from {ONLINE_CPUS}: {0}; check that sysfs is mounted")]
    OnlineCpus(std::io::Error),
    /// A CPU is online whose number the region does not support.
    #[error(
        "CPU {cpu} is online, but the XDP programs support only CPUs below {supported}: take CPU \
         {supported} and every higher CPU offline (for example `echo 0 > \
         /sys/devices/system/cpu/cpu{cpu}/online`)"
    )]
    Cpus {
        /// Highest number of an online CPU.
        cpu: u32,
        /// Number of supported CPUs.
        supported: u32,
    },
    /// The region has no status records, which happens only if it is damaged.
    #[error(
        "the region has no lcores: remove it with `ebpf-fallback --detach --purge`, and start again"
    )]
    NoLcores,
    /// The programs cannot be loaded.
    #[error("{}", error_chain(.0))]
    Program(#[from] program::LoadError),
    /// A program cannot be attached to its interface.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Signal handlers cannot be installed.
    #[error("cannot install signal handlers: {0}")]
    Signals(std::io::Error),
    /// A capability cannot be given up.
    #[error("cannot give up CAP_SYS_ADMIN: {0}")]
    Capabilities(std::io::Error),
    /// Another loader is running.
    #[error("another loader (process {pid}) is running; stop it with SIGTERM first")]
    AlreadyRunning {
        /// Process id of the other loader.
        pid: u32,
    },
}

impl LoadError {
    /// Returns whether only a change of the configuration helps, so that a restart is useless. The
    /// interfaces and processes that other errors name may change while the service manager tries
    /// again: the region of the other plane, for example, until its process has ended.
    pub fn is_permanent(&self) -> bool {
        matches!(self, LoadError::OtherPlane)
    }
}

/// Attaches the programs and performs background work until SIGTERM or SIGINT; the programs stay
/// attached.
pub fn run(config: &Config) -> Result<(), LoadError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(LoadError::Signals)?;
    }
    let manager = ServiceManager::from_environment();
    check_preconditions(config)?;
    for warning in &config.warnings {
        tracing::warn!(event = "configuration_warning", %warning, "configuration warning");
    }
    let mut kernel = Kernel::open().map_err(LoadError::Kernel)?;
    let nics = find_nics(config, &mut kernel)?;
    let opened = hugepages::open_region(config, Unreadable::Replace)?;
    opened.notes.iter().for_each(|note| log(note));
    let region = opened.region;
    let cpus = online_cpus(&region)?;
    let mut choices = select_modes(config, &nics, cpus.len() as u32)?;
    keep_generic(&nics, &mut choices);
    let claim = region.claim(Role::Fastpath)?;
    let location = locate_region(config)?;
    let links = Links::new(location.links().unwrap_or_default());
    recover(&claim, &links, config.region.unconfirmed_percent);

    // Each start has a stage array of its own, so that a program being replaced keeps its stages.
    let stages = location.path().join(format!("{STAGES_PREFIX}{}", claim.epoch()));
    let _ = std::fs::remove_file(&stages);
    let mut program = Program::load_pinned(&region, location.path(), claim.epoch(), &stages)?;
    let veths = open_veths(config, &mut kernel, &nics, &location)?;
    program.configure(&runtime_config_of(&nics, &veths))?;
    let (losses, warnings) = LossCounters::open(watched(program.entry_id()?, &nics, &veths));
    for warning in &warnings {
        tracing::warn!(event = "data_plane_warning", %warning, "data plane warning");
    }
    let mut attached_modes = Vec::new();
    for (n, (((name, _), nic), choice)) in config.arms().zip(&nics).zip(&choices).enumerate() {
        choice.notes.iter().for_each(|note| log(note));
        let (mode, notes) = links.attach(program.entry()?, nic, choice)?;
        notes.iter().for_each(|note| log(note));
        attached_modes.push(mode);
        let Nic { name: interface, driver, mtu, .. } = nic;
        let mode_name = mode.as_str();
        tracing::info!(
            event = "xdp_attached",
            interface,
            mode = mode_name,
            driver,
            mtu,
            "XDP programs attached"
        );
        // The veth end uses the mode of the NIC by which its packets leave: native XDP redirects
        // driver frames, generic XDP redirects skbs.
        let choice = Choice { modes: vec![mode], notes: Vec::new() };
        links.attach(program.entry()?, &veths[n], &choice)?;
        region.set_label(
            if name.as_str() == "ingress" { Label::Ingress } else { Label::Egress },
            &nic.name,
        );
    }
    // Not earlier: the error of `Links::attach` names a program of another owner, for which
    // CAP_SYS_ADMIN is needed as well.
    give_up_sys_admin().map_err(LoadError::Capabilities)?;
    add_addresses(config, &mut kernel.netlink, &nics, &location)?;
    let attached: Vec<&Nic> = nics.iter().chain(&veths).collect();
    remove_leftovers(&links, &attached, &location, &mut kernel.netlink, Some(&stages))?;
    region.set_label(Label::Fastpath, concat!("xdp ", env!("CARGO_PKG_VERSION")));

    let counters = Counters::new(&region, &nics, &attached_modes, losses);
    let background = BackgroundTask::join(&region, claim.epoch(), &cpus, counters);
    let mut background = background.ok_or(LoadError::NoLcores)?;
    let mut captures = Captures::new(&region);
    manager.ready(&status_line(&nics, &attached_modes));
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        background.run_once(&mut kernel, &nics, now);
        manager.beat_if(now, || true);
        for next_hop in program.take_requested_next_hops()? {
            background.send_event(&Event::NextHopNeeded { next_hop });
        }
        if let Some(filter) = background.take_trace() {
            program.set_trace(&filter)?;
        }
        captures.step(&mut program, now, |report| background.send_trace(report))?;
        std::thread::sleep(INTERVAL);
    }
    manager.stopping("ending; the programs stay attached and forward packets");
    tracing::info!(event = "data_plane_stopped", "data plane stopped");
    Ok(())
}

/// Detaches the programs from all interfaces, and removes the settings, veth pairs and routing
/// rules that Weir added. With `purge`, removes the region as well.
pub fn detach(config: &Config, purge: bool) -> Result<(), LoadError> {
    let config = Config { plane: Plane::Xdp, ..config.clone() };
    check_preconditions(&config)?;
    let location = locate_region(&config)?;
    if location.holder() == Some(Role::Fastpath) {
        let pid = Region::open(&location).map_or(0, |region| region.pid(Role::Fastpath));
        return Err(LoadError::AlreadyRunning { pid });
    }
    let links = Links::new(location.links().unwrap_or_default());
    let mut netlink = Netlink::default();
    AddedSettings::new(location.beside("added")).remove(&mut netlink, |_| true);
    kernel_veth::remove_proxy_rules(&mut netlink);
    remove_leftovers(&links, &[], &location, &mut netlink, None)?;
    links.remove_folder();
    if purge && location.exists() {
        location.remove()?;
        let path = location.path();
        tracing::info!(event = "region_removed", path = %path.display(), "region removed");
    }
    Ok(())
}

/// Returns the location of the region's maps.
fn locate_region(config: &Config) -> Result<RegionLocation, LoadError> {
    let (location, _) = hugepages::region_locations(config).map_err(OpenError::from)?;
    Ok(location)
}

fn check_preconditions(config: &Config) -> Result<(), LoadError> {
    if config.plane != Plane::Xdp {
        return Err(LoadError::OtherPlane);
    }
    // SAFETY: geteuid takes no arguments and cannot fail.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    let user = unsafe { libc::geteuid() };
    if user == 0 { Ok(()) } else { Err(LoadError::NotRoot) }
}

/// Gives up CAP_SYS_ADMIN, which some kernels demand for tracepoints, in the calling thread.
/// Capabilities are per thread; the log's thread, which is started earlier, gives up its own.
fn give_up_sys_admin() -> std::io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    let [effective, permitted, inheritable] =
        [effective, permitted, inheritable].map(|set| set - CapabilitySet::SYS_ADMIN);
    Ok(set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?)
}

/// Returns the status for the service manager: the interface of each arm and its attach mode.
fn status_line(nics: &[Nic], modes: &[xdp::Mode]) -> String {
    let each = nics.iter().zip(modes);
    let each = each.map(|(nic, mode)| format!("{} XDP on {}", mode.as_str(), nic.name));
    each.collect::<Vec<_>>().join(", ")
}

fn log(note: &str) {
    tracing::info!(event = "data_plane_note", note, "data plane note");
}

fn device_error(arm: &'static str, device: &str, what: String) -> LoadError {
    LoadError::Device { arm, device: device.to_owned(), what }
}

/// Returns the arms' interfaces in order, after checking that each can forward packets.
fn find_nics(config: &Config, kernel: &mut Kernel) -> Result<Vec<Nic>, LoadError> {
    let nics = config.arms().map(|(name, arm)| {
        let failed = |what| device_error(name.as_str(), arm.device.as_str(), what);
        let interface = config.kernel_interface(arm);
        let found = kernel.nic(&interface).map_err(LoadError::Kernel)?;
        let nic = found.ok_or_else(|| {
            failed(format!("interface {interface} does not exist; `ip link` lists interfaces"))
        })?;
        xdp::check_usable(&nic.xdp(), name.as_str(), arm.mtu).map_err(failed)?;
        Ok(nic)
    });
    nics.collect()
}

/// While the programs run in generic mode on all arms that have one, selects it for all, unless the
/// configuration forces native mode.
///
/// A change of the mode loses packets, and a driver may reject native mode each time that a loader
/// starts. Arms in different modes are not kept, because native XDP cannot redirect frames to an
/// interface without a native program.
fn keep_generic(nics: &[Nic], choices: &mut [Choice]) {
    let mut attached = nics.iter().filter_map(|nic| nic.attached).peekable();
    let are_generic =
        attached.peek().is_some() && attached.all(|(mode, _)| mode == Some(xdp::Mode::Generic));
    let may_be_generic = choices.iter().all(|choice| choice.modes.contains(&xdp::Mode::Generic));
    if !are_generic || !may_be_generic {
        return;
    }
    for (nic, choice) in nics.iter().zip(choices) {
        if choice.modes != [xdp::Mode::Generic] {
            let note = format!(
                "{}: stays in generic mode; for native mode, which the driver may support, set \
                 fastpath.attach = \"native\"",
                nic.name
            );
            *choice = Choice { modes: vec![xdp::Mode::Generic], notes: vec![note] };
        }
    }
}

/// Selects the attach modes for each arm's interface.
fn select_modes(config: &Config, nics: &[Nic], cpus: u32) -> Result<Vec<Choice>, LoadError> {
    let arms = config.arms().zip(nics);
    arms.map(|((name, arm), nic)| {
        let failed = |what| device_error(name.as_str(), arm.device.as_str(), what);
        xdp::select_modes(&nic.xdp(), cpus, config.fastpath.attach).map_err(failed)
    })
    .collect()
}

/// Returns the programs' configuration of interfaces. `skew_s` is 0, because the region's clock is
/// the kernel's monotonic clock.
fn runtime_config_of(nics: &[Nic], veths: &[Nic]) -> RuntimeConfig {
    let port = |nic: &Nic| Port::new(nic.index, nic.mac);
    let mut arms = nics.iter().map(port);
    let ingress = arms.next().unwrap_or_default();
    let egress = arms.next().unwrap_or(ingress);
    let kernel = [0, 1].map(|n| veths.get(n).map_or(0, |veth: &Nic| veth.index));
    RuntimeConfig { ports: [ingress, egress], kernel, ..Default::default() }
}

/// Returns the program and the interfaces whose losses the tracepoint programs count.
fn watched(program: u32, nics: &[Nic], veths: &[Nic]) -> Watched {
    let index = |list: &[Nic], n: usize| list.get(n).map_or(0, |nic| nic.index);
    let interfaces = [index(nics, 0), index(nics, 1), index(veths, 0), index(veths, 1)];
    Watched { program, interfaces }
}

/// Opens the veth pair of each arm, and returns the ends to which the programs are attached.
fn open_veths(
    config: &Config,
    kernel: &mut Kernel,
    nics: &[Nic],
    location: &RegionLocation,
) -> Result<Vec<Nic>, LoadError> {
    let added = AddedSettings::new(location.beside("added"));
    let arms = config.arms().zip(nics).enumerate();
    arms.map(|(n, ((name, arm), nic))| {
        let failed =
            |what| LoadError::KernelVeth { arm: name.as_str(), tap: arm.tap.clone(), what };
        kernel_veth::open(kernel, n, arm, nic, &added).map_err(failed)
    })
    .collect()
}

/// Adds the arms' addresses and default routes to the interfaces. The programs must be attached
/// before: NAT uses these addresses too, and without the programs the kernel would receive the
/// packets of NAT connections and reset them.
fn add_addresses(
    config: &Config,
    netlink: &mut Netlink,
    nics: &[Nic],
    location: &RegionLocation,
) -> Result<(), LoadError> {
    let added = AddedSettings::new(location.beside("added"));
    for ((name, arm), nic) in config.arms().zip(nics) {
        let failed = |what| device_error(name.as_str(), arm.device.as_str(), what);
        added.add(netlink, &nic.name, arm).map_err(failed)?;
    }
    Ok(())
}

/// Returns the numbers of the online CPUs. The region has a status record and a counter page for
/// each lcore number; the last number is the loader's, so all CPUs must have lower ones.
fn online_cpus(region: &Region) -> Result<Vec<u32>, LoadError> {
    let text = std::fs::read_to_string(ONLINE_CPUS).map_err(LoadError::OnlineCpus)?;
    let cpus = parse_cpus(&text).ok_or_else(|| {
        let error = format!("`{}` is not a list of CPUs", text.trim());
        LoadError::OnlineCpus(std::io::Error::new(ErrorKind::InvalidData, error))
    })?;
    let supported = region.sizes().lcores.saturating_sub(1);
    match cpus.iter().max() {
        Some(cpu) if *cpu >= supported => Err(LoadError::Cpus { cpu: *cpu, supported }),
        _ => Ok(cpus),
    }
}

/// Parses a list of CPUs, for example `0-3,8`. Returns `None` if it is malformed or empty.
fn parse_cpus(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?);
    }
    (!cpus.is_empty()).then_some(cpus)
}

/// Recovers the flows, as at each start of fastpath, unless programs of an earlier loader are still
/// attached: these may be writing, hold locks for one packet at most, and leave nothing incomplete.
/// Sets the budget of unconfirmed flows in both cases.
fn recover(claim: &Claim<'_>, links: &Links, unconfirmed_percent: [u32; 2]) {
    let region = claim.region();
    let flows = Flows::new(region);
    flows.set_unconfirmed_budget(unconfirmed_percent);
    // At the first claim the region was never recovered, and no program uses it.
    if claim.epoch() > 1 && !links.names().is_empty() {
        return;
    }
    region.recover().log_message().iter().for_each(|message| log(message));
}

/// Prefix of the names of pinned stage arrays.
const STAGES_PREFIX: &str = "stages-";

/// Removes leftovers of earlier starts: programs and settings on interfaces that are not among
/// `nics`, and stage arrays other than `stages`.
fn remove_leftovers(
    links: &Links,
    nics: &[&Nic],
    location: &RegionLocation,
    netlink: &mut Netlink,
    stages: Option<&Path>,
) -> Result<(), LoadError> {
    for name in links.names() {
        if !nics.iter().any(|nic| nic.name == name) {
            links.remove(&name)?;
            let added = AddedSettings::new(location.beside("added"));
            added.remove(netlink, |interface| interface == name);
            tracing::info!(event = "xdp_detached", interface = name, "XDP programs detached");
        }
    }
    for entry in std::fs::read_dir(location.path()).into_iter().flatten().flatten() {
        let is_stage_array = entry.file_name().to_string_lossy().starts_with(STAGES_PREFIX);
        if is_stage_array && Some(entry.path().as_path()) != stages {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::parse_cpus;

    #[test]
    fn lists_of_cpus_are_parsed_or_rejected() {
        assert_eq!(parse_cpus("0\n"), Some(vec![0]));
        assert_eq!(parse_cpus("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        for malformed in ["", "\n", "a", "0,", "0-", "-3", "0-x", "3-1"] {
            assert_eq!(parse_cpus(malformed), None, "{malformed:?}");
        }
    }
}
