//! Trait of the specs of all kinds.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::ChangeError;

/// Spec of a kind. Its serde and schemars attributes define the keys and their types, and `check`
/// the rules that these do not express.
pub trait ObjectSpec: Serialize + DeserializeOwned + JsonSchema {
    /// Validates the spec. The error names the first invalid field, with a path that begins with
    /// `spec`.
    fn check(&self) -> Result<(), ChangeError>;
}

impl<T: ObjectSpec> ObjectSpec for Arc<T>
where
    Arc<T>: DeserializeOwned,
{
    fn check(&self) -> Result<(), ChangeError> {
        (**self).check()
    }
}
