//! Tests of rounds with the real Azure client against the emulator: creation, errors, deletion.
#![expect(clippy::unwrap_used, reason = "a test states what it expects")]

#[expect(dead_code, reason = "this test uses a part of the module")]
mod fixture;

use cloud_emulators::azure::operation::{End, Outcome};
use cloud_emulators::faults::{Fault, Rule};
use private_link::object::{Aspect, Reason};
use private_link::{Decision, Next, decide};
use serde_json::json;

use fixture::{Fixture, GUEST, fixture, guest, provider, sample_state};

const MINUTES: u64 = 60;

/// Returns a fixture whose object is available.
async fn working() -> Fixture {
    let mut fixture = fixture(sample_state()).await;
    fixture.run_for(20 * MINUTES).await;
    assert!(fixture.is(Aspect::Available), "{}", fixture.dump());
    fixture.at.azure.take_calls();
    fixture
}

fn refuse(status: u16, code: &str) -> Fault {
    Fault::Refuse { status, code: code.to_owned() }
}

/// Returns how the next operation of this name ends.
fn ends(operation: &str, end: End) -> Outcome {
    Outcome { operation: operation.to_owned(), end, times: Some(1) }
}

#[tokio::test]
async fn everything_is_created_and_deleted() {
    let mut fixture = fixture(sample_state()).await;
    fixture.at.azure.with(|cloud| cloud.page = Some(1));
    fixture.run_for(20 * MINUTES).await;
    assert!(fixture.is(Aspect::Available), "{}", fixture.dump());
    let service = fixture.body(&provider("privateLinkServices", "pls-shop-web"));
    assert_eq!(service["properties"]["visibility"]["subscriptions"], json!([GUEST]));
    let alias = fixture.object.status.service.alias.clone().unwrap();
    assert!(alias.starts_with("pls-shop-web.") && alias.ends_with(".azure.privatelinkservice"));
    assert_eq!(service["properties"]["alias"], json!(alias));
    let address = fixture.object.status.endpoint.address.unwrap();
    let record = fixture.body(&guest("privateDnsZones", "web.hypershift.local").child("A", "api"));
    let list = json!([{ "ipv4Address": address }]);
    assert_eq!(record["properties"]["aRecords"], list);
    assert_eq!(fixture.object.status.service.connections[0].state, "Approved");
    let hub = fixture.body(&provider("virtualNetworks", "hub"));
    let nat = hub["properties"]["subnets"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["name"] == "weir-pls-nat");
    assert_eq!(nat.unwrap()["properties"]["addressPrefix"], "10.1.2.0/24");
    // Later rounds write nothing.
    fixture.at.azure.take_calls();
    fixture.run_for(11 * MINUTES).await;
    let calls = fixture.at.azure.take_calls();
    assert!(!calls.is_empty() && calls.iter().all(|call| call.method == "GET"), "{calls:?}");
    fixture.delete();
    fixture.run_for(30 * MINUTES).await;
    assert!(fixture.gone, "{}", fixture.dump());
    for id in [
        provider("privateLinkServices", "pls-shop-web"),
        guest("privateEndpoints", "shop-web-pe"),
        guest("privateDnsZones", "web.hypershift.local"),
        guest("privateDnsZones", "web.hypershift.local").child("A", "api"),
    ] {
        assert!(fixture.body(&id).is_null(), "{id} exists");
    }
}

#[tokio::test]
async fn each_error_has_its_delay_and_condition() {
    let get = "GET privateLinkServices";
    let dated = |after, dated| Rule {
        retry_after: Some(after),
        dated,
        ..Rule::first(1, get, refuse(429, "TooManyRequests"))
    };
    for (rule, min, max) in [
        (dated(77, false), 77, 77),
        // `Retry-After` as a date has whole seconds, and the client compares it with its own clock.
        (dated(200, true), 198, 201),
        (Rule::first(1, get, refuse(429, "TooManyRequests")), 300, 300),
        (Rule::first(1, get, refuse(403, "AuthorizationFailed")), 600, 600),
        (Rule::first(1, get, refuse(409, "AnotherOperationInProgress")), 30, 30),
        (Rule::first(1, get, refuse(500, "InternalServerError")), 120, 120),
        (Rule::first(1, get, Fault::Status(502)), 120, 120),
        (Rule::first(1, get, Fault::Hang), 120, 120),
        (Rule::first(1, get, Fault::Cut), 120, 120),
        (Rule::first(1, get, refuse(400, "InvalidRequestFormat")), 120, 120),
    ] {
        let mut fixture = fixture(sample_state()).await;
        fixture.object.spec.endpoint = None;
        fixture.object.spec.additional_allowed_subscriptions = vec![GUEST.to_owned()];
        fixture.at.azure.fault(rule.clone());
        assert_eq!((fixture.round().await, fixture.round().await), (Next::Now, Next::Now));
        fixture.round().await;
        let seconds = fixture.last_delay.unwrap().as_secs();
        assert!((min..=max).contains(&seconds), "{rule:?}: {seconds}");
        for aspect in [Aspect::Service, Aspect::Available] {
            assert_eq!(fixture.why(aspect), Some((false, Reason::AzureError)), "{rule:?}");
        }
        fixture.run_for(20 * MINUTES).await;
        assert!(fixture.is(Aspect::Available), "{rule:?}: {}", fixture.dump());
    }
}

