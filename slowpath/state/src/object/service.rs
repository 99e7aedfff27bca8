//! Validation of services.

use config::services::ServiceSpec;

use super::described::Described;
use super::refusal::Refusal;

impl Described for ServiceSpec {
    fn check(&self) -> Result<(), Refusal> {
        match self.faults().into_iter().next() {
            Some(fault) => Err(Refusal { field: format!("spec.{}", fault.field), ..fault.into() }),
            None => Ok(()),
        }
    }
}
