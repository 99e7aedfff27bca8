//! The Resource Manager client against the emulator: requests, long-running operations, errors and
//! retries.
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

/// Joins the pool by address, as a long-running operation.
async fn join(env: &Fixture) -> Result<WriteOutcome, AttemptError> {
    let request = operations::POOLS_GET.at(pool());
    let found = env.client.get(&request).await.unwrap();
    let request = operations::POOLS_PUT.at(pool());
    env.client.put(&request, &member(&found.body), found.etag.as_deref()).await
}

fn in_progress(begun: WriteOutcome) -> OperationHandle {
    match begun {
        WriteOutcome::InProgress { handle, .. } => handle,
        done => panic!("{done:?}"),
    }
}

async fn finished(env: &Fixture, begun: WriteOutcome) -> Result<(), AttemptError> {
    let bound = Duration::from_secs(120);
    finish(&env.client, begun, env.pause.as_ref(), bound).await.map(drop)
}

/// Returns a state in which each write takes `pace` seconds.
fn slow(pace: u64) -> AzureState {
    AzureState { pace: Duration::from_secs(pace), ..AzureState::sample() }
}

fn ends(operation: &str, end: End) -> Outcome {
    Outcome { operation: operation.to_owned(), end, times: Some(1) }
}

#[tokio::test]
async fn a_resource_is_read_changed_and_read_again() {
    let env = fixture(AzureState::sample()).await;
    assert_eq!(env.metadata.instance().await.unwrap().subscription, SUBSCRIPTION);
    let request = operations::POOLS_GET.at(pool());
    let found = env.client.get(&request).await.unwrap();
    assert_eq!(found.body["name"], "weir");
    assert_eq!(found.body["properties"]["tunnelInterfaces"].as_array().unwrap().len(), 2);
    let WriteOutcome::Done(Some(written)) = join(&env).await.unwrap() else { panic!() };
    assert_ne!(written.etag, found.etag);
    let again = env.client.get(&request).await.unwrap();
    assert_eq!(again.etag, written.etag);
    let entries = &again.body["properties"]["loadBalancerBackendAddresses"];
    assert_eq!(entries[0]["properties"]["ipAddress"], "10.1.0.11");

    let calls = env.azure.take_calls();
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
    let counts = env.client.counts();
    let times: Vec<_> = counts.iter().map(|(call, calls)| (*call, calls.times())).collect();
    assert_eq!(times, [((put, "ok"), 1), ((get, "ok"), 3)]);
    let mut report = Report::default();
    report.set_calls(env.client.counts());
    let count = &report.calls[1];
    assert_eq!((count.operation.as_str(), count.outcome.as_str(), count.times), (get, "ok", 3));
}

#[tokio::test]
async fn missing_resource_is_absent_and_deleting_it_succeeds() {
    let env = fixture(AzureState::sample()).await;
    let nothing = ResourceId::network(SUBSCRIPTION, "north", "loadBalancers", "nothing");
    let error =
        env.client.get(&operations::LOAD_BALANCERS_GET.at(&nothing)).await.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Absent, "ResourceNotFound"));
    let elsewhere = in_group(SUBSCRIPTION, "south", "loadBalancers");
    let error = env.client.list(&operations::LOAD_BALANCERS_LIST.at(elsewhere)).await.unwrap_err();
    assert_eq!(
        (error.error.kind, error.error.code.as_str()),
        (Failure::Absent, "ResourceGroupNotFound")
    );
    let done = env.client.delete(&operations::ENDPOINTS_DELETE.at(&nothing)).await.unwrap();
    assert_eq!(done, WriteOutcome::Done(None));
}

#[tokio::test]
async fn invalid_paths_are_rejected_and_reserved_characters_escaped() {
    let env = fixture(AzureState::sample()).await;
    for wrong in ["", "subscriptions/s", "/subscriptions//x", "/a/../b", "/a/./b", "/a/"] {
        let error = env.client.get(&operations::POOLS_GET.at(wrong)).await.unwrap_err().error;
        assert_eq!((error.kind, error.code.as_str()), (Failure::Invalid, "NotSent"), "{wrong}");
    }
    assert!(env.azure.take_calls().is_empty());
    // Characters that are reserved in URLs are escaped, and so remain a part of the name.
    let odd = gateway().child("backendAddressPools", "a b#c");
    let error = env.client.get(&operations::POOLS_GET.at(&odd)).await.unwrap_err().error;
    assert_eq!(error.kind, Failure::Absent);
    let calls = env.azure.take_calls();
    assert!(calls.last().unwrap().path.ends_with("/a b#c"), "{calls:?}");
}

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    for page in [None, Some(1), Some(2)] {
        let env = fixture(AzureState { page, ..AzureState::sample() }).await;
        let found = env.client.list(&list()).await.unwrap();
        let names: Vec<&str> = found.iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["gw", "plain"]);
        assert_eq!(env.call_count("LIST loadBalancers"), if page == Some(1) { 2 } else { 1 });
    }
    // Only a page that fails is requested again.
    let env = fixture(AzureState { page: Some(1), ..AzureState::sample() }).await;
    env.client.list(&list()).await.unwrap();
    env.azure.take_calls();
    env.azure.fault(Rule { chance: 0.5, ..Rule::always("LIST*", Fault::Status(503)) });
    env.azure.seed(3);
    assert_eq!(env.client.list(&list()).await.unwrap().len(), 2);
    let good = env.azure.take_calls().iter().filter(|call| call.status == 200).count();
    assert_eq!(good, 2);
}

