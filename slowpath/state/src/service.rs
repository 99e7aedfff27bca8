//! A row of the table of services.

use crate::labels::Pairs;
use crate::name::{Name, Source};
use crate::object::{Checked, Refusal, ServiceSpec};

/// One service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Its name, unique.
    pub name: Name,
    /// Who said it.
    pub source: Source,
    /// Labels as on the object.
    pub labels: Pairs,
    /// Annotations as on the object.
    pub annotations: Pairs,
    /// What is wanted of it. The frontends of the table are rows of their own: a source may write
    /// some one by one.
    pub spec: Checked<ServiceSpec>,
}

impl Service {
    /// A service of which nothing but its name and source is said: mode NAT, all defaults.
    pub fn new(name: Name, source: Source) -> Service {
        Service { name, source, labels: None, annotations: None, spec: Checked::default() }
    }

    /// The service with a change of what is wanted of it.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn with(mut self, change: impl FnOnce(&mut ServiceSpec)) -> Result<Service, Refusal> {
        self.spec = self.spec.changed(change)?;
        Ok(self)
    }
}
