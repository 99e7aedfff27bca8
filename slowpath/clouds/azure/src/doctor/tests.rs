//! Checks that the emulator cannot produce; the rest is in `tests/operations.rs`.

use super::*;

#[test]
fn mtu_includes_encapsulation_and_timestamps_and_unknown_tokens_are_warnings() {
    let text = "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\nmtu = 1700\n\
                address = [\"10.0.0.4/24\", \"fd00::4/64\"]\n[fastpath]\nlcores = [1]\n\
                [[gateway]]\nname = \"a\"\nkind = \"azure\"\nsources = [\"10.0.0.0/24\"]\n\
                [[gateway]]\nname = \"b\"\nkind = \"azure\"\nsources = [\"fd00::/64\"]\n\
                external = { port = 1, vni = 2 }\ninternal = { port = 3, vni = 4 }\n\
                [azure]\npool = \"p\"\ngateway = \"a\"\npool_ipv6 = \"q\"\n\
                gateway_ipv6 = \"b\"\n";
    let config = config::from_toml(text).unwrap();
    let mut check_config = CheckConfig::of(&config, config.azure.as_ref().unwrap());
    assert_eq!(
        check_config.gateways.iter().map(|pool_gateway| pool_gateway.mtu).collect::<Vec<_>>(),
        [1550, 1570]
    );
    let tunnels = check_config.gateways[1].tunnels.unwrap();
    assert_eq!((tunnels.external.vni, tunnels.internal.port), (2, 3));
    let mut observed = Observations::new(Err("it does not run".to_owned()));
    let fails = |check_config: &CheckConfig, observed: &Observations| {
        let checks = machine::mtu(check_config, observed).into_iter();
        checks.map(|check| check.verdict == Verdict::Fail).collect::<Vec<_>>()
    };
    assert_eq!(fails(&check_config, &observed), [false]);
    (check_config.mtu, check_config.kernel_data_path) = (1569, true);
    observed.kernel_mtu = Some(("eth1".into(), 1500));
    assert_eq!(fails(&check_config, &observed), [true, true]);
    observed.timestamps = Some(true);
    let check = machine::timestamps(&observed).unwrap();
    assert!(check.verdict == Verdict::Warn && check.remedy.contains("tcp_timestamps=0"));
    assert_eq!(machine::token(&observed).verdict, Verdict::Warn, "no request was made");
}

#[test]
fn a_readable_role_shows_whether_a_write_permission_is_granted() {
    let text = "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.0.4/24\"]\n\
                mtu = 1600\n[fastpath]\nlcores = [1]\n[[gateway]]\nname = \"a\"\n\
                kind = \"azure\"\nsources = [\"10.0.0.0/24\"]\n[azure]\npool = \"p\"\n";
    let config = config::from_toml(text).unwrap();
    let check_config = CheckConfig::of(&config, config.azure.as_ref().unwrap());
    let mut observed = Observations::new(Err("it does not run".to_owned()));
    let write = "Microsoft.Network/networkInterfaces/write";
    let verdict = |observed: &Observations| {
        let checks = permissions::evaluate(&check_config, observed);
        checks.into_iter().find(|check| check.name == write).unwrap()
    };
    assert_eq!(verdict(&observed).verdict, Verdict::Untested);
    let actions = vec!["Microsoft.Network/loadBalancers/*".to_owned(), "*/read".to_owned()];
    observed.grants = Some(vec![Grant { actions, not_actions: Vec::new() }]);
    let missing = verdict(&observed);
    assert!(missing.verdict == Verdict::Warn && missing.remedy.contains(write), "{missing:?}");
    let actions = vec!["Microsoft.Network/networkInterfaces/*".to_owned()];
    observed.grants = Some(vec![Grant { actions, not_actions: Vec::new() }]);
    assert_eq!(verdict(&observed).verdict, Verdict::Ok);
}