#[tokio::test]
async fn page_links_to_other_hosts_or_in_a_loop_are_rejected() {
    let env = fixture(AzureState::sample()).await;
    let respond = |next: &str| {
        env.azure.clear_faults();
        let body = json!({ "value": [], "nextLink": next }).to_string();
        env.azure.fault(Rule::always("LIST*", Fault::Body(body)));
    };
    respond("https://evil.example/subscriptions/s?page=2");
    let error = env.client.list(&list()).await.unwrap_err().error;
    assert!(error.message.contains("the token is not sent there"), "{error}");
    let own = format!("{}{}?api-version=2024-05-01", env.azure.url, list().path);
    respond(&own);
    let error = env.client.list(&list()).await.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Invalid, "MalformedResponse"));
    assert!(error.message.contains("form a loop"), "{error}");
    env.azure.clear_faults();
    env.azure.fault(Rule::always("LIST*", Fault::Body(r#"{"value": "none"}"#.into())));
    let error = env.client.list(&list()).await.unwrap_err().error;
    assert!(error.message.contains("`value`"), "{error}");
}

#[tokio::test]
async fn stale_etag_is_a_conflict() {
    let env = fixture(AzureState::sample()).await;
    let found = env.client.get(&operations::POOLS_GET.at(pool())).await.unwrap();
    env.azure.with(|cloud| cloud.touch(gateway().as_str()));
    let request = operations::POOLS_PUT.at(pool());
    let result = env.client.put(&request, &member(&found.body), found.etag.as_deref()).await;
    let error = result.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Conflict, "PreconditionFailed"));
    // The client does not retry, because the caller has to read the resource again.
    assert_eq!(env.call_count("PUT loadBalancers/backendAddressPools"), 1);
    // Another write in progress is a conflict too.
    env.azure.with(|cloud| cloud.pace = Duration::from_secs(30));
    in_progress(join(&env).await.unwrap());
    let error = join(&env).await.unwrap_err().error;
    assert_eq!(
        (error.kind, error.code.as_str()),
        (Failure::Conflict, "AnotherOperationInProgress")
    );
}

#[tokio::test]
async fn long_write_is_polled_until_complete() {
    let env = fixture(slow(30)).await;
    let begun = join(&env).await.unwrap();
    let handle = in_progress(begun.clone());
    assert!(handle.operation.is_some() && handle.location.is_none());
    assert_eq!(handle.resource, pool().as_str());
    let Progress::InProgress { after } = env.client.poll(&handle).await.unwrap() else { panic!() };
    assert_eq!(after, Some(Duration::from_secs(2)));
    finished(&env, begun).await.unwrap();
    assert_eq!(env.azure.with(|cloud| cloud.now.as_secs()), 30);
    // The handle can be polled later, also from its stored form.
    let stored: OperationHandle =
        serde_json::from_str(&serde_json::to_string(&handle).unwrap()).unwrap();
    assert_eq!(env.client.poll(&stored).await.unwrap(), Progress::Done);
    assert_eq!(env.azure.calls().last().unwrap().headers["authorization"], "Bearer");
}

#[tokio::test]
async fn long_deletion_is_polled_by_location() {
    let env = fixture(slow(7)).await;
    let subnet = ResourceId::network(SUBSCRIPTION, "north", "virtualNetworks", "hub");
    let subnet = subnet.child("subnets", "spare");
    let body = json!({ "properties": { "addressPrefix": "10.1.9.0/24" } });
    let request = operations::SUBNETS_PUT.at(&subnet);
    let made = env.client.put(&request, &body, None).await.unwrap();
    finished(&env, made).await.unwrap();
    let begun = env.client.delete(&operations::SUBNETS_DELETE.at(&subnet)).await.unwrap();
    let handle = in_progress(begun.clone());
    assert!(handle.location.is_some() && handle.operation.is_none());
    finished(&env, begun).await.unwrap();
    let error = env.client.get(&operations::SUBNETS_GET.at(&subnet)).await.unwrap_err().error;
    assert_eq!(error.kind, Failure::Absent);
    let again = env.client.delete(&operations::SUBNETS_DELETE.at(&subnet)).await.unwrap();
    assert_eq!(again, WriteOutcome::Done(None));
}

