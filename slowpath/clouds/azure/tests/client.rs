//! The Resource Manager client against the emulator: requests, long operations, errors, retries.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first failure")]

use std::time::Duration;

use azure::arm::{Arm, ArmRequest, OperationHandle, Progress, WriteOutcome};
use azure::id::ResourceId;
use azure::long_running::finish;
use azure::operations::{self, in_group};
use azure::types::Failure;
use cloud_emulators::azure::AzureState;
use cloud_emulators::azure::operation::{End, Outcome};
use cloud_emulators::faults::{Fault, Rule};
use clouds::failure::AttemptError;
use clouds::report::Report;
use clouds::retry::Policy;
use serde_json::{Value, json};

use simulation::azure_fixture::{Fixture, fixture};

const SUBSCRIPTION: &str = "00000000-0000-0000-0000-0000000000aa";

fn gateway() -> ResourceId {
    ResourceId::network(SUBSCRIPTION, "north", "loadBalancers", "gw")
}

fn pool() -> ResourceId {
    gateway().child("backendAddressPools", "weir")
}

fn list() -> ArmRequest {
    operations::LOAD_BALANCERS_LIST.at(in_group(SUBSCRIPTION, "north", "loadBalancers"))
}

/// Returns a pool's body with a member by address.
fn member(body: &Value) -> Value {
    let mut body = body.clone();
    let network = ResourceId::network(SUBSCRIPTION, "north", "virtualNetworks", "hub");
    body["properties"]["loadBalancerBackendAddresses"] = json!([{ "name": "weir-0", "properties": {
        "ipAddress": "10.1.0.11", "virtualNetwork": { "id": network.as_str() },
    }}]);
    body
}

/// Joins the pool by address, as a long operation.
async fn join(side: &Fixture) -> Result<WriteOutcome, AttemptError> {
    let request = operations::POOLS_GET.at(pool());
    let found = side.client.get(&request).await.unwrap();
    let request = operations::POOLS_PUT.at(pool());
    side.client.put(&request, &member(&found.body), found.etag.as_deref()).await
}

fn in_progress(begun: WriteOutcome) -> OperationHandle {
    match begun {
        WriteOutcome::InProgress { handle, .. } => handle,
        done => panic!("{done:?}"),
    }
}

async fn finished(side: &Fixture, begun: WriteOutcome) -> Result<(), AttemptError> {
    let bound = Duration::from_secs(120);
    finish(&side.client, begun, side.pause.as_ref(), bound).await.map(drop)
}

fn slow(pace: u64) -> AzureState {
    AzureState { pace: Duration::from_secs(pace), ..AzureState::sample() }
}

fn ends(operation: &str, end: End) -> Outcome {
    Outcome { operation: operation.to_owned(), end, times: Some(1) }
}

#[tokio::test]
async fn a_resource_is_read_changed_and_read_again() {
    let side = fixture(AzureState::sample()).await;
    assert_eq!(side.metadata.instance().await.unwrap().subscription, SUBSCRIPTION);
    let request = operations::POOLS_GET.at(pool());
    let found = side.client.get(&request).await.unwrap();
    assert_eq!(found.body["name"], "weir");
    assert_eq!(found.body["properties"]["tunnelInterfaces"].as_array().unwrap().len(), 2);
    let WriteOutcome::Done(Some(written)) = join(&side).await.unwrap() else { panic!() };
    assert_ne!(written.etag, found.etag);
    let again = side.client.get(&request).await.unwrap();
    assert_eq!(again.etag, written.etag);
    let entries = &again.body["properties"]["loadBalancerBackendAddresses"];
    assert_eq!(entries[0]["properties"]["ipAddress"], "10.1.0.11");

    let calls = side.azure.take_calls();
    let put = calls.iter().find(|call| call.method == "PUT").unwrap();
    assert_eq!(put.path, pool().as_str());
    assert_eq!(
        put.query.iter().collect::<Vec<_>>(),
        [(&"api-version".to_owned(), &"2024-05-01".to_owned())]
    );
    assert_eq!(put.headers["if-match"], found.etag.unwrap());
    assert_eq!(put.headers["authorization"], "Bearer");
    assert_eq!(put.headers["content-type"], "application/json");
    assert_eq!(put.body, member(&found.body));
    let get = calls.iter().find(|call| call.operation.starts_with("GET load")).unwrap();
    assert!(!get.headers.contains_key("if-match") && get.body.is_null());
    let (get, put) =
        ("LoadBalancerBackendAddressPools_Get", "LoadBalancerBackendAddressPools_CreateOrUpdate");
    let counts = side.client.counts();
    let times: Vec<_> = counts.iter().map(|(call, calls)| (*call, calls.times())).collect();
    assert_eq!(times, [((put, "ok"), 1), ((get, "ok"), 3)]);
    let mut report = Report::default();
    report.set_calls(side.client.counts());
    let count = &report.calls[1];
    assert_eq!((count.operation.as_str(), count.outcome.as_str(), count.times), (get, "ok", 3));
}

