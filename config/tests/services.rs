//! Tests of the services file: valid files, and errors with location, key, value and remedy.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

use config::services::{BackendState, Mode, ProxyRedirect, TunnelKind, statuses};
use config::{Config, Services};

const VALID: &str = r#"
[[service]]
name = "a/web"
mode = "nat"
frontends = [{ address = "203.0.113.10", port = 80, protocol = "tcp" }]
backends = [{ address = "10.0.2.11", port = 8080 }, { address = "10.0.2.12", weight = 0 }]

[[service]]
name = "chain"
mode = "tunnel"
tunnel = "geneve"
frontends = [{ address = "0.0.0.0/0", scope = "0x1f" }]
backends = [{ address = "10.0.2.21", probe = "198.18.0.1" }]
"#;

fn appliance_config() -> Config {
    config::from_toml(
        "[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"\n[egress]\ndevice = \
         \"net_null1\"\naddress = \"10.0.2.10/24\"\n[nat]\naddresses = \"10.0.2.10\"\n[region]\n\
         max_services = 3\nslots = 20000",
    )
    .unwrap()
}

fn read(text: &str) -> Result<Services, config::ConfigError> {
    config::services_from_toml(text, &appliance_config())
}

#[track_caller]
fn assert_rejected(old: &str, new: &str, parts: &[&str]) {
    assert!(VALID.contains(old), "{old}");
    let error = match read(&VALID.replacen(old, new, 1)) {
        Ok(_) => panic!("not rejected: {new}"),
        Err(error) => error.to_string(),
    };
    for part in parts {
        assert!(error.contains(part), "no {part:?} in:\n{error}");
    }
    assert_eq!(error.lines().count(), 1, "more than one problem:\n{error}");
}

#[test]
fn reports_numbers_that_are_not_integers() {
    for wrong in ["nan", "inf", "-inf", "1.5", "-0.5"] {
        let wrong = format!("weight = {wrong}");
        let prefix = format!("backends[1].{wrong}:");
        let parts = [prefix.as_str(), "not a whole number", "from 0 to 65535"];
        assert_rejected("weight = 0", &wrong, &parts);
    }
    assert_rejected("weight = 0", "weight = -1", &["weight = -1", "out of range", "0 to 65535"]);
    assert_rejected("weight = 0", "weight = \"7\"", &["weight = \"7\"", "this is a string"]);
    let yaml = "service:\n- {name: a, mode: dsr, frontends: [], backends: [{address: 10.0.2.1, \
                weight: .nan}]}\n";
    let error = config::services_from_yaml(yaml, &appliance_config()).unwrap_err().to_string();
    assert!(error.contains("weight = .nan: this is not a whole number"), "{error}");
}

#[test]
fn valid_service_loads_with_defaults() {
    let services = read(VALID).unwrap_or_else(|e| panic!("{}", e.render())).services;
    let (web, chain) = (&services[0], &services[1]);
    assert_eq!((web.spec.mode, web.spec.table_size), (Mode::Nat, 16_381));
    assert_eq!(web.backends[0].weight, 100);
    assert_eq!(web.backends[1].state, BackendState::Maintenance);
    let Mode::Tunnel(tunnel) = chain.spec.mode else { panic!() };
    assert_eq!((tunnel.kind, tunnel.port, tunnel.dont_fragment), (TunnelKind::Geneve, 6081, true));
    let address = &chain.spec.frontends[0].address;
    assert_eq!(
        (address.prefix.len, address.port, address.protocol, address.endpoint),
        (0, 0, 0, 31)
    );
    assert_eq!(read("").unwrap().services.len(), 0);
}

