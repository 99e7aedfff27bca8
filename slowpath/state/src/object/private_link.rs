//! Private links: what they want is described in the crate `config`.

use config::private_link::{Spec, Wrong};

use super::described::Described;
use super::refusal::Refusal;

impl Described for Spec {
    fn check(&self) -> Result<(), Refusal> {
        Spec::check(self).map_err(Refusal::from)
    }
}

impl From<Wrong> for Refusal {
    fn from(Wrong { field, wrong, allowed }: Wrong) -> Refusal {
        Refusal::new(field, wrong, allowed)
    }
}
