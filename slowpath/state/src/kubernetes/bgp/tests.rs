//! Tests of Cilium's BGP objects of both generations, and of Weir's own format, in YAML.

use serde_json::{Value, json};

use crate::kubernetes::{ConvertedFiles, Settings, read};
use crate::name::Source;

/// First generation.
const FIRST: &str = "\
apiVersion: cilium.io/v2alpha1
kind: CiliumBGPPeeringPolicy
metadata:
  name: rack0
spec:
  nodeSelector:
    matchLabels: {rack: rack0}
    matchExpressions:
    - {key: zone, operator: In, values: [a]}
  virtualRouters:
  - localASN: 64512
    exportPodCIDR: true
    serviceSelector:
      matchExpressions:
      - {key: somekey, operator: NotIn, values: ['never-used-value']}
    serviceAdvertisements: [LoadBalancerIP, ExternalIP]
    neighbors:
    - peerAddress: '10.0.0.1/32'
      peerPort: 1179
      peerASN: 64512
      authSecretRef: bgp-auth
      eBGPMultihopTTL: 10
      connectRetryTimeSeconds: 12
      holdTimeSeconds: 9
      keepAliveTimeSeconds: 3
      gracefulRestart: {enabled: true, restartTimeSeconds: 300}
      families:
      - {afi: ipv4, safi: unicast}
      advertisedPathAttributes:
      - selectorType: CiliumLoadBalancerIPPool
        communities:
          standard: ['64512:100']
          wellKnown: [no-export]
          large: ['64512:1:2']
        localPreference: 150
      - selectorType: PodCIDR
        localPreference: 300
    - peerAddress: fd00::1/128
      peerASN: 4200000000
";

/// Second generation: a cluster configuration with all objects that it refers to.
const SECOND: &str = "\
apiVersion: cilium.io/v2
kind: CiliumBGPClusterConfig
metadata: {name: cluster-bgp}
spec:
  nodeSelector:
    matchLabels: {bgp: a}
  bgpInstances:
  - name: instance-65000
    localASN: 65000
    localPort: 179
    peers:
    - name: peer-65000-tor1
      peerASN: 65000
      peerAddress: fd00:10:0:0::1
      peerConfigRef: {name: cilium-peer}
    - name: peer-65000-tor2
      peerASN: 65001
      peerAddress: 10.0.0.2
---
apiVersion: cilium.io/v2
kind: CiliumBGPPeerConfig
metadata: {name: cilium-peer}
spec:
  transport: {peerPort: 1179}
  timers: {connectRetryTimeSeconds: 5, holdTimeSeconds: 9, keepAliveTimeSeconds: 3}
  authSecretRef: bgp-auth-secret
  ebgpMultihop: 4
  gracefulRestart: {enabled: true, restartTimeSeconds: 15}
  families:
  - afi: ipv4
    safi: unicast
    advertisements: {matchLabels: {advertise: bgp}}
  - {afi: ipv6, safi: unicast}
---
apiVersion: cilium.io/v2
kind: CiliumBGPAdvertisement
metadata:
  name: bgp-advertisements
  labels: {advertise: bgp}
spec:
  advertisements:
  - advertisementType: PodCIDR
  - advertisementType: Service
    service:
      addresses: [ClusterIP, LoadBalancerIP]
      aggregationLengthIPv4: 24
    selector: {matchLabels: {bgp: blue}}
    attributes:
      communities: {standard: ['65000:99'], wellKnown: [no-peer]}
      localPreference: 99
---
apiVersion: cilium.io/v2alpha1
kind: CiliumBGPAdvertisement
metadata:
  name: other
  labels: {advertise: never}
spec:
  advertisements:
  - advertisementType: Service
---
apiVersion: cilium.io/v2
kind: CiliumBGPNodeConfigOverride
metadata: {name: edge-1}
spec:
  bgpInstances:
  - name: instance-65000
    routerID: 192.0.2.7
    localPort: 1790
    peers:
    - {name: peer-65000-tor1, localAddress: 'fd00:10::7'}
