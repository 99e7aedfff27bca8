//! A check of `weir cloud doctor`, for every cloud.

use serde::Serialize;

use crate::report::{Finding, Report};

/// What came of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It may hurt.
    Warn,
    /// It does not work so.
    Fail,
    /// Only doing it would tell.
    Untested,
}

/// A check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// What came of it.
    pub verdict: Verdict,
    /// What was found.
    pub text: String,
    /// What to do; empty where nothing is.
    pub remedy: String,
}

impl Check {
    /// With what to do about it.
    pub fn new(name: &str, verdict: Verdict, text: impl Into<String>, remedy: &str) -> Check {
        let (name, remedy) = (name.to_owned(), remedy.to_owned());
        Check { name, verdict, text: text.into(), remedy }
    }

    /// Nothing is to be done.
    pub fn ok(name: &str, text: impl Into<String>) -> Check {
        Check::new(name, Verdict::Ok, text, "")
    }
}

/// The checks of what slowpath reports, or of why it does not answer, which `remedy` mends: its
/// phase and trouble, and its findings. Those about `settings` are left out, which were read anew.
pub fn reported(report: &Result<Report, String>, remedy: &str, settings: &[Finding]) -> Vec<Check> {
    let Report { phase, trouble, findings, .. } = match report {
        Ok(report) => report,
        Err(why) => return vec![Check::new("slowpath", Verdict::Warn, why, remedy)],
    };
    let own = match trouble.as_str() {
        "" => Check::ok("slowpath", format!("it is {phase}")),
        trouble => Check::new("slowpath", Verdict::Fail, trouble, "the message says what to do"),
    };
    let new = findings.iter().filter(|told| settings.iter().all(|f| f.name != told.name));
    let told = new.map(|told| {
        let name = format!("finding {}", told.name);
        Check::new(&name, Verdict::Warn, &told.text, &told.remedy)
    });
    [own].into_iter().chain(told).collect()
}
