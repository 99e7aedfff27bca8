//! Implementation of the AWS calls on [`Account`], with retries.

use std::time::Duration;

use super::account::Account;
use super::call::{Aws, AwsFuture, HookedInstance, RouteReplacement};
use super::types::{
    Attributes, Group, Hook, Instance, Invocation, NetworkInterface, RouteTable, ScalingInstance,
    SecurityGroup, Target,
};
use super::{ec2, elb, scaling, ssm};

impl Aws for Account {
    fn groups_by_tag<'a>(&'a self, key: &'a str, value: &'a str) -> AwsFuture<'a, Vec<String>> {
        self.with_retries(move || elb::groups_by_tag(self, key, value))
    }

    fn groups<'a>(&'a self, arns: &'a [String]) -> AwsFuture<'a, Vec<Group>> {
        self.with_retries(move || elb::groups(self, arns))
    }

    fn attributes<'a>(&'a self, group: &'a Group) -> AwsFuture<'a, Attributes> {
        self.with_retries(move || elb::attributes(self, group))
    }

    fn targets<'a>(
        &'a self,
        group: &'a str,
        target: Option<&'a str>,
    ) -> AwsFuture<'a, Vec<Target>> {
        self.with_retries(move || elb::targets(self, group, target))
    }

    fn register<'a>(&'a self, group: &'a str, target: &'a str) -> AwsFuture<'a, ()> {
        self.with_retries(move || elb::register(self, group, target))
    }

    fn deregister<'a>(&'a self, group: &'a str, target: &'a str) -> AwsFuture<'a, ()> {
        self.with_retries(move || elb::deregister(self, group, target))
    }

    fn instances<'a>(&'a self, ids: &'a [String]) -> AwsFuture<'a, Vec<Instance>> {
        self.with_retries(move || ec2::instances(self, ids))
    }

    fn instances_by_tag<'a>(
        &'a self,
        vpc: &'a str,
        key: &'a str,
        value: Option<&'a str>,
    ) -> AwsFuture<'a, Vec<Instance>> {
        self.with_retries(move || ec2::instances_by_tag(self, vpc, key, value))
    }

    fn network_interfaces<'a>(&'a self, instance: &'a str) -> AwsFuture<'a, Vec<NetworkInterface>> {
        self.with_retries(move || ec2::network_interfaces(self, instance))
    }

    fn security_groups<'a>(&'a self, ids: &'a [String]) -> AwsFuture<'a, Vec<SecurityGroup>> {
        self.with_retries(move || ec2::security_groups(self, ids))
    }

    fn route_tables<'a>(&'a self, vpc: &'a str) -> AwsFuture<'a, Vec<RouteTable>> {
        self.with_retries(move || ec2::route_tables(self, vpc))
    }

    fn replace_route<'a>(
        &'a self,
        route: &'a RouteReplacement,
        dry_run: bool,
    ) -> AwsFuture<'a, ()> {
        self.with_retries(move || ec2::replace_route(self, route, dry_run))
    }

    fn set_source_dest_check<'a>(
        &'a self,
        interface: &'a str,
        enabled: bool,
        dry_run: bool,
    ) -> AwsFuture<'a, ()> {
        self.with_retries(move || ec2::set_source_dest_check(self, interface, enabled, dry_run))
    }

    fn send_command<'a>(
        &'a self,
        instance: &'a str,
        script: &'a str,
        timeout: Duration,
    ) -> AwsFuture<'a, String> {
        self.with_retries(move || ssm::send_command(self, instance, script, timeout))
    }

    fn invocation<'a>(&'a self, command: &'a str, instance: &'a str) -> AwsFuture<'a, Invocation> {
        self.with_retries(move || ssm::invocation(self, command, instance))
    }

    fn scaling_instance<'a>(&'a self, instance: &'a str) -> AwsFuture<'a, Option<ScalingInstance>> {
        self.with_retries(move || scaling::scaling_instance(self, instance))
    }

    fn lifecycle_hooks<'a>(&'a self, group: &'a str) -> AwsFuture<'a, Vec<Hook>> {
        self.with_retries(move || scaling::lifecycle_hooks(self, group))
    }

    fn complete_lifecycle<'a>(&'a self, hooked: &'a HookedInstance) -> AwsFuture<'a, ()> {
        self.with_retries(move || scaling::complete_lifecycle(self, hooked))
    }

    fn lifecycle_heartbeat<'a>(&'a self, hooked: &'a HookedInstance) -> AwsFuture<'a, ()> {
        self.with_retries(move || scaling::lifecycle_heartbeat(self, hooked))
    }
}
