//! Metadata service of a machine.

use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::azure::answer::{AzureResponse, list, text};
use crate::azure::identity;
use crate::azure::member::addresses;
use crate::azure::path::{Path, name, parent, same};
use crate::azure::request::ParsedRequest;
use crate::azure::rule::{rules_of, sku};
use crate::azure::state::{AzureState, Event, guid};
use crate::azure::view::render;

/// Newest supported API version.
const NEWEST: &str = "2025-04-07";

impl AzureState {
    /// Schedules an event for the machine of this name; returns the event's id.
    pub fn schedule(&mut self, kind: &str, machine: &str, notice: Duration) -> String {
        self.incarnation += 1;
        let id = guid(2_000_000 + self.incarnation);
        self.events.push(Event {
            id: id.clone(),
            kind: kind.to_owned(),
            machines: vec![machine.to_owned()],
            not_before: self.now + notice,
            started: false,
            lasts: Duration::from_secs(60),
            description: format!("{kind} of {machine} is planned."),
        });
        id
    }

    /// Starts the events whose notice period has ended, and removes those that are over.
    pub fn run_events(&mut self) {
        let now = self.now;
        let before = self.events.clone();
        for event in self.events.iter_mut().filter(|e| !e.started && e.not_before <= now) {
            event.started = true;
        }
        self.events.retain(|event| !event.started || now < event.not_before + event.lasts);
        self.incarnation += u64::from(before != self.events);
    }
}

fn imds_error(status: u16, why: &str) -> AzureResponse {
    AzureResponse::of(status, json!({ "error": why }))
}

/// Answers a request from the machine with the id `machine`.
pub fn respond(cloud: &mut AzureState, machine: &str, request: &ParsedRequest) -> AzureResponse {
    if request.header("metadata").is_none_or(|value| !value.eq_ignore_ascii_case("true")) {
        return imds_error(400, "Bad request. Required metadata header not specified");
    }
    if request.header("x-forwarded-for").is_some() {
        return imds_error(400, "Bad request. X-Forwarded-For is not allowed");
    }
    let Some(version) = request.query("api-version") else {
        return imds_error(400, "Bad request. api-version was not specified in the request");
    };
    let path = request.path.trim_end_matches('/').to_ascii_lowercase();
    let (oldest_version, methods) = match path.as_str() {
        "/metadata/instance" => ("2017-04-02", "GET"),
        "/metadata/loadbalancer" => ("2020-10-01", "GET"),
        "/metadata/identity/oauth2/token" => ("2018-02-01", "GET"),
        "/metadata/scheduledevents" => ("2017-08-01", "GET POST"),
        _ => return imds_error(404, "Not found"),
    };
    let is_supported = version.len() == 10 && (oldest_version..=NEWEST).contains(&version);
    if !is_supported {
        return imds_error(400, "Bad request. api-version is invalid or was not specified");
    }
    if !methods.contains(&request.method) {
        return imds_error(405, "Method not allowed");
    }
    match (path.as_str(), request.method.as_str()) {
        ("/metadata/instance", _) => match instance(cloud, machine) {
            Some(body) => AzureResponse::of(200, body),
            None => imds_error(410, "The machine is gone"),
        },
        ("/metadata/loadbalancer", _) => match load_balancer(cloud, machine) {
            Some(body) => AzureResponse::of(200, body),
            None => imds_error(404, "No load balancer metadata is found"),
        },
        ("/metadata/scheduledevents", "POST") => approve(cloud, request),
        ("/metadata/scheduledevents", _) => AzureResponse::of(200, events(cloud, machine)),
        _ => identity::machine(cloud, request),
    }
}

/// Returns the network interfaces of a machine, in the form in which Resource Manager returns them.
fn interfaces(cloud: &AzureState, machine: &Value) -> Vec<Value> {
    let references = list(machine, "/properties/networkProfile/networkInterfaces").iter();
    let nics = references.filter_map(|reference| cloud.find(text(reference, "/id")));
    nics.map(|nic| render(cloud, nic)).collect()
}

