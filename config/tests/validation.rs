//! Tests of configuration errors: location, key, value and remedy.

#![expect(clippy::panic, reason = "a failing test panics")]

use config::checked::PlaneFrom::Undecided;
use config::checked::{Idle, OnExpiry, Plane, PlaneSetting};
use config::{Config, ConfigError};

/// A valid configuration; each test makes one part of it invalid.
const VALID: &str = r#"
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

fn valid_config() -> Config {
    config::from_toml(VALID).unwrap_or_else(|e| panic!("{}", e.render()))
}

fn error_of(text: &str) -> String {
    match config::from_toml(text) {
        Ok(_) => panic!("not rejected:\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// Asserts that the valid configuration with `old` replaced by `new` is rejected, and that the
/// error contains all of `parts`.
#[track_caller]
fn assert_rejected(old: &str, new: &str, parts: &[&str]) {
    assert!(VALID.contains(old), "{old}");
    let error = error_of(&VALID.replacen(old, new, 1));
    for part in parts {
        assert!(error.contains(part), "no {part:?} in:\n{error}");
    }
    assert_eq!(error.lines().count(), 1, "more than one problem:\n{error}");
}

#[test]
fn valid_configuration_loads_with_defaults() {
    let config = valid_config();
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
fn rejects_fewer_nat_maps_than_backends() {
    let parts = ["region.nat_maps = 4095", "4096 backends", "write at least 4096"];
    assert_rejected("[nat]", "[region]\nnat_maps = 4095\n[nat]", &parts);
    let two = "[region]\nmax_backends = 100\nnat_maps = 199\n[nat]\naddresses = [\"10.0.2.10\", \
               \"10.0.2.11\"]";
    let both = "[nat]\naddresses = \"10.0.2.10\"";
    assert_rejected(both, two, &["region.nat_maps = 199", "2 NAT addresses", "write at least 200"]);
    let enough = VALID.replacen(both, &two.replace("199", "200"), 1);
    config::from_toml(&enough).unwrap_or_else(|e| panic!("{}", e.render()));
}

#[test]
fn sources_keep_their_order_and_have_unique_names() {
    let two = "[[source]]\nname = \"api\"\n[[source]]\nname = \"kubernetes\"\nlease_s = 60\n\
               on_expiry = \"quarantine\"\n[nat]";
    let config = config::from_toml(&VALID.replacen("[nat]", two, 1));
    let sources = config.unwrap_or_else(|e| panic!("{}", e.render())).sources;
    let read = sources.iter().map(|s| (s.name.as_str(), s.lease_s, s.on_expiry));
    let expected = [("api", 0, OnExpiry::Keep), ("kubernetes", 60, OnExpiry::Quarantine)];
    assert_eq!(read.collect::<Vec<_>>(), expected);
    let duplicate = two.replacen("\"kubernetes\"", "\"api\"", 1);
    assert_rejected("[nat]", &duplicate, &["source[1].name", "the same name twice"]);
    let long = two.replacen("60", "86401", 1);
    assert_rejected("[nat]", &long, &["source[1].lease_s = 86401", "0 to 86400"]);
    let unknown = two.replacen("quarantine", "forget", 1);
    assert_rejected("[nat]", &unknown, &["source[1].on_expiry", "\"forget\"", "release"]);
    assert_rejected(
        "[nat]",
        &two.replacen("api", "An API", 1),
        &["source[0].name", "not a valid name"],
    );
}

#[test]
fn mtu_too_small_for_the_tunnel_names_the_minimum() {
    let parts = ["weir.toml:7: ingress.mtu = 8567", "tunnel of 68", "ingress.mtu = 8568"];
    assert_rejected("mtu = 9001", "mtu = 8567", &parts);
    let azure = "kind = \"azure\"\ninner_mtu = 8951";
    assert_rejected(
        "kind = \"azure\"",
        azure,
        &["tunnel of 70", "9021 or more", "inner_mtu = 8931"],
    );
    let just = VALID.replace("kind = \"azure\"", "kind = \"azure\"\ninner_mtu = 8931");
    assert!(config::from_toml(&just).is_ok());
}

#[test]
fn suggests_the_key_for_a_typo() {
    assert_rejected(
        "[nat]\naddresses",
        "[nat]\nadresses",
        &["weir.toml:12: nat.adresses", "`addresses`?"],
    );
    assert_rejected("kind = \"aws\"", "kind = \"asw\"", &["\"asw\"", "did you mean \"aws\"?"]);
}

#[test]
fn reports_address_family_without_address() {
    let no_v6 = ", \"fd00:1::10/64\"]";
    assert_rejected(no_v6, "]", &["gateway[1].sources", "ingress arm has no IPv6 address"]);
    let router = "address = \"10.0.2.10/24\"\ngateway = \"fd00:2::1\"";
    assert_rejected(
        "address = \"10.0.2.10/24\"",
        router,
        &["egress.gateway = \"fd00:2::1\"", "no IPv6 address", "add one to egress.address"],
    );
}

#[test]
fn main_core_may_poll_if_idle_is_sleep_or_yield() {
    for (name, idle) in [("sleep", Idle::Sleep), ("yield", Idle::Yield)] {
        let both = format!("lcores = [0, 1]\nidle = \"{name}\"");
        let config = config::from_toml(&VALID.replacen("lcores = [1]", &both, 1));
        let fastpath = config.unwrap_or_else(|e| panic!("{}", e.render())).fastpath;
        assert_eq!((fastpath.lcores, fastpath.idle), (vec![0, 1], idle));
    }
    let both = "lcores = [0, 1]\nidle = \"spin\"";
    assert_rejected("lcores = [1]", both, &["fastpath.lcores[0] = 0", "\"sleep\" or \"yield\""]);
    let misspelled = "lcores = [1]\nidle = \"slep\"";
    assert_rejected("lcores = [1]", misspelled, &["\"slep\"", "did you mean \"sleep\"?"]);
}

#[test]
fn reports_allowed_range_and_type() {
    assert_rejected("mtu = 9001", "mtu = 70000", &["ingress.mtu = 70000", "allowed: 1280 to 9600"]);
    assert_rejected("mtu = 9001", "mtu = -1", &["ingress.mtu = -1", "1280 to 9600"]);
    assert_rejected("mtu = 9001", "mtu = \"9001\"", &["this is a string", "write a whole number"]);
    assert_rejected("lcores = [1]", "lcores = 1", &["fastpath.lcores = 1", "write a list"]);
    assert_rejected(
        "lcores = [1]",
        "lcores = [\"a\"]",
        &["fastpath.lcores[0] = \"a\"", "whole number"],
    );
    assert_rejected(
        "lcores = [1]",
        "lcores = [0]",
        &["fastpath.lcores[0] = 0", "fastpath.main_core", "yield"],
    );
    assert_rejected("lcores = [1]", "lcores = [1]\nburst = 0", &["fastpath.burst = 0", "1 to 64"]);
    assert_rejected(
        "lcores = [1]",
        "lcores = [1]\nburst = 65",
        &["fastpath.burst = 65", "1 to 64"],
    );
    assert_rejected("lcores = [1]", "lcores = [1]\nmemory_mib = 64", &["need", "at least"]);
    assert_rejected(
        "lcores = [1]",
        "lcores = [1]\nhugepage_size = \"4K\"",
        &["fastpath.hugepage_size = \"4K\"", "2M", "1G"],
    );
    let unconfirmed = "[region]\nunconfirmed_percent = 60\nunconfirmed_dsr_percent = 16\n[ingress]";
    let expected =
        ["region.unconfirmed_percent = 60", "unconfirmed_dsr_percent", "76", "at most 75"];
    assert_rejected("[ingress]", unconfirmed, &expected);
    let none = "[region]\nunconfirmed_dsr_percent = 0\n[ingress]";
    assert_rejected("[ingress]", none, &["region.unconfirmed_dsr_percent = 0", "1 to 50"]);
    assert_rejected("lcores = [1]", "lcores = [1]\nbuffers = 2000", &["at least 4640"]);
    assert_rejected("mtu = 9001", "mtu = 9001\nqueues = 2", &["only 1 lcores"]);
    assert_rejected("mtu = 9001", "mtu = 9001\nrx_descriptors = 1000", &["for example 1024"]);
}

#[test]
fn the_region_lies_on_a_hugetlbfs_of_the_configured_page_size() {
    let path = |more: &str| {
        let text = VALID.replacen("lcores = [1]", &format!("lcores = [1]\n{more}"), 1);
        let config = config::from_toml(&text).unwrap_or_else(|e| panic!("{}", e.render()));
        config.region.path.display().to_string()
    };
    assert_eq!(path(""), "/dev/hugepages/weir-region");
    assert_eq!(path("hugepage_size = \"1G\""), "/dev/hugepages-1G/weir-region");
    assert_eq!(path("hugepage_size = \"1G\"\nhugepages = false"), "/dev/shm/weir/region");
}

#[test]
fn plane_xdp_accepts_only_kernel_interfaces() {
    let xdp = |device: &str| {
        let valid_config = VALID.replacen("\"net_null1\"", "\"net_af_packet1,iface=eth2\"", 1);
        let device = valid_config.replacen("net_null0", device, 1);
        format!("plane = \"xdp\"\n{device}").replacen("lcores = [1]", "memory_mib = 16", 1)
    };
    for device in ["eth1", "net_pcap0,iface=eth1"] {
        let config = config::from_toml(&xdp(device)).unwrap_or_else(|e| panic!("{}", e.render()));
        assert_eq!(config.plane, Plane::Xdp);
        assert_eq!(config.kernel_interface(&config.ingress), "eth1");
    }
    assert_eq!(valid_config().kernel_interface(&valid_config().ingress), "weir-in");
    let same = error_of(&xdp("eth2"));
    assert!(same.contains("same device twice"), "{same}");
    for device in
        ["net_null0", "net_null0,iface=a/b", "eth 1", "an-interface-of-30-characters--", ""]
    {
        let error = error_of(&xdp(device));
        assert!(error.contains("ingress.device"), "{error}");
    }
    assert!(error_of(&VALID.replacen("[fast", "plane = \"ebpf\"\n[fast", 1)).contains("\"xdp\""));
}

#[test]
fn plane_auto_must_be_valid_for_both_planes() {
    let auto = |from: &str, to: &str| {
        let interfaces = VALID.replacen("\"net_null0\"", "\"eth1\"", 1);
        let interfaces = interfaces.replacen("\"net_null1\"", "\"eth2\"", 1);
        assert!(interfaces.contains(from), "{from}");
        format!("plane = \"auto\"\n{}", interfaces.replacen(from, to, 1))
    };
    let config = config::from_toml(&auto("eth1", "0000:00:06.0")).unwrap();
    assert_eq!((config.plane_setting(), config.plane_from), (PlaneSetting::Auto, Undecided));
    // XDP needs an interface, DPDK needs memory, a TAP, and devices of different names.
    for (from, to, expected) in [
        ("eth1", "net_null0", ["ingress.device = \"net_null0\"", "plane auto"]),
        ("eth2", "net_af_packet0,iface=eth1", ["egress.device", "same device twice"]),
        ("lcores = [1]", "lcores = [1]\nmemory_mib = 16", ["fastpath.memory_mib = 16", "at least"]),
        ("mtu = 9001", "mtu = 9001\ntap = \"eth1\"", ["ingress.tap", "Weir creates the TAP"]),
    ] {
        let error = error_of(&auto(from, to));
        assert!(expected.iter().all(|part| error.contains(part)), "{to}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let xdp = auto("lcores = [1]", "memory_mib = 16").replacen("\"auto\"", "\"xdp\"", 1);
    assert_eq!(config::from_toml(&xdp).unwrap().plane_setting(), PlaneSetting::Xdp);
    let relative = format!("plane_file = \"run/plane\"\n{VALID}");
    assert!(error_of(&relative).contains("plane_file = \"run/plane\": not a valid path"));
}

#[test]
fn rejects_invalid_and_overlapping_arms() {
    assert_rejected(
        "net_null1",
        "net_null0",
        &["same device twice", "ingress.device (weir.toml:5)"],
    );
    assert_rejected("mtu = 9001", "mtu = 9001\ntap = \"weir-out\"", &["same interface name"]);
    assert_rejected(
        "mtu = 9001",
        "mtu = 9001\ntap = \"sixteen-letters-\"",
        &["1 to 15 characters"],
    );
    assert_rejected("net_null1", "eth 1", &["egress.device = \"eth 1\"", "weir nic list"]);
    assert_rejected("net_null1", "0000:00:06.0,a b", &["\"a b\" is not an argument", "key=value"]);
    let one = VALID.replace("net_null0", "0000:00:06.0,llq_policy=3");
    let same = error_of(&one.replace("net_null1", "00:06.0"));
    assert!(same.contains("same device twice"), "{same}");
    let iface = "net_af_packet0,iface=weir-out";
    assert_rejected("net_null1", iface, &["egress.tap", "write another"]);
    assert_rejected("\"10.0.2.10/24\"", "\"10.0.1.10/24\"", &["same address twice"]);
    assert_rejected("\"10.0.2.10/24\"", "\"10.0.2.10\"", &["write \"10.0.1.10/24\""]);
    assert_rejected(
        "\"10.0.2.10/24\"",
        "\"0.0.0.0/24\"",
        &["not an address that a machine can have"],
    );
    let router = "address = \"10.0.2.10/24\"\ngateway = \"10.0.3.1\"";
    assert_rejected(
        "address = \"10.0.2.10/24\"",
        router,
        &["not in the arm's network", "10.0.2.0/24"],
    );
    let missing = VALID.replace("device = \"net_null0\"", "");
    assert!(error_of(&missing).contains("weir.toml:4: ingress.device: this key is missing"));
}

#[test]
fn ipip_sources_must_be_an_unassigned_network() {
    let with = |text: &str| format!("address = \"10.0.2.10/24\"\nipip_sources = \"{text}\"");
    let assert_rejected_network = |text: &str, parts: &[&str]| {
        assert_rejected("address = \"10.0.2.10/24\"", &with(text), parts);
    };
    let config =
        config::from_toml(&VALID.replace("address = \"10.0.2.10/24\"", &with("100.64.7.0/30")));
    let config = config.unwrap_or_else(|e| panic!("{}", e.render()));
    let network = config.egress.and_then(|arm| arm.ipip_sources).map(|n| n.to_string());
    assert_eq!(network.as_deref(), Some("100.64.7.0/30"));
    assert_eq!(config.ingress.ipip_sources, None);
    assert_rejected_network("100.64.7.1/24", &["egress.ipip_sources", "write \"100.64.7.0/24\""]);
    assert_rejected_network("100.64.7.0/31", &["egress.ipip_sources", "/8 to /30"]);
    assert_rejected_network("0.0.0.0/0", &["egress.ipip_sources", "/8 to /30"]);
    assert_rejected_network("fd00:7::/64", &["egress.ipip_sources", "IPv6 uses the flow label"]);
    assert_rejected_network(
        "127.0.0.0/8",
        &["egress.ipip_sources", "not an address that a machine can have"],
    );
    assert_rejected_network(
        "10.0.2.128/25",
        &["overlaps 10.0.2.0/24 of egress.address", "unassigned"],
    );
    assert_rejected_network("10.0.0.0/16", &["overlaps 10.0.1.0/24 of ingress.address"]);
    let nat = VALID.replacen("addresses = \"10.0.2.10\"", "addresses = \"192.0.2.9\"", 1);
    let nat = error_of(&nat.replacen("address = \"10.0.2.10/24\"", &with("192.0.2.0/24"), 1));
    assert!(nat.contains("overlaps 192.0.2.9/32 of nat.addresses"), "{nat}");
    let both = VALID.replacen("mtu = 9001", "mtu = 9001\nipip_sources = \"100.64.0.0/16\"", 1);
    let both = error_of(&both.replacen("address = \"10.0.2.10/24\"", &with("100.64.7.0/24"), 1));
    assert!(both.contains("overlaps 100.64.0.0/16 of ingress.ipip_sources"), "{both}");
}

#[test]
fn rejects_ambiguous_gateways() {
    assert_rejected("\"azure\"\nkind", "\"aws\"\nkind", &["same name twice", "gateway[0].name"]);
    assert_rejected("sources = \"10.0.1.0/24\"", "sources = []", &["without sources no packet"]);
    assert_rejected(
        "sources = \"10.0.1.0/24\"",
        "",
        &["weir.toml:13: gateway[0].sources", "missing"],
    );
    assert_rejected(
        "sources = \"10.0.1.0/24\"",
        "sources = \"10.0.1.1/24\"",
        &["\"10.0.1.0/24\" for the"],
    );
    let foreign_address = "kind = \"aws\"\naddress = \"10.0.9.9\"";
    assert_rejected(
        "kind = \"aws\"",
        foreign_address,
        &["no arm has this address", "\"10.0.1.10\""],
    );
    let ends = |external: &str, internal: &str| {
        format!("kind = \"azure\"\nexternal = {{{external}}}\ninternal = {{{internal}}}")
    };
    let same_port = ends("port = 1, vni = 1", "port = 1, vni = 2");
    assert_rejected("kind = \"azure\"", &same_port, &["gateway[1].external.port = 1", "same port"]);
    let same_vni = ends("port = 1, vni = 7", "port = 2, vni = 7");
    assert_rejected("kind = \"azure\"", &same_vni, &["gateway[1].external.vni = 7", "same vni"]);
    assert_rejected(
        "kind = \"azure\"",
        &ends("port = 1, vni = 16777216", "port = 2, vni = 2"),
        &["vni"],
    );
    let cross = "kind = \"aws\"\ncross = true";
    assert_rejected(
        "kind = \"aws\"",
        cross,
        &["gateway[0].cross = true", "\"azure\" has this key"],
    );
    let duplicate =
        format!("{VALID}[[gateway]]\nname = \"b\"\nkind = \"aws\"\nsources = \"10.0.1.0/24\"");
    assert!(
        error_of(&duplicate)
            .contains("gateway[2].port: the same local address, port and VNI twice")
    );
}

#[test]
fn reports_key_and_remedy_in_each_section() {
    let assert_error = |text: &str, parts: &[&str]| {
        let error = error_of(&format!("{text}\n{VALID}"));
        parts.iter().for_each(|p| assert!(error.contains(p), "no {p:?} in:\n{error}"));
    };
    assert_rejected(
        "addresses = \"10.0.2.10\"",
        "addresses = [\"10.0.2.10\", \"fd00:2::1\"]",
        &["nat.addresses[1] = \"fd00:2::1\"", "no IPv6 address", "egress.address"],
    );
    assert_error("[health]\nlisten = []\ntcp = []", &["health.listen = []", "listen = ["]);
    assert_error("[health]\ntcp = \"0.0.0.0:8080\"", &["health.tcp", "health.listen"]);
    assert_error("[metrics]\nlisten = \"0.0.0.0:8080\"", &["same address and port twice"]);
    assert_error(
        "[metrics]\nlisten = \"localhost:9100\"",
        &["not an address with port", "127.0.0.1:19100"],
    );
    assert_error("[tables]\nmaglev_size = 1000", &["tables.maglev_size = 1000", "1021", "131071"]);
    assert_error("[tables]\nseed = \"short\"", &["12 bytes in base64"]);
    assert_error("[punt]\nlocal_ports = [0]", &["punt.local_ports[0] = 0", "1 to 65535"]);
    let ports: Vec<u16> = (1000..1027).collect();
    assert_error(
        &format!("[punt]\nlocal_ports = {ports:?}"),
        &["punt.local_ports", "33", "32 at most"],
    );
    assert_error("[punt]\nplain_no_service = \"return\"", &["\"drop\", \"punt\""]);
    assert_error("[control]\nsocket = \"here\"", &["absolute path"]);
    assert_error("[control]\nstate = \"here\"", &["control.state", "absolute path"]);
    assert_error("node_ports = \"30000\"", &["node_ports = \"30000\"", "30000-32767"]);
    assert_error("node_ports = \"0-9\"", &["within 1 and 65535"]);
    let none = "[api]\nlisten = \"127.0.0.1:8443\"\ntokens_file = \"\"";
    assert_error(none, &["api.token_file", "only root can read", "weir token create"]);
    let none = "[api]\ntokens_file = \"\"\n[metrics]\ntoken = true";
    assert_error(none, &["api.token_file", "metrics.listen", "weir token create"]);
    let open = "[metrics]\nlisten = [\"127.0.0.1:9\", \"0.0.0.0:19100\"]\ntoken = true";
    assert_error(open, &["metrics.listen[1]", "not loopback", "metrics.tls_cert"]);
    assert_error("[metrics]\ntls_cert = \"/c.pem\"", &["metrics.tls_key", "set both, or neither"]);
    for (endpoint, fault) in [
        ("127.0.0.1:4318", "does not begin with http:// or https://"),
        ("grpc://127.0.0.1:4317", "does not begin with http:// or https://"),
        ("http://", "no valid host"),
        ("http://:4318", "no valid host"),
        ("http://[::g]:4318", "no valid host"),
        ("http://[::1", "`]` is missing"),
        ("http://[::1]4318", "a port follows"),
        ("http://collector:0", "1 to 65535"),
        ("http://collector:http", "1 to 65535"),
        ("http://a b", "a character that URLs cannot have"),
        ("http://user:word@collector", "headers_file"),
        ("http://collector/?key=1", "no `?`"),
    ] {
        let text = format!("[telemetry]\notlp_endpoint = \"{endpoint}\"");
        assert_error(&text, &["telemetry.otlp_endpoint", fault, "http://127.0.0.1:4318"]);
    }
    assert_error("[telemetry]\ninterval_s = 0", &["telemetry.interval_s = 0", "1 to 3600"]);
    assert_error("[telemetry]\nheaders_file = \"/h\"", &["headers_file", "otlp_endpoint as well"]);
    let relative = "[telemetry]\notlp_endpoint = \"https://c\"\nheaders_file = \"h\"";
    assert_error(relative, &["telemetry.headers_file", "absolute path"]);
    assert_error("[audit]\nmax_mib = 0", &["audit.max_mib = 0", "1 to 65536"]);
    assert_error("[events]\nmax_mib = 257", &["events.max_mib", "257", "1 to 256"]);
    let groups = |text: &str| format!("[control]\ngroup = \"a\"\n{text}");
    assert_error(&groups("read_group = \"a\""), &["control.read_group", "role admin"]);
    let same = groups("operate_group = \"b\"\nread_group = \"b\"");
    assert_error(&same, &["control.read_group", "control.operate_group"]);
    for host in ["https://weir.example", "weir.example:8443", "*.example", "", "a..b"] {
        let named = format!("[api]\nhosts = [\"weir.example\", \"{host}\"]");
        assert_error(&named, &["api.hosts[1]", "not a host name", "weir.example.com"]);
    }
    let open = "[api]\nlisten = \"0.0.0.0:8443\"\ntoken_file = \"/etc/weir/token\"";
    assert_error(open, &["api.listen", "not loopback", "api.tls_cert"]);
    assert_error(
        "[api]\ntls_key = \"/etc/weir/key.pem\"",
        &["api.tls_cert", "set both, or neither"],
    );
    assert_error("name = \"Weir One\"", &["name = \"Weir One\"", "a-z"]);
    assert_error("[region]\nring_slots = 1000", &["for example 1024"]);
    assert_rejected("[nat]", "[nat]\nports = \"80-90\"", &["nat.ports = \"80-90\"", "1024-32767"]);
}

#[test]
fn validates_the_aws_section() {
    use config::checked::{AwsMode, GroupBy, OnLost};
    let with = |text: &str| format!("{VALID}\n[aws]\n{text}");
    let load_section = |text: &str| {
        let config = config::from_toml(&with(text)).unwrap_or_else(|e| panic!("{}", e.render()));
        config.aws.unwrap()
    };
    let assert_error = |text: &str, parts: &[&str]| {
        let error = error_of(&with(text));
        parts.iter().for_each(|p| assert!(error.contains(p), "no {p:?} in:\n{error}"));
        assert_eq!(error.lines().count(), 1, "more than one problem:\n{error}");
    };
    assert_eq!(valid_config().aws, None, "no cloud is configured");
    let aws = load_section("cluster = \"prod\"");
    assert_eq!(aws.mode, AwsMode::Gateway(GroupBy::Cluster("prod".into())));
    assert_eq!((aws.tag_prefix.as_str(), aws.lifecycle.on_lost), ("weir", OnLost::Repair));
    assert_eq!((aws.lifecycle.drain_cap.as_secs(), aws.lifecycle.idle.as_secs()), (330, 5));
    let arn = "arn:aws-cn:elasticloadbalancing:cn-north-1:123456789012:targetgroup/weir/0f";
    let aws =
        load_section(&format!("target_group = \"{arn}\"\non_lost = \"report\"\nhook = false"));
    assert_eq!(aws.mode, AwsMode::Gateway(GroupBy::Arn(arn.into())));
    assert_eq!((aws.lifecycle.on_lost, aws.lifecycle.hook), (OnLost::Report, false));
    let aws = load_section("mode = \"routes\"\ncluster = \"prod\"\negress = \"eni-0a\"");
    assert_eq!(aws.mode, AwsMode::Routes { cluster: "prod".into() });
    assert_eq!((aws.roles.ingress, aws.roles.egress.as_deref()), (None, Some("eni-0a")));

    assert_error("", &["no target group is set", "aws.cluster", "aws.target_group"]);
    let both = format!("cluster = \"prod\"\ntarget_group = \"{arn}\"");
    assert_error(&both, &["aws.target_group", "aws.cluster selects", "leave one of them out"]);
    assert_error(
        "target_group = \"weir\"",
        &["aws.target_group = \"weir\"", "not the ARN", "arn:aws:"],
    );
    let listener = arn.replace("targetgroup", "listener");
    assert_error(&format!("target_group = \"{listener}\""), &["not the ARN of a target group"]);
    assert_error("mode = \"routes\"", &["aws.cluster", "to find peers"]);
    assert_error(
        &format!("mode = \"routes\"\n{both}"),
        &["aws.target_group", "has no target group"],
    );
    assert_error("mode = \"vpn\"", &["aws.mode = \"vpn\"", "routes"]);
    let prod = |more: &str| format!("cluster = \"prod\"\n{more}");
    assert_error("cluster = \"a b\"", &["aws.cluster = \"a b\"", "not a valid tag value"]);
    assert_error(&prod("tag_prefix = \"aws\""), &["aws.tag_prefix = \"aws\"", "not beginning"]);
    assert_error(&prod("ingress = \"eth1\""), &["aws.ingress = \"eth1\"", "eni-0123456789abcdef0"]);
    let duplicate = prod("ingress = \"eni-1\"\negress = \"eni-1\"");
    assert_error(&duplicate, &["aws.egress", "the same interface twice"]);
    assert_error(&prod("drain_cap_s = 4"), &["aws.drain_cap_s = 4", "5 to 7200"]);
    assert_error(&prod("drain_cap_s = 10\nidle_s = 11"), &["aws.idle_s = 11", "at most"]);
    assert_error(&prod("on_lost = \"weep\""), &["aws.on_lost = \"weep\"", "report"]);
    assert_error(&prod("clutser = \"x\""), &["aws.clutser", "`cluster`?"]);
}

#[test]
fn reports_all_problems_with_underlined_source_lines() {
    let text = VALID.replace("mtu = 9001", "mtu = 1500").replace("net_null1", "eth 1");
    let error = config::from_toml(&text).unwrap_err();
    let ConfigError::Invalid(problems) = &error else { panic!() };
    assert_eq!(problems.len(), 4, "{error}");
    let rendered = error.render();
    assert!(rendered.contains("7 │ mtu = 1500"), "{rendered}");
    assert!(rendered.contains("────"), "{rendered}");
    assert!(rendered.contains("help: write ingress.mtu = 8568 or more"), "{rendered}");
}

#[test]
fn reports_toml_syntax_errors_with_line() {
    let error = error_of("name = \"a\"\nmtu 9001\n");
    assert!(error.contains("weir.toml:2"), "{error}");
}

#[test]
fn missing_file_names_the_config_option() {
    let error = config::load(Some("/nowhere/weir.toml".as_ref()), &[]).unwrap_err();
    let text = error.render();
    assert!(text.contains("/nowhere/weir.toml") && text.contains("--config FILE"), "{text}");
}

#[test]
fn never_panics_on_mutated_text() {
    // Mutates the valid configuration: bytes dropped, repeated and replaced.
    let bytes = VALID.as_bytes();
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
fn validates_the_azure_section() {
    use config::checked::{
        AzureCredential, Balancer, MembershipMode, OnLost, Preboot, Remove, TunnelPolicy,
    };
    let with = |text: &str| format!("{VALID}\n[azure]\n{text}");
    let load_section = |text: &str| {
        let config = config::from_toml(&with(text)).unwrap_or_else(|e| panic!("{}", e.render()));
        config.azure.unwrap()
    };
    let assert_error = |text: &str, parts: &[&str]| {
        let error = error_of(&with(text));
        parts.iter().for_each(|p| assert!(error.contains(p), "no {p:?} in:\n{error}"));
        assert_eq!(error.lines().count(), 1, "more than one problem:\n{error}");
    };
    assert_eq!(valid_config().azure, None, "no cloud is configured");
    let azure = load_section("pool = \"weir\"");
    let pools: Vec<_> = azure.pools.iter().map(|p| (p.ipv6, &*p.name, &*p.gateway)).collect();
    assert_eq!(pools, [(false, "weir", "azure")]);
    assert_eq!(azure.balancer, Balancer::Search { group: None, name: None });
    let lifecycle = azure.lifecycle;
    assert_eq!((azure.membership, azure.credential), (MembershipMode::Nic, AzureCredential::Auto));
    assert_eq!((lifecycle.on_lost, lifecycle.remove), (OnLost::Repair, Remove::Own));
    assert_eq!(
        (lifecycle.preboot, lifecycle.tunnels, lifecycle.events),
        (Preboot::Fail, TunnelPolicy::Follow, true)
    );
    assert_eq!((lifecycle.drain_cap.as_secs(), lifecycle.idle.as_secs()), (300, 5));
    assert_eq!(azure.endpoints.metadata, "http://169.254.169.254");
    let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/gw";
    let azure = load_section(&format!(
        "pool_ipv6 = \"w6\"\nload_balancer = \"{id}\"\nmembership = \"ip\"\n\
         resource_manager = \"https://arm.local/\""
    ));
    assert_eq!(azure.pools.iter().map(|p| p.ipv6).collect::<Vec<_>>(), [true]);
    assert_eq!((azure.balancer, azure.membership), (Balancer::Id(id.into()), MembershipMode::Ip));
    assert_eq!(azure.endpoints.resource_manager.as_deref(), Some("https://arm.local"));

    assert_error("", &["no backend pool is set", "azure.pool", "azure.pool_ipv6"]);
    let pool = |more: &str| format!("pool = \"weir\"\n{more}");
    assert_error(
        &pool("gateway = \"aws\""),
        &["azure.gateway = \"aws\"", "kind \"azure\"", "azure"],
    );
    let both = pool("pool_ipv6 = \"weir6\"");
    assert_error(&both, &["azure.gateway_ipv6", "belongs to this gateway already"]);
    assert_error(
        &pool("load_balancer = \"/weir\""),
        &["azure.load_balancer", "not the ID", "/subscriptions/"],
    );
    let duplicate = pool(&format!("load_balancer = \"{id}\"\nresource_group = \"g\""));
    assert_error(&duplicate, &["azure.resource_group", "leave one of them out"]);
    assert_error(&pool("metadata = \"https://x\""), &["azure.metadata", "http://"]);
    assert_error(&pool("resource_manager = \"http://x\""), &["azure.resource_manager", "https://"]);
    assert_error(&pool("imds_version = \"latest\""), &["azure.imds_version", "2023-07-01"]);
    assert_error(&pool("drain_cap_s = 10\nidle_s = 11"), &["azure.idle_s = 11", "at most"]);
    assert_error(&pool("membership = \"vnet\""), &["azure.membership = \"vnet\"", "nic"]);
    assert_error(&pool("[aws]\ncluster = \"c\""), &["azure", "[aws] is set as well"]);
}
