//! Resources: authentication, reads, lists, writes, ETags.

use serde_json::{Value, json};
use standins::azure::World;

use crate::client::{GROUP, SUB, Side, VERSION, network, pool, secure};

#[tokio::test]
async fn only_its_own_authority_is_believed_and_only_a_good_token_is_admitted() {
    let side = Side::new().await;
    let other = Side::new().await;
    let target = format!("{}?{VERSION}", network("loadBalancers"));
    let wrong = secure(&side.azure.url, &other.azure.ca, "GET", &target, &[], "").await;
    assert!(wrong.unwrap_err().to_string().contains("certificate"));

    let said = side.ask("GET", &target, &[], "").await;
    assert_eq!((said.status, said.code()), (401, "AuthenticationFailed"));
    let challenge = said.header("www-authenticate").unwrap();
    assert!(challenge.starts_with("Bearer authorization_uri=\"https://"), "{challenge}");
    let said = side.ask("GET", &target, &[("Authorization", "Bearer mine")], "").await;
    assert_eq!((said.status, said.code()), (401, "InvalidAuthenticationToken"));
    assert_eq!(side.get(&network("loadBalancers")).await.status, 200);
    side.azure.advance(std::time::Duration::from_secs(86_400));
    let said = side.get(&network("loadBalancers")).await;
    assert_eq!((said.status, said.code()), (401, "ExpiredAuthenticationToken"));
}

#[tokio::test]
async fn what_is_not_there_is_said_by_what_is_missing() {
    let side = Side::new().await;
    let said = side.get(&format!("{}?x=1", network("loadBalancers/gw"))).await;
    assert_eq!((said.status, said.code()), (400, "MissingApiVersionParameter"));
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
        let said = side.get(&path).await;
        assert_eq!((said.status, said.code()), (status, code), "{path}: {}", said.text);
    }
    let shouted =
        network("loadBalancers/gw").to_uppercase().replacen("/SUBSCRIPTIONS", "/subscriptions", 1);
    assert_eq!(side.get(&shouted).await.body["name"], "gw");
    assert_eq!(side.delete(&pool("none")).await.status, 204);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let mut world = World::sample();
    world.page = Some(1);
    let side = Side::of(world).await;
    let mut link = format!("{}{}?{VERSION}", side.azure.url, network("networkInterfaces"));
    let mut names = Vec::new();
    loop {
        let said = side.follow(&link).await;
        let page = said.body["value"].as_array().unwrap();
        assert_eq!(page.len(), 1);
        names.push(page[0]["name"].as_str().unwrap().to_owned());
        match said.body["nextLink"].as_str() {
            Some(next) => link = next.to_owned(),
            None => break,
        }
    }
    names.sort();
    assert_eq!(names, ["weir-0-data", "weir-0-management", "weir-1-data", "weir-1-management"]);
    let all = side.get(&format!("{SUB}/providers/Microsoft.Network/loadBalancers")).await;
    assert!(all.body["nextLink"].is_string(), "of the whole subscription too: {}", all.text);
    assert_eq!(side.azure.take_calls()[0].operation, "LIST networkInterfaces");
}

#[tokio::test]
async fn every_write_changes_the_etag_and_an_old_one_is_refused() {
    let side = Side::new().await;
    let first = side.get(&pool("weir")).await;
    let etag = first.header("etag").unwrap().to_owned();
    assert_eq!(first.body["etag"], etag.as_str());
    let said = side.put_if(&pool("weir"), &first.body, &etag).await;
    assert_eq!(said.status, 200, "{}", said.text);
    assert_ne!(said.body["etag"], etag.as_str());
    let late = side.put_if(&pool("weir"), &first.body, &etag).await;
    assert_eq!((late.status, late.code()), (412, "PreconditionFailed"));
    let calls = side.azure.take_calls();
    assert_eq!(calls[1].headers["if-match"], etag);
    assert_eq!(calls[1].headers["authorization"], "Bearer");
    assert_eq!(
        (calls[2].operation.as_str(), calls[2].status),
        ("PUT loadBalancers/backendAddressPools", 412)
    );
}

#[tokio::test]
async fn an_interface_that_joins_is_shown_by_the_pool() {
    let side = Side::new().await;
    let path = network("networkInterfaces/weir-0-data");
    let mut nic = side.get(&path).await.body;
    assert_eq!(nic["properties"]["macAddress"], "00-22-48-0A-01-0B");
    let four = &mut nic["properties"]["ipConfigurations"][0]["properties"];
    four["loadBalancerBackendAddressPools"] = json!([{ "id": pool("weir") }]);
    let said = side.put(&path, &nic).await;
    assert_eq!(said.status, 200, "{}", said.text);
    let pool = side.get(&pool("weir")).await.body;
    let configuration = format!("{path}/ipConfigurations/ipconfig1");
    assert_eq!(pool["properties"]["backendIPConfigurations"], json!([{ "id": configuration }]));
    let entry = &pool["properties"]["loadBalancerBackendAddresses"][0];
    assert_eq!(entry["name"], "north_weir-0-dataipconfig1");
    assert_eq!(
        entry["properties"]["networkInterfaceIPConfiguration"]["id"],
        configuration.as_str()
    );
    // The metadata shows it at once.
    let told = side.machine("/metadata/loadbalancer?api-version=2020-10-01").await;
    let tunnels = told.body["loadbalancer"]["tunnelInterfaces"].as_array().unwrap().clone();
    assert_eq!(tunnels.len(), 2);
    assert_eq!(tunnels[0]["localIpAddress"], "10.1.0.11");
    assert_eq!(tunnels[0]["type"], "external");

    nic["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] =
        Value::Null;
    assert_eq!(side.put(&path, &nic).await.status, 200);
    let told = side.machine("/metadata/loadbalancer?api-version=2020-10-01").await;
    assert_eq!(told.status, 404);
}

#[tokio::test]
async fn the_machine_is_told_who_it_is() {
    let side = Side::new().await;
    let told = side.machine("/metadata/instance?api-version=2021-02-01").await.body;
    assert_eq!(told["compute"]["name"], "weir-0");
    assert_eq!(
        told["compute"]["resourceId"],
        format!("{GROUP}/providers/Microsoft.Compute/virtualMachines/weir-0")
    );
    let data = &told["network"]["interface"][1];
    assert_eq!(data["macAddress"], "0022480A010B");
    assert_eq!(data["ipv4"]["ipAddress"][0]["privateIpAddress"], "10.1.0.11");
    assert_eq!(data["ipv6"]["ipAddress"][0]["privateIpAddress"], "fd00:1::11");
}
