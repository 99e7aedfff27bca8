//! Test of the BGP neighbors of policies in the region's settings.

use super::*;
use packet::addr::Addr;
use state::object::{Change, Object};

fn policy(name: &str, asn: u32, labels: serde_json::Value, neighbors: &[&str]) -> Change {
    let neighbors: Vec<_> = neighbors
        .iter()
        .map(|address| serde_json::json!({"address": address, "asn": 65_000}))
        .collect();
    let spec = serde_json::json!({
        "node_selector": {"match_labels": labels},
        "routers": [{"local_asn": asn, "neighbors": neighbors}],
    });
    let object = serde_json::json!({"kind": "BgpPeeringPolicy", "name": name, "spec": spec});
    Change::put(Object::from_json(&object).unwrap())
}

fn neighbors(region: &Region) -> Vec<Addr> {
    let set = region.tables(region.generation());
    let all = set.settings().neighbors.into_iter();
    all.take_while(|addr| *addr != Addr::UNSPECIFIED).collect()
}

#[test]
fn bgp_neighbors_of_selected_policies_are_in_the_region() {
    let mut fixture = Fixture::new("neighbors");
    let text = CONFIG.replace("[fastpath]", "[labels]\nrack = \"a\"\n[fastpath]");
    let mut config = config::from_toml(&text).unwrap();
    config.services = Some(fixture.services.clone());
    fixture.config = Arc::new(config);
    let (mut reconcile, _) = fixture.start();
    let store = Arc::clone(&fixture.store);
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(neighbors(fixture.region), []);
    let selector = serde_json::json!({"rack": "a"});
    let changes = vec![
        policy("local", 65_001, selector, &["10.0.1.2", "fd00:1::2", "10.0.1.1"]),
        policy("other", 65_002, serde_json::json!({"rack": "b"}), &["10.0.1.9"]),
    ];
    store.change(changes, SystemTime::UNIX_EPOCH).unwrap();
    fixture.pass(1000, &mut reconcile, None);
    let expected = ["10.0.1.1", "10.0.1.2", "fd00:1::2"];
    let expected = expected.map(|addr| Addr::from(addr.parse::<IpAddr>().unwrap()));
    assert_eq!(neighbors(fixture.region), expected);
    let none = policy("local", 65_001, serde_json::json!({"rack": "c"}), &["10.0.1.2"]);
    store.change(vec![none], SystemTime::UNIX_EPOCH).unwrap();
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(neighbors(fixture.region), []);
}
