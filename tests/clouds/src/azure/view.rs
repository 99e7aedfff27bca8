//! Resources as Resource Manager returns them: the stored members, and members derived from other
//! resources.

use serde_json::{Value, json};

use crate::azure::answer::{defaults, list, list_mut, object_member, put, text};
use crate::azure::dns;
use crate::azure::kind::{KINDS, Kind, Storage};
use crate::azure::member::{Member, addresses, admin, entry_name, members};
use crate::azure::path::{Path, above, name, same};
use crate::azure::rule::{rules, sku};
use crate::azure::state::{AzureState, Resource, guid};

/// Member of an endpoint: connections that need the service owner's approval.
pub const MANUAL: &str = "manualPrivateLinkServiceConnections";
/// Member of an endpoint: connections that are approved automatically.
pub const DIRECT: &str = "privateLinkServiceConnections";

/// Returns a separately stored resource in the form in which Resource Manager returns it.
pub fn render(cloud: &AzureState, resource: &Resource) -> Value {
    let path = Path::parse(&resource.id);
    let kind = path.as_ref().and_then(Kind::of);
    let (Some(path), Some(kind)) = (path, kind) else { return resource.body.clone() };
    let (mut body, etag) = (resource.body.clone(), resource.etag());
    put(&mut body, "id", Some(resource.id.clone().into()));
    put(&mut body, "name", Some(path.name().into()));
    put(&mut body, "type", Some(kind.full_type().into()));
    put(&mut body, "etag", Some(etag.as_str().into()));
    let state = cloud.state_of(resource);
    // Record sets have no provisioning state.
    let provisioning = (!dns::is_record(kind.types)).then(|| state.into());
    put(object_member(&mut body, "properties"), "provisioningState", provisioning);
    for inner in KINDS {
        let Storage::Inside(member) = inner.storage else { continue };
        if above(inner.types) != kind.types {
            continue;
        }
        let elements =
            body.pointer_mut(&format!("/properties/{member}")).and_then(Value::as_array_mut);
        for element in elements.into_iter().flatten() {
            let id = format!("{}/{}/{}", resource.id, name(inner.types), text(element, "/name"));
            put(element, "id", Some(id.into()));
            put(element, "type", Some(inner.full_type().into()));
            put(element, "etag", Some(etag.as_str().into()));
            put(object_member(element, "properties"), "provisioningState", Some(state.into()));
        }
    }
    match kind.types {
        "loadBalancers" => show_balancer(cloud, resource, &mut body),
        "networkInterfaces" | "virtualMachineScaleSets/virtualMachines/networkInterfaces" => {
            show_interface(&mut body);
        }
        "privateEndpoints" => show_endpoint(cloud, resource, &mut body),
        _ => {}
    }
    body
}

/// Returns the resource of a path in its returned form, with its ETag.
pub fn get_resource(cloud: &AzureState, path: &Path, kind: &Kind) -> Option<(Value, String)> {
    let stored = cloud.find(&kind.holder(path).id())?;
    let holder = render(cloud, stored);
    let Storage::Inside(member) = kind.storage else { return Some((holder, stored.etag())) };
    let elements = list(&holder, &format!("/properties/{member}"));
    let found = elements.iter().find(|e| text(e, "/name").eq_ignore_ascii_case(path.name()))?;
    Some((found.clone(), stored.etag()))
}

impl AzureState {
    /// Returns the resource of an id in its returned form.
    pub fn get(&self, id: &str) -> Option<Value> {
        let (kind, path) = Kind::parse(id)?;
        get_resource(self, &path, kind).map(|(shown, _)| shown)
    }
}

