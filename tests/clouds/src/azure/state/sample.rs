//! A small sample: one gateway load balancer with two appliances behind it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Application, AzureState, Resource};

/// Resource group of all resources.
pub const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-0000000000aa/resourceGroups/north";
const LOCATION: &str = "westeurope";

fn network(kind: &str, name: &str) -> String {
    format!("{GROUP}/providers/Microsoft.Network/{kind}/{name}")
}

fn compute(kind: &str, name: &str) -> String {
    format!("{GROUP}/providers/Microsoft.Compute/{kind}/{name}")
}

fn refer(id: &str) -> Value {
    json!({ "id": id })
}

fn subnet(name: &str) -> String {
    format!("{}/subnets/{name}", network("virtualNetworks", "hub"))
}

fn hub() -> Value {
    let subnet = |name: &str, four: &str, six: &str| {
        json!({ "name": name, "properties": {
            "addressPrefix": four, "addressPrefixes": [four, six],
            "privateEndpointNetworkPolicies": "Disabled",
            "privateLinkServiceNetworkPolicies": "Enabled",
        }})
    };
    json!({ "location": LOCATION, "properties": {
        "addressSpace": { "addressPrefixes": ["10.1.0.0/16", "fd00:1::/48"] },
        "subnets": [
            subnet("data", "10.1.0.0/24", "fd00:1::/64"),
            subnet("management", "10.1.1.0/24", "fd00:1:0:1::/64"),
        ],
    }})
}

fn frontend(name: &str, address: &str, version: &str) -> Value {
    json!({ "name": name, "properties": {
        "privateIPAddress": address, "privateIPAddressVersion": version,
        "privateIPAllocationMethod": "Dynamic", "subnet": refer(&subnet("data")),
    }})
}

fn tunnels(external: (u16, u32), internal: (u16, u32)) -> Value {
    let ends = [("External", external), ("Internal", internal)];
    let each = ends.map(|(kind, (port, vni))| {
        let mut tunnel = json!({ "protocol": "VXLAN", "type": kind });
        (tunnel["port"], tunnel["identifier"]) = (port.into(), vni.into());
        tunnel
    });
    Value::from(each.to_vec())
}

/// The gateway load balancer: a pool and a rule of each family, one probe.
fn gateway() -> Value {
    let id = network("loadBalancers", "gw");
    let part = |kind: &str, name: &str| refer(&format!("{id}/{kind}/{name}"));
    let rule = |name: &str, frontend: &str, pool: &str| {
        json!({ "name": name, "properties": {
            "frontendIPConfiguration": part("frontendIPConfigurations", frontend),
            "frontendPort": 0, "backendPort": 0, "protocol": "All",
            "enableFloatingIP": false, "idleTimeoutInMinutes": 4, "enableTcpReset": false,
            "loadDistribution": "Default", "disableOutboundSnat": true,
            "backendAddressPool": part("backendAddressPools", pool),
            "backendAddressPools": [part("backendAddressPools", pool)],
            "probe": part("probes", "health"),
        }})
    };
    let pool = |name: &str, tunnels: Value| {
        let properties = json!({ "tunnelInterfaces": tunnels });
        json!({ "name": name, "properties": properties })
    };
    json!({ "location": LOCATION, "sku": { "name": "Gateway", "tier": "Regional" }, "properties": {
        "frontendIPConfigurations": [
            frontend("front", "10.1.0.4", "IPv4"), frontend("front6", "fd00:1::4", "IPv6"),
        ],
        "backendAddressPools": [
            pool("weir", tunnels((10801, 801), (10800, 800))),
            pool("weir6", tunnels((2667, 867), (2666, 866))),
        ],
        "loadBalancingRules": [rule("all", "front", "weir"), rule("all6", "front6", "weir6")],
        "probes": [{ "name": "health", "properties": {
            "protocol": "Http", "port": 8080, "requestPath": "/", "intervalInSeconds": 5,
            "numberOfProbes": 2, "probeThreshold": 1,
        }}],
    }})
}

/// A load balancer of another SKU with a pool of the same name, which Weir must not select.
fn decoy() -> Value {
    json!({ "location": LOCATION, "sku": { "name": "Standard", "tier": "Regional" }, "properties": {
        "frontendIPConfigurations": [frontend("front", "10.1.0.5", "IPv4")],
        "backendAddressPools": [{ "name": "weir", "properties": {} }],
    }})
}

/// A machine's interface in the subnet `data` or `management`.
fn interface(machine: &str, n: u8, name: &str) -> Value {
    let (net, data) = if name == "data" { (0, true) } else { (1, false) };
    let configuration = |called: &str, address: String, version: &str| {
        json!({ "name": called, "properties": {
            "privateIPAddress": address, "privateIPAddressVersion": version,
            "privateIPAllocationMethod": "Dynamic", "primary": version == "IPv4",
            "subnet": refer(&subnet(name)),
        }})
    };
    let six = if data { format!("fd00:1::{}", 10 + n) } else { format!("fd00:1:0:1::{n}") };
    json!({ "location": LOCATION, "properties": {
        "ipConfigurations": [
            configuration("ipconfig1", format!("10.1.{net}.{}", 10 + n), "IPv4"),
            configuration("ipconfig6", six, "IPv6"),
        ],
        "macAddress": format!("00-22-48-0A-{:02X}-{:02X}", net + 1, 10 + n),
        "enableAcceleratedNetworking": data, "enableIPForwarding": data, "primary": !data,
        "virtualMachine": refer(machine),
    }})
}

