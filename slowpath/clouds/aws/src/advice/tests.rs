//! Each harmful setting produces its finding, and good settings produce none.

use super::*;
use crate::registration::tests::{attributes, settings};
use crate::types::TargetType;

fn good() -> (Group, Attributes, LocalSettings) {
    let attributes = Attributes {
        rebalance_on_unhealthy: true,
        rebalance_on_deregistration: true,
        reset_on_idle: true,
        ..attributes()
    };
    let local = LocalSettings {
        lifecycle: settings(),
        http: vec![8080],
        tcp: vec![8081],
        sources: 1,
        udp_s: 120,
    };
    (crate::group::tests::group(TargetType::Ip), attributes, local)
}

type Modify = fn(&mut Group, &mut Attributes, &mut LocalSettings);

#[test]
fn each_harmful_setting_is_reported_with_its_remedy() {
    let table: &[(Modify, &[&str])] = &[
        (|_, _, _| {}, &[]),
        (
            |_, a, _| a.rebalance_on_deregistration = false,
            &["failover-unequal", "flows-end-unreset"],
        ),
        (
            |_, a, _| a.rebalance_on_unhealthy = false,
            &["failover-unequal", "flows-stick-to-dead-target"],
        ),
        (
            |_, a, _| {
                (a.rebalance_on_unhealthy, a.rebalance_on_deregistration) = (false, false);
            },
            &["flows-stick-to-dead-target", "flows-end-unreset"],
        ),
        (
            |_, a, _| {
                (a.rebalance_on_unhealthy, a.rebalance_on_deregistration) = (false, false);
                (a.reset_on_unhealthy, a.reset_on_deregistration) = (true, true);
            },
            &[],
        ),
        (|_, a, _| a.deregistration_delay = Duration::from_secs(331), &["drain-cap-short"]),
        (|_, a, _| a.deregistration_delay = Duration::ZERO, &["no-deregistration-delay"]),
        (|g, _, _| g.load_balancers.clear(), &["group-unused"]),
        (|_, _, l| l.udp_s = 60, &["udp-forgotten-early"]),
        (
            |_, a, _| {
                (a.reset_on_idle, a.tcp_idle) = (false, Duration::from_secs(60));
            },
            &["idle-unreset"],
        ),
        (|_, a, _| a.stickiness = Stickiness::TwoTuple, &["stickiness-coarse"]),
        (|_, a, _| a.stickiness = Stickiness::ThreeTuple, &["stickiness-coarse"]),
        (|_, a, _| a.cross_zone = true, &["sources-of-one-zone"]),
        (|_, a, l| (a.cross_zone, l.sources) = (true, 2), &[]),
        (|g, _, _| g.health.port = Some(80), &["probe-elsewhere"]),
        (|g, _, _| g.health.port = None, &["probe-elsewhere"]),
        (|g, _, _| g.health.protocol = "TCP".into(), &["probe-elsewhere"]),
        (|g, _, _| (g.health.protocol, g.health.port) = ("TCP".into(), Some(8081)), &[]),
        (|g, _, _| g.health.protocol = "HTTPS".into(), &["probe-https"]),
        (|g, _, _| g.health.interval = Duration::from_secs(16), &["detection-slow"]),
        (|g, _, _| g.health.timeout = Duration::from_secs(10), &["probe-overlaps"]),
    ];
    for (row, (modify, names)) in table.iter().enumerate() {
        let (mut group, mut attributes, mut local) = good();
        modify(&mut group, &mut attributes, &mut local);
        let found = advise(&group, &attributes, &local);
        let reported: Vec<&str> = found.iter().map(|finding| finding.name).collect();
        assert_eq!(reported, *names, "row {row}");
        assert!(found.iter().all(|f| !f.text.is_empty() && !f.remedy.is_empty()));
    }
}
