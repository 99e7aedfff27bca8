//! The AWS operations against the emulator: their results, and error handling during outages.
#![expect(clippy::unwrap_used, reason = "a test ends at the first failure")]

use std::time::Duration;

use aws::account::{Account, Settings};
use aws::call::{Aws, HookedInstance, RouteReplacement};
use aws::imds::Metadata;
use aws::types::{Failure, Group, Stickiness, TargetState, TargetType};
use cloud_emulators::faults::{Fault, Rule};
use cloud_emulators::state::AwsState;
use cloud_emulators::target::State;
use clouds::retry::Policy;

mod fixture;
use fixture::{Fixture, fixture};

const OWN: &str = "i-00000000000000001";
const OWN_IP: &str = "10.0.1.11";

async fn arn(env: &Fixture) -> String {
    let found = env.account.groups_by_tag("weir:cluster", "north").await.unwrap();
    assert_eq!(found.len(), 1);
    found[0].clone()
}

async fn state(env: &Fixture, arn: &str, id: &str) -> TargetState {
    env.account.targets(arn, Some(id)).await.unwrap()[0].state
}

#[tokio::test]
async fn a_group_is_read_and_a_target_registered_and_deregistered() {
    let env = fixture("ip").await;
    let arn = arn(&env).await;
    let group = env.account.groups(std::slice::from_ref(&arn)).await.unwrap().remove(0);
    assert_eq!((group.protocol.as_str(), group.port), ("GENEVE", 6081));
    assert_eq!((group.target_type, group.health.port), (TargetType::Ip, Some(8080)));
    assert_eq!(group.load_balancers.len(), 1);
    let set = env.account.attributes(&group).await.unwrap();
    assert_eq!(set.deregistration_delay, Duration::from_secs(120));
    assert_eq!(set.tcp_idle, Duration::from_secs(600));
    assert_eq!(set.stickiness, Stickiness::FiveTuple);
    assert!(set.cross_zone && set.reset_on_idle && set.reset_on_deregistration);
    assert!(!set.reset_on_unhealthy && !set.rebalance_on_unhealthy);

    assert_eq!(state(&env, &arn, OWN_IP).await, TargetState::Unused);
    env.account.register(&arn, OWN_IP).await.unwrap();
    env.account.register(&arn, OWN_IP).await.unwrap();
    assert_eq!(state(&env, &arn, OWN_IP).await, TargetState::Initial);
    env.aws.advance(Duration::from_secs(20));
    assert_eq!(state(&env, &arn, OWN_IP).await, TargetState::Initial);
    env.aws.advance(Duration::from_secs(10));
    assert_eq!(state(&env, &arn, OWN_IP).await, TargetState::Healthy);
    env.aws.with(|cloud| cloud.set_probe_result(OWN_IP, false));
    env.aws.advance(Duration::from_secs(20));
    assert_eq!(state(&env, &arn, OWN_IP).await, TargetState::Unhealthy);
    env.account.deregister(&arn, OWN_IP).await.unwrap();
    assert_eq!(state(&env, &arn, OWN_IP).await, TargetState::Draining);
    assert_eq!(env.account.targets(&arn, None).await.unwrap().len(), 1);
    env.aws.advance(Duration::from_secs(120));
    assert!(env.account.targets(&arn, None).await.unwrap().is_empty());
    env.account.deregister(&arn, OWN_IP).await.unwrap();
    assert_eq!(env.account.counts()[&("RegisterTargets", "ok")].times(), 2);
}

#[tokio::test]
async fn every_target_state_is_parsed() {
    let env = fixture("instance").await;
    let arn = arn(&env).await;
    env.account.register(&arn, OWN).await.unwrap();
    for (reported, expected) in [
        (State::Initial, TargetState::Initial),
        (State::Healthy, TargetState::Healthy),
        (State::Unhealthy, TargetState::Unhealthy),
        (State::UnhealthyDraining, TargetState::UnhealthyDraining),
        (State::Unused, TargetState::Unused),
        (State::Draining, TargetState::Draining),
        (State::Unavailable, TargetState::Unavailable),
    ] {
        env.aws.with(|cloud| cloud.groups[0].targets[0].forced = Some(reported));
        assert_eq!(state(&env, &arn, OWN).await, expected);
    }
    env.aws.with(|cloud| {
        cloud.groups[0].targets[0].forced = None;
        cloud.balancers.clear();
    });
    assert_eq!(state(&env, &arn, OWN).await, TargetState::Unused);
}

