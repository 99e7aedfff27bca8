//! Metrics of what slowpath measures of its own work.

use std::fmt;

use state::object::Objects;
use state::sources::removals;

use super::declared as metric;
use super::family::Family;
use crate::live::Live;
use crate::sources::file_sources;

/// Encodes the measurements. `objects` are the desired ones, which name the sources.
pub(super) fn encode(live: &Live, objects: &Objects, family: &mut Family<'_, '_>) -> fmt::Result {
    let measurements = &live.shared().measurements;
    family.gauge(&metric::COMMITTED, measurements.committed_s())?;
    let in_store = removals::sources(objects).map(|(source, _)| source);
    let lists = measurements.lists_s(in_store, &file_sources());
    family.gauges(&metric::SOURCE_LISTED, lists.iter().map(|(source, at)| ([&**source], *at)))?;
    family.gauge(&metric::STORE_SIZE, measurements.store_bytes() as f64)?;
    let stages = measurements.stages.all().map(|(stage, one)| ([stage.as_str()], one));
    family.histograms(&metric::CHANGE_STAGE, stages)?;
    let requests = measurements.requests.all();
    family.histograms(
        &metric::API_DURATION,
        requests.iter().map(|(of, one)| ([of.method, of.route.as_str(), of.status], one.clone())),
    )?;
    let lost = measurements.spans.lost();
    let lost = lost.iter().map(|(signal, count)| ([signal.as_str()], *count));
    family.counters(&metric::TELEMETRY_LOST, lost)?;
    family.counter(&metric::SCRAPES_COALESCED, measurements.scraper.coalesced())?;
    family.histogram(&metric::SCRAPE_DURATION, measurements.scraper.durations())
}
