//! The runner with the AWS lifecycle and the real SDKs, against the emulator. The emulator's clock
//! advances only while no call is in progress, unless a test sets otherwise.
#![expect(clippy::unwrap_used, reason = "a test ends at the first failure")]

use std::time::{Duration, SystemTime};

use aws::registration::Exit;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use cloud_emulators::faults::{Fault, Rule};
use cloud_emulators::state::AwsState;
use cloud_emulators::target::State;
use clouds::appliance::Ingress;
use clouds::report::Report;
use config::checked::OnLost;
use simulation::TemporaryFile;

mod machine;
use machine::{GROUP, Machine, OWN, OWN_IP, Setup, ingress, settings};

/// Returns a rule that answers an operation with 503.
fn unavailable(operation: &str) -> Rule {
    Rule::always(operation, Fault::Refuse { status: 503, code: "ServiceUnavailable".into() })
}

async fn ready(setup: Setup) -> Machine {
    let mut machine = setup.start();
    machine.until("ready", |report| report.phase == "ready").await;
    machine
}

fn healthy(report: &Report) -> usize {
    report.peers.iter().filter(|peer| peer.state == "healthy").count()
}

#[tokio::test]
async fn it_finds_its_target_registers_once_and_is_ready_when_healthy() {
    for by_arn in [false, true] {
        let mut setup = Setup::new("ip").await;
        if by_arn {
            setup.settings = settings(&format!("target_group = \"{GROUP}\""));
        }
        let mut machine = ready(setup).await;
        let report = machine.report();
        let target = (report.group.as_str(), report.target.as_str(), report.instance.as_str());
        assert_eq!(target, (GROUP, OWN_IP, OWN));
        assert_eq!((report.state.as_str(), report.zone.as_str()), ("healthy", "eu-central-1a"));
        assert_eq!((report.deregistration_delay_s, report.tcp_idle_s), (Some(120), Some(600)));
        assert_eq!((healthy(&report), machine.call_count("RegisterTargets", "ok")), (1, 1));
        assert_eq!(machine.call_count("GetResources", "ok"), u64::from(!by_arn));
        assert_eq!(machine.appliance.last_tcp_idle(), Some(Duration::from_secs(600)));
        let answers = machine.appliance.probe_answers();
        assert_eq!(answers.first().unwrap().1, "searching for the target group at AWS");
        assert_eq!(answers.last().unwrap(), &(Some(State::Initial), String::new()));
        machine.pass(600).await;
        assert_eq!(machine.call_count("RegisterTargets", "ok"), 1);
    }
}

type Modify = fn(&mut AwsState);

#[tokio::test]
async fn search_errors_are_reported_and_recovered_without_a_restart() {
    let table: &[(Modify, &[&str])] = &[
        (|w| w.groups[0].tags.clear(), &["no target group has the tag weir:cluster=north"]),
        (
            |w| {
                let mut other = w.groups[0].clone();
                other.arn.push('f');
                w.groups.push(other);
            },
            &["2 target groups have the tag", GROUP, "set aws.target_group"],
        ),
        (|w| w.groups[0].protocol = "HTTP".into(), &[GROUP, "has protocol HTTP", "GENEVE"]),
        (
            |w| w.groups[0].target_type = "instance".into(),
            &["primary interface", "the ingress port is eni-", "target type ip"],
        ),
        (
            |w| w.instances[0].interfaces[1].mac = "02:00:00:00:00:77".into(),
            &["no interface of i-", "02:00:0a:00:01:01", "02:00:00:00:00:77", "set ingress.device"],
        ),
        (
            |w| w.forbidden.push("GetResources".into()),
            &["allow tag:GetResources in the policy of the instance's role"],
        ),
        (|w| w.imds.mode = "off".into(), &["no token from the metadata service"]),
    ];
    for (modify, answers) in table {
        let setup = Setup::new("ip").await;
        let original = setup.aws.with(|cloud| {
            let original = cloud.clone();
            modify(cloud);
            original
        });
        let mut machine = setup.start();
        let report = machine.until("error", |report| !report.error.is_empty()).await;
        assert_eq!(report.phase, "looking");
        let probe = machine.appliance.probe();
        for part in *answers {
            assert!(report.error.contains(part), "no {part:?} in {}", report.error);
            assert!(probe.contains(part), "no {part:?} in {probe}");
        }
        machine.aws.with(|cloud| {
            let (now, tokens) = (cloud.now, cloud.imds.tokens);
            *cloud = original;
            (cloud.now, cloud.imds.tokens) = (now, tokens);
        });
        let report = machine.until("ready", |report| report.phase == "ready").await;
        assert_eq!((report.error.as_str(), machine.appliance.probe().as_str()), ("", ""));
    }
}