#[test]
fn mode_and_tunnel_must_match() {
    assert_rejected(
        "\"nat\"",
        "\"nats\"",
        &["services.toml:4: service[0].mode", "did you mean \"nat\"?"],
    );
    assert_rejected(
        "tunnel = \"geneve\"",
        "",
        &["service[1].tunnel", "\"vxlan\", \"ipip\" or \"gue\""],
    );
    assert_rejected("mode = \"nat\"", "mode = \"nat\"\nvni = 1", &["mode nat has no tunnel"]);
    assert_rejected("\"geneve\"", "\"ipip\"\ntunnel_port = 1", &["ipip has no ports"]);
    assert_rejected("\"geneve\"", "\"gue\"\nvni = 1", &["only geneve and vxlan"]);
    assert_rejected("\"geneve\"", "\"vxlan\"\nvni = 16777216", &["allowed: 0 to 16777215"]);
    assert_rejected("\"geneve\"", "\"geneve\"\ntable_size = 1000", &["allowed: 0, 251, 509"]);
    assert_rejected(
        "\"10.0.2.21\"",
        "\"10.0.2.21\", port = 1",
        &["backends[0].port = 1", "remove it"],
    );
}

/// Parses a service with one frontend, for an appliance that reserves ports of every kind.
fn load_beside_own_ports(frontend: &str) -> Result<Services, config::ConfigError> {
    let config = config::from_toml(
        "[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.10/24\", \"fd00:1::10/64\"]\n\
         [egress]\ndevice = \"net_null1\"\naddress = \"10.0.2.10/24\"\n\
         [nat]\naddresses = \"10.0.2.10\"\n\
         [health]\nlisten = \"0.0.0.0:8080\"\ntcp = \"10.0.1.10:8081\"\n\
         [metrics]\nlisten = \"127.0.0.1:19100\"\n\
         [api]\nlisten = \"[::]:8443\"\ntls_cert = \"/c\"\ntls_key = \"/k\"\n\
         token_file = \"/t\"\n\
         [punt]\nlocal_ports = [22, 30022]\n\
         [[gateway]]\nname = \"edge\"\nkind = \"aws\"\nsources = \"10.0.1.0/24\"\n\
         inner_mtu = 1400\n",
    )
    .unwrap();
    let service =
        format!("[[service]]\nname = \"shop/web\"\nmode = \"nat\"\nfrontends = [{{{frontend}}}]\n");
    config::services_from_toml(&service, &config)
}

#[test]
fn rejects_frontends_on_the_appliances_own_ports() {
    let reserved = [
        ("10.0.1.10", 8080, "tcp", "health.listen"),
        ("10.0.2.10", 8080, "tcp", "health.listen"),
        ("10.0.1.10", 8081, "tcp", "health.tcp"),
        ("10.0.2.10", 8443, "tcp", "api.listen"),
        ("fd00:1::10", 8443, "tcp", "api.listen"),
        ("10.0.1.10", 22, "tcp", "punt.local_ports"),
        ("10.0.1.10", 179, "tcp", "BGP"),
        ("10.0.2.10", 3784, "udp", "BFD (single hop)"),
        ("fd00:1::10", 4784, "udp", "BFD (multihop)"),
        ("10.0.1.10", 3785, "udp", "BFD (echo)"),
        ("10.0.1.10", 6081, "udp", "gateway \"edge\""),
    ];
    for (address, port, protocol, holder) in reserved {
        let written = format!("address = \"{address}\", port = {port}, protocol = \"{protocol}\"");
        let error = load_beside_own_ports(&written).unwrap_err().to_string();
        for part in ["frontends[0].port", "\"shop/web\"", holder, "write another port"] {
            assert!(error.contains(part), "no {part:?} in:\n{error}");
        }
    }
    let node_port = "type = \"NodePort\", address = \"0.0.0.0\", port = 30022, protocol = \"tcp\"";
    let error = load_beside_own_ports(node_port).unwrap_err().to_string();
    assert!(error.contains("punt.local_ports"), "{error}");
}

