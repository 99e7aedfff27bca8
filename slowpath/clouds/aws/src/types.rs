//! Data types for AWS responses, independent of the SDKs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

pub use clouds::failure::{CallError, Failure};
use serde::{Deserialize, Serialize};

/// State of a target as Elastic Load Balancing reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TargetState {
    /// Registered; its health is not known yet.
    Initial,
    /// Healthy: the target receives new flows.
    Healthy,
    /// The target fails its health checks.
    Unhealthy,
    /// The target fails its health checks; its existing flows are kept for a limited time.
    UnhealthyDraining,
    /// Not registered, or no load balancer uses the group.
    Unused,
    /// Deregistered; its existing flows are kept for the deregistration delay.
    Draining,
    /// Unknown: health checks are disabled, or the load balancer has an internal error.
    Unavailable,
}

/// A target and its health.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Instance id or IP address, by the group's target type.
    pub id: String,
    /// State of the target.
    pub state: TargetState,
    /// AWS's reason code, `Target.Timeout` for instance.
    pub reason: Option<String>,
    /// AWS's description of the reason.
    pub description: Option<String>,
    /// Availability zone, if the response has one.
    pub zone: Option<String>,
}

/// A target group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Amazon Resource Name of the group.
    pub arn: String,
    /// Name of the group.
    pub name: String,
    /// Protocol; `GENEVE` if the group belongs to a gateway load balancer.
    pub protocol: String,
    /// Port of the targets.
    pub port: u16,
    /// How the targets are identified.
    pub target_type: TargetType,
    /// Health check settings.
    pub health: HealthCheck,
    /// ARNs of the load balancers that use the group.
    pub load_balancers: Vec<String>,
}

/// How a group's targets are identified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TargetType {
    /// By instance id: traffic goes to the primary interface.
    Instance,
    /// By IP address: traffic goes to the interface with that address.
    Ip,
    /// A type that gateway load balancers do not support.
    Other,
}

/// Health check settings of a target group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HealthCheck {
    /// Protocol: `TCP`, `HTTP` or `HTTPS`.
    pub protocol: String,
    /// Port of the probes; `None` for the traffic port.
    pub port: Option<u16>,
    /// Path of the HTTP request; empty for TCP.
    pub path: String,
    /// Time between two probes.
    pub interval: Duration,
    /// Time limit of a probe.
    pub timeout: Duration,
    /// Consecutive successful probes until a target is healthy.
    pub healthy_threshold: u32,
    /// Consecutive failed probes until a target is unhealthy.
    pub unhealthy_threshold: u32,
}

/// The attributes of target group, load balancer and listener that Weir evaluates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// How long a deregistered target keeps its flows.
    pub deregistration_delay: Duration,
    /// True if flows of a deregistered target are moved to other targets.
    pub rebalance_on_deregistration: bool,
    /// True if flows of an unhealthy target are moved to other targets.
    pub rebalance_on_unhealthy: bool,
    /// True if TCP flows of a deregistered target are reset after the deregistration delay.
    pub reset_on_deregistration: bool,
    /// True if TCP flows of an unhealthy target are reset.
    pub reset_on_unhealthy: bool,
    /// The packet fields that define a flow.
    pub stickiness: Stickiness,
    /// True if targets receive packets from gateways in other zones too.
    pub cross_zone: bool,
    /// Idle timeout of a TCP flow.
    pub tcp_idle: Duration,
    /// True if a TCP flow is reset when its idle timeout expires.
    pub reset_on_idle: bool,
}

/// The packet fields that define a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stickiness {
    /// Addresses, ports and protocol.
    FiveTuple,
    /// Addresses and protocol.
    ThreeTuple,
    /// Addresses.
    TwoTuple,
}

/// A network interface of this instance, as reported by IMDS.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// MAC address.
    pub mac: [u8; 6],
    /// Interface id: `eni-...`.
    pub id: String,
    /// Device number; 0 is the primary interface.
    pub device_number: u32,
    /// Private addresses, the primary one first.
    pub addresses: Vec<IpAddr>,
    /// Subnet id: `subnet-...`.
    pub subnet_id: String,
    /// VPC id: `vpc-...`.
    pub vpc_id: String,
    /// Ids of the security groups: `sg-...`.
    pub security_groups: Vec<String>,
}

/// Identity of this instance, as reported by IMDS.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// Instance id: `i-...`.
    pub instance_id: String,
    /// Region, `eu-central-1` for instance.
    pub region: String,
    /// Availability zone, `eu-central-1a` for instance.
    pub zone: String,
    /// Account id of twelve digits.
    pub account: String,
    /// Image id: `ami-...`.
    pub image_id: String,
    /// Instance type, `c7gn.xlarge` for instance.
    pub instance_type: String,
    /// Network interfaces, sorted by device number.
    pub interfaces: Vec<Interface>,
}

