//! Metrics of health checks.

use std::fmt;

use ::health::counters::Counters;

use super::declared as metric;
use super::family::Family;

/// Names of the results of probes.
const RESULTS: [&str; 3] = ["good", "bad", "not_run"];

/// Encodes the metrics of the checks of backends.
pub(super) fn encode(counters: &Counters, family: &mut Family<'_, '_>) -> fmt::Result {
    let counts = counters.read();
    let results = RESULTS.into_iter().zip([counts.good, counts.bad, counts.not_run]);
    family.counters(&metric::PROBES, results.map(|(result, count)| ([result], count)))?;
    family.counter(&metric::PROBES_LATE, counts.late)?;
    let verdicts = [("healthy", counts.healthy), ("unhealthy", counts.unhealthy)];
    family
        .counters(&metric::HEALTH_CHANGES, verdicts.map(|(verdict, count)| ([verdict], count)))?;
    let states = ["unknown", "healthy", "unhealthy"].into_iter().zip(counts.states);
    family.gauges(&metric::HEALTH_BACKENDS, states.map(|(state, n)| ([state], n as f64)))?;
    family.gauge(&metric::PROBES_RUNNING, counts.running as f64)?;
    let durations = RESULTS.into_iter().zip(counters.durations());
    family.histograms(&metric::PROBE_DURATION, durations.map(|(result, d)| ([result], d)))
}
