//! Target groups and their targets, through AWS's SDKs: lookup by tag, reads of groups, attributes
//! and target health, registration and deregistration.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_elasticloadbalancingv2::types as elb;
use aws_sdk_resourcegroupstagging::types::TagFilter;

use super::account::Account;
use super::types::{Attributes, Group, HealthCheck, Stickiness, Target, TargetState, TargetType};
use clouds::failure::{AttemptError, Operation};

const fn elbv2(name: &'static str) -> Operation {
    Operation::new("elasticloadbalancing", name)
}

const GET_RESOURCES: Operation = Operation::new("tag", "GetResources");
const GROUPS: Operation = elbv2("DescribeTargetGroups");
const GROUP_ATTRIBUTES: Operation = elbv2("DescribeTargetGroupAttributes");
const BALANCER_ATTRIBUTES: Operation = elbv2("DescribeLoadBalancerAttributes");
const LISTENERS: Operation = elbv2("DescribeListeners");
const LISTENER_ATTRIBUTES: Operation = elbv2("DescribeListenerAttributes");
const HEALTH: Operation = elbv2("DescribeTargetHealth");
const REGISTER: Operation = elbv2("RegisterTargets");
const DEREGISTER: Operation = elbv2("DeregisterTargets");

/// Resource type of target groups in the tagging API.
const RESOURCE_TYPE: &str = "elasticloadbalancing:targetgroup";
/// Error code for a target that is not in the group, of both DescribeTargetHealth and
/// DeregisterTargets.
const NO_SUCH_TARGET: &str = "InvalidTarget";

pub(super) async fn groups_by_tag(
    account: &Account,
    key: &str,
    value: &str,
) -> Result<Vec<String>, AttemptError> {
    let (mut found, mut token) = (Vec::new(), None::<String>);
    loop {
        let filter = TagFilter::builder().key(key).values(value).build();
        let request = account
            .tagging
            .get_resources()
            .tag_filters(filter)
            .resource_type_filters(RESOURCE_TYPE);
        let request = request.set_pagination_token(token.clone());
        let answer = account.sdk(GET_RESOURCES, request.send()).await?;
        let page = answer.resource_tag_mapping_list();
        found.extend(page.iter().filter_map(|r| r.resource_arn()).map(str::to_owned));
        token = next(GET_RESOURCES, token, answer.pagination_token)?;
        if token.is_none() {
            return Ok(found);
        }
    }
}

/// Returns the token of the next page, if there is one.
fn next(
    operation: Operation,
    last: Option<String>,
    next: Option<String>,
) -> Result<Option<String>, AttemptError> {
    match next.filter(|next| !next.is_empty()) {
        // Another request would return the same page again.
        Some(same) if Some(&same) == last.as_ref() => {
            Err(operation.malformed("the next page has the same token"))
        }
        next => Ok(next),
    }
}

pub(super) async fn groups(account: &Account, arns: &[String]) -> Result<Vec<Group>, AttemptError> {
    let (mut found, mut marker) = (Vec::new(), None::<String>);
    loop {
        let arns = Some(arns.to_vec()).filter(|arns| !arns.is_empty());
        let request = account.elb.describe_target_groups().set_target_group_arns(arns);
        let answer = account.sdk(GROUPS, request.set_marker(marker.clone()).send()).await?;
        for item in answer.target_groups() {
            found.push(group(item).map_err(|why| GROUPS.malformed(why))?);
        }
        marker = next(GROUPS, marker, answer.next_marker)?;
        if marker.is_none() {
            return Ok(found);
        }
    }
}

fn group(item: &elb::TargetGroup) -> Result<Group, String> {
    let arn = item.target_group_arn().ok_or("a target group without an ARN")?.to_owned();
    let port = |port: i32| {
        u16::try_from(port).map_err(|_| format!("target group {arn}: invalid port {port}"))
    };
    let seconds = |seconds: Option<i32>, default: u64| {
        Duration::from_secs(seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(default))
    };
    let count = |count: Option<i32>, default: u32| {
        count.and_then(|c| u32::try_from(c).ok()).unwrap_or(default)
    };
    let health_port = match item.health_check_port() {
        None | Some("traffic-port") => None,
        Some(text) => Some(
            text.parse()
                .map_err(|_| format!("target group {arn}: invalid health check port `{text}`"))?,
        ),
    };
    let health = HealthCheck {
        protocol: item.health_check_protocol().map_or("TCP", |p| p.as_str()).to_owned(),
        port: health_port,
        path: item.health_check_path().unwrap_or_default().to_owned(),
        interval: seconds(item.health_check_interval_seconds(), 10),
        timeout: seconds(item.health_check_timeout_seconds(), 5),
        healthy_threshold: count(item.healthy_threshold_count(), 5),
        unhealthy_threshold: count(item.unhealthy_threshold_count(), 2),
    };
    Ok(Group {
        name: item.target_group_name().unwrap_or_default().to_owned(),
        protocol: item.protocol().map_or("", |p| p.as_str()).to_owned(),
        port: port(item.port().unwrap_or(0))?,
        target_type: match item.target_type() {
            Some(elb::TargetTypeEnum::Ip) => TargetType::Ip,
            // Instance is AWS's default.
            Some(elb::TargetTypeEnum::Instance) | None => TargetType::Instance,
            Some(_) => TargetType::Other,
        },
        health,
        load_balancers: item.load_balancer_arns().to_vec(),
        arn,
    })
}

