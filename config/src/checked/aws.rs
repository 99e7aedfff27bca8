//! `[aws]`: which target group, who we are there, and how we come and go.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[aws]`, where a cloud is asked at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Aws {
    /// What it does there.
    pub mode: AwsMode,
    /// What stands before `:` in the keys of tags.
    pub tag_prefix: String,
    /// Interfaces by their role, where they are told here.
    pub roles: AwsRoles,
    /// How it comes and goes.
    pub life: Lifecycle,
}

/// What the appliance does at AWS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AwsMode {
    /// Is a target of this group.
    Gateway(GroupBy),
    /// Has route tables point at the leader of this cluster.
    Routes {
        /// The cluster's name in tags.
        cluster: String,
    },
}

/// By what the target group is found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupBy {
    /// Its tag `PREFIX:cluster` has this value.
    Cluster(String),
    /// Its ARN.
    Arn(String),
}

/// Interfaces by their role, `eni-...`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AwsRoles {
    /// For people.
    pub management: Option<String>,
    /// Towards the gateway.
    pub ingress: Option<String>,
    /// Towards the backends.
    pub egress: Option<String>,
}

/// How the appliance comes and goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifecycle {
    /// What it does when somebody else took its registration away.
    pub on_lost: OnLost,
    /// From the first SIGTERM to the end, at most.
    pub drain_cap: Duration,
    /// Nothing is active once no packet came for so long and no flow is in the table.
    pub quiet: Duration,
    /// IMDS is asked whether Auto Scaling or spot ends the instance.
    pub hook: bool,
}

/// What becomes of a registration that somebody else took away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnLost {
    /// It is made again.
    #[default]
    Repair,
    /// It is told.
    Report,
}

/// What is written as `aws.mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AwsUse {
    /// A target of a gateway load balancer.
    #[default]
    Gateway,
    /// Route tables that point at a leader.
    Routes,
}
