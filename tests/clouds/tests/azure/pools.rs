//! Tests of load balancers and pools: members of both kinds, tunnels, and probes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{GROUP, TestAzure, network, pool};

fn address(name: &str, address: &str) -> Value {
    json!({ "name": name, "properties": {
        "ipAddress": address, "virtualNetwork": { "id": network("virtualNetworks/hub") },
    }})
}

fn tunnel(kind: &str, port: u64, identifier: u64) -> Value {
    json!({ "type": kind, "protocol": "VXLAN", "port": port, "identifier": identifier })
}

fn pool_body(addresses: &[Value], tunnels: &[Value]) -> Value {
    json!({ "properties": {
        "loadBalancerBackendAddresses": addresses, "tunnelInterfaces": tunnels,
    }})
}

/// Adds an interface's first IP configuration to these pools, and removes it from all others.
async fn join(test: &TestAzure, nic: &str, pools: &[&str]) -> crate::client::HttpResponse {
    let path = network(&format!("networkInterfaces/{nic}"));
    let mut body = test.get(&path).await.body;
    let refer: Vec<Value> = pools.iter().map(|p| json!({ "id": pool(p) })).collect();
    body["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] =
        refer.into();
    test.put(&path, &body).await
}

#[tokio::test]
async fn a_put_replaces_the_whole_pool() {
    let test = TestAzure::new().await;
    let two = [tunnel("External", 10801, 801), tunnel("Internal", 10800, 800)];
    let full = pool_body(&[address("a", "10.1.0.11"), address("b", "10.1.0.12")], &two);
    let response = test.put(&pool("weir"), &full).await.body;
    assert_eq!(response["properties"]["loadBalancerBackendAddresses"].as_array().unwrap().len(), 2);
    assert_eq!(response["properties"]["tunnelInterfaces"].as_array().unwrap().len(), 2);
    // Tunnels and addresses that are left out are removed.
    let response = test.put(&pool("weir"), &json!({ "properties": {} })).await.body;
    assert_eq!(response["properties"]["loadBalancerBackendAddresses"], Value::Null);
    let tunnels = &response["properties"]["tunnelInterfaces"];
    assert_eq!(tunnels, &test.azure.with(|cloud| cloud.tunnels.clone()));
    assert_eq!(
        response["properties"]["loadBalancingRules"].as_array().unwrap().len(),
        1,
        "derived"
    );
}

#[tokio::test]
async fn a_put_of_the_load_balancer_does_not_change_pool_addresses() {
    let test = TestAzure::new().await;
    assert_eq!(
        test.put(&pool("weir"), &pool_body(&[address("a", "10.1.0.11")], &[])).await.status,
        200
    );
    let path = network("loadBalancers/gw");
    let mut lb = test.get(&path).await.body;
    let pools = lb["properties"]["backendAddressPools"].as_array_mut().unwrap();
    pools[0]["properties"]["loadBalancerBackendAddresses"] = json!([]);
    pools[1]["properties"]["loadBalancerBackendAddresses"] = json!([address("b", "10.1.0.12")]);
    let response = test.put(&path, &lb).await;
    assert_eq!(response.status, 200, "{}", response.text);
    let stored = test.get(&pool("weir")).await.body;
    assert_eq!(stored["properties"]["loadBalancerBackendAddresses"][0]["name"], "a");
    let other = test.get(&pool("weir6")).await.body;
    assert_eq!(other["properties"]["loadBalancerBackendAddresses"], Value::Null);

    lb["sku"]["name"] = "Standard".into();
    assert_eq!(test.put(&path, &lb).await.status, 400, "a SKU stays");
    lb["sku"]["name"] = "Gateway".into();
    lb["properties"]["loadBalancingRules"][0]["properties"]["protocol"] = "Tcp".into();
    assert_eq!(test.put(&path, &lb).await.code(), "GatewayLoadBalancerRuleMustBeHaPorts");
    lb["properties"]["loadBalancingRules"][0]["properties"]["protocol"] = "All".into();
    lb["properties"]["backendAddressPools"].as_array_mut().unwrap().remove(1);
    assert_eq!(test.put(&path, &lb).await.code(), "InvalidResourceReference", "a rule's pool");
}

#[tokio::test]
async fn a_pool_has_members_by_interface_or_by_address_but_not_both() {
    let test = TestAzure::new().await;
    assert_eq!(join(&test, "weir-0-data", &["weir"]).await.status, 200);
    assert_eq!(test.azure.with(|cloud| cloud.members(&pool("weir"))), ["10.1.0.11"]);
    assert_eq!(test.delete(&network("networkInterfaces/weir-0-data")).await.code(), "NicInUse");
    let response = test.put(&pool("weir"), &pool_body(&[address("a", "10.1.0.12")], &[])).await;
    assert_eq!((response.status, response.code()), (400, "BackendAddressPoolCannotMixNicAndIp"));
    // A body that was read can be written again: it names the interface, which stays.
    let read = test.get(&pool("weir")).await.body;
    let response = test.put(&pool("weir"), &read).await;
    assert_eq!(response.status, 200, "{}", response.text);
    assert_eq!(response.body["properties"]["backendIPConfigurations"].as_array().unwrap().len(), 1);
    let mut foreign = read.clone();
    let entry = &mut foreign["properties"]["loadBalancerBackendAddresses"][0];
    entry["properties"]["networkInterfaceIPConfiguration"]["id"] =
        network("networkInterfaces/weir-1-data/ipConfigurations/ipconfig1").into();
    assert_eq!(test.put(&pool("weir"), &foreign).await.code(), "InvalidResourceReference");
    assert_eq!(test.delete(&pool("weir")).await.code(), "InUseBackendAddressPoolCannotBeDeleted");

    assert_eq!(
        test.put(&pool("weir6"), &pool_body(&[address("a", "fd00:1::12")], &[])).await.status,
        200
    );
    let response = join(&test, "weir-1-data", &["weir6"]).await;
    assert_eq!((response.status, response.code()), (400, "BackendAddressPoolCannotMixNicAndIp"));
    assert_eq!(join(&test, "weir-1-data", &["none"]).await.code(), "InvalidResourceReference");
    // An interface is replaced as a whole too, except for read-only members.
    let path = network("networkInterfaces/weir-0-data");
    let mut bare = json!({ "location": "westeurope", "properties": {} });
    let before = test.get(&path).await.body;
    bare["properties"]["ipConfigurations"] = before["properties"]["ipConfigurations"].clone();
    assert_eq!(test.put(&path, &bare).await.status, 200);
    let after = test.get(&path).await.body;
    for member in ["macAddress", "virtualMachine", "primary"] {
        assert_eq!(after["properties"][member], before["properties"][member], "{member}");
    }
    assert_eq!(before["properties"]["enableIPForwarding"], true);
    assert_eq!(after["properties"]["enableIPForwarding"], false, "left out is lost");
    assert_eq!(join(&test, "weir-0-data", &[]).await.status, 200);
    let read = test.get(&pool("weir")).await.body;
    assert_eq!(read["properties"]["backendIPConfigurations"], Value::Null);
}

#[tokio::test]
async fn invalid_addresses_and_tunnels_are_rejected() {
    let test = TestAzure::new().await;
    for (address, code) in [
        (address("a", "10.2.0.1"), "PrivateIPAddressNotInVirtualNetwork"),
        (address("a", "10.1.0.300"), "InvalidRequestFormat"),
        (address("", "10.1.0.11"), "InvalidRequestFormat"),
        (
            json!({ "name": "a", "properties": { "ipAddress": "10.1.0.11" } }),
            "InvalidResourceReference",
        ),
    ] {
        let response =
            test.put(&pool("weir"), &pool_body(std::slice::from_ref(&address), &[])).await;
        assert_eq!((response.status, response.code()), (400, code), "{address}");
    }
    let (one, two) = (tunnel("External", 10801, 801), tunnel("Internal", 10800, 800));
    for (tunnels, code) in [
        (vec![one.clone(), two.clone(), tunnel("None", 1, 1)], "TooManyTunnelInterfaces"),
        (vec![one.clone(), tunnel("Internal", 10801, 800)], "TunnelInterfacesMustBeUnique"),
        (vec![one.clone(), tunnel("Internal", 10800, 801)], "TunnelInterfacesMustBeUnique"),
        (vec![tunnel("external", 10800, 801)], "InvalidRequestFormat"),
        (
            vec![json!({ "type": "External", "protocol": "VXLAN", "port": 1 })],
            "InvalidRequestFormat",
        ),
    ] {
        let response = test.put(&pool("weir"), &pool_body(&[], &tunnels)).await;
        assert_eq!((response.status, response.code()), (400, code), "{tunnels:?}");
    }
    // Two internal tunnels, as in Microsoft's own example, are accepted.
    let both = [tunnel("Internal", 15000, 900), tunnel("Internal", 15001, 901)];
    assert_eq!(test.put(&pool("weir"), &pool_body(&[], &both)).await.status, 200);
    let plain = network("loadBalancers/plain/backendAddressPools/weir");
    let response = test.put(&plain, &pool_body(&[], &[one])).await;
    assert_eq!(response.code(), "TunnelInterfacesOnlyAllowedForGatewayLoadBalancer");
    assert_eq!(
        test.put(&plain, &json!({ "properties": {} })).await.body["properties"]["tunnelInterfaces"],
        Value::Null
    );
}

#[tokio::test]
async fn scale_set_interfaces_are_read_only() {
    let test = TestAzure::new().await;
    let instance = format!(
        "{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/weirs/virtualMachines/0"
    );
    let machine = test.get(&instance).await.body;
    let nic =
        machine["properties"]["networkProfile"]["networkInterfaces"][0]["id"].as_str().unwrap();
    let read = test.get(nic).await;
    assert_eq!(read.body["properties"]["macAddress"], "00-22-48-0A-01-1E");
    let part = &read.body["properties"]["ipConfigurations"][1];
    assert_eq!(part["id"], format!("{nic}/ipConfigurations/ipconfig6"));
    let response = test.put(nic, &read.body).await;
    assert_eq!((response.status, response.code()), (405, "MethodNotAllowed"));
    assert_eq!(test.put(&instance, &machine).await.status, 405);
    let all = test.get(&format!("{instance}/networkInterfaces")).await.body;
    assert_eq!(all["value"].as_array().unwrap().len(), 1);
    let all = test
        .get(&format!(
            "{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/weirs/virtualMachines"
        ))
        .await
        .body;
    assert_eq!(all["value"].as_array().unwrap().len(), 2);
    // The pool is set in the state, as the scale set's model would do at Azure.
    test.azure.with(|cloud| {
        let body = &mut cloud.find_mut(nic).unwrap().body;
        body["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] =
            json!([{ "id": pool("weir") }]);
    });
    let members = test.get(&pool("weir")).await.body;
    let member = members["properties"]["backendIPConfigurations"][0]["id"].as_str().unwrap();
    assert_eq!(member, format!("{nic}/ipConfigurations/ipconfig1"));
    let url = test.azure.machine(&instance).await.unwrap();
    let header = [("Metadata", "true")];
    let response = crate::client::http_request(
        &url,
        "GET",
        "/metadata/instance?api-version=2021-02-01",
        &header,
        "",
    )
    .await;
    assert_eq!(response.body["compute"]["name"], "weirs_0");
    assert_eq!(response.body["compute"]["vmScaleSetName"], "weirs");
    let response = crate::client::http_request(
        &url,
        "GET",
        "/metadata/loadbalancer?api-version=2020-10-01",
        &header,
        "",
    )
    .await;
    assert_eq!(response.body["loadbalancer"]["tunnelInterfaces"][0]["localIpAddress"], "10.1.0.30");
}

/// Starts an appliance's health listener, which answers with this status, or closes the connection
/// if it is 0. Returns its port.
fn listener(status: &std::sync::Arc<std::sync::atomic::AtomicU16>) -> u16 {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, status) = (listener.local_addr().unwrap().port(), status.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut line) = (stream.unwrap(), String::new());
            let _ = BufReader::new(stream.try_clone().unwrap()).read_line(&mut line);
            assert!(line.is_empty() || line == "GET / HTTP/1.1\r\n", "{line}");
            let status = status.load(std::sync::atomic::Ordering::Relaxed);
            if status > 0 {
                let _ = write!(stream, "HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    port
}

#[tokio::test]
async fn one_good_probe_brings_a_member_up_and_two_bad_ones_down() {
    use std::sync::atomic::{AtomicU16, Ordering};
    let status = std::sync::Arc::new(AtomicU16::new(200));
    let port = listener(&status);
    let test = TestAzure::new().await;
    test.azure.with(|cloud| {
        cloud.good = false;
        let nic = cloud.find_mut(&network("networkInterfaces/weir-0-data")).unwrap();
        nic.body["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"] =
            "127.0.0.1".into();
        let gateway = cloud.find_mut(&network("loadBalancers/gw")).unwrap();
        gateway.body["properties"]["probes"][0]["properties"]["port"] = port.into();
    });
    assert_eq!(join(&test, "weir-0-data", &["weir"]).await.status, 200);
    let probe_and_count = async || {
        test.azure.probe().await;
        test.azure.advance(Duration::from_secs(5));
        let path = network("loadBalancers/gw/loadBalancingRules/all/health");
        let response = test.post(&path, &Value::Null).await.body;
        assert_eq!(response["loadBalancerBackendAddresses"][0]["ipAddress"], "127.0.0.1");
        (response["up"].as_u64().unwrap(), response["down"].as_u64().unwrap())
    };
    assert_eq!(probe_and_count().await, (1, 0));
    for bad in [503, 301, 0] {
        status.store(bad, Ordering::Relaxed);
        assert_eq!(probe_and_count().await, (1, 0), "one bad probe is not enough: {bad}");
        assert_eq!(probe_and_count().await, (0, 1), "{bad} is not 200");
        status.store(200, Ordering::Relaxed);
        assert_eq!(probe_and_count().await, (1, 0), "one good one is");
    }
    // Regardless of its probes, a `Down` member receives no new flows, and an `Up` member does.
    let mut entry = test.get(&pool("weir")).await.body;
    for (state, up) in [("Down", 0), ("None", 1)] {
        entry["properties"]["loadBalancerBackendAddresses"][0]["properties"]["adminState"] =
            state.into();
        let response = test.put(&pool("weir"), &entry).await;
        let shown = &response.body["properties"]["loadBalancerBackendAddresses"][0]["properties"];
        assert_eq!(shown["adminState"], state, "{}", response.text);
        assert_eq!(probe_and_count().await.0, up);
    }
    status.store(503, Ordering::Relaxed);
    entry["properties"]["loadBalancerBackendAddresses"][0]["properties"]["adminState"] =
        "Up".into();
    assert_eq!(test.put(&pool("weir"), &entry).await.status, 200);
    probe_and_count().await;
    probe_and_count().await;
    assert_eq!(probe_and_count().await, (1, 0));
    entry["properties"]["loadBalancerBackendAddresses"][0]["properties"]["adminState"] =
        "Away".into();
    assert_eq!(test.put(&pool("weir"), &entry).await.code(), "InvalidRequestFormat");
}
