//! Checks that the arms' devices exist, that the plane has drivers for them, and that they are
//! bound to the right ones.

use super::context::Context;
use super::finding::Finding;
use crate::arm_device::{ArmDevice, Found};
use crate::bind::candidates;
use crate::driver::{Attachment, Driver, Support, UserDriver};
use crate::machine::{has_iommu_hardware, iommu_enabled, kernel_version, module_loaded};
use crate::nic::{Nic, UsedBy};
use crate::plane::{is_linked, missing_for_xdp, suits_kernel, why_unknown};

const DEVICE: &str = "device";
const DRIVER: &str = "driver";
const BINDING: &str = "binding";
const IOMMU: &str = "IOMMU";

const NO_START: &str = "the data plane does not start";

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, _) in context.arms() {
        match &device.found {
            Found::Nothing(why) => {
                let found = format!("{}: {why}", device.key());
                findings.push(Finding::error(DEVICE, found, NO_START, "weir nic list"));
            }
            Found::Virtual { driver, interface } => {
                findings.push(interface_of(context, &device, *interface));
                if context.is_dpdk() {
                    findings.push(virtual_device(context, &device, *driver));
                }
            }
            Found::Nic(nic) => {
                findings.push(Finding::ok(DEVICE, format!("{}: {}", device.key(), describe(nic))));
                match context.is_dpdk() {
                    true => findings.extend(for_dpdk(context, &device, nic)),
                    false => findings.push(for_xdp(&device)),
                }
            }
        }
    }
    findings.extend(iommu(context));
    findings
}

fn describe(nic: &Nic) -> String {
    let hardware = nic.dpdk_driver.map(|driver| driver.title.to_owned());
    let hardware = hardware.or_else(|| nic.pci_id.map(|id| id.to_string()));
    let bound = nic.kernel_driver.as_deref().unwrap_or("no driver");
    let names: Vec<&str> = nic.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    let mut text = hardware.unwrap_or_else(|| nic.name());
    text += &format!(", bound to {bound}");
    if !names.is_empty() {
        text += &format!(", interface {}", names.join(", "));
    }
    text
}

/// Checks the interface that a virtual device of DPDK uses, or to which XDP programs are attached.
fn interface_of(context: &Context<'_>, device: &ArmDevice<'_>, interface: Option<&str>) -> Finding {
    let key = device.key();
    match interface {
        Some(name) if context.root.exists(format!("sys/class/net/{name}")) => {
            Finding::ok(DEVICE, format!("{key}: interface {name}"))
        }
        Some(name) => {
            let found = format!("{key}: no interface {name}");
            Finding::error(DEVICE, found, NO_START, "weir nic list")
        }
        None if context.is_dpdk() => Finding::ok(DEVICE, format!("{key}: without an interface")),
        None => {
            let found = format!("{key}: it names no interface");
            let remedy = "write the interface: iface=eth1";
            Finding::error(DEVICE, found, "XDP has nothing to attach to", remedy)
        }
    }
}

fn virtual_device(
    context: &Context<'_>,
    device: &ArmDevice<'_>,
    driver: Option<&'static Driver>,
) -> Finding {
    let key = device.key();
    let Some(driver) = driver else {
        let reason = format!("{key}: Weir does not know this driver of DPDK");
        return Finding::not_checked(DRIVER, reason, "");
    };
    if context.dpdk.is_none() {
        return unlisted(&key);
    }
    if let Err(why) = is_linked(driver, context.dpdk.as_ref()) {
        let remedy = "use another device, or plane = \"xdp\"";
        return Finding::error(DRIVER, format!("{key}: {why}"), NO_START, remedy);
    }
    Finding::ok(DRIVER, format!("{key}: fastpath has {}", driver.name))
}

fn unlisted(key: &str) -> Finding {
    let reason = format!("{key}: fastpath did not list its drivers");
    Finding::not_checked(DRIVER, reason, "fastpath --drivers")
}

