//! What Weir asks of AWS: one method a question, our types in and out.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::told::{
    Attributes, CallError, Group, Hook, Instance, Invocation, NetworkInterface, RouteTable,
    ScalingInstance, SecurityGroup, Target,
};

/// A question on its way. To drop it is to take it back.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send + 'a>>;

/// An AWS account in one region, as far as we need it.
pub trait Aws: Send + Sync {
    /// ARNs of the target groups that carry a tag with this value (GetResources).
    fn groups_by_tag<'a>(&'a self, key: &'a str, value: &'a str) -> Call<'a, Vec<String>>;
    /// These target groups, or all without an ARN (DescribeTargetGroups).
    fn groups<'a>(&'a self, arns: &'a [String]) -> Call<'a, Vec<Group>>;
    /// What is set at the group, its load balancers and their listeners (four questions).
    fn attributes<'a>(&'a self, group: &'a Group) -> Call<'a, Attributes>;
    /// All targets of a group, those that drain included, or only one (DescribeTargetHealth). One
    /// that the group doesn't know is `Unused`.
    fn targets<'a>(&'a self, group: &'a str, only: Option<&'a str>) -> Call<'a, Vec<Target>>;
    /// Registers an instance id or address (RegisterTargets); no harm if it is there.
    fn register<'a>(&'a self, group: &'a str, target: &'a str) -> Call<'a, ()>;
    /// Takes it out (DeregisterTargets); no harm if it is not there.
    fn deregister<'a>(&'a self, group: &'a str, target: &'a str) -> Call<'a, ()>;

    /// Instances by id, whatever their state (DescribeInstances).
    fn instances<'a>(&'a self, ids: &'a [String]) -> Call<'a, Vec<Instance>>;
    /// Pending and running instances of a VPC that carry a tag with this value, or with any
    /// (DescribeInstances).
    fn instances_by_tag<'a>(
        &'a self,
        vpc: &'a str,
        key: &'a str,
        value: Option<&'a str>,
    ) -> Call<'a, Vec<Instance>>;
    /// The interfaces of an instance (DescribeNetworkInterfaces).
    fn network_interfaces<'a>(&'a self, instance: &'a str) -> Call<'a, Vec<NetworkInterface>>;
    /// These security groups (DescribeSecurityGroups).
    fn security_groups<'a>(&'a self, ids: &'a [String]) -> Call<'a, Vec<SecurityGroup>>;
    /// The route tables of a VPC, with the subnets that they are for (DescribeRouteTables).
    fn route_tables<'a>(&'a self, vpc: &'a str) -> Call<'a, Vec<RouteTable>>;
    /// Points a route that exists at an interface (ReplaceRoute).
    fn replace_route<'a>(&'a self, route: &'a Pointed, dry: bool) -> Call<'a, ()>;
    /// Sets the source/destination check of an interface (ModifyNetworkInterfaceAttribute).
    fn set_source_dest_check<'a>(&'a self, interface: &'a str, on: bool, dry: bool)
    -> Call<'a, ()>;

    /// Runs a shell script on an instance, and tells the command's id (SendCommand).
    fn send_command<'a>(
        &'a self,
        instance: &'a str,
        script: &'a str,
        timeout: Duration,
    ) -> Call<'a, String>;
    /// What became of it (GetCommandInvocation). `Absent` for a moment after it was sent.
    fn invocation<'a>(&'a self, command: &'a str, instance: &'a str) -> Call<'a, Invocation>;

    /// The scaling group of an instance, if it is in one (DescribeAutoScalingInstances).
    fn scaling_instance<'a>(&'a self, instance: &'a str) -> Call<'a, Option<ScalingInstance>>;
    /// The lifecycle hooks of a scaling group (DescribeLifecycleHooks).
    fn lifecycle_hooks<'a>(&'a self, group: &'a str) -> Call<'a, Vec<Hook>>;
    /// Lets a hook that waits go on (CompleteLifecycleAction).
    fn complete_lifecycle<'a>(&'a self, at: &'a Waiting) -> Call<'a, ()>;
    /// Has it wait longer (RecordLifecycleActionHeartbeat).
    fn lifecycle_heartbeat<'a>(&'a self, at: &'a Waiting) -> Call<'a, ()>;
}

/// A route as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pointed {
    /// `rtb-...`.
    pub table: String,
    /// `0.0.0.0/0`, or a prefix of IPv6.
    pub destination: String,
    /// `eni-...`.
    pub interface: String,
}

/// An instance that a lifecycle hook holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The scaling group.
    pub group: String,
    /// The hook.
    pub hook: String,
    /// `i-...`.
    pub instance: String,
}
