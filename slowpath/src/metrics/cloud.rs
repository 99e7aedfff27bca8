//! Metrics of the registration at AWS or Azure.

use std::fmt;

use clouds::report::Report;

use super::declared as metric;
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
    family
        .gauges(&metric::CLOUD_PHASE, PHASES.map(|phase| ([phase], flag(report.phase == phase))))?;
    family.gauges(
        &metric::CLOUD_TARGET,
        states.iter().map(|state| ([*state], flag(report.state == *state))),
    )?;
    family.gauge(&metric::CLOUD_DIFFERS, flag(report.differs))?;
    family.gauge(&metric::READY, flag(report.ready && able))?;
    let count = |state: &str| report.peers.iter().filter(|peer| peer.state == state).count();
    family.gauges(
        &metric::CLOUD_TARGETS,
        states.iter().map(|state| ([*state], count(state) as f64)),
    )?;
    family.gauges(
        &metric::CLOUD_TUNNELS,
        report.tunnels.iter().map(|tunnels| {
            let differ = tunnels.in_force != tunnels.reported;
            ([&*tunnels.gateway], flag(differ))
        }),
    )?;
    family.counters(
        &metric::CLOUD_CALLS,
        report.calls.iter().map(|count| {
            let labels = [&*count.operation, &*count.outcome];
            (labels, count.times)
        }),
    )?;
    family.buckets(
        &metric::CLOUD_CALL_DURATION,
        report.calls.iter().map(|count| {
            let labels = [&*count.operation, &*count.outcome];
            (labels, (count.calls.seconds, count.calls.bounded()))
        }),
    )?;
    family.counters(
        &metric::CLOUD_FINDINGS,
        report.findings.iter().map(|finding| ([&*finding.name], finding.times)),
    )?;
    let (flows, seconds) =
        report.drain.as_ref().map_or((0, 0), |drain| (drain.flows, drain.at_most_s));
    family.gauge(&metric::CLOUD_DRAIN_FLOWS, flows as f64)?;
    family.gauge(&metric::CLOUD_DRAIN_LEFT, seconds as f64)
}