#[tokio::test]
async fn failed_operations_are_reported_by_step_and_repeated() {
    let fail = || End::Fail { code: "InternalServerError".into(), message: "an accident".into() };
    for (operation, aspect, reason) in [
        ("PUT virtualNetworks/subnets", Aspect::Service, Reason::SubnetFailed),
        ("PUT privateLinkServices", Aspect::Service, Reason::CreationFailed),
        ("PUT privateEndpoints", Aspect::Endpoint, Reason::AzureError),
        ("PUT privateDnsZones", Aspect::Names, Reason::AzureError),
        ("PUT privateDnsZones/virtualNetworkLinks", Aspect::Names, Reason::AzureError),
    ] {
        for end in [fail(), End::Cancel] {
            let mut fixture = fixture(sample_state()).await;
            fixture.at.azure.with(|cloud| cloud.outcomes = vec![ends(operation, end.clone())]);
            let end_at = fixture.now() + 20 * MINUTES;
            fixture.until(end_at, |fixture| fixture.why(aspect) == Some((false, reason))).await;
            assert_eq!(fixture.why(aspect), Some((false, reason)), "{operation} {end:?}");
            fixture.run_for(30 * MINUTES).await;
            assert!(fixture.is(Aspect::Available), "{operation} {end:?}: {}", fixture.dump());
        }
    }
}

#[tokio::test]
async fn hanging_operation_is_reported_after_5_min() {
    let mut fixture = fixture(sample_state()).await;
    fixture
        .at
        .azure
        .with(|cloud| cloud.outcomes = vec![ends("PUT privateLinkServices", End::Hang)]);
    fixture.run_for(4 * MINUTES).await;
    assert_eq!(
        fixture.why(Aspect::Available),
        Some((false, Reason::InProgress)),
        "{}",
        fixture.dump()
    );
    assert!(fixture.object.status.service.running.is_some());
    fixture.run_for(4 * MINUTES).await;
    assert!(fixture.object.status.service.running.is_none());
    assert!(fixture.events.iter().any(|event| event.message.contains("without a result")));
    // From now on Azure reports the service as busy, and the write is not repeated.
    let puts = fixture
        .at
        .azure
        .take_calls()
        .iter()
        .filter(|c| c.operation == "PUT privateLinkServices")
        .count();
    assert_eq!((puts, fixture.is(Aspect::Available)), (1, false));
}

#[tokio::test]
async fn missing_permissions_are_reported_with_azures_details() {
    for (action, aspect, reason) in [
        ("Microsoft.Network/loadBalancers/read", Aspect::Balancer, Reason::BalancerLookupFailed),
        (
            "Microsoft.Network/virtualNetworks/subnets/join/action",
            Aspect::Service,
            Reason::CreationFailed,
        ),
        ("Microsoft.Network/privateEndpoints/write", Aspect::Endpoint, Reason::AzureError),
        ("Microsoft.Network/privateDnsZones/write", Aspect::Names, Reason::AzureError),
    ] {
        let mut fixture = fixture(sample_state()).await;
        fixture.at.azure.with(|cloud| cloud.forbidden = vec![action.to_owned()]);
        fixture.run_for(6 * MINUTES).await;
        assert_eq!(fixture.why(aspect), Some((false, reason)), "{action}: {}", fixture.dump());
        let message = &fixture.object.status.condition(aspect).unwrap().message;
        assert!(message.contains("Microsoft.Network/"), "{message}");
        fixture.at.azure.with(|cloud| cloud.forbidden.clear());
        fixture.run_for(30 * MINUTES).await;
        assert!(fixture.is(Aspect::Available), "{action}: {}", fixture.dump());
    }
}

