//! Checks Weir's requests against the service models that Amazon publishes, and parses Amazon's
//! example responses (`make fixtures`). In a model, a *shape* describes a data type.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first failure")]

use std::path::Path;
use std::time::Duration;

use aws::call::{Aws, RouteReplacement};
use aws::types::TargetState;
use cloud_emulators::Call;
use cloud_emulators::faults::{Fault, Rule};
use cloud_emulators::fixtures::folder;
use serde_json::{Map, Value};

mod fixture;
use fixture::fixture;

fn read(folder: &Path, name: &str) -> Value {
    let path = folder.join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    serde_json::from_str(&text).unwrap()
}

/// Checks the members of a form at `path` against a shape. Members are pairs such as
/// `A.member.1.B=c`, lists are numbered. Adds what the shape does not allow, and required members
/// that are missing, to `problems`.
fn check_form(
    model: &Value,
    shape: &str,
    path: &str,
    pairs: &[(String, String)],
    problems: &mut Vec<String>,
) {
    let found = &model["shapes"][shape];
    let kind = found["type"].as_str().unwrap_or("absent");
    let leaf = pairs.iter().find(|(key, _)| key.is_empty()).map(|(_, value)| value.as_str());
    match kind {
        "structure" => {
            let members = found["members"].as_object().unwrap();
            let ec2 = model["metadata"]["protocol"] == "ec2";
            let mut present = Vec::new();
            for (name, member) in members {
                let written = written(name, member, ec2);
                let inside = below(pairs, &written);
                if !inside.is_empty() {
                    present.push(written.clone());
                    let next = member["shape"].as_str().unwrap();
                    check_form(model, next, &format!("{path}.{name}"), &inside, problems);
                } else if required(found, name) {
                    problems.push(format!("{path}: {name} is required"));
                }
            }
            for (key, _) in pairs {
                let first = key.split('.').next().unwrap_or_default();
                if !present.iter().any(|s| s == first) {
                    problems.push(format!("{path}: no member {key}"));
                }
            }
        }
        "list" => {
            let next = found["member"]["shape"].as_str().unwrap();
            let ec2 = model["metadata"]["protocol"] == "ec2";
            for n in 1.. {
                let key = if ec2 { n.to_string() } else { format!("member.{n}") };
                let inside = below(pairs, &key);
                if inside.is_empty() {
                    if n == 1 {
                        problems.push(format!("{path}: a list of nothing: {pairs:?}"));
                    }
                    break;
                }
                check_form(model, next, &format!("{path}[{n}]"), &inside, problems);
            }
        }
        "integer" | "long" if leaf.is_none_or(|l| l.parse::<i64>().is_err()) => {
            problems.push(format!("{path}: {leaf:?} is not a number"));
        }
        "boolean" if !matches!(leaf, Some("true" | "false")) => {
            problems.push(format!("{path}: {leaf:?} is not a boolean"));
        }
        "string" if leaf.is_none() => problems.push(format!("{path}: no text: {pairs:?}")),
        "absent" => problems.push(format!("{path}: Amazon has no shape {shape}")),
        _ => {}
    }
}

fn required(shape: &Value, name: &str) -> bool {
    shape["required"].as_array().is_some_and(|r| r.iter().any(|r| r == name))
}

/// Returns the name of a shape's member in a request; the EC2 protocol capitalizes it.
fn written(name: &str, member: &Value, ec2: bool) -> String {
    let own = member["queryName"].as_str().or(member["locationName"].as_str()).unwrap_or(name);
    match ec2 {
        true => own[..1].to_uppercase() + &own[1..],
        false => name.to_owned(),
    }
}

/// Returns the pairs below `name`, without that prefix.
fn below(pairs: &[(String, String)], name: &str) -> Vec<(String, String)> {
    let inside = pairs.iter().filter_map(|(key, value)| {
        let rest = key.strip_prefix(name)?;
        let rest = if rest.is_empty() { rest } else { rest.strip_prefix('.')? };
        Some((rest.to_owned(), value.clone()))
    });
    inside.collect()
}

