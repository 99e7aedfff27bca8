//! Checks the wire format against moto (PyPI), an emulator of AWS that is independent of Weir. Moto
//! has no `initial` and `draining` states, no throttling and no check of signatures; Weir's own
//! emulator has them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first failure")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use patience::eventually_within;

use aws::account::{Account, Settings};
use aws::call::{Aws, RouteReplacement};
use aws::signed::Members;
use aws::types::{Failure, TargetState};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use clouds::failure::Operation;
use clouds::retry::Policy;

/// Returns the path of `moto_server`: that in the environment variable `MOTO`, else the one that
/// `make setup` installs.
fn program() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/moto/bin/moto_server");
    std::env::var_os("MOTO").map_or(own, PathBuf::from)
}

struct Moto(Child);

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the server, and waits until it listens.
fn start_moto() -> (Moto, String) {
    let program = program();
    assert!(program.exists(), "{} is missing: type `make setup`", program.display());
    let free = patience::ports::free_port();
    let mut command = Command::new(program);
    command.args(["-H", "127.0.0.1", "-p", &free.to_string()]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let moto = Moto(child);
    eventually_within(Duration::from_secs(60), "moto to listen", || {
        let connected = std::net::TcpStream::connect(("127.0.0.1", free));
        connected.map_err(|error| error.to_string())
    });
    (moto, format!("http://127.0.0.1:{free}"))
}

/// Sends a request that only this test needs, and returns the text of the first XML element named
/// `element` in the response.
async fn send(
    account: &Account,
    service: &'static str,
    operation: &'static str,
    members: Members,
    element: &str,
) -> String {
    let version = if service == "ec2" { "2016-11-15" } else { "2015-12-01" };
    let body_spec = members.into_body(version);
    let text = account.signed(Operation::new(service, operation), &body_spec).await.unwrap();
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let inside = text.split(&open).nth(1).and_then(|rest| rest.split(&close).next());
    inside.unwrap_or_else(|| panic!("no {element} in {text}")).to_owned()
}

#[tokio::test]
async fn tagging_elb_ec2_and_ssm_operations_work_against_moto() {
    let (_moto, url) = start_moto();
    let key = Credentials::new("AKIDEXAMPLE", "secret", None, None, "moto");
    let (_cancel, cancel) = tokio::sync::watch::channel(false);
    let settings = Settings {
        region: Some("eu-central-1".into()),
        endpoint: Some(url),
        credentials: Some(SharedCredentialsProvider::new(key)),
        timeout: Duration::from_secs(30),
        policy: Policy::ONCE,
        seed: 1,
    };
    let account = Account::load(settings, cancel).await.unwrap();
    let a = &account;
    let with = |name: &str, value: &str| Members::default().with(name, value);
    let vpc = send(a, "ec2", "CreateVpc", with("CidrBlock", "10.0.0.0/16"), "vpcId").await;
    let subnet = with("VpcId", &vpc).with("CidrBlock", "10.0.1.0/24");
    let subnet = send(a, "ec2", "CreateSubnet", subnet, "subnetId").await;
    let run = with("ImageId", "ami-12c6146b").with("MinCount", 1).with("MaxCount", 1);
    let run = run.with("SubnetId", &subnet).with("InstanceType", "c5n.large");
    let instance = send(a, "ec2", "RunInstances", run, "instanceId").await;
    let tag = with("ResourceId.1", &instance).with("Tag.1.Key", "weir:cluster");
    send(a, "ec2", "CreateTags", tag.with("Tag.1.Value", "north"), "requestId").await;

    let elb = "elasticloadbalancing";
    let group = with("Name", "north").with("Protocol", "GENEVE").with("Port", 6081);
    let group = group.with("VpcId", &vpc).with("TargetType", "instance");
    let group = group.with("HealthCheckProtocol", "TCP").with("HealthCheckPort", 80);
    let group = group.with("Tags.member.1.Key", "weir:cluster");
    let group = group.with("Tags.member.1.Value", "north");
    let arn = send(a, elb, "CreateTargetGroup", group, "TargetGroupArn").await;
    assert_eq!(
        account.groups_by_tag("weir:cluster", "north").await.unwrap(),
        *std::slice::from_ref(&arn)
    );
    assert!(account.groups_by_tag("weir:cluster", "south").await.unwrap().is_empty());
    let group = account.groups(std::slice::from_ref(&arn)).await.unwrap().remove(0);
    assert_eq!((group.protocol.as_str(), group.port), ("GENEVE", 6081));
    let set = account.attributes(&group).await.unwrap();
    assert_eq!(set.deregistration_delay, Duration::from_secs(300));
    account.register(&arn, &instance).await.unwrap();
    account.register(&arn, &instance).await.unwrap();
    let targets = account.targets(&arn, None).await.unwrap();
    assert_eq!((targets.len(), targets[0].id.as_str()), (1, instance.as_str()));
    assert_eq!(targets[0].state, TargetState::Healthy);
    account.deregister(&arn, &instance).await.unwrap();
    account.deregister(&arn, &instance).await.unwrap();
    let gone = account.targets(&arn, Some(&instance)).await.unwrap();
    assert_eq!(gone[0].state, TargetState::Unused);
    let absent = arn.replace("north", "south");
    assert_eq!(account.targets(&absent, None).await.unwrap_err().kind, Failure::Absent);

    let peers = account.instances_by_tag(&vpc, "weir:cluster", Some("north")).await.unwrap();
    assert_eq!((peers.len(), peers[0].id.as_str()), (1, instance.as_str()));
    let unknown = account.instances(&["i-00000000000000000".to_owned()]).await.unwrap_err();
    assert_eq!(unknown.kind, Failure::Absent);
    let nic = account.network_interfaces(&instance).await.unwrap().remove(0);
    assert!(nic.source_dest_check && nic.vpc_id == vpc && nic.device_index == Some(0));
    assert_eq!(Some(nic.primary_address), peers[0].address);
    account.set_source_dest_check(&nic.id, false, false).await.unwrap();
    assert!(!account.network_interfaces(&instance).await.unwrap()[0].source_dest_check);
    let rules = account.security_groups(&nic.security_groups).await.unwrap();
    assert_eq!(rules[0].id, nic.security_groups[0]);

    let table = account.route_tables(&vpc).await.unwrap().remove(0);
    assert!(table.main);
    let second = with("VpcId", &vpc).with("CidrBlock", "10.0.2.0/24");
    let second = send(a, "ec2", "CreateSubnet", second, "subnetId").await;
    let other = with("SubnetId", &second);
    let other = send(a, "ec2", "CreateNetworkInterface", other, "networkInterfaceId").await;
    let default_route = with("RouteTableId", &table.id).with("DestinationCidrBlock", "0.0.0.0/0");
    send(a, "ec2", "CreateRoute", default_route.with("NetworkInterfaceId", &other), "return").await;
    let to =
        RouteReplacement { table: table.id, destination: "0.0.0.0/0".into(), interface: nic.id };
    account.replace_route(&to, false).await.unwrap();
    let routes = account.route_tables(&vpc).await.unwrap().remove(0).routes;
    let route = routes.iter().find(|r| r.destination == "0.0.0.0/0").unwrap();
    assert_eq!(route.target.as_ref(), Some(&to.interface));

    let command = account.send_command(&instance, "uptime", Duration::from_secs(60)).await.unwrap();
    let done = account.invocation(&command, &instance).await.unwrap();
    assert_eq!((done.done, done.status.as_str()), (true, "Success"));
}
