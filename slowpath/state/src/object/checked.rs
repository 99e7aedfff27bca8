//! Specs that have been checked.

use std::ops::Deref;
use std::sync::Arc;

use config::services::ServiceSpec;

use super::described::Described;
use super::refusal::Refusal;

/// A spec in which [`Described::check`] found nothing wrong. Tables hold no other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked<T>(Arc<T>);

impl<T: Described> Checked<T> {
    /// The spec, if it can be.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn new(spec: Arc<T>) -> Result<Checked<T>, Refusal> {
        spec.check().map(|()| Checked(spec))
    }
}

impl<T: Described + Clone> Checked<T> {
    /// The spec with a change, if it can be then.
    ///
    /// # Errors
    /// As of [`Checked::new`].
    pub fn changed(&self, change: impl FnOnce(&mut T)) -> Result<Checked<T>, Refusal> {
        let mut spec = T::clone(&self.0);
        change(&mut spec);
        Checked::new(Arc::new(spec))
    }
}

impl Default for Checked<ServiceSpec> {
    /// A service of which nothing is said.
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
