//! Bidirectional forwarding detection beside a session: whether the way to a neighbor is watched.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds::within;
use crate::object::Refusal;
use config::services::is_default;

/// Bidirectional forwarding detection (RFC 5880): whether the way to the neighbor is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BfdSpec {
    /// Whether it is.
    pub enabled: bool,
    /// Milliseconds from one packet of ours to the next, if the neighbor takes so many.
    #[schemars(range(min = 10, max = 60000))]
    pub transmit_ms: u32,
    /// Milliseconds between packets of the neighbor's that we can take.
    #[schemars(range(min = 10, max = 60000))]
    pub receive_ms: u32,
    /// How many that are missing in a row make a failure.
    #[schemars(range(min = 2, max = 255))]
    pub multiplier: u8,
    /// The neighbor is more than one hop away (RFC 5883).
    pub multihop: bool,
    /// With `multihop`: packets that arrive with fewer hops left are not taken. Where it is left
    /// out, 255 less one for each router that the neighbor's `hops` allow, one router at least. A
    /// BIRD begins with 64 and not with 255: behind one router 63 has to stand here.
    #[schemars(range(min = 1, max = 255))]
    #[serde(skip_serializing_if = "is_default")]
    pub minimum_ttl: Option<u8>,
    /// Once the way was found cut, there is no session before BFD is up again, or the neighbor
    /// holds BFD down on purpose.
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
    pub(super) fn check(&self, at: &str) -> Result<(), Refusal> {
        within(&format!("{at}.transmit_ms"), self.transmit_ms, 10, 60_000)?;
        within(&format!("{at}.receive_ms"), self.receive_ms, 10, 60_000)?;
        if self.multiplier < 2 {
            let wrong =
                format!("{}: a single packet that is lost would be a failure", self.multiplier);
            let allowed = "allowed: 2 to 255; 3 is usual";
            return Err(Refusal::new(format!("{at}.multiplier"), wrong, allowed));
        }
        let Some(ttl) = self.minimum_ttl else { return Ok(()) };
        let field = format!("{at}.minimum_ttl");
        if !self.multihop {
            let wrong = "over one hop all 255 have to be left (RFC 5881), whatever stands here";
            return Err(Refusal::new(field, wrong, "leave it out, or set multihop"));
        }
        within(&field, ttl.into(), 1, 255)
    }
}
