//! Checks the kernel's reverse path filters, ephemeral ports and clock source.

use config::checked::{MachineWarning, machine_warnings};

use super::context::Context;
use super::finding::Finding;

const FILTER: &str = "rp_filter";
const PORTS: &str = "NAT ports";
const CLOCK: &str = "clock source";

/// Clock sources that programs read without a system call.
const FAST_CLOCKS: [&str; 4] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, arm) in context.arms() {
        findings.push(match context.kernel_interface(&device, arm) {
            Some(interface) => reverse_path_filter(context, interface),
            None => {
                let reason = format!("{}: there is no interface", device.key());
                Finding::not_checked(FILTER, reason, "")
            }
        });
    }
    findings.push(ephemeral_ports(context));
    findings.push(clock(context));
    findings
}

fn reverse_path_filter(context: &Context<'_>, interface: &str) -> Finding {
    let setting = |name: &str| {
        let text = context.root.read(format!("proc/sys/net/ipv4/conf/{name}/rp_filter"))?;
        text.parse::<u8>().ok()
    };
    let Some(all) = setting("all") else {
        let reason = "/proc/sys/net/ipv4/conf/all/rp_filter cannot be read";
        return Finding::not_checked(FILTER, reason, "");
    };
    // An interface that does not exist yet, such as a TAP, gets the default.
    let (own, whose) = match setting(interface) {
        Some(own) => (own, interface),
        None => (setting("default").unwrap_or(0), "default"),
    };
    // The larger value is in force: 0 off, 1 strict, 2 loose.
    if own.max(all) == 1 {
        return Finding::warning(
            FILTER,
            format!("net.ipv4.conf: all = {all}, {whose} = {own}, strict on {interface}"),
            "the kernel drops packets to proxies (proxy_redirect) and replies to health checks \
             through tunnels",
            "weir tune apply",
        );
    }
    Finding::ok(FILTER, format!("{} on {interface}", own.max(all)))
}

fn ephemeral_ports(context: &Context<'_>) -> Finding {
    let path = "proc/sys/net/ipv4/ip_local_port_range";
    let Some(range) = context.root.read(path) else {
        return Finding::not_checked(PORTS, format!("/{path} cannot be read"), "");
    };
    for warning in machine_warnings(context.config, &context.root.join("")) {
        let MachineWarning::PortOverlap(overlap) = warning else { continue };
        let remedy = match overlap.range_above() {
            Some(_) => "weir tune apply",
            None => "set nat.ports below the kernel's range",
        };
        let (nat, kernel) = (overlap.nat, overlap.ephemeral);
        return Finding::warning(
            PORTS,
            format!(
                "nat.ports = \"{}-{}\" overlap the kernel's ephemeral ports {}-{}, and both use {}",
                nat.0, nat.1, kernel.0, kernel.1, overlap.shared
            ),
            "replies to this machine's own connections may be treated as replies to NAT flows",
            remedy,
        );
    }
    let range = range.split_whitespace().collect::<Vec<_>>().join("-");
    Finding::ok(PORTS, format!("outside of the kernel's ephemeral ports {range}, or not shared"))
}

fn clock(context: &Context<'_>) -> Finding {
    let directory = "sys/devices/system/clocksource/clocksource0";
    let Some(current) = context.root.read(format!("{directory}/current_clocksource")) else {
        let reason = format!("/{directory}/current_clocksource cannot be read");
        return Finding::not_checked(CLOCK, reason, "");
    };
    if FAST_CLOCKS.contains(&current.as_str()) {
        return Finding::ok(CLOCK, current);
    }
    let available = context.root.read(format!("{directory}/available_clocksource"));
    let available = available.unwrap_or_default();
    let better = FAST_CLOCKS.iter().find(|name| available.split_whitespace().any(|n| n == **name));
    let remedy = match better {
        Some(name) => format!("echo {name} > /{directory}/current_clocksource"),
        None => "boot with tsc=reliable, if the CPUs have a constant TSC".to_owned(),
    };
    Finding::warning(
        CLOCK,
        format!("{current} (available: {available})"),
        "each reading of the time is a system call or slow: slowpath, BFD and health checks take \
         more CPU time",
        remedy,
    )
}
