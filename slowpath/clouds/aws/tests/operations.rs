//! Operator commands against the emulator: remote commands, waiting, and doctor.
#![expect(clippy::unwrap_used, reason = "a test ends at the first failure")]

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use aws::doctor::{Check, CheckConfig, Observations, Verdict, collect, evaluate};
use aws::remote::{RemoteError, run};
use aws::types::Failure;
use aws::wait::{WaitResult, instance_state, target_state, until};
use cloud_emulators::Emulator;
use cloud_emulators::faults::{Fault, Rule};
use cloud_emulators::state::AwsState;
use clouds::report::Report;
use clouds::retry::Pause;

mod fixture;
use fixture::{Fixture, fixture};

const OWN: &str = "i-00000000000000001";
const OTHER: &str = "i-00000000000000002";

/// A clock whose pauses end at once and advance the emulator. From the given time on, it performs
/// an action after each pause.
struct ScriptedClock<F: Fn(&mut AwsState) + Send + Sync>(Emulator, Duration, F);

impl<F: Fn(&mut AwsState) + Send + Sync> Pause for ScriptedClock<F> {
    fn now(&self) -> Duration {
        self.0.with(|cloud| cloud.now)
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.advance(pause);
        if self.now() >= self.1 {
            self.0.with(|cloud| (self.2)(cloud));
        }
        Box::pin(std::future::ready(()))
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test]
async fn a_remote_command_returns_its_output_and_exit_code() {
    let Fixture { aws, account, .. } = &fixture("ip").await;
    let pause = ScriptedClock(aws.clone(), seconds(5), |cloud: &mut AwsState| {
        for command in &mut cloud.commands {
            (command.status, command.code) = ("Failed".into(), 3);
            (command.output, command.errors) = ("out\n".into(), "err\n".into());
        }
    });
    let done = run(account, &pause, OTHER, "exit 3", seconds(60)).await.unwrap();
    assert_eq!((done.status.as_str(), done.exit_code), ("Failed", Some(3)));
    assert_eq!((done.output.as_str(), done.errors.as_str()), ("out\n", "err\n"));
    let sent = aws.with(|cloud| cloud.commands[0].clone());
    assert_eq!((sent.instance.as_str(), sent.script.as_str()), (OTHER, "exit 3"));

    let never = ScriptedClock(aws.clone(), seconds(0), |_: &mut AwsState| {});
    let late = run(account, &never, OTHER, "sleep 999", seconds(10)).await.unwrap_err();
    assert!(matches!(&late, RemoteError::TimedOut { last, .. } if last == "InProgress"), "{late}");
    assert!(late.to_string().contains("--timeout"));
    let absent = run(account, &never, "i-0", "true", seconds(10)).await.unwrap_err();
    assert!(absent.to_string().contains("SSM agent"), "{absent}");
    aws.with(|cloud| cloud.forbidden.push("SendCommand".into()));
    let denied = run(account, &never, OTHER, "true", seconds(10)).await.unwrap_err();
    assert!(denied.to_string().contains("ssm:SendCommand"), "{denied}");
}

#[tokio::test]
async fn waits_return_the_last_state() {
    let Fixture { aws, account, .. } = &fixture("ip").await;
    let group = aws.with(|cloud| cloud.groups[0].arn.clone());
    let pause = ScriptedClock(aws.clone(), seconds(20), |cloud: &mut AwsState| {
        cloud.instances[1].state = "stopped".into();
    });
    let query = || instance_state(account, OTHER);
    let waited = until(&pause, seconds(60), "stopped", query).await.unwrap();
    assert_eq!(waited, WaitResult { reached: true, last: "stopped".into() });
    let waited = until(&pause, seconds(60), "running", query).await.unwrap();
    assert_eq!(waited, WaitResult { reached: false, last: "stopped".into() });
    let absent = until(&pause, seconds(4), "running", || instance_state(account, "i-0")).await;
    assert!(absent.unwrap().last.contains("does not exist"));

    use aws::call::Aws;
    account.register(&group, "10.0.1.11").await.unwrap();
    let query = || target_state(account, &group, "10.0.1.11");
    aws.fault(Rule::first(1, "DescribeTargetHealth", Fault::Status(503)));
    assert!(until(&pause, seconds(60), "healthy", query).await.unwrap().reached);
    let soon = until(&pause, Duration::ZERO, "draining", query).await.unwrap();
    assert_eq!(soon, WaitResult { reached: false, last: "healthy".into() });
    aws.with(|cloud| cloud.forbidden.push("DescribeTargetHealth".into()));
    let denied = until(&pause, seconds(60), "healthy", query).await.unwrap_err();
    assert_eq!(denied.kind, Failure::Denied, "a permanent error ends the wait");
}

const CONFIG: &str = r#"
name = "weir"
[fastpath]
lcores = [1]
[ingress]
device = "0000:00:06.0"
address = ["10.0.1.11/24"]
gateway = ["10.0.1.1"]
mtu = 9001
[egress]
device = "0000:00:07.0"
address = ["10.0.2.11/24"]
gateway = ["10.0.2.1"]
mtu = 9001
[nat]
addresses = ["10.0.2.11"]
[[gateway]]
name = "aws"
kind = "aws"
sources = ["10.0.1.0/24", "10.0.9.0/24"]
[health]
listen = ["0.0.0.0:8080"]
"#;

fn check_config(aws: &str) -> CheckConfig {
    let name =
        format!("weir-operations-{}-{:?}.toml", std::process::id(), std::thread::current().id());
    let file = std::env::temp_dir().join(name.replace(['(', ')'], ""));
    std::fs::write(&file, format!("{CONFIG}\n[aws]\n{aws}\n")).unwrap();
    let config = config::load(Some(&file), &[]).map_err(|e| e.render()).unwrap();
    std::fs::remove_file(&file).unwrap();
    CheckConfig::of(&config, config.aws.as_ref().unwrap())
}

/// Runs all checks as on the emulator's first instance.
async fn run_doctor(env: &Fixture, config: &CheckConfig) -> Vec<Check> {
    let report = Report { cloud: "aws".into(), phase: "ready".into(), ..Report::default() };
    let mut observed = Observations::new(config, env.metadata.identity().await, Ok(report));
    observed.mac = Some([2, 0, 10, 0, 1, 1]);
    observed.kernel_mtu = Some(("weir-in".into(), 9001));
    collect(&env.account, config, &mut observed).await;
    evaluate(config, &observed)
}

fn check_named<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks
        .iter()
        .find(|check| check.name == name)
        .unwrap_or_else(|| unreachable!("{name}: {checks:#?}"))
}

