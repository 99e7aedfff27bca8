//! Tests of configuration errors: location, key, value and remedy.

#![expect(clippy::panic, reason = "what tests share is test code as well")]

use config::checked::{Idle, OnExpiry, Plane};
use config::{Config, ConfigError};

/// A valid configuration; each test makes one part of it invalid.
const RIGHT: &str = r#"
[fastpath]
lcores = [1]
[ingress]
device = "net_null0"
address = ["10.0.1.10/24", "fd00:1::10/64"]
mtu = 9001
[egress]
device = "net_null1"
address = "10.0.2.10/24"
[nat]
addresses = "10.0.2.10"
[[gateway]]
name = "aws"
kind = "aws"
sources = "10.0.1.0/24"
[[gateway]]
name = "azure"
kind = "azure"
sources = ["10.0.1.0/24", "fd00:1::/64"]
"#;

fn right() -> Config {
    config::from_toml(RIGHT).unwrap_or_else(|e| panic!("{}", e.render()))
}

fn refusal(text: &str) -> String {
    match config::from_toml(text) {
        Ok(_) => panic!("not refused:\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// Asserts that the valid configuration with `old` replaced by `new` is rejected, and that the
/// error contains all of `parts`.
#[track_caller]
fn spoiled(old: &str, new: &str, parts: &[&str]) {
    assert!(RIGHT.contains(old), "{old}");
    let error = refusal(&RIGHT.replacen(old, new, 1));
    for part in parts {
        assert!(error.contains(part), "no {part:?} in:\n{error}");
    }
    assert_eq!(error.lines().count(), 1, "more than the one problem:\n{error}");
}

#[test]
fn the_right_one_is_taken_with_its_defaults_filled_in() {
    let config = right();
    assert_eq!(config.ingress.queues, 1);
    assert_eq!((config.ingress.tap.as_str(), config.backend_arm() as u8), ("weir-in", 1));
    assert_eq!(config.gateways[0].inner_mtu, 8500);
    // AWS at one address, Azure at both, each with two tunnels that cross.
    assert_eq!(config.gateways[0].tunnels.len(), 1);
    let azure: Vec<_> = config.gateways[1].tunnels.iter().map(|t| (t.local, t.port)).collect();
    let (v4, v6) = ("10.0.1.10".parse().unwrap(), "fd00:1::10".parse().unwrap());
    assert_eq!(azure, [(v4, 10801), (v4, 10800), (v6, 10801), (v6, 10800)]);
    for (i, tunnel) in config.gateways[1].tunnels.iter().enumerate() {
        let config::checked::Wire::Vxlan { peer, scope_key, .. } = tunnel.wire else { panic!() };
        assert_eq!((peer, scope_key), (Some(i ^ 1), 801));
        assert!(tunnel.sources.iter().all(|s| s.addr.is_ipv4() == tunnel.local.is_ipv4()));
    }
}

#[test]
fn fewer_port_maps_than_backends_are_refused_before_slowpath_has_to() {
    let parts = ["region.nat_maps = 4095", "4096 backends", "write at least 4096"];
    spoiled("[nat]", "[region]\nnat_maps = 4095\n[nat]", &parts);
    let two = "[region]\nmax_backends = 100\nnat_maps = 199\n[nat]\naddresses = [\"10.0.2.10\", \
               \"10.0.2.11\"]";
    let both = "[nat]\naddresses = \"10.0.2.10\"";
    spoiled(both, two, &["region.nat_maps = 199", "2 NAT addresses", "write at least 200"]);
    let enough = RIGHT.replacen(both, &two.replace("199", "200"), 1);
    config::from_toml(&enough).unwrap_or_else(|e| panic!("{}", e.render()));
}

#[test]
fn sources_are_taken_in_their_order_and_named_once() {
    let two = "[[source]]\nname = \"api\"\n[[source]]\nname = \"kubernetes\"\nlease_s = 60\n\
               on_expiry = \"quarantine\"\n[nat]";
    let config = config::from_toml(&RIGHT.replacen("[nat]", two, 1));
    let sources = config.unwrap_or_else(|e| panic!("{}", e.render())).sources;
    let told = sources.iter().map(|s| (s.name.as_str(), s.lease_s, s.on_expiry));
    let expected = [("api", 0, OnExpiry::Keep), ("kubernetes", 60, OnExpiry::Quarantine)];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let twice = two.replacen("\"kubernetes\"", "\"api\"", 1);
    spoiled("[nat]", &twice, &["source[1].name", "the same name twice"]);
    let long = two.replacen("60", "86401", 1);
    spoiled("[nat]", &long, &["source[1].lease_s = 86401", "0 to 86400"]);
    let odd = two.replacen("quarantine", "forget", 1);
    spoiled("[nat]", &odd, &["source[1].on_expiry", "\"forget\"", "release"]);
    spoiled("[nat]", &two.replacen("api", "An API", 1), &["source[0].name", "this is no name"]);
}

#[test]
fn an_mtu_too_small_for_the_tunnel_says_what_to_type() {
    let parts = ["weir.toml:7: ingress.mtu = 8567", "tunnel of 68", "ingress.mtu = 8568"];
    spoiled("mtu = 9001", "mtu = 8567", &parts);
    let azure = "kind = \"azure\"\ninner_mtu = 8951";
    spoiled("kind = \"azure\"", azure, &["tunnel of 70", "9021 or more", "inner_mtu = 8931"]);
    let just = RIGHT.replace("kind = \"azure\"", "kind = \"azure\"\ninner_mtu = 8931");
    assert!(config::from_toml(&just).is_ok());
}

#[test]
fn a_typo_names_the_key_that_was_meant() {
    spoiled("[nat]\naddresses", "[nat]\nadresses", &["weir.toml:12: nat.adresses", "`addresses`?"]);
    spoiled("kind = \"aws\"", "kind = \"asw\"", &["\"asw\"", "did you mean \"aws\"?"]);
}

#[test]
fn an_address_family_without_an_address_is_told() {
    let no_v6 = ", \"fd00:1::10/64\"]";
    spoiled(no_v6, "]", &["gateway[1].sources", "ingress arm has no IPv6 address"]);
    let router = "address = \"10.0.2.10/24\"\ngateway = \"fd00:2::1\"";
    spoiled(
        "address = \"10.0.2.10/24\"",
        router,
        &["egress.gateway = \"fd00:2::1\"", "no IPv6 address", "add one to egress.address"],
    );
}

#[test]
fn the_main_core_may_poll_too_where_idle_lcores_sleep_or_yield() {
    for (name, idle) in [("sleep", Idle::Sleep), ("yield", Idle::Yield)] {
        let both = format!("lcores = [0, 1]\nidle = \"{name}\"");
        let config = config::from_toml(&RIGHT.replacen("lcores = [1]", &both, 1));
        let fastpath = config.unwrap_or_else(|e| panic!("{}", e.render())).fastpath;
        assert_eq!((fastpath.lcores, fastpath.idle), (vec![0, 1], idle));
    }
    let both = "lcores = [0, 1]\nidle = \"spin\"";
    spoiled("lcores = [1]", both, &["fastpath.lcores[0] = 0", "\"sleep\" or \"yield\""]);
    let slumber = "lcores = [1]\nidle = \"slep\"";
    spoiled("lcores = [1]", slumber, &["\"slep\"", "did you mean \"sleep\"?"]);
}

#[test]
fn numbers_out_of_range_and_wrong_types_are_told_with_what_is_allowed() {
    spoiled("mtu = 9001", "mtu = 70000", &["ingress.mtu = 70000", "allowed: 1280 to 9600"]);
    spoiled("mtu = 9001", "mtu = -1", &["ingress.mtu = -1", "1280 to 9600"]);
    spoiled("mtu = 9001", "mtu = \"9001\"", &["this is a text", "write a whole number"]);
    spoiled("lcores = [1]", "lcores = 1", &["fastpath.lcores = 1", "write a list"]);
    spoiled("lcores = [1]", "lcores = [\"a\"]", &["fastpath.lcores[0] = \"a\"", "whole number"]);
    spoiled(
        "lcores = [1]",
        "lcores = [0]",
        &["fastpath.lcores[0] = 0", "fastpath.main_core", "yield"],
    );
    spoiled("lcores = [1]", "lcores = [1]\nburst = 0", &["fastpath.burst = 0", "1 to 64"]);
    spoiled("lcores = [1]", "lcores = [1]\nburst = 65", &["fastpath.burst = 65", "1 to 64"]);
    spoiled("lcores = [1]", "lcores = [1]\nmemory_mib = 64", &["need", "at least"]);
    let unconfirmed = "[region]\nunconfirmed_percent = 60\nunconfirmed_dsr_percent = 16\n[ingress]";
    let expected =
        ["region.unconfirmed_percent = 60", "unconfirmed_dsr_percent", "76", "at most 75"];
    spoiled("[ingress]", unconfirmed, &expected);
    let none = "[region]\nunconfirmed_dsr_percent = 0\n[ingress]";
    spoiled("[ingress]", none, &["region.unconfirmed_dsr_percent = 0", "1 to 50"]);
    spoiled("lcores = [1]", "lcores = [1]\nbuffers = 2000", &["at least 4640"]);
    spoiled("mtu = 9001", "mtu = 9001\nqueues = 2", &["only 1 lcores"]);
    spoiled("mtu = 9001", "mtu = 9001\nrx_descriptors = 1000", &["for example 1024"]);
}

#[test]
fn plane_xdp_takes_interfaces_in_each_spelling_and_nothing_else() {
    let xdp = |device: &str| {
        let right = RIGHT.replacen("\"net_null1\"", "\"net_af_packet1,iface=eth2\"", 1);
        let device = right.replacen("net_null0", device, 1);
        format!("plane = \"xdp\"\n{device}").replacen("lcores = [1]", "memory_mib = 16", 1)
    };
    for device in ["eth1", "net_pcap0,iface=eth1"] {
        let config = config::from_toml(&xdp(device)).unwrap_or_else(|e| panic!("{}", e.render()));
        assert_eq!(config.plane, Plane::Xdp);
        assert_eq!(config.kernel_interface(&config.ingress), "eth1");
    }
    assert_eq!(right().kernel_interface(&right().ingress), "weir-in");
    let same = refusal(&xdp("eth2"));
    assert!(same.contains("same device twice"), "{same}");
    for device in ["net_null0", "eth 1", "an-interface-of-30-characters--", ""] {
        let refused = refusal(&xdp(device));
        assert!(refused.contains("ingress.device"), "{refused}");
    }
    assert!(refusal(&RIGHT.replacen("[fast", "plane = \"ebpf\"\n[fast", 1)).contains("\"xdp\""));
}

#[test]
fn the_arms_are_told_apart() {
    spoiled("net_null1", "net_null0", &["same device twice", "ingress.device (weir.toml:5)"]);
    spoiled("mtu = 9001", "mtu = 9001\ntap = \"weir-out\"", &["same interface name"]);
    spoiled("mtu = 9001", "mtu = 9001\ntap = \"sixteen-letters-\"", &["1 to 15 characters"]);
    spoiled("net_null1", "eth1", &["egress.device = \"eth1\"", "dpdk-devbind.py"]);
    let iface = "net_af_packet0,iface=weir-out";
    spoiled("net_null1", iface, &["egress.tap", "write another"]);
    spoiled("\"10.0.2.10/24\"", "\"10.0.1.10/24\"", &["same address twice"]);
    spoiled("\"10.0.2.10/24\"", "\"10.0.2.10\"", &["write \"10.0.1.10/24\""]);
    spoiled("\"10.0.2.10/24\"", "\"0.0.0.0/24\"", &["no machine can have this address"]);
    let router = "address = \"10.0.2.10/24\"\ngateway = \"10.0.3.1\"";
    spoiled("address = \"10.0.2.10/24\"", router, &["not in the arm's network", "10.0.2.0/24"]);
    let missing = RIGHT.replace("device = \"net_null0\"", "");
    assert!(refusal(&missing).contains("weir.toml:4: ingress.device: this key is missing"));
}

#[test]
fn sources_of_ip_in_ip_are_a_network_of_nobody() {
    let with = |text: &str| format!("address = \"10.0.2.10/24\"\nipip_sources = \"{text}\"");
    let refused = |text: &str, parts: &[&str]| {
        spoiled("address = \"10.0.2.10/24\"", &with(text), parts);
    };
    let config =
        config::from_toml(&RIGHT.replace("address = \"10.0.2.10/24\"", &with("100.64.7.0/30")));
    let config = config.unwrap_or_else(|e| panic!("{}", e.render()));
    let network = config.egress.and_then(|arm| arm.ipip_sources).map(|n| n.to_string());
    assert_eq!(network.as_deref(), Some("100.64.7.0/30"));
    assert_eq!(config.ingress.ipip_sources, None);
    refused("100.64.7.1/24", &["egress.ipip_sources", "write \"100.64.7.0/24\""]);
    refused("100.64.7.0/31", &["egress.ipip_sources", "/8 to /30"]);
    refused("0.0.0.0/0", &["egress.ipip_sources", "/8 to /30"]);
    refused("fd00:7::/64", &["egress.ipip_sources", "IPv6 differs by flow label"]);
    refused("127.0.0.0/8", &["egress.ipip_sources", "no machine can have this address"]);
    refused("10.0.2.128/25", &["overlaps 10.0.2.0/24 of egress.address", "nobody's"]);
    refused("10.0.0.0/16", &["overlaps 10.0.1.0/24 of ingress.address"]);
    let nat = RIGHT.replacen("addresses = \"10.0.2.10\"", "addresses = \"192.0.2.9\"", 1);
    let nat = refusal(&nat.replacen("address = \"10.0.2.10/24\"", &with("192.0.2.0/24"), 1));
    assert!(nat.contains("overlaps 192.0.2.9/32 of nat.addresses"), "{nat}");
    let both = RIGHT.replacen("mtu = 9001", "mtu = 9001\nipip_sources = \"100.64.0.0/16\"", 1);
    let both = refusal(&both.replacen("address = \"10.0.2.10/24\"", &with("100.64.7.0/24"), 1));
    assert!(both.contains("overlaps 100.64.0.0/16 of ingress.ipip_sources"), "{both}");
}

#[test]
fn the_gateways_are_told_apart() {
    spoiled("\"azure\"\nkind", "\"aws\"\nkind", &["same name twice", "gateway[0].name"]);
    spoiled("sources = \"10.0.1.0/24\"", "sources = []", &["without sources nothing"]);
    spoiled("sources = \"10.0.1.0/24\"", "", &["weir.toml:13: gateway[0].sources", "missing"]);
    spoiled("sources = \"10.0.1.0/24\"", "sources = \"10.0.1.1/24\"", &["\"10.0.1.0/24\" for the"]);
    let elsewhere = "kind = \"aws\"\naddress = \"10.0.9.9\"";
    spoiled("kind = \"aws\"", elsewhere, &["no arm has this address", "\"10.0.1.10\""]);
    let ends = |external: &str, internal: &str| {
        format!("kind = \"azure\"\nexternal = {{{external}}}\ninternal = {{{internal}}}")
    };
    let same_port = ends("port = 1, vni = 1", "port = 1, vni = 2");
    spoiled("kind = \"azure\"", &same_port, &["gateway[1].external.port = 1", "same port"]);
    let same_vni = ends("port = 1, vni = 7", "port = 2, vni = 7");
    spoiled("kind = \"azure\"", &same_vni, &["gateway[1].external.vni = 7", "same vni"]);
    spoiled("kind = \"azure\"", &ends("port = 1, vni = 16777216", "port = 2, vni = 2"), &["vni"]);
    let cross = "kind = \"aws\"\ncross = true";
    spoiled("kind = \"aws\"", cross, &["gateway[0].cross = true", "\"azure\" has this key"]);
    let twice =
        format!("{RIGHT}[[gateway]]\nname = \"b\"\nkind = \"aws\"\nsources = \"10.0.1.0/24\"");
    assert!(
        refusal(&twice).contains("gateway[2].port: the same local address, port and VNI twice")
    );
}

#[test]
fn the_rest_is_told_as_well() {
    let also = |text: &str, parts: &[&str]| {
        let error = refusal(&format!("{text}\n{RIGHT}"));
        parts.iter().for_each(|p| assert!(error.contains(p), "no {p:?} in:\n{error}"));
    };
    spoiled(
        "addresses = \"10.0.2.10\"",
        "addresses = [\"10.0.2.10\", \"fd00:2::1\"]",
        &["nat.addresses[1] = \"fd00:2::1\"", "no IPv6 address", "egress.address"],
    );
    also("[health]\nlisten = []\ntcp = []", &["health.listen = []", "listen = ["]);
    also("[health]\ntcp = \"0.0.0.0:8080\"", &["health.tcp", "health.listen"]);
    also("[metrics]\nlisten = \"0.0.0.0:8080\"", &["same address and port twice"]);
    also("[metrics]\nlisten = \"localhost:9100\"", &["no address with port", "127.0.0.1:19100"]);
    also("[tables]\nmaglev_size = 1000", &["tables.maglev_size = 1000", "1021", "131071"]);
    also("[tables]\nseed = \"short\"", &["12 bytes in base64"]);
    also("[punt]\nlocal_ports = [0]", &["punt.local_ports[0] = 0", "1 to 65535"]);
    let ports: Vec<u16> = (1000..1027).collect();
    also(&format!("[punt]\nlocal_ports = {ports:?}"), &["punt.local_ports", "33", "32 at most"]);
    also("[punt]\nplain_no_service = \"return\"", &["\"drop\", \"punt\""]);
    also("[control]\nsocket = \"here\"", &["whole path"]);
    also("[control]\nstate = \"here\"", &["control.state", "whole path"]);
    also("node_ports = \"30000\"", &["node_ports = \"30000\"", "30000-32767"]);
    also("node_ports = \"0-9\"", &["within 1 and 65535"]);
    also("[api]\nlisten = \"127.0.0.1:8443\"", &["api.token_file", "only root can read"]);
    let open = "[api]\nlisten = \"0.0.0.0:8443\"\ntoken_file = \"/etc/weir/token\"";
    also(open, &["api.listen", "not loopback", "api.tls_cert"]);
    also("[api]\ntls_key = \"/etc/weir/key.pem\"", &["api.tls_cert", "set both, or neither"]);
    also("name = \"Weir One\"", &["name = \"Weir One\"", "a-z"]);
    also("[region]\nring_slots = 1000", &["for example 1024"]);
    spoiled("[nat]", "[nat]\nports = \"80-90\"", &["nat.ports = \"80-90\"", "1024-32767"]);
}

#[test]
fn the_section_about_aws_is_told_what_it_lacks_and_what_is_too_much() {
    use config::checked::{AwsMode, GroupBy, OnLost};
    let with = |text: &str| format!("{RIGHT}\n[aws]\n{text}");
    let taken = |text: &str| {
        let config = config::from_toml(&with(text)).unwrap_or_else(|e| panic!("{}", e.render()));
        config.aws.unwrap()
    };
    let also = |text: &str, parts: &[&str]| {
        let error = refusal(&with(text));
        parts.iter().for_each(|p| assert!(error.contains(p), "no {p:?} in:\n{error}"));
        assert_eq!(error.lines().count(), 1, "more than the one problem:\n{error}");
    };
    assert_eq!(right().aws, None, "no cloud is asked anything");
    let aws = taken("cluster = \"prod\"");
    assert_eq!(aws.mode, AwsMode::Gateway(GroupBy::Cluster("prod".into())));
    assert_eq!((aws.tag_prefix.as_str(), aws.life.on_lost), ("weir", OnLost::Repair));
    assert_eq!((aws.life.drain_cap.as_secs(), aws.life.quiet.as_secs()), (330, 5));
    let arn = "arn:aws-cn:elasticloadbalancing:cn-north-1:123456789012:targetgroup/weir/0f";
    let aws = taken(&format!("target_group = \"{arn}\"\non_lost = \"report\"\nhook = false"));
    assert_eq!(aws.mode, AwsMode::Gateway(GroupBy::Arn(arn.into())));
    assert_eq!((aws.life.on_lost, aws.life.hook), (OnLost::Report, false));
    let aws = taken("mode = \"routes\"\ncluster = \"prod\"\negress = \"eni-0a\"");
    assert_eq!(aws.mode, AwsMode::Routes { cluster: "prod".into() });
    assert_eq!((aws.roles.ingress, aws.roles.egress.as_deref()), (None, Some("eni-0a")));

    also("", &["nothing says which target group", "aws.cluster", "aws.target_group"]);
    let both = format!("cluster = \"prod\"\ntarget_group = \"{arn}\"");
    also(&both, &["aws.target_group", "aws.cluster says", "leave one of them out"]);
    also("target_group = \"weir\"", &["aws.target_group = \"weir\"", "no ARN", "arn:aws:"]);
    let listener = arn.replace("targetgroup", "listener");
    also(&format!("target_group = \"{listener}\""), &["no ARN of a target group"]);
    also("mode = \"routes\"", &["aws.cluster", "finds peers by it"]);
    also(&format!("mode = \"routes\"\n{both}"), &["aws.target_group", "has no target group"]);
    also("mode = \"vpn\"", &["aws.mode = \"vpn\"", "routes"]);
    let prod = |more: &str| format!("cluster = \"prod\"\n{more}");
    also("cluster = \"a b\"", &["aws.cluster = \"a b\"", "the value of a tag"]);
    also(&prod("tag_prefix = \"aws\""), &["aws.tag_prefix = \"aws\"", "not beginning"]);
    also(&prod("ingress = \"eth1\""), &["aws.ingress = \"eth1\"", "eni-0123456789abcdef0"]);
    let twice = prod("ingress = \"eni-1\"\negress = \"eni-1\"");
    also(&twice, &["aws.egress", "the same interface twice"]);
    also(&prod("drain_cap_s = 4"), &["aws.drain_cap_s = 4", "5 to 7200"]);
    also(&prod("drain_cap_s = 10\nquiet_s = 11"), &["aws.quiet_s = 11", "at most"]);
    also(&prod("on_lost = \"weep\""), &["aws.on_lost = \"weep\"", "report"]);
    also(&prod("clutser = \"x\""), &["aws.clutser", "`cluster`?"]);
}

#[test]
fn several_problems_are_told_at_once_with_their_lines_underlined() {
    let text = RIGHT.replace("mtu = 9001", "mtu = 1500").replace("net_null1", "eth1");
    let error = config::from_toml(&text).unwrap_err();
    let ConfigError::Wrong(problems) = &error else { panic!() };
    assert_eq!(problems.len(), 4, "{error}");
    let drawn = error.render();
    assert!(drawn.contains("7 │ mtu = 1500"), "{drawn}");
    assert!(drawn.contains("────"), "{drawn}");
    assert!(drawn.contains("help: write ingress.mtu = 8568 or more"), "{drawn}");
}

#[test]
fn what_is_no_toml_is_told_with_its_line() {
    let error = refusal("name = \"a\"\nmtu 9001\n");
    assert!(error.contains("weir.toml:2"), "{error}");
}

#[test]
fn a_missing_file_says_what_to_type() {
    let error = config::load(Some("/nowhere/weir.toml".as_ref()), &[]).unwrap_err();
    let text = error.render();
    assert!(text.contains("/nowhere/weir.toml") && text.contains("--config FILE"), "{text}");
}

#[test]
fn no_text_panics() {
    // Mutates the valid configuration: bytes dropped, duplicated and swapped.
    let bytes = RIGHT.as_bytes();
    for i in 0..bytes.len() {
        let mut dropped = bytes.to_vec();
        dropped.remove(i);
        let mut swapped = bytes.to_vec();
        swapped[i] = b"[]{}=\".,-0/\n"[i % 12];
        let doubled = [&bytes[..i], &bytes[i / 2..]].concat();
        for text in [dropped, swapped, doubled] {
            if let Err(error) = config::from_toml(&String::from_utf8_lossy(&text)) {
                assert!(!error.render().is_empty() && !error.to_string().is_empty());
            }
        }
    }
}

#[test]
fn the_section_about_azure_is_told_what_it_lacks_and_what_is_too_much() {
    use config::checked::{AzureCredential, Balancer, MadeBy, OnLost, Preboot, Remove, Told};
    let with = |text: &str| format!("{RIGHT}\n[azure]\n{text}");
    let taken = |text: &str| {
        let config = config::from_toml(&with(text)).unwrap_or_else(|e| panic!("{}", e.render()));
        config.azure.unwrap()
    };
    let also = |text: &str, parts: &[&str]| {
        let error = refusal(&with(text));
        parts.iter().for_each(|p| assert!(error.contains(p), "no {p:?} in:\n{error}"));
        assert_eq!(error.lines().count(), 1, "more than the one problem:\n{error}");
    };
    assert_eq!(right().azure, None, "no cloud is asked anything");
    let azure = taken("pool = \"weir\"");
    let pools: Vec<_> = azure.pools.iter().map(|p| (p.ipv6, &*p.name, &*p.gateway)).collect();
    assert_eq!(pools, [(false, "weir", "azure")]);
    assert_eq!(azure.balancer, Balancer::Search { group: None, name: None });
    let life = azure.life;
    assert_eq!((azure.membership, azure.credential), (MadeBy::Nic, AzureCredential::Auto));
    assert_eq!((life.on_lost, life.remove), (OnLost::Repair, Remove::Own));
    assert_eq!((life.preboot, life.tunnels, life.events), (Preboot::Refuse, Told::Follow, true));
    assert_eq!((life.drain_cap.as_secs(), life.quiet.as_secs()), (300, 5));
    assert_eq!(azure.endpoints.metadata, "http://169.254.169.254");
    let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/gw";
    let azure = taken(&format!(
        "pool_ipv6 = \"w6\"\nload_balancer = \"{id}\"\nmembership = \"ip\"\n\
         resource_manager = \"https://arm.local/\""
    ));
    assert_eq!(azure.pools.iter().map(|p| p.ipv6).collect::<Vec<_>>(), [true]);
    assert_eq!((azure.balancer, azure.membership), (Balancer::Id(id.into()), MadeBy::Ip));
    assert_eq!(azure.endpoints.resource_manager.as_deref(), Some("https://arm.local"));

    also("", &["nothing says which pool", "azure.pool", "azure.pool_ipv6"]);
    let pool = |more: &str| format!("pool = \"weir\"\n{more}");
    also(&pool("gateway = \"aws\""), &["azure.gateway = \"aws\"", "kind \"azure\"", "azure"]);
    let both = pool("pool_ipv6 = \"weir6\"");
    also(&both, &["azure.gateway_ipv6", "feeds this gateway already"]);
    also(&pool("load_balancer = \"/weir\""), &["azure.load_balancer", "no id", "/subscriptions/"]);
    let twice = pool(&format!("load_balancer = \"{id}\"\nresource_group = \"g\""));
    also(&twice, &["azure.resource_group", "leave one of them out"]);
    also(&pool("metadata = \"https://x\""), &["azure.metadata", "http://"]);
    also(&pool("resource_manager = \"http://x\""), &["azure.resource_manager", "https://"]);
    also(&pool("imds_version = \"latest\""), &["azure.imds_version", "2023-07-01"]);
    also(&pool("drain_cap_s = 10\nquiet_s = 11"), &["azure.quiet_s = 11", "at most"]);
    also(&pool("membership = \"vnet\""), &["azure.membership = \"vnet\"", "nic"]);
    also(&pool("[aws]\ncluster = \"c\""), &["azure", "[aws] is there as well"]);
}
