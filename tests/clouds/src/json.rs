//! Services with JSON requests: Resource Groups Tagging and Systems Manager (SSM).

use serde_json::{Value, json};

use crate::answer::{ServiceError, fail, page};
use crate::state::{AwsState, Command, Group};

/// Performs an operation; returns its response.
pub fn answer(
    cloud: &mut AwsState,
    operation: &str,
    request: &Value,
) -> Result<String, ServiceError> {
    match operation {
        "GetResources" => resources(cloud, request),
        "SendCommand" => send(cloud, request),
        "GetCommandInvocation" => invocation(cloud, request),
        _ => fail("UnknownOperationException", format!("unknown operation {operation}")),
    }
}

fn text<'a>(request: &'a Value, name: &str) -> &'a str {
    request.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn array<'a>(request: &'a Value, name: &str) -> &'a [Value] {
    request.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn resources(cloud: &AwsState, request: &Value) -> Result<String, ServiceError> {
    let kinds = array(request, "ResourceTypeFilters");
    let matches = kinds.is_empty() || kinds.iter().any(|k| k == "elasticloadbalancing:targetgroup");
    let selected = |group: &&Group| {
        array(request, "TagFilters").iter().all(|filter| {
            let values = array(filter, "Values");
            let value = group.tags.get(text(filter, "Key"));
            value.is_some_and(|v| values.is_empty() || values.iter().any(|w| w == v.as_str()))
        })
    };
    let found: Vec<Group> =
        cloud.groups.iter().filter(|_| matches).filter(selected).cloned().collect();
    let (shown, next) = page(found, Some(text(request, "PaginationToken")), cloud.page)?;
    let each = shown.iter().map(|group| {
        let tags = group.tags.iter().map(|(k, v)| json!({ "Key": k, "Value": v }));
        json!({ "ResourceARN": group.arn, "Tags": tags.collect::<Vec<_>>() })
    });
    let token = next.unwrap_or_default();
    let list: Vec<Value> = each.collect();
    Ok(json!({ "ResourceTagMappingList": list, "PaginationToken": token }).to_string())
}

fn send(cloud: &mut AwsState, request: &Value) -> Result<String, ServiceError> {
    let Some(instance) = array(request, "InstanceIds").first().and_then(Value::as_str) else {
        return fail("InvalidInstanceId", "");
    };
    if cloud.instances.iter().all(|i| i.id != instance) {
        return fail("InvalidInstanceId", "Instances not in a valid state for account");
    }
    if text(request, "DocumentName") != "AWS-RunShellScript" {
        return fail("InvalidDocument", "");
    }
    let script = request.pointer("/Parameters/commands/0").and_then(Value::as_str);
    let id = format!("{:08x}-0000-4000-8000-000000000000", cloud.commands.len() + 1);
    cloud.commands.push(Command {
        id: id.clone(),
        instance: instance.into(),
        script: script.unwrap_or_default().into(),
        status: "InProgress".into(),
        code: -1,
        output: String::new(),
        errors: String::new(),
        visible: cloud.now + std::time::Duration::from_secs(1),
    });
    Ok(json!({ "Command": { "CommandId": id, "Status": "Pending" } }).to_string())
}

fn invocation(cloud: &AwsState, request: &Value) -> Result<String, ServiceError> {
    let (id, instance) = (text(request, "CommandId"), text(request, "InstanceId"));
    let found = cloud.commands.iter().find(|c| c.id == id && c.instance == instance);
    let Some(command) = found.filter(|c| c.visible <= cloud.now) else {
        return fail("InvocationDoesNotExist", "");
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
