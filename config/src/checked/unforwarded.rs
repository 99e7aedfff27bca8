//! What becomes of packets that are not forwarded: for no service, or too big.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of a packet that is for no service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum NoService {
    /// Back to the gateway, untouched (gateways only).
    Return = 0,
    /// Dropped as `no-service`.
    Drop = 1,
    /// To this machine's kernel.
    Punt = 2,
}

/// What becomes of a packet that is too big for its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TooBig {
    /// Dropped, counted, and answered with ICMP frag-needed or packet-too-big.
    #[default]
    Reply,
    /// Dropped and counted.
    Drop,
}
