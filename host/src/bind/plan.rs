//! Plans: the writes to sysfs that bind a device for DPDK, or return it to the kernel.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use serde::Serialize;

use super::candidate::{self, Candidate, Candidates};
use super::error::BindError;
use super::record::Record;
use super::users;
use crate::Root;
use crate::address::{BusAddress, PciAddress};
use crate::driver::{Attachment, UserDriver, Version};
use crate::nic::{Inventory, Location, Nic, UsedBy};

/// How devices are to be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BindOptions {
    /// The driver; the best usable one if not given.
    pub driver: Option<UserDriver>,
    /// Whether to bind also devices that a default route or an ssh session depends on, devices
    /// whose interface is in another network namespace, and devices for which Weir knows no driver
    /// of DPDK.
    pub force: bool,
    /// The version of DPDK that will use the devices, if known.
    pub dpdk: Option<Version>,
}

/// A write to a file of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Absolute path of the file on the machine, without the prefix of a [`Root`].
    pub path: PathBuf,
    /// The text; empty to clear the file.
    pub text: String,
}

impl Display for Write {
    /// Formats the write as a shell command.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let space = if self.text.is_empty() { "" } else { " " };
        write!(f, "echo{space}{} > {}", self.text, self.path.display())
    }
}

impl Serialize for Write {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The change of one device, with its warnings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Plan {
    /// The device.
    pub device: BusAddress,
    /// The change.
    pub action: Action,
    /// Consequences that the operator should know before the plan is applied.
    pub warnings: Vec<String>,
}

/// The change of a device's binding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// No write is needed, for this reason.
    Nothing(String),
    /// It is bound for DPDK.
    Bind {
        /// The driver to bind.
        driver: UserDriver,
        /// The writes, in order.
        writes: Vec<Write>,
        /// The driver, override, interfaces and MAC addresses of the device before.
        #[serde(skip)]
        record: Record,
    },
    /// It is returned to the kernel.
    Unbind {
        /// The driver that must be bound afterwards; `None` for any driver of the kernel.
        expected: Option<String>,
        /// Whether no driver was bound before, so that none needs to be bound afterwards.
        unused: bool,
        /// The writes, in order.
        writes: Vec<Write>,
    },
}

impl Plan {
    /// Returns the writes, in order; none if there is nothing to do.
    pub fn writes(&self) -> &[Write] {
        match &self.action {
            Action::Nothing(_) => &[],
            Action::Bind { writes, .. } | Action::Unbind { writes, .. } => writes,
        }
    }

    fn nothing(device: BusAddress, why: impl Into<String>) -> Plan {
        Plan { device, action: Action::Nothing(why.into()), warnings: Vec::new() }
    }
}

fn write(path: impl AsRef<str>, text: impl Into<String>) -> Write {
    Write { path: PathBuf::from("/").join(path.as_ref()), text: text.into() }
}

/// Returns the override of a device's driver, if one is set. The kernel shows `(null)` for none.
fn driver_override(root: &Root, device: BusAddress) -> Option<String> {
    let text = root.read(format!("{}/driver_override", device.directory()))?;
    Some(text).filter(|text| text != "(null)")
}

/// Returns the writes that set the driver override to `name` (clear it if empty) and unbind the
/// present driver.
fn unbind_with_override(nic: &Nic, device: BusAddress, name: &str) -> Vec<Write> {
    let directory = device.directory();
    let mut writes = vec![write(format!("{directory}/driver_override"), name)];
    if nic.kernel_driver.is_some() {
        writes.push(write(format!("{directory}/driver/unbind"), device.to_string()));
    }
    writes
}

/// Returns the write that makes the bus bind a driver to the device: that of its override, or the
/// one that the kernel prefers.
fn probe(device: BusAddress) -> Write {
    write(format!("{}/drivers_probe", device.bus()), device.to_string())
}

/// Returns the plans that bind these devices, in order. An error means that none is bound.
pub fn plan_bind(
    root: &Root,
    inventory: &Inventory,
    requests: &[(&Nic, BindOptions)],
) -> Result<Vec<Plan>, BindError> {
    let mut plans = Vec::new();
    for (nic, options) in requests {
        plans.push(plan_one(root, inventory, nic, options)?);
    }
    let chosen: Vec<(BusAddress, UserDriver)> = plans
        .iter()
        .filter_map(|plan| match plan.action {
            Action::Bind { driver, .. } => Some((plan.device, driver)),
            _ => None,
        })
        .collect();
    for (nic, _) in requests {
        check_group(root, nic, &chosen)?;
    }
    Ok(plans)
}

