//! Private link services, private endpoints, and the connections between them.

use serde_json::{Value, json};

use crate::azure::answer::{
    AzureResponse, ServiceResult, defaults, fail, list, list_mut, missing, object_member, put, text,
};
use crate::azure::kind::{Completion, Kind};
use crate::azure::operation::Plan;
use crate::azure::path::{Path, name, parent, same};
use crate::azure::request::ParsedRequest;
use crate::azure::rights::check_join;
use crate::azure::rule::sku;
use crate::azure::state::{AzureState, Resource, guid};
use crate::azure::view::{DIRECT, MANUAL, get_resource, link_service};
use crate::azure::{interface, network};

/// Members of a service that only Azure writes.
const READ_ONLY: [&str; 3] = ["alias", "networkInterfaces", "privateEndpointConnections"];

/// Validates a private link service, and sets the members that Azure sets: addresses, alias,
/// interface, connections and defaults.
pub fn check_service(
    cloud: &mut AzureState,
    path: &Path,
    old: Option<&Value>,
    body: &mut Value,
) -> ServiceResult<Vec<String>> {
    check_frontends(cloud, path, body)?;
    if list(body, "/properties/ipConfigurations").is_empty() {
        let why = "A private link service needs an IP configuration.";
        return fail(400, "PrivateLinkServiceMustHaveIpConfiguration", why);
    }
    let before = old.map(|old| list(old, "/properties/ipConfigurations")).unwrap_or_default();
    let mut taken = Vec::new();
    for part in list_mut(body, "ipConfigurations") {
        let subnet = text(part, "/properties/subnet/id").to_owned();
        let found = network::subnet(cloud, &path.id(), &subnet)?;
        check_join(cloud, path, "virtualNetworks/subnets/join/action", &subnet)?;
        if text(&found, "/properties/privateLinkServiceNetworkPolicies") != "Disabled" {
            let why = format!(
                "Private link service {} cannot be created in a subnet {subnet} since it has \
                 private link service network policies enabled.",
                path.id()
            );
            let code = "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled";
            return fail(400, code, why);
        }
        let known = before.iter().find(|b| text(b, "/name") == text(part, "/name"));
        interface::assign_address(cloud, &subnet, known, part, &mut taken)?;
    }
    let uuid = guid(cloud.writes + 5_000_000);
    let new = [
        json!(format!("{}.{uuid}.{}.azure.privatelinkservice", path.name(), cloud.location)),
        json!([{ "id": nic_of(path, &uuid) }]),
        json!([]),
    ];
    let properties = object_member(body, "properties");
    for (member, new) in READ_ONLY.into_iter().zip(new) {
        let previous = old.and_then(|old| old.pointer(&format!("/properties/{member}"))).cloned();
        put(properties, member, Some(previous.unwrap_or(new)));
    }
    let no_subscriptions = json!({ "subscriptions": [] });
    let default_members = [
        ("visibility", no_subscriptions.clone()),
        ("autoApproval", no_subscriptions),
        ("enableProxyProtocol", json!(false)),
        ("fqdns", json!([])),
    ];
    defaults(properties, default_members);
    Ok(Vec::new())
}

/// Returns the id of the interface that Azure creates for a service or an endpoint.
fn nic_of(path: &Path, uuid: &str) -> String {
    let steps = vec!["networkInterfaces".to_owned(), format!("{}.nic.{uuid}", path.name())];
    Path { steps, ..path.clone() }.id()
}

fn check_frontends(cloud: &AzureState, path: &Path, body: &Value) -> ServiceResult<()> {
    let frontends = list(body, "/properties/loadBalancerFrontendIpConfigurations");
    if frontends.is_empty() {
        let why = "A private link service needs a frontend of a load balancer.";
        return fail(400, "PrivateLinkServiceMustHaveLoadBalancerFrontend", why);
    }
    for frontend in frontends.iter().map(|f| text(f, "/id")) {
        let found = Path::parse(frontend).and_then(|p| Some((Kind::of(&p)?, p)));
        let found = found.filter(|(kind, path)| get_resource(cloud, path, kind).is_some());
        let Some((_, of)) = found else { return missing(frontend, &path.id()) };
        check_join(cloud, path, "loadBalancers/frontendIPConfigurations/join/action", frontend)?;
        let balancer = cloud.find(&of.top().id());
        if balancer.is_some_and(|balancer| sku(&balancer.body) != "Standard") {
            let why = format!("{frontend} is not of a Standard load balancer.");
            return fail(400, "PrivateLinkServiceNeedsStandardLoadBalancer", why);
        }
    }
    Ok(())
}

