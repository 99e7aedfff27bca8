//! Verdicts of the checks of security groups and target states, as tables.

use config::checked::Prefix;

use super::*;
use crate::types::{Permission, SecurityGroup};

fn prefix(text: &str) -> Prefix {
    let (addr, len) = text.split_once('/').unwrap();
    Prefix { addr: addr.parse().unwrap(), len: len.parse().unwrap() }
}

#[test]
fn a_single_rule_must_admit_the_whole_source() {
    // Protocol, ports and prefix of a rule; then those of the traffic, and whether it is admitted.
    type Ports = Option<(u16, u16)>;
    let cases: [(&str, Ports, &str, &str, u16, &str, bool); 12] = [
        ("udp", Some((6081, 6081)), "10.0.0.0/16", "udp", 6081, "10.0.1.0/24", true),
        ("udp", Some((6081, 6081)), "10.0.1.0/24", "udp", 6081, "10.0.1.0/24", true),
        ("udp", Some((6081, 6081)), "10.0.1.0/25", "udp", 6081, "10.0.1.0/24", false),
        ("udp", Some((6081, 6081)), "10.0.2.0/24", "udp", 6081, "10.0.1.0/24", false),
        ("udp", Some((6000, 6080)), "0.0.0.0/0", "udp", 6081, "10.0.1.0/24", false),
        ("tcp", Some((6081, 6081)), "0.0.0.0/0", "udp", 6081, "10.0.1.0/24", false),
        ("17", Some((0, 65535)), "0.0.0.0/0", "udp", 6081, "10.0.1.0/24", true),
        ("6", None, "0.0.0.0/0", "tcp", 8080, "10.0.1.0/24", true),
        ("-1", None, "0.0.0.0/0", "tcp", 8080, "10.0.1.0/24", true),
        ("-1", None, "::/0", "tcp", 8080, "10.0.1.0/24", false),
        ("-1", None, "all of it", "tcp", 8080, "10.0.1.0/24", false),
        ("icmp", Some((8, 0)), "0.0.0.0/0", "tcp", 8, "10.0.1.0/24", false),
    ];
    for (protocol, ports, from, requested, port, source, admitted) in cases {
        let rule = Permission {
            protocol: protocol.into(),
            ports,
            prefixes: vec![from.into()],
            others: vec!["sg-other".into()],
        };
        let ingress = vec![rule];
        let group = SecurityGroup { id: "sg-1".into(), name: String::new(), ingress };
        let result = admits(&[group], requested, port, &prefix(source));
        assert_eq!(result, admitted, "{protocol} {ports:?} {from}: {requested} {port} {source}");
    }
}

#[test]
fn each_target_state_has_its_verdict() {
    let of = |state, reason: Option<&str>| {
        let (id, zone, description) = ("10.0.1.11".to_owned(), None, None);
        let reason = reason.map(str::to_owned);
        registered("10.0.1.11", Some(&Target { id, state, reason, description, zone }))
    };
    for (state, verdict) in [
        (TargetState::Healthy, Verdict::Ok),
        (TargetState::Initial, Verdict::Warn),
        (TargetState::Draining, Verdict::Warn),
        (TargetState::Unavailable, Verdict::Warn),
        (TargetState::Unhealthy, Verdict::Fail),
        (TargetState::UnhealthyDraining, Verdict::Fail),
        (TargetState::Unused, Verdict::Fail),
    ] {
        let check = of(state, Some("Why"));
        assert_eq!(check.verdict, verdict, "{check:?}");
        assert_eq!(check.remedy.is_empty(), verdict == Verdict::Ok, "{check:?}");
    }
    let not_registered = of(TargetState::Unused, Some("Target.NotRegistered"));
    assert!(not_registered.remedy.contains("start slowpath"), "{not_registered:?}");
    let no_balancer = of(TargetState::Unused, Some("Target.NotInUse"));
    assert!(no_balancer.remedy.contains("load balancer"), "{no_balancer:?}");
    assert_eq!(registered("i-1", None).verdict, Verdict::Warn);
}