#[tokio::test]
async fn missing_resource_is_absent_and_deleting_it_succeeds() {
    let side = fixture(AzureState::sample()).await;
    let nothing = ResourceId::network(SUBSCRIPTION, "north", "loadBalancers", "nothing");
    let error =
        side.client.get(&operations::LOAD_BALANCERS_GET.at(&nothing)).await.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Absent, "ResourceNotFound"));
    let elsewhere = in_group(SUBSCRIPTION, "south", "loadBalancers");
    let error = side.client.list(&operations::LOAD_BALANCERS_LIST.at(elsewhere)).await.unwrap_err();
    assert_eq!(
        (error.error.kind, error.error.code.as_str()),
        (Failure::Absent, "ResourceGroupNotFound")
    );
    let done = side.client.delete(&operations::ENDPOINTS_DELETE.at(&nothing)).await.unwrap();
    assert_eq!(done, WriteOutcome::Done(None));
}

#[tokio::test]
async fn path_traversal_is_rejected() {
    let side = fixture(AzureState::sample()).await;
    for wrong in ["", "subscriptions/s", "/subscriptions//x", "/a/../b", "/a/./b", "/a/"] {
        let error = side.client.get(&operations::POOLS_GET.at(wrong)).await.unwrap_err().error;
        assert_eq!((error.kind, error.code.as_str()), (Failure::Invalid, "NotSent"), "{wrong}");
    }
    assert!(side.azure.take_calls().is_empty());
    // Characters that are reserved in URLs are escaped, and so remain a part of the name.
    let odd = gateway().child("backendAddressPools", "a b#c");
    let error = side.client.get(&operations::POOLS_GET.at(&odd)).await.unwrap_err().error;
    assert_eq!(error.kind, Failure::Absent);
    let calls = side.azure.take_calls();
    assert!(calls.last().unwrap().path.ends_with("/a b#c"), "{calls:?}");
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    for page in [None, Some(1), Some(2)] {
        let side = fixture(AzureState { page, ..AzureState::sample() }).await;
        let found = side.client.list(&list()).await.unwrap();
        let names: Vec<&str> = found.iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["gw", "plain"]);
        assert_eq!(side.call_count("LIST loadBalancers"), if page == Some(1) { 2 } else { 1 });
    }
    // Only a page that fails is requested again.
    let side = fixture(AzureState { page: Some(1), ..AzureState::sample() }).await;
    side.client.list(&list()).await.unwrap();
    side.azure.take_calls();
    side.azure.fault(Rule { chance: 0.5, ..Rule::always("LIST*", Fault::Status(503)) });
    side.azure.seed(3);
    assert_eq!(side.client.list(&list()).await.unwrap().len(), 2);
    let good = side.azure.take_calls().iter().filter(|call| call.status == 200).count();
    assert_eq!(good, 2);
}

