//! As written: the appliance at AWS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checked::{AwsUse, OnLost};

/// The appliance at AWS: it registers itself as a target, and leaves without losing a flow. Without
/// this section no cloud is asked anything. Credentials, region and endpoints are those of the AWS
/// SDK: the instance's role, or its environment variables.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Aws {
    /// `gateway`: a target of a gateway load balancer. `routes`: route tables point at the leader
    /// of a cluster (for what has no gateway; deprecated).
    pub mode: AwsUse,
    /// Value of the tag `TAG_PREFIX:cluster` of the target group; mode routes: of all peers and
    /// route tables.
    pub cluster: String,
    /// ARN of the target group, instead of `cluster`.
    pub target_group: String,
    /// What stands before the `:` in the keys of tags.
    pub tag_prefix: String,
    /// Interface for people, `eni-...`. Empty: the one whose description or tag `TAG_PREFIX:role`
    /// says management.
    pub management: String,
    /// Interface towards the gateway, `eni-...`. Empty: the one whose description or tag says
    /// ingress, else the one that has the ingress arm's address.
    pub ingress: String,
    /// Interface towards the backends, `eni-...`. Empty: the one whose description or tag says
    /// egress.
    pub egress: String,
    /// When somebody else took the registration away: `repair` makes it again, `report` tells it.
    pub on_lost: OnLost,
    /// Seconds from the first SIGTERM to the end, at most. Should be longer than the group's
    /// deregistration delay (300), and shorter than systemd's TimeoutStopSec.
    #[schemars(range(min = 5, max = 7200))]
    pub drain_cap_s: u32,
    /// While leaving, nothing is active once no packet came for so many seconds and no flow is in
    /// the table.
    #[schemars(range(min = 1, max = 600))]
    pub quiet_s: u32,
    /// Ask the instance's metadata whether Auto Scaling or spot ends it, leave then, and tell the
    /// lifecycle hook.
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
            quiet_s: 5,
            hook: true,
        }
    }
}