#[tokio::test]
async fn drift_and_foreign_deletion_are_repaired() {
    let mut fixture = working().await;
    let id = provider("privateLinkServices", "pls-shop-web");
    fixture.at.azure.with(|cloud| {
        let mut body = cloud.find(id.as_str()).unwrap().body.clone();
        body["properties"]["visibility"]["subscriptions"] = json!(["*"]);
        cloud.write(id.as_str(), body);
    });
    fixture.run_for(6 * MINUTES).await;
    assert_eq!(fixture.body(&id)["properties"]["visibility"]["subscriptions"], json!([GUEST]));
    let put = fixture.at.azure.take_calls();
    let put = put.iter().find(|call| call.operation == "PUT privateLinkServices").unwrap();
    assert!(put.headers.contains_key("if-match"), "{put:?}");
    let alias = fixture.object.status.service.alias.clone();
    fixture.at.azure.with(|cloud| cloud.resources.retain(|resource| resource.id != id.as_str()));
    fixture.run_for(30 * MINUTES).await;
    assert!(fixture.is(Aspect::Available), "{}", fixture.dump());
    assert_ne!(fixture.object.status.service.alias, alias);
}

#[tokio::test]
async fn unknown_subscription_waits_for_a_decision() {
    let mut fixture = fixture(sample_state()).await;
    fixture.object.spec.auto_approved_subscriptions = Some(Vec::new());
    fixture.run_for(10 * MINUTES).await;
    assert_eq!(
        fixture.why(Aspect::Available),
        Some((false, Reason::NotApproved)),
        "{}",
        fixture.dump()
    );
    assert_eq!(fixture.why(Aspect::ConnectionsWaiting), Some((true, Reason::Pending)));
    let name = fixture.object.status.service.connections[0].name.clone();
    let id = fixture.object.status.service.id.clone().unwrap();
    let pause = clouds::retry::Clock::default();
    let decided = decide(&fixture.at.client, &pause, &id, &name, Decision::Approved, "known").await;
    assert_eq!(decided.unwrap().unwrap().state, "Approved");
    fixture.run_for(10 * MINUTES).await;
    assert!(fixture.is(Aspect::Available) && fixture.why(Aspect::ConnectionsWaiting).is_none());
}

#[tokio::test]
async fn deletion_is_retried_until_complete() {
    for rule in [
        Rule::first(2, "DELETE *", refuse(409, "AnotherOperationInProgress")),
        Rule::first(1, "DELETE privateLinkServices", refuse(429, "TooManyRequests")),
        Rule::first(1, "DELETE privateEndpoints", refuse(403, "AuthorizationFailed")),
        Rule::first(1, "DELETE privateDnsZones", Fault::Hang),
        Rule::first(3, "GET *", refuse(503, "ServiceUnavailable")),
    ] {
        let mut fixture = working().await;
        fixture.at.azure.fault(rule.clone());
        fixture.delete();
        fixture.round().await;
        assert!(fixture.object.has_finalizer);
        fixture.run_for(60 * MINUTES).await;
        assert!(fixture.gone, "{rule:?}: {}", fixture.dump());
        let left = fixture.at.azure.with(|cloud| {
            let own = |body: &serde_json::Value| body["tags"]["weir-fleet"] == "east";
            cloud.resources.iter().filter(|r| own(&r.body)).count()
        });
        assert_eq!(left, 0, "{rule:?}");
    }
}

#[tokio::test]
async fn zone_linked_elsewhere_is_tolerated_when_reported_late() {
    let cloud = {
        let mut cloud = sample_state();
        cloud.groups.push(format!("/subscriptions/{GUEST}/resourceGroups/other"));
        let other = azure::id::ResourceId::network(
            GUEST,
            "other",
            "privateDnsZones",
            "web.hypershift.local",
        );
        let link = other.child("virtualNetworkLinks", "theirs");
        let spoke = guest("virtualNetworks", "spoke");
        cloud.write(other.as_str(), json!({ "location": "global", "properties": {} }));
        let to = json!({ "virtualNetwork": { "id": spoke }, "registrationEnabled": false });
        cloud.write(link.as_str(), json!({ "location": "global", "properties": to }));
        cloud
    };
    let mut fixture = fixture(cloud).await;
    fixture.run_for(20 * MINUTES).await;
    assert!(fixture.is(Aspect::Available), "{}", fixture.dump());
    let events =
        fixture.events.iter().filter(|event| event.reason == "ZoneLinkedElsewhere").count();
    assert_eq!(events, 1);
    fixture.delete();
    fixture.run_for(20 * MINUTES).await;
    assert!(fixture.gone);
    assert_eq!(fixture.last_delay, None);
}
