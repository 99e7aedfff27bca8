//! Compares the emulator's responses with Microsoft's published examples: members and their types.
//! `make fixtures` runs these tests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud_emulators::azure::AzureState;
use cloud_emulators::azure::state::Resource;
use cloud_emulators::fixtures::folder;
use serde_json::{Value, json};

use crate::client::{HttpResponse, TestAzure, add_to_pool, network, pool};

const TESTRG: &str = "/subscriptions/subid/resourceGroups/testrg";
const RG1: &str = "/subscriptions/subid/resourceGroups/rg1";

/// Members that no example contains, with their sources: the specification's definitions
/// (2024-05-01), or responses of Azure that users have published (the entries of interfaces).
const NOT_IN_EXAMPLES: &[&str] = &[
    // LoadBalancerSku, LoadBalancerPropertiesFormat.
    "loadBalancers sku.tier",
    // LoadBalancerBackendAddressPropertiesFormat; ids, types and states as published.
    "loadBalancers properties.backendAddressPools[].properties.loadBalancerBackendAddresses",
    "loadBalancers/backendAddressPools properties.loadBalancerBackendAddresses[].id",
    "loadBalancers/backendAddressPools properties.loadBalancerBackendAddresses[].etag",
    "loadBalancers/backendAddressPools properties.loadBalancerBackendAddresses[].type",
    "loadBalancers/backendAddressPools properties.loadBalancerBackendAddresses[].properties.provisioningState",
    "loadBalancers/backendAddressPools properties.loadBalancerBackendAddresses[].properties.networkInterfaceIPConfiguration",
    // NetworkInterface, NetworkInterfaceIPConfiguration, SubResource.
    "networkInterfaces etag",
    "networkInterfaces properties.ipConfigurations[].etag",
    "networkInterfaces properties.ipConfigurations[].type",
    // Subnet, SubnetPropertiesFormat.
    "virtualNetworks/subnets etag",
    "virtualNetworks/subnets type",
    "virtualNetworks/subnets properties.privateEndpointNetworkPolicies",
    "virtualNetworks/subnets properties.privateLinkServiceNetworkPolicies",
    // PrivateLinkService, PrivateEndpointConnection.
    "privateLinkServices etag",
    "privateLinkServices properties.enableProxyProtocol",
    "privateLinkServices properties.ipConfigurations[].etag",
    "privateLinkServices properties.ipConfigurations[].type",
    "privateLinkServices properties.ipConfigurations[].properties.provisioningState",
    "privateLinkServices properties.privateEndpointConnections[].etag",
    "privateLinkServices properties.privateEndpointConnections[].type",
    "privateLinkServices properties.privateEndpointConnections[].properties.provisioningState",
    "privateLinkServices/privateEndpointConnections etag",
    "privateLinkServices/privateEndpointConnections type",
    "privateLinkServices/privateEndpointConnections properties.provisioningState",
    // Microsoft's page on tokens of managed identities.
    "identity token_type",
    // Microsoft's page on the metadata service: its example has no network section.
    "instance network",
];

