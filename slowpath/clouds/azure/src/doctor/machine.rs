//! Checks of the machine: metadata, identity, network interface, MTU, kernel and events.

use super::check_config::CheckConfig;
use super::collect::Observations;
use super::{Check, Verdict};
use crate::location::Nic;
use crate::types::{CallError, Failure, Identity};

pub(super) fn metadata(observed: &Observations) -> Check {
    match &observed.identity {
        Ok(Identity { name, location, resource_group, interfaces, scale_set, .. }) => {
            let of = scale_set.as_ref().map(|set| format!(", of scale set {set}"));
            let text = format!("{name} in {location}, resource group {resource_group}");
            let text = format!("{text}, {} interfaces", interfaces.len());
            Check::ok("metadata", format!("{text}{}", of.unwrap_or_default()))
        }
        Err(error) => {
            let remedy = "run the doctor on the appliance, as a user with access to \
                          169.254.169.254, which answers on the primary interface only";
            Check::new("metadata", Verdict::Fail, error.to_string(), remedy)
        }
    }
}

pub(super) fn token(observed: &Observations) -> Check {
    let no_credentials = |error: &&CallError| error.code == "NoCredentials";
    let mut errors = observed.results.values().filter_map(|results| results.as_ref().err());
    let remedy = "give the machine a managed identity with a role that has these permissions, or \
                  check azure.credential";
    match observed.arm.as_ref().or_else(|| errors.find(no_credentials)) {
        Some(error) => Check::new("token", Verdict::Fail, error.message.clone(), remedy),
        None if observed.results.values().any(Result::is_ok) => {
            Check::ok("token", "accepted by Azure")
        }
        None if observed.results.values().flat_map(|t| t.as_ref().err()).any(denied) => {
            Check::ok("token", "accepted by Azure, but no operation that was tried is permitted")
        }
        None => {
            Check::new("token", Verdict::Warn, "unknown: no request to Azure succeeded", remedy)
        }
    }
}

fn denied(error: &CallError) -> bool {
    error.kind == Failure::Denied
}

pub(super) fn interface(check_config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    let nic = match &observed.nic {
        Ok(nic) => nic,
        Err(why) => {
            let remedy = "see the message for the remedy";
            return vec![Check::new("interface", Verdict::Fail, why, remedy)];
        }
    };
    let is = |nic: &Nic, what: &str| {
        nic.body.pointer(&format!("/properties/{what}")).and_then(|is| is.as_bool()) == Some(true)
    };
    let which = if is(nic, "primary") { "primary" } else { "not primary" };
    let owner = if nic.managed { ", defined by the scale set's model" } else { "" };
    let mut checks = vec![Check::ok("interface", format!("{}, {which}{owner}", nic.id.name()))];
    checks.push(match is(nic, "enableAcceleratedNetworking") {
        true => Check::ok("accelerated networking", "on"),
        false => Check::new(
            "accelerated networking",
            Verdict::Warn,
            format!("off at {}: each packet passes through the host", nic.id.name()),
            "deallocate the machine, run `az network nic update --accelerated-networking true`, \
             and start it",
        ),
    });
    if check_config.forwards {
        checks.push(match is(nic, "enableIPForwarding") {
            true => Check::ok("IP forwarding", "on"),
            false => Check::new(
                "IP forwarding",
                Verdict::Warn,
                format!(
                    "off at {}: with NAT or two arms Azure drops packets that are neither from nor \
                     to the interface's own addresses, while the probe passes",
                    nic.id.name()
                ),
                "az network nic update --ip-forwarding true",
            ),
        });
    }
    checks
}

pub(super) fn mtu(check_config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    let Some(needed) = check_config.gateways.iter().map(|pool_gateway| pool_gateway.mtu).max()
    else {
        return Vec::new();
    };
    let configured = match check_config.mtu {
        mtu if mtu >= needed => Check::ok("mtu", format!("ingress.mtu = {mtu}")),
        mtu => Check::new(
            "mtu",
            Verdict::Fail,
            format!("ingress.mtu = {mtu}: the gateway's packets of {needed} bytes are dropped"),
            &format!("set ingress.mtu to {needed} or more"),
        ),
    };
    let of_kernel = observed.kernel_mtu.as_ref().map(|(interface, mtu)| match mtu {
        mtu if *mtu >= needed => Check::ok("kernel mtu", format!("{interface} has {mtu}")),
        _ => Check::new(
            "kernel mtu",
            if check_config.kernel_data_path { Verdict::Fail } else { Verdict::Warn },
            format!("{interface} has {mtu}, less than {needed}: larger packets are dropped"),
            &format!("ip link set {interface} mtu {needed}, or restart fastpath, which sets it"),
        ),
    });
    [Some(configured), of_kernel].into_iter().flatten().collect()
}

/// Checks TCP timestamps: Azure documents that its probes fail if they are enabled.
pub(super) fn timestamps(observed: &Observations) -> Option<Check> {
    let name = "tcp timestamps";
    Some(match observed.timestamps? {
        false => Check::ok(name, "off"),
        true => Check::new(
            name,
            Verdict::Warn,
            "on: according to Azure's documentation, its probes fail with them",
            "sysctl -w net.ipv4.tcp_timestamps=0, in /etc/sysctl.d as well",
        ),
    })
}

pub(super) fn events(check_config: &CheckConfig, observed: &Observations) -> Option<Check> {
    let name = "scheduled events";
    if !check_config.settings.lifecycle.events {
        return Some(Check::ok(name, "not polled (azure.events = false)"));
    }
    Some(match observed.events.as_ref()? {
        Ok(0) => Check::ok(name, "none"),
        Ok(some) => {
            let text = format!("{some} affect this machine");
            Check::new(name, Verdict::Warn, text, "see `weir cloud status` for the drain")
        }
        Err(error) => Check::new(
            name,
            Verdict::Warn,
            error.to_string(),
            "the first request enables the service, which takes up to two minutes: try again",
        ),
    })
}
