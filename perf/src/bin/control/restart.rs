//! Measures a start of slowpath over tables that are already up to date: it reads all objects and
//! tables, and writes nothing.

use std::time::{Duration, Instant, SystemTime};

use state::store::{Folder, Store};
use tables::region::Region;

use crate::change::TempStore;
use crate::load::Load;
use crate::pipeline::{self, AttachedRegion, Control, Harness};

/// The duration of a start, by phase.
pub struct Restart {
    /// Reading all objects from disk.
    pub read: Duration,
    /// Walking the region's tables and finding their free entries.
    pub attach: Duration,
    /// Building rows from all objects.
    pub rows: Duration,
    /// Passing all rows to the plane, none of which is a change.
    pub pass: Duration,
}

/// Fills a region and a store, stops, starts again, and returns the durations.
pub fn measure(services: u32) -> Result<Restart, String> {
    let load = Load { services, backends: 1, table: 0, tunnel: true };
    let region = Region::anonymous(&pipeline::sizes(&load)).map_err(|e| e.to_string())?;
    let (puts, _) = load.changes()?;
    let store_dir = TempStore::new("restart");
    drop(store_dir.filled(&puts)?);
    let harness = Harness::Region(Box::new(AttachedRegion::attach(
        &region,
        Some(pipeline::lcore(&region)?),
    )?));
    Control::new(harness).run(&puts, 500)?;
    drop(puts);
    let before = region.generation();

    let started = Instant::now();
    let folder = Folder::open(&store_dir.0).map_err(|e| e.to_string())?;
    let store = Store::open(folder);
    let read = Instant::now();
    let harness = Harness::Region(Box::new(AttachedRegion::attach(
        &region,
        Some(pipeline::lcore(&region)?),
    )?));
    let attached = Instant::now();
    let mut control = Control::new(harness);
    control.objects = store.objects().clone();
    let events = control.objects.as_events();
    control.reflect(&events, SystemTime::now())?;
    let reflected = Instant::now();
    control.finish()?;
    let done = Instant::now();

    let (after, found) = (region.generation(), control.harness.row_count());
    if after != before || found != services as usize {
        return Err(format!(
            "a restart with the same tables wrote generation {after} after {before}; {found} of \
             {services} services exist"
        ));
    }
    Ok(Restart {
        read: read - started,
        attach: attached - read,
        rows: reflected - attached,
        pass: done - reflected,
    })
}
