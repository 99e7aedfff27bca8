//! Elastic Load Balancing: target groups and their targets.

use crate::answer::{Members, ServiceError, element, fail, get, list, need, page};
use crate::state::{AwsState, Group, StringMap};
use crate::target::Target;

/// Performs an operation; returns the content of its result element.
pub fn answer(
    cloud: &mut AwsState,
    operation: &str,
    request: &Members,
) -> Result<String, ServiceError> {
    match operation {
        "DescribeTargetGroups" => groups(cloud, request),
        "DescribeTargetGroupAttributes" => {
            let set = &cloud.group(need(request, "TargetGroupArn")?)?.attributes;
            Ok(attributes(set))
        }
        "DescribeLoadBalancerAttributes" => {
            let arn = need(request, "LoadBalancerArn")?;
            let found = cloud.balancers.iter().find(|b| b.arn == arn);
            found.map_or_else(no_balancer, |b| Ok(attributes(&b.attributes)))
        }
        "DescribeListeners" => {
            let arn = need(request, "LoadBalancerArn")?;
            let found = cloud.balancers.iter().find(|b| b.arn == arn);
            found.map_or_else(no_balancer, |b| {
                let (listener, balancer) =
                    (element("ListenerArn", &b.listener), element("LoadBalancerArn", &b.arn));
                Ok(format!("<Listeners><member>{listener}{balancer}</member></Listeners>"))
            })
        }
        "DescribeListenerAttributes" => {
            let arn = need(request, "ListenerArn")?;
            let found = cloud.balancers.iter().find(|b| b.listener == arn);
            found.map_or_else(
                || fail("ListenerNotFound", "One or more listeners not found"),
                |b| Ok(attributes(&b.listener_attributes)),
            )
        }
        "DescribeTargetHealth" => health(cloud, request),
        "RegisterTargets" => register(cloud, request),
        "DeregisterTargets" => deregister(cloud, request),
        _ => fail("InvalidAction", format!("unknown operation {operation}")),
    }
}

fn no_balancer<T>() -> Result<T, ServiceError> {
    fail("LoadBalancerNotFound", "One or more load balancers not found")
}

fn attributes(set: &StringMap) -> String {
    let each = set.iter().map(|(key, value)| {
        format!("<member>{}{}</member>", element("Key", key), element("Value", value))
    });
    format!("<Attributes>{}</Attributes>", each.collect::<String>())
}

fn groups(cloud: &mut AwsState, request: &Members) -> Result<String, ServiceError> {
    let requested = list(request, "TargetGroupArns.member", "");
    for arn in &requested {
        cloud.group(arn)?;
    }
    let selected = |g: &&Group| requested.is_empty() || requested.contains(&g.arn.as_str());
    let found: Vec<Group> = cloud.groups.iter().filter(selected).cloned().collect();
    let (shown, next) = page(found, get(request, "Marker"), cloud.page)?;
    let mut text = String::from("<TargetGroups>");
    for g in shown {
        let balancers = cloud.balancers.iter().filter(|b| b.group == g.arn);
        let balancers: String = balancers.map(|b| element("member", &b.arn)).collect();
        text += "<member>";
        text += &element("TargetGroupArn", &g.arn);
        text += &element("TargetGroupName", &g.name);
        text += &element("Protocol", &g.protocol);
        text += &element("Port", g.port);
        text += &element("TargetType", &g.target_type);
        text += &element("HealthCheckEnabled", true);
        text += &element("HealthCheckProtocol", &g.health_protocol);
        text += &element("HealthCheckPort", &g.health_port);
        text += &element("HealthCheckPath", &g.health_path);
        text += &element("HealthCheckIntervalSeconds", g.interval);
        text += &element("HealthCheckTimeoutSeconds", g.timeout);
        text += &element("HealthyThresholdCount", g.healthy);
        text += &element("UnhealthyThresholdCount", g.unhealthy);
        text += &format!("<LoadBalancerArns>{balancers}</LoadBalancerArns></member>");
    }
    let next = next.map(|n| element("NextMarker", n)).unwrap_or_default();
    Ok(text + "</TargetGroups>" + &next)
}

fn health(cloud: &mut AwsState, request: &Members) -> Result<String, ServiceError> {
    let arn = need(request, "TargetGroupArn")?;
    let used = cloud.is_used(arn);
    let zones: StringMap = cloud.instances.iter().map(|i| (i.id.clone(), i.zone.clone())).collect();
    let group = cloud.group(arn)?;
    let requested = list(request, "Targets.member", ".Id");
    let mut text = String::from("<TargetHealthDescriptions>");
    let mut one = |id: &str, state: &str, why: Option<(&str, &str)>| {
        let zone = zones.get(id).map(|z| element("AvailabilityZone", z)).unwrap_or_default();
        let why = why.map(|(r, d)| element("Reason", r) + &element("Description", d));
        text += &format!(
            "<member><Target>{}{}{zone}</Target>{}<TargetHealth>{}{}</TargetHealth></member>",
            element("Id", id),
            element("Port", group.port),
            element("HealthCheckPort", &group.health_port),
            element("State", state),
            why.unwrap_or_default(),
        );
    };
    for target in &group.targets {
        if requested.is_empty() || requested.contains(&target.id.as_str()) {
            let state = target.reported(used);
            one(&target.id, state.as_str(), state.reason());
        }
    }
    for id in requested.iter().filter(|id| group.targets.iter().all(|t| t.id != **id)) {
        one(id, "unused", Some(("Target.NotRegistered", "Target is not registered")));
    }
    Ok(text + "</TargetHealthDescriptions>")
}

fn register(cloud: &mut AwsState, request: &Members) -> Result<String, ServiceError> {
    let (now, good) = (cloud.now, cloud.good);
    let known: Vec<String> = cloud.instances.iter().map(|i| i.id.clone()).collect();
    let group = cloud.group(need(request, "TargetGroupArn")?)?;
    let settings = group.health_check();
    let ids = list(request, "Targets.member", ".Id");
    if ids.is_empty() {
        return fail("ValidationError", "Targets is required");
    }
    for port in list(request, "Targets.member", ".Port") {
        if port != "6081" {
            return fail("ValidationError", "The port of GENEVE targets is 6081");
        }
    }
    for id in ids {
        let possible = match group.target_type.as_str() {
            "instance" => known.iter().any(|k| k == id),
            _ => id.parse::<std::net::IpAddr>().is_ok(),
        };
        if !possible {
            return fail("InvalidTarget", format!("The target '{id}' is not valid"));
        }
        let full = group.targets.len() >= group.limit;
        match group.targets.iter_mut().find(|t| t.id == id) {
            // A draining target that is registered again starts over.
            Some(target) if target.until.is_some() => {
                *target = Target::new(id, target.good, now, settings);
            }
            Some(_) => {}
            None if full => {
                return fail("TooManyTargets", "You've reached the limit of targets");
            }
            None => group.targets.push(Target::new(id, good, now, settings)),
        }
    }
    Ok(String::new())
}

fn deregister(cloud: &mut AwsState, request: &Members) -> Result<String, ServiceError> {
    let now = cloud.now;
    let group = cloud.group(need(request, "TargetGroupArn")?)?;
    let settings = group.health_check();
    for id in list(request, "Targets.member", ".Id") {
        let Some(target) = group.targets.iter_mut().find(|t| t.id == id) else {
            return fail("InvalidTarget", format!("The target '{id}' is not registered"));
        };
        target.drain(now, settings);
    }
    Ok(String::new())
}
