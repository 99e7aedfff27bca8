//! Results of the checks that `weir cloud doctor` runs, common to all clouds.

use serde::Serialize;

use crate::report::{Finding, Report};

/// Outcome of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The check passed.
    Ok,
    /// A possible problem.
    Warn,
    /// The setup does not work as it is.
    Fail,
    /// The check was not run; the text says why.
    Untested,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// Name of the check.
    pub name: String,
    /// Outcome of the check.
    pub verdict: Verdict,
    /// Observation that led to the verdict.
    pub text: String,
    /// Action for the operator; empty if none is needed.
    pub remedy: String,
}

impl Check {
    /// Returns a result with a remedy for the operator.
    pub fn new(name: &str, verdict: Verdict, text: impl Into<String>, remedy: &str) -> Check {
        let (name, remedy) = (name.to_owned(), remedy.to_owned());
        Check { name, verdict, text: text.into(), remedy }
    }

    /// Returns a passed check.
    pub fn ok(name: &str, text: impl Into<String>) -> Check {
        Check::new(name, Verdict::Ok, text, "")
    }
}

/// Converts the report of slowpath into checks: one for its phase or error, one for each finding.
/// If slowpath did not answer, the only check is a warning with `remedy`. A finding of the report
/// is left out if `settings` has one of the same name: the caller derived `settings` from values
/// that it has just read, and reports them itself.
pub fn from_report(
    report: &Result<Report, String>,
    remedy: &str,
    settings: &[Finding],
) -> Vec<Check> {
    let Report { phase, error, findings, .. } = match report {
        Ok(report) => report,
        Err(error) => return vec![Check::new("slowpath", Verdict::Warn, error, remedy)],
    };
    let own = match error.as_str() {
        "" => Check::ok("slowpath", format!("phase {phase}")),
        error => Check::new("slowpath", Verdict::Fail, error, "see the message for the remedy"),
    };
    let new = findings.iter().filter(|found| settings.iter().all(|f| f.name != found.name));
    let findings = new.map(|found| {
        let name = format!("finding {}", found.name);
        Check::new(&name, Verdict::Warn, &found.text, &found.remedy)
    });
    [own].into_iter().chain(findings).collect()
}
