//! The `[bgp]` section as written: how BGP peering policies are applied.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checked::{BgpNoBackends, BgpOnConflict};

/// BGP: how policies (objects of kind BgpPeeringPolicy) are applied. If no policy selects this
/// appliance, it has no BGP sessions.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Bgp {
    /// BGP identifier of virtual routers for which neither policy nor annotation sets one, written
    /// as an IPv4 address. Empty: the IPv4 address of `ingress`.
    #[schemars(extend("x-weir" = "machine"))]
    pub router_id: String,
    /// Directory of session keys (TCP-MD5, RFC 2385, and TCP-AO, RFC 5925). A policy's secret NAME
    /// is the file `password` in the subdirectory NAME, and a policy's key file is a path in this
    /// directory; symbolic links may only lead to files in it. A changed key is replaced in the
    /// open session within seconds. Empty: policies cannot use keys.
    #[schemars(extend("x-weir" = "secret folder"))]
    pub secrets: String,
    /// Action while several policies select this appliance: `withdraw` closes all sessions, `keep`
    /// leaves the policy in force that was applied last, whose routes still follow services and
    /// backends.
    pub on_conflict: BgpOnConflict,
    /// Action for the address of a service without serving backends: `announce` or `withdraw`. With
    /// traffic policy `local` it is always withdrawn.
    pub no_backends: BgpNoBackends,
    /// Seconds for which routes carry the GRACEFUL_SHUTDOWN community (RFC 8326) before a drain or
    /// shutdown withdraws them; 0: they are withdrawn at once.
    #[schemars(range(max = 86400))]
    pub graceful_shutdown_s: u32,
    /// Maximum number of seconds that a shutdown waits until the withdrawals are sent to all
    /// neighbors.
    #[schemars(range(min = 1, max = 3600))]
    pub stop_s: u32,
    /// Seconds that a shutdown then waits for routers to move the traffic.
    #[schemars(range(max = 86400))]
    pub settle_s: u32,
}

impl Default for Bgp {
    fn default() -> Bgp {
        Bgp {
            router_id: String::new(),
            secrets: String::new(),
            on_conflict: BgpOnConflict::Withdraw,
            no_backends: BgpNoBackends::Announce,
            graceful_shutdown_s: 0,
            stop_s: 60,
            settle_s: 2,
        }
    }
}
