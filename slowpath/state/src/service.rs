//! Row type of the service table.

use crate::labels::Pairs;
use crate::name::{Name, Source};
use crate::object::{ChangeError, Checked, ServiceSpec};

/// Row of the service table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Name of the service; unique in the table.
    pub name: Name,
    /// Source that wrote the service.
    pub source: Source,
    /// Labels, as on the object.
    pub labels: Pairs,
    /// Annotations, as on the object.
    pub annotations: Pairs,
    /// Desired state of the service. The table has the frontends as rows of their own
    /// ([`crate::frontend::Frontend`]), which may differ from those of the spec.
    pub spec: Checked<ServiceSpec>,
}

impl Service {
    /// Creates a service with default settings (mode NAT).
    pub fn new(name: Name, source: Source) -> Service {
        Service { name, source, labels: None, annotations: None, spec: Checked::default() }
    }

    /// Returns the service with its spec changed.
    ///
    /// # Errors
    /// Returns the first invalid field of the changed spec.
    pub fn with(mut self, change: impl FnOnce(&mut ServiceSpec)) -> Result<Service, ChangeError> {
        self.spec = self.spec.changed(change)?;
        Ok(self)
    }
}
