//! The runner with the AWS lifecycle against the emulator, by the real SDKs. Time passes while no
//! call is in progress, or if a test lets it pass.
#![expect(clippy::unwrap_used, reason = "a test says what it expects")]

use std::time::{Duration, SystemTime};

use aws::life::Exit;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use clouds::appliance::Ingress;
use clouds::report::Report;
use config::checked::OnLost;
use simulation::File;
use standins::faults::{Fault, Rule};
use standins::target::State;
use standins::world::World;

mod machine;
use machine::{Begin, GROUP, Machine, OWN, OWN_IP, ingress, settings};

fn out(operation: &str) -> Rule {
    Rule::always(operation, Fault::Refuse { status: 503, code: "ServiceUnavailable".into() })
}

async fn ready(begin: Begin) -> Machine {
    let mut machine = begin.start();
    machine.until("ready", |report| report.phase == "ready").await;
    machine
}

fn healthy(report: &Report) -> usize {
    report.peers.iter().filter(|peer| peer.state == "healthy").count()
}

#[tokio::test]
async fn it_finds_its_place_registers_once_and_is_ready_when_aws_says_healthy() {
    for by_arn in [false, true] {
        let mut begin = Begin::at("ip").await;
        if by_arn {
            begin.settings = settings(&format!("target_group = \"{GROUP}\""));
        }
        let mut machine = ready(begin).await;
        let report = machine.report();
        let place = (report.group.as_str(), report.target.as_str(), report.instance.as_str());
        assert_eq!(place, (GROUP, OWN_IP, OWN));
        assert_eq!((report.state.as_str(), report.zone.as_str()), ("healthy", "eu-central-1a"));
        assert_eq!((report.deregistration_delay_s, report.tcp_idle_s), (Some(120), Some(600)));
        assert_eq!((healthy(&report), machine.asked("RegisterTargets", "ok")), (1, 1));
        assert_eq!(machine.asked("GetResources", "ok"), u64::from(!by_arn));
        assert_eq!(machine.appliance.idle(), Some(Duration::from_secs(600)));
        let told = machine.appliance.told();
        assert_eq!(told.first().unwrap().1, "asking AWS for our target group");
        assert_eq!(told.last().unwrap(), &(Some(State::Initial), String::new()));
        machine.pass(600).await;
        assert_eq!(machine.asked("RegisterTargets", "ok"), 1);
    }
}

type Spoil = fn(&mut World);

#[tokio::test]
async fn what_is_in_the_way_is_told_and_mended_without_a_restart() {
    let table: &[(Spoil, &[&str])] = &[
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
            &["no interface of i-", "02:00:0a:00:01:01", "02:00:00:00:00:77"],
        ),
        (
            |w| w.forbidden.push("GetResources".into()),
            &["allow tag:GetResources in the policy of the instance's role"],
        ),
        (|w| w.imds.mode = "off".into(), &["the metadata service gives no token"]),
    ];
    for (spoil, told) in table {
        let begin = Begin::at("ip").await;
        let whole = begin.aws.with(|world| {
            let whole = world.clone();
            spoil(world);
            whole
        });
        let mut machine = begin.start();
        let report = machine.until("trouble", |report| !report.trouble.is_empty()).await;
        assert_eq!(report.phase, "looking");
        let probe = machine.appliance.probe();
        for part in *told {
            assert!(report.trouble.contains(part), "no {part:?} in {}", report.trouble);
            assert!(probe.contains(part), "no {part:?} in {probe}");
        }
        machine.aws.with(|world| {
            let (now, tokens) = (world.now, world.imds.tokens);
            *world = whole;
            (world.now, world.imds.tokens) = (now, tokens);
        });
        let report = machine.until("ready", |report| report.phase == "ready").await;
        assert_eq!((report.trouble.as_str(), machine.appliance.probe().as_str()), ("", ""));
    }
}

#[tokio::test]
async fn an_ingress_port_that_comes_later_is_waited_for_and_aws_is_not_asked_before() {
    let begin = Begin::at("ip").await;
    *begin.appliance.ingress.lock().unwrap() = None;
    let mut machine = begin.start();
    let report = machine.until("trouble", |report| !report.trouble.is_empty()).await;
    assert!(report.trouble.contains("is the fastpath running?"), "{}", report.trouble);
    assert_eq!(machine.aws.take_calls(), []);
    *machine.appliance.ingress.lock().unwrap() = Some(ingress());
    machine.until("ready", |report| report.phase == "ready").await;
}

