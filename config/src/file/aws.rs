//! The `[aws]` section as written: the appliance on AWS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checked::{AwsUse, OnLost};

/// The appliance on AWS: it registers itself as a target and deregisters without losing a flow.
/// Without this section AWS is not used. Credentials, region and endpoints are those of the AWS
/// SDK: the instance's role, or its environment variables.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Aws {
    /// `gateway`: register as a target of a gateway load balancer. `routes`: point route tables at
    /// the leader of a cluster (for setups without a gateway; deprecated).
    pub mode: AwsUse,
    /// Value of the tag `TAG_PREFIX:cluster` of the target group; with mode routes, of all peers
    /// and route tables.
    pub cluster: String,
    /// ARN of the target group, instead of `cluster`.
    pub target_group: String,
    /// Prefix of tag keys, the part before the `:`.
    pub tag_prefix: String,
    /// Management interface, `eni-...`. Empty: the interface whose description or tag
    /// `TAG_PREFIX:role` is management.
    #[schemars(extend("x-weir" = "machine"))]
    pub management: String,
    /// Interface that faces the gateway, `eni-...`. Empty: the interface whose description or tag
    /// is ingress, else the one that has the ingress arm's address.
    #[schemars(extend("x-weir" = "machine"))]
    pub ingress: String,
    /// Interface that faces the backends, `eni-...`. Empty: the interface whose description or tag
    /// is egress.
    #[schemars(extend("x-weir" = "machine"))]
    pub egress: String,
    /// Action when another party removed the registration: `repair` registers again, `report` only
    /// reports it.
    pub on_lost: OnLost,
    /// Maximum number of seconds from the first SIGTERM to the exit. Should be longer than the
    /// group's deregistration delay (300). slowpath extends systemd's TimeoutStopSec meanwhile.
    #[schemars(range(min = 5, max = 7200))]
    pub drain_cap_s: u32,
    /// During shutdown, the appliance counts as idle after this many seconds without a packet, once
    /// no flow is left in the table.
    #[schemars(range(min = 1, max = 600))]
    pub idle_s: u32,
    /// Poll the instance metadata for termination by Auto Scaling or Spot, start the shutdown when
    /// it is announced, and complete the lifecycle hook.
    pub hook: bool,
}

impl Default for Aws {
    fn default() -> Aws {
        Aws {
            mode: AwsUse::Gateway,
            cluster: String::new(),
            target_group: String::new(),
            tag_prefix: "weir".into(),
            management: String::new(),
            ingress: String::new(),
            egress: String::new(),
            on_lost: OnLost::Repair,
            drain_cap_s: 330,
            idle_s: 5,
            hook: true,
        }
    }
}
