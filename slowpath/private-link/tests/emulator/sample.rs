//! Common fixtures: networks, a load balancer, and an object with a service and an endpoint.

use azure::id::ResourceId;
use cloud_emulators::azure::AzureState as Emulator;
use private_link::object::{EndpointSpec, Object, ResourceRef, Spec, Status, Zone};
use private_link::time::Time;
use serde_json::json;

use super::Azure;

/// Subscription of the service.
pub const PROVIDER: &str = "11111111-1111-1111-1111-111111111111";
/// Subscription of the endpoint.
pub const GUEST: &str = "22222222-2222-2222-2222-222222222222";
/// Another subscription, which the sample object approves.
pub const OTHER: &str = "33333333-3333-3333-3333-333333333333";
/// Subscription that the sample object does not approve.
pub const UNAPPROVED: &str = "99999999-9999-9999-9999-999999999999";
/// Start of the clock, in seconds since 1970.
pub const BEGUN: u64 = 1_795_000_000;

/// Returns the id of a network resource in the resource group `rg`.
pub fn network(subscription: &str, kind: &str, name: &str) -> ResourceId {
    ResourceId::network(subscription, "rg", kind, name)
}

/// Returns an emulator of these subscriptions, each with an empty resource group.
pub fn bare() -> Azure {
    let group = |subscription| format!("/subscriptions/{subscription}/resourceGroups/rg");
    let groups = [PROVIDER, GUEST, OTHER, UNAPPROVED].map(group).into();
    Azure::new(Emulator { epoch: BEGUN, groups, resources: Vec::new(), ..Emulator::sample() })
}

/// Returns an emulator with the load balancer and its network, and the consumers' networks.
pub fn azure() -> Azure {
    let azure = bare();
    let mut cloud = azure.state();
    for (subscription, name, subnet, third) in [
        (PROVIDER, "hub", "balancers", "10.1"),
        (GUEST, "spoke", "endpoints", "10.7"),
        (OTHER, "theirs", "endpoints", "10.8"),
        (UNAPPROVED, "theirs", "endpoints", "10.9"),
    ] {
        let subnet = json!({
            "name": subnet, "properties": { "addressPrefix": format!("{third}.0.0/24") },
        });
        let properties = json!({
            "addressSpace": { "addressPrefixes": [format!("{third}.0.0/16")] },
            "subnets": [subnet],
        });
        let id = network(subscription, "virtualNetworks", name);
        cloud.set(id.as_str(), json!({ "location": "westeurope", "properties": properties }));
    }
    drop(cloud);
    balancer(&azure, "10.1.0.5");
    azure
}

/// Creates or replaces the internal load balancer, whose frontend has this address.
pub fn balancer(azure: &Azure, address: &str) {
    let near = network(PROVIDER, "virtualNetworks", "hub").child("subnets", "balancers");
    let frontend = json!({
        "name": format!("at-{address}"),
        "properties": { "privateIPAddress": address, "subnet": { "id": near } },
    });
    let body = json!({
        "location": "westeurope", "sku": { "name": "Standard" },
        "properties": { "frontendIPConfigurations": [frontend] },
    });
    azure.state().set(network(PROVIDER, "loadBalancers", "inner").as_str(), body);
}

/// Returns a new object with an endpoint and two zones.
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
        subscription: PROVIDER.to_owned(),
        resource_group: "rg".to_owned(),
        location: "westeurope".to_owned(),
        additional_allowed_subscriptions: vec![OTHER.to_owned()],
        endpoint: Some(EndpointSpec {
            subnet: ResourceRef(guest.child("subnets", "endpoints")),
            network: ResourceRef(guest),
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
        created: Time(BEGUN),
        spec,
        status: Status::default(),
        deletion: None,
        has_finalizer: false,
    }
}
