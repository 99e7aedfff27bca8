//! Auto Scaling groups and their lifecycle hooks.

use std::time::Duration;

use crate::answer::{Members, Refusal, element, list, need, refuse};
use crate::world::World;

/// Performs an operation; returns the content of its result element.
pub fn answer(world: &mut World, operation: &str, asked: &Members) -> Result<String, Refusal> {
    match operation {
        "DescribeAutoScalingInstances" => Ok(instances(world, asked)),
        "DescribeLifecycleHooks" => {
            let name = need(asked, "AutoScalingGroupName")?;
            let found = world.scaling.iter().find(|s| s.name == name);
            let hooks = found.map(|s| s.hooks.as_slice()).unwrap_or_default();
            let each = hooks.iter().map(|(name, transition, heartbeat, whole)| {
                format!(
                    "<member>{}{}{}{}</member>",
                    element("LifecycleHookName", name),
                    element("LifecycleTransition", transition),
                    element("HeartbeatTimeout", heartbeat),
                    element("GlobalTimeout", whole)
                )
            });
            Ok(format!("<LifecycleHooks>{}</LifecycleHooks>", each.collect::<String>()))
        }
        "CompleteLifecycleAction" | "RecordLifecycleActionHeartbeat" => {
            let now = world.now;
            let (group, hook) =
                (need(asked, "AutoScalingGroupName")?, need(asked, "LifecycleHookName")?);
            let id = need(asked, "InstanceId")?;
            let scaling = world.scaling.iter_mut().find(|s| s.name == group);
            let waits = scaling.and_then(|s| {
                let heartbeat = s.hooks.iter().find(|h| h.0 == hook)?.2;
                s.deadlines.contains_key(id).then_some((s, heartbeat))
            });
            let Some((scaling, heartbeat)) = waits else {
                let why = format!("No active Lifecycle Action found with instance ID {id}");
                return refuse("ValidationError", why);
            };
            if operation == "CompleteLifecycleAction" {
                need(asked, "LifecycleActionResult")?;
                scaling.deadlines.remove(id);
                scaling.instances.insert(id.into(), "Terminating:Proceed".into());
            } else {
                scaling.deadlines.insert(id.into(), now + Duration::from_secs(heartbeat));
            }
            Ok(String::new())
        }
        _ => refuse("InvalidAction", format!("no operation {operation}")),
    }
}

fn instances(world: &World, asked: &Members) -> String {
    let ids = list(asked, "InstanceIds.member", "");
    let mut text = String::from("<AutoScalingInstances>");
    for scaling in &world.scaling {
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
