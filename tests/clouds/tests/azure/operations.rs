//! Tests of long operations, permissions and faults.

use std::time::Duration;

use cloud_emulators::azure::AzureState;
use cloud_emulators::azure::operation::{End, Outcome};
use cloud_emulators::faults::{Fault, Rule};
use serde_json::{Value, json};

use crate::client::{TestAzure, VERSION, network, pool};

/// Starts an emulator whose long operations take 10 s. The next ones of these names end as given,
/// one each; all others succeed.
async fn slow(ends: Vec<(&str, End)>) -> TestAzure {
    let mut cloud = AzureState::sample();
    cloud.pace = Duration::from_secs(10);
    let each = ends.into_iter().map(|(operation, end)| Outcome {
        operation: operation.to_owned(),
        end,
        times: Some(1),
    });
    cloud.outcomes = each.collect();
    TestAzure::of(cloud).await
}

/// Name of the operation that writes a pool.
const PUT: &str = "PUT loadBalancers/backendAddressPools";

#[tokio::test]
async fn a_long_write_locks_the_resource_until_it_completes() {
    let test = slow(vec![]).await;
    let body = json!({ "properties": {} });
    let response = test.put(&pool("weir"), &body).await;
    assert_eq!((response.status, response.header("location")), (200, None));
    assert_eq!(response.header("retry-after"), Some("2"));
    assert_eq!(response.body["properties"]["provisioningState"], "Updating");
    let poll = response.header("azure-asyncoperation").unwrap().to_owned();
    assert!(poll.starts_with(&format!("{}/subscriptions/", test.azure.url)), "{poll}");
    assert_eq!(test.follow(&poll).await.body, json!({ "status": "InProgress" }));
    assert_eq!(test.follow(&poll).await.header("retry-after"), Some("2"));
    // Another pool, and an interface that joins a pool, would change the same load balancer.
    let response = test.put(&pool("weir6"), &body).await;
    assert_eq!((response.status, response.code()), (409, "AnotherOperationInProgress"));
    let path = network("networkInterfaces/weir-0-data");
    let mut nic = test.get(&path).await.body;
    nic["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] =
        json!([{ "id": pool("weir") }]);
    assert_eq!(test.put(&path, &nic).await.code(), "AnotherOperationInProgress");
    test.azure.advance(Duration::from_secs(10));
    assert_eq!(test.follow(&poll).await.body, json!({ "status": "Succeeded" }));
    assert_eq!(test.get(&pool("weir")).await.body["properties"]["provisioningState"], "Succeeded");
    assert_eq!(test.put(&path, &nic).await.status, 200);
    let polls = test.azure.take_calls().into_iter().filter(|c| c.operation == "GET operations");
    assert_eq!(polls.count(), 3);
}

#[tokio::test]
async fn a_deletion_is_polled_at_its_location() {
    let test = slow(vec![]).await;
    let path = network("loadBalancers/plain");
    let response = test.delete(&path).await;
    assert_eq!((response.status, response.header("azure-asyncoperation")), (202, None));
    let location = response.header("location").unwrap().to_owned();
    assert!(location.contains("/operationResults/"), "{location}");
    let response = test.follow(&location).await;
    assert_eq!((response.status, response.header("location")), (202, Some(location.as_str())));
    assert_eq!(test.get(&path).await.body["properties"]["provisioningState"], "Deleting");
    test.azure.advance(Duration::from_secs(10));
    assert_eq!(test.follow(&location).await.status, 204);
    assert_eq!(test.get(&path).await.status, 404);
    // The health of a rule's members has both headers.
    let rule = network("loadBalancers/gw/loadBalancingRules/all/health");
    let response = test.post(&rule, &Value::Null).await;
    assert_eq!(response.status, 202);
    let poll = response.header("azure-asyncoperation").unwrap().to_owned();
    let location = response.header("location").unwrap().to_owned();
    test.azure.advance(Duration::from_secs(10));
    assert_eq!(test.follow(&poll).await.body["status"], "Succeeded");
    assert_eq!(test.follow(&location).await.body["up"], 0);
}

#[tokio::test]
async fn operations_fail_are_canceled_have_no_effect_or_never_end_as_configured() {
    let fail =
        End::Fail { code: "PrivateIPAddressNotInSubnet".to_owned(), message: "No.".to_owned() };
    let lost = (PUT, End::Lose);
    let canceled = ("DELETE *", End::Cancel);
    let ends = vec![(PUT, fail), (PUT, End::Cancel), canceled, lost, (PUT, End::Hang)];
    let test = slow(ends).await;
    let before = test.get(&pool("weir")).await.body["properties"]["tunnelInterfaces"].clone();
    let body = json!({ "properties": {} });
    for (status, code) in [("Failed", "PrivateIPAddressNotInSubnet"), ("Canceled", "Canceled")] {
        let response = test.put(&pool("weir"), &body).await;
        assert_ne!(response.body["properties"]["tunnelInterfaces"], before);
        test.azure.advance(Duration::from_secs(10));
        let end = test.follow(response.header("azure-asyncoperation").unwrap()).await.body;
        assert_eq!((&end["status"], &end["error"]["code"]), (&json!(status), &json!(code)));
        let now = test.get(&pool("weir")).await.body;
        assert_eq!(now["properties"]["provisioningState"], "Failed");
        assert_eq!(now["properties"]["tunnelInterfaces"], before, "no effect");
    }
    let response = test.delete(&network("loadBalancers/plain")).await;
    test.azure.advance(Duration::from_secs(10));
    let end = test.follow(response.header("location").unwrap()).await;
    assert_eq!((end.status, end.code()), (409, "Canceled"));
    assert_eq!(test.get(&network("loadBalancers/plain")).await.status, 200);

    let response = test.put(&pool("weir"), &body).await;
    test.azure.advance(Duration::from_secs(10));
    let end = test.follow(response.header("azure-asyncoperation").unwrap()).await.body;
    assert_eq!(end["status"], "Succeeded");
    let now = test.get(&pool("weir")).await.body;
    assert_eq!(now["properties"]["provisioningState"], "Succeeded");
    assert_eq!(now["properties"]["tunnelInterfaces"], before, "again no effect");

    let response = test.put(&pool("weir"), &body).await;
    test.azure.advance(Duration::from_secs(86_000));
    let poll = response.header("azure-asyncoperation").unwrap();
    assert_eq!(test.follow(poll).await.body["status"], "InProgress");
    assert_eq!(test.put(&pool("weir"), &body).await.code(), "AnotherOperationInProgress");
}

#[tokio::test]
async fn a_denied_action_is_named_with_its_scope() {
    let test = TestAzure::new().await;
    let path = network("networkInterfaces/weir-0-data");
    let mut nic = test.get(&path).await.body;
    nic["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] =
        json!([{ "id": pool("weir") }]);
    for (forbidden, code, named) in [
        ("Microsoft.Network/networkInterfaces/write", "AuthorizationFailed", path.clone()),
        ("Microsoft.Network/*", "AuthorizationFailed", path.clone()),
        (
            "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
            "LinkedAuthorizationFailed",
            pool("weir"),
        ),
        (
            "microsoft.network/virtualnetworks/subnets/join/action",
            "LinkedAuthorizationFailed",
            network("virtualNetworks/hub/subnets/data"),
        ),
    ] {
        test.azure.with(|cloud| cloud.forbidden = vec![forbidden.to_owned()]);
        let response = test.put(&path, &nic).await;
        assert_eq!((response.status, response.code()), (403, code), "{forbidden}");
        let message = response.body["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("'{named}'")), "{message}");
        let response =
            test.get(&format!("{path}/providers/Microsoft.Authorization/permissions")).await;
        assert_eq!(response.body["value"][0]["notActions"], json!([forbidden]));
    }
    test.azure.with(|cloud| cloud.forbidden.clear());
    assert_eq!(test.put(&path, &nic).await.status, 200);
}

#[tokio::test]
async fn faults_apply_until_they_are_cleared() {
    let test = TestAzure::new().await;
    let path = network("loadBalancers/gw");
    let busy = |dated| Rule {
        retry_after: Some(7),
        dated,
        ..Rule::first(
            1,
            "GET loadBalancers",
            Fault::Refuse { status: 429, code: "TooManyRequests".to_owned() },
        )
    };
    test.azure.fault(busy(false));
    let response = test.get(&path).await;
    assert_eq!(
        (response.status, response.code(), response.header("retry-after")),
        (429, "TooManyRequests", Some("7"))
    );
    // The date of `Retry-After` is by the emulated Azure clock, regardless of the local one.
    test.azure.with(|cloud| cloud.skew = -3_600);
    test.azure.fault(busy(true));
    let response = test.get(&path).await;
    let date = |name: &str| httpdate::parse_http_date(response.header(name).unwrap()).unwrap();
    assert_eq!(date("retry-after").duration_since(date("date")).unwrap(), Duration::from_secs(7));
    let behind = std::time::SystemTime::now().duration_since(date("date")).unwrap();
    assert!(behind > Duration::from_secs(3_000), "{behind:?}");

    test.azure.fault(Rule::first(1, "GET *", Fault::Status(502)));
    let response = test.get(&path).await;
    assert_eq!((response.status, response.text.as_str()), (502, "<html>not Azure</html>"));
    assert_eq!(response.header("content-type"), Some("text/html"));
    test.azure.fault(Rule::first(1, "GET loadBalancers", Fault::Cut));
    assert_eq!(test.get(&path).await.text, "");
    test.azure.fault(Rule::first(1, "GET loadBalancers", Fault::Shorten(10)));
    assert_eq!(test.get(&path).await.text.len(), 10);
    test.azure.seed(7);
    test.azure.fault(Rule::first(1, "GET loadBalancers", Fault::Garble));
    let good = test.get(&network("loadBalancers/plain")).await;
    assert_ne!(good.text, test.get(&network("loadBalancers/plain")).await.text);
    test.azure.fault(Rule::always("GET loadBalancers", Fault::Hang));
    let target = format!("{path}?{VERSION}");
    let bearer = format!("Bearer {}", test.token);
    let headers = [("Authorization", bearer.as_str())];
    let (url, ca) = (test.azure.url.clone(), test.azure.ca.clone());
    let request = crate::client::https_request(&url, &ca, "GET", &target, &headers, "");
    let hung = tokio::time::timeout(Duration::from_millis(300), request).await;
    assert!(hung.is_err(), "no response");
    assert_eq!(test.azure.take_calls().last().unwrap().status, 0);
    test.azure.clear_faults();
    assert_eq!(test.get(&path).await.status, 200);
}
