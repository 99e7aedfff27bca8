//! As written: how BGP peering policies are carried out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checked::{BgpNoBackends, BgpOnConflict};

/// BGP: how policies (objects of kind BgpPeeringPolicy) are carried out. Where none selects this
/// appliance, it speaks to nobody.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Bgp {
    /// BGP identifier of routers to which neither policy nor annotation gives one, written as an
    /// IPv4 address. Empty: the IPv4 address of `ingress`.
    pub router_id: String,
    /// Folder of keys of sessions (TCP-MD5, RFC 2385, and TCP-AO, RFC 5925). A policy's secret NAME
    /// is the file `password` in its folder NAME, and a policy's file is a path in this folder;
    /// links may lead to files in it only. Read again within seconds when they change. Empty: no
    /// policy can use a key.
    pub secrets: String,
    /// What becomes of routes while several policies select this appliance: `withdraw`, and
    /// everybody is disconnected; `keep`, they stay as they were.
    pub on_conflict: BgpOnConflict,
    /// What becomes of the address of a service that no backend serves: `announce`, or `withdraw`.
    /// With a traffic policy `local` it is withdrawn in any case.
    pub no_backends: BgpNoBackends,
    /// Seconds for which routes are marked as about to go (GRACEFUL_SHUTDOWN, RFC 8326) before a
    /// drain or a stop withdraws them; 0: they are withdrawn at once.
    #[schemars(range(max = 86400))]
    pub graceful_shutdown_s: u32,
    /// Seconds that a stop waits at most until all neighbors have been told of the withdrawal.
    #[schemars(range(min = 1, max = 3600))]
    pub stop_s: u32,
    /// Seconds that a stop then waits for routers to have moved the traffic.
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