#[tokio::test]
async fn aws_is_not_called_before_the_ingress_port_exists() {
    let setup = Setup::new("ip").await;
    *setup.appliance.ingress.lock().unwrap() = None;
    let mut machine = setup.start();
    let report = machine.until("error", |report| !report.error.is_empty()).await;
    assert!(report.error.contains("is the fastpath running?"), "{}", report.error);
    assert_eq!(machine.aws.take_calls(), []);
    *machine.appliance.ingress.lock().unwrap() = Some(ingress());
    machine.until("ready", |report| report.phase == "ready").await;
}

#[tokio::test]
async fn an_unable_appliance_does_not_register_and_its_reasons_fail_the_probe() {
    let setup = Setup::new("ip").await;
    *setup.appliance.able.lock().unwrap() = Err(vec!["lcore 1 is stalled".into()]);
    let mut machine = setup.start();
    machine.until("its location", |report| report.phase == "outside").await;
    machine.pass(300).await;
    assert_eq!(machine.call_count("RegisterTargets", "ok"), 0);
    assert!(machine.appliance.probe().contains("lcore 1 is stalled"));
    *machine.appliance.able.lock().unwrap() = Ok(());
    machine.until("ready", |report| report.phase == "ready").await;
}

#[tokio::test]
async fn a_changed_idle_timeout_is_applied() {
    let mut machine = ready(Setup::new("ip").await).await;
    machine.aws.with(|cloud| {
        let set = &mut cloud.balancers[0].listener_attributes;
        set.insert("tcp.idle_timeout.seconds".into(), "900".into());
    });
    machine.until("900 s", |report| report.tcp_idle_s == Some(900)).await;
    assert_eq!(machine.appliance.last_tcp_idle(), Some(Duration::from_secs(900)));
}

#[tokio::test]
async fn a_removed_registration_is_repaired_or_reported() {
    for on_lost in [OnLost::Repair, OnLost::Report] {
        let mut setup = Setup::new("ip").await;
        setup.settings.lifecycle.on_lost = on_lost;
        let mut machine = ready(setup).await;
        machine.aws.with(|cloud| cloud.groups[0].targets.clear());
        let lost =
            |f: &clouds::report::ReportedFinding| f.name == "registration-lost" && f.times == 1;
        machine.until("the finding", |report| report.findings.iter().any(lost)).await;
        if on_lost == OnLost::Repair {
            machine.until("ready again", |report| report.phase == "ready").await;
        }
        machine.pass(120).await;
        let registered = if on_lost == OnLost::Repair { 2 } else { 1 };
        assert_eq!(machine.call_count("RegisterTargets", "ok"), registered, "{on_lost:?}");
    }
}

#[tokio::test]
async fn an_outage_at_start_keeps_a_machine_with_a_journal_in_service() {
    let file = TemporaryFile::new("journal");
    let mut setup = Setup::new("ip").await;
    setup.journal = Some(file.0.clone());
    let mut first = ready(setup).await;
    first.kill().await;
    // All services and the metadata answer 503, two services answer 503, and one of them does not
    // answer at all.
    for (rules, hangs) in [
        (vec![unavailable("*")], false),
        (vec![unavailable("GetResources"), unavailable("DescribeTargetHealth")], false),
        (
            vec![Rule::always("GetResources", Fault::Hang), unavailable("DescribeTargetHealth")],
            true,
        ),
    ] {
        first.aws.clear_faults();
        rules.into_iter().for_each(|rule| first.aws.fault(rule));
        first.aws.take_calls();
        let mut setup = Setup::restart_of(&first);
        setup.journal = Some(file.0.clone());
        setup.clock.run_during_calls(hangs);
        let mut machine = setup.start();
        machine.until("its location", |report| report.group == GROUP).await;
        machine.until_probe("").await;
        machine.pass(5).await;
        assert_eq!(machine.call_count("RegisterTargets", "ok"), 0);
        first.aws.clear_faults();
        machine.until("ready", |report| report.phase == "ready").await;
        assert_eq!(machine.call_count("RegisterTargets", "ok"), 0, "it stayed registered");
        machine.kill().await;
    }
}

