//! Selects the data plane: DPDK where NICs, drivers, CPUs and memory allow it, XDP otherwise.
//!
//! [`observe`] reads the machine, and [`decide`] is a function of what was read.

use config::Config;
use config::checked::Plane;
pub use config::plane_decision::Decision;
use hugepages::Machine;
use serde::Serialize;

use crate::Root;
use crate::arm_device::{ArmDevice, Found, arm_devices};
use crate::bind::{Candidates, candidates};
use crate::cpu_set::CpuSet;
use crate::driver::{Attachment, DRIVERS, Driver, Version};
use crate::machine::{Cpus, kernel_version, module_available, module_loaded, processes};
use crate::nic::{Inventory, Location, Nic, UsedBy};

/// The DPDK that is linked into fastpath.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Dpdk {
    /// The version of DPDK, if it could be parsed.
    pub version: Option<Version>,
    /// Names of its drivers' libraries.
    pub drivers: Vec<String>,
}

impl Dpdk {
    /// Parses the output of `fastpath --drivers`: `DPDK 24.11.1`, then a library per line. Returns
    /// `None` if the first line is another one, or no line names a library of the driver table.
    pub fn parse(text: &str) -> Option<Dpdk> {
        let mut lines = text.lines().map(str::trim);
        let version = lines.next()?.strip_prefix("DPDK ")?;
        let mut numbers = version.split('.').map(|part| part.parse::<u16>().ok());
        let version = match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(year), Some(month)) => Some(Version(year, month)),
            _ => None,
        };
        let known = |name: &&str| DRIVERS.iter().any(|driver| driver.library() == *name);
        let drivers: Vec<String> = lines.filter(known).map(str::to_owned).collect();
        (!drivers.is_empty()).then_some(Dpdk { version, drivers })
    }

    /// Returns whether this driver is linked.
    pub fn has(&self, driver: &Driver) -> bool {
        self.drivers.iter().any(|name| name == driver.library())
    }
}

/// An arm's device, and the ways to give it to DPDK.
#[derive(Clone, PartialEq, Debug)]
pub struct ArmObservation<'a> {
    /// The device.
    pub device: ArmDevice<'a>,
    /// The drivers to which it can be bound; `None` if it is not a NIC.
    pub candidates: Option<Candidates>,
    /// Modules of a bifurcated driver that this kernel does not have.
    pub absent_modules: Vec<&'static str>,
}

/// What the selection of the plane depends on.
#[derive(Clone, PartialEq, Debug)]
pub struct Observation<'a> {
    /// The arms' devices.
    pub arms: Vec<ArmObservation<'a>>,
    /// The DPDK of fastpath; `None` if fastpath is not there or did not list its drivers.
    pub dpdk: Option<Dpdk>,
    /// The kernel's version.
    pub kernel: Option<Version>,
    /// Reasons why fastpath could not use its CPUs; empty if it could.
    pub cpu_problems: Vec<String>,
    /// Reasons why DPDK would not get its memory; empty if it would.
    pub memory_problems: Vec<String>,
}

impl Observation<'_> {
    /// Returns the observation without memory problems, to decide as if the memory for DPDK were
    /// reserved.
    pub fn with_memory(self) -> Self {
        Self { memory_problems: Vec::new(), ..self }
    }
}

/// Reads what the selection of the plane depends on.
pub fn observe<'a>(
    root: &Root,
    config: &'a Config,
    inventory: &'a Inventory,
    dpdk: Option<Dpdk>,
) -> Observation<'a> {
    let version = dpdk.as_ref().and_then(|dpdk| dpdk.version);
    let arm = |device: ArmDevice<'a>| {
        let driver = device.dpdk_driver();
        let modules = match driver.map(|driver| driver.attachment) {
            Some(Attachment::Bifurcated(modules)) => modules,
            _ => &[],
        };
        let absent =
            |name: &&str| !module_loaded(root, name) && module_available(root, name) == Some(false);
        ArmObservation {
            candidates: device.nic().map(|nic| candidates(root, nic, version)),
            absent_modules: modules.iter().copied().filter(absent).collect(),
            device,
        }
    };
    Observation {
        arms: arm_devices(config, inventory).into_iter().map(arm).collect(),
        dpdk,
        kernel: kernel_version(root),
        cpu_problems: cpu_problems(root, config),
        memory_problems: memory_problems(root, config),
    }
}

