//! Golden tests of the output of `weir bgp`.

use serde_json::json;

use super::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn peers_have_a_row_for_each_family() {
    let row = |state: &str, family: &str, uptime: Value| {
        json!({ "node": "weir-1", "local_asn": 4200000001_u32, "peer_asn": 65000,
            "peer": "192.0.2.254:179", "state": state, "uptime_s": uptime, "family": family,
            "received": 0, "advertised": 20000 })
    };
    let rows = json!([
        row("established", "ipv4-unicast", json!(125.4)),
        row("open-sent", "ipv6-unicast", Value::Null)
    ]);
    let expected = "\
NODE      LOCAL AS  PEER AS  PEER ADDRESS     SESSION STATE  UPTIME     FAMILY        \
RECEIVED  ADVERTISED
weir-1  4200000001    65000  192.0.2.254:179  Established    2 min 5 s  ipv4 unicast         \
0      20 000
weir-1  4200000001    65000  192.0.2.254:179  OpenSent                  ipv6 unicast         \
0      20 000
";
    assert_eq!(peers(&read::<Vec<PeerRow>>(rows)).text(), expected);
}

#[test]
fn formats_routes_and_policies_and_truncates_long_lists() {
    let route = json!([{ "node": "weir-1", "router": 65001, "peer": "[2001:db8::1]:179",
        "prefix": "2001:db8:1::/48", "next_hop": "2001:db8::10", "age_s": 7.9,
        "attributes": "origin igp" }]);
    let expected = "\
NODE    VROUTER  PEER               PREFIX           NEXTHOP       AGE  ATTRS
weir-1    65001  [2001:db8::1]:179  2001:db8:1::/48  2001:db8::10  7 s  origin igp
";
    assert_eq!(routes(&read::<Vec<RouteRow>>(route)).text(), expected);
    let prefix = |n: u8| json!({ "prefix": format!("203.0.113.{n}/32"), "min": 32, "max": 32 });
    let policy = json!([{ "router": 65001, "policy": "edge", "type": "export",
        "peers": ["192.0.2.254:179"], "families": ["ipv4-unicast"],
        "prefixes": (0..7).map(prefix).collect::<Vec<_>>(), "rib_action": "accept",
        "path_actions": "next hop 192.0.2.10" },
        { "router": 65001, "policy": "edge", "type": "import", "peers": [], "families": [],
        "prefixes": [], "rib_action": "reject", "path_actions": "" }]);
    let text = policies(&read::<Vec<PolicyRow>>(policy)).text();
    assert!(text.contains("203.0.113.4/32 (32..32) + 2 more  accept "), "{text}");
    assert!(!text.contains("203.0.113.5/32"), "{text}");
    let import: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(import, ["65001", "edge", "import", "any", "any", "any", "reject"]);
}

#[test]
fn explains_missing_rows() {
    let none = |policies, policy: Option<&str>, error: &str| {
        let (policy, error) = (policy.map(str::to_owned), error.to_owned());
        rows_or_reason(
            &BgpStatus { policies, policy, error, ..BgpStatus::default() },
            String::new(),
        )
    };
    assert_eq!(none(0, None, ""), "there is no BGP peering policy\n");
    assert!(none(1, None, "").contains("does not select this appliance"));
    assert!(none(3, None, "").starts_with("none of the 3 BGP peering policies selects"));
    assert_eq!(none(1, Some("edge"), ""), "nothing to show; policy edge is in force\n");
    assert_eq!(none(2, None, "several"), "", "the error is printed separately");
    let status = BgpStatus { policies: 1, policy: Some("edge".into()), ..BgpStatus::default() };
    assert_eq!(rows_or_reason(&status, "rows\n".to_owned()), "rows\n");
}

#[test]
fn details_omit_absent_fields() {
    let notification = json!({ "ago_s": 61.0, "message": "hold timer expired" });
    let idle = json!({ "peer": "192.0.2.253:179", "peer_asn": 0, "local_asn": 65001,
        "router_id": "192.0.2.10", "state": "idle", "since_s": 3.0, "connection": null,
        "families": [{ "family": "ipv4-unicast", "agreed": false }], "flaps": 2, "refused": 1,
        "last_sent": notification, "last_received": null, "last_lost": null,
        "error": "no route to host", "bfd": { "up": false, "why": "detection time expired" } });
    let listener = json!({ "address": "0.0.0.0:179", "interface": null, "listens": false,
        "accepted": 0, "refused": 3, "error": "address in use" });
    let report = json!({ "peers": [idle], "listeners": [listener], "bfd_error": null });
    let expected = "\
192.0.2.253:179 (AS 0) of router 65001: idle for 3 s
  router id     192.0.2.10
  ipv4-unicast  not negotiated
  BFD           down: detection time expired
  flaps         2
  last sent     hold timer expired, 1 min 1 s ago
  refused       1 connections of the neighbor
  error         no route to host

LISTENER     INTERFACE  STATE                          ACCEPTED  REFUSED
0.0.0.0:179             not listening: address in use         0        3
";
    assert_eq!(detail::text(&report), expected);
    assert_eq!(detail::text(&json!({ "peers": [], "listeners": [], "bfd_error": null })), "");
}
