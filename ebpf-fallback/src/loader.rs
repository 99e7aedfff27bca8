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
mod kernel_veth;
mod limits;
mod nic;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use config::Config;
use config::checked::Plane;
use hugepages::{OpenError, Unreadable};
use netlink::Netlink;
use signal_hook::consts::{SIGINT, SIGTERM};
use tables::command::Event;
use tables::flow::Flows;
use tables::region::{Claim, Label, Region, RegionError, RegionLocation, Role};

use addresses::AddedSettings;
pub use attach::AttachError;
use attach::{Links, error_chain};
use background::{BackgroundTask, INTERVAL};
use limits::Choice;
use nic::{Kernel, Nic};

use crate::program::{self, Program};
use crate::runtime_config::{Port, RuntimeConfig};

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
    /// A CPU is online whose number the region does not support.
    #[error(
        "CPU {cpu} is online, and the programs support CPUs below {supported}: set the others \
         offline (`echo 0 > /sys/devices/system/cpu/cpu{cpu}/online`)"
    )]
    Cpus {
        /// Highest number of an online CPU.
        cpu: u32,
        /// Number of supported CPUs.
        supported: u32,
    },
    /// The programs cannot be loaded.
    #[error("{}", error_chain(.0))]
    Program(#[from] program::LoadError),
    /// A program cannot be attached to its interface.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Signal handlers cannot be installed.
    #[error("cannot install signal handlers: {0}")]
    Signals(std::io::Error),
    /// Another loader is running.
    #[error("another loader (process {pid}) is running; stop it with SIGTERM first")]
    AlreadyRunning {
        /// Process id of the other loader.
        pid: u32,
    },
}

/// Attaches the programs and performs background work until SIGTERM or SIGINT; the programs stay
/// attached.
pub fn run(config: &Config) -> Result<(), LoadError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(LoadError::Signals)?;
    }
    check_preconditions(config)?;
    for warning in &config.warnings {
        log(&format!("warning: {warning}"));
    }
    let mut kernel = Kernel::open().map_err(LoadError::Kernel)?;
    let nics = find_nics(config, &mut kernel)?;
    let opened = hugepages::open_region(config, Unreadable::Replace)?;
    opened.notes.iter().for_each(|note| log(note));
    let region = opened.region;
    let cpus = online_cpus(&region)?;
    let choices = select_modes(config, &nics, cpus.len() as u32)?;
    let claim = region.claim(Role::Fastpath)?;
    let location = RegionLocation::Maps(config.region.maps.clone());
    let links = Links::new(location.links().unwrap_or_default());
    recover(&claim, &links, config.region.unconfirmed_percent);

    // Each start has a stage array of its own, so that a program being replaced keeps its stages.
    let stages = location.path().join(format!("{STAGES}{}", claim.epoch()));
    let _ = std::fs::remove_file(&stages);
    let mut program = Program::load_pinned(&region, location.path(), claim.epoch(), &stages)?;
    let veths = open_veths(config, &mut kernel, &nics, &location)?;
    program.configure(&runtime_config_of(&nics, &veths))?;
    for (n, (((name, _), nic), choice)) in config.arms().zip(&nics).zip(&choices).enumerate() {
        choice.notes.iter().for_each(|note| log(note));
        let (mode, notes) = links.attach(program.entry()?, nic, choice)?;
        notes.iter().for_each(|note| log(note));
        let Nic { name: interface, driver, mtu, .. } = nic;
        log(&format!("attached {} XDP on {interface} ({driver}, mtu {mtu})", mode.as_str()));
        // The veth end uses the mode of the NIC by which its packets leave: native XDP sends driver
        // frames, generic XDP sends skbs.
        let choice = Choice { modes: vec![mode], notes: Vec::new() };
        links.attach(program.entry()?, &veths[n], &choice)?;
        region.set_label(
            if name.as_str() == "ingress" { Label::Ingress } else { Label::Egress },
            &nic.name,
        );
    }
    add_addresses(config, &mut kernel.netlink, &nics, &location)?;
    let attached: Vec<&Nic> = nics.iter().chain(&veths).collect();
    remove_leftovers(&links, &attached, &location, &mut kernel.netlink, Some(&stages))?;
    region.set_label(Label::Fastpath, concat!("xdp ", env!("CARGO_PKG_VERSION")));

    let mut background = BackgroundTask::join(&region, claim.epoch(), &cpus)
        .ok_or(LoadError::Cpus { cpu: 0, supported: 0 })?;
    while !stop.load(Ordering::Relaxed) {
        background.run_once(&mut kernel, &nics, Instant::now());
        for next_hop in program.take_requested_next_hops()? {
            background.send_event(&Event::NextHopNeeded { next_hop });
        }
        std::thread::sleep(INTERVAL);
    }
    log("stopped; the programs stay attached, `ebpf-fallback --detach` detaches them");
    Ok(())
}

