//! Who is told what should be: the tables of the fastpath.

pub mod compile;
pub mod region;
pub mod tables;

use config::services::Service;

use crate::state::State;

/// Something outside that is to be as the state says.
///
/// All three verbs are idempotent: said twice they do nothing new, and deleting what is not there
/// is no error. So a target whose last word was lost is repaired by the next full sync.
pub trait Target {
    /// Why it can't be done; what was done of it so far is undone.
    type Refusal: std::error::Error;

    /// Makes this service exist, exactly so.
    fn update(&mut self, service: &Service) -> Result<(), Self::Refusal>;
    /// Makes the service of this name not exist.
    fn delete(&mut self, name: &str) -> Result<(), Self::Refusal>;
    /// Removes all that the state does not know.
    fn prune(&mut self, state: &State) -> Result<(), Self::Refusal>;
}
