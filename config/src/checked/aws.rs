//! The `[aws]` section, validated: target group, interfaces, and the lifecycle of the registration.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `[aws]` section; present only on AWS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Aws {
    /// Role of the appliance on AWS.
    pub mode: AwsMode,
    /// Prefix of tag keys, the part before the `:`.
    pub tag_prefix: String,
    /// Configured interfaces by role.
    pub roles: AwsRoles,
    /// Lifecycle of the registration.
    pub lifecycle: AwsLifecycleSettings,
}

/// Role of the appliance on AWS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AwsMode {
    /// Registers as a target of this target group.
    Gateway(GroupBy),
    /// Points route tables at the leader of this cluster.
    Routes {
        /// Name of the cluster in tags.
        cluster: String,
    },
}

/// How the target group is identified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupBy {
    /// By the value of its tag `PREFIX:cluster`.
    Cluster(String),
    /// By its ARN.
    Arn(String),
}

/// Interfaces by role, `eni-...`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AwsRoles {
    /// The management interface.
    pub management: Option<String>,
    /// The interface that faces the gateway.
    pub ingress: Option<String>,
    /// The interface that faces the backends.
    pub egress: Option<String>,
}

/// Lifecycle of the registration as a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AwsLifecycleSettings {
    /// Action when another party removed the registration.
    pub on_lost: OnLost,
    /// Maximum time from the first SIGTERM to the exit.
    pub drain_cap: Duration,
    /// Time without a packet after which the appliance counts as idle, once no flow is left in the
    /// table.
    pub idle: Duration,
    /// Poll the instance metadata (IMDS) for termination by Auto Scaling or Spot.
    pub hook: bool,
}

/// Action when another party removed a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnLost {
    /// Register again.
    #[default]
    Repair,
    /// Only report it.
    Report,
}

/// Values of `aws.mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AwsUse {
    /// Register as a target of a gateway load balancer.
    #[default]
    Gateway,
    /// Point route tables at the leader of a cluster.
    Routes,
}