/// Returns true if the service's list `member` (`visibility`, `autoApproval`) contains the
/// subscription, or `*` for all.
fn lists_subscription(service: &Resource, member: &str, subscription: &str) -> bool {
    let all = list(&service.body, &format!("/properties/{member}/subscriptions")).iter();
    let mut all = all.filter_map(Value::as_str);
    all.any(|one| one == "*" || one.eq_ignore_ascii_case(subscription))
}

/// Returns true if the subscription may connect to the service.
fn is_visible(service: &Resource, subscription: &str) -> bool {
    let own = service.id.split('/').nth(2).unwrap_or_default();
    own.eq_ignore_ascii_case(subscription)
        || lists_subscription(service, "visibility", subscription)
}

/// Fails if a service has an approved or pending connection. Rejected connections do not prevent
/// the deletion of the service.
pub fn check_removable(cloud: &AzureState, path: &Path) -> ServiceResult<()> {
    let found = cloud.find(&path.top().id()).filter(|_| path.steps.len() == 2);
    let connections = found.map(|f| list(&f.body, "/properties/privateEndpointConnections"));
    let state = "/properties/privateLinkServiceConnectionState/status";
    let busy = |c: &&Value| ["Approved", "Pending"].contains(&text(c, state));
    let Some(busy) = connections.unwrap_or_default().iter().find(busy) else { return Ok(()) };
    let why = format!(
        "Private link service {} cannot be deleted since it has private endpoint connection {}.",
        path.id(),
        text(busy, "/name")
    );
    fail(400, "PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted", why)
}

/// Validates a write to an existing connection. Only the state is taken from the body; other
/// members keep their values.
pub fn check_connection(
    path: &Path,
    old: Option<&Value>,
    body: &mut Value,
) -> ServiceResult<Vec<String>> {
    let Some(old) = old else {
        let why = format!(
            "Private endpoint connection {} cannot be created by the service provider.",
            path.name()
        );
        return fail(400, "PrivateEndpointConnectionCannotBeCreatedByServiceProvider", why);
    };
    let state = body.pointer("/properties/privateLinkServiceConnectionState").cloned();
    let status = text(body, "/properties/privateLinkServiceConnectionState/status");
    if !["Approved", "Rejected", "Pending"].contains(&status) {
        let why = format!("Cannot parse the connection's status '{status}'.");
        return fail(400, "InvalidRequestFormat", why);
    }
    *body = old.clone();
    put(object_member(body, "properties"), "privateLinkServiceConnectionState", state);
    Ok(Vec::new())
}

/// Validates a private endpoint. Returns the id of the service to which it connects.
pub fn check_endpoint(
    cloud: &mut AzureState,
    path: &Path,
    old: Option<&Value>,
    body: &mut Value,
) -> ServiceResult<Vec<String>> {
    let subnet = text(body, "/properties/subnet/id").to_owned();
    network::subnet(cloud, &path.id(), &subnet)?;
    check_join(cloud, path, "virtualNetworks/subnets/join/action", &subnet)?;
    let mut services = Vec::new();
    for member in [MANUAL, DIRECT] {
        for connection in list_mut(body, member) {
            let requested = text(connection, "/properties/privateLinkServiceId").to_owned();
            let found = link_service(cloud, &requested);
            let Some(found) = found.filter(|f| is_visible(f, &path.subscription)) else {
                return missing(&requested, &path.id());
            };
            let action = "privateLinkServices/PrivateEndpointConnectionsApproval/action";
            if member == DIRECT {
                check_join(cloud, path, action, &found.id)?;
            }
            services.push(found.id.clone());
        }
    }
    if services.len() != 1 {
        let why = "A private endpoint needs one connection to one private link service.";
        return fail(400, "PrivateEndpointMustHaveOneConnection", why);
    }
    let properties = object_member(body, "properties");
    for member in ["networkInterfaces", "customDnsConfigs"] {
        let previous = old.and_then(|old| old.pointer(&format!("/properties/{member}"))).cloned();
        put(properties, member, Some(previous.unwrap_or_else(|| json!([]))));
    }
    Ok(services)
}

