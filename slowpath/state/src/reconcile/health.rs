//! Health of the reconciler, and progress of single frontends.

use std::fmt;

use super::Reconciler;
use crate::address::Address;
use crate::frontend::Progress;
use crate::plane::PlaneError;
use crate::tables::Tables;

/// Health of the reconciler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Number of frontends in the tables.
    pub frontends: usize,
    /// Number of addresses whose update or deletion the plane rejects; may exceed `frontends`,
    /// because a deleted frontend is no longer in the tables.
    pub errors: usize,
    /// Message of the most important error: why no batch can begin, else why a frontend was
    /// rejected, else why pruning failed. `None` if there is no error.
    pub reason: Option<String>,
}

/// `OK, 12 frontends`, or `degraded, 1 of 12 frontends: ` and the reason.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            None => write!(f, "OK, {} frontends", self.frontends),
            Some(reason) => {
                write!(f, "degraded, {} of {} frontends: {reason}", self.errors, self.frontends)
            }
        }
    }
}

impl Reconciler {
    /// Returns the health of the reconciler.
    pub fn health(&self, tables: &Tables) -> Health {
        let writes =
            || self.queue.errors().min().map(|(address, error)| format!("{address}: {error}"));
        let prune = || self.prune.error.as_ref().map(|error| format!("pruning: {error}"));
        let blocked = self.blocked.as_ref().map(PlaneError::to_string);
        Health {
            frontends: tables.frontend_count(),
            errors: self.queue.errors().count(),
            reason: blocked.or_else(writes).or_else(prune),
        }
    }

    /// Returns the progress of the last observed change of an address. Unlike the status of a row,
    /// this progress is available for deletions too.
    pub fn progress(&self, address: &Address) -> Progress {
        if let Some(rejected) = self.queue.rejected(address) {
            return rejected.map_or(Progress::Pending, |error| Progress::Error(error.into()));
        }
        let mut writes = self.committed.iter().flat_map(|batch| &batch.writes);
        match self.running && !writes.any(|write| write.address == *address) {
            true => Progress::Done,
            false => Progress::Pending,
        }
    }

    /// Returns the addresses whose update or deletion the plane rejects, with the plane's messages.
    /// The errors of deletions are not in the tables, because a deleted frontend has no row.
    pub fn errors(&self) -> impl Iterator<Item = (&Address, &str)> {
        self.queue.errors()
    }
}
