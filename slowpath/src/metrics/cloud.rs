//! Metrics of the registration at AWS or Azure.

use std::fmt;

use clouds::report::Report;

use super::family::Family;

/// Phases of a registration, as in [`Report::phase`].
const PHASES: [&str; 8] =
    ["looking", "outside", "registered", "ready", "leading", "following", "leaving", "over"];
/// States of a target as AWS reports them.
const AWS_STATES: [&str; 7] =
    ["initial", "healthy", "unhealthy", "unhealthy.draining", "unused", "draining", "unavailable"];

/// States of a pool member at Azure. `member`: in the pool, and the probe decides whether it gets
/// traffic. `down` and `up`: administrative states that override the probe.
const AZURE_STATES: [&str; 3] = ["member", "down", "up"];

/// Encodes the metrics of the registration; none if no cloud is configured. `able` is whether the
/// appliance is able to serve.
pub(super) fn encode(report: &Report, able: bool, family: &mut Family<'_, '_>) -> fmt::Result {
    if report.cloud.is_empty() {
        return Ok(());
    }
    let states = match report.cloud.as_str() {
        "azure" => &AZURE_STATES[..],
        _ => &AWS_STATES,
    };
    let flag = |on: bool| f64::from(u8::from(on));
    family.gauges(
        "weir_cloud_phase",
        "1 for the phase of the registration: looking (for the target group or pool), outside \
         (not registered), registered, ready (able, and reported healthy by the cloud), leading or \
         following (mode routes), leaving (draining, then deregistering), or over \
         (deregistered).",
        PHASES.map(|phase| ([("phase", phase)], flag(report.phase == phase))),
    )?;
    family.gauges(
        "weir_cloud_target_state",
        "1 for this machine's state as reported by the cloud; 0 for all states if it is not \
         registered. On Azure: member of the pool, or down or up by its administrative state.",
        states.iter().map(|state| ([("state", *state)], flag(report.state == *state))),
    )?;
    let differs = "1 if the health reported by the cloud has differed from the machine's own for \
                   a minute or longer.";
    family.gauge("weir_cloud_health_differs", differs, flag(report.differs))?;
    let ready = "1 if the appliance is able to serve and the cloud may send it traffic (AWS: the \
                 target is healthy; Azure: it is in all pools, not Down, and the tunnels match).";
    family.gauge("weir_ready", ready, flag(report.ready && able))?;
    let count = |state: &str| report.peers.iter().filter(|peer| peer.state == state).count();
    family.gauges(
        "weir_cloud_targets",
        "Number of targets of the group, or members of the pool, by state, including this machine.",
        states.iter().map(|state| ([("state", *state)], count(state) as f64)),
    )?;
    family.gauges(
        "weir_cloud_tunnels_differ",
        "1 if a gateway's tunnels in force have other ports or VNIs than its pool.",
        report.tunnels.iter().map(|tunnels| {
            let differ = tunnels.in_force != tunnels.reported;
            ([("gateway", &*tunnels.gateway)], flag(differ))
        }),
    )?;
    family.counters(
        "weir_cloud_calls",
        "Number of requests to the cloud by operation and outcome.",
        report.calls.iter().map(|count| {
            let labels = [("operation", &*count.operation), ("outcome", &*count.outcome)];
            (labels, count.times)
        }),
    )?;
    family.counters(
        "weir_cloud_findings",
        "Number of occurrences of each finding; `weir cloud status` shows its text and remedy.",
        report.findings.iter().map(|finding| ([("name", &*finding.name)], finding.times)),
    )?;
    let (flows, seconds) =
        report.drain.as_ref().map_or((0, 0), |drain| (drain.flows, drain.at_most_s));
    let left = "Number of flows that the drain is waiting for.";
    family.gauge("weir_cloud_drain_flows", left, flows as f64)?;
    let left = "Maximum number of seconds until the drain ends.";
    family.gauge("weir_cloud_drain_seconds_left", left, seconds as f64)
}
