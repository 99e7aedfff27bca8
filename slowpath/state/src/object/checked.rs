//! Validated specs.

use std::ops::Deref;
use std::sync::Arc;

use config::services::ServiceSpec;

use super::error::ChangeError;
use super::spec::ObjectSpec;

/// Spec that passed [`ObjectSpec::check`]. Tables contain only such specs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked<T>(Arc<T>);

impl<T: ObjectSpec> Checked<T> {
    /// Validates a spec.
    ///
    /// # Errors
    /// Returns the first invalid field.
    pub fn new(spec: Arc<T>) -> Result<Checked<T>, ChangeError> {
        spec.check().map(|()| Checked(spec))
    }
}

impl<T: ObjectSpec + Clone> Checked<T> {
    /// Returns a changed copy of the spec.
    ///
    /// # Errors
    /// Returns the first invalid field of the copy.
    pub fn changed(&self, change: impl FnOnce(&mut T)) -> Result<Checked<T>, ChangeError> {
        let mut spec = T::clone(&self.0);
        change(&mut spec);
        Checked::new(Arc::new(spec))
    }
}

impl Default for Checked<ServiceSpec> {
    /// Returns the spec of a service with default settings.
    fn default() -> Checked<ServiceSpec> {
        Checked(Arc::default())
    }
}

impl<T> Deref for Checked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