#[tokio::test]
async fn not_able_it_does_not_register_and_its_own_reasons_come_first() {
    let begin = Begin::at("ip").await;
    *begin.appliance.able.lock().unwrap() = Err(vec!["lcore 1 stands still".into()]);
    let mut machine = begin.start();
    machine.until("its place", |report| report.phase == "outside").await;
    machine.pass(300).await;
    assert_eq!(machine.asked("RegisterTargets", "ok"), 0);
    assert!(machine.appliance.probe().contains("lcore 1 stands still"));
    *machine.appliance.able.lock().unwrap() = Ok(());
    machine.until("ready", |report| report.phase == "ready").await;
}

#[tokio::test]
async fn the_idle_timeout_is_followed_when_somebody_changes_it() {
    let mut machine = ready(Begin::at("ip").await).await;
    machine.aws.with(|world| {
        let set = &mut world.balancers[0].listener_attributes;
        set.insert("tcp.idle_timeout.seconds".into(), "900".into());
    });
    machine.until("900 s", |report| report.tcp_idle_s == Some(900)).await;
    assert_eq!(machine.appliance.idle(), Some(Duration::from_secs(900)));
}

#[tokio::test]
async fn a_registration_that_somebody_removed_is_repaired_or_reported() {
    for on_lost in [OnLost::Repair, OnLost::Report] {
        let mut begin = Begin::at("ip").await;
        begin.settings.life.on_lost = on_lost;
        let mut machine = ready(begin).await;
        machine.aws.with(|world| world.groups[0].targets.clear());
        let lost = |f: &clouds::report::Told| f.name == "registration-lost" && f.times == 1;
        machine.until("the finding", |report| report.findings.iter().any(lost)).await;
        if on_lost == OnLost::Repair {
            machine.until("ready again", |report| report.phase == "ready").await;
        }
        machine.pass(120).await;
        let registered = if on_lost == OnLost::Repair { 2 } else { 1 };
        assert_eq!(machine.asked("RegisterTargets", "ok"), registered, "{on_lost:?}");
    }
}

#[tokio::test]
async fn an_outage_at_the_start_does_not_take_a_machine_out_whose_place_was_kept() {
    let file = File::new("kept");
    let mut begin = Begin::at("ip").await;
    begin.kept = Some(file.0.clone());
    let mut first = ready(begin).await;
    first.kill().await;
    // Outages of all services and metadata, of the services alone, and services that do not
    // respond.
    for (rules, hangs) in [
        (vec![out("*")], false),
        (vec![out("GetResources"), out("DescribeTargetHealth")], false),
        (vec![Rule::always("GetResources", Fault::Hang), out("DescribeTargetHealth")], true),
    ] {
        first.aws.behave();
        rules.into_iter().for_each(|rule| first.aws.fault(rule));
        first.aws.take_calls();
        let mut begin = Begin::again(&first);
        begin.kept = Some(file.0.clone());
        begin.clock.passes(hangs);
        let mut machine = begin.start();
        machine.until("its place", |report| report.group == GROUP).await;
        machine.until_probe("").await;
        machine.pass(5).await;
        assert_eq!(machine.asked("RegisterTargets", "ok"), 0);
        first.aws.behave();
        machine.until("ready", |report| report.phase == "ready").await;
        assert_eq!(machine.asked("RegisterTargets", "ok"), 0, "it was there all the time");
        machine.kill().await;
    }
}