#[test]
fn accepts_frontends_that_conflict_with_no_own_port() {
    let free = [
        // Another protocol, another family, an address without listeners.
        "address = \"10.0.1.10\", port = 8080, protocol = \"udp\"",
        "address = \"fd00:1::10\", port = 8080, protocol = \"tcp\"",
        "address = \"10.0.2.10\", port = 8081, protocol = \"tcp\"",
        "address = \"10.0.1.10\", port = 19100, protocol = \"tcp\"",
        "address = \"10.0.2.10\", port = 6081, protocol = \"udp\"",
        "address = \"203.0.113.10\", port = 8080, protocol = \"tcp\"",
        // Packets to the appliance's own ports bypass the next three frontends. The last is for
        // packets of a gateway endpoint, which are never addressed to the appliance.
        "address = \"10.0.1.10\", protocol = \"tcp\"",
        "address = \"0.0.0.0/0\"",
        "address = \"10.0.1.0/24\", port = 8080, protocol = \"tcp\"",
        "address = \"10.0.1.10\", port = 8080, protocol = \"tcp\", scope = \"0x1f\"",
    ];
    for frontend in free {
        load_beside_own_ports(frontend).unwrap_or_else(|e| panic!("{frontend}: {}", e.render()));
    }
}

#[test]
fn frontends_must_be_valid_and_distinct() {
    assert_rejected(
        "\"tcp\"",
        "\"tpc\"",
        &["service[0].frontends[0].protocol = \"tpc\"", "\"udp\""],
    );
    assert_rejected(", protocol = \"tcp\"", "", &["protocol any has no ports"]);
    assert_rejected("\"tcp\"", "\"icmp\"", &["protocol icmp has no ports"]);
    assert_rejected("\"0x1f\"", "\"vpce-1\"", &["hexadecimal"]);
    assert_rejected(
        "\"203.0.113.10\"",
        "\"203.0.113.10/24\"",
        &["\"203.0.113.0/24\" for the network"],
    );
    assert_rejected(
        "\"0.0.0.0/0\", scope = \"0x1f\"",
        "\"203.0.113.10\", port = 80, protocol = \"6\"",
        &["service[1].frontends[0]", "same frontend twice", "service[0].frontends[0]"],
    );
    assert_rejected(
        "[{ address = \"203.0.113.10\", port = 80, protocol = \"tcp\" }]",
        "[]",
        &["write at least one"],
    );
}

