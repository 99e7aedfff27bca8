//! Metrics of the audit log.

use std::fmt;

use api::audit::Audit;

use super::declared as metric;
use super::family::Family;

/// Encodes the number of lost entries.
pub(super) fn encode(audit: &Audit, family: &mut Family<'_, '_>) -> fmt::Result {
    family.counter(&metric::AUDIT_LOST, audit.lost())
}
