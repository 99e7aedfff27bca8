//! The interface of the AWS operations that Weir uses, with Weir's own data types.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::types::{
    Attributes, CallError, Group, Hook, Instance, Invocation, NetworkInterface, RouteTable,
    ScalingInstance, SecurityGroup, Target,
};

/// A call in progress. Dropping it cancels the call.
pub type AwsFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send + 'a>>;

/// An AWS account in one region, reduced to the operations that Weir uses.
pub trait Aws: Send + Sync {
    /// Returns the ARNs of the target groups that have the tag with this value (GetResources).
    fn groups_by_tag<'a>(&'a self, key: &'a str, value: &'a str) -> AwsFuture<'a, Vec<String>>;
    /// Returns these target groups, or all if `arns` is empty (DescribeTargetGroups).
    fn groups<'a>(&'a self, arns: &'a [String]) -> AwsFuture<'a, Vec<Group>>;
    /// Returns the attributes of a group, its load balancers and their listeners
    /// (DescribeTargetGroupAttributes, DescribeLoadBalancerAttributes, DescribeListeners,
    /// DescribeListenerAttributes).
    fn attributes<'a>(&'a self, group: &'a Group) -> AwsFuture<'a, Attributes>;
    /// Returns all targets of a group, including draining ones, or only one (DescribeTargetHealth).
    /// If `target` is not in the group, it is returned as `Unused`.
    fn targets<'a>(&'a self, group: &'a str, target: Option<&'a str>)
    -> AwsFuture<'a, Vec<Target>>;
    /// Registers an instance id or address; no change if it is registered (RegisterTargets).
    fn register<'a>(&'a self, group: &'a str, target: &'a str) -> AwsFuture<'a, ()>;
    /// Deregisters a target; no error if it is not registered (DeregisterTargets).
    fn deregister<'a>(&'a self, group: &'a str, target: &'a str) -> AwsFuture<'a, ()>;

    /// Returns instances by id, in any state (DescribeInstances).
    fn instances<'a>(&'a self, ids: &'a [String]) -> AwsFuture<'a, Vec<Instance>>;
    /// Returns the pending and running instances of a VPC that have the tag with this value, or
    /// with any value (DescribeInstances).
    fn instances_by_tag<'a>(
        &'a self,
        vpc: &'a str,
        key: &'a str,
        value: Option<&'a str>,
    ) -> AwsFuture<'a, Vec<Instance>>;
    /// Returns the network interfaces of an instance (DescribeNetworkInterfaces).
    fn network_interfaces<'a>(&'a self, instance: &'a str) -> AwsFuture<'a, Vec<NetworkInterface>>;
    /// Returns these security groups (DescribeSecurityGroups).
    fn security_groups<'a>(&'a self, ids: &'a [String]) -> AwsFuture<'a, Vec<SecurityGroup>>;
    /// Returns the route tables of a VPC, with their subnets (DescribeRouteTables).
    fn route_tables<'a>(&'a self, vpc: &'a str) -> AwsFuture<'a, Vec<RouteTable>>;
    /// Points an existing route to an interface (ReplaceRoute). With `dry_run`, AWS only checks the
    /// permission.
    fn replace_route<'a>(&'a self, route: &'a RouteReplacement, dry_run: bool)
    -> AwsFuture<'a, ()>;
    /// Sets the source/destination check of an interface (ModifyNetworkInterfaceAttribute). With
    /// `dry_run`, AWS only checks the permission.
    fn set_source_dest_check<'a>(
        &'a self,
        interface: &'a str,
        enabled: bool,
        dry_run: bool,
    ) -> AwsFuture<'a, ()>;

    /// Starts a shell script on an instance and returns the command's id (SendCommand).
    fn send_command<'a>(
        &'a self,
        instance: &'a str,
        script: &'a str,
        timeout: Duration,
    ) -> AwsFuture<'a, String>;
    /// Returns the status of a command (GetCommandInvocation). For a moment after the command was
    /// sent, the call may fail with `Absent`.
    fn invocation<'a>(&'a self, command: &'a str, instance: &'a str) -> AwsFuture<'a, Invocation>;

    /// Returns the Auto Scaling group of an instance, if any (DescribeAutoScalingInstances).
    fn scaling_instance<'a>(&'a self, instance: &'a str) -> AwsFuture<'a, Option<ScalingInstance>>;
    /// Returns the lifecycle hooks of an Auto Scaling group (DescribeLifecycleHooks).
    fn lifecycle_hooks<'a>(&'a self, group: &'a str) -> AwsFuture<'a, Vec<Hook>>;
    /// Ends the wait of an instance that a hook holds: completes the lifecycle action with
    /// `CONTINUE` (CompleteLifecycleAction).
    fn complete_lifecycle<'a>(&'a self, hooked: &'a HookedInstance) -> AwsFuture<'a, ()>;
    /// Extends the timeout of a lifecycle action (RecordLifecycleActionHeartbeat).
    fn lifecycle_heartbeat<'a>(&'a self, hooked: &'a HookedInstance) -> AwsFuture<'a, ()>;
}

/// A route that should point to an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteReplacement {
    /// Table id: `rtb-...`.
    pub table: String,
    /// Destination prefix: `0.0.0.0/0` or `::/0` for instance.
    pub destination: String,
    /// Interface id: `eni-...`.
    pub interface: String,
}

/// An instance held by a lifecycle hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HookedInstance {
    /// Name of the Auto Scaling group.
    pub group: String,
    /// Name of the hook.
    pub hook: String,
    /// Instance id: `i-...`.
    pub instance: String,
}
