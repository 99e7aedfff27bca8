//! A small sample: one gateway load balancer, one target group, two instances.

use super::{
    AwsState, Balancer, Command, Group, Imds, Instance, Interface, Scaling, SecurityGroup,
    StringMap, Table,
};

/// Builds name-value pairs.
fn string_map<const N: usize>(pairs: [(&str, &str); N]) -> StringMap {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn interface(n: u8, index: u8, description: &str) -> Interface {
    Interface {
        id: format!("eni-0000000000000{n:02x}{index:02x}"),
        mac: format!("02:00:0a:00:{n:02x}:{index:02x}"),
        addresses: vec![format!("10.0.{index}.{}", 10 + n), format!("fd00:{index}::{n:x}")],
        subnet: format!("subnet-0000000000000000{index}"),
        description: description.to_owned(),
        tags: string_map([("Name", description)]),
        check: true,
        security_groups: vec!["sg-00000000000000001".to_owned()],
    }
}

fn instance(n: u8) -> Instance {
    let interfaces = ["management", "ingress", "egress"];
    let each = (0..).zip(interfaces).map(|(index, description)| interface(n, index, description));
    Instance {
        id: format!("i-000000000000000{n:02x}"),
        state: "running".to_owned(),
        zone: "eu-central-1a".to_owned(),
        vpc: "vpc-00000000000000001".to_owned(),
        tags: string_map([("Name", "weir"), ("weir:cluster", "north")]),
        interfaces: each.collect(),
    }
}

/// The target group, and the load balancer in front of it.
fn balanced(target_type: &str) -> (Group, Balancer) {
    let elb = "arn:aws:elasticloadbalancing:eu-central-1:123456789012";
    let group = Group {
        arn: format!("{elb}:targetgroup/north/0123456789abcdef"),
        name: "north".to_owned(),
        protocol: "GENEVE".to_owned(),
        port: 6081,
        target_type: target_type.to_owned(),
        health_protocol: "HTTP".to_owned(),
        health_port: "8080".to_owned(),
        health_path: "/healthz".to_owned(),
        interval: 10,
        timeout: 5,
        healthy: 3,
        unhealthy: 2,
        attributes: string_map([
            ("deregistration_delay.timeout_seconds", "120"),
            ("stickiness.enabled", "false"),
            ("stickiness.type", "source_ip_dest_ip_proto"),
            ("target_failover.on_deregistration", "no_rebalance"),
            ("target_failover.on_unhealthy", "no_rebalance"),
            ("send_tcp_reset.on_unhealthy.enabled", "false"),
            ("send_tcp_reset.on_deregistration.enabled", "true"),
        ]),
        tags: string_map([("weir:cluster", "north")]),
        targets: Vec::new(),
        limit: 300,
    };
    let balancer = Balancer {
        arn: format!("{elb}:loadbalancer/gwy/north/0123456789abcdef"),
        attributes: string_map([("load_balancing.cross_zone.enabled", "true")]),
        listener: format!("{elb}:listener/gwy/north/0123456789abcdef/0123456789abcdef"),
        listener_attributes: string_map([
            ("tcp.idle_timeout.seconds", "600"),
            ("send_tcp_reset.on_idle_timeout.enabled", "true"),
        ]),
        group: group.arn.clone(),
    };
    (group, balancer)
}

/// The main route table, whose default route points to the internet.
fn table() -> Table {
    Table {
        id: "rtb-00000000000000001".to_owned(),
        vpc: "vpc-00000000000000001".to_owned(),
        main: true,
        subnets: vec!["subnet-00000000000000001".to_owned()],
        routes: string_map([("10.0.0.0/16", "local"), ("0.0.0.0/0", "igw-00000000000000001")]),
    }
}

/// The Auto Scaling group of both instances, with a termination hook.
fn scaling(instances: &[Instance]) -> Scaling {
    let states = instances.iter().map(|i| (i.id.clone(), "InService".to_owned()));
    let hook = "autoscaling:EC2_INSTANCE_TERMINATING".to_owned();
    Scaling {
        name: "weir-north".to_owned(),
        instances: states.collect(),
        hooks: vec![("leave".to_owned(), hook, 60, 3600)],
        deadlines: Default::default(),
    }
}

/// Admits GENEVE and health checks from the VPC.
fn security_group() -> SecurityGroup {
    let ports = |first, last| Some((first, last));
    let ingress = vec![
        ("udp".to_owned(), ports(6081, 6081), "10.0.0.0/16".to_owned()),
        ("tcp".to_owned(), ports(8080, 8080), "10.0.0.0/16".to_owned()),
        ("-1".to_owned(), None, "fd00::/16".to_owned()),
    ];
    SecurityGroup { id: "sg-00000000000000001".to_owned(), ingress }
}

impl AwsState {
    /// Returns the sample with a group of this target type (`instance`, `ip`).
    pub fn sample(target_type: &str) -> AwsState {
        let (group, balancer) = balanced(target_type);
        let instances = vec![instance(1), instance(2)];
        let scaling = scaling(&instances);
        AwsState {
            now: Default::default(),
            region: "eu-central-1".to_owned(),
            account: "123456789012".to_owned(),
            keys: string_map([("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")]),
            page: None,
            good: true,
            groups: vec![group],
            balancers: vec![balancer],
            instances,
            security_groups: vec![security_group()],
            tables: vec![table()],
            scaling: vec![scaling],
            commands: Vec::<Command>::new(),
            forbidden: Vec::new(),
            imds: Imds {
                mode: "on".to_owned(),
                lifecycle: Some("InService".to_owned()),
                spot: None,
                rebalance: None,
                tokens: 0,
                expired: 0,
            },
        }
    }
}