/// Reads an example.
fn example(path: &str) -> Value {
    let text = std::fs::read_to_string(folder("azure-rest-examples").join(path)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Collects all members by path, with their types.
fn members(value: &Value, path: &str, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    if !path.is_empty() {
        found.entry(path.to_owned()).or_default().insert(kind(value));
    }
    match value {
        Value::Object(all) => all.iter().for_each(|(name, value)| {
            let dot = if path.is_empty() { "" } else { "." };
            members(value, &format!("{path}{dot}{name}"), found);
        }),
        Value::Array(all) => {
            all.iter().for_each(|value| members(value, &format!("{path}[]"), found));
        }
        _ => {}
    }
}

/// The members that the examples contain, by resource type.
#[derive(Default)]
struct Known(BTreeMap<String, BTreeMap<String, BTreeSet<&'static str>>>);

impl Known {
    fn add(&mut self, of: &str, value: &Value) {
        members(value, "", self.0.entry(of.to_owned()).or_default());
    }

    /// Checks that every member of a response is known, and that no member of `example` is missing.
    fn check(&self, of: &str, answer: &Value, example: &Value) {
        let (mut actual, mut expected) = (BTreeMap::new(), BTreeMap::new());
        members(answer, "", &mut actual);
        members(example, "", &mut expected);
        let known = &self.0[of];
        for (path, kinds) in &actual {
            let more = NOT_IN_EXAMPLES.iter().any(|more| format!("{of} {path}").starts_with(more));
            match known.get(path) {
                Some(allowed) => {
                    assert!(kinds.is_subset(allowed), "{of} {path}: {kinds:?}, not {allowed:?}")
                }
                None => assert!(more, "{of} {path} is in no example: {answer:#}"),
            }
        }
        for path in expected.keys() {
            assert!(actual.contains_key(path), "{of} {path} is missing: {answer:#}");
        }
    }
}

/// Returns the resource type of an id.
fn type_of(id: &str) -> String {
    let steps = id.split('/').skip(7).step_by(2);
    let mut types = vec![id.split('/').nth(7).unwrap_or_default()];
    types.extend(steps.skip(1));
    types.join("/")
}

fn hub(name: &str, space: &str, subnet: &str, prefix: &str) -> (String, Value) {
    let body = json!({ "location": "eastus", "properties": {
        "addressSpace": { "addressPrefixes": [space] },
        "subnets": [{ "name": subnet, "properties": {
            "addressPrefix": prefix, "privateLinkServiceNetworkPolicies": "Disabled",
        }}],
    }});
    (format!("{RG1}/providers/Microsoft.Network/virtualNetworks/{name}"), body)
}

/// Starts an emulator with only the groups and networks that the examples use.
async fn test() -> TestAzure {
    let mut cloud = AzureState::sample();
    cloud.groups = vec![TESTRG.to_owned(), RG1.to_owned()];
    cloud.groups.push("/subscriptions/subid/resourceGroups/subnet-test".to_owned());
    cloud.groups.push("/subscriptions/{subscription-id}/resourceGroups/myResourceGroup".to_owned());
    cloud.resources.clear();
    for (id, body) in [
        hub("vnetlb", "10.0.0.0/16", "subnetlb", "10.0.1.0/24"),
        hub("rg1-vnet", "172.20.0.0/16", "default", "172.20.2.0/24"),
    ] {
        cloud.write(&id, body);
    }
    let own = "/subscriptions/subid/resourceGroups/subnet-test/providers/Microsoft.Network";
    let own = format!("{own}/virtualNetworks/vnetname");
    let space = json!({ "addressSpace": { "addressPrefixes": ["10.0.0.0/8"] }, "subnets": [] });
    cloud.write(&own, json!({ "location": "eastus", "properties": space }));
    TestAzure::of(cloud).await
}

/// Returns the path of an example's request, with the example's parameters for the placeholders.
fn path_of(example: &Value, path: &str) -> String {
    let mut path = path.to_owned();
    for (name, value) in example["parameters"].as_object().unwrap() {
        if let Some(value) = value.as_str() {
            path = path.replace(&format!("<{name}>"), value);
        }
    }
    assert!(!path.contains('<'), "{path}");
    path
}

const NETWORK: [&str; 2] = [
    "/subscriptions/<subscriptionId>/resourceGroups/<resourceGroupName>",
    "/providers/Microsoft.Network",
];

/// Collects the members of all examples of resources, by type.
fn known() -> Known {
    let mut known = Known::default();
    let root = cloud_emulators::fixtures::folder("azure-rest-examples");
    for folder in ["network", "compute"] {
        for file in std::fs::read_dir(root.join(folder)).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            let example = example(&format!("{folder}/{name}"));
            for response in example["responses"].as_object().unwrap().values() {
                let body = &response["body"];
                let one = [body.clone()];
                for resource in body["value"].as_array().map_or(&one[..], Vec::as_slice) {
                    let Some(id) = resource["id"].as_str() else { continue };
                    known.add(&type_of(id), resource);
                    // Parts are resources too.
                    for (part, parts) in resource["properties"].as_object().into_iter().flatten() {
                        for one in parts.as_array().into_iter().flatten() {
                            known.add(&format!("{}/{part}", type_of(id)), one);
                        }
                    }
                }
            }
        }
    }
    known
}

/// Stores an example's resource without validation.
fn store(cloud: &mut AzureState, resource: &Value) {
    let id = resource["id"].as_str().unwrap();
    let types = type_of(id);
    let Some((_, part)) = types.split_once('/') else {
        return cloud.write(id, resource.clone());
    };
    let parent_id = id.rsplitn(3, '/').nth(2).unwrap();
    if cloud.find(parent_id).is_none() {
        cloud.write(parent_id, json!({ "location": "eastus", "properties": {} }));
    }
    let Resource { body, .. } = cloud.find_mut(parent_id).unwrap();
    let parts = &mut body["properties"][part];
    match parts.as_array_mut() {
        Some(parts) => parts.push(resource.clone()),
        None => *parts = json!([resource]),
    }
}

#[tokio::test]
#[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
async fn resources_have_the_shape_of_the_examples() {
    let known = known();
    for file in [
        "network/LoadBalancerGet.json",
        "network/LoadBalancerList.json",
        "network/LoadBalancerProbeGet.json",
        "network/LoadBalancerBackendAddressPoolGet.json",
        "network/LBBackendAddressPoolWithBackendAddressesGet.json",
        "network/LBBackendAddressPoolListWithBackendAddressesPoolType.json",
        "network/NetworkInterfaceGet.json",
        "network/NetworkInterfaceList.json",
        "network/PrivateLinkServiceGet.json",
        "network/PrivateLinkServiceList.json",
        "network/PrivateLinkServiceGetPrivateEndpointConnection.json",
        "network/PrivateLinkServiceListPrivateEndpointConnection.json",
        "network/SubnetGet.json",
        "compute/VirtualMachine_Get.json",
    ] {
        let test = test().await;
        let body = example(file)["responses"]["200"]["body"].clone();
        let one = [body.clone()];
        let list = body["value"].as_array();
        let resources = list.map_or(&one[..], Vec::as_slice);
        test.azure.with(|cloud| {
            resources.iter().for_each(|resource| store(cloud, resource));
            outside(cloud, resources);
        });
        for resource in resources {
            let id = resource["id"].as_str().unwrap();
            let response = test.get(id).await;
            assert_eq!(response.status, 200, "{file}: {}", response.text);
            known.check(&type_of(id), &response.body, resource);
        }
        if list.is_some() {
            let id = resources[0]["id"].as_str().unwrap();
            let response = test.get(id.rsplit_once('/').unwrap().0).await;
            let listed = response.body["value"].as_array().unwrap();
            assert_eq!(listed.len(), resources.len(), "{file}: {}", response.text);
            for (actual, expected) in listed.iter().zip(resources) {
                known.check(&type_of(id), actual, expected);
            }
        }
    }
}

/// Creates the resources outside of an example from which the example's members are derived: rules
/// and members of pools.
fn outside(cloud: &mut AzureState, resources: &[Value]) {
    for resource in resources {
        let rules = resource["properties"]["loadBalancingRules"].as_array();
        let id = resource["id"].as_str().unwrap();
        for rule in rules.into_iter().flatten().filter(|_| id.contains("/loadBalancers/lb/")) {
            let rule = rule["id"].as_str().unwrap();
            let (balancer, name) = rule.split_once("/loadBalancingRules/").unwrap();
            let member = if id.contains("/probes/") { "probe" } else { "backendAddressPool" };
            let body = &mut cloud.find_mut(balancer).unwrap().body;
            body["properties"]["loadBalancingRules"] =
                json!([{ "name": name, "properties": { member: { "id": id } } }]);
        }
        for part in
            resource["properties"]["backendIPConfigurations"].as_array().into_iter().flatten()
        {
            let part = part["id"].as_str().unwrap();
            let (nic, name) = part.split_once("/ipConfigurations/").unwrap();
            let properties = json!({ "loadBalancerBackendAddressPools": [{ "id": id }] });
            let parts = json!([{ "name": name, "properties": properties }]);
            cloud.write(nic, json!({ "properties": { "ipConfigurations": parts } }));
        }
    }
}

#[tokio::test]
#[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
async fn writes_of_the_examples_are_accepted_and_answered_alike() {
    let known = known();
    for (file, path, body) in [
        (
            "LoadBalancerCreateGatewayLoadBalancerProviderWithOneBackendPool",
            "loadBalancers/<loadBalancerName>",
            "parameters",
        ),
        (
            "LoadBalancerCreateGatewayLoadBalancerProviderWithTwoBackendPool",
            "loadBalancers/<loadBalancerName>",
            "parameters",
        ),
        (
            "LBBackendAddressPoolWithBackendAddressesPut",
            "loadBalancers/<loadBalancerName>/backendAddressPools/<backendAddressPoolName>",
            "parameters",
        ),
        (
            "NetworkInterfaceCreateGatewayLoadBalancerConsumer",
            "networkInterfaces/<networkInterfaceName>",
            "parameters",
        ),
        ("PrivateLinkServiceCreate", "privateLinkServices/<serviceName>", "parameters"),
        (
            "SubnetCreate",
            "virtualNetworks/<virtualNetworkName>/subnets/<subnetName>",
            "subnetParameters",
        ),
    ] {
        let test = test().await;
        let example = example(&format!("network/{file}.json"));
        let path = path_of(&example, &format!("{}/{path}", NETWORK.concat()));
        let mut body = example["parameters"][body].clone();
        test.azure.with(|cloud| {
            let mut balancer = |group: &str, properties: Value| {
                let id = format!("{group}/providers/Microsoft.Network/loadBalancers/lb");
                cloud
                    .write(&id, json!({ "sku": { "name": "Standard" }, "properties": properties }));
            };
            if file.starts_with("LBBackend") {
                let pool = json!({ "id": example["responses"]["200"]["body"]["id"] });
                let rule =
                    json!({ "name": "rulelb", "properties": { "backendAddressPool": pool } });
                balancer(TESTRG, json!({ "loadBalancingRules": [rule] }));
            }
            if file.starts_with("PrivateLink") {
                let frontend = json!({ "name": "fe-lb", "properties": {} });
                balancer(RG1, json!({ "frontendIPConfigurations": [frontend] }));
            }
        });
        // The examples' gateways have rules for one port, which a gateway does not accept.
        let rules = body.pointer_mut("/properties/loadBalancingRules");
        for rule in rules.and_then(Value::as_array_mut).into_iter().flatten() {
            rule["properties"]["protocol"] = "All".into();
        }
        let response = test.put(&path, &body).await;
        assert_eq!(response.status, 201, "{file}: {}", response.text);
        let expected = &example["responses"]["201"]["body"];
        known.check(&type_of(&path), &response.body, expected);
        assert_eq!(test.put(&path, &body).await.status, 200, "{file} once more");
    }
}

/// Returns the names of an example's headers.
fn headers(example: &Value, status: &str) -> BTreeSet<String> {
    let headers = example["responses"][status]["headers"].as_object();
    headers.into_iter().flatten().map(|(name, _)| name.to_ascii_lowercase()).collect()
}

fn headers_of(response: &HttpResponse) -> BTreeSet<String> {
    let checked = ["location", "azure-asyncoperation"];
    checked
        .iter()
        .filter(|name| response.header(name).is_some())
        .map(|name| (*name).to_owned())
        .collect()
}

#[tokio::test]
#[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
async fn long_operations_have_the_headers_of_the_examples() {
    let test = TestAzure::new().await;
    let loads = |file: &str| example(&format!("network/{file}.json"));
    let pls = network("privateLinkServices/pls");
    let connection = format!("{pls}/privateEndpointConnections/one");
    test.azure.with(|cloud| {
        cloud.pace = Duration::from_secs(5);
        let state = json!({ "status": "Rejected", "description": "" });
        let one =
            json!({ "name": "one", "properties": { "privateLinkServiceConnectionState": state } });
        cloud.write(&pls, json!({ "properties": { "privateEndpointConnections": [one] } }));
    });
    let plain = network("loadBalancers/plain");
    for (file, path) in [
        ("LoadBalancerBackendAddressPoolDelete", format!("{plain}/backendAddressPools/weir")),
        ("LoadBalancerDelete", plain),
        ("PrivateLinkServiceDeletePrivateEndpointConnection", connection),
        ("PrivateLinkServiceDelete", pls),
    ] {
        let response = test.delete(&path).await;
        assert_eq!(
            (response.status, headers_of(&response)),
            (202, headers(&loads(file), "202")),
            "{file}"
        );
        test.azure.advance(Duration::from_secs(5));
        assert_eq!(test.get(&path).await.status, 404, "{file}");
    }
    let (health, visible) =
        (loads("LoadBalancerHealth"), loads("CheckPrivateLinkServiceVisibilityByResourceGroup"));
    let rule = network("loadBalancers/gw/loadBalancingRules/all/health");
    let check = network("locations/westeurope/checkPrivateLinkServiceVisibility");
    for (example, path) in [(&health, &rule), (&visible, &check)] {
        let response = test.post(path, &example["parameters"]["parameters"]).await;
        assert_eq!(
            (response.status, headers_of(&response)),
            (202, headers(example, "202")),
            "{path}"
        );
    }
    test.azure.with(|cloud| cloud.pace = Duration::ZERO);
    test.azure.advance(Duration::from_secs(5));
    let nic = network("networkInterfaces/weir-0-data");
    test.azure.with(|cloud| add_to_pool(cloud, &nic, &pool("weir")));
    let mut known = Known::default();
    for (of, example, path) in [("health", &health, &rule), ("visible", &visible, &check)] {
        let expected = &example["responses"]["200"]["body"];
        known.add(of, expected);
        let response = test.post(path, &example["parameters"]["parameters"]).await;
        known.check(of, &response.body, expected);
    }
}

#[tokio::test]
#[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
async fn metadata_has_the_shape_of_the_examples() {
    let test = TestAzure::new().await;
    let mut known = Known::default();
    let body =
        |file: &str| example(&format!("imds/{file}.json"))["responses"]["200"]["body"].clone();
    let (token, instance) = (body("GetIdentityToken"), body("GetInstanceMetadata"));
    known.add("identity", &token);
    let path = "/metadata/identity/oauth2/token?api-version=2018-02-01\
                &resource=https://vault.azure.net";
    let response = test.get_metadata(path).await;
    known.check("identity", &response.body, &token);
    known.add("instance", &instance);
    // Much of the example is about disks and plans, which Weir does not use.
    let response = test.get_metadata("/metadata/instance?api-version=2021-11-15").await;
    known.check("instance", &response.body, &json!({ "compute": {
        "azEnvironment": "", "location": "", "name": "", "resourceGroupName": "", "resourceId": "",
        "subscriptionId": "", "vmId": "", "vmScaleSetName": "", "zone": "", "vmSize": "",
    }}));

    for (pool_id, file) in [
        (pool("weir"), "GetLoadBalancerMetadata_GatewayLB"),
        (network("loadBalancers/plain/backendAddressPools/weir"), "GetLoadBalancerMetadata"),
    ] {
        let published = body(file);
        let mut known = Known::default();
        known.add(file, &published);
        let nic = network("networkInterfaces/weir-0-data");
        test.azure.with(|cloud| add_to_pool(cloud, &nic, &pool_id));
        let response = test.get_metadata("/metadata/loadbalancer?api-version=2021-02-01").await;
        let gateway = response.body["loadbalancer"]["tunnelInterfaces"].is_array();
        assert_eq!(gateway, file.ends_with("GatewayLB"), "{}", response.text);
        let expected =
            if gateway { published } else { json!({ "loadbalancer": { "inboundRules": [] } }) };
        known.check(file, &response.body, &expected);
    }
}
