//! Bidirectional forwarding detection of the path to a BGP neighbor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds::within;
use crate::object::ChangeError;
use config::services::is_default;

/// Bidirectional forwarding detection (BFD, RFC 5880) of the path to the neighbor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BfdSpec {
    /// Whether BFD is enabled. Default: false.
    pub enabled: bool,
    /// Desired minimum interval between sent packets, milliseconds, 10 to 60000. Default: 300.
    #[schemars(range(min = 10, max = 60000))]
    pub transmit_ms: u32,
    /// Required minimum interval between received packets, milliseconds, 10 to 60000. Default: 300.
    #[schemars(range(min = 10, max = 60000))]
    pub receive_ms: u32,
    /// Detection multiplier, 2 to 255: number of consecutive missing packets that are a failure.
    /// Default: 3.
    #[schemars(range(min = 2, max = 255))]
    pub multiplier: u8,
    /// Multihop BFD (RFC 5883), for a neighbor more than one hop away. Default: false.
    pub multihop: bool,
    /// With `multihop`, the minimum TTL of received packets, 1 to 255. Default: 255 minus the
    /// number of routers that the neighbor's `hops` allow, at least one: 254 for `hops` up to 2.
    /// BIRD sends BFD packets with a TTL of 64, not 255: for BIRD behind one router, set 63.
    #[schemars(range(min = 1, max = 255))]
    #[serde(skip_serializing_if = "is_default")]
    pub minimum_ttl: Option<u8>,
    /// After BFD has detected a failure, keep the BGP session down until BFD is up again or the
    /// neighbor signals AdminDown. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub strict: bool,
}

impl Default for BfdSpec {
    fn default() -> BfdSpec {
        BfdSpec {
            enabled: false,
            transmit_ms: 300,
            receive_ms: 300,
            multiplier: 3,
            multihop: false,
            minimum_ttl: None,
            strict: false,
        }
    }
}

impl BfdSpec {
    pub(super) fn check(&self, at: &str) -> Result<(), ChangeError> {
        within(&format!("{at}.transmit_ms"), self.transmit_ms, 10, 60_000)?;
        within(&format!("{at}.receive_ms"), self.receive_ms, 10, 60_000)?;
        if self.multiplier < 2 {
            let wrong =
                format!("{} is too low: one lost packet would be a failure", self.multiplier);
            let allowed = "allowed: 2 to 255; 3 is usual";
            return Err(ChangeError::new(format!("{at}.multiplier"), wrong, allowed));
        }
        let Some(ttl) = self.minimum_ttl else { return Ok(()) };
        let field = format!("{at}.minimum_ttl");
        if !self.multihop {
            let wrong = "single-hop BFD always requires a TTL of 255 (RFC 5881)";
            return Err(ChangeError::new(field, wrong, "leave it out, or set multihop"));
        }
        within(&field, ttl.into(), 1, 255)
    }
}