fn instance(cloud: &AzureState, id: &str) -> Option<Value> {
    let path = Path::parse(id)?;
    let machine = cloud.find(id)?;
    let body = render(cloud, machine);
    let scale_set = text(&body, "/properties/virtualMachineScaleSet/id");
    // For an instance of a uniform scale set, the set is part of the id.
    let scale_set = match path.steps.len() {
        4 => path.top().id(),
        _ => scale_set.to_owned(),
    };
    let vm_name = match path.steps.len() {
        4 => format!("{}_{}", path.steps[1], path.name()),
        _ => path.name().to_owned(),
    };
    let compute = json!({
        "azEnvironment": cloud.environment, "location": cloud.location, "name": vm_name,
        "osType": "Linux", "placementGroupId": "", "platformFaultDomain": "0",
        "platformUpdateDomain": "0", "priority": "", "provider": "Microsoft.Compute",
        "resourceGroupName": path.group, "resourceId": machine.id,
        "subscriptionId": path.subscription, "tags": "", "tagsList": [], "version": "",
        "vmId": text(&body, "/properties/vmId"), "vmScaleSetName": name(&scale_set),
        "vmSize": text(&body, "/properties/hardwareProfile/vmSize"),
        "virtualMachineScaleSet": { "id": scale_set },
        "zone": list(&body, "/zones").first().and_then(Value::as_str).unwrap_or_default(),
    });
    let each: Vec<Value> =
        interfaces(cloud, &body).iter().map(|nic| describe_interface(cloud, nic)).collect();
    Some(json!({ "compute": compute, "network": { "interface": each } }))
}

fn describe_interface(cloud: &AzureState, nic: &Value) -> Value {
    let (mut ipv4_addresses, mut ipv6_addresses, mut subnets) =
        (Vec::new(), Vec::new(), Vec::new());
    for part in list(nic, "/properties/ipConfigurations") {
        let address = text(part, "/properties/privateIPAddress");
        let entry = json!({ "privateIpAddress": address, "publicIpAddress": "" });
        if address.contains(':') {
            ipv6_addresses.push(json!({ "privateIpAddress": address }));
            continue;
        }
        ipv4_addresses.push(entry);
        let subnet = crate::azure::network::subnet(cloud, "", text(part, "/properties/subnet/id"));
        let subnet = subnet.unwrap_or_default();
        let prefix = text(&subnet, "/properties/addressPrefix");
        if let Some((address, length)) = prefix.split_once('/') {
            subnets.push(json!({ "address": address, "prefix": length }));
        }
    }
    subnets.dedup();
    json!({
        "ipv4": { "ipAddress": ipv4_addresses, "subnet": subnets },
        "ipv6": { "ipAddress": ipv6_addresses },
        "macAddress": text(nic, "/properties/macAddress").replace('-', ""),
    })
}

/// Returns the load balancer metadata of a machine; `None` if it is a member of no pool.
fn load_balancer(cloud: &AzureState, id: &str) -> Option<Value> {
    let body = render(cloud, cloud.find(id)?);
    let (mut rules, mut tunnels, mut member) = (Vec::new(), Vec::new(), false);
    for nic in interfaces(cloud, &body) {
        for part in list(&nic, "/properties/ipConfigurations") {
            let local = text(part, "/properties/privateIPAddress");
            for pool in list(part, "/properties/loadBalancerBackendAddressPools") {
                member = true;
                let id = text(pool, "/id");
                collect_rules_and_tunnels(cloud, id, local, &mut rules, &mut tunnels);
            }
            for id in pools_with_address(cloud, local) {
                member = true;
                collect_rules_and_tunnels(cloud, &id, local, &mut rules, &mut tunnels);
            }
        }
    }
    let none: [Value; 0] = [];
    let mut body = json!({
        "publicIpAddresses": none, "inboundRules": rules, "outboundRules": none,
    });
    if !tunnels.is_empty() {
        body["tunnelInterfaces"] = tunnels.into();
    }
    member.then(|| json!({ "loadbalancer": body }))
}

/// Returns the pools that have an address as a member.
fn pools_with_address(cloud: &AzureState, address: &str) -> Vec<String> {
    let balancers = cloud.resources.iter().filter(|r| r.id.contains("/loadBalancers/"));
    let pools = balancers.flat_map(|balancer| {
        let pools = list(&balancer.body, "/properties/backendAddressPools").iter();
        pools.map(|p| (format!("{}/backendAddressPools/{}", balancer.id, text(p, "/name")), p))
    });
    let has =
        |pool: &Value| addresses(pool).any(|entry| text(entry, "/properties/ipAddress") == address);
    pools.filter(|(_, pool)| has(pool)).map(|(id, _)| id).collect()
}

