//! Metrics of the appliance as a whole, its sources and its store.

use std::fmt;

use state::object::Objects;
use state::sources::removals;

use super::declared as metric;
use super::family::{Family, flag};
use crate::control::report::Status;
use crate::live::Live;

/// Encodes the metrics of the appliance. `objects` are the desired ones, and `status` is the one
/// that the control loop published last.
pub(super) fn encode(
    live: &Live,
    objects: &Objects,
    status: &Status,
    family: &mut Family<'_, '_>,
) -> fmt::Result {
    family.info(&metric::BUILD, [env!("CARGO_PKG_VERSION"), &live.config.name])?;
    family.info(&metric::SEED, [&live.config.tables.fingerprint()])?;
    family.gauge(&metric::ABLE, flag(live.able().able))?;
    family.gauge(&metric::FILE_REJECTED, flag(status.services_file.error.is_some()))?;
    let sources = removals::sources(objects);
    family.gauges(&metric::SOURCE_HELD, sources.map(|(source, held)| ([source], flag(held))))?;
    family.gauge(&metric::STORE_DAMAGED, flag(live.shared().store_now().damage.is_some()))
}