/// Returns the reasons why fastpath could not use its CPUs; empty also if the kernel lists no CPUs.
fn cpu_problems(root: &Root, config: &Config) -> Vec<String> {
    let Some(cpus) = Cpus::read(root) else { return Vec::new() };
    let (fastpath, online) = (&config.fastpath, &cpus.online);
    let offline = |key: &str, required: CpuSet| {
        let missing = required.without(online);
        (!missing.is_empty())
            .then(|| format!("{key}: CPU {missing} is not online; online: {online}"))
    };
    let lcores = offline("fastpath.lcores", fastpath.lcores.iter().copied().collect());
    let main = offline("fastpath.main_core", std::iter::once(fastpath.main_core).collect());
    lcores.into_iter().chain(main).collect()
}

/// Returns why DPDK would not get its memory; empty if it would, or if a running fastpath has it.
fn memory_problems(root: &Root, config: &Config) -> Vec<String> {
    if processes(root).iter().any(|process| process.name == "fastpath") {
        return Vec::new();
    }
    let path = root.join("");
    match Machine::read(&path) {
        Ok(machine) => {
            let for_dpdk = Config { plane: Plane::Dpdk, ..config.clone() };
            let plan = hugepages::plan_below(&for_dpdk, &path);
            hugepages::check(&plan, &machine).problems
        }
        Err(error) => vec![error.to_string()],
    }
}

/// Returns whether the machine has the devices of all arms. The kernel may find them late.
pub fn devices_exist(config: &Config, inventory: &Inventory) -> bool {
    let missing = |device: ArmDevice<'_>| matches!(device.found, Found::Nothing(_));
    !arm_devices(config, inventory).into_iter().any(missing)
}

/// Selects the plane: DPDK if nothing prevents it, otherwise XDP.
pub fn decide(observed: &Observation<'_>) -> Decision {
    let (mut reasons, mut obstacles) = (Vec::new(), Vec::new());
    for arm in &observed.arms {
        match dpdk_drives(arm, observed) {
            Ok(reason) => reasons.push(format!("{}: {reason}", arm.device.key())),
            Err(obstacle) => obstacles.push(format!("{}: {obstacle}", arm.device.key())),
        }
    }
    obstacles.extend(observed.cpu_problems.iter().cloned());
    obstacles.extend(observed.memory_problems.iter().cloned());
    if obstacles.is_empty() {
        reasons.push("the memory that DPDK needs is available".to_owned());
        return Decision { plane: Plane::Dpdk, reasons };
    }
    obstacles.extend(observed.arms.iter().filter_map(|arm| missing_for_xdp(&arm.device)));
    Decision { plane: Plane::Xdp, reasons: obstacles }
}

/// Returns how DPDK drives an arm's device, or why it does not.
fn dpdk_drives(arm: &ArmObservation<'_>, observed: &Observation<'_>) -> Result<String, String> {
    let nic = match &arm.device.found {
        Found::Nothing(why) => return Err(why.clone()),
        Found::Virtual { driver: None, .. } => {
            return Err("Weir knows no virtual device of DPDK of this name".to_owned());
        }
        Found::Virtual { driver: Some(driver), interface } => {
            is_linked(driver, observed.dpdk.as_ref())?;
            return match interface {
                Some(interface) => Err(format!(
                    "{} reaches {interface} through the kernel, which is slower than XDP",
                    driver.name
                )),
                None => Ok(format!("a virtual device of DPDK ({})", driver.name)),
            };
        }
        Found::Nic(nic) => *nic,
    };
    let Some(driver) = nic.dpdk_driver else { return Err(why_unknown(nic)) };
    if let Some(id) = nic.pci_id.filter(|id| !driver.accepts(*id)) {
        return Err(format!("{} does not accept this model ({id}), the kernel does", driver.name));
    }
    is_linked(driver, observed.dpdk.as_ref())?;
    suits_kernel(driver, observed.kernel)?;
    if let Some(why) = nic.protection() {
        return Err(format!("{why}; DPDK would take it away"));
    }
    match driver.attachment {
        Attachment::Bifurcated(_) => beside_kernel(arm, nic, driver),
        Attachment::UserDriver(supports) => {
            let bound = nic.kernel_driver.as_deref();
            let fits = supports.iter().any(|one| Some(one.driver.as_str()) == bound);
            match (nic.used_by, bound) {
                (UsedBy::Process, Some(bound)) if fits => {
                    Ok(format!("{} drives it, bound to {bound}", driver.name))
                }
                (UsedBy::Process, Some(bound)) => {
                    Err(format!("{} does not work with {bound}, to which it is bound", driver.name))
                }
                _ => bindable(arm, driver),
            }
        }
        Attachment::Interface | Attachment::Virtual => {
            Err(format!("{} drives no device of this kind", driver.name))
        }
    }
}