";

fn settings(node: &str) -> Settings {
    Settings { node: node.into(), ..Settings::new(Source::new("kubernetes")) }
}

/// Returns the converted text, for an appliance with this name.
fn found(text: &str, node: &str) -> ConvertedFiles {
    match read([("bgp.yaml", text)], &settings(node)) {
        Ok(found) => found,
        Err(errors) => panic!("{}", errors[0]),
    }
}

/// Returns the spec of the only object.
fn spec(found: &ConvertedFiles) -> Value {
    assert_eq!(found.objects.len(), 1, "{found:?}");
    serde_json::to_value(&found.objects[0]).unwrap()["spec"].clone()
}

/// Returns the error of a text that is rejected.
fn error_of(text: &str) -> String {
    let errors = read([("bgp.yaml", text)], &settings("edge-1")).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors[0].to_string()
}

#[test]
fn first_generation_policy_is_converted() {
    let found = found(FIRST, "edge-1");
    let lb = json!(["LoadBalancerIP"]);
    let expected = json!({
        "node_selector": {"match_labels": {"rack": "rack0"}, "match_expressions":
            [{"key": "zone", "operator": "In", "values": ["a"]}]},
        "routers": [{
            "local_asn": 64512,
            "advertisements": [{
                "services": {"match_expressions": [
                    {"key": "somekey", "operator": "NotIn", "values": ["never-used-value"]}]},
                "kinds": ["LoadBalancerIP", "ExternalIP"]
            }],
            "neighbors": [
                {
                    "address": "10.0.0.1", "port": 1179, "asn": 64512, "connect_retry_s": 12,
                    "hold_s": 9, "keepalive_s": 3, "hops": 10, "password": {"secret": "bgp-auth"},
                    "graceful_restart": {"enabled": true, "restart_s": 300},
                    "families": [{"family": "ipv4-unicast", "attributes": {
                        "kinds": lb, "communities": ["64512:100", "no-export"],
                        "large_communities": ["64512:1:2"], "local_preference": 150
                    }}]
                },
                {
                    "address": "fd00::1", "asn": 4200000000_u32, "connect_retry_s": 120,
                    "hold_s": 90, "keepalive_s": 30,
                    "families": [{"family": "ipv4-unicast"}, {"family": "ipv6-unicast"}]
                }
            ]
        }]
    });
    assert_eq!(spec(&found), expected);
    assert_eq!(found.objects[0].name.as_str(), "rack0");
    let notes = [
        "rack0: spec.virtualRouters[0]: exportPodCIDR and podIPPoolSelector are ignored: there \
         are no pods",
        "rack0: spec.virtualRouters[0].neighbors[0].advertisedPathAttributes[1]: PodCIDR is \
         ignored: there are no pods",
    ];
    assert_eq!(found.notes, notes);
}

#[test]
fn missing_selector_and_external_local_preference_are_accepted() {
    let cut = FIRST.find("    serviceSelector").unwrap();
    let end = FIRST.find("    neighbors").unwrap();
    let text = format!("{}{}", &FIRST[..cut], &FIRST[end..]);
    let spec = spec(&found(&text, "edge-1"));
    assert_eq!(spec["routers"][0]["advertisements"], json!([{}]));
    // Local preference is not sent to another AS: it is ignored with a note.
    let text = FIRST.replace("peerASN: 64512", "peerASN: 64513");
    let found = found(&text, "edge-1");
    assert!(found.notes.iter().any(|note| note.contains("localPreference")), "{:?}", found.notes);
    let neighbor = &spec_of(&found)["routers"][0]["neighbors"][0];
    assert!(neighbor["families"][0]["attributes"]["local_preference"].is_null());
}

fn spec_of(found: &ConvertedFiles) -> Value {
    spec(found)
}