fn plan_one(
    root: &Root,
    inventory: &Inventory,
    nic: &Nic,
    options: &BindOptions,
) -> Result<Plan, BindError> {
    let device = match &nic.location {
        Location::Bus(device) => *device,
        Location::Virtual(kind) | Location::Other(kind) => {
            return Err(BindError::NoDevice { name: nic.name(), kind: kind.clone() });
        }
    };
    let Candidates { nothing, drivers } = candidate::candidates(root, nic, options.dpdk);
    if let Some(why) = nothing {
        return match (options.driver, nic.dpdk_driver) {
            (Some(driver), Some(dpdk)) => {
                Err(BindError::Bifurcated { device, dpdk: dpdk.name, driver })
            }
            _ => Ok(Plan {
                warnings: foreign_driver(nic, device).into_iter().collect(),
                ..Plan::nothing(device, format!("nothing to bind: {why}"))
            }),
        };
    }
    if !options.force {
        check_known(nic, device)?;
    }
    // Checked before the drivers, so that the error appears even if their modules are not loaded.
    let pair = nic.pair.and_then(|pair| inventory.at(pair));
    let protection = nic.protection().or_else(|| pair.and_then(Nic::protection));
    if let (Some(why), false) = (&protection, options.force) {
        return Err(BindError::Protected { device, why: why.clone() });
    }
    let candidate = choose(nic, device, drivers, options.driver)?;
    let driver = candidate.driver;
    if nic.kernel_driver.as_deref() == Some(driver.as_str()) {
        let why = format!("{driver} is already bound");
        return Ok(Plan { warnings: candidate.warnings, ..Plan::nothing(device, why) });
    }
    if let Some(user) = users::find_process_using(root, device) {
        return Err(BindError::InUse { device, user });
    }
    let mut warnings = candidate.warnings;
    warnings.extend(protection.map(|why| format!("forced, although {why}")));
    let mut writes = Vec::new();
    let without_iommu = driver == UserDriver::VfioPci && nic.iommu_group.is_none();
    if without_iommu && root.read(candidate::NO_IOMMU).as_deref() != Some("Y") {
        writes.push(write(candidate::NO_IOMMU, "Y"));
    }
    writes.extend(unbind_with_override(nic, device, driver.as_str()));
    writes.push(probe(device));
    let record = Record::of(nic, driver_override(root, device));
    Ok(Plan { device, action: Action::Bind { driver, writes, record }, warnings })
}

/// Returns a warning if a device whose kernel driver must stay bound has another one or none.
fn foreign_driver(nic: &Nic, device: BusAddress) -> Option<String> {
    let own = nic.dpdk_driver?.recognition.kernel_drivers;
    let module = own.first()?;
    match nic.kernel_driver.as_deref() {
        Some(bound) if own.contains(&bound) => None,
        Some(bound) => Some(format!(
            "{bound} is bound instead of {module}; return the device: weir nic unbind {device}"
        )),
        None => Some(format!("{module} is not bound; load it: modprobe {module}")),
    }
}

/// Checks that a driver of DPDK accepts the device.
fn check_known(nic: &Nic, device: BusAddress) -> Result<(), BindError> {
    let accepted = match (nic.dpdk_driver, nic.pci_id) {
        (None, _) => false,
        // Ids that only the kernel's driver accepts.
        (Some(driver), Some(id)) => !driver.recognition.kernel_only.contains(&id),
        (Some(_), None) => true,
    };
    let what = || match nic.pci_id {
        Some(id) => format!("{id} ({})", nic.kernel_driver.as_deref().unwrap_or("no driver")),
        None => nic.kernel_driver.clone().unwrap_or_default(),
    };
    accepted.then_some(()).ok_or_else(|| BindError::UnknownNic { device, what: what() })
}