#[tokio::test]
async fn an_outage_at_start_fails_probes_without_a_journal_of_this_machine() {
    let file = TemporaryFile::new("others");
    let mut setup = Setup::new("ip").await;
    setup.journal = Some(file.0.clone());
    let mut first = ready(setup).await;
    first.kill().await;
    first.aws.fault(unavailable("GetResources"));
    type Change = fn(&mut Setup);
    let changes: [Change; 4] = [
        |setup| setup.journal = None,
        |setup| setup.aws.with(|cloud| cloud.instances[0].id = "i-0000000000000000f".into()),
        |setup| setup.settings = settings("cluster = \"south\""),
        |setup| {
            let other = "10.0.1.99".parse().unwrap();
            let other = Ingress { addresses: vec![other], ..ingress() };
            *setup.appliance.ingress.lock().unwrap() = Some(other);
        },
    ];
    for change in changes {
        let mut setup = Setup::restart_of(&first);
        setup.journal = Some(file.0.clone());
        change(&mut setup);
        let mut machine = setup.start();
        let report = machine.until("error", |report| !report.error.is_empty()).await;
        assert!(report.error.contains("GetResources"), "{}", report.error);
        assert!(machine.appliance.probe().starts_with("aws: "));
        machine.kill().await;
    }
}

#[tokio::test]
async fn sigterm_fails_probes_and_deregisters_in_the_order_of_the_failover_setting() {
    for (failover, expected_state) in
        [("no_rebalance", State::Healthy), ("rebalance", State::Draining)]
    {
        let setup = Setup::new("ip").await;
        setup.aws.with(|cloud| {
            let set = &mut cloud.groups[0].attributes;
            for on in ["on_unhealthy", "on_deregistration"] {
                set.insert(format!("target_failover.{on}"), failover.into());
            }
        });
        let mut machine = ready(setup).await;
        machine.appliance.set_flows(3);
        machine.pass(2).await;
        machine.terminate();
        let leaving = |report: &Report| report.state == "draining";
        let report = machine.until("draining", leaving).await;
        assert_eq!(report.phase, "leaving");
        let drain = report.drain.unwrap();
        assert_eq!((drain.reason.as_str(), drain.flows), ("leaving: SIGTERM received", 3));
        machine.until_probe("leaving: SIGTERM received").await;
        let answers = machine.appliance.probe_answers();
        assert_eq!(answers.last().unwrap().0, Some(expected_state), "{failover}: {answers:?}");
        machine.pass(30).await;
        assert_eq!(machine.call_count("DeregisterTargets", "ok"), 1);
        machine.appliance.set_flows(0);
        assert_eq!(machine.wait_for_exit().await, Exit::Drained);
        assert_eq!(machine.report().phase, "over");
    }
}

#[tokio::test]
async fn it_forwards_flows_until_the_deregistration_delay_is_over() {
    let mut machine = ready(Setup::new("ip").await).await;
    machine.appliance.set_flows(1);
    let began = machine.aws.with(|cloud| cloud.now);
    machine.terminate();
    assert_eq!(machine.wait_for_exit().await, Exit::DelayOver);
    let took = (machine.aws.with(|cloud| cloud.now) - began).as_secs();
    assert!((120..140).contains(&took), "{took} s of emulated time");
}

#[tokio::test]
async fn a_drain_during_an_outage_ends_at_the_drain_cap() {
    let mut machine = ready(Setup::new("ip").await).await;
    machine.appliance.set_flows(1);
    machine.aws.fault(unavailable("*"));
    machine.terminate();
    assert_eq!(machine.wait_for_exit().await, Exit::CapOver);
    assert!(machine.call_count("DeregisterTargets", "transient") > 10, "it is repeated");
    let has_finding = |name: &str| machine.report().findings.iter().any(|found| found.name == name);
    assert!(has_finding("call-failed") && has_finding("drain-unconfirmed"));
}

#[tokio::test]
async fn retries_in_progress_do_not_delay_the_drain() {
    let mut machine = ready(Setup::new("ip").await).await;
    machine.aws.fault(unavailable("DescribeTargetHealth"));
    // From now on a pause between attempts never ends.
    machine.clock.block_retries(true);
    machine.until_unavailable("DescribeTargetHealth").await;
    machine.aws.clear_faults();
    machine.terminate();
    assert_eq!(machine.wait_for_exit().await, Exit::Drained);
    assert_eq!(machine.call_count("DeregisterTargets", "ok"), 1);
}

