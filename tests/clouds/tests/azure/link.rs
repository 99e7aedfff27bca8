//! Tests of Private Link: services, endpoints, connections, subnets, and DNS zones.

use cloud_emulators::azure::AzureState;
use cloud_emulators::azure::operation::{End, Outcome};
use serde_json::{Value, json};

use crate::client::{GROUP, HttpResponse, SUB, TestAzure, network};

const OTHER: &str = "/subscriptions/00000000-0000-0000-0000-0000000000bb/resourceGroups/south";

fn subnet(name: &str) -> String {
    network(&format!("virtualNetworks/hub/subnets/{name}"))
}

/// Returns the body of a subnet for a service, with policies disabled.
fn nat_subnet_body() -> Value {
    json!({ "properties": {
        "addressPrefix": "10.1.7.0/24", "privateLinkServiceNetworkPolicies": "Disabled",
    }})
}

fn service_body(approved: &[&str]) -> Value {
    let visible = ["00000000-0000-0000-0000-0000000000bb"];
    json!({ "location": "westeurope", "properties": {
        "visibility": { "subscriptions": visible }, "autoApproval": { "subscriptions": approved },
        "loadBalancerFrontendIpConfigurations":
            [{ "id": network("loadBalancers/plain/frontendIPConfigurations/front") }],
        "ipConfigurations": [{ "name": "nat", "properties": {
            "primary": true, "privateIPAllocationMethod": "Dynamic",
            "privateIPAddressVersion": "IPv4", "subnet": { "id": subnet("nat") },
        }}],
    }})
}

fn endpoint_body(service: &str) -> Value {
    let subnet =
        format!("{OTHER}/providers/Microsoft.Network/virtualNetworks/guest/subnets/inside");
    json!({ "location": "westeurope", "properties": {
        "subnet": { "id": subnet },
        "manualPrivateLinkServiceConnections": [{ "name": "one", "properties": {
            "privateLinkServiceId": service, "requestMessage": "let us in",
        }}],
    }})
}

/// Starts an emulator with a second subscription that has a network, and a service with its subnet.
async fn test(approved: &[&str]) -> (TestAzure, HttpResponse) {
    let mut cloud = AzureState::sample();
    cloud.groups.push(OTHER.to_owned());
    let test = TestAzure::of(cloud).await;
    let guest = format!("{OTHER}/providers/Microsoft.Network/virtualNetworks/guest");
    let body = json!({ "location": "westeurope", "properties": {
        "addressSpace": { "addressPrefixes": ["10.9.0.0/16"] },
        "subnets": [{ "name": "inside", "properties": { "addressPrefix": "10.9.3.0/24" } }],
    }});
    assert_eq!(test.put(&guest, &body).await.status, 201);
    assert_eq!(test.put(&subnet("nat"), &nat_subnet_body()).await.status, 201);
    let response = test.put(&network("privateLinkServices/pls"), &service_body(approved)).await;
    assert_eq!(response.status, 201, "{}", response.text);
    (test, response)
}

/// Returns the path of an endpoint in the second subscription.
fn path_of(name: &str) -> String {
    format!("{OTHER}/providers/Microsoft.Network/privateEndpoints/{name}")
}

fn state(endpoint: &Value) -> &str {
    let connection = &endpoint["properties"]["manualPrivateLinkServiceConnections"][0];
    connection["properties"]["privateLinkServiceConnectionState"]["status"].as_str().unwrap()
}

