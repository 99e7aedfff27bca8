//! EC2: instances, network interfaces, security groups and routes.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::account::Account;
use super::call::Pointed;
use super::signed::{Members, xml};
use super::told::{Instance, NetworkInterface, RouteTable, SecurityGroup};
use answers::Page;
use clouds::failure::{Operation, Setback};

mod answers;

const VERSION: &str = "2016-11-15";
/// Error code of a dry run that would have succeeded.
const WOULD_DO: &str = "DryRunOperation";

const DESCRIBE_INSTANCES: Operation = Operation::new("ec2", "DescribeInstances");
const DESCRIBE_INTERFACES: Operation = Operation::new("ec2", "DescribeNetworkInterfaces");
const DESCRIBE_GROUPS: Operation = Operation::new("ec2", "DescribeSecurityGroups");
const DESCRIBE_TABLES: Operation = Operation::new("ec2", "DescribeRouteTables");
const REPLACE_ROUTE: Operation = Operation::new("ec2", "ReplaceRoute");
const MODIFY_INTERFACE: Operation = Operation::new("ec2", "ModifyNetworkInterfaceAttribute");

/// Reads all pages of a list, with one request each.
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
            // The loop would not end.
            same if same == token => return Err(operation.garbled("the next page is the same")),
            next => token = next,
        }
    }
}

/// Performs a change; a dry run only checks whether it is permitted.
async fn change(
    account: &Account,
    operation: Operation,
    members: Members,
    dry: bool,
) -> Result<(), Setback> {
    #[derive(Deserialize)]
    struct Answer {
        // Documented by AWS for some operations only.
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
    let destination = match to.destination.contains(':') {
        true => "DestinationIpv6CidrBlock",
        false => "DestinationCidrBlock",
    };
    let members = Members::default()
        .with("RouteTableId", &to.table)
        .with(destination, &to.destination)
        .with("NetworkInterfaceId", &to.interface);
    change(a, REPLACE_ROUTE, members, dry).await
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