pub(super) async fn attributes(
    account: &Account,
    group: &Group,
) -> Result<Attributes, AttemptError> {
    let mut set = BTreeMap::new();
    let request = account.elb.describe_target_group_attributes().target_group_arn(&group.arn);
    let answer = account.sdk(GROUP_ATTRIBUTES, request.send()).await?;
    merge(&mut set, answer.attributes().iter().map(|a| (a.key(), a.value())));
    for balancer in &group.load_balancers {
        let request = account.elb.describe_load_balancer_attributes().load_balancer_arn(balancer);
        let answer = account.sdk(BALANCER_ATTRIBUTES, request.send()).await?;
        merge(&mut set, answer.attributes().iter().map(|a| (a.key(), a.value())));
        let request = account.elb.describe_listeners().load_balancer_arn(balancer);
        // A gateway load balancer has a single listener, so there is no second page.
        let answer = account.sdk(LISTENERS, request.send()).await?;
        for arn in answer.listeners().iter().filter_map(|l| l.listener_arn()) {
            let request = account.elb.describe_listener_attributes().listener_arn(arn);
            let answer = account.sdk(LISTENER_ATTRIBUTES, request.send()).await?;
            merge(&mut set, answer.attributes().iter().map(|a| (a.key(), a.value())));
        }
    }
    parse_attributes(&set).map_err(|why| GROUP_ATTRIBUTES.malformed(why))
}

fn merge<'a>(
    set: &mut BTreeMap<String, String>,
    attributes: impl Iterator<Item = (Option<&'a str>, Option<&'a str>)>,
) {
    let complete = attributes.filter_map(|(key, value)| Some((key?.to_owned(), value?.to_owned())));
    set.extend(complete);
}

/// Converts attributes; a missing one gets AWS's default.
fn parse_attributes(set: &BTreeMap<String, String>) -> Result<Attributes, String> {
    let get = |key: &str| set.get(key).map(String::as_str);
    let on = |key: &str| get(key) == Some("true");
    let rebalance = |key: &str| get(key) == Some("rebalance");
    let seconds = |key: &str, default: u64| match get(key) {
        None => Ok(Duration::from_secs(default)),
        Some(text) => text
            .parse()
            .map(Duration::from_secs)
            .map_err(|_| format!("attribute {key} is `{text}`, which is not a number of seconds")),
    };
    Ok(Attributes {
        deregistration_delay: seconds("deregistration_delay.timeout_seconds", 300)?,
        rebalance_on_deregistration: rebalance("target_failover.on_deregistration"),
        rebalance_on_unhealthy: rebalance("target_failover.on_unhealthy"),
        reset_on_deregistration: on("send_tcp_reset.on_deregistration.enabled"),
        reset_on_unhealthy: on("send_tcp_reset.on_unhealthy.enabled"),
        stickiness: match get("stickiness.type").filter(|_| on("stickiness.enabled")) {
            Some("source_ip_dest_ip") => Stickiness::TwoTuple,
            Some("source_ip_dest_ip_proto") => Stickiness::ThreeTuple,
            _ => Stickiness::FiveTuple,
        },
        cross_zone: on("load_balancing.cross_zone.enabled"),
        tcp_idle: seconds("tcp.idle_timeout.seconds", 350)?,
        reset_on_idle: on("send_tcp_reset.on_idle_timeout.enabled"),
    })
}

fn by_id(id: &str) -> elb::TargetDescription {
    elb::TargetDescription::builder().id(id).build()
}

pub(super) async fn targets(
    account: &Account,
    group: &str,
    target_id: Option<&str>,
) -> Result<Vec<Target>, AttemptError> {
    let request = account.elb.describe_target_health().target_group_arn(group);
    let request = request.set_targets(target_id.map(|id| vec![by_id(id)]));
    let answer = match (account.sdk(HEALTH, request.send()).await, target_id) {
        (Err(failed), Some(id)) if failed.error.code == NO_SUCH_TARGET => {
            return Ok(vec![Target {
                id: id.to_owned(),
                state: TargetState::Unused,
                reason: Some("Target.NotRegistered".to_owned()),
                description: Some(failed.error.message),
                zone: None,
            }]);
        }
        (answer, _) => answer?,
    };
    let found = answer.target_health_descriptions().iter().map(target);
    found.collect::<Option<_>>().ok_or_else(|| HEALTH.malformed("a target without an id"))
}

fn target(item: &elb::TargetHealthDescription) -> Option<Target> {
    use elb::TargetHealthStateEnum as E;
    let (target, health) = (item.target()?, item.target_health());
    Some(Target {
        id: target.id()?.to_owned(),
        state: match health.and_then(|h| h.state()) {
            Some(E::Initial) => TargetState::Initial,
            Some(E::Healthy) => TargetState::Healthy,
            Some(E::Unhealthy) => TargetState::Unhealthy,
            Some(E::UnhealthyDraining) => TargetState::UnhealthyDraining,
            Some(E::Unused) => TargetState::Unused,
            Some(E::Draining) => TargetState::Draining,
            // `unavailable`, no state, or a state that AWS may add later.
            _ => TargetState::Unavailable,
        },
        reason: health.and_then(|h| h.reason()).map(|r| r.as_str().to_owned()),
        description: health.and_then(|h| h.description()).map(str::to_owned),
        zone: target.availability_zone().map(str::to_owned),
    })
}

pub(super) async fn register(account: &Account, group: &str, id: &str) -> Result<(), AttemptError> {
    let request = account.elb.register_targets().target_group_arn(group).targets(by_id(id));
    account.sdk(REGISTER, request.send()).await.map(|_| ())
}

pub(super) async fn deregister(
    account: &Account,
    group: &str,
    id: &str,
) -> Result<(), AttemptError> {
    let request = account.elb.deregister_targets().target_group_arn(group).targets(by_id(id));
    match account.sdk(DEREGISTER, request.send()).await {
        // The target is not registered, as desired.
        Err(failed) if failed.error.code == NO_SUCH_TARGET => Ok(()),
        result => result.map(|_| ()),
    }
}
