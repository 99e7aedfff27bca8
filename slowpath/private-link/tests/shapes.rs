//! Compares requests with Microsoft's published examples (`make fixtures`): API versions, and the
//! members of bodies with their types.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test states what it expects")]

#[expect(dead_code, reason = "this test uses a part of the module")]
mod fixture;

use std::collections::BTreeMap;
use std::time::Duration;

use clouds::retry::Pause;
use private_link::lease::Lease;
use private_link::object::Aspect;
use private_link::{Decision, Role, decide};
use serde_json::{Value, json};

use cloud_emulators::azure::Call;
use cloud_emulators::fixtures::folder;
use fixture::{fixture, provider, sample_state};

fn example(name: &str) -> Value {
    let path = folder("azure-rest-examples").join(format!("network/{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// Collects all members of a body by path, with their JSON types.
fn members(at: &str, value: &Value, found: &mut BTreeMap<String, &'static str>) {
    let json_type = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    found.insert(at.to_owned(), json_type);
    match value {
        Value::Array(list) => list.iter().for_each(|one| members(&format!("{at}[]"), one, found)),
        Value::Object(map) => {
            map.iter().for_each(|(key, one)| members(&format!("{at}.{key}"), one, found));
        }
        _ => {}
    }
}

fn members_of(value: &Value) -> BTreeMap<String, &'static str> {
    let mut found = BTreeMap::new();
    members("", value, &mut found);
    found
}

/// Members that are in the specification but not in the example.
const UNSHOWN: [(&str, &str); 7] = [
    (".tags", "object"),
    (".tags.weir-fleet", "string"),
    (".tags.weir-object", "string"),
    (".properties.enableProxyProtocol", "boolean"),
    (".properties.ipConfigurations[].properties.primary", "boolean"),
    (".properties.privateLinkServiceNetworkPolicies", "string"),
    (".name", "string"),
];

/// Runs the rounds of one object from its creation to its deletion, and a lease; returns all calls.
async fn record_lifecycle_calls() -> Vec<Call> {
    let mut fixture = fixture(sample_state()).await;
    fixture.object.spec.auto_approved_subscriptions = Some(Vec::new());
    fixture.run_for(600).await;
    let connection = fixture.object.status.service.connections[0].name.clone();
    let id = fixture.object.status.service.id.clone().unwrap();
    let pause = clouds::retry::Clock::default();
    let decided =
        decide(&fixture.at.client, &pause, &id, &connection, Decision::Approved, "ok").await;
    assert!(decided.unwrap().is_some());
    fixture.run_for(600).await;
    assert!(fixture.is(Aspect::Available), "{}", fixture.dump());
    let zone = provider("privateDnsZones", "weir.lease");
    fixture.at.azure.with(|cloud| cloud.write(zone.as_str(), json!({ "location": "global" })));
    let mut lease = Lease::new("weir-1", &zone, Duration::from_secs(90));
    // The record is created, found to be old, and taken over.
    for seconds in [0, 91] {
        fixture.at.azure.advance(Duration::from_secs(seconds));
        lease.step(&fixture.at.client, &fixture.clock()).await;
    }
    assert_eq!(lease.role(fixture.clock().now()), Role::Owner);
    fixture.delete();
    fixture.run_for(1_800).await;
    assert!(fixture.gone);
    fixture.at.azure.take_calls()
}

/// Operations, their examples, and the parameter of the example that is the body; empty for none.
const OPERATIONS: [(&str, &str, &str); 8] = [
    ("PUT privateLinkServices", "PrivateLinkServiceCreate", "parameters"),
    (
        "PUT privateLinkServices/privateEndpointConnections",
        "PrivateLinkServiceUpdatePrivateEndpointConnection",
        "parameters",
    ),
    ("PUT virtualNetworks/subnets", "SubnetCreate", "subnetParameters"),
    ("DELETE privateLinkServices", "PrivateLinkServiceDelete", ""),
    ("GET privateLinkServices", "PrivateLinkServiceGet", ""),
    (
        "LIST privateLinkServices/privateEndpointConnections",
        "PrivateLinkServiceListPrivateEndpointConnection",
        "",
    ),
    ("GET virtualNetworks/subnets", "SubnetGet", ""),
    ("LIST loadBalancers", "LoadBalancerList", ""),
];

#[tokio::test]
async fn one_lifecycle_uses_each_operation() {
    let calls = record_lifecycle_calls().await;
    for (operation, ..) in OPERATIONS {
        assert!(calls.iter().any(|call| call.operation == operation), "{operation} is not called");
    }
}

#[tokio::test]
#[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
async fn requests_match_microsofts_examples() {
    let calls = record_lifecycle_calls().await;
    for (operation, name, body) in OPERATIONS {
        let call = calls.iter().find(|call| call.operation == operation);
        let call = call.unwrap_or_else(|| panic!("{operation} is not called"));
        let example = example(name);
        let parameters = &example["parameters"];
        let version = call.query["api-version"].as_str();
        let documented = parameters["api-version"].as_str().unwrap();
        assert!(version >= documented, "{operation}: {version}, the example has {documented}");
        if body.is_empty() {
            assert!(call.body.is_null(), "{operation}");
            continue;
        }
        let mut known = members_of(&parameters[body]);
        for status in ["200", "201"] {
            let answered = &example["responses"][status]["body"];
            if answered.is_object() {
                known.extend(members_of(answered));
            }
        }
        for (member, json_type) in members_of(&call.body) {
            let shown = known.get(&member) == Some(&json_type);
            assert!(
                shown || UNSHOWN.contains(&(member.as_str(), json_type)),
                "{operation}: {member} is a {json_type}, the example has {:?}",
                known.get(&member)
            );
        }
    }
}