#[tokio::test]
async fn all_pages_are_read() {
    let env = fixture("ip").await;
    env.aws.with(|cloud| {
        cloud.page = Some(1);
        for n in 0..3 {
            let mut group = cloud.groups[0].clone();
            group.arn.push_str(&n.to_string());
            cloud.groups.push(group);
        }
    });
    assert_eq!(env.account.groups_by_tag("weir:cluster", "north").await.unwrap().len(), 4);
    assert_eq!(env.account.groups(&[]).await.unwrap().len(), 4);
    let vpc = "vpc-00000000000000001";
    let peers = env.account.instances_by_tag(vpc, "weir:cluster", Some("north")).await.unwrap();
    assert_eq!(peers.len(), 2);
    assert_eq!(env.account.network_interfaces(OWN).await.unwrap().len(), 3);
    let calls = env.aws.take_calls();
    assert!(calls.iter().filter(|c| c.operation == "DescribeInstances").count() == 2);
}

#[tokio::test]
async fn instances_interfaces_rules_and_routes_are_read() {
    let Fixture { aws, account, .. } = &fixture("ip").await;
    let own = account.instances(&[OWN.to_owned()]).await.unwrap().remove(0);
    assert_eq!((own.state.as_str(), own.interfaces.len()), ("running", 3));
    assert_eq!(own.address, Some("10.0.0.11".parse().unwrap()));
    let vpc = own.vpc_id.unwrap();
    assert!(account.instances_by_tag(&vpc, "absent", None).await.unwrap().is_empty());
    let nics = account.network_interfaces(OWN).await.unwrap();
    let ingress = nics.iter().find(|n| n.description == "ingress").unwrap();
    assert_eq!(ingress.addresses.len(), 2);
    assert_eq!((ingress.device_index, ingress.mac), (Some(1), [2, 0, 10, 0, 1, 1]));
    assert!(ingress.source_dest_check);
    account.set_source_dest_check(&ingress.id, false, true).await.unwrap();
    assert!(aws.with(|cloud| cloud.instances[0].interfaces[1].check), "a dry run does nothing");
    account.set_source_dest_check(&ingress.id, false, false).await.unwrap();
    assert!(!aws.with(|cloud| cloud.instances[0].interfaces[1].check));

    let rules = account.security_groups(&ingress.security_groups).await.unwrap().remove(0);
    assert_eq!(rules.ingress[0].ports, Some((6081, 6081)));
    assert_eq!((rules.ingress[2].ports, rules.ingress[2].protocol.as_str()), (None, "-1"));

    let table = account.route_tables(&vpc).await.unwrap().remove(0);
    assert!(table.main && table.subnets.contains(&ingress.subnet_id));
    let mut to = RouteReplacement {
        table: table.id,
        destination: "0.0.0.0/0".into(),
        interface: ingress.id.clone(),
    };
    account.replace_route(&to, true).await.unwrap();
    account.replace_route(&to, false).await.unwrap();
    to.destination = "::/0".into();
    assert_eq!(account.replace_route(&to, false).await.unwrap_err().kind, Failure::Absent);
    aws.with(|cloud| cloud.tables[0].routes.insert("::/0".into(), "igw-1".into()));
    account.replace_route(&to, false).await.unwrap();
    let routes = account.route_tables(&vpc).await.unwrap().remove(0).routes;
    let pointed = routes.iter().filter(|r| r.target.as_deref() == Some(ingress.id.as_str()));
    assert_eq!(pointed.count(), 2);
    aws.with(|cloud| cloud.instances[0].interfaces.clear());
    let routes = account.route_tables(&vpc).await.unwrap().remove(0).routes;
    assert_eq!(routes.iter().filter(|r| !r.active).count(), 2);
    let gone = account.replace_route(&to, false).await.unwrap_err();
    assert_eq!(gone.code, "InvalidNetworkInterfaceID.NotFound");
}