fn for_xdp(device: &ArmDevice<'_>) -> Finding {
    match missing_for_xdp(device) {
        Some(why) => {
            let remedy = format!("weir nic unbind {}", device.name);
            Finding::error(BINDING, why, "XDP has no interface to attach to", remedy)
        }
        None => {
            let interface = device.interface().unwrap_or_default();
            Finding::ok(BINDING, format!("{}: the kernel has it as {interface}", device.key()))
        }
    }
}

fn for_dpdk(context: &Context<'_>, device: &ArmDevice<'_>, nic: &Nic) -> Vec<Finding> {
    let key = device.key();
    let error = |found: String, remedy: &str| vec![Finding::error(DRIVER, found, NO_START, remedy)];
    let xdp = "set plane = \"xdp\", or use another NIC";
    let Some(driver) = nic.dpdk_driver else {
        return error(format!("{key}: {}", why_unknown(nic)), xdp);
    };
    if let Some(id) = nic.pci_id.filter(|id| !driver.accepts(*id)) {
        let found = format!("{key}: {} does not accept this model ({id})", driver.name);
        return error(found, xdp);
    }
    let mut findings = Vec::new();
    match (&context.dpdk, is_linked(driver, context.dpdk.as_ref())) {
        (None, _) => findings.push(unlisted(&key)),
        (Some(_), Ok(())) => {
            findings.push(Finding::ok(DRIVER, format!("{key}: fastpath has {}", driver.name)));
        }
        (Some(_), Err(why)) => {
            let remedy = "install a fastpath with this driver, or set plane = \"xdp\"";
            findings.extend(error(format!("{key}: {why}"), remedy));
        }
    }
    let kernel = kernel_version(context.root);
    match suits_kernel(driver, kernel) {
        Ok(()) => {}
        Err(why) if kernel.is_none() => {
            findings.push(Finding::not_checked(DRIVER, format!("{key}: {why}"), ""));
        }
        Err(why) => {
            let remedy = "boot a newer kernel (Debian: bookworm-backports), or set plane = \"xdp\"";
            findings.extend(error(format!("{key}: {why}"), remedy));
        }
    }
    findings.extend(binding(context, device, nic, driver));
    findings
}

fn binding(
    context: &Context<'_>,
    device: &ArmDevice<'_>,
    nic: &Nic,
    driver: &'static Driver,
) -> Vec<Finding> {
    let key = device.key();
    let mut findings = Vec::new();
    if let Some(why) = nic.protection() {
        findings.push(Finding::warning(
            BINDING,
            format!("{key}: {why}"),
            "DPDK takes the NIC from the kernel, and this machine is reachable through Weir's TAP \
             only while fastpath runs",
            "use another NIC for Weir, or reach the machine by another way",
        ));
    }
    match driver.attachment {
        Attachment::Bifurcated(modules) => {
            let missing = modules.iter().copied().filter(|name| !module_loaded(context.root, name));
            let missing: Vec<&str> = missing.collect();
            if nic.used_by != UsedBy::Kernel {
                let bound = nic.kernel_driver.as_deref().unwrap_or("no driver");
                findings.push(Finding::error(
                    BINDING,
                    format!("{key}: bound to {bound}"),
                    format!("{} works beside the kernel's driver only", driver.name),
                    format!("weir nic unbind {}", device.name),
                ));
            } else if missing.is_empty() {
                let text = format!("{key}: stays with the kernel's driver, beside {}", driver.name);
                findings.push(Finding::ok(BINDING, text));
            } else {
                findings.push(Finding::error(
                    BINDING,
                    format!("{key}: modules not loaded: {}", missing.join(", ")),
                    format!("{} finds no device", driver.name),
                    format!("modprobe -a {}", missing.join(" ")),
                ));
            }
        }
        Attachment::UserDriver(supports) => {
            findings.extend(user_driver(context, device, nic, (driver, supports)));
        }
        Attachment::Interface | Attachment::Virtual => {}
    }
    findings
}