/// A network interface as reported by EC2, for mode routes and `weir cloud doctor`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkInterface {
    /// Interface id: `eni-...`.
    pub id: String,
    /// Description, as set by the user.
    pub description: String,
    /// Tags.
    pub tags: BTreeMap<String, String>,
    /// Device index at the instance, if the interface is attached.
    pub device_index: Option<u32>,
    /// Primary private address.
    pub primary_address: IpAddr,
    /// All private addresses, including the primary one.
    pub addresses: Vec<IpAddr>,
    /// Source/destination check: if true, EC2 drops packets that are neither from nor to the
    /// interface's own addresses.
    pub source_dest_check: bool,
    /// Subnet id: `subnet-...`.
    pub subnet_id: String,
    /// VPC id: `vpc-...`.
    pub vpc_id: String,
    /// Ids of the security groups: `sg-...`.
    pub security_groups: Vec<String>,
    /// MAC address.
    pub mac: [u8; 6],
}

/// An EC2 instance, reduced to the data that Weir uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// Instance id: `i-...`.
    pub id: String,
    /// State: `pending`, `running`, `shutting-down`, `terminated`, `stopping` or `stopped`.
    pub state: String,
    /// Primary private address; `None` once the instance is terminated.
    pub address: Option<IpAddr>,
    /// Availability zone, `eu-central-1a` for instance.
    pub zone: Option<String>,
    /// VPC id: `vpc-...`.
    pub vpc_id: Option<String>,
    /// Subnet id: `subnet-...`.
    pub subnet_id: Option<String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
    /// Interface ids by device index.
    pub interfaces: BTreeMap<u32, String>,
}

/// A security group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecurityGroup {
    /// Group id: `sg-...`.
    pub id: String,
    /// Name of the group.
    pub name: String,
    /// Inbound rules.
    pub ingress: Vec<Permission>,
}

/// An inbound rule of a security group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Permission {
    /// Protocol: `tcp`, `udp`, an IP protocol number, or `-1` for all.
    pub protocol: String,
    /// First and last port; `None` for all ports. For ICMP, type and code.
    pub ports: Option<(u16, u16)>,
    /// Source prefixes (CIDR), as EC2 writes them.
    pub prefixes: Vec<String>,
    /// Ids of source security groups and prefix lists.
    pub others: Vec<String>,
}

/// A route table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteTable {
    /// Table id: `rtb-...`.
    pub id: String,
    /// VPC id: `vpc-...`.
    pub vpc_id: String,
    /// True for the VPC's main table, used by subnets without an explicit association.
    pub main: bool,
    /// Ids of the subnets with an explicit association.
    pub subnets: Vec<String>,
    /// Routes of the table.
    pub routes: Vec<Route>,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Destination prefix, or the id of a prefix list.
    pub destination: String,
    /// Target: `eni-...`, `igw-...`, `i-...`, `local` and others; `None` for a kind of target that
    /// Weir does not read.
    pub target: Option<String>,
    /// False if the target no longer exists (state `blackhole`).
    pub active: bool,
}

/// Membership of an instance in an Auto Scaling group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScalingInstance {
    /// Name of the group.
    pub group: String,
    /// Lifecycle state: `InService`, `Terminating:Wait` and so on.
    pub lifecycle: String,
}

/// An Auto Scaling lifecycle hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    /// Name of the hook.
    pub name: String,
    /// True if the hook applies to instances that terminate, false if to those that launch.
    pub terminating: bool,
    /// Heartbeat timeout: maximum time between two heartbeats.
    pub heartbeat: Duration,
    /// Global timeout: maximum time that the hook can hold an instance.
    pub global_timeout: Duration,
}

/// Status of an SSM command on one instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invocation {
    /// True if the command has ended, successfully or not.
    pub done: bool,
    /// Status: `Success`, `Failed`, `TimedOut`, `Cancelled`, `InProgress` and so on.
    pub status: String,
    /// Exit code of the script, once it has ended.
    pub exit_code: Option<i32>,
    /// Standard output, truncated to 24,000 characters by AWS.
    pub output: String,
    /// Standard error, truncated to 8,000 characters by AWS.
    pub errors: String,
}

/// Returns the state as AWS's API spells it.
pub fn state_text(state: TargetState) -> &'static str {
    match state {
        TargetState::Initial => "initial",
        TargetState::Healthy => "healthy",
        TargetState::Unhealthy => "unhealthy",
        TargetState::UnhealthyDraining => "unhealthy.draining",
        TargetState::Unused => "unused",
        TargetState::Draining => "draining",
        TargetState::Unavailable => "unavailable",
    }
}
