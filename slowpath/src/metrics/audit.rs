//! Metrics of the audit log.

use std::fmt;

use api::audit::Audit;

use super::family::Family;

pub(super) fn encode(audit: &Audit, family: &mut Family<'_, '_>) -> fmt::Result {
    family.counter(
        "weir_audit_lost",
        "Entries of the audit log that could not be written to `control.state` (`weir status` has \
         the error).",
        audit.lost(),
    )
}
