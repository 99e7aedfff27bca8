//! Auto Scaling: the group of an instance, and its lifecycle hooks.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::account::Account;
use super::call::HookedInstance;
use super::signed::{Members, xml};
use super::types::{Hook, ScalingInstance};
use clouds::failure::{AttemptError, Operation};

const API_VERSION: &str = "2011-01-01";
const INSTANCES: Operation = Operation::new("autoscaling", "DescribeAutoScalingInstances");
const HOOKS: Operation = Operation::new("autoscaling", "DescribeLifecycleHooks");
const COMPLETE: Operation = Operation::new("autoscaling", "CompleteLifecycleAction");
const HEARTBEAT: Operation = Operation::new("autoscaling", "RecordLifecycleActionHeartbeat");

/// A list: an element with `<member>` elements.
#[derive(Deserialize)]
struct List<T> {
    #[serde(rename = "member", default = "Vec::new")]
    members: Vec<T>,
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List { members: Vec::new() }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InstanceItem {
    instance_id: String,
    auto_scaling_group_name: String,
    lifecycle_state: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InstancesResult {
    #[serde(default)]
    auto_scaling_instances: List<InstanceItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Instances {
    describe_auto_scaling_instances_result: InstancesResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HookItem {
    lifecycle_hook_name: String,
    lifecycle_transition: String,
    heartbeat_timeout: Option<u64>,
    global_timeout: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HooksResult {
    #[serde(default)]
    lifecycle_hooks: List<HookItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Hooks {
    describe_lifecycle_hooks_result: HooksResult,
}

async fn send<T: DeserializeOwned>(
    account: &Account,
    operation: Operation,
    members: Members,
) -> Result<T, AttemptError> {
    xml(operation, &account.signed(operation, &members.into_body(API_VERSION)).await?)
}

pub(super) async fn scaling_instance(
    account: &Account,
    instance: &str,
) -> Result<Option<ScalingInstance>, AttemptError> {
    let members = Members::default().list("InstanceIds.member", [instance]);
    let answer: Instances = send(account, INSTANCES, members).await?;
    let found = answer.describe_auto_scaling_instances_result.auto_scaling_instances.members;
    Ok(found.into_iter().find(|i| i.instance_id == instance).map(|i| ScalingInstance {
        group: i.auto_scaling_group_name,
        lifecycle: i.lifecycle_state,
    }))
}

pub(super) async fn lifecycle_hooks(
    account: &Account,
    group: &str,
) -> Result<Vec<Hook>, AttemptError> {
    let members = Members::default().with("AutoScalingGroupName", group);
    let answer: Hooks = send(account, HOOKS, members).await?;
    let hook = |item: HookItem| {
        // AWS's defaults: one hour for the heartbeat timeout; a hundred times the heartbeat
        // timeout, but at most two days, for the global timeout.
        let heartbeat = item.heartbeat_timeout.unwrap_or(3_600);
        let default = heartbeat.saturating_mul(100).min(172_800);
        let global_timeout = item.global_timeout.unwrap_or(default);
        Hook {
            name: item.lifecycle_hook_name,
            terminating: item.lifecycle_transition == "autoscaling:EC2_INSTANCE_TERMINATING",
            heartbeat: Duration::from_secs(heartbeat),
            global_timeout: Duration::from_secs(global_timeout),
        }
    };
    let hooks = answer.describe_lifecycle_hooks_result.lifecycle_hooks.members;
    Ok(hooks.into_iter().map(hook).collect())
}

fn hooked_members(hooked: &HookedInstance) -> Members {
    Members::default()
        .with("AutoScalingGroupName", &hooked.group)
        .with("LifecycleHookName", &hooked.hook)
        .with("InstanceId", &hooked.instance)
}

/// Response to CompleteLifecycleAction and RecordLifecycleActionHeartbeat; its content is not
/// needed.
#[derive(Deserialize)]
struct EmptyResult {}

pub(super) async fn complete_lifecycle(
    account: &Account,
    hooked: &HookedInstance,
) -> Result<(), AttemptError> {
    let members = hooked_members(hooked).with("LifecycleActionResult", "CONTINUE");
    send::<EmptyResult>(account, COMPLETE, members).await.map(|_| ())
}

pub(super) async fn lifecycle_heartbeat(
    account: &Account,
    hooked: &HookedInstance,
) -> Result<(), AttemptError> {
    send::<EmptyResult>(account, HEARTBEAT, hooked_members(hooked)).await.map(|_| ())
}
