//! What AWS tells, in our words.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

pub use clouds::failure::{CallError, Failure};
use serde::{Deserialize, Serialize};

/// State of a target as the load balancer sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TargetState {
    /// Registered, and its health not yet known.
    Initial,
    /// Gets new flows.
    Healthy,
    /// Fails its health checks.
    Unhealthy,
    /// Failed its health checks, and keeps the flows that it has for a while.
    UnhealthyDraining,
    /// Not registered, or nothing sends traffic to its group.
    Unused,
    /// Deregistered, and keeps the flows that it has for a while.
    Draining,
    /// The load balancer doesn't know: its health checks are off, or it has trouble.
    Unavailable,
}

/// A target with its state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Instance id or address, by the group's target type.
    pub id: String,
    /// Its state.
    pub state: TargetState,
    /// AWS's code for why, `Target.Timeout` for instance.
    pub reason: Option<String>,
    /// The same as a sentence.
    pub description: Option<String>,
    /// Availability zone, where the answer has it.
    pub zone: Option<String>,
}

/// A target group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Its name in AWS's whole world.
    pub arn: String,
    /// Its name for people.
    pub name: String,
    /// `GENEVE` where it is a gateway load balancer's.
    pub protocol: String,
    /// Port of its targets.
    pub port: u16,
    /// What its targets are registered by.
    pub target_type: TargetType,
    /// How its targets are probed.
    pub health: HealthCheck,
    /// ARNs of the load balancers that send traffic to it.
    pub load_balancers: Vec<String>,
}

/// What a group's targets are registered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TargetType {
    /// Instance id: traffic comes to the primary interface.
    Instance,
    /// Address: traffic comes to the interface that has it.
    Ip,
    /// Anything that no gateway has.
    Other,
}

/// How a group's targets are probed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HealthCheck {
    /// `TCP`, `HTTP` or `HTTPS`.
    pub protocol: String,
    /// None: the traffic port.
    pub port: Option<u16>,
    /// What HTTP asks for; empty for TCP.
    pub path: String,
    /// From probe to probe.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Good probes in a row until healthy.
    pub healthy_threshold: u32,
    /// Bad probes in a row until unhealthy.
    pub unhealthy_threshold: u32,
}

/// Attributes of group, load balancer and listener that matter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// How long a deregistered target keeps its flows.
    pub deregistration_delay: Duration,
    /// Flows of a deregistered target go to others.
    pub rebalance_on_deregistration: bool,
    /// Flows of an unhealthy target go to others.
    pub rebalance_on_unhealthy: bool,
    /// TCP flows are reset when their target's draining ends.
    pub reset_on_deregistration: bool,
    /// TCP flows of an unhealthy target are reset.
    pub reset_on_unhealthy: bool,
    /// What of a packet makes its flow.
    pub stickiness: Stickiness,
    /// Targets get packets from gateways of other zones too.
    pub cross_zone: bool,
    /// How long a TCP flow may be idle.
    pub tcp_idle: Duration,
    /// An idle TCP flow is reset when it is forgotten.
    pub reset_on_idle: bool,
}

/// What of a packet makes its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stickiness {
    /// Addresses, ports and protocol.
    FiveTuple,
    /// Addresses and protocol.
    ThreeTuple,
    /// Addresses.
    TwoTuple,
}

/// An interface of this instance by IMDS.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// Its link address.
    pub mac: [u8; 6],
    /// `eni-...`.
    pub id: String,
    /// 0 is the primary one's.
    pub device_number: u32,
    /// Its private addresses, the primary one first.
    pub addresses: Vec<IpAddr>,
    /// `subnet-...`.
    pub subnet_id: String,
    /// `vpc-...`.
    pub vpc_id: String,
    /// `sg-...`.
    pub security_groups: Vec<String>,
}

/// Who this instance is, by IMDS.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// `i-...`.
    pub instance_id: String,
    /// `eu-central-1`.
    pub region: String,
    /// `eu-central-1a`.
    pub zone: String,
    /// Twelve digits.
    pub account: String,
    /// `ami-...`.
    pub image_id: String,
    /// `c7gn.xlarge`.
    pub instance_type: String,
    /// All of its interfaces, in the order of their device numbers.
    pub interfaces: Vec<Interface>,
}

/// A network interface by EC2, for roles and doctor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkInterface {
    /// `eni-...`.
    pub id: String,
    /// What somebody wrote about it.
    pub description: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Its place at the instance, where it is attached to one.
    pub device_index: Option<u32>,
    /// Its first private address.
    pub primary_address: IpAddr,
    /// All of its private addresses, that one included.
    pub addresses: Vec<IpAddr>,
    /// EC2 drops what is not from or to its own addresses.
    pub source_dest_check: bool,
    /// `subnet-...`.
    pub subnet_id: String,
    /// `vpc-...`.
    pub vpc_id: String,
    /// `sg-...`.
    pub security_groups: Vec<String>,
    /// Its link address.
    pub mac: [u8; 6],
}

/// An instance as its neighbours need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// `i-...`.
    pub id: String,
    /// `pending`, `running`, `shutting-down`, `terminated`, `stopping` or `stopped`.
    pub state: String,
    /// Its first private address; none once it is terminated.
    pub address: Option<IpAddr>,
    /// `eu-central-1a`.
    pub zone: Option<String>,
    /// `vpc-...`.
    pub vpc_id: Option<String>,
    /// `subnet-...`.
    pub subnet_id: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Ids of its interfaces by their place.
    pub interfaces: BTreeMap<u32, String>,
}

/// A security group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecurityGroup {
    /// `sg-...`.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it lets in.
    pub ingress: Vec<Permission>,
}

/// One rule of a security group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Permission {
    /// `tcp`, `udp`, a number, or `-1` for all.
    pub protocol: String,
    /// First and last port; none is all.
    pub ports: Option<(u16, u16)>,
    /// Prefixes, as written.
    pub prefixes: Vec<String>,
    /// Groups and prefix lists, by id.
    pub others: Vec<String>,
}

/// A route table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteTable {
    /// `rtb-...`.
    pub id: String,
    /// `vpc-...`.
    pub vpc_id: String,
    /// It is for all subnets that have none of their own.
    pub main: bool,
    /// The subnets that are bound to it.
    pub subnets: Vec<String>,
    /// Its routes.
    pub routes: Vec<Route>,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// A prefix, or the id of a prefix list.
    pub destination: String,
    /// `eni-...`, `igw-...`, `i-...`, `local` and others.
    pub target: Option<String>,
    /// False when its target is gone.
    pub active: bool,
}

/// An instance of a scaling group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScalingInstance {
    /// The group's name.
    pub group: String,
    /// `InService`, `Terminating:Wait` and so on.
    pub lifecycle: String,
}

/// A lifecycle hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    /// Its name.
    pub name: String,
    /// It holds instances that leave, not those that come.
    pub terminating: bool,
    /// How long it waits from heartbeat to heartbeat.
    pub heartbeat: Duration,
    /// How long it waits in all.
    pub whole: Duration,
}

/// What became of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invocation {
    /// It has come to its end, whichever.
    pub done: bool,
    /// `Success`, `Failed`, `TimedOut`, `Cancelled`, `InProgress` and so on.
    pub status: String,
    /// The script's exit code, once there is one.
    pub exit_code: Option<i32>,
    /// What it wrote, cut at 24,000 characters by AWS.
    pub output: String,
    /// What it wrote to standard error, cut at 8,000.
    pub errors: String,
}

/// A state in AWS's words.
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