#[test]
fn second_generation_kinds_join_to_one_policy() {
    let found = found(SECOND, "edge-1");
    let expected = json!({
        "node_selector": {"match_labels": {"bgp": "a"}},
        "routers": [{
            "local_asn": 65000, "router_id": "192.0.2.7", "listen_port": 1790,
            "advertisements": [{
                "name": "bgp-advertisements.1", "services": {"match_labels": {"bgp": "blue"}},
                "kinds": ["ClusterIP", "LoadBalancerIP"], "aggregation": {"ipv4": 24},
                "attributes": {"communities": ["65000:99", "no-peer"], "local_preference": 99}
            }],
            "neighbors": [
                {
                    "address": "fd00:10::1", "port": 1179, "asn": 65000,
                    "local_address": "fd00:10::7", "connect_retry_s": 5, "hold_s": 9,
                    "keepalive_s": 3, "hops": 4, "password": {"secret": "bgp-auth-secret"},
                    "graceful_restart": {"enabled": true, "restart_s": 15},
                    "families": [
                        {"family": "ipv4-unicast", "advertisements": ["bgp-advertisements.1"]},
                        {"family": "ipv6-unicast", "advertisements": []}
                    ]
                },
                {
                    "address": "10.0.0.2", "asn": 65001, "connect_retry_s": 120, "hold_s": 90,
                    "keepalive_s": 30,
                    "families": [
                        {"family": "ipv4-unicast", "advertisements": []},
                        {"family": "ipv6-unicast", "advertisements": []}
                    ]
                }
            ]
        }]
    });
    assert_eq!(spec(&found), expected);
    assert_eq!(
        found.notes,
        ["bgp-advertisements: spec.advertisements[0]: PodCIDR is ignored: there are no pods"]
    );
    assert!(found.skipped.is_empty());
}

#[test]
fn link_local_neighbor_names_its_interface_in_the_address() {
    let first =
        FIRST.replace("'10.0.0.1/32'", "'fe80::1%up0/128'").replace("eBGPMultihopTTL: 10", "");
    let second = SECOND.replace("peerAddress: 10.0.0.2", "peerAddress: fe80::1%up0");
    for (text, at) in [(first, 0), (second, 1)] {
        let neighbor = &spec(&found(&text, "edge-1"))["routers"][0]["neighbors"][at];
        assert_eq!(
            (&neighbor["address"], &neighbor["interface"]),
            (&json!("fe80::1"), &json!("up0"))
        );
    }
}

#[test]
fn only_the_peer_without_its_configuration_is_omitted() {
    let dangling = SECOND.replacen("name: cilium-peer}\n    - name", "name: gone}\n    - name", 1);
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {}\n";
    let found = found(&format!("{dangling}{service}"), "edge-1");
    assert_eq!(found.objects.len(), 2, "{found:?}");
    let policy = found.objects.iter().find(|object| object.name.as_str() == "cluster-bgp");
    let router = serde_json::to_value(policy.unwrap()).unwrap()["spec"]["routers"][0].clone();
    let neighbors = router["neighbors"].as_array().unwrap();
    assert_eq!((neighbors.len(), &neighbors[0]["address"]), (1, &json!("10.0.0.2")));
    let message = "peer `peer-65000-tor1`: there is no CiliumBGPPeerConfig `gone`; defined: \
                   cilium-peer";
    assert_eq!(router["unresolved"], json!([message]));
    // The configuration of the only peer may be missing too.
    let (head, tail) = SECOND.split_at(SECOND.find("    - name: peer-65000-tor2").unwrap());
    let alone = format!("{head}{}", &tail[tail.find("---").unwrap()..]);
    let alone = alone.replacen("peerConfigRef: {name: cilium-peer}", "peerConfigRef: {name: x}", 1);
    let router = spec(&self::found(&alone, "edge-1"))["routers"][0].clone();
    assert_eq!(router["neighbors"], json!([]));
    assert_eq!(router["unresolved"].as_array().unwrap().len(), 1);
}