fn failed(checks: &[Check]) -> Vec<&str> {
    checks.iter().filter(|c| c.verdict == Verdict::Fail).map(|c| c.name.as_str()).collect()
}

#[tokio::test]
async fn doctor_passes_a_good_machine_and_changes_nothing() {
    use aws::call::Aws;
    let env = fixture("ip").await;
    let group = env.aws.with(|cloud| cloud.groups[0].arn.clone());
    env.account.register(&group, "10.0.1.11").await.unwrap();
    env.aws.advance(seconds(60));
    // The role has no SSM permission, as in config/aws/policy.json.
    env.aws.with(|cloud| cloud.forbidden = vec!["GetCommandInvocation".into()]);
    let before = env.aws.with(|cloud| cloud.clone());
    let checks = run_doctor(&env, &check_config("cluster = \"north\"")).await;
    assert_eq!(failed(&checks), Vec::<&str>::new(), "{checks:#?}");
    for name in [
        "metadata",
        "credentials",
        "tag:GetResources",
        "ec2:DescribeInstances",
        "elasticloadbalancing:DescribeListenerAttributes",
        "ssm:GetCommandInvocation",
        "autoscaling:DescribeLifecycleHooks",
        "target group",
        "target type",
        "target state",
        "GENEVE admitted",
        "health check admitted",
        "mtu",
        "kernel mtu",
        "slowpath",
    ] {
        assert_eq!(check_named(&checks, name).verdict, Verdict::Ok, "{name}");
    }
    assert_eq!(check_named(&checks, "source/destination check").verdict, Verdict::Warn, "two arms");
    assert!(checks.iter().all(|check| check.name != "ssm:SendCommand"), "{checks:#?}");
    let after = env.aws.with(|cloud| cloud.clone());
    let tokens = cloud_emulators::state::Imds { tokens: after.imds.tokens, ..before.imds.clone() };
    assert_eq!(AwsState { imds: tokens, ..before }, after);
}