/// Returns why Weir knows no driver of DPDK for a NIC.
pub(crate) fn why_unknown(nic: &Nic) -> String {
    match &nic.location {
        Location::Bus(_) => {
            let what = nic.pci_id.map_or_else(|| nic.name(), |id| id.to_string());
            format!("Weir knows no driver of DPDK for {what}")
        }
        Location::Virtual(kind) => format!("an interface of software ({kind}), not a NIC"),
        Location::Other(bus) => format!("on bus {bus}, which DPDK does not reach"),
    }
}

/// Checks that fastpath has a driver, in a usable version of DPDK.
pub(crate) fn is_linked(driver: &Driver, dpdk: Option<&Dpdk>) -> Result<(), String> {
    let Some(dpdk) = dpdk else {
        return Err("the drivers of fastpath are unknown (fastpath --drivers)".to_owned());
    };
    if !dpdk.has(driver) {
        return Err(format!("fastpath has no driver {} ({})", driver.name, driver.title));
    }
    match dpdk.version {
        Some(version) if version < driver.min_dpdk => Err(format!(
            "{} is usable from DPDK {} on, fastpath has {version}",
            driver.name, driver.min_dpdk
        )),
        _ => Ok(()),
    }
}

/// Checks that the kernel is new enough for a driver. An unknown version is an error.
pub(crate) fn suits_kernel(driver: &Driver, kernel: Option<Version>) -> Result<(), String> {
    let (Some(needed), name) = (driver.min_kernel, driver.name) else { return Ok(()) };
    match kernel {
        Some(kernel) if kernel >= needed => Ok(()),
        Some(kernel) => Err(format!("{name} needs Linux {needed}, this machine runs {kernel}")),
        None => Err(format!("{name} needs Linux {needed}, and this kernel's version is unknown")),
    }
}

/// Returns how a bifurcated driver drives a NIC, or why it does not.
fn beside_kernel(arm: &ArmObservation<'_>, nic: &Nic, driver: &Driver) -> Result<String, String> {
    if !arm.absent_modules.is_empty() {
        let modules = arm.absent_modules.join(", ");
        return Err(format!("{} needs modules that this kernel lacks: {modules}", driver.name));
    }
    match nic.used_by {
        UsedBy::Kernel => Ok(format!("{} drives it beside the kernel's driver", driver.name)),
        UsedBy::Process | UsedBy::Nothing => Err(format!(
            "{} works beside the kernel's driver, which is not bound to it; `weir nic unbind` \
             binds it",
            driver.name
        )),
    }
}

/// Returns to which driver a NIC that is not bound for DPDK can be bound, or why to none.
fn bindable(arm: &ArmObservation<'_>, driver: &Driver) -> Result<String, String> {
    let all = arm.candidates.as_ref().map_or(&[][..], |candidates| &candidates.drivers);
    let usable = |obstacle: &Option<String>| obstacle.is_none();
    let best = all.iter().find(|one| usable(&one.obstacle) && !one.only_on_request);
    match best {
        Some(best) => Ok(format!("{} drives it, once it is bound to {}", driver.name, best.driver)),
        None => {
            let why: Vec<&str> = all.iter().filter_map(|one| one.obstacle.as_deref()).collect();
            Err(format!("it cannot be bound for {}: {}", driver.name, why.join("; or ")))
        }
    }
}

/// Returns what XDP lacks on an arm: an interface of the kernel.
pub(crate) fn missing_for_xdp(device: &ArmDevice<'_>) -> Option<String> {
    let nic = device.nic()?;
    let bound = nic.kernel_driver.as_deref().unwrap_or("no driver");
    (nic.interfaces.is_empty()).then(|| {
        format!(
            "{}: XDP needs an interface of the kernel, and the NIC is bound to {bound}; type: weir \
             nic unbind {}",
            device.key(),
            device.name
        )
    })
}

#[cfg(test)]
mod tests;