#[tokio::test]
async fn a_command_is_sent_and_its_output_read() {
    let Fixture { aws, account, .. } = &fixture("ip").await;
    let id = account.send_command(OWN, "uptime", Duration::from_secs(5)).await.unwrap();
    assert_eq!(account.invocation(&id, OWN).await.unwrap_err().kind, Failure::Absent);
    aws.advance(Duration::from_secs(1));
    let running = account.invocation(&id, OWN).await.unwrap();
    assert_eq!((running.done, running.exit_code), (false, None));
    aws.with(|cloud| {
        let command = &mut cloud.commands[0];
        assert_eq!(command.script, "uptime");
        (command.status, command.code, command.output) = ("Failed".into(), 3, "up <1> day".into());
    });
    let done = account.invocation(&id, OWN).await.unwrap();
    assert_eq!((done.done, done.exit_code, done.output.as_str()), (true, Some(3), "up <1> day"));
    let absent = account.send_command("i-0", "true", Duration::from_secs(5)).await.unwrap_err();
    assert_eq!((absent.kind, absent.code.as_str()), (Failure::Absent, "InvalidInstanceId"));
}

#[tokio::test]
async fn lifecycle_hooks_are_extended_and_completed() {
    let Fixture { aws, account, metadata, .. } = &fixture("ip").await;
    let found = account.scaling_instance(OWN).await.unwrap().unwrap();
    assert_eq!(found.lifecycle, "InService");
    assert_eq!(account.scaling_instance("i-0").await.unwrap(), None);
    let hook = account.lifecycle_hooks(&found.group).await.unwrap().remove(0);
    assert_eq!((hook.terminating, hook.heartbeat), (true, Duration::from_secs(60)));
    let at = HookedInstance { group: found.group, hook: hook.name, instance: OWN.into() };
    assert_eq!(account.lifecycle_heartbeat(&at).await.unwrap_err().kind, Failure::Invalid);
    aws.with(|cloud| cloud.terminate(OWN));
    assert_eq!(metadata.notices().await.unwrap().lifecycle.as_deref(), Some("Terminated"));
    for _ in 0..3 {
        aws.advance(Duration::from_secs(50));
        account.lifecycle_heartbeat(&at).await.unwrap();
    }
    let waits = account.scaling_instance(OWN).await.unwrap().unwrap();
    assert_eq!(waits.lifecycle, "Terminating:Wait");
    account.complete_lifecycle(&at).await.unwrap();
    let gone = account.scaling_instance(OWN).await.unwrap().unwrap();
    assert_eq!(gone.lifecycle, "Terminating:Proceed");
}

