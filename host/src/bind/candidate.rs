//! The drivers to which a device can be bound on this machine.

use serde::Serialize;

use crate::Root;
use crate::address::BusAddress;
use crate::driver::{Attachment, Support, UserDriver, Version};
use crate::nic::Nic;

/// The parameter of vfio that allows devices without an IOMMU. Kernels without
/// `CONFIG_VFIO_NOIOMMU` do not have it.
pub(super) const NO_IOMMU: &str = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode";

/// The version of DPDK that is assumed if it is not known. Drivers that require a later one are
/// then chosen only on request.
const OLDEST: Version = Version(22, 11);

/// The drivers with which DPDK can use a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Candidates {
    /// Why the device must stay with its present driver; `None` if it must be bound to another one.
    pub nothing: Option<String>,
    /// Drivers to which it can be bound, best first.
    pub drivers: Vec<Candidate>,
}

/// A driver to which a device can be bound.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Candidate {
    /// The driver.
    pub driver: UserDriver,
    /// Why it cannot be used now, and what to do; `None` if it can.
    pub obstacle: Option<String>,
    /// Consequences that the operator should know before using it.
    pub warnings: Vec<String>,
    /// Whether the driver is used only if requested.
    pub only_on_request: bool,
}

/// The drivers to try for a device for which Weir knows no driver of DPDK.
const GENERAL: [Support; 3] = [
    Support { driver: UserDriver::VfioPci, since: OLDEST, demand: "" },
    Support { driver: UserDriver::IgbUio, since: OLDEST, demand: "" },
    Support { driver: UserDriver::UioPciGeneric, since: OLDEST, demand: "" },
];

/// Returns the drivers with which this version of DPDK can use a device. If the version is unknown,
/// drivers that require a later one than 22.11 are included with a warning.
pub fn candidates(root: &Root, nic: &Nic, dpdk: Option<Version>) -> Candidates {
    let nothing = |why: String| Candidates { nothing: Some(why), drivers: Vec::new() };
    let Some(address) = nic.bus_address() else {
        return nothing("an interface of the kernel: DPDK opens it by name".to_owned());
    };
    let supports = match nic.dpdk_driver {
        None => &GENERAL[..],
        Some(driver) => match driver.attachment {
            Attachment::UserDriver(supports) => supports,
            Attachment::Bifurcated(modules) => {
                return nothing(format!(
                    "{} drives the queues beside the kernel's driver (modules {})",
                    driver.name,
                    modules.join(", ")
                ));
            }
            Attachment::Interface | Attachment::Virtual => &[],
        },
    };
    let mut drivers: Vec<Candidate> =
        supports.iter().map(|support| candidate(root, nic, address, support, dpdk)).collect();
    // An IOMMU protects the machine from the device, and the other drivers do not use it.
    if nic.iommu_group.is_some() {
        drivers.sort_by_key(|candidate| candidate.driver != UserDriver::VfioPci);
    }
    Candidates { nothing: None, drivers }
}

fn candidate(
    root: &Root,
    nic: &Nic,
    address: BusAddress,
    support: &Support,
    dpdk: Option<Version>,
) -> Candidate {
    let driver = support.driver;
    let mut warnings = Vec::new();
    if !support.demand.is_empty() {
        warnings.push(format!("{driver}: {}", support.demand));
    }
    let (name, since) = (nic.dpdk_driver.map_or("the driver", |driver| driver.name), support.since);
    let too_old = dpdk.is_some_and(|dpdk| dpdk < since);
    let obstacle = if too_old {
        Some(format!("{name} works with {driver} from DPDK {since} on"))
    } else {
        not_loaded(root, nic, address, driver).or_else(|| match driver {
            UserDriver::VfioPci => without_iommu(root, nic, &mut warnings),
            UserDriver::IgbUio | UserDriver::UioPciGeneric => translated(nic, driver),
            UserDriver::UioHvGeneric => None,
        })
    };
    if dpdk.is_none() && since > OLDEST {
        warnings.push(format!("{driver}: {name} works with it from DPDK {since} on"));
    }
    Candidate { driver, obstacle, warnings, only_on_request: dpdk.is_none() && since > OLDEST }
}

fn not_loaded(root: &Root, nic: &Nic, address: BusAddress, driver: UserDriver) -> Option<String> {
    if root.exists(format!("{}/drivers/{driver}", address.bus())) {
        return None;
    }
    let is_ena = nic.dpdk_driver.is_some_and(|dpdk| dpdk.name == "net_ena");
    let (parameters, note) = match driver {
        UserDriver::IgbUio if is_ena => (" wc_activate=1", " (Debian: package dpdk-kmods-dkms)"),
        UserDriver::IgbUio => ("", " (Debian: package dpdk-kmods-dkms)"),
        UserDriver::VfioPci if nic.iommu_group.is_none() => (
            "",
            " (without an IOMMU, the kernel must have CONFIG_VFIO_NOIOMMU, \
             which Debian's kernels lack)",
        ),
        _ => ("", ""),
    };
    Some(format!("{driver} is not loaded; type: modprobe {driver}{parameters}{note}"))
}

/// Returns why vfio-pci cannot be used for a device without an IOMMU; adds a warning if it can.
fn without_iommu(root: &Root, nic: &Nic, warnings: &mut Vec<String>) -> Option<String> {
    if nic.iommu_group.is_some() {
        return None;
    }
    if !root.exists(NO_IOMMU) {
        return Some(
            "vfio-pci needs an IOMMU, which this machine does not have or use, and this kernel has \
             no no-IOMMU mode (CONFIG_VFIO_NOIOMMU; Debian's kernels leave it off); enable the \
             IOMMU (firmware, kernel command line intel_iommu=on), or use a UIO driver"
                .to_owned(),
        );
    }
    warnings.push(
        "vfio-pci works without an IOMMU here (enable_unsafe_noiommu_mode): the NIC, and any \
         process that controls it, can read and write all memory of this machine; the kernel is \
         marked as tainted"
            .to_owned(),
    );
    None
}

/// Returns why a UIO driver cannot be used behind an IOMMU that translates addresses.
fn translated(nic: &Nic, driver: UserDriver) -> Option<String> {
    let group = nic.iommu_group.as_ref()?;
    let translation = group.translation.as_deref().filter(|kind| *kind != "identity")?;
    Some(format!(
        "{driver} gives the NIC physical addresses, and the IOMMU translates those of group {} \
         ({translation}); use vfio-pci, or boot with iommu=pt",
        group.number
    ))
}
