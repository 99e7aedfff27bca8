//! What a source that speaks over the API says of itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::described::Described;
use super::refusal::Refusal;

/// The longest lease: a day, in seconds.
pub const LEASE_MAX_S: u32 = 86_400;
/// Characters of the longest revision.
pub const REVISION_MAX: usize = 256;

/// A source's own object, of its own name, said by itself. [`crate::sources`] writes it, and tells
/// in its status whether the source is heard.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceSpec {
    /// Seconds for which what it says holds after it was last heard; 0 for ever.
    #[schemars(range(min = 0, max = 86400))]
    pub lease_s: u32,
    /// Its own revision of all that it said last, in its own words.
    pub revision: Box<str>,
}

impl Described for SourceSpec {
    fn check(&self) -> Result<(), Refusal> {
        if self.lease_s > LEASE_MAX_S {
            let wrong = format!("{} is out of range", self.lease_s);
            return Err(Refusal::new(
                "spec.lease_s",
                wrong,
                format!("allowed: 0 to {LEASE_MAX_S}"),
            ));
        }
        Ok(())
    }
}