#[test]
fn backends_must_match_service_and_each_other() {
    assert_rejected(
        "\"10.0.2.11\"",
        "\"fd00::1\"",
        &["an IPv6 backend, but frontend 203.0.113.10/32"],
    );
    assert_rejected(
        "\"10.0.2.12\", weight = 0",
        "\"10.0.2.11\", port = 8080",
        &["same backend twice"],
    );
    assert_rejected("weight = 0", "weight = 65536", &["allowed: 0 to 65535"]);
    assert_rejected("weight = 0", "arm = \"east\"", &["allowed: \"ingress\", \"egress\""]);
    assert_rejected(
        "\"10.0.2.21\"",
        "\"10.0.2.12\"",
        &["service[1].backends[0].state", "write the same"],
    );
    let probe = "\"10.0.2.12\", weight = 0, probe = \"198.18.0.1\"";
    assert_rejected("\"10.0.2.12\", weight = 0", probe, &["same probe address twice"]);
    let no_nat =
        config::from_toml("[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"").unwrap();
    let error = config::services_from_toml(VALID, &no_nat).unwrap_err().to_string();
    assert!(error.contains("add one to nat.addresses"), "{error}");
}

const WITH_PLACEMENT: &str = r#"
[[service]]
name = "a/web"
mode = "nat"
external_policy = "local"
internal_policy = "cluster"
distribution = "same-node"
labels = { "app.example/tier" = "front" }
annotations = { who = "knows" }
frontends = [
    { address = "203.0.113.10", port = 80, protocol = "tcp", type = "ExternalIPs" },
    { address = "0.0.0.0", port = 30080, protocol = "tcp", type = "NodePort", port_name = "http" },
]
backends = [{ address = "10.0.2.11", port = 8080, node = "n1", zone = "a", port_names = ["http"] }]
"#;

#[test]
fn loads_placement_policies_and_labels() {
    use config::services::{Distribution, FrontendKind, TrafficPolicy};
    let services = read(WITH_PLACEMENT).unwrap_or_else(|e| panic!("{}", e.render())).services;
    let web = &services[0];
    let spec = &web.spec;
    let policies = (spec.external_policy, spec.internal_policy);
    assert_eq!(policies, (TrafficPolicy::Local, TrafficPolicy::Cluster));
    assert_eq!(spec.distribution, Distribution::SameNode);
    assert_eq!((&*web.labels["app.example/tier"], &*web.annotations["who"]), ("front", "knows"));
    let kinds: Vec<FrontendKind> = spec.frontends.iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [FrontendKind::ExternalIps, FrontendKind::NodePort]);
    assert_eq!(spec.frontends[1].port_name.as_deref(), Some("http"));
    let backend = &web.backends[0];
    let placement = backend.placement.as_deref().unwrap();
    assert_eq!((&*placement.node, &*placement.zone, &*backend.port_names[0]), ("n1", "a", "http"));
    for (old, new, parts) in [
        ("\"0.0.0.0\"", "\"10.0.0.1\"", ["frontends[1].address", "write \"0.0.0.0\" or"]),
        ("port = 30080, protocol = \"tcp\"", "port = 0", ["frontends[1].port", "is a single port"]),
        ("\"local\"", "\"node\"", ["external_policy", "allowed: \"cluster\", \"local\""]),
        ("\"knows\"", "7", ["service[0].annotations.who = 7", "write a string, in double quotes"]),
    ] {
        let error =
            read(&WITH_PLACEMENT.replacen(old, new, 1)).map(|_| ()).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn rejects_deny_policy_without_ranges() {
    assert_rejected(
        "\"geneve\"",
        "\"geneve\"\nsource_policy = \"deny\"",
        &["no source_ranges to deny"],
    );
}

#[test]
fn loads_health_checks_and_reports_invalid_fields() {
    let with = |health: &str| VALID.replacen("\"nat\"", &format!("\"nat\"\nhealth = {health}"), 1);
    let text = "{ kind = \"https\", path = \"/live?x=1\", expect = \"200,301-308\", \
                interval_ms = 1000, rise = 1, jitter_percent = 0 }";
    let policy = read(&with(text)).unwrap().services[0].spec.clone();
    let check = policy.health.clone().unwrap();
    let timing = check.timing(&appliance_config().health.probing);
    let second = std::time::Duration::from_secs(1);
    assert_eq!(
        (timing.interval, timing.timeout),
        (second, second),
        "the timeout is limited to the interval"
    );
    assert_eq!((timing.rise, timing.fall, timing.jitter.as_millis()), (1, 3, 0));
    assert_eq!(statuses(&check.expect), Some(vec![200..=200, 301..=308]));
    for (health, parts) in [
        ("{ }", ["services.toml:5", "kind"]),
        ("{ kind = \"udp\" }", ["health.kind = \"udp\"", "\"tcp\", \"http\", \"https\""]),
        ("{ kind = \"tcp\", path = \"/\" }", ["health.path", "write kind = \"http\" or \"https\""]),
        ("{ kind = \"http\", path = \"live\" }", ["health.path = \"live\"", "starts with `/`"]),
        ("{ kind = \"http\", host = \"a b\" }", ["health.host", "write a name"]),
        ("{ kind = \"http\", expect = \"20x\" }", ["health.expect = \"20x\"", "200-399"]),
        ("{ kind = \"http\", expect = \"100\" }", ["health.expect", "200 to 599"]),
        ("{ kind = \"http\", verify = false }", ["health.verify = false", "\"https\""]),
        ("{ kind = \"https\", server_name = \"a..b\" }", ["health.server_name", "DNS name"]),
        ("{ kind = \"https\", ca_file = \"ca.pem\" }", ["health.ca_file", "starts with `/`"]),
        ("{ kind = \"tcp\", interval_ms = 50 }", ["health.interval_ms = 50", "100 to 300000"]),
        ("{ kind = \"tcp\", fall = 101 }", ["health.fall = 101", "0 to 100"]),
        (
            "{ kind = \"tcp\", interval_ms = 500, timeout_ms = 501 }",
            ["health.timeout_ms = 501", "at most interval_ms, 500"],
        ),
    ] {
        let error = read(&with(health)).map(|_| ()).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{health}: {error}");
        assert_eq!(error.lines().count(), 1, "more than one problem:\n{error}");
    }
    let port = |policy: &str| {
        VALID.replacen("\"nat\"", &format!("\"nat\"\nhealth_check_port = 31000\n{policy}"), 1)
    };
    assert_eq!(
        read(&port("external_policy = \"local\"")).unwrap().services[0].spec.health_check_port,
        31_000
    );
    let error = read(&port("")).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("health_check_port") && error.contains("external_policy"), "{error}");
}

#[test]
fn nat_policy_crosses_families_and_requires_nat_address() {
    let text = |policy: &str, frontend: &str, backend: &str| {
        format!(
            "[[service]]\nname = \"a\"\nmode = \"nat\"\nnat_policy = \"{policy}\"\n\
             frontends = [{{ address = \"{frontend}\", port = 80, protocol = \"tcp\" }}]\n\
             backends = [{{ address = \"{backend}\", port = 80 }}]\n"
        )
    };
    let (four, six) = ("203.0.113.10", "2001:db8::10");
    let services = read(&text("nat64", six, "10.0.2.11")).unwrap();
    assert_eq!(services.services[0].spec.nat_policy, config::services::NatPolicy::Nat64);
    assert!(read(&text("nat46", four, "10.0.2.11")).is_err());
    for (policy, frontend, backend, part) in [
        ("nat64", four, "fd00:2::11", "does not translate between them"),
        ("nat46", six, "10.0.2.11", "nat_policy = \"nat46\" or \"nat64\""),
        ("nat46", four, "10.0.2.11", "does not translate between them"),
        ("nat46", four, "fd00:2::11", "needs an IPv6 source address"),
    ] {
        let error = read(&text(policy, frontend, backend)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(part), "no {part:?} in:\n{error}");
    }
    let tunnel = "\"geneve\"\nnat_policy = \"nat64\"";
    assert_rejected("\"geneve\"", tunnel, &["nat_policy", "only mode nat translates"]);
}

#[test]
fn loads_client_facing_policies() {
    let policy = "affinity_s = 60\nalgorithm = \"random\"\nsource_ranges = [\"10.0.0.0/8\"]";
    let with = |keys: &str| VALID.replacen("mode = \"nat\"", &format!("mode = \"nat\"\n{keys}"), 1);
    let spec = read(&with(policy)).unwrap().services[0].spec.clone();
    let ranges = spec.source_ranges.as_ref().map(|ranges| ranges.prefixes.len());
    assert_eq!((spec.affinity_s, ranges), (60, Some(1)));
    let proxy = "proxy_redirect = { port = 9000 }";
    let services = read(&with(proxy)).unwrap();
    let redirect = ProxyRedirect { port: 9000, ports: Vec::new() };
    assert_eq!(services.services[0].spec.proxy_redirect.as_deref(), Some(&redirect));
    let both = read(&with(&format!("{proxy}\naffinity_s = 60"))).map(|_| ()).unwrap_err();
    assert!(both.to_string().contains("affinity is the proxy's task"), "{both}");
}

const YAML: &str = r#"
service:
- name: a/web
  mode: nat
  frontends:
  - {address: 203.0.113.10, port: 80, protocol: tcp}
  backends:
  - {address: 10.0.2.11, port: 8080}
  - address: 10.0.2.12
    weight: 0
- name: chain
  mode: tunnel
  tunnel: geneve
  vni:
  frontends:
  - address: 0.0.0.0/0
    scope: "0x1f"
  backends: [{address: 10.0.2.21, probe: 198.18.0.1}]
"#;

#[test]
fn yaml_has_the_same_keys_and_errors_as_toml() {
    let appliance_config = appliance_config();
    let read_yaml = |text: &str| config::services_from_yaml(text, &appliance_config);
    let yaml = read_yaml(YAML).unwrap_or_else(|e| panic!("{}", e.render()));
    assert_eq!(yaml, read(VALID).unwrap());
    assert_eq!(read_yaml("").unwrap().services.len(), 0);
    for (old, new, parts) in [
        ("mode: nat", "mode: nats", ["services.yaml:4: service[0].mode = \"nats\"", "\"nat\"?"]),
        ("weight: 0", "weigt: 0", ["services.yaml:10: service[0].backends[1].weigt", "`weight`?"]),
        ("scope: \"0x1f\"", "scope: y", ["services.yaml:17: service[1].frontends[0].scope", "hex"]),
        ("name: chain", "name: 7", ["services.yaml:11: service[1].name = 7", "write a string"]),
        ("- name: chain", "- name: a/web", ["services.yaml:11", "(services.yaml:3)"]),
        ("  mode: tunnel", " mode: tunnel", ["services.yaml:12", "invalid or unsupported YAML"]),
        ("mode: nat", "mode: &x nat", ["services.yaml:4", "anchors"]),
        ("service:", "a: 1\n---\nservice:", ["services.yaml:1", "more than one document"]),
        ("service:", "- service:", ["services.yaml", ""]),
    ] {
        assert!(YAML.contains(old), "{old}");
        let error = read_yaml(&YAML.replacen(old, new, 1)).map(|_| ()).unwrap_err();
        let error_text = error.to_string();
        assert!(
            parts.iter().all(|part| error_text.contains(part)),
            "no {parts:?} in:\n{error_text}"
        );
        assert!(!error.render().is_empty());
    }
    for i in 0..YAML.len() {
        let mut dropped = YAML.to_owned();
        dropped.remove(i);
        for text in [&dropped, &YAML[..i]] {
            if let Err(error) = read_yaml(text) {
                assert!(!error.render().is_empty());
            }
        }
    }
}

#[test]
fn never_panics_on_mutated_text() {
    let bytes = VALID.as_bytes();
    for i in 0..bytes.len() {
        let mut dropped = bytes.to_vec();
        dropped.remove(i);
        let mut swapped = bytes.to_vec();
        swapped[i] = b"[]{}=\".,-0/\n"[i % 12];
        for text in [dropped, swapped, bytes[..i].to_vec()] {
            if let Err(error) = read(&String::from_utf8_lossy(&text)) {
                assert!(!error.render().is_empty() && !error.to_string().is_empty());
            }
        }
    }
}

#[test]
fn names_must_be_valid_and_unique() {
    assert_rejected("\"chain\"", "\"a/web\"", &["same name twice"]);
    assert_rejected("\"chain\"", "\"a//b\"", &["not a valid name"]);
    assert_rejected("\"chain\"", &format!("\"{}\"", "n".repeat(121)), &["at most 120 bytes"]);
}

#[test]
fn rejects_services_beyond_region_capacity() {
    let many: String = (0..4)
        .map(|i| {
            format!(
                "[[service]]\nname = \"s{i}\"\nmode = \"nat\"\nfrontends = [{{address = \
                 \"203.0.113.{i}\"}}]\nbackends = [{{address = \"10.0.2.1\"}}, {{address = \
                 \"10.0.2.2\"}}]\n"
            )
        })
        .collect();
    let error = read(&many).unwrap_err().to_string();
    assert!(error.contains("region.max_services") && error.contains("region.slots"), "{error}");
}

#[test]
fn format_is_selected_by_extension_or_content() {
    let json = r#"{"service": [{"name": "a", "mode": "nat",
        "frontends": [{"address": "203.0.113.10", "port": 80, "protocol": "tcp"}]}]}"#;
    for (name, text) in [
        ("services.json", json),
        ("standard input", json),
        ("services.toml", VALID),
        ("standard input", VALID),
    ] {
        let services = config::services_from(name, text, &appliance_config());
        assert!(services.is_ok_and(|read| !read.services.is_empty()), "{name}: {text}");
    }
    let result = config::services_from("services.toml", json, &appliance_config());
    assert!(result.unwrap_err().to_string().contains("services.toml:1"));
}
