//! Each harmful setting produces its finding, and good settings produce none.

use serde_json::json;

use super::*;
use crate::id::ResourceId;
use crate::location::Pool;
use crate::types::{Family, Identity};

const GW: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/gw";

fn id(text: &str) -> ResourceId {
    ResourceId::parse(text).unwrap()
}

fn location() -> Location {
    let identity = Identity {
        vm_id: "v".into(),
        name: "weir-0".into(),
        subscription: "s".into(),
        resource_group: "g".into(),
        location: "westeurope".into(),
        zone: String::new(),
        environment: "AzurePublicCloud".into(),
        resource_id: GW.into(),
        scale_set: None,
        interfaces: Vec::new(),
    };
    let pool = |family, name: &str| Pool {
        family,
        gateway: "gw".into(),
        id: id(&format!("{GW}/backendAddressPools/{name}")),
        configuration: id(GW),
        address: "10.0.0.4".parse().unwrap(),
        network: id(GW),
    };
    let pools = vec![pool(Family::V4, "weir"), pool(Family::V6, "weir6")];
    Location { identity, interface: id(GW), managed: false, balancer: id(GW), pools }
}

fn good() -> (Value, ApplianceSettings) {
    let pools = ["weir", "weir6"].map(|n| json!({ "id": format!("{GW}/backendAddressPools/{n}") }));
    let balancer = json!({ "properties": {
        "loadBalancingRules": [{ "name": "all", "properties": {
            "protocol": "All", "frontendPort": 0, "idleTimeoutInMinutes": 5,
            "backendAddressPools": pools, "probe": { "id": format!("{GW}/probes/health") },
        }}],
        "probes": [{ "id": format!("{GW}/probes/health"), "name": "health", "properties": {
            "protocol": "Http", "port": 8080, "intervalInSeconds": 5, "probeThreshold": 2,
        }}],
    }});
    (balancer, ApplianceSettings { http: vec![8080], tcp: vec![8081], tcp_s: 350 })
}

type Modify = fn(&mut Value, &mut Value, &mut ApplianceSettings);

#[test]
fn each_harmful_setting_is_reported_once_with_remedy() {
    let table: &[(Modify, &[&str])] = &[
        (|_, _, _| {}, &[]),
        (|r, _, _| r["backendAddressPools"] = json!([]), &["pool-unused"]),
        (|r, _, _| r["protocol"] = json!("Tcp"), &["rule-not-whole"]),
        (|r, _, _| r["frontendPort"] = json!(80), &["rule-not-whole"]),
        (|r, _, _| r["probe"] = json!(null), &["rule-unprobed"]),
        (|r, _, _| r["idleTimeoutInMinutes"] = json!(6), &["tcp-forgotten-early"]),
        (|_, _, a| a.tcp_s = 299, &["tcp-forgotten-early"]),
        (|r, _, _| r["idleTimeoutInMinutes"] = json!(null), &["idle-unreset"]),
        (
            |r, _, _| {
                (r["idleTimeoutInMinutes"], r["enableTcpReset"]) = (json!(4), json!(true));
            },
            &[],
        ),
        (|_, p, _| p["port"] = json!(80), &["probe-elsewhere"]),
        (|_, p, _| p["protocol"] = json!("Tcp"), &["probe-elsewhere"]),
        (|_, p, _| (p["protocol"], p["port"]) = (json!("Tcp"), json!(8081)), &[]),
        (|_, p, _| p["protocol"] = json!("Https"), &["probe-https"]),
        (|_, p, _| p["intervalInSeconds"] = json!(16), &["detection-slow"]),
        (|_, p, _| p["probeThreshold"] = json!(u32::MAX), &["detection-slow"]),
    ];
    for (row, (modify, names)) in table.iter().enumerate() {
        let (mut balancer, mut appliance) = good();
        let mut rule = balancer["properties"]["loadBalancingRules"][0]["properties"].take();
        let mut probe = balancer["properties"]["probes"][0]["properties"].take();
        modify(&mut rule, &mut probe, &mut appliance);
        balancer["properties"]["loadBalancingRules"][0]["properties"] = rule;
        balancer["properties"]["probes"][0]["properties"] = probe;
        let found = advise(&location(), &balancer, &appliance);
        let names_found: Vec<&str> = found.iter().map(|finding| finding.name).collect();
        assert_eq!(names_found, *names, "row {row}");
        assert!(found.iter().all(|f| !f.text.is_empty() && !f.remedy.is_empty()));
    }
}
