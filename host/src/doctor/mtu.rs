//! Checks the MTU of each arm against its gateways' tunnels, its DPDK driver and its interface.

use config::checked::{Arm, frame_buffer_bytes};

use super::context::Context;
use super::finding::Finding;
use crate::arm_device::{ArmDevice, Found};
use crate::driver::{Limit, RxScatter};

const CHECK: &str = "MTU";

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, arm) in context.arms() {
        findings.push(tunnels(context, &device, arm));
        match context.is_dpdk() {
            true => {
                findings.extend(driver(context, &device, arm));
                if has_interface(&device) {
                    findings.push(interface(context, &device, arm));
                }
            }
            false => findings.push(interface(context, &device, arm)),
        }
    }
    findings
}

/// Returns whether the device is a virtual one on an interface of the kernel. The limit is then the
/// MTU of the interface, whatever maximum the driver reports.
fn has_interface(device: &ArmDevice<'_>) -> bool {
    matches!(device.found, Found::Virtual { interface: Some(_), .. })
}

/// Reports the MTU that the gateways' tunnels need on an arm. A configuration with less is rejected
/// before.
fn tunnels(context: &Context<'_>, device: &ArmDevice<'_>, arm: &Arm) -> Finding {
    let name = device.arm.as_str();
    let each = context.config.gateways.iter().flat_map(|gateway| {
        let own = gateway.tunnels.iter().filter(|tunnel| tunnel.arm == device.arm);
        own.map(|tunnel| {
            let overhead = gateway.kind.overhead(tunnel.local.is_ipv6());
            let needed = u32::from(gateway.inner_mtu) + u32::from(overhead);
            (needed, gateway.inner_mtu, overhead, gateway.name.as_str())
        })
    });
    match each.max() {
        Some((needed, inner, overhead, gateway)) => Finding::ok(
            CHECK,
            format!(
                "{name}.mtu = {}: gateway \"{gateway}\" needs {needed} ({inner} in a tunnel of \
                 {overhead}); the network must carry it too",
                arm.mtu
            ),
        ),
        None => Finding::ok(CHECK, format!("{name}.mtu = {}: no gateway's tunnel", arm.mtu)),
    }
}

/// Checks the limits of a driver of DPDK.
fn driver(context: &Context<'_>, device: &ArmDevice<'_>, arm: &Arm) -> Vec<Finding> {
    let Some(driver) = device.dpdk_driver() else { return Vec::new() };
    let name = device.arm.as_str();
    let mut findings = Vec::new();
    let version = context.dpdk.as_ref().and_then(|dpdk| dpdk.version);
    if let Some(Limit::Fixed(max)) = version.and_then(|version| driver.max_mtu.at(version))
        && u32::from(arm.mtu) > *max
        && !has_interface(device)
    {
        findings.push(Finding::error(
            CHECK,
            format!("{name}.mtu = {}: {} allows {max} at most", arm.mtu, driver.name),
            "fastpath does not start",
            format!("set {name}.mtu = {max} and lower inner_mtu, or use a newer DPDK"),
        ));
    }
    let buffer = u32::from(context.config.fastpath.buffer_bytes);
    let needed = frame_buffer_bytes(arm.mtu);
    if driver.rx_scatter == RxScatter::Never && buffer < needed {
        findings.push(Finding::error(
            CHECK,
            format!("fastpath.buffer_bytes = {buffer} and {name}.mtu = {}", arm.mtu),
            format!("{} drops packets that do not fit in one buffer", driver.name),
            format!("set fastpath.buffer_bytes = {needed} or more"),
        ));
    }
    findings
}

/// Checks the interface to which XDP programs are attached, or that a virtual device of DPDK uses.
fn interface(context: &Context<'_>, device: &ArmDevice<'_>, arm: &Arm) -> Finding {
    let name = device.arm.as_str();
    let mtu = |interface: &str| {
        context.root.read(format!("sys/class/net/{interface}/mtu"))?.parse::<u32>().ok()
    };
    let found = device.interface().and_then(|interface| Some((interface, mtu(interface)?)));
    let Some((interface, mtu)) = found else {
        let reason = format!("{}: no interface with an MTU", device.key());
        return Finding::not_checked(CHECK, reason, "");
    };
    if mtu < u32::from(arm.mtu) {
        return Finding::error(
            CHECK,
            format!("{name}.mtu = {}: the MTU of {interface} is {mtu}", arm.mtu),
            format!("{} does not start", context.data_plane()),
            format!("ip link set dev {interface} mtu {}", arm.mtu),
        );
    }
    Finding::ok(CHECK, format!("{name}.mtu = {}: the MTU of {interface} is {mtu}", arm.mtu))
}
