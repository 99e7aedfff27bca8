//! What moves packets, as the reconciler sees it.

use std::fmt;
use std::sync::Arc;

use crate::address::Address;
use crate::backend::Instance;
use crate::frontend::Frontend;

/// Number of a committed table set.
pub type Generation = u32;

/// All that a plane has to know of one frontend; nothing to look up.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The row: address, kind, service.
    pub frontend: Arc<Frontend>,
    /// Backends in the order of slots: by what counts of their state, then by endpoint. Those in
    /// maintenance have no slot and aren't here.
    pub backends: Vec<Arc<Instance>>,
    /// How many of them, from the first, get new flows: the active ones; where there are none, the
    /// terminating ones. The others keep their flows.
    pub serving: usize,
    /// Why nobody serves although there are backends: goes to the frontend's status.
    pub note: Option<&'static str>,
}

impl Wanted {
    /// Those that get new flows.
    pub fn serving(&self) -> &[Arc<Instance>] {
        self.backends.get(..self.serving).unwrap_or(&self.backends)
    }
}

/// Why a plane doesn't do what it was told, in the operator's words: which setting to raise.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

impl Refusal {
    /// With these words.
    pub fn new(text: impl fmt::Display) -> Refusal {
        Refusal(text.to_string())
    }
}

/// What moves packets. Everything may be said again and again: what is so already changes nothing.
///
/// `begin`, any number of `update`, `delete` and `prune`, then `commit`: one batch is one
/// generation. A refusal of one frontend leaves that frontend as it was before the batch or as it
/// shall be, and never holds up the others.
pub trait Plane {
    /// Begins a batch.
    fn begin(&mut self) -> Result<(), Refusal>;

    /// This frontend shall be, and be so.
    fn update(&mut self, wanted: &Wanted) -> Result<(), Refusal>;

    /// No frontend shall be at this address.
    fn delete(&mut self, address: &Address) -> Result<(), Refusal>;

    /// Takes away what `wanted` says no to: frontends whose address isn't wanted, and whatever lies
    /// about that no frontend needs. Not before every source has said all that it knows.
    fn prune(&mut self, wanted: &dyn Fn(&Address) -> bool) -> Result<(), Refusal>;

    /// Makes the batch visible, and tells its generation: the same as before when nothing changed.
    fn commit(&mut self) -> Result<Generation, Refusal>;

    /// The generation that all lcores have acknowledged; none while nobody moves packets.
    fn acknowledged(&self) -> Option<Generation>;

    /// What is there, as text (`dump.rs`): one line a thing, sorted.
    fn dump(&self) -> Vec<String>;
}
