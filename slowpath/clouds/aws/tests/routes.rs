//! Tests of `aws.mode = "routes"` against the emulator: leader election, and the targets of the
//! default routes.
#![expect(clippy::unwrap_used, reason = "a test ends at the first failure")]

use std::time::Duration;

use aws::leader::LeaderError;
use aws::routes::{Round, RoutesError, round};
use aws::types::{Failure, Identity};
use cloud_emulators::faults::{Fault, Rule};
use config::checked::{Aws as Settings, AwsLifecycleSettings, AwsMode, AwsRoles, OnLost};

mod fixture;
use fixture::{Fixture, fixture};

const FIRST: &str = "i-00000000000000001";
const SECOND: &str = "i-00000000000000002";
const FIRST_ENI: &str = "eni-00000000000000101";
const SECOND_ENI: &str = "eni-00000000000000201";
const DEFAULT: &str = "0.0.0.0/0";

fn settings() -> Settings {
    let minute = Duration::from_secs(60);
    Settings {
        mode: AwsMode::Routes { cluster: "north".into() },
        tag_prefix: "weir".into(),
        roles: AwsRoles::default(),
        lifecycle: AwsLifecycleSettings {
            on_lost: OnLost::Repair,
            drain_cap: minute,
            idle: minute,
            hook: false,
        },
    }
}

/// Starts an emulator whose two instances have a priority; the first has the higher one.
async fn pair() -> Fixture {
    let env = fixture("ip").await;
    env.aws.with(|cloud| {
        for (instance, priority) in cloud.instances.iter_mut().zip(["20", "10"]) {
            instance.tags.insert("weir:leader".into(), priority.into());
        }
    });
    env
}

/// Runs a round as the instance `id`, with the interfaces of the first instance in its metadata.
async fn round_of(env: &Fixture, id: &str, able: bool) -> Round {
    let own = env.metadata.identity().await.unwrap();
    let own = Identity { instance_id: id.to_owned(), ..own };
    round(&env.account, &own, &settings(), &[], able).await
}

/// Returns the target of the default route.
fn default_route_target(env: &Fixture) -> String {
    env.aws.with(|cloud| cloud.tables[0].routes[DEFAULT].clone())
}

/// Returns the number of ReplaceRoute calls since the calls were last taken.
fn writes(env: &Fixture) -> usize {
    env.aws.take_calls().iter().filter(|call| call.operation == "ReplaceRoute").count()
}

fn finding_names(round: &Round) -> Vec<&str> {
    round.findings.iter().map(|finding| finding.name).collect()
}

#[tokio::test]
async fn the_leader_replaces_the_routes_once_and_a_follower_writes_none() {
    let env = pair().await;
    let follower = round_of(&env, SECOND, true).await;
    assert_eq!((follower.leader.as_deref(), &follower.error), (Some(FIRST), &None));
    assert_eq!((writes(&env), default_route_target(&env).as_str()), (0, "igw-00000000000000001"));
    let states: Vec<_> = follower.peers.iter().map(|p| (p.id.as_str(), p.state.as_str())).collect();
    assert_eq!(states, [(FIRST, "leading"), (SECOND, "running")]);

    let leader = round_of(&env, FIRST, true).await;
    assert_eq!(leader.error, None);
    assert_eq!(
        (leader.ingress.as_str(), default_route_target(&env).as_str()),
        (FIRST_ENI, FIRST_ENI)
    );
    assert_eq!((leader.replaced.len(), writes(&env)), (1, 1));
    assert!(leader.findings.iter().any(|f| f.text.contains("before at igw-00000000000000001")));

    let again = round_of(&env, FIRST, true).await;
    assert!(again.replaced.is_empty() && again.findings.is_empty(), "{again:?}");
    assert_eq!(writes(&env), 0, "a correct route is not written");
}

#[tokio::test]
async fn the_source_destination_check_of_both_arms_is_disabled_once() {
    let env = pair().await;
    let first = round_of(&env, FIRST, true).await;
    assert_eq!(finding_names(&first).iter().filter(|n| **n == "source-dest-check-off").count(), 2);
    let checks = |n: usize| {
        env.aws
            .with(|cloud| cloud.instances[n].interfaces.iter().map(|i| i.check).collect::<Vec<_>>())
    };
    assert_eq!(
        checks(0),
        [true, false, false],
        "the source/destination check of the management interface is not changed"
    );
    assert_eq!(checks(1), [true, true, true], "the checks of a peer are not changed");
    env.aws.take_calls();
    round_of(&env, FIRST, true).await;
    let calls = env.aws.take_calls();
    assert!(calls.iter().all(|call| call.operation != "ModifyNetworkInterfaceAttribute"));

    let denied = pair().await;
    denied.aws.with(|cloud| cloud.forbidden.push("ModifyNetworkInterfaceAttribute".into()));
    let round = round_of(&denied, FIRST, true).await;
    let stays = round.findings.iter().find(|f| f.name == "source-dest-check-on").unwrap();
    assert!(stays.remedy.contains("ec2:ModifyNetworkInterfaceAttribute"), "{}", stays.remedy);
    assert_eq!(default_route_target(&denied), FIRST_ENI, "the routes are replaced nevertheless");
}

