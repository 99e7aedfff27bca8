//! What leaves the region, and how long it may take.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an unwanted backend keeps flows that don't end (AWS's own deregistration delay).
pub(super) const DRAIN: Duration = Duration::from_secs(300);

/// Tunnels that leave, and when they do; none until the first look after their commit.
pub(super) type Leaving = HashMap<u32, Option<Instant>>;
