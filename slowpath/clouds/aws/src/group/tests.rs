//! Target group selection, and its errors.

use std::time::Duration;

use super::*;
use crate::types::HealthCheck;

const ARN: &str = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/weir/0f";

pub(crate) fn group(target_type: TargetType) -> Group {
    Group {
        arn: ARN.into(),
        name: "weir".into(),
        protocol: "GENEVE".into(),
        port: 6081,
        target_type,
        health: HealthCheck {
            protocol: "HTTP".into(),
            port: Some(8080),
            path: "/".into(),
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            healthy_threshold: 5,
            unhealthy_threshold: 2,
        },
        load_balancers: vec!["arn:lb".into()],
    }
}

fn interface(device_number: u32, last: u8) -> Interface {
    Interface {
        mac: [2, 0, 0, 0, 0, last],
        id: format!("eni-{last}"),
        device_number,
        addresses: vec![[10, 0, 1, last].into(), [10, 0, 1, last + 100].into()],
        subnet_id: "subnet-1".into(),
        vpc_id: "vpc-1".into(),
        security_groups: vec![],
    }
}

fn identity() -> Identity {
    Identity {
        instance_id: "i-1".into(),
        region: "eu-central-1".into(),
        zone: "eu-central-1a".into(),
        account: "123456789012".into(),
        image_id: "ami-1".into(),
        instance_type: "c7gn.xlarge".into(),
        interfaces: vec![interface(0, 1), interface(1, 2)],
    }
}

#[track_caller]
fn mentions(error: GroupError, parts: &[&str]) {
    let text = error.to_string();
    parts.iter().for_each(|part| assert!(text.contains(part), "no {part:?} in: {text}"));
}

#[test]
fn group_errors_name_the_tag_and_the_groups_found() {
    let (key, value) = tag("weir", "prod");
    let find = |arns: &[&str]| {
        let arns: Vec<String> = arns.iter().map(|arn| (*arn).to_owned()).collect();
        by_tag(&arns, (&key, &value), "eu-central-1").map(str::to_owned)
    };
    assert_eq!(find(&[ARN]).as_deref(), Ok(ARN));
    mentions(find(&[]).unwrap_err(), &["no target group", "weir:cluster=prod", "eu-central-1"]);
    let several = find(&[ARN, "arn:2"]).unwrap_err();
    mentions(several, &["2 target groups", "weir:cluster=prod", ARN, "arn:2", "aws.target_group"]);
    let tcp = Group { protocol: "TCP".into(), ..group(TargetType::Ip) };
    mentions(by_arn(&[tcp], ARN).unwrap_err(), &[ARN, "protocol TCP", "GENEVE"]);
    mentions(by_arn(&[], ARN).unwrap_err(), &[ARN, "does not exist"]);
    assert_eq!(by_arn(&[group(TargetType::Ip)], ARN), Ok(&group(TargetType::Ip)));
}

#[test]
fn the_target_is_the_interface_with_the_ingress_ports_mac() {
    let registered = |kind, mac: u8, preferred: &[IpAddr]| {
        target_id(&group(kind), &identity(), [2, 0, 0, 0, 0, mac], preferred)
    };
    assert_eq!(registered(TargetType::Ip, 2, &[]).as_deref(), Ok("10.0.1.2"));
    let second = [[10, 0, 9, 9].into(), [10, 0, 1, 102].into()];
    assert_eq!(registered(TargetType::Ip, 2, &second).as_deref(), Ok("10.0.1.102"));
    assert_eq!(registered(TargetType::Instance, 1, &[]).as_deref(), Ok("i-1"));
    let not_primary = registered(TargetType::Instance, 2, &[]).unwrap_err();
    mentions(not_primary, &[ARN, "primary interface eni-1", "ingress port is eni-2", "type ip"]);
    mentions(registered(TargetType::Other, 1, &[]).unwrap_err(), &[ARN, "do not support"]);
    let unknown = registered(TargetType::Ip, 9, &[]).unwrap_err();
    mentions(unknown, &["02:00:00:00:00:09", "i-1", "eni-1 02:00:00:00:00:01", "eni-2"]);
    let mut identity = identity();
    identity.interfaces[0].addresses = vec!["fd00::1".parse().unwrap()];
    let v6 = target_id(&group(TargetType::Ip), &identity, [2, 0, 0, 0, 0, 1], &[]);
    mentions(v6.unwrap_err(), &["eni-1", "no IPv4 address"]);
}
