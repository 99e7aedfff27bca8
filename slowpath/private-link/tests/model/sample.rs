//! What the tests begin with: two networks, a load balancer, and an object that wants both sides.

use azure::id::ResourceId;
use private_link::object::{Address, EndpointSpec, Object, Spec, Status, Zone};
use private_link::time::Time;
use serde_json::json;

use super::Azure;

pub const OURS: &str = "11111111-1111-1111-1111-111111111111";
pub const GUEST: &str = "22222222-2222-2222-2222-222222222222";
pub const OTHER: &str = "33333333-3333-3333-3333-333333333333";

pub fn network(subscription: &str, kind: &str, name: &str) -> ResourceId {
    ResourceId::network(subscription, "rg", kind, name)
}

/// A network with a load balancer's subnet, and the consumers' network.
pub fn azure() -> Azure {
    let azure = Azure::default();
    let mut world = azure.world();
    world.now = 1_795_000_000;
    let hub = network(OURS, "virtualNetworks", "hub");
    world.set(
        hub.as_str(),
        json!({ "properties": { "addressSpace": { "addressPrefixes": ["10.1.0.0/16"] } } }),
    );
    let near = hub.child("subnets", "balancers");
    world.set(near.as_str(), json!({ "properties": { "addressPrefix": "10.1.0.0/24" } }));
    let guest = network(GUEST, "virtualNetworks", "spoke");
    world.set(guest.as_str(), json!({ "properties": {} }));
    let subnet = guest.child("subnets", "endpoints");
    world.set(subnet.as_str(), json!({ "properties": { "addressPrefix": "10.7.0.0/24" } }));
    drop(world);
    balancer(&azure, "10.1.0.5");
    azure
}

/// The internal load balancer, beside one that is none.
pub fn balancer(azure: &Azure, address: &str) {
    let mut world = azure.world();
    let near = network(OURS, "virtualNetworks", "hub").child("subnets", "balancers");
    let id = network(OURS, "loadBalancers", "inner");
    let frontend = id.child("frontendIPConfigurations", &format!("at-{address}"));
    let inner = json!([
        { "id": "no-properties" },
        { "id": frontend, "properties": { "privateIPAddress": address, "subnet": { "id": near } } },
    ]);
    world.set(id.as_str(), json!({ "properties": { "frontendIPConfigurations": inner } }));
    let plain = network(OURS, "loadBalancers", "bare");
    world.set(plain.as_str(), json!({}));
}

/// An object of both sides with two zones.
pub fn object(name: &str) -> Object {
    let guest = network(GUEST, "virtualNetworks", "spoke");
    let zone = |name: &str, records: &[&str]| Zone {
        name: name.to_owned(),
        records: records.iter().map(|&record| record.to_owned()).collect(),
        link: None,
    };
    let short = name.rsplit('/').next().unwrap_or_default();
    let spec = Spec {
        load_balancer_ip: Some("10.1.0.5".parse().unwrap()),
        subscription: OURS.to_owned(),
        resource_group: "rg".to_owned(),
        location: "westeurope".to_owned(),
        additional_allowed_subscriptions: vec![OTHER.to_owned()],
        endpoint: Some(EndpointSpec {
            subnet: Address(guest.child("subnets", "endpoints")),
            network: Address(guest),
            resource_group: None,
            zones: vec![
                zone(&format!("{short}.hypershift.local"), &["api", "*.apps"]),
                zone("example.internal", &[&format!("api-{short}")]),
            ],
        }),
        ..Spec::default()
    };
    Object {
        name: name.to_owned(),
        generation: 1,
        created: Time(1_795_000_000),
        spec,
        status: Status::default(),
        deletion: None,
        held: false,
    }
}
