//! What the specs of all kinds have in common: their rules.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::refusal::Refusal;

/// What a kind says of itself: its keys by serde and schemars, and what they don't tell by `check`.
pub trait Described: Serialize + DeserializeOwned + JsonSchema {
    /// What is wrong with it: the first field that cannot be, its path beginning with `spec`.
    fn check(&self) -> Result<(), Refusal>;
}

impl<T: Described> Described for Arc<T>
where
    Arc<T>: DeserializeOwned,
{
    fn check(&self) -> Result<(), Refusal> {
        (**self).check()
    }
}
