//! The callback with which other threads wake the control loop.

use std::sync::Arc;

use crate::live::Shared;
use crate::sources::file::Wake;

/// Returns a callback that wakes the control loop.
pub fn wake(shared: &Arc<Shared>) -> Wake {
    let shared = Arc::clone(shared);
    Arc::new(move || shared.wake())
}
