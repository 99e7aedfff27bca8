//! Which verdicts and drop reasons the cases show, and where the rest is shown.

use super::{Case, Counted};
use std::collections::BTreeSet;
use tables::reason::DropReason;

/// A drop reason that no case can show on every plane, and the test that shows it.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere {
    /// The reason.
    pub reason: DropReason,
    /// Why no frame alone can cause it.
    pub because: &'static str,
    /// The file of the test, from the root of the workspace.
    pub file: &'static str,
    /// The test's name.
    pub test: &'static str,
}

/// All such reasons.
pub const ELSEWHERE: &[Elsewhere] = &[];

/// Reasons that some case counts.
pub fn reasons_shown(cases: &[Case]) -> BTreeSet<DropReason> {
    counted(cases)
        .filter_map(|counted| match counted {
            Counted::Drop(reason) => Some(reason),
            Counted::Verdict(_) => None,
        })
        .collect()
}

/// Verdicts that some case counts.
pub fn verdicts_shown(cases: &[Case]) -> BTreeSet<&'static str> {
    counted(cases)
        .filter_map(|counted| match counted {
            Counted::Verdict(name) => Some(name),
            Counted::Drop(_) => None,
        })
        .collect()
}

fn counted(cases: &[Case]) -> impl Iterator<Item = Counted> {
    cases.iter().flat_map(|case| &case.steps).flat_map(|step| step.counted.iter().copied())
}
