//! Tagging and Systems Manager.

use serde_json::{Value, json};

use crate::answer::{Refusal, page, refuse};
use crate::world::{Command, Group, World};

/// Performs an operation; returns its response.
pub fn answer(world: &mut World, operation: &str, asked: &Value) -> Result<String, Refusal> {
    match operation {
        "GetResources" => resources(world, asked),
        "SendCommand" => send(world, asked),
        "GetCommandInvocation" => invocation(world, asked),
        _ => refuse("UnknownOperationException", format!("no operation {operation}")),
    }
}

fn text<'a>(asked: &'a Value, name: &str) -> &'a str {
    asked.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn array<'a>(asked: &'a Value, name: &str) -> &'a [Value] {
    asked.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn resources(world: &World, asked: &Value) -> Result<String, Refusal> {
    let kinds = array(asked, "ResourceTypeFilters");
    let ours = kinds.is_empty() || kinds.iter().any(|k| k == "elasticloadbalancing:targetgroup");
    let met = |group: &&Group| {
        array(asked, "TagFilters").iter().all(|filter| {
            let values = array(filter, "Values");
            let value = group.tags.get(text(filter, "Key"));
            value.is_some_and(|v| values.is_empty() || values.iter().any(|w| w == v.as_str()))
        })
    };
    let found: Vec<Group> = world.groups.iter().filter(|_| ours).filter(met).cloned().collect();
    let (shown, next) = page(found, Some(text(asked, "PaginationToken")), world.page)?;
    let each = shown.iter().map(|group| {
        let tags = group.tags.iter().map(|(k, v)| json!({ "Key": k, "Value": v }));
        json!({ "ResourceARN": group.arn, "Tags": tags.collect::<Vec<_>>() })
    });
    let token = next.unwrap_or_default();
    let list: Vec<Value> = each.collect();
    Ok(json!({ "ResourceTagMappingList": list, "PaginationToken": token }).to_string())
}

fn send(world: &mut World, asked: &Value) -> Result<String, Refusal> {
    let Some(instance) = array(asked, "InstanceIds").first().and_then(Value::as_str) else {
        return refuse("InvalidInstanceId", "");
    };
    if world.instances.iter().all(|i| i.id != instance) {
        return refuse("InvalidInstanceId", "Instances not in a valid state for account");
    }
    if text(asked, "DocumentName") != "AWS-RunShellScript" {
        return refuse("InvalidDocument", "");
    }
    let script = asked.pointer("/Parameters/commands/0").and_then(Value::as_str);
    let id = format!("{:08x}-0000-4000-8000-000000000000", world.commands.len() + 1);
    world.commands.push(Command {
        id: id.clone(),
        instance: instance.into(),
        script: script.unwrap_or_default().into(),
        status: "InProgress".into(),
        code: -1,
        output: String::new(),
        errors: String::new(),
        visible: world.now + std::time::Duration::from_secs(1),
    });
    Ok(json!({ "Command": { "CommandId": id, "Status": "Pending" } }).to_string())
}

fn invocation(world: &World, asked: &Value) -> Result<String, Refusal> {
    let (id, instance) = (text(asked, "CommandId"), text(asked, "InstanceId"));
    let found = world.commands.iter().find(|c| c.id == id && c.instance == instance);
    let Some(command) = found.filter(|c| c.visible <= world.now) else {
        return refuse("InvocationDoesNotExist", "");
    };
    Ok(json!({
        "CommandId": command.id,
        "InstanceId": command.instance,
        "Status": command.status,
        "StatusDetails": command.status,
        "ResponseCode": command.code,
        "StandardOutputContent": command.output,
        "StandardErrorContent": command.errors,
    })
    .to_string())
}