/// Collects the rules and tunnels of the pool `id` for its member with the address `local`.
fn collect_rules_and_tunnels(
    cloud: &AzureState,
    id: &str,
    local: &str,
    rules: &mut Vec<Value>,
    tunnels: &mut Vec<Value>,
) {
    let Some(resource) = cloud.find(parent(id)) else { return };
    let balancer = render(cloud, resource);
    let frontends = list(&balancer, "/properties/frontendIPConfigurations");
    let of_family = |frontend: &&Value| {
        let address = text(frontend, "/properties/privateIPAddress").parse::<IpAddr>();
        address.is_ok_and(|address| address.is_ipv6() == local.contains(':'))
    };
    for rule in rules_of(&balancer, id) {
        let to = text(&rule, "/properties/frontendIPConfiguration/id");
        let Some(frontend) = frontends.iter().find(|f| same(text(f, "/id"), to)) else { continue };
        let protocol = text(&rule, "/properties/protocol").to_ascii_lowercase();
        rules.push(json!({
            "frontendIpAddress": text(frontend, "/properties/privateIPAddress"),
            "protocol": protocol,
            "frontendPort": rule.pointer("/properties/frontendPort"),
            "backendPort": rule.pointer("/properties/backendPort"),
            "privateIpAddress": local,
        }));
    }
    if sku(&balancer) != "Gateway" {
        return;
    }
    let gateway = frontends.iter().find(of_family).or(frontends.first());
    let gateway = gateway.map(|f| text(f, "/properties/privateIPAddress")).unwrap_or_default();
    let pool = cloud.get(id).unwrap_or_default();
    for tunnel in list(&pool, "/properties/tunnelInterfaces") {
        let lower = |pointer: &str| text(tunnel, pointer).to_ascii_lowercase();
        tunnels.push(json!({
            "gatewayIpAddress": gateway, "gatewayPort": tunnel["port"],
            "identifier": tunnel["identifier"], "type": lower("/type"),
            "protocol": lower("/protocol"), "localIpAddress": local, "localPort": tunnel["port"],
        }));
    }
}

/// Returns the name of a machine as scheduled events have it; empty if the machine is gone.
fn machine_name(cloud: &AzureState, id: &str) -> String {
    let document = instance(cloud, id).unwrap_or_default();
    text(&document, "/compute/name").to_owned()
}

fn events(cloud: &AzureState, machine: &str) -> Value {
    let vm_name = machine_name(cloud, machine);
    // Machines of a scale set see each other's events.
    let set = vm_name.rsplit_once('_').map(|(set, _)| format!("{set}_"));
    let is_own = |name: &String| {
        *name == vm_name || set.as_ref().is_some_and(|set| name.starts_with(set.as_str()))
    };
    let visible = cloud.events.iter().filter(|event| event.machines.iter().any(is_own));
    let each: Vec<Value> = visible
        .map(|event| {
            let at = UNIX_EPOCH + Duration::from_secs(cloud.epoch) + event.not_before;
            let (status, not_before) = match event.started {
                true => ("Started", String::new()),
                false => ("Scheduled", httpdate::fmt_http_date(at)),
            };
            json!({
                "EventId": event.id, "EventStatus": status, "EventType": event.kind,
                "ResourceType": "VirtualMachine", "Resources": event.machines,
                "NotBefore": not_before, "Description": event.description,
                "EventSource": "Platform", "DurationInSeconds": -1,
            })
        })
        .collect();
    json!({ "DocumentIncarnation": cloud.incarnation, "Events": each })
}

/// Acknowledges events, which then start at once.
fn approve(cloud: &mut AzureState, request: &ParsedRequest) -> AzureResponse {
    let now = cloud.now;
    let requested: Vec<&str> =
        list(&request.body, "/StartRequests").iter().map(|r| text(r, "/EventId")).collect();
    if requested.is_empty() {
        return imds_error(400, "Bad request. StartRequests is missing");
    }
    for id in requested {
        let Some(event) = cloud.events.iter_mut().find(|event| event.id == id) else {
            return imds_error(400, "Bad request. There is no such event");
        };
        if !event.started {
            (event.started, event.not_before) = (true, now);
            cloud.incarnation += 1;
        }
    }
    AzureResponse::empty(200)
}