#[tokio::test]
async fn a_second_sigterm_exits_at_once_and_so_does_the_first_before_registration() {
    let mut machine = ready(Setup::new("ip").await).await;
    machine.appliance.set_flows(1);
    machine.terminate();
    machine.until("leaving", |report| report.phase == "leaving").await;
    machine.terminate();
    assert_eq!(machine.wait_for_exit().await, Exit::Forced);
    let setup = Setup::new("ip").await;
    setup.aws.fault(Rule::always("GetResources", Fault::Hang));
    let mut machine = setup.start();
    machine.terminate();
    assert_eq!(machine.wait_for_exit().await, Exit::Drained);
    assert_eq!(machine.aws.with(|cloud| cloud.groups[0].targets.len()), 0);
}

#[tokio::test]
async fn an_auto_scaling_hook_gets_heartbeats_and_is_completed_at_the_end() {
    let mut machine = ready(Setup::new("ip").await).await;
    machine.appliance.set_flows(1);
    machine.aws.with(|cloud| cloud.terminate(OWN));
    let report = machine.until("leaving", |report| report.drain.is_some()).await;
    assert!(report.drain.unwrap().reason.contains("Auto Scaling"));
    machine.pass(70).await;
    machine.appliance.set_flows(0);
    assert_eq!(machine.wait_for_exit().await, Exit::Drained);
    assert!(machine.call_count("RecordLifecycleActionHeartbeat", "ok") >= 3);
    assert_eq!(machine.call_count("CompleteLifecycleAction", "ok"), 1);
    let state = machine.aws.with(|cloud| cloud.scaling[0].instances[OWN].clone());
    assert_eq!(state, "Terminating:Proceed");
}

#[tokio::test]
async fn a_spot_notice_ends_the_drain_before_the_instance() {
    let mut machine = ready(Setup::new("ip").await).await;
    machine.appliance.set_flows(1);
    let at = DateTime::from(SystemTime::now() + Duration::from_secs(120));
    let at = at.fmt(Format::DateTime).unwrap();
    let notice = format!("{{\"action\": \"terminate\", \"time\": \"{at}\"}}");
    let began = machine.aws.with(|cloud| cloud.now);
    machine.aws.with(|cloud| cloud.imds.spot = Some(notice));
    let report = machine.until("leaving", |report| report.drain.is_some()).await;
    assert!(report.drain.unwrap().reason.contains("interrupts this spot instance"));
    assert_eq!(machine.wait_for_exit().await, Exit::CapOver);
    assert_eq!(machine.call_count("DeregisterTargets", "ok"), 1);
    let took = (machine.aws.with(|cloud| cloud.now) - began).as_secs();
    assert!(took < 120, "{took} s of emulated time");
}

#[tokio::test]
async fn peers_are_reported_with_addresses_for_both_target_types() {
    for (by, own, other) in [("ip", OWN_IP, "10.0.1.12"), ("instance", OWN, "i-00000000000000002")]
    {
        let setup = Setup::new(by).await;
        if by == "instance" {
            let mac = [2, 0, 10, 0, 1, 0];
            *setup.appliance.ingress.lock().unwrap() = Some(Ingress { mac, ..ingress() });
        }
        setup.aws.with(|cloud| {
            let settings = cloud.groups[0].health_check();
            let (now, cloud) = (cloud.now, &mut cloud.groups[0].targets);
            cloud.push(cloud_emulators::target::Target::new(other, false, now, settings));
        });
        let mut machine = setup.start();
        let both = |report: &Report| {
            report.phase == "ready" && report.peers.iter().any(|peer| peer.state == "unhealthy")
        };
        let report = machine.until("both", both).await;
        let peer = |id: &str| report.peers.iter().find(|peer| peer.id == id).unwrap().clone();
        let addresses = match by {
            "ip" => ("10.0.1.11", "10.0.1.12"),
            _ => ("10.0.0.11", "10.0.0.12"),
        };
        let answers = (peer(own).address.unwrap(), peer(other).address.unwrap());
        assert_eq!((answers.0.to_string().as_str(), answers.1.to_string().as_str()), addresses);
        assert_eq!((peer(own).state.as_str(), healthy(&report)), ("healthy", 1));
    }
}

#[tokio::test]
async fn throttled_calls_are_counted_and_retried_until_registration_succeeds() {
    let setup = Setup::new("ip").await;
    let throttled = Fault::Refuse { status: 400, code: "Throttling".into() };
    setup.aws.fault(Rule::first(3, "RegisterTargets", throttled.clone()));
    setup.aws.fault(Rule::first(2, "GetResources", throttled));
    let machine = ready(setup).await;
    assert_eq!(machine.call_count("RegisterTargets", "throttled"), 3);
    assert_eq!(machine.call_count("GetResources", "throttled"), 2);
    assert_eq!(machine.call_count("RegisterTargets", "ok"), 1);
}