#[tokio::test]
async fn without_a_place_that_was_kept_or_with_anothers_an_outage_says_503() {
    let file = File::new("others");
    let mut begin = Begin::at("ip").await;
    begin.kept = Some(file.0.clone());
    let mut first = ready(begin).await;
    first.kill().await;
    first.aws.fault(out("GetResources"));
    type Otherwise = fn(&mut Begin);
    let otherwise: [Otherwise; 4] = [
        |begin| begin.kept = None,
        |begin| begin.aws.with(|world| world.instances[0].id = "i-0000000000000000f".into()),
        |begin| begin.settings = settings("cluster = \"south\""),
        |begin| {
            let other = "10.0.1.99".parse().unwrap();
            let other = Ingress { addresses: vec![other], ..ingress() };
            *begin.appliance.ingress.lock().unwrap() = Some(other);
        },
    ];
    for otherwise in otherwise {
        let mut begin = Begin::again(&first);
        begin.kept = Some(file.0.clone());
        otherwise(&mut begin);
        let mut machine = begin.start();
        let report = machine.until("trouble", |report| !report.trouble.is_empty()).await;
        assert!(report.trouble.contains("GetResources"), "{}", report.trouble);
        assert!(machine.appliance.probe().starts_with("aws: "));
        machine.kill().await;
    }
}

#[tokio::test]
async fn sigterm_refuses_probes_and_deregisters_in_the_order_of_the_failover_setting() {
    for (failover, seen) in [("no_rebalance", State::Healthy), ("rebalance", State::Draining)] {
        let begin = Begin::at("ip").await;
        begin.aws.with(|world| {
            let set = &mut world.groups[0].attributes;
            for on in ["on_unhealthy", "on_deregistration"] {
                set.insert(format!("target_failover.{on}"), failover.into());
            }
        });
        let mut machine = ready(begin).await;
        machine.appliance.flows(3);
        machine.pass(2).await;
        machine.terminate();
        let leaving = |report: &Report| report.state == "draining";
        let report = machine.until("draining", leaving).await;
        assert_eq!(report.phase, "leaving");
        let about = report.leaving.unwrap();
        assert_eq!((about.why.as_str(), about.flows), ("leaving: SIGTERM came", 3));
        machine.until_probe("leaving: SIGTERM came").await;
        let told = machine.appliance.told();
        assert_eq!(told.last().unwrap().0, Some(seen), "{failover}: {told:?}");
        machine.pass(30).await;
        assert_eq!(machine.asked("DeregisterTargets", "ok"), 1);
        machine.appliance.flows(0);
        assert_eq!(machine.ended().await, Exit::Drained);
        assert_eq!(machine.report().phase, "over");
    }
}

#[tokio::test]
async fn it_stays_for_its_flows_until_the_deregistration_delay_is_over() {
    let mut machine = ready(Begin::at("ip").await).await;
    machine.appliance.flows(1);
    let began = machine.aws.with(|world| world.now);
    machine.terminate();
    assert_eq!(machine.ended().await, Exit::DelayOver);
    let took = (machine.aws.with(|world| world.now) - began).as_secs();
    assert!((120..140).contains(&took), "{took} s of the stand-in's time");
}

#[tokio::test]
async fn an_outage_while_leaving_ends_by_the_cap() {
    let mut machine = ready(Begin::at("ip").await).await;
    machine.appliance.flows(1);
    machine.aws.fault(out("*"));
    machine.terminate();
    assert_eq!(machine.ended().await, Exit::CapOver);
    assert!(machine.asked("DeregisterTargets", "transient") > 10, "it goes on trying");
    let named = |name: &str| machine.report().findings.iter().any(|found| found.name == name);
    assert!(named("call-failed") && named("drain-unconfirmed"));
}

#[tokio::test]
async fn what_was_asked_patiently_before_does_not_hold_up_who_leaves() {
    let mut machine = ready(Begin::at("ip").await).await;
    machine.aws.fault(out("DescribeTargetHealth"));
    // From now on a pause between attempts never ends.
    machine.clock.patience_is_endless(true);
    machine.until_refused("DescribeTargetHealth").await;
    machine.aws.behave();
    machine.terminate();
    assert_eq!(machine.ended().await, Exit::Drained);
    assert_eq!(machine.asked("DeregisterTargets", "ok"), 1);
}

#[tokio::test]
async fn a_second_sigterm_ends_at_once_and_so_does_the_first_without_a_place() {
    let mut machine = ready(Begin::at("ip").await).await;
    machine.appliance.flows(1);
    machine.terminate();
    machine.until("leaving", |report| report.phase == "leaving").await;
    machine.terminate();
    assert_eq!(machine.ended().await, Exit::Forced);
    let begin = Begin::at("ip").await;
    begin.aws.fault(Rule::always("GetResources", Fault::Hang));
    let mut machine = begin.start();
    machine.terminate();
    assert_eq!(machine.ended().await, Exit::Drained);
    assert_eq!(machine.aws.with(|world| world.groups[0].targets.len()), 0);
}

