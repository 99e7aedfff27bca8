//! How the reconciler tells people that all is well, or what isn't.

use std::fmt;

use super::Reconciler;
use crate::address::Address;
use crate::frontend::Progress;
use crate::plane::Refusal;
use crate::tables::Tables;

/// How it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Frontends in the tables.
    pub objects: usize,
    /// Frontends that the plane refuses, to have or to lose.
    pub errors: usize,
    /// What is wrong beside them, or first with them.
    pub reason: Option<String>,
}

/// `OK, 12 objects`, or what is wrong.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            None => write!(f, "OK, {} objects", self.objects),
            Some(reason) => {
                write!(f, "degraded, {} of {} objects: {reason}", self.errors, self.objects)
            }
        }
    }
}

impl Reconciler {
    /// How it goes.
    pub fn health(&self, tables: &Tables) -> Health {
        let jobs = || self.jobs.errors().min().map(|(address, why)| format!("{address}: {why}"));
        let prune = || self.prune.error.as_ref().map(|why| format!("pruning: {why}"));
        let blocked = self.blocked.as_ref().map(Refusal::to_string);
        Health {
            objects: tables.frontend_count(),
            errors: self.jobs.errors().count(),
            reason: blocked.or_else(jobs).or_else(prune),
        }
    }

    /// How far what was last heard of an address has come, whether it is to be there or to be gone:
    /// for those that are gone no row tells it.
    pub fn progress(&self, address: &Address) -> Progress {
        if let Some(refused) = self.jobs.refused(address) {
            return refused.map_or(Progress::Pending, |why| Progress::Error(why.into()));
        }
        let mut told = self.committed.iter().flat_map(|batch| &batch.told);
        match self.running && !told.any(|told| told.address == *address) {
            true => Progress::Done,
            false => Progress::Pending,
        }
    }

    /// Frontends that the plane refuses, with its words: also those that are to be deleted, which
    /// have no row to show it.
    pub fn errors(&self) -> impl Iterator<Item = (&Address, &str)> {
        self.jobs.errors()
    }
}
