//! State of the AWS emulator: instances, interfaces, routes, target groups, scaling groups,
//! commands.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::answer::{ServiceError, fail};
use crate::target::{HealthCheckSettings, State, Target};

/// Tags and other name-value pairs.
pub type StringMap = BTreeMap<String, String>;

/// One region of an account. All of it can be read and set, also over HTTP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AwsState {
    /// Time since the emulator's start; changed by `advance` only.
    pub now: Duration,
    /// Region, `eu-central-1` for instance.
    pub region: String,
    /// Account id of twelve digits.
    pub account: String,
    /// Access keys and their secrets.
    pub keys: StringMap,
    /// Maximum length of a page of any list; `None` for no limit.
    pub page: Option<usize>,
    /// True if the probes of new targets succeed.
    pub good: bool,
    /// Target groups.
    pub groups: Vec<Group>,
    /// Load balancers.
    pub balancers: Vec<Balancer>,
    /// Instances.
    pub instances: Vec<Instance>,
    /// Security groups.
    pub security_groups: Vec<SecurityGroup>,
    /// Route tables.
    pub tables: Vec<Table>,
    /// Auto Scaling groups.
    pub scaling: Vec<Scaling>,
    /// SSM commands that were sent.
    pub commands: Vec<Command>,
    /// Operations that the role does not permit.
    pub forbidden: Vec<String>,
    /// Metadata service of the first instance.
    pub imds: Imds,
}

/// A target group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// ARN.
    pub arn: String,
    /// Name.
    pub name: String,
    /// Protocol, `GENEVE`.
    pub protocol: String,
    /// Port, 6081.
    pub port: u16,
    /// Target type: `instance` or `ip`.
    pub target_type: String,
    /// Health check protocol: `TCP`, `HTTP` or `HTTPS`.
    pub health_protocol: String,
    /// Health check port: a number, or `traffic-port`.
    pub health_port: String,
    /// Path of HTTP health checks.
    pub health_path: String,
    /// Health check interval, in seconds.
    pub interval: u64,
    /// Health check timeout, in seconds.
    pub timeout: u64,
    /// Consecutive successful probes until healthy.
    pub healthy: u32,
    /// Consecutive failed probes until unhealthy.
    pub unhealthy: u32,
    /// Attributes.
    pub attributes: StringMap,
    /// Tags.
    pub tags: StringMap,
    /// Targets.
    pub targets: Vec<Target>,
    /// Maximum number of targets.
    pub limit: usize,
}

/// A load balancer with a single listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Balancer {
    /// ARN.
    pub arn: String,
    /// Attributes of the load balancer.
    pub attributes: StringMap,
    /// ARN of the listener.
    pub listener: String,
    /// Attributes of the listener.
    pub listener_attributes: StringMap,
    /// ARN of the target group that the listener forwards to.
    pub group: String,
}

/// An instance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Instance {
    /// Instance id: `i-...`.
    pub id: String,
    /// State, `running` for instance.
    pub state: String,
    /// Availability zone, `eu-central-1a` for instance.
    pub zone: String,
    /// VPC id: `vpc-...`.
    pub vpc: String,
    /// Tags.
    pub tags: StringMap,
    /// Network interfaces, the primary one first.
    pub interfaces: Vec<Interface>,
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// Interface id: `eni-...`.
    pub id: String,
    /// MAC address: six hexadecimal bytes with colons.
    pub mac: String,
    /// Addresses, IPv4 first.
    pub addresses: Vec<String>,
    /// Subnet id: `subnet-...`.
    pub subnet: String,
    /// Description, as set by the user.
    pub description: String,
    /// Tags.
    pub tags: StringMap,
    /// Source/destination check.
    pub check: bool,
    /// Ids of the security groups: `sg-...`.
    pub security_groups: Vec<String>,
}

/// A security group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SecurityGroup {
    /// Group id: `sg-...`.
    pub id: String,
    /// Inbound rules.
    pub ingress: Vec<IngressRule>,
}

/// A rule: protocol, first and last port (`None` for all), prefix.
pub type IngressRule = (String, Option<(u16, u16)>, String);

/// A route table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Table id: `rtb-...`.
    pub id: String,
    /// VPC id: `vpc-...`.
    pub vpc: String,
    /// True for the VPC's main table.
    pub main: bool,
    /// Ids of the associated subnets.
    pub subnets: Vec<String>,
    /// Targets by destination: `eni-...`, `igw-...`, `local`.
    pub routes: StringMap,
}