#[tokio::test]
async fn a_hook_of_auto_scaling_gets_heartbeats_and_is_told_at_the_end() {
    let mut machine = ready(Begin::at("ip").await).await;
    machine.appliance.flows(1);
    machine.aws.with(|world| world.terminate(OWN));
    let report = machine.until("leaving", |report| report.leaving.is_some()).await;
    assert!(report.leaving.unwrap().why.contains("Auto Scaling"));
    machine.pass(70).await;
    machine.appliance.flows(0);
    assert_eq!(machine.ended().await, Exit::Drained);
    assert!(machine.asked("RecordLifecycleActionHeartbeat", "ok") >= 3);
    assert_eq!(machine.asked("CompleteLifecycleAction", "ok"), 1);
    let state = machine.aws.with(|world| world.scaling[0].instances[OWN].clone());
    assert_eq!(state, "Terminating:Proceed");
}

#[tokio::test]
async fn a_spot_notice_has_it_gone_before_the_instance_is() {
    let mut machine = ready(Begin::at("ip").await).await;
    machine.appliance.flows(1);
    let at = DateTime::from(SystemTime::now() + Duration::from_secs(120));
    let at = at.fmt(Format::DateTime).unwrap();
    let notice = format!("{{\"action\": \"terminate\", \"time\": \"{at}\"}}");
    let began = machine.aws.with(|world| world.now);
    machine.aws.with(|world| world.imds.spot = Some(notice));
    let report = machine.until("leaving", |report| report.leaving.is_some()).await;
    assert!(report.leaving.unwrap().why.contains("takes this spot instance back"));
    assert_eq!(machine.ended().await, Exit::CapOver);
    assert_eq!(machine.asked("DeregisterTargets", "ok"), 1);
    let took = (machine.aws.with(|world| world.now) - began).as_secs();
    assert!(took < 120, "{took} s of the stand-in's time");
}

#[tokio::test]
async fn peers_are_told_with_their_addresses_by_both_target_types() {
    for (by, own, other) in [("ip", OWN_IP, "10.0.1.12"), ("instance", OWN, "i-00000000000000002")]
    {
        let begin = Begin::at(by).await;
        if by == "instance" {
            let mac = [2, 0, 10, 0, 1, 0];
            *begin.appliance.ingress.lock().unwrap() = Some(Ingress { mac, ..ingress() });
        }
        begin.aws.with(|world| {
            let rhythm = world.groups[0].rhythm();
            let (now, world) = (world.now, &mut world.groups[0].targets);
            world.push(standins::target::Target::new(other, false, now, rhythm));
        });
        let mut machine = begin.start();
        let both = |report: &Report| {
            report.phase == "ready" && report.peers.iter().any(|peer| peer.state == "unhealthy")
        };
        let report = machine.until("both", both).await;
        let peer = |id: &str| report.peers.iter().find(|peer| peer.id == id).unwrap().clone();
        let addresses = match by {
            "ip" => ("10.0.1.11", "10.0.1.12"),
            _ => ("10.0.0.11", "10.0.0.12"),
        };
        let told = (peer(own).address.unwrap(), peer(other).address.unwrap());
        assert_eq!((told.0.to_string().as_str(), told.1.to_string().as_str()), addresses);
        assert_eq!((peer(own).state.as_str(), healthy(&report)), ("healthy", 1));
    }
}

#[tokio::test]
async fn throttles_are_counted_and_hold_nothing_up() {
    let begin = Begin::at("ip").await;
    let throttled = Fault::Refuse { status: 400, code: "Throttling".into() };
    begin.aws.fault(Rule::first(3, "RegisterTargets", throttled.clone()));
    begin.aws.fault(Rule::first(2, "GetResources", throttled));
    let machine = ready(begin).await;
    assert_eq!(machine.asked("RegisterTargets", "throttled"), 3);
    assert_eq!(machine.asked("GetResources", "throttled"), 2);
    assert_eq!(machine.asked("RegisterTargets", "ok"), 1);
}