/// Checks a JSON value against a shape, like `check_form`.
fn check_json(model: &Value, shape: &str, path: &str, value: &Value, problems: &mut Vec<String>) {
    let found = &model["shapes"][shape];
    let next = |member: &Value| member["shape"].as_str().unwrap_or_default().to_owned();
    let fits = match found["type"].as_str().unwrap_or("absent") {
        "structure" => value.as_object().is_some_and(|members| {
            for (name, value) in members {
                let member = &found["members"][name];
                match member.is_null() {
                    true => problems.push(format!("{path}: no member {name}")),
                    false => {
                        check_json(
                            model,
                            &next(member),
                            &format!("{path}.{name}"),
                            value,
                            problems,
                        );
                    }
                }
            }
            let missing = found["members"].as_object().unwrap().keys();
            let missing = missing.filter(|n| required(found, n) && !members.contains_key(*n));
            problems.extend(missing.map(|name| format!("{path}: {name} is required")));
            true
        }),
        "list" => value.as_array().is_some_and(|items| {
            let member = next(&found["member"]);
            items.iter().for_each(|item| check_json(model, &member, path, item, problems));
            true
        }),
        "map" => value.as_object().is_some_and(|items: &Map<String, Value>| {
            let member = next(&found["value"]);
            items.values().for_each(|item| check_json(model, &member, path, item, problems));
            true
        }),
        "integer" | "long" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        _ => false,
    };
    if !fits {
        problems.push(format!("{path}: {value} is no {}", found["type"]));
    }
}

/// Converts a response of Amazon's examples (JSON) to XML according to the shapes.
fn to_xml(model: &Value, shape: &str, value: &Value) -> String {
    let found = &model["shapes"][shape];
    let ec2 = model["metadata"]["protocol"] == "ec2";
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| {
                let member = &found["members"][name];
                let own = member["locationName"].as_str().filter(|_| ec2).unwrap_or(name);
                let inside = to_xml(model, member["shape"].as_str().unwrap_or_default(), value);
                format!("<{own}>{inside}</{own}>")
            })
            .collect(),
        Value::Array(items) => {
            let own = if ec2 { "item" } else { "member" };
            let next = found["member"]["shape"].as_str().unwrap_or_default();
            let each = items.iter().map(|i| format!("<{own}>{}</{own}>", to_xml(model, next, i)));
            each.collect()
        }
        Value::String(text) => cloud_emulators::answer::escaped(text),
        other => other.to_string(),
    }
}

/// Sends the requests that the models cover, each at least once, and returns the calls that the
/// emulator received.
async fn each_request() -> Vec<Call> {
    let env = fixture("ip").await;
    let account = &env.account;
    let arn = account.groups_by_tag("weir:cluster", "north").await.unwrap().remove(0);
    account.groups(std::slice::from_ref(&arn)).await.unwrap();
    assert_eq!(env.metadata.identity().await.unwrap().region, account.region());
    account.register(&arn, "10.0.1.11").await.unwrap();
    let group = account.groups(&[]).await.unwrap().remove(0);
    account.attributes(&group).await.unwrap();
    account.targets(&arn, Some("10.0.1.11")).await.unwrap();
    account.targets(&arn, None).await.unwrap();
    account.deregister(&arn, "10.0.1.11").await.unwrap();
    let own = "i-00000000000000001";
    let nic = account.network_interfaces(own).await.unwrap().remove(0);
    let table = account.route_tables(&nic.vpc_id).await.unwrap().remove(0).id;
    let mut to =
        RouteReplacement { table, destination: "0.0.0.0/0".into(), interface: nic.id.clone() };
    account.replace_route(&to, true).await.unwrap();
    to.destination = "::/0".into();
    env.aws.with(|cloud| cloud.tables[0].routes.insert("::/0".into(), "igw-1".into()));
    account.replace_route(&to, false).await.unwrap();
    account.set_source_dest_check(&nic.id, false, true).await.unwrap();
    let id = account.send_command(own, "true", Duration::from_secs(9)).await.unwrap();
    let _ = account.invocation(&id, own).await;
    let calls = env.aws.take_calls();
    assert!(calls.len() >= 16, "{calls:?}");
    calls
}

#[tokio::test]
async fn each_request_is_accepted_by_the_emulator() {
    let operations: Vec<String> =
        each_request().await.into_iter().map(|call| call.operation).collect();
    for operation in ["RegisterTargets", "DeregisterTargets", "ReplaceRoute", "SendCommand"] {
        assert!(operations.iter().any(|sent| sent == operation), "{operation}: {operations:?}");
    }
}