/// An Auto Scaling group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scaling {
    /// Name.
    pub name: String,
    /// Lifecycle states by instance.
    pub instances: StringMap,
    /// Lifecycle hooks: name, transition, heartbeat and global timeout (seconds).
    pub hooks: Vec<(String, String, u64, u64)>,
    /// Heartbeat deadlines by instance, as times since the emulator's start.
    pub deadlines: BTreeMap<String, Duration>,
}

/// An SSM command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Command {
    /// Id of the command.
    pub id: String,
    /// Id of the instance on which it runs.
    pub instance: String,
    /// Script of the command.
    pub script: String,
    /// Status: `Pending`, `InProgress`, `Success`, `Failed` and so on.
    pub status: String,
    /// Exit code, -1 until there is one.
    pub code: i32,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
    /// Time before which the invocation is not visible, since the emulator's start.
    pub visible: Duration,
}

/// The metadata service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Imds {
    /// Mode: `on`, `off` (403), or `silent` (token requests stay unanswered, as with too low a hop
    /// limit).
    pub mode: String,
    /// Value of `autoscaling/target-lifecycle-state`.
    pub lifecycle: Option<String>,
    /// Body of `spot/instance-action`.
    pub spot: Option<String>,
    /// Body of `events/recommendations/rebalance`.
    pub rebalance: Option<String>,
    /// Number of tokens issued.
    pub tokens: u64,
    /// Tokens up to this number have expired.
    pub expired: u64,
}

impl Group {
    /// Returns the health check settings.
    pub fn health_check(&self) -> HealthCheckSettings {
        let delay = self.attributes.get("deregistration_delay.timeout_seconds");
        HealthCheckSettings {
            interval: Duration::from_secs(self.interval),
            healthy: self.healthy,
            unhealthy: self.unhealthy,
            delay: Duration::from_secs(delay.and_then(|d| d.parse().ok()).unwrap_or(300)),
        }
    }
}

impl AwsState {
    /// Advances the clock: performs probes, and ends drains and hooks that are due.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        let now = self.now;
        for group in &mut self.groups {
            let settings = group.health_check();
            group.targets.retain_mut(|target| target.advance(now, settings));
        }
        for scaling in &mut self.scaling {
            let late: Vec<String> = scaling
                .deadlines
                .iter()
                .filter(|(_, deadline)| **deadline <= now)
                .map(|(id, _)| id.clone())
                .collect();
            for id in late {
                scaling.deadlines.remove(&id);
                scaling.instances.insert(id, "Terminating:Proceed".into());
            }
        }
    }

    /// Returns the group with this ARN.
    pub fn group(&mut self, arn: &str) -> Result<&mut Group, ServiceError> {
        let found = self.groups.iter_mut().find(|group| group.arn == arn);
        found.map_or_else(|| fail("TargetGroupNotFound", "One or more target groups not found"), Ok)
    }

    /// Returns true if a load balancer uses the group.
    pub fn is_used(&self, arn: &str) -> bool {
        self.balancers.iter().any(|balancer| balancer.group == arn)
    }

    /// Returns the state of a target, if it is registered.
    pub fn state(&self, arn: &str, id: &str) -> Option<State> {
        let group = self.groups.iter().find(|group| group.arn == arn)?;
        let target = group.targets.iter().find(|target| target.id == id)?;
        Some(target.reported(self.is_used(arn)))
    }

    /// Sets the result of a target's probes from now on.
    pub fn set_probe_result(&mut self, id: &str, good: bool) {
        let targets = self.groups.iter_mut().flat_map(|group| &mut group.targets);
        targets.filter(|target| target.id == id).for_each(|target| target.good = good);
    }

    /// Starts the termination of an instance by Auto Scaling, which the group's hook delays.
    pub fn terminate(&mut self, id: &str) {
        let now = self.now;
        for scaling in self.scaling.iter_mut().filter(|s| s.instances.contains_key(id)) {
            let leaving = |hook: &&(String, String, u64, u64)| hook.1.ends_with("TERMINATING");
            if let Some(hook) = scaling.hooks.iter().find(leaving) {
                scaling.deadlines.insert(id.into(), now + Duration::from_secs(hook.2));
                scaling.instances.insert(id.into(), "Terminating:Wait".into());
            }
        }
        if self.instances.first().is_some_and(|i| i.id == id) {
            self.imds.lifecycle = Some("Terminated".into());
        }
    }

    /// Returns the id of the first instance.
    pub fn own_instance(&self) -> &str {
        self.instances.first().map_or("", |i| i.id.as_str())
    }
}

mod sample;
