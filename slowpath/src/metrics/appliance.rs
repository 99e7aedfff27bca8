//! Metrics of the appliance as a whole, its sources and its store.

use std::fmt;

use state::sources::removals;

use super::declared as metric;
use super::family::Family;
use crate::control::report::Status;
use crate::live::Live;

/// Encodes the metrics of the appliance, of which the control loop published `status`.
pub(super) fn encode(live: &Live, status: &Status, family: &mut Family<'_, '_>) -> fmt::Result {
    let flag = |on: bool| f64::from(u8::from(on));
    family.info(&metric::BUILD, [env!("CARGO_PKG_VERSION"), &live.config.name])?;
    family.info(&metric::SEED, [&live.config.tables.fingerprint()])?;
    family.gauge(&metric::ABLE, flag(live.able().able))?;
    family.gauge(&metric::FILE_REJECTED, flag(status.services_file.error.is_some()))?;
    let objects = live.desired().objects;
    let sources: Vec<(&str, bool)> = removals::sources(&objects).collect();
    family.gauges(
        &metric::SOURCE_HELD,
        sources.iter().map(|(source, held)| ([*source], flag(*held))),
    )?;
    family.gauge(&metric::STORE_DAMAGED, flag(live.shared().store_now().damage.is_some()))
}
