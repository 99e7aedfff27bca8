//! Findings of the Azure lifecycle, with their remedies.

use std::time::Duration;

use clouds::report::Finding;
use config::checked::OnLost;

use super::event::TunnelStatus;
use crate::types::{CallError, EventKind, Failure, Family, ScheduledEvent, Tunnels};

pub(super) const NO_PACKETS: &str = "no-packets";
pub(super) const NOT_IN_MODEL: &str = "not-in-model";
pub(super) const ADMIN_DOWN: &str = "admin-down";
pub(super) const ADMIN_UP: &str = "admin-up";
pub(super) const NO_PROBE: &str = "no-probe";
pub(super) const OTHER_TUNNELS: &str = "tunnels-other";
pub(super) const TUNNELS_NOT_APPLIED: &str = "tunnels-not-applied";
pub(super) const TUNNELS_DIFFER: &str = "tunnels-differ";
pub(super) const TUNNELS_UNUSABLE: &str = "tunnels-unusable";

fn finding(name: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { name, text: text.into(), remedy: remedy.into() }
}

/// A call failed.
pub(super) fn failed(error: &CallError) -> Finding {
    let (name, remedy) = match error.kind {
        Failure::Denied => {
            ("call-denied", "grant the identity the permissions in config/azure/role.json")
        }
        kind if !kind.is_temporary() => {
            ("call-rejected", "compare [azure] with what `weir cloud status` shows")
        }
        _ => (
            "call-failed",
            "none, if it ends by itself; otherwise check Azure's status page and that this machine \
             has a route to the API",
        ),
    };
    finding(name, error.to_string(), remedy)
}

/// The membership was removed by another party.
pub(super) fn lost(on_lost: OnLost) -> Finding {
    let remedy = match on_lost {
        OnLost::Repair => "none, slowpath joins again; to take it out of service, stop slowpath",
        OnLost::Report => {
            "join again, or stop slowpath; with azure.on_lost = \"repair\" slowpath joins again"
        }
    };
    finding("membership-lost", "another party removed this machine from a pool", remedy)
}

/// The scale set's model owns the membership and does not name all pools.
pub(super) fn not_in_model() -> Finding {
    let text = "this machine belongs to a scale set, and is not in every pool that [azure] names";
    let remedy = "name the pool in the scale set's model (its networkProfile), then upgrade the \
                  instance to it; Weir does not write to the model";
    finding(NOT_IN_MODEL, text, remedy)
}

/// Another party set this machine's entry to `Down`.
pub(super) fn admin_down() -> Finding {
    let text = "another party set adminState of this machine's entry to Down: no new flows arrive";
    let remedy = "set it to None in the pool when maintenance is over; Weir only resets a Down \
                  that it set itself";
    finding(ADMIN_DOWN, text, remedy)
}

/// This machine's entry is set to `Up`.
pub(super) fn admin_up() -> Finding {
    let text = "adminState of this machine's entry is Up: flows arrive whatever the probe's \
                result, also when this machine cannot forward them, and while it is leaving";
    finding(ADMIN_UP, text, "set it to None in the pool")
}

/// No rule of the pool has a health probe.
pub(super) fn no_probe() -> Finding {
    let text = "no rule of the pool has a probe: new flows arrive until this machine has left the \
                pool";
    finding(NO_PROBE, text, "add a probe of health.listen to the load balancer's rule")
}

/// The machine is ready, but no packet arrives.
pub(super) fn no_packets(waited: Duration) -> Finding {
    let remedy = "admit the tunnels' UDP ports from the gateway's subnet in the network security \
                  group, check that a rule for all ports uses the pool, and that a frontend is \
                  chained to the gateway";
    finding(NO_PACKETS, format!("ready for {waited:?}, but no VXLAN packet received"), remedy)
}

fn describe(tunnels: Tunnels) -> String {
    let Tunnels { external, internal } = tunnels;
    format!(
        "external port {} VNI {}, internal port {} VNI {}",
        external.port, external.vni, internal.port, internal.vni
    )
}

fn family(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// The reported tunnels differ from those in force, and are not followed.
pub(super) fn other_tunnels(status: TunnelStatus) -> Finding {
    let TunnelStatus { family: of, in_force, reported, .. } = status;
    let (of, active, reported) = (family(of), describe(in_force), describe(reported));
    let text = format!("tunnels of the {of} pool: {reported}; in force: {active}");
    let remedy = "set the pool's tunnels in the [[gateway]], or set azure.tunnels = \"follow\"";
    finding(OTHER_TUNNELS, text, remedy)
}

/// The data plane has not applied the tunnels passed to it.
pub(super) fn not_applied(status: TunnelStatus) -> Finding {
    let TunnelStatus { family: of, in_force, reported, .. } = status;
    let (of, active, reported) = (family(of), describe(in_force), describe(reported));
    let text =
        format!("tunnels of the {of} pool not applied: {reported}; still in force: {active}");
    let remedy = "see slowpath's log for the cause: another [[gateway]] may have the same port and \
                  VNI";
    finding(TUNNELS_NOT_APPLIED, text, remedy)
}

/// IMDS and Resource Manager report different tunnels.
pub(super) fn tunnels_differ((of, imds, arm): (Family, Tunnels, Tunnels)) -> Finding {
    let (of, imds, arm) = (family(of), describe(imds), describe(arm));
    let text = format!(
        "tunnels of the {of} pool: {imds} by the metadata service, {arm} by Resource Manager"
    );
    let remedy = "check that azure.pool names the pool that this machine is in; the metadata \
                  service's tunnels are used";
    finding(TUNNELS_DIFFER, text, remedy)
}

/// The pool's tunnels cannot be used.
pub(super) fn unusable((of, why): (Family, &str)) -> Finding {
    let text = format!("tunnels of the {} pool cannot be used: {why}", family(of));
    let remedy = "give the pool one tunnel interface of type External and one of type Internal, \
                  both VXLAN (az network lb address-pool tunnel-interface)";
    finding(TUNNELS_UNUSABLE, text, remedy)
}

/// A scheduled event that does not make the machine leave.
pub(super) fn event(event: &ScheduledEvent) -> Finding {
    let ScheduledEvent { id, description, .. } = event;
    let (text, remedy) = match event.kind {
        EventKind::Freeze => (
            format!("Azure will pause this machine for some seconds: {description} ({id})"),
            "none: connections stay; probes may fail meanwhile",
        ),
        kind => (
            format!("unknown scheduled event, {kind:?}: {description} ({id})"),
            "see Azure's documentation of scheduled events; stop slowpath if the machine will end",
        ),
    };
    finding("event", text, remedy)
}

/// The membership could not be removed: the time limit was reached, or Azure rejected the removal
/// permanently.
pub(super) fn leave_failed() -> Finding {
    let text = "this machine's membership could not be removed";
    let remedy = "remove the membership manually; until then only the probe keeps new flows away";
    finding("leave-failed", text, remedy)
}
