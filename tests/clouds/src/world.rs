//! All that there is: instances, interfaces, routes, groups of targets, scaling groups, commands.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::answer::{Refusal, refuse};
use crate::target::{Rhythm, State, Target};

/// Tags, and other names with values.
pub type Words = BTreeMap<String, String>;

/// One region of an account. Everything in it can be read and set, over HTTP too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct World {
    /// The time; it moves by `advance` only.
    pub now: Duration,
    /// `eu-central-1`.
    pub region: String,
    /// Twelve digits.
    pub account: String,
    /// Access keys and their secrets.
    pub keys: Words,
    /// No page of any list is longer.
    pub page: Option<usize>,
    /// What new targets' probes bring.
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
    /// Scaling groups.
    pub scaling: Vec<Scaling>,
    /// Commands that were sent.
    pub commands: Vec<Command>,
    /// Operations that the role is not allowed.
    pub forbidden: Vec<String>,
    /// The metadata service of the first instance.
    pub imds: Imds,
}

/// A target group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Its ARN.
    pub arn: String,
    /// Its name.
    pub name: String,
    /// `GENEVE`.
    pub protocol: String,
    /// 6081.
    pub port: u16,
    /// `instance` or `ip`.
    pub target_type: String,
    /// `TCP`, `HTTP`, `HTTPS`.
    pub health_protocol: String,
    /// A number, or `traffic-port`.
    pub health_port: String,
    /// What is asked for over HTTP.
    pub health_path: String,
    /// Seconds.
    pub interval: u64,
    /// Seconds.
    pub timeout: u64,
    /// Good probes until healthy.
    pub healthy: u32,
    /// Bad probes until unhealthy.
    pub unhealthy: u32,
    /// Its attributes.
    pub attributes: Words,
    /// Its tags.
    pub tags: Words,
    /// Its targets.
    pub targets: Vec<Target>,
    /// No more of them.
    pub limit: usize,
}

/// A load balancer with its one listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Balancer {
    /// Its ARN.
    pub arn: String,
    /// Its attributes.
    pub attributes: Words,
    /// ARN of its listener.
    pub listener: String,
    /// The listener's attributes.
    pub listener_attributes: Words,
    /// ARN of the target group that it sends to.
    pub group: String,
}

/// An instance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Instance {
    /// `i-...`.
    pub id: String,
    /// `running`.
    pub state: String,
    /// `eu-central-1a`.
    pub zone: String,
    /// `vpc-...`.
    pub vpc: String,
    /// Its tags.
    pub tags: Words,
    /// Its interfaces, the primary one first.
    pub interfaces: Vec<Interface>,
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// `eni-...`.
    pub id: String,
    /// Six bytes in hexadecimal.
    pub mac: String,
    /// Its addresses, IPv4 first.
    pub addresses: Vec<String>,
    /// `subnet-...`.
    pub subnet: String,
    /// What somebody wrote about it.
    pub description: String,
    /// Its tags.
    pub tags: Words,
    /// The source/destination check.
    pub check: bool,
    /// `sg-...`.
    pub security_groups: Vec<String>,
}

/// A security group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SecurityGroup {
    /// `sg-...`.
    pub id: String,
    /// Its rules.
    pub ingress: Vec<Rule>,
}

/// A rule: protocol, first and last port (none: all), prefix.
pub type Rule = (String, Option<(u16, u16)>, String);

/// A route table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// `rtb-...`.
    pub id: String,
    /// `vpc-...`.
    pub vpc: String,
    /// The VPC's main one.
    pub main: bool,
    /// The subnets bound to it.
    pub subnets: Vec<String>,
    /// Target by destination: `eni-...`, `igw-...`, `local`.
    pub routes: Words,
}

/// A scaling group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scaling {
    /// Its name.
    pub name: String,
    /// Lifecycle state by instance.
    pub instances: Words,
    /// Name, transition, heartbeat and whole timeout (seconds) of its hooks.
    pub hooks: Vec<(String, String, u64, u64)>,
    /// By when an instance's hook must hear of it.
    pub deadlines: BTreeMap<String, Duration>,
}

/// A command on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Command {
    /// Its id.
    pub id: String,
    /// Where it runs.
    pub instance: String,
    /// What was sent.
    pub script: String,
    /// `Pending`, `InProgress`, `Success`, `Failed` and so on.
    pub status: String,
    /// Its exit code, -1 before there is one.
    pub code: i32,
    /// What it wrote.
    pub output: String,
    /// What it wrote to standard error.
    pub errors: String,
    /// The invocation can't be found before.
    pub visible: Duration,
}

/// The metadata service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Imds {
    /// `on`, `off` (403), `silent` (no token ever comes: the hop limit).
    pub mode: String,
    /// `autoscaling/target-lifecycle-state`.
    pub lifecycle: Option<String>,
    /// `spot/instance-action`, whole.
    pub spot: Option<String>,
    /// `events/recommendations/rebalance`, whole.
    pub rebalance: Option<String>,
    /// Tokens that were given out.
    pub tokens: u64,
    /// Tokens below are no longer good.
    pub expired: u64,
}

impl Group {
    /// How it probes.
    pub fn rhythm(&self) -> Rhythm {
        let delay = self.attributes.get("deregistration_delay.timeout_seconds");
        Rhythm {
            interval: Duration::from_secs(self.interval),
            healthy: self.healthy,
            unhealthy: self.unhealthy,
            delay: Duration::from_secs(delay.and_then(|d| d.parse().ok()).unwrap_or(300)),
        }
    }
}

impl World {
    /// Lets time pass.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        let now = self.now;
        for group in &mut self.groups {
            let rhythm = group.rhythm();
            group.targets.retain_mut(|target| target.advance(now, rhythm));
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

    /// A group by ARN.
    pub fn group(&mut self, arn: &str) -> Result<&mut Group, Refusal> {
        let found = self.groups.iter_mut().find(|group| group.arn == arn);
        found.map_or_else(
            || refuse("TargetGroupNotFound", "One or more target groups not found"),
            Ok,
        )
    }

    /// A load balancer sends to it.
    pub fn used(&self, arn: &str) -> bool {
        self.balancers.iter().any(|balancer| balancer.group == arn)
    }

    /// What the group says about a target, if it knows it.
    pub fn state(&self, arn: &str, id: &str) -> Option<State> {
        let group = self.groups.iter().find(|group| group.arn == arn)?;
        let target = group.targets.iter().find(|target| target.id == id)?;
        Some(target.told(self.used(arn)))
    }

    /// What the probes of a target bring from now on.
    pub fn probe(&mut self, id: &str, good: bool) {
        let targets = self.groups.iter_mut().flat_map(|group| &mut group.targets);
        targets.filter(|target| target.id == id).for_each(|target| target.good = good);
    }

    /// Auto Scaling begins to end an instance, and its hook waits.
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

    /// The first instance's id.
    pub fn own(&self) -> &str {
        self.instances.first().map_or("", |i| i.id.as_str())
    }
}

mod sample;
