//! Handling of packets that are not forwarded: no matching service, or too big.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use tables::record::NoService;

/// Action for a packet that exceeds the path MTU to a backend, or the inner MTU of its gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TooBig {
    /// Drop, count, and reply with ICMP fragmentation-needed or packet-too-big.
    #[default]
    Reply,
    /// Drop and count.
    Drop,
}