#[test]
fn override_applies_to_its_node_only() {
    let spec = spec(&found(SECOND, "edge-2"));
    let router = &spec["routers"][0];
    assert_eq!((&router["router_id"], &router["listen_port"]), (&Value::Null, &json!(179)));
    assert_eq!(router["neighbors"][0]["local_address"], Value::Null);
}

#[test]
fn kinds_join_across_files_in_any_order() {
    let mut documents: Vec<&str> = SECOND.split("---\n").collect();
    documents.reverse();
    let names = ["e.yaml", "d.yaml", "c.yaml", "b.yaml", "a.yaml"];
    let files = names.into_iter().zip(documents.iter().copied());
    let apart = read(files, &settings("edge-1")).unwrap();
    assert_eq!(spec(&apart), spec(&found(SECOND, "edge-1")));
    assert_eq!(apart.files.values().collect::<Vec<_>>(), ["a.yaml"]);
}

#[test]
fn weir_policy_is_read_from_a_kubernetes_object() {
    let text = "apiVersion: weir.dev/v1\nkind: BgpPeeringPolicy\nmetadata: {name: edge}\nspec:\n  \
                routers:\n  - local_asn: 65001\n    neighbors:\n    - address: 192.0.2.254\n      \
                hold_s: 9\n      keepalive_s: 3\n";
    let found = found(text, "edge-1");
    assert_eq!(spec(&found)["routers"][0]["neighbors"][0]["hold_s"], 9);
    let result = error_of(&text.replace("hold_s: 9", "hold_s: 2"));
    let parts = "bgp.yaml:9 (document 1): spec.routers[0].neighbors[0].hold_s: 2 is out of range";
    assert!(result.contains(parts), "{result}");
}