#[tokio::test]
async fn page_links_to_other_hosts_or_in_a_loop_are_rejected() {
    let side = fixture(AzureState::sample()).await;
    let respond = |next: &str| {
        side.azure.clear_faults();
        let body = json!({ "value": [], "nextLink": next }).to_string();
        side.azure.fault(Rule::always("LIST*", Fault::Body(body)));
    };
    respond("https://evil.example/subscriptions/s?page=2");
    let error = side.client.list(&list()).await.unwrap_err().error;
    assert!(error.message.contains("the token is not sent there"), "{error}");
    let own = format!("{}{}?api-version=2024-05-01", side.azure.url, list().path);
    respond(&own);
    let error = side.client.list(&list()).await.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Invalid, "MalformedResponse"));
    assert!(error.message.contains("form a loop"), "{error}");
    side.azure.clear_faults();
    side.azure.fault(Rule::always("LIST*", Fault::Body(r#"{"value": "none"}"#.into())));
    let error = side.client.list(&list()).await.unwrap_err().error;
    assert!(error.message.contains("`value`"), "{error}");
}

#[tokio::test]
async fn stale_etag_is_a_conflict() {
    let side = fixture(AzureState::sample()).await;
    let found = side.client.get(&operations::POOLS_GET.at(pool())).await.unwrap();
    side.azure.with(|cloud| cloud.touch(gateway().as_str()));
    let request = operations::POOLS_PUT.at(pool());
    let result = side.client.put(&request, &member(&found.body), found.etag.as_deref()).await;
    let error = result.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Conflict, "PreconditionFailed"));
    // The client does not retry, because the caller has to read the resource again.
    assert_eq!(side.call_count("PUT loadBalancers/backendAddressPools"), 1);
    // Another write in progress is a conflict too.
    side.azure.with(|cloud| cloud.pace = Duration::from_secs(30));
    in_progress(join(&side).await.unwrap());
    let error = join(&side).await.unwrap_err().error;
    assert_eq!(
        (error.kind, error.code.as_str()),
        (Failure::Conflict, "AnotherOperationInProgress")
    );
}

#[tokio::test]
async fn long_write_is_polled_until_complete() {
    let side = fixture(slow(30)).await;
    let begun = join(&side).await.unwrap();
    let handle = in_progress(begun.clone());
    assert!(handle.operation.is_some() && handle.location.is_none());
    assert_eq!(handle.resource, pool().as_str());
    let Progress::InProgress { after } = side.client.poll(&handle).await.unwrap() else { panic!() };
    assert_eq!(after, Some(Duration::from_secs(2)));
    finished(&side, begun).await.unwrap();
    assert_eq!(side.azure.with(|cloud| cloud.now.as_secs()), 30);
    // The handle can be polled later, also from its stored form.
    let stored: OperationHandle =
        serde_json::from_str(&serde_json::to_string(&handle).unwrap()).unwrap();
    assert_eq!(side.client.poll(&stored).await.unwrap(), Progress::Done);
    assert_eq!(side.azure.calls().last().unwrap().headers["authorization"], "Bearer");
}

#[tokio::test]
async fn long_deletion_is_polled_by_location() {
    let side = fixture(slow(7)).await;
    let subnet = ResourceId::network(SUBSCRIPTION, "north", "virtualNetworks", "hub");
    let subnet = subnet.child("subnets", "spare");
    let body = json!({ "properties": { "addressPrefix": "10.1.9.0/24" } });
    let request = operations::SUBNETS_PUT.at(&subnet);
    let made = side.client.put(&request, &body, None).await.unwrap();
    finished(&side, made).await.unwrap();
    let begun = side.client.delete(&operations::SUBNETS_DELETE.at(&subnet)).await.unwrap();
    let handle = in_progress(begun.clone());
    assert!(handle.location.is_some() && handle.operation.is_none());
    finished(&side, begun).await.unwrap();
    let error = side.client.get(&operations::SUBNETS_GET.at(&subnet)).await.unwrap_err().error;
    assert_eq!(error.kind, Failure::Absent);
    let again = side.client.delete(&operations::SUBNETS_DELETE.at(&subnet)).await.unwrap();
    assert_eq!(again, WriteOutcome::Done(None));
}

#[tokio::test]
async fn failed_operation_reports_the_reason_and_hanging_one_times_out() {
    let side = fixture(slow(5)).await;
    let put = "PUT loadBalancers/backendAddressPools";
    let (code, message) = ("PrivateIPAddressNotInSubnet".to_owned(), "not in it".to_owned());
    side.azure.with(|cloud| {
        cloud.outcomes = vec![
            ends(put, End::Fail { code, message }),
            ends(put, End::Cancel),
            ends(put, End::Hang),
        ];
    });
    let begun = join(&side).await.unwrap();
    let error = finished(&side, begun).await.unwrap_err().error;
    assert_eq!(
        (error.kind, error.code.as_str()),
        (Failure::Invalid, "PrivateIPAddressNotInSubnet")
    );
    assert!(error.message.contains("not in it"));
    let begun = join(&side).await.unwrap();
    let error = finished(&side, begun).await.unwrap_err().error;
    assert!(error.code == "Canceled" && error.message.contains("superseded"), "{error}");
    let begun = join(&side).await.unwrap();
    let before = side.azure.with(|cloud| cloud.now);
    let error = finished(&side, begun.clone()).await.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "StillRunning"));
    assert_eq!(side.azure.with(|cloud| cloud.now) - before, Duration::from_secs(120));
    // A handle that Azure no longer knows is absent.
    let mut handle = in_progress(begun);
    handle.operation = handle.operation.map(|url| url.replace("/operations/", "/operations/no"));
    let error = side.client.poll(&handle).await.unwrap_err().error;
    assert_eq!(error.kind, Failure::Absent);
}

