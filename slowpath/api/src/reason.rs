//! Why a response is an error, as an extension of the response: for the audit log.

use std::sync::Arc;

/// Why a response is an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// Type of the problem without `urn:weir:`; empty if it has none.
    pub problem: Arc<str>,
    /// What is wrong.
    pub text: Arc<str>,
}