#[tokio::test]
async fn a_service_requires_a_subnet_without_policies_and_a_standard_frontend() {
    let test = TestAzure::new().await;
    let path = network("privateLinkServices/pls");
    let response = test.put(&path, &service_body(&[])).await;
    assert_eq!(
        (response.status, response.code()),
        (400, "InvalidResourceReference"),
        "no subnet yet"
    );
    let mut with = nat_subnet_body();
    with["properties"]["privateLinkServiceNetworkPolicies"] = Value::Null;
    with["properties"].as_object_mut().unwrap().remove("privateLinkServiceNetworkPolicies");
    let response = test.put(&subnet("nat"), &with).await;
    assert_eq!(response.body["properties"]["privateLinkServiceNetworkPolicies"], "Enabled");
    let response = test.put(&path, &service_body(&[])).await;
    let code = "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled";
    assert_eq!((response.status, response.code()), (400, code));
    assert_eq!(test.put(&subnet("nat"), &nat_subnet_body()).await.status, 200);
    let mut gateway = service_body(&[]);
    gateway["properties"]["loadBalancerFrontendIpConfigurations"][0]["id"] =
        network("loadBalancers/gw/frontendIPConfigurations/front").into();
    assert_eq!(
        test.put(&path, &gateway).await.code(),
        "PrivateLinkServiceNeedsStandardLoadBalancer"
    );
    let response = test.put(&path, &service_body(&[])).await;
    assert_eq!(response.status, 201, "{}", response.text);
    let alias = response.body["properties"]["alias"].as_str().unwrap();
    assert!(alias.starts_with("pls."), "{alias}");
    assert!(alias.ends_with(".westeurope.azure.privatelinkservice"), "{alias}");
    let address = &response.body["properties"]["ipConfigurations"][0]["properties"];
    assert_eq!(address["privateIPAddress"], "10.1.7.4");
    let again = test.put(&path, &service_body(&[])).await;
    assert_eq!(again.body["properties"]["alias"], alias, "an alias stays");
    // Subnet and load balancer are in use and cannot be deleted.
    assert_eq!(test.delete(&subnet("nat")).await.code(), "InUseSubnetCannotBeDeleted");
    let response = test.delete(&network("loadBalancers/plain")).await;
    assert_eq!(response.code(), "CannotDeleteLoadBalancerWithPrivateLinkService");
}

#[tokio::test]
async fn an_endpoint_is_pending_until_approved_and_shows_rejection_and_removal() {
    let (test, created) = test(&[]).await;
    let alias = created.body["properties"]["alias"].as_str().unwrap();
    let response = test.put(&path_of("pe"), &endpoint_body(alias)).await;
    assert_eq!((response.status, state(&response.body)), (201, "Pending"), "{}", response.text);
    let nic =
        response.body["properties"]["networkInterfaces"][0]["id"].as_str().unwrap().to_owned();
    let nic = test.get(&nic).await.body;
    assert_eq!(
        nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"],
        "10.9.3.4"
    );

    let list = network("privateLinkServices/pls/privateEndpointConnections");
    let all = test.get(&list).await.body["value"].clone();
    let mut one = all[0].clone();
    let connection = format!("{list}/{}", one["name"].as_str().unwrap());
    assert_eq!(one["properties"]["privateLinkServiceConnectionState"]["description"], "let us in");
    for status in ["Approved", "Rejected", "Approved"] {
        one["properties"]["privateLinkServiceConnectionState"] =
            json!({ "status": status, "description": "ours" });
        assert_eq!(test.put(&connection, &one).await.status, 200);
        assert_eq!(state(&test.get(&path_of("pe")).await.body), status);
    }
    let unknown = test.put(&format!("{list}/other"), &one).await;
    assert_eq!(unknown.code(), "PrivateEndpointConnectionCannotBeCreatedByServiceProvider");
    let pls = network("privateLinkServices/pls");
    let code = "PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted";
    assert_eq!(test.delete(&pls).await.code(), code);
    // A write of the service keeps its connections.
    assert_eq!(test.put(&pls, &service_body(&[])).await.status, 200);
    assert_eq!(state(&test.get(&path_of("pe")).await.body), "Approved");
    assert_eq!(test.delete(&connection).await.status, 200);
    assert_eq!(state(&test.get(&path_of("pe")).await.body), "Disconnected");
    assert_eq!(test.delete(&pls).await.status, 200);
    assert_eq!(test.get(&pls).await.status, 404);
}

