//! Spec of the object that records a source's lease and revision.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::ChangeError;
use super::spec::ObjectSpec;

/// Maximum lease, in seconds: one day.
pub const LEASE_MAX_S: u32 = 86_400;
/// Maximum length of a revision, in characters.
pub const REVISION_MAX: usize = 256;

/// A source's own object, named after the source. It exists once the source has begun a session, or
/// one of its lists was held because it would remove too much. Its status shows whether the lease
/// is valid and the list is applied.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceSpec {
    /// Seconds for which the source's list is valid after its last request, 0 to 86400; 0 for no
    /// limit.
    #[schemars(range(min = 0, max = 86400))]
    pub lease_s: u32,
    /// Revision that the source committed last, in the source's own format.
    pub revision: Box<str>,
}

impl ObjectSpec for SourceSpec {
    fn check(&self) -> Result<(), ChangeError> {
        if self.lease_s > LEASE_MAX_S {
            let wrong = format!("{} is out of range", self.lease_s);
            return Err(ChangeError::new(
                "spec.lease_s",
                wrong,
                format!("allowed: 0 to {LEASE_MAX_S}"),
            ));
        }
        Ok(())
    }
}
