//! Metrics of the registration at AWS or Azure.

use std::fmt;

use clouds::report::Report;

use super::family::Family;

const PHASES: [&str; 8] =
    ["looking", "outside", "registered", "ready", "leading", "following", "leaving", "over"];
const AWS: [&str; 7] =
    ["initial", "healthy", "unhealthy", "unhealthy.draining", "unused", "draining", "unavailable"];

/// `member`: in the pool, and the probe decides; `down` and `up` are administrative states that
/// override the probe.
const AZURE: [&str; 3] = ["member", "down", "up"];

/// Encodes all metrics of the cloud; none if no cloud is configured.
pub(super) fn encode(report: &Report, able: bool, family: &mut Family<'_, '_>) -> fmt::Result {
    if report.cloud.is_empty() {
        return Ok(());
    }
    let states = if report.cloud == "azure" { &AZURE[..] } else { &AWS };
    let flag = |on: bool| f64::from(u8::from(on));
    family.gauges(
        "weir_cloud_phase",
        "1 for where the machine stands: it looks for its target group or pool, is outside of it, \
         registered, ready (able, and healthy to the cloud), leading or following (mode routes), \
         leaving, or gone.",
        PHASES.map(|phase| ([("phase", phase)], flag(report.phase == phase))),
    )?;
    family.gauges(
        "weir_cloud_target_state",
        "1 for the state that the cloud holds this machine in; 0 for all where it is no target. At \
         Azure: member of the pool, or down or up by its administrative state.",
        states.iter().map(|state| ([("state", *state)], flag(report.state == *state))),
    )?;
    let differs = "1 while for a minute or longer the cloud thinks otherwise of the machine's \
                   health than the machine itself.";
    family.gauge("weir_cloud_health_differs", differs, flag(report.differs))?;
    let ready = "1 while able, and healthy to the cloud.";
    family.gauge("weir_ready", ready, flag(report.ready && able))?;
    let count = |state: &str| report.peers.iter().filter(|peer| peer.state == state).count();
    family.gauges(
        "weir_cloud_targets",
        "Targets of the group, or members of the pool, by state, this machine included.",
        states.iter().map(|state| ([("state", *state)], count(state) as f64)),
    )?;
    family.gauges(
        "weir_cloud_tunnels_differ",
        "1 while a gateway's tunnels in force have other ports or VNIs than its pool.",
        report.tunnels.iter().map(|tunnels| {
            let differ = tunnels.in_force != tunnels.reported;
            ([("gateway", &*tunnels.gateway)], flag(differ))
        }),
    )?;
    family.counters(
        "weir_cloud_calls",
        "Requests to the cloud by operation and outcome.",
        report.calls.iter().map(|count| {
            let labels = [("operation", &*count.operation), ("outcome", &*count.outcome)];
            (labels, count.times)
        }),
    )?;
    family.counters(
        "weir_cloud_findings",
        "How often something was found that people should know (`weir cloud status` says what).",
        report.findings.iter().map(|finding| ([("name", &*finding.name)], finding.times)),
    )?;
    let (flows, seconds) =
        report.leaving.as_ref().map_or((0, 0), |leaving| (leaving.flows, leaving.at_most_s));
    let left = "Flows that the machine waits for while it leaves.";
    family.gauge("weir_cloud_drain_flows", left, flows as f64)?;
    let left = "Seconds until a machine that leaves is gone at the latest.";
    family.gauge("weir_cloud_drain_seconds_left", left, seconds as f64)
}
