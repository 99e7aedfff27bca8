//! What the kernel's program does otherwise than the cases say, each with the reason.

/// A case that does not hold there.
#[derive(Clone, Copy, Debug)]
pub struct Otherwise {
    /// Its claim.
    pub claim: &'static str,
    /// Why.
    pub because: &'static str,
}

/// All of them.
pub const OTHERWISE: &[Otherwise] = &[];

/// What is said of a case.
pub fn otherwise(claim: &str) -> Option<&'static Otherwise> {
    OTHERWISE.iter().find(|other| other.claim == claim)
}