/// A machine with these interfaces, the primary one first.
fn machine(n: u64, interfaces: &[&str]) -> Value {
    let reference =
        |(at, id): (usize, &&str)| json!({ "id": id, "properties": { "primary": at == 0 } });
    let interfaces: Vec<Value> = interfaces.iter().enumerate().map(reference).collect();
    json!({ "location": LOCATION, "zones": ["1"], "tags": { "weir-cluster": "north" },
    "properties": {
        "vmId": super::guid(3_000_000 + n),
        "hardwareProfile": { "vmSize": "Standard_D4s_v5" },
        "networkProfile": { "networkInterfaces": interfaces },
    }})
}

fn security_group() -> Value {
    json!({ "location": LOCATION, "properties": { "securityRules": [], "defaultSecurityRules": [
        { "name": "AllowVnetInBound", "properties": {
            "protocol": "*", "sourcePortRange": "*", "destinationPortRange": "*",
            "sourceAddressPrefix": "VirtualNetwork", "access": "Allow", "priority": 65000,
            "destinationAddressPrefix": "VirtualNetwork", "direction": "Inbound" }},
        { "name": "AllowAzureLoadBalancerInBound", "properties": {
            "protocol": "*", "sourcePortRange": "*", "destinationPortRange": "*",
            "sourceAddressPrefix": "AzureLoadBalancer", "access": "Allow", "priority": 65001,
            "destinationAddressPrefix": "*", "direction": "Inbound" }},
    ]}})
}

/// A uniform scale set with two instances, whose model names no pool.
fn scale_set() -> Vec<(String, Value)> {
    let set = compute("virtualMachineScaleSets", "weirs");
    let properties = json!({ "orchestrationMode": "Uniform" });
    let mut all = vec![(set.clone(), json!({ "location": LOCATION, "properties": properties }))];
    for n in 0..2_u8 {
        let instance = format!("{set}/virtualMachines/{n}");
        let nic = format!("{instance}/networkInterfaces/data");
        all.push((instance.clone(), machine(10 + u64::from(n), &[&nic])));
        all.push((nic, interface(&instance, 20 + n, "data")));
    }
    all
}

impl AzureState {
    /// Returns the sample: one resource group with the gateway load balancer `gw` and its pools
    /// `weir` and `weir6`, a decoy of another SKU, the machines `weir-0` (the own one) and
    /// `weir-1`, and the scale set `weirs`. The pools are empty. The clock starts at the real time,
    /// because clients compare the expiry of tokens with it.
    pub fn sample() -> AzureState {
        let mut all = vec![
            (network("virtualNetworks", "hub"), hub()),
            (network("networkSecurityGroups", "north"), security_group()),
            (network("loadBalancers", "gw"), gateway()),
            (network("loadBalancers", "plain"), decoy()),
        ];
        for n in 0..2_u8 {
            let id = compute("virtualMachines", &format!("weir-{n}"));
            let management = network("networkInterfaces", &format!("weir-{n}-management"));
            let data = network("networkInterfaces", &format!("weir-{n}-data"));
            all.push((id.clone(), machine(u64::from(n), &[&management, &data])));
            all.push((management, interface(&id, 1 + n, "management")));
            all.push((data, interface(&id, 1 + n, "data")));
        }
        all.extend(scale_set());
        let resources: Vec<Resource> = (1_u64..)
            .zip(all)
            .map(|(version, (id, body))| Resource { id, version, failed: false, body })
            .collect();
        AzureState {
            now: Duration::ZERO,
            epoch: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            skew: 0,
            environment: "AzurePublicCloud".to_owned(),
            tenant: "00000000-0000-0000-0000-0000000000cc".to_owned(),
            groups: vec![GROUP.to_owned()],
            location: LOCATION.to_owned(),
            page: None,
            writes: resources.len() as u64,
            resources,
            operations: Vec::new(),
            pace: Duration::ZERO,
            pause: 2,
            outcomes: Vec::new(),
            forbidden: Vec::new(),
            tunnels: json!([
                { "port": 10800, "identifier": 900, "protocol": "VXLAN", "type": "Internal" },
            ]),
            applications: vec![Application {
                client: "00000000-0000-0000-0000-0000000000a1".to_owned(),
                secret: "not so secret".to_owned(),
                assertion: "a workload".to_owned(),
            }],
            identities: vec![
                "00000000-0000-0000-0000-0000000000d1".to_owned(),
                "00000000-0000-0000-0000-0000000000d2".to_owned(),
            ],
            tokens: Vec::new(),
            token_lifetime: 86_400,
            own: compute("virtualMachines", "weir-0"),
            incarnation: 1,
            events: Vec::new(),
            interval: Duration::from_secs(5),
            good: true,
            backends: Vec::new(),
        }
    }
}
