//! What becomes of packets that are not forwarded: for no service, or too big.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use tables::record::NoService;

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
