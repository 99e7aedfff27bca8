//! Checks that the emulator cannot produce; the rest is in `tests/operations.rs`.

use super::*;

#[test]
fn what_the_gateway_needs_of_the_mtu_is_what_lies_around_its_packets() {
    let text = "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\nmtu = 1700\n\
                address = [\"10.0.0.4/24\", \"fd00::4/64\"]\n[fastpath]\nlcores = [1]\n\
                [[gateway]]\nname = \"a\"\nkind = \"azure\"\nsources = [\"10.0.0.0/24\"]\n\
                [[gateway]]\nname = \"b\"\nkind = \"azure\"\nsources = [\"fd00::/64\"]\n\
                external = { port = 1, vni = 2 }\ninternal = { port = 3, vni = 4 }\n\
                [azure]\npool = \"p\"\ngateway = \"a\"\npool_ipv6 = \"q\"\n\
                gateway_ipv6 = \"b\"\n";
    let config = config::from_toml(text).unwrap();
    let mut wants = Wants::of(&config, config.azure.as_ref().unwrap());
    assert_eq!(wants.gateways.iter().map(|fed| fed.mtu).collect::<Vec<_>>(), [1550, 1570]);
    let tunnels = wants.gateways[1].tunnels.unwrap();
    assert_eq!((tunnels.external.vni, tunnels.internal.port), (2, 3));
    let mut seen = Seen::new(Err("it does not run".to_owned()));
    let fails = |wants: &Wants, seen: &Seen| {
        let checks = machine::mtu(wants, seen).into_iter();
        checks.map(|check| check.verdict == Verdict::Fail).collect::<Vec<_>>()
    };
    assert_eq!(fails(&wants, &seen), [false]);
    (wants.mtu, wants.kernel_carries) = (1569, true);
    seen.kernel_mtu = Some(("eth1".into(), 1500));
    assert_eq!(fails(&wants, &seen), [true, true]);
    seen.timestamps = Some(true);
    let told = machine::timestamps(&seen).unwrap();
    assert!(told.verdict == Verdict::Warn && told.remedy.contains("tcp_timestamps=0"));
    assert_eq!(machine::token(&seen).verdict, Verdict::Warn, "nothing was asked");
}

#[test]
fn a_role_that_may_be_read_says_which_write_is_missing() {
    let text = "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.0.4/24\"]\n\
                mtu = 1600\n[fastpath]\nlcores = [1]\n[[gateway]]\nname = \"a\"\n\
                kind = \"azure\"\nsources = [\"10.0.0.0/24\"]\n[azure]\npool = \"p\"\n";
    let config = config::from_toml(text).unwrap();
    let wants = Wants::of(&config, config.azure.as_ref().unwrap());
    let mut seen = Seen::new(Err("it does not run".to_owned()));
    let write = "Microsoft.Network/networkInterfaces/write";
    let verdict = |seen: &Seen| {
        let checks = permissions::judge(&wants, seen);
        checks.into_iter().find(|check| check.name == write).unwrap()
    };
    assert_eq!(verdict(&seen).verdict, Verdict::Untested);
    let actions = vec!["Microsoft.Network/loadBalancers/*".to_owned(), "*/read".to_owned()];
    seen.grants = Some(vec![Grant { actions, not_actions: Vec::new() }]);
    let missing = verdict(&seen);
    assert!(missing.verdict == Verdict::Warn && missing.remedy.contains(write), "{missing:?}");
    let actions = vec!["Microsoft.Network/networkInterfaces/*".to_owned()];
    seen.grants = Some(vec![Grant { actions, not_actions: Vec::new() }]);
    assert_eq!(verdict(&seen).verdict, Verdict::Ok);
}
