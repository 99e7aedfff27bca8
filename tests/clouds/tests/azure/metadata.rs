//! Tests of the metadata service (instance, load balancers, scheduled events), and of tokens.

use std::time::Duration;

use cloud_emulators::faults::{Fault, Rule};
use serde_json::{Value, json};

use crate::client::{
    ARM, GROUP, HttpResponse, TOKEN, TestAzure, VERSION, http_request, network, pool,
};

#[tokio::test]
async fn the_metadata_service_requires_its_header_and_a_supported_version() {
    let test = TestAzure::new().await;
    let url = test.azure.imds.clone();
    let target = "/metadata/instance?api-version=2021-02-01";
    let response = http_request(&url, "GET", target, &[], "").await;
    assert_eq!(response.status, 400);
    assert_eq!(response.body["error"], "Bad request. Required metadata header not specified");
    let response = http_request(
        &url,
        "GET",
        target,
        &[("Metadata", "true"), ("X-Forwarded-For", "10.0.0.1")],
        "",
    )
    .await;
    assert_eq!(response.status, 400);
    for (target, status) in [
        ("/metadata/instance", 400),
        ("/metadata/instance?api-version=2016-01-01", 400),
        ("/metadata/instance?api-version=soon", 400),
        ("/metadata/instance?api-version=2099-01-01", 400),
        ("/metadata/toasters?api-version=2021-02-01", 404),
        ("/metadata/loadbalancer?api-version=2020-10-01", 404),
        ("/metadata/loadbalancer?api-version=2019-01-01", 400),
    ] {
        assert_eq!(test.get_metadata(target).await.status, status, "{target}");
    }
    assert_eq!(http_request(&url, "POST", target, &[("Metadata", "true")], "").await.status, 405);
    let code = |status| Fault::Refuse { status, code: "slow down".to_owned() };
    for status in [404, 410, 429, 503] {
        test.azure.fault(Rule::first(1, "/metadata/instance", code(status)));
        let response = test.get_metadata(target).await;
        assert_eq!((response.status, &response.body["error"]), (status, &json!("slow down")));
    }
    assert_eq!(test.get_metadata(target).await.status, 200);
    test.azure
        .with(|cloud| cloud.own = "/subscriptions/a/resourceGroups/b/providers/c/d/e".to_owned());
    assert_eq!(test.get_metadata(target).await.status, 410);
}

#[tokio::test]
async fn metadata_lists_the_tunnel_interfaces_of_the_ipv4_and_the_ipv6_pool() {
    let test = TestAzure::new().await;
    let path = network("networkInterfaces/weir-0-data");
    let mut nic = test.get(&path).await.body;
    for (at, name) in [(0, "weir"), (1, "weir6")] {
        let part = &mut nic["properties"]["ipConfigurations"][at]["properties"];
        part["loadBalancerBackendAddressPools"] = json!([{ "id": pool(name) }]);
    }
    assert_eq!(test.put(&path, &nic).await.status, 200);
    let query = || test.get_metadata("/metadata/loadbalancer?api-version=2020-10-01");
    let response = query().await.body["loadbalancer"].clone();
    let rows: Vec<_> = response["tunnelInterfaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            let of = |name: &str| t[name].as_str().unwrap().to_owned();
            (
                of("localIpAddress"),
                of("type"),
                t["localPort"].clone(),
                t["identifier"].clone(),
                of("gatewayIpAddress"),
            )
        })
        .collect();
    let row = |local: &str, kind: &str, port: u16, vni: u32, gateway: &str| {
        (local.to_owned(), kind.to_owned(), json!(port), json!(vni), gateway.to_owned())
    };
    assert_eq!(
        rows,
        [
            row("10.1.0.11", "external", 10801, 801, "10.1.0.4"),
            row("10.1.0.11", "internal", 10800, 800, "10.1.0.4"),
            row("fd00:1::11", "external", 2667, 867, "fd00:1::4"),
            row("fd00:1::11", "internal", 2666, 866, "fd00:1::4"),
        ]
    );
    assert_eq!(response["inboundRules"][0]["protocol"], "all");
    // Tunnel interfaces are returned for a member that the pool lists by IP address too, but not
    // for a member of a pool of a load balancer without the SKU Gateway.
    for part in nic["properties"]["ipConfigurations"].as_array_mut().unwrap() {
        part["properties"]["loadBalancerBackendAddressPools"] = json!([]);
    }
    assert_eq!(test.put(&path, &nic).await.status, 200);
    assert_eq!(query().await.status, 404);
    let member = json!({ "properties": { "loadBalancerBackendAddresses": [{
        "name": "a", "properties": {
            "ipAddress": "10.1.0.11", "virtualNetwork": { "id": network("virtualNetworks/hub") },
        },
    }]}});
    assert_eq!(test.put(&pool("weir"), &member).await.status, 200);
    assert_eq!(query().await.body["loadbalancer"]["tunnelInterfaces"].as_array().unwrap().len(), 1);
    assert_eq!(test.put(&pool("weir"), &json!({})).await.status, 200);
    assert_eq!(
        test.put(&network("loadBalancers/plain/backendAddressPools/weir"), &member).await.status,
        200
    );
    let response = query().await.body["loadbalancer"].clone();
    assert_eq!(
        (&response["tunnelInterfaces"], &response["outboundRules"]),
        (&Value::Null, &json!([]))
    );
}

