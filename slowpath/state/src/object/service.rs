//! Validation of services; their spec is defined in the crate `config`.

use config::services::ServiceSpec;

use super::error::ChangeError;
use super::spec::ObjectSpec;

impl ObjectSpec for ServiceSpec {
    fn check(&self) -> Result<(), ChangeError> {
        match self.faults().into_iter().next() {
            Some(fault) => {
                Err(ChangeError { field: format!("spec.{}", fault.field), ..fault.into() })
            }
            None => Ok(()),
        }
    }
}
