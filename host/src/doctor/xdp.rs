//! Checks whether XDP programs can be attached to the drivers of the arms' NICs.

use config::checked::Attach;

use super::context::Context;
use super::finding::Finding;
use crate::arm_device::{ArmDevice, Found};
use crate::machine::Cpus;
use crate::nic::Location;
use crate::xdp::{Channels, Mode, XdpInterface, select_modes};

const CHECK: &str = "XDP mode";

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    if context.is_dpdk() {
        return Vec::new();
    }
    context.arms().iter().flat_map(|(device, _)| arm(context, device)).collect()
}

fn arm(context: &Context<'_>, device: &ArmDevice<'_>) -> Vec<Finding> {
    let key = device.key();
    let Some(name) = device.interface() else {
        let reason = format!("{key}: there is no interface");
        return vec![Finding::not_checked(CHECK, reason, "")];
    };
    let attribute = |path: &str| context.root.read(format!("sys/class/net/{name}/{path}"));
    let Some(mtu) = attribute("mtu").and_then(|text| text.parse().ok()) else {
        return vec![Finding::not_checked(CHECK, format!("{key}: {name} has no MTU"), "")];
    };
    let driver = context.root.link_name(format!("sys/class/net/{name}/device/driver"));
    let driver = driver.or_else(|| match &device.found {
        Found::Nic(nic) => match &nic.location {
            Location::Virtual(kind) => Some(kind.clone()),
            Location::Bus(_) | Location::Other(_) => None,
        },
        Found::Virtual { .. } | Found::Nothing(_) => None,
    });
    let mut findings = Vec::new();
    let driver = driver.unwrap_or_default();
    if driver == "veth" {
        let reason = format!("{key}: a veth's mode depends on its peer; ebpf-fallback logs it");
        return vec![Finding::not_checked(CHECK, reason, "")];
    }
    let run = |option| context.commands.run("ethtool", &[option, name]);
    let (queues, features) = (run("-l"), run("-k"));
    if let (Err(error), "ena" | "virtio_net") = (&queues, driver.as_str()) {
        let reason = format!("{key}: queues: {error}");
        findings.push(Finding::not_checked(CHECK, reason, "apt-get install ethtool"));
    }
    if let (Err(error), "mana" | "hv_netvsc") = (&features, driver.as_str()) {
        let reason = format!("{key}: LRO: {error}");
        findings.push(Finding::not_checked(CHECK, reason, "apt-get install ethtool"));
    }
    let interface = XdpInterface {
        name: name.to_owned(),
        mtu,
        channels: queues.ok().and_then(|text| channels(&text)),
        lro: features.is_ok_and(|text| {
            text.lines().any(|line| line.trim().starts_with("large-receive-offload: on"))
        }),
        virtio: attribute("device/features").filter(|_| driver == "virtio_net").map(|b| bits(&b)),
        driver,
        peer: None,
    };
    let cpus = Cpus::read(context.root).map_or(1, |cpus| cpus.online.len() as u32);
    let attach = context.config.fastpath.attach;
    findings.extend(mode(&key, select_modes(&interface, cpus, attach), attach));
    findings
}

fn mode(key: &str, selected: Result<crate::xdp::Choice, String>, attach: Attach) -> Vec<Finding> {
    let choice = match selected {
        Ok(choice) => choice,
        Err(why) => {
            let found = format!("{key}: {why}");
            let consequence = "ebpf-fallback does not start";
            let remedy = "see the message, or set fastpath.attach = \"auto\"";
            return vec![Finding::error(CHECK, found, consequence, remedy)];
        }
    };
    let notes = || choice.notes.iter().map(|note| format!("{key}: {note}"));
    match (choice.modes.first(), attach) {
        (Some(Mode::Generic), Attach::Auto) => {
            let slow = "generic mode, which is 2 to 3 times slower";
            notes().map(|note| Finding::warning(CHECK, note, slow, "")).collect()
        }
        (Some(Mode::Generic), _) => {
            let found = format!("{key}: generic, as configured (fastpath.attach)");
            let warnings = notes().map(|note| Finding::warning(CHECK, note, "", ""));
            warnings.chain([Finding::info(CHECK, found)]).collect()
        }
        _ => {
            let found = format!("{key}: native, if the kernel accepts it");
            let warnings = notes().map(|note| Finding::warning(CHECK, note, "", ""));
            warnings.chain([Finding::ok(CHECK, found)]).collect()
        }
    }
}

/// Parses the output of `ethtool -l`: the maximum of each kind of queue, then the current numbers.
fn channels(text: &str) -> Option<Channels> {
    let (maxima, current) = text.split_once("Current hardware settings")?;
    let number = |text: &str, name: &str| {
        let mut values = text.lines().filter_map(|line| line.trim().strip_prefix(name));
        values.find_map(|value| value.trim().parse::<u32>().ok())
    };
    let pairs = |text| number(text, "Combined:").filter(|pairs| *pairs > 0);
    // A driver without combined queues has separate ones: each receive queue counts as a pair.
    match pairs(maxima) {
        Some(max_combined) => {
            let combined = number(current, "Combined:").unwrap_or(0);
            Some(Channels { combined, max_combined })
        }
        None => Some(Channels {
            combined: number(current, "RX:")?,
            max_combined: number(maxima, "RX:")?,
        }),
    }
}

/// Parses the feature bits of a virtio device. The first character is bit 0.
fn bits(text: &str) -> u64 {
    let bits = text.bytes().take(64).enumerate();
    bits.fold(0, |all, (bit, digit)| all | u64::from(digit == b'1') << bit)
}
