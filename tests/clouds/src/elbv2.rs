//! Elastic Load Balancing: target groups and their targets.

use crate::answer::{Members, Refusal, element, get, list, need, page, refuse};
use crate::target::Target;
use crate::world::{Group, Words, World};

/// Performs an operation; returns the content of its result element.
pub fn answer(world: &mut World, operation: &str, asked: &Members) -> Result<String, Refusal> {
    match operation {
        "DescribeTargetGroups" => groups(world, asked),
        "DescribeTargetGroupAttributes" => {
            let set = &world.group(need(asked, "TargetGroupArn")?)?.attributes;
            Ok(attributes(set))
        }
        "DescribeLoadBalancerAttributes" => {
            let arn = need(asked, "LoadBalancerArn")?;
            let found = world.balancers.iter().find(|b| b.arn == arn);
            found.map_or_else(no_balancer, |b| Ok(attributes(&b.attributes)))
        }
        "DescribeListeners" => {
            let arn = need(asked, "LoadBalancerArn")?;
            let found = world.balancers.iter().find(|b| b.arn == arn);
            found.map_or_else(no_balancer, |b| {
                let (listener, balancer) =
                    (element("ListenerArn", &b.listener), element("LoadBalancerArn", &b.arn));
                Ok(format!("<Listeners><member>{listener}{balancer}</member></Listeners>"))
            })
        }
        "DescribeListenerAttributes" => {
            let arn = need(asked, "ListenerArn")?;
            let found = world.balancers.iter().find(|b| b.listener == arn);
            found.map_or_else(
                || refuse("ListenerNotFound", "One or more listeners not found"),
                |b| Ok(attributes(&b.listener_attributes)),
            )
        }
        "DescribeTargetHealth" => health(world, asked),
        "RegisterTargets" => register(world, asked),
        "DeregisterTargets" => deregister(world, asked),
        _ => refuse("InvalidAction", format!("no operation {operation}")),
    }
}

fn no_balancer<T>() -> Result<T, Refusal> {
    refuse("LoadBalancerNotFound", "One or more load balancers not found")
}

fn attributes(set: &Words) -> String {
    let each = set.iter().map(|(key, value)| {
        format!("<member>{}{}</member>", element("Key", key), element("Value", value))
    });
    format!("<Attributes>{}</Attributes>", each.collect::<String>())
}

fn groups(world: &mut World, asked: &Members) -> Result<String, Refusal> {
    let wanted = list(asked, "TargetGroupArns.member", "");
    for arn in &wanted {
        world.group(arn)?;
    }
    let meant = |g: &&Group| wanted.is_empty() || wanted.contains(&g.arn.as_str());
    let found: Vec<Group> = world.groups.iter().filter(meant).cloned().collect();
    let (shown, next) = page(found, get(asked, "Marker"), world.page)?;
    let mut text = String::from("<TargetGroups>");
    for g in shown {
        let balancers = world.balancers.iter().filter(|b| b.group == g.arn);
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

fn health(world: &mut World, asked: &Members) -> Result<String, Refusal> {
    let arn = need(asked, "TargetGroupArn")?;
    let used = world.used(arn);
    let zones: Words = world.instances.iter().map(|i| (i.id.clone(), i.zone.clone())).collect();
    let group = world.group(arn)?;
    let wanted = list(asked, "Targets.member", ".Id");
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
        if wanted.is_empty() || wanted.contains(&target.id.as_str()) {
            let state = target.told(used);
            one(&target.id, state.word(), state.why());
        }
    }
    for id in wanted.iter().filter(|id| group.targets.iter().all(|t| t.id != **id)) {
        one(id, "unused", Some(("Target.NotRegistered", "Target is not registered")));
    }
    Ok(text + "</TargetHealthDescriptions>")
}

fn register(world: &mut World, asked: &Members) -> Result<String, Refusal> {
    let (now, good) = (world.now, world.good);
    let known: Vec<String> = world.instances.iter().map(|i| i.id.clone()).collect();
    let group = world.group(need(asked, "TargetGroupArn")?)?;
    let rhythm = group.rhythm();
    let ids = list(asked, "Targets.member", ".Id");
    if ids.is_empty() {
        return refuse("ValidationError", "Targets is required");
    }
    for port in list(asked, "Targets.member", ".Port") {
        if port != "6081" {
            return refuse("ValidationError", "The port of GENEVE targets is 6081");
        }
    }
    for id in ids {
        let possible = match group.target_type.as_str() {
            "instance" => known.iter().any(|k| k == id),
            _ => id.parse::<std::net::IpAddr>().is_ok(),
        };
        if !possible {
            return refuse("InvalidTarget", format!("The target '{id}' is not valid"));
        }
        let full = group.targets.len() >= group.limit;
        match group.targets.iter_mut().find(|t| t.id == id) {
            // A draining target is registered again, and starts over.
            Some(target) if target.until.is_some() => {
                *target = Target::new(id, target.good, now, rhythm);
            }
            Some(_) => {}
            None if full => {
                return refuse("TooManyTargets", "You've reached the limit of targets");
            }
            None => group.targets.push(Target::new(id, good, now, rhythm)),
        }
    }
    Ok(String::new())
}

fn deregister(world: &mut World, asked: &Members) -> Result<String, Refusal> {
    let now = world.now;
    let group = world.group(need(asked, "TargetGroupArn")?)?;
    let rhythm = group.rhythm();
    for id in list(asked, "Targets.member", ".Id") {
        let Some(target) = group.targets.iter_mut().find(|t| t.id == id) else {
            return refuse("InvalidTarget", format!("The target '{id}' is not registered"));
        };
        target.leave(now, rhythm);
    }
    Ok(String::new())
}
