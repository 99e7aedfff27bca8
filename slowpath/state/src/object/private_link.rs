//! Validation of private links; their spec is defined in the crate `config`.

use config::private_link::Spec;

use super::described::Described;
use super::refusal::Refusal;

impl Described for Spec {
    fn check(&self) -> Result<(), Refusal> {
        Spec::check(self).map_err(Refusal::from)
    }
}
