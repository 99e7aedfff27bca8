//! Validation of private links; their spec is defined in the crate `config`.

use config::private_link::Spec;

use super::error::ChangeError;
use super::spec::ObjectSpec;

impl ObjectSpec for Spec {
    fn check(&self) -> Result<(), ChangeError> {
        Spec::check(self).map_err(ChangeError::from)
    }
}
