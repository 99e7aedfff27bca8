//! A check of `weir cloud doctor`, for every cloud.

use serde::Serialize;

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
