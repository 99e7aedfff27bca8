//! Metrics of what slowpath measures of its own work.

use std::fmt;

use super::declared as metric;
use super::family::Family;
use crate::measured::Measured;

/// Encodes the measurements.
pub(super) fn encode(measured: &Measured, family: &mut Family<'_, '_>) -> fmt::Result {
    family.gauge(&metric::COMMITTED, measured.committed_s())?;
    let lists = measured.lists_s();
    family.gauges(&metric::SOURCE_LISTED, lists.iter().map(|(source, at)| ([&**source], *at)))?;
    family.gauge(&metric::STORE_SIZE, measured.store_bytes() as f64)?;
    let stages = measured.stages.all().map(|(stage, one)| ([stage.as_str()], one));
    family.histograms(&metric::CHANGE_STAGE, stages)?;
    let requests = measured.requests.all();
    family.histograms(
        &metric::API_DURATION,
        requests.iter().map(|(of, one)| ([of.method, of.route.as_str(), of.status], one.clone())),
    )?;
    let lost = measured.spans.lost();
    let lost = lost.iter().map(|(signal, count)| ([signal.as_str()], *count));
    family.counters(&metric::TELEMETRY_LOST, lost)?;
    family.counter(&metric::SCRAPES_COALESCED, measured.scraper.coalesced())?;
    family.histogram(&metric::SCRAPE_DURATION, measured.scraper.durations())
}
