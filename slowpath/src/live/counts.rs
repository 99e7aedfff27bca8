//! Numbers of services and frontends in the status.

use std::collections::HashSet;

use state::frontend::Progress;
use state::tables::Tables;
use state::text::service_of;
use tables::set::TableSet;

use crate::control::report::Frontends;

/// Returns the number of distinct services in the region, where one service may have several
/// records with suffixes to its name.
pub(super) fn services(set: &TableSet<'_>) -> usize {
    let names = set.services().filter_map(|(id, _)| set.service_name(id));
    names.map(|name| service_of(&name).to_owned()).collect::<HashSet<_>>().len()
}

/// Counts frontends by their progress.
pub(super) fn frontends(tables: &Tables) -> Frontends {
    let mut all = Frontends {
        waiting_for: tables.pending_sources().map(str::to_owned).collect(),
        ..Frontends::default()
    };
    for row in tables.frontends() {
        match row.status().progress {
            Progress::Done => all.done += 1,
            Progress::Pending => all.pending += 1,
            Progress::Error(why) => {
                all.errors += 1;
                if all.error.is_empty() {
                    all.error = format!("{}: {why}", row.address());
                }
            }
        }
    }
    all
}
