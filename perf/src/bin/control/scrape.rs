//! Measures a scrape of the metrics: the CPU time and the size of its text.

use std::sync::Arc;
use std::time::Duration;

use config::checked::Config;
use slowpath::control::report::{Lcore, Status};
use slowpath::health::Able;
use slowpath::live::{Live, Shared};
use slowpath::measurements::plain;
use slowpath::metrics;
use slowpath::plane::published::PublishedTables;
use tables::layout::Sizes;
use tables::region::Region;

use crate::change::thread_time;
use crate::load::Load;
use crate::pipeline::{self, AttachedRegion, CONFIG, Control, Harness};

/// Number of lcores, which have series of their own and whose counter pages are summed.
const LCORES: u32 = 4;

/// The cost of scrapes with one set of tables.
pub struct Scrapes {
    pub load: Load,
    /// CPU time of the first scrape after a commit, which joins the tables with the region.
    pub first: Duration,
    /// CPU times of the scrapes after it.
    pub others: Vec<Duration>,
    /// CPU time of the conversion to the older text format.
    pub plain: Duration,
    /// Size of the text in bytes, and the number of its series.
    pub text: (usize, usize),
}

/// Fills a region, and scrapes it `count` times. Every service and backend has series of its own.
pub fn measure(load: Load, count: u32) -> Result<Scrapes, String> {
    let sizes = Sizes {
        lcores: LCORES,
        counted_services: load.services,
        counted_backends: load.all_backends(),
        ..pipeline::sizes(&load)
    };
    // Leaked: slowpath's region lives as long as the process.
    let region: &'static Region =
        Box::leak(Box::new(Region::anonymous(&sizes).map_err(|e| e.to_string())?));
    let lcore = pipeline::lcore(region)?;
    let attached = AttachedRegion::attach(region, Some(lcore))?;
    let mut control = Control::new(Harness::Region(Box::new(attached)));
    control.run(&load.changes()?.0, 500)?;
    let config: Arc<Config> = Arc::new(config::from_toml(CONFIG).map_err(|e| e.render())?);
    let shared = Arc::new(Shared::default());
    shared.publish_tables(PublishedTables::new(control.tables(), Vec::new()));
    let lcores = (0..LCORES).map(|id| Lcore { id, polling: true, ..Lcore::default() });
    let status = Status { lcores: lcores.collect(), ..Status::default() };
    shared.publish_status(status, Able { able: true, reasons: Vec::new() }, true);
    let live = Arc::new(Live::new(region, config, shared, Default::default()));
    let scrape = || {
        let began = thread_time()?;
        let text = metrics::text(&live).map_err(|e| e.to_string())?;
        Ok::<_, String>((thread_time()? - began, text))
    };
    let (first, _) = scrape()?;
    let (mut others, mut last) = (Vec::new(), String::new());
    for _ in 0..count.max(1) {
        let (took, text) = scrape()?;
        others.push(took);
        last = text;
    }
    let began = thread_time()?;
    let plain = plain(&last);
    let took = thread_time()? - began;
    let found = metrics::declared::compare(&plain);
    if let Some(difference) = found.differences.first() {
        return Err(format!("a series is not as declared: {difference}"));
    }
    Ok(Scrapes { load, first, others, plain: took, text: (last.len(), found.series) })
}