#[tokio::test]
async fn poll_never_leaves_the_service_host() {
    let side = fixture(AzureState::sample()).await;
    for foreign in ["https://evil.example/o/1", &side.azure.imds, "https://localhost/o/1"] {
        for by_operation in [true, false] {
            let url = Some(foreign.to_owned());
            let (operation, location) = if by_operation { (url, None) } else { (None, url) };
            let (resource, name) = (pool().to_string(), "LoadBalancers_X".to_owned());
            let handle = OperationHandle { operation, location, resource, name };
            let error = side.client.poll(&handle).await.unwrap_err().error;
            assert_eq!((error.kind, error.code.as_str()), (Failure::Invalid, "ForeignPoll"));
        }
    }
    assert!(side.azure.take_calls().is_empty());
}

#[tokio::test]
async fn retry_after_is_honored_in_both_forms_despite_clock_skew() {
    for (skew, dated) in [(0, false), (0, true), (7_200, true), (-7_200, true)] {
        let side = fixture(AzureState { skew, ..AzureState::sample() }).await;
        let refuse = Fault::Refuse { status: 429, code: "TooManyRequests".into() };
        let rule = Rule::first(2, "LIST loadBalancers", refuse);
        side.azure.fault(Rule { retry_after: Some(17), dated, ..rule });
        assert_eq!(side.client.list(&list()).await.unwrap().len(), 2);
        let waited = side.azure.with(|cloud| cloud.now.as_secs());
        assert_eq!(waited, 34, "skew {skew}, dated {dated}");
        let name = "LoadBalancers_List";
        let counts = side.client.counts();
        assert_eq!((counts[&(name, "throttled")].times(), counts[&(name, "ok")].times()), (2, 1));
    }
    // The delay is limited to the policy's maximum.
    let side = fixture(AzureState::sample()).await;
    let rule = Rule::first(1, "LIST loadBalancers", Fault::Status(429));
    side.azure.fault(Rule { retry_after: Some(3_000), ..rule });
    side.client.list(&list()).await.unwrap();
    assert_eq!(side.azure.with(|cloud| cloud.now), Policy::API.max_pause);
}

#[tokio::test]
async fn temporary_errors_are_retried_and_permanent_ones_returned() {
    let side = fixture(AzureState::sample()).await;
    for fault in [Fault::Status(500), Fault::Status(502), Fault::Status(503), Fault::Status(408)] {
        side.azure.fault(Rule::first(3, "LIST*", fault));
        side.client.list(&list()).await.unwrap();
    }
    side.azure.fault(Rule::first(2, "LIST*", Fault::Cut));
    side.client.list(&list()).await.unwrap();
    let counts = side.client.counts();
    assert_eq!(counts[&("LoadBalancers_List", "transient")].times(), 14);
    for (fault, kind) in [
        (Fault::Refuse { status: 400, code: "InvalidParameter".into() }, Failure::Invalid),
        (Fault::Status(302), Failure::Invalid),
        (Fault::Body("<html>Welcome to the hotel</html>".into()), Failure::Invalid),
        (Fault::Shorten(40), Failure::Invalid),
        (Fault::Status(403), Failure::Denied),
        (Fault::Status(404), Failure::Absent),
        (Fault::Status(409), Failure::Conflict),
    ] {
        side.azure.take_calls();
        side.azure.fault(Rule::first(1, "LIST*", fault));
        assert_eq!(side.client.list(&list()).await.unwrap_err().error.kind, kind);
        assert_eq!(side.call_count("LIST loadBalancers"), 1);
    }
    // The client gives up when the policy does.
    side.azure.fault(Rule::always("LIST*", Fault::Status(503)));
    let before = side.azure.with(|cloud| cloud.now);
    let error = side.client.list(&list()).await.unwrap_err().error;
    assert_eq!(error.kind, Failure::Transient);
    assert!(side.azure.with(|cloud| cloud.now) - before <= Policy::API.max_elapsed);
    side.azure.take_calls();
    let once = side.client.with_policy(Policy::ONCE);
    assert!(once.list(&list()).await.is_err());
    assert_eq!(side.call_count("LIST loadBalancers"), 1);
}