#[tokio::test]
async fn the_identity_is_read_from_the_metadata() {
    let Fixture { aws, metadata, .. } = &fixture("ip").await;
    let identity = metadata.identity().await.unwrap();
    assert_eq!((identity.instance_id.as_str(), identity.interfaces.len()), (OWN, 3));
    let ingress = &identity.interfaces[1];
    assert_eq!((ingress.device_number, ingress.mac), (1, [2, 0, 10, 0, 1, 1]));
    let addresses: Vec<String> = ingress.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, [OWN_IP, "fd00:1::1"]);
    let subnets = metadata.subnets(ingress).await.unwrap();
    assert_eq!(subnets, [("10.0.1.0".parse().unwrap(), 24), ("fd00:1::".parse().unwrap(), 64)]);
    let path = "/latest/meta-data/network/interfaces/macs/02:00:0a:00:01:01/subnet-ipv4";
    aws.fault(Rule::first(1, path, Fault::Body("10.0.1.0".into())));
    assert_eq!(metadata.subnets(ingress).await.unwrap_err().kind, Failure::Invalid);
    assert_eq!(metadata.get("/latest/meta-data/none").await.unwrap(), None);
    aws.with(|cloud| {
        cloud.imds.spot =
            Some(r#"{"action":"terminate","time":"2026-11-22T15:00:00Z"}"#.to_owned());
        cloud.imds.rebalance = Some(r#"{"noticeTime":"2026-11-22T14:00:00Z"}"#.to_owned());
    });
    let notices = metadata.notices().await.unwrap();
    assert_eq!(notices.spot.unwrap().0, "terminate");
    assert_eq!(notices.rebalance.as_deref(), Some("2026-11-22T14:00:00Z"));
    aws.fault(Rule::first(3, "/latest/dynamic", Fault::Status(503)));
    assert_eq!(metadata.identity().await.unwrap().instance_id, OWN);
    aws.fault(Rule::always("/latest/dynamic", Fault::Body("{}".into())));
    assert_eq!(metadata.identity().await.unwrap_err().kind, Failure::Invalid);
}

#[tokio::test]
async fn disabled_or_unreachable_metadata_is_an_error_with_its_cause() {
    let off = fixture("ip").await;
    off.aws.with(|cloud| cloud.imds.mode = "off".into());
    let error = off.metadata.identity().await.unwrap_err();
    assert!(error.message.contains("--http-endpoint enabled"), "{error}");
    assert_eq!(error.kind, Failure::Denied);
    let silent = fixture("ip").await;
    silent.aws.with(|cloud| cloud.imds.mode = "silent".into());
    let once = silent.metadata.with_policy(Policy::ONCE);
    let error = once.identity().await.unwrap_err();
    assert!(error.message.contains("http-put-response-hop-limit 2"), "{error}");
    assert_eq!(error.kind, Failure::Transient);
}

#[tokio::test]
async fn throttling_and_temporary_errors_are_retried() {
    let env = fixture("ip").await;
    let arn = arn(&env).await;
    for code in aws::failure::THROTTLING {
        let fault = Fault::Refuse { status: 400, code: code.into() };
        for operation in ["DescribeTargetHealth", "DescribeRouteTables", "GetResources"] {
            env.aws.fault(Rule::first(2, operation, fault.clone()));
        }
        env.account.targets(&arn, None).await.unwrap();
        env.account.route_tables("vpc-00000000000000001").await.unwrap();
        env.account.groups_by_tag("weir:cluster", "north").await.unwrap();
        env.aws.clear_faults();
    }
    assert_eq!(env.account.counts()[&("DescribeTargetHealth", "throttled")].times(), 28);
    let temporary = [500, 502, 503, 504].map(Fault::Status).into_iter().chain([Fault::Cut]);
    for fault in temporary {
        for operation in ["RegisterTargets", "DescribeInstances", "SendCommand", "GetResources"] {
            env.aws.fault(Rule::first(1, operation, fault.clone()));
        }
        env.account.register(&arn, OWN_IP).await.unwrap();
        env.account.instances(&[]).await.unwrap();
        env.account.send_command(OWN, "true", Duration::from_secs(1)).await.unwrap();
        env.account.groups_by_tag("weir:cluster", "north").await.unwrap();
        env.aws.clear_faults();
    }
    let before = env.aws.with(|cloud| cloud.now);
    env.aws.fault(Rule {
        retry_after: Some(9_000),
        ..Rule::first(1, "RegisterTargets", Fault::Refuse { status: 400, code: "SlowDown".into() })
    });
    env.account.register(&arn, OWN_IP).await.unwrap();
    assert_eq!(env.aws.with(|cloud| cloud.now) - before, Duration::from_secs(9));
    env.aws.fault(Rule::always("*", Fault::Refuse { status: 400, code: "Throttling".into() }));
    let before = env.aws.with(|cloud| cloud.now);
    assert_eq!(env.account.register(&arn, OWN_IP).await.unwrap_err().kind, Failure::Throttled);
    let waited = env.aws.with(|cloud| cloud.now) - before;
    assert!(Duration::from_secs(80) < waited && waited <= Duration::from_secs(120), "{waited:?}");
}

#[tokio::test]
async fn a_hanging_call_ends_at_the_time_limit() {
    let env = fixture("ip").await;
    let once = env.account.with_policy(Policy::ONCE);
    env.aws.fault(Rule::always("*", Fault::Hang));
    let error = once.groups_by_tag("weir:cluster", "north").await.unwrap_err();
    assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "Timeout"));
    let error = once.instances(&[]).await.unwrap_err();
    assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "Timeout"));
}

