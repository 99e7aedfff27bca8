//! Tests of settings in the kernel, in a separate network namespace: each setting must equal the
//! result of its `ip` command, and errors name the command.

use std::process::Command;

use super::*;

/// The environment variable that is set for the part of a test that runs in the namespace.
const INSIDE: &str = "WEIR_TEST_INSIDE";

fn settings() -> Vec<Setting> {
    let dev = || "near0".to_owned();
    let address =
        |addr: &str, len| Setting::Address(Interface { addr: addr.parse().unwrap(), len }, dev());
    let gateway = |via: &str| Setting::DefaultRoute(via.parse().unwrap(), dev());
    vec![
        address("10.98.0.1", 24),
        address("fd98::1", 64),
        address("127.9.9.9", 32),
        gateway("10.97.0.2"),
        gateway("fd97::2"),
        Setting::TableRoute(AddressFamily::Inet, 6082, dev()),
        Setting::TableRoute(AddressFamily::Inet6, 6082, dev()),
        Setting::MarkRule(AddressFamily::Inet, 6082, 6081),
        Setting::MarkRule(AddressFamily::Inet6, 6082, 6081),
    ]
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the addresses, routes and rules of the namespace.
fn state() -> String {
    let shown =
        ["address", "-4 route show table all", "-6 route show table all", "-4 rule", "-6 rule"];
    shown.map(|command| ip(&format!("-d {command}"))).concat()
}

fn run_in_namespace() {
    let mut netlink = Netlink::default();
    for setting in settings() {
        let before = state();
        netlink.apply(Verb::Add, &setting).unwrap();
        let added = state();
        assert_ne!(added, before, "{setting:?}");
        let again = netlink.apply(Verb::Add, &setting).unwrap_err();
        assert!(again.already_exists(), "{again}");
        ip(&setting.command(Verb::Delete));
        assert_eq!(state(), before, "{setting:?}");
        ip(&setting.command(Verb::Add));
        assert_eq!(state(), added, "{setting:?}");
        // `ip rule` has no `replace`.
        if !matches!(setting, Setting::MarkRule(..)) {
            netlink.apply(Verb::Replace, &setting).unwrap();
            assert_eq!(state(), added, "{setting:?}");
        }
        netlink.apply(Verb::Delete, &setting).unwrap();
        assert_eq!(state(), before, "{setting:?}");
    }

    let far = Setting::DefaultRoute("192.0.2.1".parse().unwrap(), "near0".into());
    let error = netlink.apply(Verb::Replace, &far).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot apply `ip route replace default via 192.0.2.1 dev near0`: Network is unreachable \
         (os error 101); set a gateway inside the network of one of the interface's addresses"
    );
    std::fs::write("/proc/sys/net/ipv6/conf/near0/disable_ipv6", "1").unwrap();
    let error = netlink.apply(Verb::Add, &settings()[1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot apply `ip address add fd98::1/64 dev near0 nodad`: Permission denied (os error \
         13); enable IPv6 (sysctl net.ipv6.conf.INTERFACE.disable_ipv6=0)"
    );
    let error = netlink.set_link("none0", "up", |link| link.up()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot apply `ip link set dev none0 up`: No such device (os error 19)"
    );
    netlink.set_link("near0", "down", |link| link.down()).unwrap();
    assert!(!ip("link show dev near0").contains(",UP"));
    netlink.delete_link("near0").unwrap();
    assert_eq!(netlink.link("near0").unwrap(), None);
}

/// Runs the test `name` of this program again in a network namespace with the interfaces `near0`
/// and `far0`.
fn run_again_in_namespace(name: &str) {
    let script = "ip link set lo up
        ip link add near0 type veth peer name far0
        ip link set dev near0 addrgenmode none; ip link set dev far0 addrgenmode none
        ip link set far0 up; ip link set near0 up
        ip addr add 10.97.0.1/24 dev near0; ip addr add fd97::1/64 dev near0 nodad
        exec \"$0\" --exact \"setting::tests::$1\"";
    let inside = Command::new("unshare")
        .args(["--net", "sh", "-ec", script])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&[inside.stdout, inside.stderr].concat()).into_owned();
    assert!(inside.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
fn settings_and_errors_match_their_ip_commands() {
    match std::env::var_os(INSIDE) {
        Some(_) => run_in_namespace(),
        None => run_again_in_namespace("settings_and_errors_match_their_ip_commands"),
    }
}

#[test]
fn addresses_of_an_earlier_configuration_are_deleted_and_those_of_others_stay() {
    if std::env::var_os(INSIDE).is_none() {
        return run_again_in_namespace(
            "addresses_of_an_earlier_configuration_are_deleted_and_those_of_others_stay",
        );
    }
    let addresses = || -> Vec<String> {
        let shown = ip("-oneline address show dev near0");
        let words = shown.lines().filter_map(|line| line.split_whitespace().nth(3));
        words.map(str::to_owned).collect()
    };
    let interface = |addr: &str, len| Interface { addr: addr.parse().unwrap(), len };
    let (one, six) = (interface("10.98.0.1", 24), interface("fd98::1", 64));
    let mut netlink = Netlink::default();
    // An address that an earlier version or an operator added without the mark is marked once it is
    // configured.
    ip("address add 10.98.0.1/24 dev near0");
    netlink.set_addresses("near0", &[one, six]).unwrap();
    netlink.set_addresses("near0", &[one, six]).unwrap();
    let expected = ["10.97.0.1/24", "10.98.0.1/24", "fd98::1/64", "fd97::1/64"];
    assert_eq!(addresses(), expected);
    let two = interface("10.98.0.2", 24);
    netlink.set_addresses("near0", &[two]).unwrap();
    assert_eq!(addresses(), ["10.97.0.1/24", "10.98.0.2/24", "fd97::1/64"]);
    netlink.set_addresses("near0", &[]).unwrap();
    assert_eq!(addresses(), ["10.97.0.1/24", "fd97::1/64"]);
    let error = netlink.set_addresses("none0", &[two]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read the addresses of none0 (`ip address show dev none0`): No such device (os \
         error 19)"
    );
}

#[test]
fn delete_commands_are_parsed_except_for_routes_in_tables() {
    for setting in settings() {
        let parsed = Setting::deleted_by(&setting.command(Verb::Delete));
        let supported = !matches!(setting, Setting::TableRoute(..));
        assert_eq!(parsed, supported.then_some(setting));
    }
    assert_eq!(Setting::deleted_by("link delete dev near0"), None);
    assert_eq!(Setting::deleted_by("address delete 10.0.0.1 dev near0"), None);
}