#[tokio::test]
async fn the_next_leader_takes_the_routes_over() {
    let env = pair().await;
    round_of(&env, FIRST, true).await;
    env.aws.with(|cloud| cloud.instances[0].state = "shutting-down".into());
    let next = round_of(&env, SECOND, true).await;
    assert_eq!(
        (next.leader.as_deref(), default_route_target(&env).as_str()),
        (Some(SECOND), SECOND_ENI)
    );
    env.aws.with(|cloud| cloud.instances[0].state = "running".into());
    let back = round_of(&env, FIRST, true).await;
    assert_eq!(
        (back.leader.as_deref(), default_route_target(&env).as_str()),
        (Some(FIRST), FIRST_ENI)
    );
}

#[tokio::test]
async fn without_a_priority_there_is_no_leader_and_no_write() {
    let env = fixture("ip").await;
    let lost = round_of(&env, FIRST, true).await;
    let none = |error: &Option<RoutesError>| {
        matches!(error, Some(RoutesError::Leader(LeaderError::NoPriorityAssigned { .. })))
    };
    assert!(none(&lost.error) && lost.leader.is_none(), "{lost:?}");
    assert_eq!((lost.peers.len(), writes(&env)), (2, 0));
    env.aws.with(|cloud| {
        cloud.instances[1].tags.insert("weir:leader".into(), "1".into());
    });
    let found = round_of(&env, SECOND, true).await;
    assert_eq!(found.leader.as_deref(), Some(SECOND));
    assert!(found.findings.iter().any(|f| f.text.contains(FIRST) && f.text.contains("no tag")));
}

#[tokio::test]
async fn changed_routes_are_restored_unless_the_leader_is_unable() {
    let env = pair().await;
    round_of(&env, FIRST, true).await;
    let overwrite_routes = |target: &str| {
        env.aws.with(|cloud| {
            cloud.tables[0].routes.insert(DEFAULT.into(), target.into());
            cloud.tables[0].routes.insert("::/0".into(), "eigw-1".into());
        });
    };
    overwrite_routes("igw-00000000000000001");
    env.aws.take_calls();
    let unable = round_of(&env, FIRST, false).await;
    assert_eq!((finding_names(&unable), writes(&env)), (vec!["leader-not-able"], 0));
    let able = round_of(&env, FIRST, true).await;
    assert_eq!((default_route_target(&env).as_str(), writes(&env)), (FIRST_ENI, 2));
    assert_eq!(able.replaced[1].destination, "::/0", "IPv6 where the table has a default route");
    assert_eq!(env.aws.with(|cloud| cloud.tables[0].routes["::/0"].clone()), FIRST_ENI);
    // A target that no longer exists is reported as no target.
    env.aws.with(|cloud| cloud.instances[0].interfaces[1].id = "eni-00000000000000999".into());
    let gone = round_of(&env, FIRST, true).await;
    assert!(gone.findings.iter().any(|f| f.text.contains("before at no target")), "{gone:?}");
}

#[tokio::test]
async fn ingress_subnets_use_their_own_table_or_the_main_one() {
    let env = pair().await;
    env.aws.with(|cloud| {
        cloud.instances[1].interfaces[1].subnet = "subnet-far".into();
        let mut other = cloud.tables[0].clone();
        (other.id, other.main) = ("rtb-far".into(), false);
        other.subnets = vec!["subnet-far".into()];
        let mut unused = other.clone();
        (unused.id, unused.subnets) = ("rtb-unused".into(), vec!["subnet-unused".into()]);
        // The first subnet has no associated table, so the main table applies.
        cloud.tables[0].subnets.clear();
        cloud.tables.extend([other, unused]);
    });
    let round = round_of(&env, FIRST, true).await;
    let tables: Vec<_> = round.replaced.iter().map(|to| to.table.as_str()).collect();
    assert_eq!(tables, ["rtb-00000000000000001", "rtb-far"], "{round:?}");
    env.aws.with(|cloud| cloud.tables[1].routes.remove(DEFAULT));
    let missing = round_of(&env, FIRST, true).await;
    assert_eq!(finding_names(&missing), ["route-missing"]);
    assert!(missing.findings[0].text.contains("rtb-far"));
    env.aws.with(|cloud| cloud.instances[1].interfaces[1].description.clear());
    let unmarked = round_of(&env, FIRST, true).await;
    assert_eq!(finding_names(&unmarked), ["peer-without-ingress"]);
}

#[tokio::test]
async fn a_denied_operation_names_the_missing_permission() {
    let env = pair().await;
    env.aws.fault(Rule::first(2, "DescribeInstances", Fault::Status(503)));
    env.aws.with(|cloud| cloud.forbidden.push("ReplaceRoute".into()));
    let round = round_of(&env, FIRST, true).await;
    assert_eq!(round.leader.as_deref(), Some(FIRST), "DescribeInstances is retried after 503");
    let Some(RoutesError::Call(error)) = round.error else { unreachable!("{round:?}") };
    assert!(error.kind == Failure::Denied && error.message.contains("ec2:ReplaceRoute"), "{error}");
    assert_eq!(default_route_target(&env), "igw-00000000000000001");
    env.aws.with(|cloud| cloud.instances[0].interfaces[1].description.clear());
    let nowhere = round_of(&env, FIRST, true).await;
    let text = nowhere.error.unwrap().to_string();
    assert!(text.contains("aws.ingress") && text.contains("weir:role"), "{text}");
}