/// Detaches the programs from all interfaces, and removes the settings, veth pairs and routing
/// rules that Weir added. With `purge`, removes the region as well.
pub fn detach(config: &Config, purge: bool) -> Result<(), LoadError> {
    check_preconditions(&Config { plane: Plane::Xdp, ..config.clone() })?;
    let location = RegionLocation::Maps(config.region.maps.clone());
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
        log(&format!("removed {} with its flows", location.path().display()));
    }
    Ok(())
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

fn log(text: &str) {
    eprintln!("ebpf-fallback: {text}");
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
        limits::check_usable(&nic, name.as_str(), arm.mtu).map_err(failed)?;
        Ok(nic)
    });
    nics.collect()
}

/// Selects the attach modes for each arm's interface.
fn select_modes(config: &Config, nics: &[Nic], cpus: u32) -> Result<Vec<Choice>, LoadError> {
    let arms = config.arms().zip(nics);
    arms.map(|((name, arm), nic)| {
        let failed = |what| device_error(name.as_str(), arm.device.as_str(), what);
        limits::select_modes(nic, cpus, config.fastpath.attach).map_err(failed)
    })
    .collect()
}

/// Returns the settings that the programs need about interfaces. They use the region's clock
/// directly, so `skew_s` is 0.
fn runtime_config_of(nics: &[Nic], veths: &[Nic]) -> RuntimeConfig {
    let port = |nic: &Nic| Port::new(nic.index, nic.mac);
    let mut arms = nics.iter().map(port);
    let ingress = arms.next().unwrap_or_default();
    let egress = arms.next().unwrap_or(ingress);
    let kernel = [0, 1].map(|n| veths.get(n).map_or(0, |veth: &Nic| veth.index));
    RuntimeConfig { ports: [ingress, egress], kernel, ..Default::default() }
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

/// Adds the arms' addresses to the interfaces, once the programs are attached: a kernel with an
/// address that NAT uses as well resets connections whose packets no program takes.
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

/// Returns the online CPUs. The region has a status line and a counter page for each; its last ones
/// belong to the loader.
fn online_cpus(region: &Region) -> Result<Vec<u32>, LoadError> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let parse_range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    let cpus: Vec<u32> = text.trim().split(',').filter_map(parse_range).flatten().collect();
    let supported = region.sizes().lcores.saturating_sub(1);
    match cpus.iter().max() {
        Some(cpu) if *cpu >= supported => Err(LoadError::Cpus { cpu: *cpu, supported }),
        _ => Ok(cpus),
    }
}

/// Recovers the flows, as at each start of fastpath, unless programs of an earlier loader are still
/// attached: these hold locks for one packet at most and leave nothing incomplete.
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
const STAGES: &str = "stages-";

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
            log(&format!("detached from {name}"));
        }
    }
    for entry in std::fs::read_dir(location.path()).into_iter().flatten().flatten() {
        let is_stage_array = entry.file_name().to_string_lossy().starts_with(STAGES);
        if is_stage_array && Some(entry.path().as_path()) != stages {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}
