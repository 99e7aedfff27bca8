//! Collects the observations for [`judge`](super::judge): reads, and EC2 dry runs of writes.

use std::collections::BTreeMap;

use config::checked::AwsMode;

use super::wants::Wants;
use crate::advice::Ours;
use crate::call::{Aws, Pointed};
use crate::group::{GroupError, registered_as};
use crate::leader;
use crate::roles::roles;
use crate::runner::{PlaceError, the_group};
use crate::told::{
    Attributes, CallError, Group, Identity, Interface, NetworkInterface, SecurityGroup, Target,
};
use clouds::report::Report;

/// Result of each operation that was tried.
pub type Tried = BTreeMap<&'static str, Result<(), CallError>>;

/// Observations for the checks.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Identity of this instance.
    pub identity: Result<Identity, CallError>,
    /// Why the account could not be loaded, if so.
    pub account: Option<CallError>,
    /// Operations that were tried, with their results.
    pub tried: Tried,
    /// The target group, or why there is none.
    pub group: Result<Group, String>,
    /// Attributes of the target group.
    pub attributes: Option<Attributes>,
    /// This instance's entry in the target group.
    pub target: Option<Target>,
    /// Network interfaces of this instance.
    pub interfaces: Vec<NetworkInterface>,
    /// Ids of the interfaces with the role ingress or egress.
    pub forwarding: Vec<String>,
    /// Security groups of the ingress interface.
    pub security: Vec<SecurityGroup>,
    /// Id of the leader in mode routes, or why there is none.
    pub leader: Option<Result<String, String>>,
    /// MAC address of the ingress port; `None` until the port exists.
    pub mac: Option<[u8; 6]>,
    /// Kernel interface of the ingress port and its MTU, if it exists.
    pub kernel_mtu: Option<(String, u32)>,
    /// Report of slowpath, or why it did not answer.
    pub slowpath: Result<Report, String>,
    /// Settings for the advice.
    pub ours: Ours,
}

impl Seen {
    /// Returns observations without any from AWS.
    pub fn new(
        wants: &Wants,
        identity: Result<Identity, CallError>,
        slowpath: Result<Report, String>,
    ) -> Seen {
        Seen {
            identity,
            account: None,
            tried: Tried::new(),
            group: Err("AWS was not asked".to_owned()),
            attributes: None,
            target: None,
            interfaces: Vec::new(),
            forwarding: Vec::new(),
            security: Vec::new(),
            leader: None,
            mac: None,
            kernel_mtu: None,
            slowpath,
            ours: wants.ours.clone(),
        }
    }