#[tokio::test]
#[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
async fn requests_have_the_shape_of_amazons_models() {
    let folder = folder("aws-examples");
    let calls = each_request().await;
    let models = [
        ("elasticloadbalancing", "elbv2"),
        ("tagging", "resourcegroupstaggingapi"),
        ("ec2", "ec2"),
        ("ssm", "ssm"),
    ];
    let models = models.map(|(s, file)| (s, read(&folder, &format!("{file}-model-slice.json"))));
    let (mut problems, mut checked) = (Vec::new(), Vec::new());
    for call in &calls {
        let Some((_, model)) = models.iter().find(|(s, _)| *s == call.service) else { continue };
        let operation = &model["operations"][&call.operation];
        let Some(shape) = operation["input"]["shape"].as_str() else {
            println!("not in the slice: {}", call.operation);
            continue;
        };
        checked.push(call.operation.as_str());
        if call.json.is_null() {
            let own = |(key, _): &&(String, String)| key != "Action" && key != "Version";
            let pairs: Vec<_> = call.members.iter().filter(own).cloned().collect();
            check_form(model, shape, &call.operation, &pairs, &mut problems);
        } else {
            check_json(model, shape, &call.operation, &call.json, &mut problems);
        }
        let version = &model["metadata"]["apiVersion"];
        let sent = call.members.iter().find(|(key, _)| key == "Version");
        assert!(sent.is_none_or(|(_, sent)| sent == version), "{sent:?} is not {version}");
    }
    assert!(problems.is_empty(), "{problems:#?}");
    println!("checked: {checked:?}");
    assert!(checked.len() >= 13, "{checked:?}");
    let wrong = [("RouteTableId", "r"), ("Unheard", "x")].map(|(k, v)| (k.into(), v.into()));
    check_form(&models[2].1, "ReplaceRouteRequest", "wrong", &wrong, &mut problems);
    assert_eq!(problems, ["wrong: no member Unheard"]);
}

#[tokio::test]
#[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
async fn amazons_examples_are_parsed() {
    let folder = folder("aws-examples");
    let env = fixture("ip").await;
    let elb = read(&folder, "elbv2-model-slice.json");
    let examples = read(&folder, "elbv2-examples-1.json");
    let mut checked = 0;
    for operation in ["DescribeTargetHealth", "DescribeTargetGroups"] {
        let output = &elb["operations"][operation]["output"];
        for example in examples["examples"][operation].as_array().unwrap() {
            let inside = to_xml(&elb, output["shape"].as_str().unwrap(), &example["output"]);
            let text = format!(
                "<{operation}Response><{operation}Result>{inside}</{operation}Result>\
                 </{operation}Response>"
            );
            env.aws.clear_faults();
            env.aws.fault(Rule::always(operation, Fault::Body(text)));
            checked += 1;
            if operation == "DescribeTargetGroups" {
                let groups = env.account.groups(&[]).await.unwrap();
                let name = &example["output"]["TargetGroups"][0]["TargetGroupName"];
                assert_eq!(groups[0].name, *name);
                continue;
            }
            let targets = env.account.targets("arn", None).await.unwrap();
            let expected = example["output"]["TargetHealthDescriptions"].as_array().unwrap();
            assert_eq!(targets.len(), expected.len());
            for (target, expected) in targets.iter().zip(expected) {
                assert_eq!(target.id, expected["Target"]["Id"]);
                let healthy = expected["TargetHealth"]["State"] == "healthy";
                assert_eq!(target.state == TargetState::Healthy, healthy);
                assert_eq!(target.reason.as_deref(), expected["TargetHealth"]["Reason"].as_str());
            }
        }
    }
    let ec2 = read(&folder, "ec2-model-slice.json");
    let examples = read(&folder, "ec2-examples-subset.json");
    for operation in ["DescribeRouteTables", "DescribeNetworkInterfaces"] {
        let output = &ec2["operations"][operation]["output"];
        for example in examples["examples"][operation].as_array().unwrap() {
            let inside = to_xml(&ec2, output["shape"].as_str().unwrap(), &example["output"]);
            let text = format!("<{operation}Response>{inside}</{operation}Response>");
            env.aws.clear_faults();
            env.aws.fault(Rule::always(operation, Fault::Body(text)));
            checked += 1;
            if operation == "DescribeRouteTables" {
                let tables = env.account.route_tables("vpc").await.unwrap();
                let expected = &example["output"]["RouteTables"][0];
                assert_eq!(tables[0].id, expected["RouteTableId"]);
                assert_eq!(tables[0].main, expected["Associations"][0]["Main"]);
                let gateway = expected["Routes"][0]["GatewayId"].as_str();
                assert_eq!(tables[0].routes[0].target.as_deref(), gateway);
            } else {
                let nics = env.account.network_interfaces("i").await.unwrap();
                let expected = &example["output"]["NetworkInterfaces"][0];
                assert_eq!(nics[0].id, expected["NetworkInterfaceId"]);
                assert_eq!(nics[0].source_dest_check, expected["SourceDestCheck"]);
                assert_eq!(nics[0].security_groups[0], expected["Groups"][0]["GroupId"]);
            }
        }
    }
    assert!(checked >= 5, "{checked}");
}