#[test]
fn errors_use_the_field_names_of_the_file() {
    let neighbors = "spec.virtualRouters[0].neighbors";
    let peers = "spec.bgpInstances[0].peers";
    for (text, old, new, field, message) in [
        (
            FIRST,
            "holdTimeSeconds: 9",
            "holdTimeSeconds: 2",
            "neighbors[0].holdTimeSeconds",
            "65535",
        ),
        (
            FIRST,
            "keepAliveTimeSeconds: 3",
            "keepAliveTimeSeconds: 10",
            "keepAliveTimeSeconds",
            "10",
        ),
        (FIRST, "eBGPMultihopTTL: 10", "eBGPMultihopTTL: 0", "eBGPMultihopTTL", "1 to 255"),
        (
            FIRST,
            "restartTimeSeconds: 300",
            "restartTimeSeconds: 5000",
            "restartTimeSeconds",
            "4095",
        ),
        (FIRST, "10.0.0.1/32", "10.0.0.0/24", "neighbors[0].peerAddress", "one address"),
        (FIRST, "'10.0.0.1/32'", "'fe80::1/128'", "neighbors[0].peerAddress", "fe80::1%eth0"),
        (FIRST, "'10.0.0.1/32'", "'fe80::1%e/h'", "neighbors[0].peerAddress", "not a neighbor's"),
        (SECOND, "peerAddress: 10.0.0.2", "peerAddress: fe80::1", "peers[1].peerAddress", "%eth0"),
        (
            SECOND,
            "peerAddress: 10.0.0.2",
            "peerAddress: fe80::1%sixteen-octets-a",
            "peers[1].peerAddress",
            "ip link",
        ),
        (FIRST, "peerASN: 64512", "peerASN: -1", "neighbors[0].peerASN", "0 to 4294967295"),
        (FIRST, "64512:100", "64512:x", "communities.standard[0]", "`64512:x`"),
        (FIRST, "no-export", "no-exit", "communities.wellKnown[0]", "`no-exit`"),
        (FIRST, "afi: ipv4", "afi: l2vpn", "neighbors[0].families[0]", "l2vpn unicast"),
        (FIRST, "localASN: 64512", "localASN: 0", "virtualRouters[0].localASN", "RFC 7607"),
        (FIRST, "operator: In,", "operator: Is,", "matchExpressions[0].operator", "`Is`"),
        (
            FIRST,
            "CiliumLoadBalancerIPPool",
            "CiliumLoadBalancerIPPool\n        selector: {matchLabels: {a: b}}",
            "advertisedPathAttributes[0].selector",
            "address pools",
        ),
        (FIRST, "CiliumLoadBalancerIPPool", "CiliumLoadBalancer", "[0].selectorType", "PodCIDR"),
        (SECOND, "Type: PodCIDR", "Type: Pods", "advertisements[0].advertisementType", "Service"),
        (
            SECOND,
            "holdTimeSeconds: 9",
            "holdTimeSeconds: 2",
            "spec.timers.holdTimeSeconds",
            "65535",
        ),
        (SECOND, "peerPort: 1179", "peerPort: 0", "spec.transport.peerPort", "1 to 65535"),
        (
            SECOND,
            "peerAddress: 10.0.0.2",
            "autoDiscovery: {mode: DefaultGateway}",
            "peers[1].peerAddress",
            "neighbors are not discovered",
        ),
        (
            SECOND,
            "peerAddress: 10.0.0.2",
            "peerAddress: fd00:10::1",
            "peers[1].peerAddress",
            "remove one",
        ),
        (SECOND, "localASN: 65000", "localASN: 0", "bgpInstances[0].localASN", "RFC 7607"),
        (SECOND, "IPv4: 24", "IPv4: 33", "service.aggregationLengthIPv4", "1 to 32"),
        (SECOND, "name: other", "name: bgp-advertisements", "metadata.name", "already defined"),
    ] {
        assert!(text.contains(old), "{old}");
        let result = error_of(&text.replacen(old, new, 1));
        assert!(
            result.contains(field) && result.contains(message),
            "no {field}, {message:?} in: {result}"
        );
        let line: usize = result.split([':', ' ']).nth(1).unwrap().parse().unwrap();
        assert!(line > 0, "{result}");
    }
    assert!(
        error_of(&FIRST.replace("holdTimeSeconds: 9", "holdTimeSeconds: 2")).contains(neighbors)
    );
    assert!(error_of(&SECOND.replace("peerAddress: 10.0.0.2", "peerAddress: x")).contains(peers));
}

#[test]
fn policies_with_one_character_changed_do_not_panic() {
    let text = format!("{FIRST}---\n{SECOND}");
    for i in 0..text.len() {
        let mut dropped = text.clone();
        dropped.remove(i);
        let mut swapped = text.clone();
        swapped.replace_range(i..=i, ["[", "{", "\"", ":", "\n", "- ", "ä", "9"][i % 8]);
        for text in [&dropped, &swapped] {
            if let Err(errors) = read([("x", text.as_str())], &settings("edge-1")) {
                assert!(errors[0].line > 0 && errors[0].line <= text.lines().count() + 1);
            }
        }
    }
}

#[test]
fn services_of_the_default_classes_have_frontends() {
    let service = |class: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec:\n  \
             type: LoadBalancer\n  loadBalancerClass: {class}\n  ports: [{{port: 80}}]\n\
             status: {{loadBalancer: {{ingress: [{{ip: 203.0.113.1}}]}}}}\n"
        );
        let found = found(&text, "");
        serde_json::to_value(&found.objects[0]).unwrap()["spec"]["frontends"].clone()
    };
    assert_eq!(service("io.cilium/bgp-control-plane").as_array().unwrap().len(), 1);
    assert_eq!(service("weir.dev/gateway").as_array().unwrap().len(), 1);
    assert_eq!(service("example.com/other").as_array().unwrap().len(), 0);
}