#[tokio::test]
async fn events_start_when_due_or_when_acknowledged() {
    let test = TestAzure::new().await;
    let target = "/metadata/scheduledevents?api-version=2020-07-01";
    let first = test.get_metadata(target).await.body;
    assert_eq!(first["Events"], json!([]));
    let (notice, minute) = (Duration::from_secs(600), Duration::from_secs(60));
    let id = test.azure.with(|cloud| cloud.schedule("Terminate", "weir-0", notice));
    test.azure.with(|cloud| cloud.schedule("Reboot", "weir-1", notice));
    let response = test.get_metadata(target).await.body;
    assert!(response["DocumentIncarnation"].as_u64() > first["DocumentIncarnation"].as_u64());
    let events = response["Events"].as_array().unwrap();
    assert_eq!(events.len(), 1, "only those of this machine: {response}");
    let one = &events[0];
    assert_eq!(
        (&one["EventType"], &one["EventStatus"]),
        (&json!("Terminate"), &json!("Scheduled"))
    );
    assert_eq!(one["Resources"], json!(["weir-0"]));
    let due = httpdate::parse_http_date(one["NotBefore"].as_str().unwrap()).unwrap();
    let epoch = test.azure.with(|cloud| cloud.epoch);
    let due = due.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(due, Duration::from_secs(epoch) + notice);

    let acknowledge = async |id: &str| {
        let body = json!({ "StartRequests": [{ "EventId": id }] }).to_string();
        http_request(&test.azure.imds, "POST", target, &[("Metadata", "true")], &body).await.status
    };
    assert_eq!(acknowledge("another").await, 400);
    assert_eq!(acknowledge(&id).await, 200);
    let response = test.get_metadata(target).await.body;
    assert_eq!(response["Events"][0]["EventStatus"], "Started");
    assert_eq!(response["Events"][0]["NotBefore"], "");
    test.azure.advance(minute);
    assert_eq!(
        test.get_metadata(target).await.body["Events"],
        json!([]),
        "the event is removed one minute after it started"
    );
    // Machines of a scale set see each other's events.
    test.azure.with(|cloud| cloud.schedule("Freeze", "weirs_1", minute));
    let sets = format!("{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets");
    let first = format!("{sets}/weirs/virtualMachines/0");
    let url = test.azure.machine(&first).await.unwrap();
    let response = http_request(&url, "GET", target, &[("Metadata", "true")], "").await.body;
    assert_eq!(response["Events"][0]["Resources"], json!(["weirs_1"]));
    // The Reboot event of weir-1 was not acknowledged; it starts when its notice period ends.
    let other = format!("{GROUP}/providers/Microsoft.Compute/virtualMachines/weir-1");
    let url = test.azure.machine(&other).await.unwrap();
    let status = async || {
        let response = http_request(&url, "GET", target, &[("Metadata", "true")], "").await.body;
        response["Events"][0]["EventStatus"].as_str().unwrap().to_owned()
    };
    assert_eq!(status().await, "Scheduled");
    test.azure.advance(notice - minute);
    assert_eq!(status().await, "Started");
}

