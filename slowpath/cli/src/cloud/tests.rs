//! Golden tests of the output of `weir cloud`.

use clouds::report::{CallCount, DrainProgress, Peer, ReportedFinding};

use super::remote::parse_target;
use super::*;

fn cloud_status() -> CloudStatus {
    let peer = |id: &str, state: &str| Peer {
        id: id.into(),
        address: id.parse().ok(),
        state: state.into(),
        zone: "eu-central-1a".into(),
    };
    let report = Report {
        cloud: "aws".into(),
        phase: "registered".into(),
        instance: "i-1".into(),
        region: "eu-central-1".into(),
        zone: "eu-central-1a".into(),
        group: "arn:group".into(),
        target: "10.0.1.11".into(),
        state: "unhealthy".into(),
        reason: "Target.Timeout".into(),
        deregistration_delay_s: Some(300),
        tcp_idle_s: Some(350),
        findings: vec![ReportedFinding {
            name: "no-geneve".into(),
            text: "no packet came".into(),
            remedy: "open the port".into(),
            times: 2,
        }],
        peers: vec![peer("10.0.1.11", "unhealthy"), peer("10.0.1.12", "healthy")],
        calls: vec![CallCount {
            operation: "RegisterTargets".into(),
            outcome: "ok".into(),
            times: 1,
            ..CallCount::default()
        }],
        ..Report::default()
    };
    CloudStatus { report, able: true, reasons: Vec::new() }
}

#[test]
fn status_shows_reported_and_own_health() {
    let expected = "\
NOT ready
phase                 registered
instance              i-1 in eu-central-1a
group                 arn:group
target                10.0.1.11
state                 unhealthy (Target.Timeout)
own health            able to serve
deregistration delay  300 s
idle timeout (TCP)    350 s

no-geneve, 2 times: no packet came
  -> open the port

PEER       ADDRESS    ZONE           STATE
10.0.1.11  10.0.1.11  eu-central-1a  unhealthy  this machine
10.0.1.12  10.0.1.12  eu-central-1a  healthy
";
    assert_eq!(text(&cloud_status(), false), expected);
    let calls = text(&cloud_status(), true);
    assert!(
        calls.ends_with("\nCALL             OUTCOME  TIMES\nRegisterTargets  ok           1\n")
    );
}

#[test]
fn status_of_azure_shows_pool_and_tunnels_in_force_and_reported() {
    let ends = |external_port, external_vni| TunnelPair {
        external_port,
        external_vni,
        internal_port: 10_800,
        internal_vni: 800,
    };
    let mut azure = cloud_status();
    (azure.report.cloud, azure.report.group) = ("azure".into(), "/subscriptions/s/weir".into());
    let (gateway, family, source) = ("gw".to_owned(), "ipv4".to_owned(), "imds".to_owned());
    let right =
        GatewayTunnels { gateway, family, in_force: ends(1, 2), reported: ends(1, 2), source };
    let wrong = GatewayTunnels { gateway: "gw6".into(), reported: ends(1, 3), ..right.clone() };
    azure.report.tunnels = vec![right, wrong];
    let text = text(&azure, false);
    let lines: Vec<&str> =
        text.lines().filter(|l| l.contains("tunnels") || l.starts_with("pool")).collect();
    let expected = [
        "pool                  /subscriptions/s/weir",
        "tunnels of gw         external 1/2, internal 10800/800 (port/VNI), from imds",
        "tunnels of gw6        external 1/2, internal 10800/800 in force, but imds reports \
         external 1/3, internal 10800/800",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn status_shows_drain_progress_differing_health_and_reasons() {
    let mut draining = cloud_status();
    draining.report.drain =
        Some(DrainProgress { reason: "leaving: SIGTERM".into(), flows: 1200, at_most_s: 9 });
    draining.report.differs = true;
    (draining.able, draining.reasons) = (false, vec!["it leaves".into()]);
    let text = text(&draining, false);
    assert!(text.contains("leaving: SIGTERM; 1 200 flows left, 9 s at most"), "{text}");
    assert!(text.contains("different from own health"), "{text}");
    assert!(text.contains("UNABLE to serve: it leaves"), "{text}");
}

#[test]
fn single_argument_is_a_state_or_a_target_id() {
    let parse = |arguments: &[&str]| {
        parse_target(&arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    };
    let id = || Some("i-1".to_owned());
    assert_eq!(parse(&[]), Ok((None, "healthy")));
    assert_eq!(parse(&["draining"]), Ok((None, "draining")));
    assert_eq!(parse(&["i-1"]), Ok((id(), "healthy")));
    assert_eq!(parse(&["i-1", "unhealthy.draining"]), Ok((id(), "unhealthy.draining")));
    let wrong = parse(&["i-1", "fine"]).unwrap_err();
    assert!(wrong.contains("\"fine\"") && wrong.contains("unavailable"), "{wrong}");
}
