//! Removal delays of backends and tunnels.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum time for which an unreferenced backend keeps flows that don't end. It is the default
/// deregistration delay of AWS target groups.
pub(super) const DRAIN: Duration = Duration::from_secs(300);

/// Tunnels that are being removed, and when; `None` until the first check after the commit.
pub(super) type RetiredTunnels = HashMap<u32, Option<Instant>>;
