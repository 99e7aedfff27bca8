//! Operator commands and scripts: remote commands, waiting, and doctor.
#![expect(clippy::unwrap_used, reason = "a test says what it expects")]

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use aws::doctor::{Check, Seen, Verdict, Wants, ask, judge};
use aws::remote::{RemoteError, run};
use aws::told::Failure;
use aws::wait::{Waited, instance_state, target_state, until};
use clouds::report::Report;
use clouds::retry::Pause;
use standins::Standin;
use standins::faults::{Fault, Rule};
use standins::world::World;

mod side;
use side::{Side, side};

const OWN: &str = "i-00000000000000001";
const OTHER: &str = "i-00000000000000002";

/// A clock that advances the emulator at once, and performs an action at a given time.
struct Then<F: Fn(&mut World) + Send + Sync>(Standin, Duration, F);

impl<F: Fn(&mut World) + Send + Sync> Pause for Then<F> {
    fn now(&self) -> Duration {
        self.0.with(|world| world.now)
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.advance(pause);
        if self.now() >= self.1 {
            self.0.with(|world| (self.2)(world));
        }
        Box::pin(std::future::ready(()))
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test]
async fn a_command_runs_elsewhere_and_tells_its_output_and_exit_code() {
    let Side { aws, account, .. } = &side("ip").await;
    let pause = Then(aws.clone(), seconds(5), |world: &mut World| {
        for command in &mut world.commands {
            (command.status, command.code) = ("Failed".into(), 3);
            (command.output, command.errors) = ("out\n".into(), "err\n".into());
        }
    });
    let done = run(account, &pause, OTHER, "exit 3", seconds(60)).await.unwrap();
    assert_eq!((done.status.as_str(), done.exit_code), ("Failed", Some(3)));
    assert_eq!((done.output.as_str(), done.errors.as_str()), ("out\n", "err\n"));
    let sent = aws.with(|world| world.commands[0].clone());
    assert_eq!((sent.instance.as_str(), sent.script.as_str()), (OTHER, "exit 3"));

    let never = Then(aws.clone(), seconds(0), |_: &mut World| {});
    let late = run(account, &never, OTHER, "sleep 999", seconds(10)).await.unwrap_err();
    assert!(matches!(&late, RemoteError::Late { last, .. } if last == "InProgress"), "{late}");
    assert!(late.to_string().contains("--timeout"));
    let nobody = run(account, &never, "i-0", "true", seconds(10)).await.unwrap_err();
    assert!(nobody.to_string().contains("SSM agent"), "{nobody}");
    aws.with(|world| world.forbidden.push("SendCommand".into()));
    let denied = run(account, &never, OTHER, "true", seconds(10)).await.unwrap_err();
    assert!(denied.to_string().contains("ssm:SendCommand"), "{denied}");
}

#[tokio::test]
async fn states_are_waited_for_and_the_last_is_told() {
    let Side { aws, account, .. } = &side("ip").await;
    let group = aws.with(|world| world.groups[0].arn.clone());
    let pause = Then(aws.clone(), seconds(20), |world: &mut World| {
        world.instances[1].state = "stopped".into();
    });
    let look = || instance_state(account, OTHER);
    let waited = until(&pause, seconds(60), "stopped", look).await.unwrap();
    assert_eq!(waited, Waited { reached: true, last: "stopped".into() });
    let waited = until(&pause, seconds(60), "running", look).await.unwrap();
    assert_eq!(waited, Waited { reached: false, last: "stopped".into() });
    let absent = until(&pause, seconds(4), "running", || instance_state(account, "i-0")).await;
    assert!(absent.unwrap().last.contains("does not exist"));

    use aws::call::Aws;
    account.register(&group, "10.0.1.11").await.unwrap();
    let look = || target_state(account, &group, "10.0.1.11");
    aws.fault(Rule::first(1, "DescribeTargetHealth", Fault::Status(503)));
    assert!(until(&pause, seconds(60), "healthy", look).await.unwrap().reached);
    let soon = until(&pause, Duration::ZERO, "draining", look).await.unwrap();
    assert_eq!(soon, Waited { reached: false, last: "healthy".into() });
    aws.with(|world| world.forbidden.push("DescribeTargetHealth".into()));
    let denied = until(&pause, seconds(60), "healthy", look).await.unwrap_err();
    assert_eq!(denied.kind, Failure::Denied, "nobody waits for what will never be told");
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

fn wants(aws: &str) -> Wants {
    let name =
        format!("weir-operations-{}-{:?}.toml", std::process::id(), std::thread::current().id());
    let file = std::env::temp_dir().join(name.replace(['(', ')'], ""));
    std::fs::write(&file, format!("{CONFIG}\n[aws]\n{aws}\n")).unwrap();
    let config = config::load(Some(&file), &[]).map_err(|e| e.render()).unwrap();
    std::fs::remove_file(&file).unwrap();
    Wants::of(&config, config.aws.as_ref().unwrap())
}

/// Returns all checks from the view of the emulator's first instance.
async fn examine(side: &Side, wants: &Wants) -> Vec<Check> {
    let report = Report { cloud: "aws".into(), phase: "ready".into(), ..Report::default() };
    let mut seen = Seen::new(wants, side.metadata.identity().await, Ok(report));
    seen.mac = Some([2, 0, 10, 0, 1, 1]);
    seen.kernel_mtu = Some(("weir-in".into(), 9001));
    ask(&side.account, wants, &mut seen).await;
    judge(wants, &seen)
}

fn told<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks
        .iter()
        .find(|check| check.name == name)
        .unwrap_or_else(|| unreachable!("{name}: {checks:#?}"))
}

fn failed(checks: &[Check]) -> Vec<&str> {
    checks.iter().filter(|c| c.verdict == Verdict::Fail).map(|c| c.name.as_str()).collect()
}

#[tokio::test]
async fn doctor_finds_a_good_machine_good_and_changes_nothing() {
    use aws::call::Aws;
    let side = side("ip").await;
    let group = side.aws.with(|world| world.groups[0].arn.clone());
    side.account.register(&group, "10.0.1.11").await.unwrap();
    side.aws.advance(seconds(60));
    // As in config/aws/policy.json.
    side.aws.with(|world| world.forbidden = vec!["GetCommandInvocation".into()]);
    let before = side.aws.with(|world| world.clone());
    let checks = examine(&side, &wants("cluster = \"north\"")).await;
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
        assert_eq!(told(&checks, name).verdict, Verdict::Ok, "{name}");
    }
    assert_eq!(told(&checks, "source/destination check").verdict, Verdict::Warn, "two arms");
    assert!(checks.iter().all(|check| check.name != "ssm:SendCommand"), "{checks:#?}");
    let after = side.aws.with(|world| world.clone());
    let tokens = standins::world::Imds { tokens: after.imds.tokens, ..before.imds.clone() };
    assert_eq!(World { imds: tokens, ..before }, after);
}