#[tokio::test]
async fn failed_operation_reports_the_reason_and_hanging_one_times_out() {
    let env = fixture(slow(5)).await;
    let put = "PUT loadBalancers/backendAddressPools";
    let (code, message) = ("PrivateIPAddressNotInSubnet".to_owned(), "not in it".to_owned());
    env.azure.with(|cloud| {
        cloud.outcomes = vec![
            ends(put, End::Fail { code, message }),
            ends(put, End::Cancel),
            ends(put, End::Hang),
        ];
    });
    let begun = join(&env).await.unwrap();
    let error = finished(&env, begun).await.unwrap_err().error;
    assert_eq!(
        (error.kind, error.code.as_str()),
        (Failure::Invalid, "PrivateIPAddressNotInSubnet")
    );
    assert!(error.message.contains("not in it"));
    let begun = join(&env).await.unwrap();
    let error = finished(&env, begun).await.unwrap_err().error;
    assert!(error.code == "Canceled" && error.message.contains("superseded"), "{error}");
    let begun = join(&env).await.unwrap();
    let before = env.azure.with(|cloud| cloud.now);
    let error = finished(&env, begun.clone()).await.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "StillRunning"));
    assert_eq!(env.azure.with(|cloud| cloud.now) - before, Duration::from_secs(120));
    // A handle that Azure no longer knows is absent.
    let mut handle = in_progress(begun);
    handle.operation = handle.operation.map(|url| url.replace("/operations/", "/operations/no"));
    let error = env.client.poll(&handle).await.unwrap_err().error;
    assert_eq!(error.kind, Failure::Absent);
}

#[tokio::test]
async fn poll_never_leaves_the_service_host() {
    let env = fixture(AzureState::sample()).await;
    for foreign in ["https://evil.example/o/1", &env.azure.imds, "https://localhost/o/1"] {
        for by_operation in [true, false] {
            let url = Some(foreign.to_owned());
            let (operation, location) = if by_operation { (url, None) } else { (None, url) };
            let (resource, name) = (pool().to_string(), "LoadBalancers_X".to_owned());
            let handle = OperationHandle { operation, location, resource, name };
            let error = env.client.poll(&handle).await.unwrap_err().error;
            assert_eq!((error.kind, error.code.as_str()), (Failure::Invalid, "ForeignPoll"));
        }
    }
    assert!(env.azure.take_calls().is_empty());
}

#[tokio::test]
async fn retry_after_is_honored_in_both_forms_despite_clock_skew() {
    for (skew, dated) in [(0, false), (0, true), (7_200, true), (-7_200, true)] {
        let env = fixture(AzureState { skew, ..AzureState::sample() }).await;
        let refuse = Fault::Refuse { status: 429, code: "TooManyRequests".into() };
        let rule = Rule::first(2, "LIST loadBalancers", refuse);
        env.azure.fault(Rule { retry_after: Some(17), dated, ..rule });
        assert_eq!(env.client.list(&list()).await.unwrap().len(), 2);
        let waited = env.azure.with(|cloud| cloud.now.as_secs());
        assert_eq!(waited, 34, "skew {skew}, dated {dated}");
        let name = "LoadBalancers_List";
        let counts = env.client.counts();
        assert_eq!((counts[&(name, "throttled")].times(), counts[&(name, "ok")].times()), (2, 1));
    }
    // The delay is limited to the policy's maximum.
    let env = fixture(AzureState::sample()).await;
    let rule = Rule::first(1, "LIST loadBalancers", Fault::Status(429));
    env.azure.fault(Rule { retry_after: Some(3_000), ..rule });
    env.client.list(&list()).await.unwrap();
    assert_eq!(env.azure.with(|cloud| cloud.now), Policy::API.max_pause);
}