/// Connects a new endpoint: creates its interface with an address, and a pending or approved
/// connection of the service.
pub fn connect(cloud: &mut AzureState, path: &Path) {
    let Some(mut body) = cloud.find(&path.id()).map(|found| found.body.clone()) else { return };
    let manual = list(&body, &format!("/properties/{MANUAL}")).first();
    let direct = list(&body, &format!("/properties/{DIRECT}")).first();
    let Some(requested) = manual.or(direct).map(|c| text(c, "/properties/privateLinkServiceId"))
    else {
        return;
    };
    let Some(to) = link_service(cloud, requested).cloned() else { return };
    let approved = manual.is_none() || lists_subscription(&to, "autoApproval", &path.subscription);
    let message = manual.map(|c| text(c, "/properties/requestMessage")).unwrap_or_default();
    let uuid = guid(cloud.writes + 6_000_000);
    let (status, why) = if approved { ("Approved", "Auto-approved") } else { ("Pending", message) };
    let connection = json!({
        "name": format!("{}.{uuid}", path.name()),
        "properties": {
            "privateEndpoint": { "id": path.id() }, "linkIdentifier": cloud.writes.to_string(),
            "privateLinkServiceConnectionState": {
                "status": status, "description": why, "actionsRequired": "None",
            },
        },
    });
    let mut service = to.body.clone();
    list_mut(&mut service, "privateEndpointConnections").push(connection);

    let subnet = text(&body, "/properties/subnet/id").to_owned();
    let address = network::find_free_address(cloud, &subnet, &[]).unwrap_or_default();
    let nic = nic_of(path, &uuid);
    let configuration = json!({ "name": "privateEndpointIpConfig", "properties": {
        "privateIPAddress": address, "privateIPAddressVersion": "IPv4", "primary": true,
        "privateIPAllocationMethod": "Dynamic", "subnet": { "id": subnet },
    }});
    let interface = json!({ "location": cloud.location, "properties": {
        "ipConfigurations": [configuration], "privateEndpoint": { "id": path.id() },
    }});
    let names = list(&service, "/properties/fqdns").iter();
    let names = names.map(|name| json!({ "fqdn": name, "ipAddresses": [address] }));
    let names: Vec<Value> = names.collect();
    let properties = object_member(&mut body, "properties");
    put(properties, "networkInterfaces", Some(json!([{ "id": nic }])));
    put(properties, "customDnsConfigs", Some(names.into()));
    cloud.write(&to.id, service);
    cloud.write(&nic, interface);
    cloud.write(&path.id(), body);
}

/// Removes the interface and the connections of a deleted endpoint.
pub fn disconnect(cloud: &mut AzureState, endpoint: &Resource) {
    for nic in list(&endpoint.body, "/properties/networkInterfaces") {
        cloud.resources.retain(|r| !same(&r.id, text(nic, "/id")));
    }
    let is_own = |c: &Value| same(text(c, "/properties/privateEndpoint/id"), &endpoint.id);
    let services = cloud.resources.iter().filter(|resource| {
        let connections = list(&resource.body, "/properties/privateEndpointConnections");
        connections.iter().any(is_own)
    });
    for mut service in services.cloned().collect::<Vec<_>>() {
        list_mut(&mut service.body, "privateEndpointConnections").retain(|c| !is_own(c));
        cloud.write(&service.id, service.body);
    }
}

/// Fails if a private link service points to a frontend of the load balancer.
pub fn check_unused(cloud: &AzureState, balancer: &str) -> ServiceResult<()> {
    let refers = |resource: &&Resource| {
        let to = list(&resource.body, "/properties/loadBalancerFrontendIpConfigurations");
        to.iter().any(|f| same(parent(text(f, "/id")), balancer))
    };
    let Some(found) = cloud.resources.iter().find(refers) else { return Ok(()) };
    let why = format!(
        "Cannot delete load balancer {balancer} since private link service {} refers to it.",
        name(&found.id)
    );
    fail(400, "CannotDeleteLoadBalancerWithPrivateLinkService", why)
}

/// Answers whether a service is visible to the caller's subscription.
pub fn visibility(
    cloud: &mut AzureState,
    request: &ParsedRequest,
    path: &Path,
) -> ServiceResult<AzureResponse> {
    let alias = text(&request.body, "/privateLinkServiceAlias");
    let found = link_service(cloud, alias).filter(|_| !alias.is_empty());
    let result = json!({ "visible": found.is_some_and(|f| is_visible(f, &path.subscription)) });
    let plan = Plan {
        name: "POST checkPrivateLinkServiceVisibility".to_owned(),
        completion: Completion::Operation,
        item: path.id(),
        resources: Vec::new(),
        before: Vec::new(),
        end: None,
    };
    Ok(match cloud.begin(plan, Some(result.clone())) {
        Some(id) => {
            cloud.announce(AzureResponse::empty(202), &id, Completion::Operation, &request.base)
        }
        None => AzureResponse::of(200, result),
    })
}