#[tokio::test]
async fn permanent_errors_are_not_retried_and_name_a_missing_permission() {
    let env = fixture("ip").await;
    let arn = arn(&env).await;
    env.aws.with(|cloud| {
        cloud.forbidden = ["RegisterTargets", "GetResources", "ReplaceRoute", "SendCommand"]
            .map(str::to_owned)
            .to_vec();
    });
    env.aws.take_calls();
    let to = RouteReplacement {
        table: "rtb-1".into(),
        destination: "::/0".into(),
        interface: "eni".into(),
    };
    let errors = [
        ("elasticloadbalancing:RegisterTargets", env.account.register(&arn, OWN_IP).await.err()),
        ("tag:GetResources", env.account.groups_by_tag("a", "b").await.err()),
        ("ec2:ReplaceRoute", env.account.replace_route(&to, true).await.err()),
        (
            "ssm:SendCommand",
            env.account.send_command(OWN, "true", Duration::from_secs(1)).await.err(),
        ),
    ];
    for (permission, error) in errors {
        let error = error.unwrap();
        assert_eq!(error.kind, Failure::Denied, "{error}");
        assert!(error.message.contains(&format!("allow {permission} in")), "{error}");
    }
    assert_eq!(env.aws.take_calls().len(), 4, "each was called once");
    let absent = env.account.targets("arn:none", None).await.unwrap_err();
    assert_eq!((absent.kind, absent.code.as_str()), (Failure::Absent, "TargetGroupNotFound"));
    env.aws.with(|cloud| cloud.forbidden.clear());
    let wrong = env.account.register(&arn, "no-address").await.unwrap_err();
    assert_eq!((wrong.kind, wrong.code.as_str()), (Failure::Invalid, "InvalidTarget"));
}

#[tokio::test]
async fn a_wrong_signature_is_rejected_by_every_service() {
    let env = fixture("ip").await;
    let arn = arn(&env).await;
    env.account.instances(&[]).await.unwrap();
    // From now on the emulator expects another secret than the client has.
    env.aws.with(|cloud| {
        cloud.keys.values_mut().for_each(|secret| *secret = "other".to_owned());
    });
    let errors = [
        env.account.targets(&arn, None).await.err(),
        env.account.groups_by_tag("a", "b").await.err(),
        env.account.instances(&[]).await.err(),
        env.account.invocation("a", "b").await.err(),
        env.account.scaling_instance(OWN).await.err(),
    ];
    for error in errors {
        let error = error.unwrap();
        assert_eq!((error.kind, error.code.as_str()), (Failure::Denied, "SignatureDoesNotMatch"));
    }
}

/// Performs 15 operations once each, and returns how many succeeded.
async fn count_successes(env: &Fixture, group: &Group) -> usize {
    let once = env.account.with_policy(Policy::ONCE);
    let (metadata, ids) = (env.metadata.with_policy(Policy::ONCE), [OWN.to_owned()]);
    let vpc = "vpc-00000000000000001";
    [
        once.targets(&group.arn, None).await.is_ok(),
        once.groups(&[]).await.is_ok(),
        once.attributes(group).await.is_ok(),
        once.groups_by_tag("weir:cluster", "north").await.is_ok(),
        once.instances(&ids).await.is_ok(),
        once.network_interfaces(OWN).await.is_ok(),
        once.security_groups(&["sg-00000000000000001".to_owned()]).await.is_ok(),
        once.route_tables(vpc).await.is_ok(),
        once.scaling_instance(OWN).await.is_ok(),
        once.lifecycle_hooks("weir-north").await.is_ok(),
        once.send_command(OWN, "true", Duration::from_secs(1)).await.is_ok(),
        once.invocation("00000001-0000-4000-8000-000000000000", OWN).await.is_ok(),
        once.register(&group.arn, OWN_IP).await.is_ok(),
        metadata.identity().await.is_ok(),
        metadata.notices().await.is_ok(),
    ]
    .into_iter()
    .filter(|good| *good)
    .count()
}