#[tokio::test]
async fn temporary_errors_are_retried_and_permanent_ones_returned() {
    let env = fixture(AzureState::sample()).await;
    for fault in [Fault::Status(500), Fault::Status(502), Fault::Status(503), Fault::Status(408)] {
        env.azure.fault(Rule::first(3, "LIST*", fault));
        env.client.list(&list()).await.unwrap();
    }
    env.azure.fault(Rule::first(2, "LIST*", Fault::Cut));
    env.client.list(&list()).await.unwrap();
    let counts = env.client.counts();
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
        env.azure.take_calls();
        env.azure.fault(Rule::first(1, "LIST*", fault));
        assert_eq!(env.client.list(&list()).await.unwrap_err().error.kind, kind);
        assert_eq!(env.call_count("LIST loadBalancers"), 1);
    }
    // The client gives up when the policy does.
    env.azure.fault(Rule::always("LIST*", Fault::Status(503)));
    let before = env.azure.with(|cloud| cloud.now);
    let error = env.client.list(&list()).await.unwrap_err().error;
    assert_eq!(error.kind, Failure::Transient);
    assert!(env.azure.with(|cloud| cloud.now) - before <= Policy::API.max_elapsed);
    env.azure.take_calls();
    let once = env.client.with_policy(Policy::ONCE);
    assert!(once.list(&list()).await.is_err());
    assert_eq!(env.call_count("LIST loadBalancers"), 1);
}

#[tokio::test]
async fn response_length_is_limited() {
    let env = fixture(AzureState::sample()).await;
    let long = format!(r#"{{"value": ["{}"]}}"#, "x".repeat(17 << 20));
    env.azure.fault(Rule::first(1, "LIST*", Fault::Body(long)));
    let error = env.client.list(&list()).await.unwrap_err().error;
    assert!(error.code == "MalformedResponse" && error.message.contains("longer than"), "{error}");
}

#[tokio::test]
async fn attempts_time_out_and_calls_can_be_canceled() {
    let env = fixture(AzureState::sample()).await;
    env.azure.fault(Rule::first(1, "LIST*", Fault::Hang));
    assert_eq!(env.client.list(&list()).await.unwrap().len(), 2);
    assert_eq!(env.client.counts()[&("LoadBalancers_List", "transient")].times(), 1);
    env.azure.fault(Rule::always("*", Fault::Hang));
    let (client, stop) = (env.client.clone(), env.stop.clone());
    let call = tokio::spawn(async move { client.list(&list()).await });
    while env.call_count("LIST loadBalancers") < 3 {
        tokio::task::yield_now().await;
    }
    stop.send(true).unwrap();
    let error = call.await.unwrap().unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "Canceled"));
    let error = env.client.list(&list()).await.unwrap_err().error;
    assert_eq!(error.code, "Canceled");
}

#[tokio::test]
async fn missing_permission_is_named_with_its_scope() {
    let env = fixture(AzureState::sample()).await;
    env.azure.with(|cloud| cloud.forbidden = vec!["Microsoft.Network/loadBalancers/read".into()]);
    let error = env.client.list(&list()).await.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Denied, "AuthorizationFailed"));
    let allow = format!("allow {} on {}", list().operation.service, list().path);
    assert!(error.message.contains(&allow), "{error}");
    // To join a pool, the identity also needs a permission at the pool.
    let join = "Microsoft.Network/loadBalancers/backendAddressPools/join/action";
    env.azure.with(|cloud| cloud.forbidden = vec![join.into()]);
    let nic = ResourceId::network(SUBSCRIPTION, "north", "networkInterfaces", "weir-0-data");
    let mut found = env.client.get(&operations::INTERFACES_GET.at(&nic)).await.unwrap();
    let part = &mut found.body["properties"]["ipConfigurations"][0]["properties"];
    part["loadBalancerBackendAddressPools"] = json!([{ "id": pool().as_str() }]);
    let request = operations::INTERFACES_PUT.at(&nic);
    let result = env.client.put(&request, &found.body, found.etag.as_deref()).await;
    let error = result.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Denied, "LinkedAuthorizationFailed"));
    assert!(error.message.contains(&format!("allow {join} on {}", pool())), "{error}");
}

#[tokio::test]
async fn malformed_responses_cause_no_panic() {
    let env = fixture(slow(4)).await;
    let begun = join(&env).await.unwrap();
    let handle = in_progress(begun);
    let once = env.client.with_policy(Policy::ONCE);
    for fault in [Fault::Garble, Fault::Shorten(9), Fault::Body("[]".into())] {
        env.azure.clear_faults();
        env.azure.seed(11);
        for operation in ["LIST*", "GET*", "PUT*"] {
            env.azure.fault(Rule::always(operation, fault.clone()));
        }
        for _ in 0..150 {
            let _ = once.list(&list()).await;
            let _ = once.get(&operations::POOLS_GET.at(pool())).await;
            let _ = once.poll(&handle).await;
            let _ = once.put(&operations::POOLS_PUT.at(pool()), &json!({}), Some("W/\"no\"")).await;
        }
    }
    env.azure.clear_faults();
    assert_eq!(env.client.list(&list()).await.unwrap().len(), 2);
}