#[tokio::test]
async fn managed_identities_and_applications_obtain_tokens() {
    let test = TestAzure::new().await;
    let token = |more: &str| format!("{TOKEN}{more}");
    let response = test.get_metadata(&token(&format!("&{ARM}"))).await;
    for member in ["expires_in", "expires_on", "ext_expires_in", "not_before"] {
        let number = response.body[member].as_str().unwrap();
        assert!(number.parse::<u64>().is_ok(), "{member} is {number}");
    }
    assert_eq!(response.body["expires_in"], "86400");
    // If Azure's clock is ahead, the times of tokens are ahead.
    let number = |response: &HttpResponse, member: &str| -> u64 {
        response.body[member].as_str().unwrap().parse().unwrap()
    };
    assert_eq!(number(&response, "expires_on") - number(&response, "not_before"), 86_400);
    test.azure.with(|cloud| cloud.skew = 5_000);
    let ahead = test.get_metadata(&token(&format!("&{ARM}"))).await;
    assert_eq!(number(&ahead, "expires_on"), number(&response, "expires_on") + 5_000);
    let second = "&client_id=00000000-0000-0000-0000-0000000000d2";
    let response = test.get_metadata(&token(&format!("&{ARM}{second}"))).await;
    assert_eq!(response.body["client_id"], "00000000-0000-0000-0000-0000000000d2");
    let response = test.get_metadata(&token(&format!("&{ARM}&client_id=unknown"))).await;
    assert_eq!((response.status, &response.body["error"]), (400, &json!("invalid_request")));
    assert_eq!(response.body["error_description"], "Identity not found");
    assert_eq!(test.get_metadata(&token("")).await.status, 400);

    let tenant = test.azure.with(|cloud| cloud.tenant.clone());
    let client = "00000000-0000-0000-0000-0000000000a1";
    let scope = "https%3A%2F%2Fmanagement.azure.com%2F.default";
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let log_in = async |tenant: &str, rest: &str| -> HttpResponse {
        let body = format!("grant_type=client_credentials&client_id={client}&scope={scope}&{rest}");
        test.request("POST", &format!("/{tenant}/oauth2/v2.0/token"), &form, &body).await
    };
    let kind = "urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";
    for (rest, error) in [
        ("client_secret=not+so+secret".to_owned(), None),
        (format!("client_assertion_type={kind}&client_assertion=a+workload"), None),
        ("client_secret=other".to_owned(), Some((401, "invalid_client"))),
        (
            format!("client_assertion_type={kind}&client_assertion=other"),
            Some((401, "invalid_client")),
        ),
        ("grant_type=password".to_owned(), Some((400, "unsupported_grant_type"))),
    ] {
        let response = log_in(&tenant, &rest).await;
        let Some((status, error)) = error else {
            let bearer = format!("Bearer {}", response.body["access_token"].as_str().unwrap());
            let target = format!("{}?{VERSION}", network("loadBalancers"));
            let response = test.request("GET", &target, &[("Authorization", &bearer)], "").await;
            assert_eq!(response.status, 200, "{}", response.text);
            continue;
        };
        assert_eq!((response.status, &response.body["error"]), (status, &json!(error)), "{rest}");
    }
    assert_eq!(log_in("other", "client_secret=not+so+secret").await.status, 400);
    // A token for another audience is rejected.
    let response = test.get_metadata(&token("&resource=https%3A%2F%2Fvault.azure.net")).await;
    let bearer = format!("Bearer {}", response.body["access_token"].as_str().unwrap());
    let target = format!("{}?{VERSION}", network("loadBalancers"));
    let response = test.request("GET", &target, &[("Authorization", &bearer)], "").await;
    assert_eq!((response.status, response.code()), (401, "InvalidAuthenticationTokenAudience"));
}