#[tokio::test]
async fn malformed_responses_never_panic() {
    let env = fixture("ip").await;
    let once = env.account.with_policy(Policy::ONCE);
    let arn = arn(&env).await;
    let group = once.groups(&[]).await.unwrap().remove(0);
    assert_eq!(count_successes(&env, &group).await, 14, "the invocation is not visible yet");
    env.aws.advance(Duration::from_secs(1));
    assert_eq!(count_successes(&env, &group).await, 15);
    let mut accepted = 0;
    for seed in 1..40 {
        env.aws.clear_faults();
        env.aws.seed(seed * 7_919);
        env.aws.fault(Rule::always("*", Fault::Garble));
        accepted += count_successes(&env, &group).await;
        env.aws.clear_faults();
        env.aws.fault(Rule::always("*", Fault::Shorten(seed as usize * 31)));
        accepted += count_successes(&env, &group).await;
    }
    println!("{accepted} of {} garbled responses were accepted", 2 * 39 * 15);
    assert!(accepted < 2 * 39 * 15 / 2, "{accepted}");
    env.aws.clear_faults();
    env.aws.fault(Rule::always("*", Fault::Body("<html>welcome</html>".into())));
    for error in [
        once.instances(&[]).await.err(),
        once.targets(&arn, None).await.err(),
        once.groups_by_tag("a", "b").await.err(),
        once.scaling_instance(OWN).await.err(),
        once.invocation("a", "b").await.err(),
    ] {
        assert_eq!(error.unwrap().kind, Failure::Invalid);
    }
}

/// Name of the test below, which starts itself again in a child process.
const CHILD: &str = "region_keys_and_endpoint_are_taken_from_the_environment_and_metadata";

#[tokio::test]
async fn region_keys_and_endpoint_are_taken_from_the_environment_and_metadata() {
    let variable = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
    if std::env::var_os("WEIR_CHILD").is_some() {
        let (_cancel, cancel) = tokio::sync::watch::channel(false);
        let account = Account::load(Settings::default(), cancel.clone()).await.unwrap();
        assert_eq!(account.region(), "eu-central-1");
        assert_eq!(account.instances(&[]).await.unwrap().len(), 2);
        assert_eq!(account.groups(&[]).await.unwrap().len(), 1);
        let metadata = Metadata::new(None, 1, cancel).unwrap();
        assert_eq!(metadata.identity().await.unwrap().instance_id, OWN);
        return;
    }
    let aws = cloud_emulators::Emulator::start(AwsState::sample("ip")).await.unwrap();
    let child = tokio::task::spawn_blocking({
        let url = aws.url.clone();
        move || {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", CHILD])
                .env_clear()
                .env("HOME", "/nowhere")
                .env("WEIR_CHILD", "1")
                .env("AWS_ENDPOINT_URL", &url)
                .env(variable, &url)
                .output()
        }
    });
    let out = child.await.unwrap().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    let calls = aws.take_calls();
    let keys = calls.iter().filter(|c| c.operation.ends_with("security-credentials/weir"));
    assert_eq!(keys.count(), 1, "keys are reused: {calls:?}");
}

#[tokio::test]
async fn the_emulators_state_round_trips_as_json() {
    let cloud = AwsState::sample("ip");
    let text = serde_json::to_string(&cloud).unwrap();
    assert_eq!(serde_json::from_str::<AwsState>(&text).unwrap(), cloud);
}