#[tokio::test]
async fn an_auto_approved_endpoint_connects_at_once_and_is_removed_completely() {
    let (test, created) = test(&["00000000-0000-0000-0000-0000000000bb"]).await;
    let alias = created.body["properties"]["alias"].as_str().unwrap();
    let response = test.put(&path_of("pe"), &endpoint_body(alias)).await;
    assert_eq!(state(&response.body), "Approved");
    assert_eq!(
        response.body["properties"]["customDnsConfigs"],
        json!([]),
        "the service has no names"
    );
    let nic =
        response.body["properties"]["networkInterfaces"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(test.delete(&nic).await.code(), "NicInUseWithPrivateEndpoint");
    assert_eq!(test.delete(&path_of("pe")).await.status, 200);
    assert_eq!(test.get(&nic).await.status, 404);
    let list = network("privateLinkServices/pls/privateEndpointConnections");
    assert_eq!(test.get(&list).await.body["value"], json!([]));
    let mut named = service_body(&["*"]);
    named["properties"]["fqdns"] = json!(["north.test"]);
    assert_eq!(test.put(&network("privateLinkServices/pls"), &named).await.status, 200);
    let response = test.put(&path_of("named"), &endpoint_body(alias)).await;
    let names = json!([{ "fqdn": "north.test", "ipAddresses": ["10.9.3.4"] }]);
    assert_eq!(response.body["properties"]["customDnsConfigs"], names);
}

#[tokio::test]
async fn an_alias_is_visible_to_listed_subscriptions_only() {
    let (test, created) = test(&[]).await;
    let alias = created.body["properties"]["alias"].as_str().unwrap();
    let is_visible = async |subscription: &str| {
        let location = "providers/Microsoft.Network/locations/westeurope";
        let path =
            format!("/subscriptions/{subscription}/{location}/checkPrivateLinkServiceVisibility");
        test.post(&path, &json!({ "privateLinkServiceAlias": alias })).await.body["visible"].clone()
    };
    assert_eq!(is_visible("00000000-0000-0000-0000-0000000000bb").await, true);
    test.azure.with(|cloud| {
        let pls = cloud.find_mut(&network("privateLinkServices/pls")).unwrap();
        pls.body["properties"]["visibility"]["subscriptions"] = json!([]);
    });
    assert_eq!(is_visible("00000000-0000-0000-0000-0000000000bb").await, false);
    assert_eq!(is_visible(SUB.rsplit('/').next().unwrap()).await, true, "its own always");
    let response = test.put(&path_of("pe"), &endpoint_body(alias)).await;
    assert_eq!((response.status, response.code()), (400, "InvalidResourceReference"));
}

#[tokio::test]
async fn subnets_are_within_their_network_and_do_not_overlap() {
    let test = TestAzure::new().await;
    for (prefix, code) in [
        ("10.1.1.128/25", "NetcfgSubnetRangesOverlap"),
        ("10.2.0.0/24", "NetcfgSubnetRangeOutsideVnet"),
        ("10.1.7.1/24", "InvalidCIDRNotation"),
        ("fd00:1:0:1::/80", "NetcfgSubnetRangesOverlap"),
    ] {
        let body = json!({ "properties": { "addressPrefix": prefix } });
        assert_eq!(test.put(&subnet("new"), &body).await.code(), code, "{prefix}");
    }
    assert_eq!(test.put(&subnet("new"), &nat_subnet_body()).await.status, 201);
    assert_eq!(
        test.get(&network("virtualNetworks/hub")).await.body["properties"]["subnets"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert_eq!(test.delete(&subnet("new")).await.status, 200);
    assert_eq!(test.delete(&subnet("data")).await.code(), "InUseSubnetCannotBeDeleted");
}

#[tokio::test]
async fn zones_hold_records_and_a_network_links_to_one_zone_of_a_name() {
    let test = TestAzure::new().await;
    let zone =
        |group: &str| format!("{group}/providers/Microsoft.Network/privateDnsZones/north.test");
    test.azure.with(|cloud| cloud.groups.push(OTHER.to_owned()));
    let own = zone(GROUP);
    let record =
        json!({ "properties": { "ttl": 300, "aRecords": [{ "ipv4Address": "10.9.3.4" }] } });
    let response = test.put(&format!("{own}/A/api"), &record).await;
    assert_eq!((response.status, response.code()), (404, "ParentResourceNotFound"));
    for group in [GROUP, OTHER] {
        assert_eq!(test.put(&zone(group), &json!({ "location": "global" })).await.status, 201);
    }
    assert_eq!(test.put(&format!("{own}/A/*.apps"), &record).await.status, 201);
    assert_eq!(
        test.get(&format!("{own}/A/*.apps")).await.body["properties"]["fqdn"],
        "*.apps.north.test."
    );
    assert_eq!(test.get(&format!("{own}/A/%2A.apps")).await.body["name"], "*.apps");
    assert_eq!(test.get(&format!("{own}/A/%2.apps%")).await.code(), "NotFound");
    let claim = json!({ "properties": { "ttl": 60, "txtRecords": [{ "value": ["ours"] }] } });
    let response = test.put(&format!("{own}/TXT/weir"), &claim).await.body;
    assert_eq!(response["properties"]["txtRecords"][0]["value"], json!(["ours"]));
    assert_eq!(response["properties"]["provisioningState"], Value::Null);
    let names = |response: HttpResponse| {
        let all = response.body["value"].as_array().unwrap().clone();
        all.iter().map(|r| r["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(test.get(&format!("{own}/A")).await), ["*.apps"]);
    assert_eq!(names(test.get(&format!("{own}/ALL")).await), ["@", "*.apps", "weir"]);
    let bad = json!({ "properties": { "ttl": 300, "aRecords": [{ "ipv4Address": "fd00::1" }] } });
    assert_eq!(test.put(&format!("{own}/A/six"), &bad).await.code(), "BadRequest");

    let link = json!({ "location": "global", "properties": {
        "virtualNetwork": { "id": network("virtualNetworks/hub") }, "registrationEnabled": false,
    }});
    assert_eq!(test.put(&format!("{own}/virtualNetworkLinks/hub"), &link).await.status, 201);
    // The conflict of the second link is detected while its operation runs.
    let response = test.put(&format!("{}/virtualNetworkLinks/hub", zone(OTHER)), &link).await;
    let poll = response.header("azure-asyncoperation").unwrap().to_owned();
    test.azure.advance(std::time::Duration::ZERO);
    let end = test.follow(&poll).await.body;
    assert_eq!(end["status"], "Failed");
    assert!(end["error"]["message"].as_str().unwrap().contains("overlapping namespaces"), "{end}");
    assert_eq!(test.delete(&own).await.code(), "CannotDeleteResource");
    assert_eq!(test.delete(&format!("{own}/virtualNetworkLinks/hub")).await.status, 200);
    assert_eq!(test.delete(&own).await.status, 200, "its records go with it");
    assert_eq!(test.get(&format!("{own}/A/*.apps")).await.status, 404);
}

#[tokio::test]
async fn a_long_running_service_write_reports_its_state_at_every_step() {
    let (test, _) = test(&[]).await;
    let pls = network("privateLinkServices/pls");
    test.azure.with(|cloud| {
        cloud.pace = std::time::Duration::from_secs(30);
        cloud.outcomes = vec![Outcome {
            operation: "PUT privateLinkServices".to_owned(),
            end: End::Fail { code: "InternalServerError".to_owned(), message: "Sorry.".to_owned() },
            times: Some(1),
        }];
    });
    let mut changed = service_body(&[]);
    changed["properties"]["enableProxyProtocol"] = true.into();
    let response = test.put(&pls, &changed).await;
    assert_eq!(response.body["properties"]["provisioningState"], "Updating");
    let poll = response.header("azure-asyncoperation").unwrap().to_owned();
    assert_eq!(test.delete(&pls).await.code(), "AnotherOperationInProgress");
    test.azure.advance(std::time::Duration::from_secs(30));
    let end = test.follow(&poll).await.body;
    assert_eq!(end["error"]["code"], "InternalServerError");
    let now = test.get(&pls).await.body;
    assert_eq!(now["properties"]["provisioningState"], "Failed");
    assert_eq!(now["properties"]["enableProxyProtocol"], false, "the previous value is restored");
    // As in Microsoft's example, a service's deletion is polled by Azure-AsyncOperation.
    let response = test.delete(&pls).await;
    assert_eq!((response.status, response.header("location")), (202, None));
    let poll = response.header("azure-asyncoperation").unwrap().to_owned();
    assert_eq!(test.get(&pls).await.body["properties"]["provisioningState"], "Deleting");
    test.azure.advance(std::time::Duration::from_secs(30));
    assert_eq!(test.follow(&poll).await.body["status"], "Succeeded");
    assert_eq!(test.get(&pls).await.status, 404);
}
