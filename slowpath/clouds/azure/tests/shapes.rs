//! Compares Weir's requests with the examples that Microsoft publishes, and parses the responses in
//! them (`make fixtures`).
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first failure")]

use std::path::{Path, PathBuf};

use azure::arm::{Arm, WriteOutcome};
use azure::environment::Environment;
use azure::id::ResourceId;
use azure::operations::{self, ArmOperation};
use azure::types::{Family, TunnelEnd, Tunnels};
use cloud_emulators::azure::{AzureState, Call};
use cloud_emulators::faults::{Fault, Rule};
use serde_json::{Map, Value};

use simulation::azure_fixture::{Fixture, fixture};

fn folder() -> PathBuf {
    cloud_emulators::fixtures::folder("azure-rest-examples")
}

/// An example of the specification: request parameters and responses.
struct Example {
    name: String,
    parameters: Map<String, Value>,
    responses: Map<String, Value>,
}

impl Example {
    fn read(folder: &Path, name: &str) -> Example {
        let path = folder.join(format!("{name}.json"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let document: Value = serde_json::from_str(&text).unwrap();
        let part = |key: &str| document[key].as_object().unwrap().clone();
        Example {
            name: name.to_owned(),
            parameters: part("parameters"),
            responses: part("responses"),
        }
    }

    fn of(&self, parameter: &str) -> &str {
        self.parameters[parameter].as_str().unwrap_or_else(|| panic!("{}: {parameter}", self.name))
    }

    /// Returns a path of the specification with the example's parameters filled in.
    fn filled(&self, template: &str) -> String {
        let mut path = template.to_owned();
        for (name, value) in &self.parameters {
            path = path.replace(&format!("{{{name}}}"), value.as_str().unwrap_or_default());
        }
        assert!(!path.contains('{') || path.contains("{subscription-id}"), "{}: {path}", self.name);
        path
    }

    /// Returns the body of the request.
    fn sent(&self) -> Option<&Value> {
        self.parameters.get("parameters").or_else(|| self.parameters.get("subnetParameters"))
    }

    fn body(&self, status: &str) -> &Value {
        &self.responses[status]["body"]
    }
}

/// Sets the body of all further responses, and drops the record of earlier calls.
fn set_response(env: &Fixture, body: &Value) {
    env.azure.take_calls();
    env.azure.clear_faults();
    for operation in ["GET *", "LIST *", "PUT *", "POST health", "POST check*", "POST load*", "/"] {
        env.azure.fault(Rule::always(operation, Fault::Body(body.to_string())));
    }
    // The client already has a token.
    env.azure.fault(Rule::always("POST token", Fault::Status(500)));
}

/// Returns the last call to Resource Manager.
fn last(env: &Fixture) -> Call {
    let calls = env.azure.take_calls();
    calls.into_iter().rev().find(|call| !call.path.starts_with("/metadata")).unwrap()
}

fn network(example: &Example, kind: &str, parameter: &str) -> ResourceId {
    let (subscription, group) = (example.of("subscriptionId"), example.of("resourceGroupName"));
    ResourceId::network(subscription, group, kind, example.of(parameter))
}

/// Common prefix of the specification's paths.
const NETWORK: &str = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/\
                       providers/Microsoft.Network";

/// Example file, method, operation, and its path in the specification and in Weir.
type Row = (&'static str, &'static str, ArmOperation, &'static str, fn(&Example) -> String);

/// Returns the examples of operations that Weir uses.
fn rows() -> Vec<Row> {
    let pool = |e: &Example| {
        let pool = e.of("backendAddressPoolName");
        network(e, "loadBalancers", "loadBalancerName")
            .child("backendAddressPools", pool)
            .to_string()
    };
    let balancer = |e: &Example| network(e, "loadBalancers", "loadBalancerName").to_string();
    let interface =
        |e: &Example| network(e, "networkInterfaces", "networkInterfaceName").to_string();
    let subnet = |e: &Example| {
        let subnet = e.of("subnetName");
        network(e, "virtualNetworks", "virtualNetworkName").child("subnets", subnet).to_string()
    };
    let service = |e: &Example| network(e, "privateLinkServices", "serviceName").to_string();
    let connection = |e: &Example| {
        let (service, name) =
            (network(e, "privateLinkServices", "serviceName"), "peConnectionName");
        service.child("privateEndpointConnections", e.of(name)).to_string()
    };
    const POOL: &str =
        "/loadBalancers/{loadBalancerName}/backendAddressPools/{backendAddressPoolName}";
    const SERVICE: &str = "/privateLinkServices/{serviceName}";
    const CONNECTION: &str =
        "/privateLinkServices/{serviceName}/privateEndpointConnections/{peConnectionName}";
    const SUBNET: &str = "/virtualNetworks/{virtualNetworkName}/subnets/{subnetName}";
    const BALANCER: &str = "/loadBalancers/{loadBalancerName}";
    const INTERFACE: &str = "/networkInterfaces/{networkInterfaceName}";
    vec![
        (
            "network/LoadBalancerList",
            "LIST",
            operations::LOAD_BALANCERS_LIST,
            "/loadBalancers",
            |e: &Example| {
                operations::in_group(
                    e.of("subscriptionId"),
                    e.of("resourceGroupName"),
                    "loadBalancers",
                )
            },
        ),
        ("network/LoadBalancerGet", "GET", operations::LOAD_BALANCERS_GET, BALANCER, balancer),
        ("network/LoadBalancerBackendAddressPoolGet", "GET", operations::POOLS_GET, POOL, pool),
        (
            "network/LBBackendAddressPoolWithBackendAddressesGet",
            "GET",
            operations::POOLS_GET,
            POOL,
            pool,
        ),
        (
            "network/LBBackendAddressPoolWithBackendAddressesPut",
            "PUT",
            operations::POOLS_PUT,
            POOL,
            pool,
        ),
        ("network/NetworkInterfaceGet", "GET", operations::INTERFACES_GET, INTERFACE, interface),
        (
            "network/NetworkInterfaceCreateGatewayLoadBalancerConsumer",
            "PUT",
            operations::INTERFACES_PUT,
            INTERFACE,
            interface,
        ),
        ("network/SubnetGet", "GET", operations::SUBNETS_GET, SUBNET, subnet),
        ("network/SubnetCreate", "PUT", operations::SUBNETS_PUT, SUBNET, subnet),
        ("network/PrivateLinkServiceGet", "GET", operations::LINK_SERVICES_GET, SERVICE, service),
        (
            "network/PrivateLinkServiceCreate",
            "PUT",
            operations::LINK_SERVICES_PUT,
            SERVICE,
            service,
        ),
        (
            "network/PrivateLinkServiceUpdatePrivateEndpointConnection",
            "PUT",
            operations::LINK_CONNECTIONS_PUT,
            CONNECTION,
            connection,
        ),
        (
            "network/PrivateLinkServiceListPrivateEndpointConnection",
            "LIST",
            operations::LINK_CONNECTIONS_LIST,
            "/privateLinkServices/{serviceName}/privateEndpointConnections",
            |e: &Example| {
                format!(
                    "{}/privateEndpointConnections",
                    network(e, "privateLinkServices", "serviceName")
                )
            },
        ),
    ]
}

#[tokio::test]
#[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
async fn requests_match_published_examples_and_responses_are_parsed() {
    let folder = folder();
    let env = fixture(AzureState::sample()).await;
    env.client.list(&operations::LOAD_BALANCERS_LIST.at(emulator_group())).await.unwrap();
    for (file, method, known, template, path_of) in rows() {
        let example = Example::read(&folder, file);
        let request = known.at(path_of(&example));
        assert_eq!(request.path, example.filled(&format!("{NETWORK}{template}")), "{file}");
        let body = example.body("200");
        set_response(&env, body);
        let etag = body["etag"].as_str().map(str::to_owned);
        match method {
            "GET" => {
                let response = env.client.get(&request).await.unwrap();
                assert_eq!((&response.body, response.etag), (body, etag), "{file}");
                ResourceId::parse(body["id"].as_str().unwrap()).unwrap();
            }
            "LIST" => {
                let response = env.client.list(&request).await.unwrap();
                assert_eq!(&Value::from(response), &body["value"], "{file}");
            }
            _ => {
                let (sent, matching) = (example.sent().unwrap(), "W/\"00000000\"");
                let response = env.client.put(&request, sent, Some(matching)).await.unwrap();
                let WriteOutcome::Done(Some(response)) = response else {
                    panic!("{file}: {response:?}")
                };
                assert_eq!((&response.body, response.etag), (body, etag), "{file}");
            }
        }
        let call = last(&env);
        assert_eq!(call.path, request.path, "{file}");
        assert_eq!(call.query.keys().collect::<Vec<_>>(), ["api-version"], "{file}");
        // Some examples are of an older API version.
        let version = call.query["api-version"].as_str();
        let example_version = example.of("api-version");
        let older = (version, example_version) == ("2024-05-01", "2024-03-01");
        assert!(version == example_version || older, "{file}");
        assert_eq!(call.body, *example.sent().unwrap_or(&Value::Null), "{file}");
        assert_eq!(call.headers.contains_key("if-match"), method == "PUT", "{file}");
        let json = call.headers.get("content-type").is_some_and(|t| t == "application/json");
        assert_eq!(json, example.sent().is_some(), "{file}");
    }
}

fn emulator_group() -> String {
    operations::in_group("00000000-0000-0000-0000-0000000000aa", "north", "loadBalancers")
}

#[tokio::test]
#[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
async fn published_machine_is_parsed() {
    let folder = folder();
    let env = fixture(AzureState::sample()).await;
    env.client.list(&operations::LOAD_BALANCERS_LIST.at(emulator_group())).await.unwrap();
    let example = Example::read(&folder, "compute/VirtualMachine_Get");
    let path = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/\
                Microsoft.Compute/virtualMachines/{vmName}";
    let request = operations::MACHINES_GET.at(example.filled(path).replace(['{', '}'], ""));
    set_response(&env, example.body("200"));
    let response = env.client.get(&request).await.unwrap();
    assert_eq!(&response.body, example.body("200"));
    let nics = &response.body["properties"]["networkProfile"]["networkInterfaces"];
    let nic = nics[0]["id"].as_str().unwrap();
    assert!(ResourceId::parse(nic).unwrap().named("networkInterfaces").is_some());
    assert_eq!(last(&env).query["api-version"], example.of("api-version"));
}

#[tokio::test]
#[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
async fn published_metadata_is_parsed() {
    let folder = folder();
    let env = fixture(AzureState::sample()).await;
    let respond = |example: &Example| set_response(&env, example.body("200"));
    let keys = |example: &Example| {
        let calls = env.azure.take_calls();
        let call = &calls[0];
        assert_eq!(call.headers["metadata"], example.of("Metadata"));
        let documented = example.parameters.keys().filter(|key| *key != "Metadata");
        assert!(call.query.keys().eq(documented), "{}: {:?}", example.name, call.query);
    };
    let example = Example::read(&folder, "imds/GetInstanceMetadata");
    respond(&example);
    let response = env.metadata.instance().await.unwrap();
    keys(&example);
    assert_eq!((response.name.as_str(), response.zone.as_str()), ("examplevmname", ""));
    assert_eq!(response.scale_set.as_deref(), Some("crpteste9vflji9"));
    assert!(response.interfaces.is_empty());
    assert_eq!(ResourceId::parse(&response.resource_id).unwrap().name(), response.name);
    let cloud = Environment::of(&response.environment, None).unwrap();
    assert_eq!(cloud.resources.as_str(), "https://management.azure.com/");

    let example = Example::read(&folder, "imds/GetLoadBalancerMetadata_GatewayLB");
    respond(&example);
    let (external, internal) =
        (TunnelEnd { port: 2667, vni: 801 }, TunnelEnd { port: 2666, vni: 800 });
    let response = env.metadata.tunnels().await.unwrap();
    assert_eq!(response, [(Family::V4, Tunnels { external, internal })]);
    keys(&example);
    let example = Example::read(&folder, "imds/GetLoadBalancerMetadata");
    respond(&example);
    assert_eq!(env.metadata.tunnels().await.unwrap(), []);

    let example = Example::read(&folder, "imds/GetIdentityToken");
    respond(&example);
    let token = env.metadata.token(example.of("resource"), None).await.unwrap();
    assert_eq!(token.secret.secret(), "dummytoken");
    // The token expired in 2018.
    assert!(token.lifetime.is_zero());
    keys(&example);
}