#[tokio::test]
async fn doctor_warns_of_an_appliance_with_the_operators_permissions() {
    let side = side("ip").await;
    let checks = examine(&side, &wants("cluster = \"north\"")).await;
    let ssm = told(&checks, "ssm:GetCommandInvocation");
    assert_eq!(ssm.verdict, Verdict::Warn);
    assert!(ssm.remedy.contains("policy-operator.json"), "{ssm:?}");
}

#[tokio::test]
async fn doctor_finds_each_thing_that_is_wrong() {
    let ip = "cluster = \"north\"";
    type Wrong = fn(&mut World);
    let cases: [(&str, &str, &str, Wrong); 9] = [
        (ip, "credentials", "does not accept", |w| w.keys.clear()),
        (ip, "tag:GetResources", "not permitted", |w| w.forbidden.push("GetResources".into())),
        (ip, "elasticloadbalancing:DescribeListeners", "not permitted", |w| {
            w.forbidden.push("DescribeListeners".into());
        }),
        ("cluster = \"south\"", "target group", "no target group has the tag", |_| {}),
        (ip, "target group", "GENEVE", |w| w.groups[0].protocol = "TCP".into()),
        (ip, "target type", "primary interface", |w| w.groups[0].target_type = "instance".into()),
        (ip, "target state", "NotRegistered", |_| {}),
        (ip, "GENEVE admitted", "udp port 6081 in from 10.0.9.0/24", |w| {
            w.security_groups[0].ingress[0].2 = "10.0.0.0/21".into();
        }),
        (ip, "health check admitted", "tcp port 8080", |w| {
            w.security_groups[0].ingress.remove(1);
        }),
    ];
    for (aws, name, text, wrong) in cases {
        let side = side("ip").await;
        side.aws.with(wrong);
        let checks = examine(&side, &wants(aws)).await;
        let check = told(&checks, name);
        assert_eq!(check.verdict, Verdict::Fail, "{name}: {checks:#?}");
        assert!(check.text.contains(text) && !check.remedy.is_empty(), "{check:#?}");
    }
}

#[tokio::test]
async fn doctor_knows_mode_routes_and_tries_its_writes_dry() {
    let side = side("ip").await;
    let routes = wants("mode = \"routes\"\ncluster = \"north\"");
    let checks = examine(&side, &routes).await;
    assert_eq!(failed(&checks), ["leader"], "{checks:#?}");
    assert!(told(&checks, "leader").text.contains("no priority set"));
    for name in ["ec2:ReplaceRoute", "ec2:ModifyNetworkInterfaceAttribute"] {
        assert_eq!(told(&checks, name).verdict, Verdict::Ok);
    }
    assert_eq!(
        side.aws.with(|world| world.tables[0].routes["0.0.0.0/0"].clone()),
        "igw-00000000000000001"
    );
    assert!(side.aws.with(|world| world.instances[0].interfaces[1].check));
    side.aws.with(|world| {
        world.instances[0].tags.insert("weir:leader".into(), "1".into());
        world.forbidden.push("ReplaceRoute".into());
    });
    let checks = examine(&side, &routes).await;
    assert_eq!(failed(&checks), ["ec2:ReplaceRoute"], "{checks:#?}");
    assert!(told(&checks, "leader").text.contains(OWN));
}
