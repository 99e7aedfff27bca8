//! Tests of resources: authentication, reads, lists, writes, ETags.

use cloud_emulators::azure::AzureState;
use serde_json::{Value, json};

use crate::client::{GROUP, SUB, TestAzure, VERSION, https_request, network, pool};

#[tokio::test]
async fn clients_need_the_certificate_authority_and_a_valid_token() {
    let test = TestAzure::new().await;
    let other = TestAzure::new().await;
    let target = format!("{}?{VERSION}", network("loadBalancers"));
    let wrong = https_request(&test.azure.url, &other.azure.ca, "GET", &target, &[], "").await;
    assert!(wrong.unwrap_err().to_string().contains("certificate"));

    let response = test.request("GET", &target, &[], "").await;
    assert_eq!((response.status, response.code()), (401, "AuthenticationFailed"));
    let challenge = response.header("www-authenticate").unwrap();
    assert!(challenge.starts_with("Bearer authorization_uri=\"https://"), "{challenge}");
    let response = test.request("GET", &target, &[("Authorization", "Bearer mine")], "").await;
    assert_eq!((response.status, response.code()), (401, "InvalidAuthenticationToken"));
    assert_eq!(test.get(&network("loadBalancers")).await.status, 200);
    test.azure.advance(std::time::Duration::from_secs(86_400));
    let response = test.get(&network("loadBalancers")).await;
    assert_eq!((response.status, response.code()), (401, "ExpiredAuthenticationToken"));
}

#[tokio::test]
async fn the_error_code_names_what_is_absent() {
    let test = TestAzure::new().await;
    let response = test.get(&format!("{}?x=1", network("loadBalancers/gw"))).await;
    assert_eq!((response.status, response.code()), (400, "MissingApiVersionParameter"));
    for (path, status, code) in [
        (network("loadBalancers/none"), 404, "ResourceNotFound"),
        (pool("none"), 404, "NotFound"),
        (
            format!("{SUB}/resourceGroups/south/providers/Microsoft.Network/loadBalancers"),
            404,
            "ResourceGroupNotFound",
        ),
        (
            "/subscriptions/other/providers/Microsoft.Network/loadBalancers".to_owned(),
            404,
            "SubscriptionNotFound",
        ),
        (network("toasters/one"), 404, "InvalidResourceType"),
    ] {
        let response = test.get(&path).await;
        assert_eq!((response.status, response.code()), (status, code), "{path}: {}", response.text);
    }
    let upper_case =
        network("loadBalancers/gw").to_uppercase().replacen("/SUBSCRIPTIONS", "/subscriptions", 1);
    assert_eq!(test.get(&upper_case).await.body["name"], "gw");
    assert_eq!(test.delete(&pool("none")).await.status, 204);
}

#[tokio::test]
async fn lists_are_paged() {
    let mut cloud = AzureState::sample();
    cloud.page = Some(1);
    let test = TestAzure::of(cloud).await;
    let mut link = format!("{}{}?{VERSION}", test.azure.url, network("networkInterfaces"));
    let mut names = Vec::new();
    loop {
        let response = test.follow(&link).await;
        let page = response.body["value"].as_array().unwrap();
        assert_eq!(page.len(), 1);
        names.push(page[0]["name"].as_str().unwrap().to_owned());
        match response.body["nextLink"].as_str() {
            Some(next) => link = next.to_owned(),
            None => break,
        }
    }
    names.sort();
    assert_eq!(names, ["weir-0-data", "weir-0-management", "weir-1-data", "weir-1-management"]);
    let all = test.get(&format!("{SUB}/providers/Microsoft.Network/loadBalancers")).await;
    assert!(all.body["nextLink"].is_string(), "of the entire subscription too: {}", all.text);
    assert_eq!(test.azure.take_calls()[0].operation, "LIST networkInterfaces");
}

#[tokio::test]
async fn every_write_changes_the_etag_and_a_stale_one_is_rejected() {
    let test = TestAzure::new().await;
    let first = test.get(&pool("weir")).await;
    let etag = first.header("etag").unwrap().to_owned();
    assert_eq!(first.body["etag"], etag.as_str());
    let response = test.put_if(&pool("weir"), &first.body, &etag).await;
    assert_eq!(response.status, 200, "{}", response.text);
    assert_ne!(response.body["etag"], etag.as_str());
    let late = test.put_if(&pool("weir"), &first.body, &etag).await;
    assert_eq!((late.status, late.code()), (412, "PreconditionFailed"));
    let calls = test.azure.take_calls();
    assert_eq!(calls[1].headers["if-match"], etag);
    assert_eq!(calls[1].headers["authorization"], "Bearer");
    assert_eq!(
        (calls[2].operation.as_str(), calls[2].status),
        ("PUT loadBalancers/backendAddressPools", 412)
    );
}

#[tokio::test]
async fn an_interface_that_joins_is_shown_by_the_pool() {
    let test = TestAzure::new().await;
    let path = network("networkInterfaces/weir-0-data");
    let mut nic = test.get(&path).await.body;
    assert_eq!(nic["properties"]["macAddress"], "00-22-48-0A-01-0B");
    let four = &mut nic["properties"]["ipConfigurations"][0]["properties"];
    four["loadBalancerBackendAddressPools"] = json!([{ "id": pool("weir") }]);
    let response = test.put(&path, &nic).await;
    assert_eq!(response.status, 200, "{}", response.text);
    let pool = test.get(&pool("weir")).await.body;
    let configuration = format!("{path}/ipConfigurations/ipconfig1");
    assert_eq!(pool["properties"]["backendIPConfigurations"], json!([{ "id": configuration }]));
    let entry = &pool["properties"]["loadBalancerBackendAddresses"][0];
    assert_eq!(entry["name"], "north_weir-0-dataipconfig1");
    assert_eq!(
        entry["properties"]["networkInterfaceIPConfiguration"]["id"],
        configuration.as_str()
    );
    // The metadata service shows the pool's tunnels at once.
    let response = test.get_metadata("/metadata/loadbalancer?api-version=2020-10-01").await;
    let tunnels = response.body["loadbalancer"]["tunnelInterfaces"].as_array().unwrap().clone();
    assert_eq!(tunnels.len(), 2);
    assert_eq!(tunnels[0]["localIpAddress"], "10.1.0.11");
    assert_eq!(tunnels[0]["type"], "external");

    nic["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] =
        Value::Null;
    assert_eq!(test.put(&path, &nic).await.status, 200);
    let response = test.get_metadata("/metadata/loadbalancer?api-version=2020-10-01").await;
    assert_eq!(response.status, 404);
}

#[tokio::test]
async fn the_metadata_service_reports_the_machines_identity() {
    let test = TestAzure::new().await;
    let response = test.get_metadata("/metadata/instance?api-version=2021-02-01").await.body;
    assert_eq!(response["compute"]["name"], "weir-0");
    assert_eq!(
        response["compute"]["resourceId"],
        format!("{GROUP}/providers/Microsoft.Compute/virtualMachines/weir-0")
    );
    let data = &response["network"]["interface"][1];
    assert_eq!(data["macAddress"], "0022480A010B");
    assert_eq!(data["ipv4"]["ipAddress"][0]["privateIpAddress"], "10.1.0.11");
    assert_eq!(data["ipv6"]["ipAddress"][0]["privateIpAddress"], "fd00:1::11");
}
