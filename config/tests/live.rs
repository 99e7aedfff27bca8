//! Tests of changes while Weir runs, and of changes that require a restart.
#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use config::Config;

const BASE: &str = r#"
name = "weir-t"
[fastpath]
lcores = [1]
[ingress]
device = "net_null0"
address = ["10.0.1.10/24"]
mtu = 9001
[egress]
device = "net_null1"
address = ["10.0.2.10/24", "10.0.2.9/24"]
mtu = 9001
[nat]
addresses = ["10.0.2.10"]
[region]
nat_maps = 8192
[flows]
udp_s = 60
[[gateway]]
name = "aws"
kind = "aws"
sources = ["10.0.1.0/24"]
"#;

fn changed(from: &str, to: &str) -> Config {
    assert!(BASE.contains(from), "{from}");
    config::from_toml(&BASE.replace(from, to)).unwrap()
}

fn restart_required(from: &str, to: &str) -> Vec<String> {
    let base = config::from_toml(BASE).unwrap();
    base.changes_requiring_restart(&changed(from, to)).iter().map(ToString::to_string).collect()
}

#[test]
fn gateways_and_settings_change_without_restart() {
    for (from, to) in [
        ("[\"10.0.1.0/24\"]", "[\"10.0.1.0/28\", \"10.0.1.32/28\"]"),
        ("name = \"aws\"", "name = \"other\""),
        (
            "udp_s = 60",
            "udp_s = 61\n[punt]\nlimit_per_s = 7\nlocal_ports = [2222]\n\
             plain_no_service = \"punt\"\n[icmp]\nerrors_per_s = 8",
        ),
        ("addresses = [\"10.0.2.10\"]", "addresses = [\"10.0.2.10\", \"10.0.2.9\"]"),
        (
            "[egress]",
            "ipip_sources = \"100.64.6.0/24\"\n[egress]\nipip_sources = \"100.64.7.0/24\"",
        ),
        ("[nat]", "[tables]\nmaglev_size = 251\n[nat]\nports = \"2000-30000\""),
        (
            "[[gateway]]",
            "[[gateway]]\nname = \"b\"\nkind = \"azure\"\nsources = [\"10.0.1.9/32\"]\n[[gateway]]",
        ),
        ("[[gateway]]", "[[source]]\nname = \"api\"\n[[gateway]]"),
    ] {
        assert_eq!(restart_required(from, to), [""; 0], "{to}");
        assert!(!config::from_toml(BASE).unwrap().same_as(&changed(from, to)), "{to}");
    }
}

#[test]
fn comment_is_not_a_change() {
    let base = config::from_toml(BASE).unwrap();
    let moved = changed("[nat]", "# new\n\n[nat]");
    assert!(base != moved && base.same_as(&moved));
}

#[test]
fn reports_restart_with_location_values_and_process() {
    let device = restart_required("net_null0", "net_null7");
    assert_eq!(
        device,
        ["weir.toml:6: ingress.device = \"net_null7\" requires a restart (in force: \
          \"net_null0\"): restart the data plane and slowpath"]
    );
    for (from, to, key) in [
        ("lcores = [1]", "lcores = [1, 2]", "fastpath.lcores"),
        ("lcores = [1]", "lcores = [1]\nattach = \"generic\"", "fastpath.attach"),
        ("[region]", "[region]\nmaps = \"/sys/fs/bpf/b\"", "region.maps"),
        ("[region]", "[region]\nmax_flows = 128", "region.max_flows"),
        ("\"10.0.1.10/24\"", "\"10.0.1.11/24\"", "ingress.address"),
        ("[nat]", "[tables]\nseed = \"AAAAAAAAAAAAAAAA\"\n[nat]", "tables.seed"),
        (
            "addresses = [\"10.0.2.10\"]",
            "addresses = [\"10.0.2.9\", \"10.0.2.10\"]",
            "nat.addresses",
        ),
    ] {
        let all = restart_required(from, to);
        let named = all.iter().find(|text| text.contains(&format!(": {key} = ")));
        let remedy = "restart the data plane and slowpath";
        assert!(named.is_some_and(|text| text.ends_with(remedy)), "{all:?}");
    }
    let name = restart_required("name = \"weir-t\"", "name = \"weir-u\"");
    assert!(name.len() == 1 && name[0].ends_with(": restart slowpath"), "{name:?}");
}
