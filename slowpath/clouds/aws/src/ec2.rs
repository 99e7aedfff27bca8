//! EC2: instances, their interfaces, and the routes to them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::account::Account;
use super::call::Pointed;
use super::signed::{Members, xml};
use super::told::NetworkInterface;
use clouds::failure::{Operation, Setback};

mod answers;

const VERSION: &str = "2016-11-15";
/// What EC2 answers to a dry run that would have been done.
const WOULD_DO: &str = "DryRunOperation";

const DESCRIBE_INSTANCES: Operation = Operation::new("ec2", "DescribeInstances");
const DESCRIBE_INTERFACES: Operation = Operation::new("ec2", "DescribeNetworkInterfaces");
const DESCRIBE_GROUPS: Operation = Operation::new("ec2", "DescribeSecurityGroups");
const DESCRIBE_TABLES: Operation = Operation::new("ec2", "DescribeRouteTables");
const REPLACE_ROUTE: Operation = Operation::new("ec2", "ReplaceRoute");
const CREATE_ROUTE: Operation = Operation::new("ec2", "CreateRoute");
const MODIFY_INTERFACE: Operation = Operation::new("ec2", "ModifyNetworkInterfaceAttribute");

/// An instance as its neighbours need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// `i-...`.
    pub id: String,
    /// `pending`, `running`, `shutting-down`, `terminated`, `stopping` or `stopped`.
    pub state: String,
    /// Its first private address; none once it is terminated.
    pub address: Option<IpAddr>,
    /// `eu-central-1a`.
    pub zone: Option<String>,
    /// `vpc-...`.
    pub vpc_id: Option<String>,
    /// `subnet-...`.
    pub subnet_id: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Ids of its interfaces by their place.
    pub interfaces: BTreeMap<u32, String>,
}

/// A security group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecurityGroup {
    /// `sg-...`.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it lets in.
    pub ingress: Vec<Permission>,
}

/// One rule of a security group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Permission {
    /// `tcp`, `udp`, a number, or `-1` for all.
    pub protocol: String,
    /// First and last port; none is all.
    pub ports: Option<(u16, u16)>,
    /// Prefixes, as written.
    pub prefixes: Vec<String>,
    /// Groups and prefix lists, by id.
    pub others: Vec<String>,
}

/// A route table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteTable {
    /// `rtb-...`.
    pub id: String,
    /// `vpc-...`.
    pub vpc_id: String,
    /// It is for all subnets that have none of their own.
    pub main: bool,
    /// The subnets that are bound to it.
    pub subnets: Vec<String>,
    /// Its routes.
    pub routes: Vec<Route>,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// A prefix, or the id of a prefix list.
    pub destination: String,
    /// `eni-...`, `igw-...`, `i-...`, `local` and others.
    pub target: Option<String>,
    /// False when its target is gone.
    pub active: bool,
}

/// A page of a list.
trait Page {
    type Item;
    /// What it lists, and where the next begins.
    fn turn(self) -> (Vec<Self::Item>, Option<String>);
}

/// All pages of a list, one question each.
async fn all<P: Page + DeserializeOwned>(
    account: &Account,
    operation: Operation,
    ask: impl Fn() -> Members,
) -> Result<Vec<P::Item>, Setback> {
    let (mut found, mut token) = (Vec::new(), None::<String>);
    loop {
        let members = match &token {
            Some(token) => ask().with("NextToken", token),
            None => ask(),
        };
        let body = account.signed(operation, &members.question(VERSION)).await?;
        let (items, next) = xml::<P>(operation, &body)?.turn();
        found.extend(items);
        match next.filter(|next| !next.is_empty()) {
            None => return Ok(found),
            // It would go on for ever.
            same if same == token => return Err(operation.garbled("the next page is the same")),
            next => token = next,
        }
    }
}

/// What changes something, or only asks whether it may.
async fn change(
    account: &Account,
    operation: Operation,
    members: Members,
    dry: bool,
) -> Result<(), Setback> {
    #[derive(Deserialize)]
    struct Answer {
        // Amazon documents it for some operations only.
        #[serde(rename = "return")]
        done: Option<bool>,
    }
    let members = if dry { members.with("DryRun", true) } else { members };
    let told = account.signed(operation, &members.question(VERSION)).await;
    match told {
        Err(setback) if dry && setback.error.code == WOULD_DO => Ok(()),
        Err(setback) => Err(setback),
        Ok(body) => match xml::<Answer>(operation, &body)?.done {
            Some(false) => Err(operation.garbled("EC2 neither did it nor says why")),
            _ => Ok(()),
        },
    }
}

pub(super) async fn instances(a: &Account, ids: &[String]) -> Result<Vec<Instance>, Setback> {
    let ask = || Members::default().list("InstanceId", ids);
    all::<answers::Reservations>(a, DESCRIBE_INSTANCES, ask).await
}

pub(super) async fn instances_by_tag(
    account: &Account,
    vpc: &str,
    key: &str,
    value: Option<&str>,
) -> Result<Vec<Instance>, Setback> {
    let ask = || {
        let tagged = match value {
            Some(value) => Members::default().filter(&format!("tag:{key}"), &[value]),
            None => Members::default().filter("tag-key", &[key]),
        };
        tagged.filter("vpc-id", &[vpc]).filter("instance-state-name", &["pending", "running"])
    };
    all::<answers::Reservations>(account, DESCRIBE_INSTANCES, ask).await
}

pub(super) async fn network_interfaces(
    account: &Account,
    instance: &str,
) -> Result<Vec<NetworkInterface>, Setback> {
    let ask = || Members::default().filter("attachment.instance-id", &[instance]);
    let found = all::<answers::Interfaces>(account, DESCRIBE_INTERFACES, ask).await?;
    let read: Result<Vec<_>, String> = found.into_iter().map(NetworkInterface::try_from).collect();
    read.map_err(|why| DESCRIBE_INTERFACES.garbled(why))
}

pub(super) async fn security_groups(
    account: &Account,
    ids: &[String],
) -> Result<Vec<SecurityGroup>, Setback> {
    let ask = || Members::default().list("GroupId", ids);
    all::<answers::SecurityGroups>(account, DESCRIBE_GROUPS, ask).await
}

pub(super) async fn route_tables(a: &Account, vpc: &str) -> Result<Vec<RouteTable>, Setback> {
    let ask = || Members::default().filter("vpc-id", &[vpc]);
    all::<answers::RouteTables>(a, DESCRIBE_TABLES, ask).await
}

pub(super) async fn replace_route(a: &Account, to: &Pointed, dry: bool) -> Result<(), Setback> {
    change(a, REPLACE_ROUTE, pointed(to), dry).await
}

pub(super) async fn create_route(a: &Account, to: &Pointed, dry: bool) -> Result<(), Setback> {
    change(a, CREATE_ROUTE, pointed(to), dry).await
}

fn pointed(to: &Pointed) -> Members {
    let destination = match to.destination.contains(':') {
        true => "DestinationIpv6CidrBlock",
        false => "DestinationCidrBlock",
    };
    Members::default()
        .with("RouteTableId", &to.table)
        .with(destination, &to.destination)
        .with("NetworkInterfaceId", &to.interface)
}

pub(super) async fn set_source_dest_check(
    account: &Account,
    interface: &str,
    on: bool,
    dry: bool,
) -> Result<(), Setback> {
    let members =
        Members::default().with("NetworkInterfaceId", interface).with("SourceDestCheck.Value", on);
    change(account, MODIFY_INTERFACE, members, dry).await
}