/// Adds the derived members of a load balancer.
fn show_balancer(cloud: &AzureState, resource: &Resource, body: &mut Value) {
    let sku = sku(body).to_owned();
    put(body, "sku", Some(json!({ "name": sku, "tier": "Regional" })));
    let all = body.pointer("/properties/loadBalancingRules").cloned();
    let original = json!({ "properties": { "loadBalancingRules": all } });
    let properties = object_member(body, "properties");
    put(properties, "resourceGuid", Some(guid(resource.id.len() as u64).into()));
    for member in ["frontendIPConfigurations", "backendAddressPools", "probes"] {
        for part in list_mut(body, member) {
            let id = text(part, "/id").to_owned();
            let used = rules(&original, &id).map(|rule| json!({ "id": text(rule, "/id") }));
            let used: Vec<Value> = used.collect();
            let used = (!used.is_empty()).then_some(Value::Array(used));
            put(object_member(part, "properties"), "loadBalancingRules", used);
            if member == "backendAddressPools" {
                show_pool(cloud, resource, &sku, part);
            }
        }
    }
    for rule in list_mut(body, "loadBalancingRules") {
        let properties = object_member(rule, "properties");
        let default_members = [
            ("disableOutboundSnat", json!(false)),
            ("enableFloatingIP", json!(false)),
            ("enableTcpReset", json!(false)),
            ("idleTimeoutInMinutes", json!(4)),
            ("loadDistribution", json!("Default")),
        ];
        defaults(properties, default_members);
    }
    for member in ["inboundNatRules", "outboundRules", "inboundNatPools"] {
        list_mut(body, member);
    }
}

/// Adds the derived members of a pool.
fn show_pool(cloud: &AzureState, balancer: &Resource, sku: &str, pool: &mut Value) {
    let id = text(pool, "/id").to_owned();
    let members = members(cloud, &id);
    let state = text(pool, "/properties/provisioningState").to_owned();
    let entries: Vec<Value> = members
        .iter()
        .map(|member| {
            let name = entry_name(&member.configuration);
            let mut properties = json!({
                "provisioningState": state,
                "networkInterfaceIPConfiguration": { "id": member.configuration },
            });
            put(&mut properties, "adminState", admin(pool, &name).cloned());
            json!({
                "name": name, "id": format!("{id}/loadBalancerBackendAddresses/{name}"),
                "etag": balancer.etag(), "properties": properties,
                "type":
                    "Microsoft.Network/loadBalancers/backendAddressPools/loadBalancerBackendAddresses",
            })
        })
        .collect();
    let by_address: Vec<Value> = addresses(pool).cloned().collect();
    let refer = |m: &Member| json!({ "id": m.configuration });
    let configurations: Vec<Value> = members.iter().map(refer).collect();
    let properties = object_member(pool, "properties");
    let some = |list: Vec<Value>| (!list.is_empty()).then_some(Value::Array(list));
    put(properties, "backendIPConfigurations", some(configurations));
    let entries = if members.is_empty() { by_address } else { entries };
    put(properties, "loadBalancerBackendAddresses", some(entries));
    if sku == "Gateway" && list(properties, "/tunnelInterfaces").is_empty() {
        put(properties, "tunnelInterfaces", Some(cloud.tunnels.clone()));
    }
}

/// Adds the members of an interface that have defaults.
fn show_interface(body: &mut Value) {
    let properties = object_member(body, "properties");
    let default_members = [
        ("dnsSettings", json!({ "dnsServers": [], "appliedDnsServers": [] })),
        ("enableAcceleratedNetworking", json!(false)),
        ("enableIPForwarding", json!(false)),
    ];
    defaults(properties, default_members);
}

/// Adds the state of an endpoint's connection.
fn show_endpoint(cloud: &AzureState, resource: &Resource, body: &mut Value) {
    for member in [MANUAL, DIRECT] {
        for connection in list_mut(body, member) {
            let requested = text(connection, "/properties/privateLinkServiceId");
            let service = link_service(cloud, requested).map(|found| &found.body);
            let all = service.map(|s| list(s, "/properties/privateEndpointConnections"));
            let of = |c: &&Value| same(text(c, "/properties/privateEndpoint/id"), &resource.id);
            let found = all.unwrap_or_default().iter().find(of);
            let state =
                found.and_then(|c| c.pointer("/properties/privateLinkServiceConnectionState"));
            let gone = json!({
                "status": "Disconnected", "description": "Removed by the service's owner.",
                "actionsRequired": "None",
            });
            let state = state.cloned().unwrap_or(gone);
            let properties = object_member(connection, "properties");
            put(properties, "privateLinkServiceConnectionState", Some(state));
        }
    }
}

/// Returns a service by id or alias.
pub fn link_service<'a>(cloud: &'a AzureState, requested: &str) -> Option<&'a Resource> {
    let mut services = cloud.resources.iter().filter(|r| r.id.contains("/privateLinkServices/"));
    services.find(|r| same(&r.id, requested) || text(&r.body, "/properties/alias") == requested)
}
