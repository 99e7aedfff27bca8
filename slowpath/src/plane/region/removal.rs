//! How long backends and tunnels that are no longer desired are kept for their flows.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum time for which a backend that no source names keeps its flows, and time for which a
/// retired tunnel remains. It is the default deregistration delay of AWS target groups.
pub(super) const DRAIN: Duration = Duration::from_secs(300);

/// Retired tunnels by id, and when they are removed; `None` until the first check after the commit.
pub(super) type RetiredTunnels = HashMap<u32, Option<Instant>>;