/// Returns the requested candidate, or the best usable one.
fn choose(
    nic: &Nic,
    device: BusAddress,
    candidates: Vec<Candidate>,
    requested: Option<UserDriver>,
) -> Result<Candidate, BindError> {
    let names: Vec<String> =
        candidates.iter().map(|candidate| candidate.driver.to_string()).collect();
    let Some(driver) = requested else {
        // A device that is bound for DPDK already keeps its driver.
        let current = |candidate: &&Candidate| {
            nic.kernel_driver.as_deref() == Some(candidate.driver.as_str())
        };
        if let Some(candidate) = candidates.iter().find(current) {
            return Ok(candidate.clone());
        }
        let usable =
            |candidate: &&Candidate| candidate.obstacle.is_none() && !candidate.only_on_request;
        if let Some(candidate) = candidates.iter().find(usable) {
            return Ok(candidate.clone());
        }
        let reason = |candidate: Candidate| {
            let on_request = format!("request {0} with --driver {0}", candidate.driver);
            candidate.obstacle.unwrap_or(on_request)
        };
        let reasons = candidates.into_iter().map(reason).collect();
        return Err(BindError::NoDriver { device, reasons });
    };
    let Some(candidate) = candidates.into_iter().find(|candidate| candidate.driver == driver)
    else {
        let dpdk = nic.dpdk_driver.map_or("a PCI device", |dpdk| dpdk.name);
        return Err(BindError::Unsupported { device, dpdk, driver, instead: names.join(" or ") });
    };
    match candidate.obstacle {
        Some(obstacle) => Err(BindError::NoDriver { device, reasons: vec![obstacle] }),
        None => Ok(candidate),
    }
}

/// Checks that the other devices of a device's IOMMU group are not used by drivers of the kernel,
/// if the device is to be bound to vfio-pci.
fn check_group(
    root: &Root,
    nic: &Nic,
    chosen: &[(BusAddress, UserDriver)],
) -> Result<(), BindError> {
    let (Some(device), Some(group)) = (nic.bus_address(), &nic.iommu_group) else {
        return Ok(());
    };
    if !chosen.contains(&(device, UserDriver::VfioPci)) {
        return Ok(());
    }
    for other in &group.others {
        let address = BusAddress::Pci(*other);
        let Some(driver) = root.link_name(format!("{}/driver", address.directory())) else {
            continue;
        };
        let is_harmless =
            driver == "pci-stub" || driver.contains("vfio") || is_bridge(root, *other);
        if is_harmless || chosen.contains(&(address, UserDriver::VfioPci)) {
            continue;
        }
        let interfaces = root.list(format!("{}/net", address.directory()));
        let used_by = match interfaces.first() {
            Some(interface) => format!("is {interface} of {driver}"),
            None => format!("{driver} uses"),
        };
        return Err(BindError::GroupInUse { device, group: group.number, other: *other, used_by });
    }
    Ok(())
}

/// Returns whether a device is a PCI bridge. vfio accepts bridges in a group.
fn is_bridge(root: &Root, address: PciAddress) -> bool {
    let class = root.read(format!("{}/class", BusAddress::Pci(address).directory()));
    class.is_some_and(|class| class.starts_with("0x0604"))
}

/// Returns the plan that returns a device to the kernel: to the driver and the override in the
/// record, or without a record, to the driver that the kernel prefers.
pub fn plan_unbind(root: &Root, nic: &Nic, record: Option<&Record>) -> Result<Plan, BindError> {
    let device = match &nic.location {
        Location::Bus(device) => *device,
        Location::Virtual(kind) | Location::Other(kind) => {
            return Err(BindError::NoDevice { name: nic.name(), kind: kind.clone() });
        }
    };
    let current_override = driver_override(root, device);
    let former_override = record.and_then(|record| record.driver_override.clone());
    if nic.used_by == UsedBy::Kernel {
        let driver = nic.kernel_driver.as_deref().unwrap_or_default();
        let overrides =
            current_override.as_deref().is_some_and(|name| name.parse::<UserDriver>().is_ok());
        if !overrides {
            return Ok(Plan::nothing(device, format!("{driver} of the kernel is already bound")));
        }
        // The device was returned to the kernel by other means, and its override would bind it for
        // DPDK at the next probe.
        let cleared = write(format!("{}/driver_override", device.directory()), "");
        let expected = Some(driver.to_owned());
        let action = Action::Unbind { expected, unused: false, writes: vec![cleared] };
        return Ok(Plan { device, action, warnings: Vec::new() });
    }
    if let Some(user) = users::find_process_using(root, device) {
        return Err(BindError::InUse { device, user });
    }
    let unused = record.is_some_and(|record| record.kernel_driver.is_none());
    let mut writes = unbind_with_override(nic, device, &former_override.unwrap_or_default());
    if !unused {
        writes.push(probe(device));
    }
    let expected = record.and_then(|record| record.kernel_driver.clone());
    let warnings = match nic.dpdk_driver.map(|driver| driver.attachment) {
        Some(Attachment::Bifurcated(_)) | None => Vec::new(),
        Some(_) if record.is_none() => {
            vec!["no record of the binding: the kernel chooses the driver".to_owned()]
        }
        Some(_) => Vec::new(),
    };
    Ok(Plan { device, action: Action::Unbind { expected, unused, writes }, warnings })
}