#[tokio::test]
async fn doctor_warns_of_an_appliance_with_the_operators_permissions() {
    let env = fixture("ip").await;
    let checks = run_doctor(&env, &check_config("cluster = \"north\"")).await;
    let ssm = check_named(&checks, "ssm:GetCommandInvocation");
    assert_eq!(ssm.verdict, Verdict::Warn);
    assert!(ssm.remedy.contains("policy-operator.json"), "{ssm:?}");
}

#[tokio::test]
async fn doctor_reports_each_of_these_defects_with_a_remedy() {
    let ip = "cluster = \"north\"";
    type Wrong = fn(&mut AwsState);
    let cases: [(&str, &str, &str, Wrong); 9] = [
        (ip, "credentials", "AWS rejected", |w| w.keys.clear()),
        (ip, "tag:GetResources", "not permitted", |w| w.forbidden.push("GetResources".into())),
        (ip, "elasticloadbalancing:DescribeListeners", "not permitted", |w| {
            w.forbidden.push("DescribeListeners".into());
        }),
        ("cluster = \"south\"", "target group", "no target group has the tag", |_| {}),
        (ip, "target group", "GENEVE", |w| w.groups[0].protocol = "TCP".into()),
        (ip, "target type", "primary interface", |w| w.groups[0].target_type = "instance".into()),
        (ip, "target state", "NotRegistered", |_| {}),
        (ip, "GENEVE admitted", "udp port 6081 is not admitted from 10.0.9.0/24", |w| {
            w.security_groups[0].ingress[0].2 = "10.0.0.0/21".into();
        }),
        (ip, "health check admitted", "tcp port 8080", |w| {
            w.security_groups[0].ingress.remove(1);
        }),
    ];
    for (aws, name, text, wrong) in cases {
        let env = fixture("ip").await;
        env.aws.with(wrong);
        let checks = run_doctor(&env, &check_config(aws)).await;
        let check = check_named(&checks, name);
        assert_eq!(check.verdict, Verdict::Fail, "{name}: {checks:#?}");
        assert!(check.text.contains(text) && !check.remedy.is_empty(), "{check:#?}");
    }
}

#[tokio::test]
async fn doctor_checks_mode_routes_with_dry_runs() {
    let env = fixture("ip").await;
    let routes = check_config("mode = \"routes\"\ncluster = \"north\"");
    let checks = run_doctor(&env, &routes).await;
    assert_eq!(failed(&checks), ["leader"], "{checks:#?}");
    assert!(check_named(&checks, "leader").text.contains("no leader priority"));
    for name in ["ec2:ReplaceRoute", "ec2:ModifyNetworkInterfaceAttribute"] {
        assert_eq!(check_named(&checks, name).verdict, Verdict::Ok);
    }
    assert_eq!(
        env.aws.with(|cloud| cloud.tables[0].routes["0.0.0.0/0"].clone()),
        "igw-00000000000000001"
    );
    assert!(env.aws.with(|cloud| cloud.instances[0].interfaces[1].check));
    env.aws.with(|cloud| {
        cloud.instances[0].tags.insert("weir:leader".into(), "1".into());
        cloud.forbidden.push("ReplaceRoute".into());
    });
    let checks = run_doctor(&env, &routes).await;
    assert_eq!(failed(&checks), ["ec2:ReplaceRoute"], "{checks:#?}");
    assert!(check_named(&checks, "leader").text.contains(OWN));
}
