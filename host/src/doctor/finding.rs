//! What a check found.

use serde::Serialize;

/// Severity of a finding, the most severe first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Weir cannot work with this.
    Error,
    /// Weir works, but slower or at a risk.
    Warning,
    /// The check could not run on this machine.
    NotChecked,
    /// Information without a consequence.
    Info,
    /// The check passed.
    Ok,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Name of the check.
    pub check: &'static str,
    /// What was found, with the key or file; for a check that could not run, why.
    pub found: String,
    /// What follows from it; empty for a passed check and for information.
    pub consequence: String,
    /// The command that corrects it, or what to change; empty if there is nothing to do.
    pub remedy: String,
}

impl Finding {
    fn new(severity: Severity, check: &'static str, texts: [String; 3]) -> Finding {
        let [found, consequence, remedy] = texts;
        Finding { severity, check, found, consequence, remedy }
    }

    /// Returns a passed check.
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(Severity::Ok, check, [found.into(), String::new(), String::new()])
    }

    /// Returns information without a consequence.
    pub(super) fn info(check: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(Severity::Info, check, [found.into(), String::new(), String::new()])
    }

    /// Returns a check that could not run, with the reason and what would let it run.
    pub(super) fn not_checked(
        check: &'static str,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        let found = format!("not checked: {}", reason.into());
        Finding::new(Severity::NotChecked, check, [found, String::new(), remedy.into()])
    }

    /// Returns a finding with which Weir works slower or at a risk.
    pub(super) fn warning(
        check: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        let texts = [found.into(), consequence.into(), remedy.into()];
        Finding::new(Severity::Warning, check, texts)
    }

    /// Returns a finding with which Weir cannot work.
    pub(super) fn error(
        check: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding::new(Severity::Error, check, [found.into(), consequence.into(), remedy.into()])
    }
}
