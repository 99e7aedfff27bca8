//! Metrics of the registration at AWS or Azure.

use std::fmt;

use clouds::report::Report;

use super::declared as metric;
use super::family::{Family, flag};

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
            (labels, count.attempts.times())
        }),
    )?;
    family.buckets(
        &metric::CLOUD_CALL_DURATION,
        report.calls.iter().map(|count| {
            let labels = [&*count.operation, &*count.outcome];
            (labels, (count.attempts.seconds, count.attempts.bounded()))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clouds::report::{DrainProgress, GatewayTunnels, Peer, ReportedFinding};
    use clouds::requests::{AttemptStats, Counts};

    use super::*;
    use crate::metrics::family::assert_all_sampled;

    #[test]
    fn the_whole_report_is_exported() {
        let mut attempts = AttemptStats::default();
        attempts.record(Duration::from_millis(20));
        let finding = ReportedFinding { name: "odd".into(), times: 3, ..Default::default() };
        let peer = |state: &str| Peer { state: state.into(), ..Peer::default() };
        let mut report = Report {
            cloud: "aws".into(),
            phase: "ready".into(),
            state: "healthy".into(),
            ready: true,
            drain: Some(DrainProgress { flows: 4, at_most_s: 60, ..Default::default() }),
            findings: vec![finding],
            peers: vec![peer("healthy"), peer("unhealthy"), peer("healthy")],
            tunnels: vec![GatewayTunnels { gateway: "gw".into(), ..Default::default() }],
            ..Report::default()
        };
        report.set_calls(Counts::from([(("DescribeTargets", "ok"), attempts)]));
        let text = assert_all_sampled("weir_cloud_", move |family| encode(&report, true, family));
        let call = "operation=\"DescribeTargets\",outcome=\"ok\"";
        for line in [
            "weir_ready 1",
            "weir_cloud_phase{phase=\"ready\"} 1",
            "weir_cloud_target_state{state=\"healthy\"} 1",
            "weir_cloud_targets{state=\"healthy\"} 2",
            "weir_cloud_findings_total{finding=\"odd\"} 3",
            "weir_cloud_drain_remaining_seconds 60",
            &format!("weir_cloud_calls_total{{{call}}} 1"),
            &format!("weir_cloud_call_duration_seconds_bucket{{le=\"0.01\",{call}}} 0"),
            &format!("weir_cloud_call_duration_seconds_bucket{{le=\"0.025\",{call}}} 1"),
            &format!("weir_cloud_call_duration_seconds_count{{{call}}} 1"),
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