/// Checks that a device is bound to a user driver (vfio-pci or UIO) with which DPDK's driver works.
fn user_driver(
    context: &Context<'_>,
    device: &ArmDevice<'_>,
    nic: &Nic,
    (driver, supports): (&Driver, &[Support]),
) -> Vec<Finding> {
    let key = device.key();
    let version = context.dpdk.as_ref().and_then(|dpdk| dpdk.version);
    let found = candidates(context.root, nic, version);
    let bound = nic.kernel_driver.as_deref().unwrap_or("no driver");
    let is_bound = |candidate: UserDriver| candidate.as_str() == bound;
    if nic.used_by != UsedBy::Process {
        let usable = found.drivers.iter().any(|one| one.obstacle.is_none() && !one.only_on_request);
        let why: Vec<&str> =
            found.drivers.iter().filter_map(|one| one.obstacle.as_deref()).collect();
        let consequence = match usable {
            true => "fastpath cannot open it".to_owned(),
            false => {
                format!("fastpath cannot open it, and it cannot be bound: {}", why.join("; or "))
            }
        };
        let verb = if usable { "bind" } else { "plan" };
        let remedy = format!("weir nic {verb} {}", device.name);
        return vec![Finding::error(
            BINDING,
            format!("{key}: bound to {bound}"),
            consequence,
            remedy,
        )];
    }
    if !supports.iter().any(|support| is_bound(support.driver)) {
        let names: Vec<&str> = supports.iter().map(|support| support.driver.as_str()).collect();
        let consequence = format!("{} works with {} only", driver.name, names.join(", "));
        let remedy = format!("weir nic bind {}", device.name);
        return vec![Finding::error(
            BINDING,
            format!("{key}: bound to {bound}"),
            consequence,
            remedy,
        )];
    }
    let mut findings = vec![Finding::ok(BINDING, format!("{key}: bound to {bound}"))];
    if let Some(candidate) = found.drivers.iter().find(|one| is_bound(one.driver)) {
        if let Some(obstacle) = &candidate.obstacle {
            let remedy = format!("weir nic plan {}", device.name);
            let found = format!("{key}: bound to {bound}");
            findings.push(Finding::warning(BINDING, found, obstacle, remedy));
        }
        let demands = candidate.warnings.iter();
        findings.extend(demands.map(|demand| Finding::info(BINDING, format!("{key}: {demand}"))));
    }
    findings
}

/// Checks the IOMMU, where a device is bound, or can be bound, to vfio-pci.
fn iommu(context: &Context<'_>) -> Vec<Finding> {
    let root = context.root;
    let arms = context.arms();
    let with_vfio = |nic: &&Nic| {
        matches!(nic.dpdk_driver.map(|driver| driver.attachment), Some(Attachment::UserDriver(all))
            if all.iter().any(|support| support.driver == UserDriver::VfioPci))
    };
    let nics: Vec<&Nic> =
        arms.iter().filter_map(|(device, _)| device.nic()).filter(with_vfio).collect();
    if !context.is_dpdk() || nics.is_empty() {
        return Vec::new();
    }
    let bound = |nic: &&&Nic| nic.kernel_driver.as_deref() == Some(UserDriver::VfioPci.as_str());
    let without = nics.iter().filter(bound).find(|nic| nic.iommu_group.is_none());
    if let Some(nic) = without {
        let found = format!("{} is bound to vfio-pci without an IOMMU", nic.name());
        let consequence =
            "the NIC, and any process that controls it, can read and write all memory";
        return vec![Finding::warning(IOMMU, found, consequence, "")];
    }
    let in_use = root.list("sys/class/iommu");
    let found = match (iommu_enabled(root), has_iommu_hardware(root)) {
        (true, _) => Finding::ok(IOMMU, format!("in use: {}", in_use.join(", "))),
        (false, Some(true)) => {
            let found = "the machine has an IOMMU that is not in use";
            let consequence = "vfio-pci cannot be used, or does not confine the NIC";
            Finding::warning(IOMMU, found, consequence, context.boot_remedy())
        }
        (false, Some(false)) => {
            Finding::info(IOMMU, "the machine has none: NICs are bound to a UIO driver")
        }
        (false, None) => {
            let reason = "the firmware's tables (/sys/firmware/acpi/tables) cannot be read, and no \
                          IOMMU is in use";
            Finding::not_checked(IOMMU, reason, "")
        }
    };
    vec![found]
}