    /// Records the result of operations that were performed one after the other: those before the
    /// failed one succeeded, those after it were not tried.
    fn note<T>(&mut self, operations: &[&'static str], told: Result<T, CallError>) -> Option<T> {
        let error = told.as_ref().err();
        for operation in operations {
            let failed = error.filter(|error| error.operation == *operation);
            self.tried.insert(operation, failed.map_or(Ok(()), |error| Err(error.clone())));
            if failed.is_some() {
                break;
            }
        }
        told.ok()
    }
}

/// Performs all queries.
pub async fn ask(aws: &dyn Aws, wants: &Wants, seen: &mut Seen) {
    of_group(aws, wants, seen).await;
    let Ok(identity) = seen.identity.clone() else { return };
    let id = identity.instance_id.as_str();
    let told = aws.instances(std::slice::from_ref(&identity.instance_id)).await;
    seen.note(&["DescribeInstances"], told);
    let told = aws.network_interfaces(id).await;
    seen.interfaces = seen.note(&["DescribeNetworkInterfaces"], told).unwrap_or_default();
    let (mut forwarding, mut ingress) = (Vec::new(), None);
    if let Ok(roles) = roles(&seen.interfaces, &wants.settings.roles, &wants.settings.tag_prefix) {
        ingress = roles.ingress.cloned();
        forwarding.extend([roles.ingress, roles.egress].into_iter().flatten());
    }
    let forwarding = forwarding.into_iter().map(|nic| nic.id.clone()).collect();
    let of_port = seen.interfaces.iter().find(|nic| seen.mac == Some(nic.mac));
    let by_address =
        || seen.interfaces.iter().find(|n| wants.addresses.iter().any(|a| n.addresses.contains(a)));
    // The port's MAC address determines where traffic arrives; tags and descriptions may be wrong.
    let ingress = of_port.or_else(by_address).cloned().or(ingress);
    seen.forwarding = forwarding;
    if let Some(ingress) = &ingress {
        let told = aws.security_groups(&ingress.security_groups).await;
        seen.security = seen.note(&["DescribeSecurityGroups"], told).unwrap_or_default();
    }
    let vpc = identity.interfaces.first().map(|i| i.vpc_id.clone()).unwrap_or_default();
    let told = aws.route_tables(&vpc).await;
    let tables = seen.note(&["DescribeRouteTables"], told).unwrap_or_default();
    if let AwsMode::Routes { cluster } = &wants.settings.mode {
        if let Some(nic) = &ingress {
            let told = aws.set_source_dest_check(&nic.id, false, true).await;
            seen.note(&["ModifyNetworkInterfaceAttribute"], told);
            let bound = tables.iter().find(|table| table.subnets.contains(&nic.subnet_id));
            if let Some(table) = bound.or_else(|| tables.iter().find(|table| table.main)) {
                let (table, interface) = (table.id.clone(), nic.id.clone());
                let to = Pointed { table, destination: "0.0.0.0/0".to_owned(), interface };
                let told = aws.replace_route(&to, true).await;
                seen.note(&["ReplaceRoute"], told);
            }
        }
        leads(aws, wants, seen, cluster, &vpc).await;
    }
    let scaling = aws.scaling_instance(id).await;
    if let Some(Some(scaling)) = seen.note(&["DescribeAutoScalingInstances"], scaling) {
        let told = aws.lifecycle_hooks(&scaling.group).await;
        seen.note(&["DescribeLifecycleHooks"], told);
    }
    // No such command exists: with the permission, the answer is that it is absent.
    let told = aws.invocation("00000000-0000-0000-0000-000000000000", id).await;
    seen.note(&["GetCommandInvocation"], told);
}

async fn of_group(aws: &dyn Aws, wants: &Wants, seen: &mut Seen) {
    let prefix = &wants.settings.tag_prefix;
    let told = aws.groups_by_tag(&format!("{prefix}:cluster"), "").await;
    seen.note(&["GetResources"], told);
    if wants.routes() {
        return;
    }
    let region = seen.identity.as_ref().map(|i| i.region.clone()).unwrap_or_default();
    let told = the_group(aws, &wants.settings, &region).await;
    let groups = &["DescribeTargetGroups"];
    match &told {
        Err(PlaceError::Call(error)) if groups.contains(&error.operation) => {
            seen.note::<()>(groups, Err(error.clone()));
        }
        Ok(_)
        | Err(PlaceError::Group(GroupError::NotThere { .. } | GroupError::NotGeneve { .. })) => {
            seen.note(groups, Ok(()));
        }
        // The operation was not performed.
        Err(_) => {}
    }
    seen.group = told.map_err(|error| error.to_string());
    let Ok(group) = seen.group.clone() else { return };
    let told = aws.attributes(&group).await;
    let mut operations = vec!["DescribeTargetGroupAttributes"];
    if !group.load_balancers.is_empty() {
        operations.extend([
            "DescribeLoadBalancerAttributes",
            "DescribeListeners",
            "DescribeListenerAttributes",
        ]);
    }
    seen.attributes = seen.note(&operations, told);
    let own = seen
        .identity
        .as_ref()
        .ok()
        .and_then(|identity| own_target(wants, &group, identity, seen.mac).ok());
    if let Some(own) = own {
        let told = aws.targets(&group.arn, Some(&own)).await;
        let told = seen.note(&["DescribeTargetHealth"], told);
        seen.target = told.and_then(|all| all.into_iter().find(|target| target.id == own));
    }
}

async fn leads(aws: &dyn Aws, wants: &Wants, seen: &mut Seen, cluster: &str, vpc: &str) {
    let prefix = wants.settings.tag_prefix.as_str();
    let key = format!("{prefix}:cluster");
    let told = aws.instances_by_tag(vpc, &key, Some(cluster)).await;
    let Some(instances) = seen.note(&["DescribeInstances"], told) else { return };
    let all: Vec<leader::Peer> = instances.into_iter().map(Into::into).collect();
    let elected = leader::peers(&all, prefix, cluster, vpc)
        .and_then(|peers| leader::elect(&peers, prefix).map(|elected| elected.leader.id.clone()));
    seen.leader = Some(elected.map_err(|error| error.to_string()));
}

/// Returns the target of this instance, determined by the MAC address of the ingress port, or by
/// its configured address if the port does not exist yet.
pub(super) fn own_target(
    wants: &Wants,
    group: &Group,
    identity: &Identity,
    mac: Option<[u8; 6]>,
) -> Result<String, GroupError> {
    let has = |i: &&Interface| wants.addresses.iter().any(|address| i.addresses.contains(address));
    let by_address = || identity.interfaces.iter().find(has).map(|interface| interface.mac);
    registered_as(group, identity, mac.or_else(by_address).unwrap_or_default(), &wants.addresses)
}
