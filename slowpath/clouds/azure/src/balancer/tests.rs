//! Parsing of a load balancer's body; tests against the emulator cover the rest.

use serde_json::json;

use super::*;

const POOL: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/gw/\
                    backendAddressPools/weir";
const NIC: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/\
                   networkInterfaces/nic/ipConfigurations/a";

fn tunnel(side: &str, port: u64, vni: u64, protocol: &str) -> Value {
    json!({ "port": port, "identifier": vni, "protocol": protocol, "type": side })
}

#[test]
fn tunnels_are_one_external_and_one_internal_else_the_error_lists_them() {
    let of = |all: &[Value]| {
        tunnels(&json!({ "name": "weir", "properties": { "tunnelInterfaces": all } }))
    };
    let external = tunnel("external", 10801, 801, "vxlan");
    let internal = tunnel("Internal", 10800, 800, "VXLAN");
    let right = of(&[internal.clone(), external.clone()]).unwrap();
    let (other, inner) = (TunnelEnd { port: 10801, vni: 801 }, TunnelEnd { port: 10800, vni: 800 });
    assert_eq!(right, Tunnels { external: other, internal: inner });
    // An example of Microsoft's has two internal tunnels.
    let twice = of(&[internal.clone(), tunnel("Internal", 15001, 901, "VXLAN")]).unwrap_err();
    assert!(twice.contains("Internal VXLAN port 15001 vni 901"), "{twice}");
    assert!(twice.contains("one External and one Internal"), "{twice}");
    for wrong in [
        vec![],
        vec![external.clone()],
        vec![external.clone(), tunnel("Internal", 10800, 800, "Native")],
        vec![external.clone(), tunnel("Internal", 0, 800, "VXLAN")],
        vec![external.clone(), tunnel("Internal", 70_000, 800, "VXLAN")],
        vec![external.clone(), tunnel("Internal", 10800, 1 << 24, "VXLAN")],
        vec![external.clone(), internal.clone(), tunnel("None", 1, 1, "None")],
        vec![json!("tunnel"), json!(null)],
    ] {
        assert!(of(&wrong).unwrap_err().contains("pool weir has"), "{wrong:?}");
    }
    assert!(tunnels(&json!([])).is_err());
}

#[test]
fn a_pool_is_by_address_as_soon_as_an_entry_has_one() {
    let listed = |properties: Value| json!({ "name": "e", "properties": properties });
    let nic = json!({ "id": NIC });
    let by_nic = json!({ "properties": {
        "backendIPConfigurations": [nic, { "id": NIC.replace("nic/", "nic2/") }, {}, 7],
        "loadBalancerBackendAddresses": [
            listed(json!({ "networkInterfaceIPConfiguration": nic, "adminState": "DOWN" })),
        ],
    }});
    let all = entries(&by_nic);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all.iter().all(|entry| entry.mode == MembershipMode::Nic));
    assert_eq!((all[0].admin, all[1].admin), (AdminState::Down, AdminState::None));
    assert_eq!((all[0].name.as_deref(), all[1].name.as_deref()), (Some("e"), None));
    // Azure also lists the interface behind an address.
    let subnet =
        POOL.replace("loadBalancers/gw/backendAddressPools/weir", "virtualNetworks/v/subnets/s");
    let by_ip = json!({ "properties": {
        "backendIPConfigurations": [nic],
        "loadBalancerBackendAddresses": [
            listed(json!({ "ipAddress": "10.0.0.4", "networkInterfaceIPConfiguration": nic,
                           "subnet": { "id": subnet } })),
            listed(json!({ "ipAddress": "fd00::4", "adminState": "Up" })),
        ],
    }});
    let all = entries(&by_ip);
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|entry| entry.mode == MembershipMode::Ip));
    assert_eq!(all[0].network.as_ref().map(ResourceId::name), Some("v"));
    assert_eq!((all[1].address, all[1].admin), ("fd00::4".parse().ok(), AdminState::Up));
    assert_eq!(entries(&json!({ "properties": null })), []);
}

#[test]
fn rules_are_those_that_send_to_the_pool_with_their_probe() {
    let gw = POOL.split_once("/backendAddressPools").unwrap().0;
    let probe = format!("{gw}/probes/health");
    let (upper_case, other) = (POOL.replace("gw/", "GW/"), format!("{POOL}6"));
    let balancer = json!({ "properties": {
        "loadBalancingRules": [
            { "name": "all", "properties": {
                "protocol": "All", "frontendPort": 0, "idleTimeoutInMinutes": 15,
                "backendAddressPools": [{ "id": upper_case }],
                "probe": { "id": probe.to_lowercase() }, "enableTcpReset": true } },
            { "name": "one", "properties": {
                "protocol": "Tcp", "frontendPort": 80, "backendAddressPool": { "id": POOL } } },
            { "name": "other", "properties": { "backendAddressPool": { "id": other } } },
        ],
        "probes": [{ "id": probe, "name": "health", "properties": {
            "protocol": "Http", "port": 8080, "requestPath": "/", "intervalInSeconds": 5,
            "numberOfProbes": 2, "probeThreshold": 3 } }],
    }});
    let rules = rules(&balancer, &ResourceId::parse(POOL).unwrap());
    let seconds = Duration::from_secs;
    assert_eq!(rules.len(), 2);
    assert!(rules[0].all_ports && rules[0].resets && !rules[1].all_ports && !rules[1].resets);
    assert_eq!((rules[0].idle, rules[1].idle), (seconds(900), seconds(240)));
    let probe = rules[0].probe.clone().unwrap();
    assert_eq!((probe.port, probe.path.as_str(), probe.detection_time()), (8080, "/", seconds(15)));
    assert_eq!(rules[1].probe, None);
}
