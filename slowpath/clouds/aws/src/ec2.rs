//! EC2: instances, network interfaces, security groups and routes.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::account::Account;
use super::call::RouteReplacement;
use super::signed::{Members, xml};
use super::types::{Instance, NetworkInterface, RouteTable, SecurityGroup};
use clouds::failure::{AttemptError, Operation};
use responses::Page;

mod responses;

const API_VERSION: &str = "2016-11-15";
/// Error code of a dry run that would have succeeded.
const DRY_RUN_OK: &str = "DryRunOperation";

const DESCRIBE_INSTANCES: Operation = Operation::new("ec2", "DescribeInstances");
const DESCRIBE_INTERFACES: Operation = Operation::new("ec2", "DescribeNetworkInterfaces");
const DESCRIBE_GROUPS: Operation = Operation::new("ec2", "DescribeSecurityGroups");
const DESCRIBE_TABLES: Operation = Operation::new("ec2", "DescribeRouteTables");
const REPLACE_ROUTE: Operation = Operation::new("ec2", "ReplaceRoute");
const MODIFY_INTERFACE: Operation = Operation::new("ec2", "ModifyNetworkInterfaceAttribute");

/// Reads all pages of a list, one request per page.
async fn all<P: Page + DeserializeOwned>(
    account: &Account,
    operation: Operation,
    members: impl Fn() -> Members,
) -> Result<Vec<P::Item>, AttemptError> {
    let (mut found, mut token) = (Vec::new(), None::<String>);
    loop {
        let members = match &token {
            Some(token) => members().with("NextToken", token),
            None => members(),
        };
        let body = account.signed(operation, &members.into_body(API_VERSION)).await?;
        let (items, next) = xml::<P>(operation, &body)?.into_page();
        found.extend(items);
        match next.filter(|next| !next.is_empty()) {
            None => return Ok(found),
            // Another request would return the same page again.
            same if same == token => {
                return Err(operation.malformed("the next page has the same token"));
            }
            next => token = next,
        }
    }
}

/// Performs a change; with `dry_run`, AWS only checks whether the change is permitted.
async fn change(
    account: &Account,
    operation: Operation,
    members: Members,
    dry_run: bool,
) -> Result<(), AttemptError> {
    #[derive(Deserialize)]
    struct Answer {
        // AWS documents this element for some operations only.
        #[serde(rename = "return")]
        done: Option<bool>,
    }
    let members = if dry_run { members.with("DryRun", true) } else { members };
    let result = account.signed(operation, &members.into_body(API_VERSION)).await;
    match result {
        Err(failed) if dry_run && failed.error.code == DRY_RUN_OK => Ok(()),
        Err(failed) => Err(failed),
        Ok(body) => match xml::<Answer>(operation, &body)?.done {
            Some(false) => Err(operation.malformed("EC2 made no change, without a reason")),
            _ => Ok(()),
        },
    }
}

pub(super) async fn instances(a: &Account, ids: &[String]) -> Result<Vec<Instance>, AttemptError> {
    let members = || Members::default().list("InstanceId", ids);
    all::<responses::Reservations>(a, DESCRIBE_INSTANCES, members).await
}

pub(super) async fn instances_by_tag(
    account: &Account,
    vpc: &str,
    key: &str,
    value: Option<&str>,
) -> Result<Vec<Instance>, AttemptError> {
    let members = || {
        let tagged = match value {
            Some(value) => Members::default().filter(&format!("tag:{key}"), &[value]),
            None => Members::default().filter("tag-key", &[key]),
        };
        tagged.filter("vpc-id", &[vpc]).filter("instance-state-name", &["pending", "running"])
    };
    all::<responses::Reservations>(account, DESCRIBE_INSTANCES, members).await
}

pub(super) async fn network_interfaces(
    account: &Account,
    instance: &str,
) -> Result<Vec<NetworkInterface>, AttemptError> {
    let members = || Members::default().filter("attachment.instance-id", &[instance]);
    let found = all::<responses::Interfaces>(account, DESCRIBE_INTERFACES, members).await?;
    let read: Result<Vec<_>, String> = found.into_iter().map(NetworkInterface::try_from).collect();
    read.map_err(|why| DESCRIBE_INTERFACES.malformed(why))
}

pub(super) async fn security_groups(
    account: &Account,
    ids: &[String],
) -> Result<Vec<SecurityGroup>, AttemptError> {
    let members = || Members::default().list("GroupId", ids);
    all::<responses::SecurityGroups>(account, DESCRIBE_GROUPS, members).await
}

pub(super) async fn route_tables(a: &Account, vpc: &str) -> Result<Vec<RouteTable>, AttemptError> {
    let members = || Members::default().filter("vpc-id", &[vpc]);
    all::<responses::RouteTables>(a, DESCRIBE_TABLES, members).await
}

pub(super) async fn replace_route(
    a: &Account,
    to: &RouteReplacement,
    dry_run: bool,
) -> Result<(), AttemptError> {
    let destination = match to.destination.contains(':') {
        true => "DestinationIpv6CidrBlock",
        false => "DestinationCidrBlock",
    };
    let members = Members::default()
        .with("RouteTableId", &to.table)
        .with(destination, &to.destination)
        .with("NetworkInterfaceId", &to.interface);
    change(a, REPLACE_ROUTE, members, dry_run).await
}

pub(super) async fn set_source_dest_check(
    account: &Account,
    interface: &str,
    enabled: bool,
    dry_run: bool,
) -> Result<(), AttemptError> {
    let members = Members::default()
        .with("NetworkInterfaceId", interface)
        .with("SourceDestCheck.Value", enabled);
    change(account, MODIFY_INTERFACE, members, dry_run).await
}
