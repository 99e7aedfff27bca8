//! Auto Scaling groups and their lifecycle hooks.

use std::time::Duration;

use crate::answer::{Members, ServiceError, element, fail, list, need};
use crate::state::AwsState;

/// Performs an operation; returns the content of its result element.
pub fn answer(
    cloud: &mut AwsState,
    operation: &str,
    request: &Members,
) -> Result<String, ServiceError> {
    match operation {
        "DescribeAutoScalingInstances" => Ok(instances(cloud, request)),
        "DescribeLifecycleHooks" => {
            let name = need(request, "AutoScalingGroupName")?;
            let found = cloud.scaling.iter().find(|s| s.name == name);
            let hooks = found.map(|s| s.hooks.as_slice()).unwrap_or_default();
            let each = hooks.iter().map(|(name, transition, heartbeat, global)| {
                format!(
                    "<member>{}{}{}{}</member>",
                    element("LifecycleHookName", name),
                    element("LifecycleTransition", transition),
                    element("HeartbeatTimeout", heartbeat),
                    element("GlobalTimeout", global)
                )
            });
            Ok(format!("<LifecycleHooks>{}</LifecycleHooks>", each.collect::<String>()))
        }
        "CompleteLifecycleAction" | "RecordLifecycleActionHeartbeat" => {
            let now = cloud.now;
            let (group, hook) =
                (need(request, "AutoScalingGroupName")?, need(request, "LifecycleHookName")?);
            let id = need(request, "InstanceId")?;
            let scaling = cloud.scaling.iter_mut().find(|s| s.name == group);
            let waits = scaling.and_then(|s| {
                let heartbeat = s.hooks.iter().find(|h| h.0 == hook)?.2;
                s.deadlines.contains_key(id).then_some((s, heartbeat))
            });
            let Some((scaling, heartbeat)) = waits else {
                let why = format!("No active Lifecycle Action found with instance ID {id}");
                return fail("ValidationError", why);
            };
            if operation == "CompleteLifecycleAction" {
                need(request, "LifecycleActionResult")?;
                scaling.deadlines.remove(id);
                scaling.instances.insert(id.into(), "Terminating:Proceed".into());
            } else {
                scaling.deadlines.insert(id.into(), now + Duration::from_secs(heartbeat));
            }
            Ok(String::new())
        }
        _ => fail("InvalidAction", format!("unknown operation {operation}")),
    }
}

fn instances(cloud: &AwsState, request: &Members) -> String {
    let ids = list(request, "InstanceIds.member", "");
    let mut text = String::from("<AutoScalingInstances>");
    for scaling in &cloud.scaling {
        for (id, state) in scaling.instances.iter().filter(|(id, _)| ids.contains(&id.as_str())) {
            text += &format!(
                "<member>{}{}{}</member>",
                element("InstanceId", id),
                element("AutoScalingGroupName", &scaling.name),
                element("LifecycleState", state)
            );
        }
    }
    text + "</AutoScalingInstances>"
}