#[tokio::test]
async fn response_length_is_limited() {
    let side = fixture(AzureState::sample()).await;
    let long = format!(r#"{{"value": ["{}"]}}"#, "x".repeat(17 << 20));
    side.azure.fault(Rule::first(1, "LIST*", Fault::Body(long)));
    let error = side.client.list(&list()).await.unwrap_err().error;
    assert!(error.code == "MalformedResponse" && error.message.contains("longer than"), "{error}");
}

#[tokio::test]
async fn attempts_time_out_and_calls_can_be_canceled() {
    let side = fixture(AzureState::sample()).await;
    side.azure.fault(Rule::first(1, "LIST*", Fault::Hang));
    assert_eq!(side.client.list(&list()).await.unwrap().len(), 2);
    assert_eq!(side.client.counts()[&("LoadBalancers_List", "transient")].times(), 1);
    side.azure.fault(Rule::always("*", Fault::Hang));
    let (client, stop) = (side.client.clone(), side.stop.clone());
    let call = tokio::spawn(async move { client.list(&list()).await });
    while side.call_count("LIST loadBalancers") < 3 {
        tokio::task::yield_now().await;
    }
    stop.send(true).unwrap();
    let error = call.await.unwrap().unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "Canceled"));
    let error = side.client.list(&list()).await.unwrap_err().error;
    assert_eq!(error.code, "Canceled");
}

#[tokio::test]
async fn missing_permission_is_named_with_its_scope() {
    let side = fixture(AzureState::sample()).await;
    side.azure.with(|cloud| cloud.forbidden = vec!["Microsoft.Network/loadBalancers/read".into()]);
    let error = side.client.list(&list()).await.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Denied, "AuthorizationFailed"));
    let allow = format!("allow {} on {}", list().operation.service, list().path);
    assert!(error.message.contains(&allow), "{error}");
    // To join a pool, the identity also needs a permission at the pool.
    let join = "Microsoft.Network/loadBalancers/backendAddressPools/join/action";
    side.azure.with(|cloud| cloud.forbidden = vec![join.into()]);
    let nic = ResourceId::network(SUBSCRIPTION, "north", "networkInterfaces", "weir-0-data");
    let mut found = side.client.get(&operations::INTERFACES_GET.at(&nic)).await.unwrap();
    let part = &mut found.body["properties"]["ipConfigurations"][0]["properties"];
    part["loadBalancerBackendAddressPools"] = json!([{ "id": pool().as_str() }]);
    let request = operations::INTERFACES_PUT.at(&nic);
    let result = side.client.put(&request, &found.body, found.etag.as_deref()).await;
    let error = result.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Denied, "LinkedAuthorizationFailed"));
    assert!(error.message.contains(&format!("allow {join} on {}", pool())), "{error}");
}

#[tokio::test]
async fn malformed_responses_cause_no_panic() {
    let side = fixture(slow(4)).await;
    let begun = join(&side).await.unwrap();
    let handle = in_progress(begun);
    let once = side.client.with_policy(Policy::ONCE);
    for fault in [Fault::Garble, Fault::Shorten(9), Fault::Body("[]".into())] {
        side.azure.clear_faults();
        side.azure.seed(11);
        for operation in ["LIST*", "GET*", "PUT*"] {
            side.azure.fault(Rule::always(operation, fault.clone()));
        }
        for _ in 0..150 {
            let _ = once.list(&list()).await;
            let _ = once.get(&operations::POOLS_GET.at(pool())).await;
            let _ = once.poll(&handle).await;
            let _ = once.put(&operations::POOLS_PUT.at(pool()), &json!({}), Some("W/\"no\"")).await;
        }
    }
    side.azure.clear_faults();
    assert_eq!(side.client.list(&list()).await.unwrap().len(), 2);
}
