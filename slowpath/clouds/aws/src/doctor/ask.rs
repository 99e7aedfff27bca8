//! Finds out what doctor judges: reads, and tries writes by EC2's dry run.

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

/// What came of each operation that was tried.
pub type Tried = BTreeMap<&'static str, Result<(), CallError>>;

/// What was found out.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Who this is.
    pub identity: Result<Identity, CallError>,
    /// Why there is no account to ask, if there is none.
    pub account: Option<CallError>,
    /// Operations, and what came of them.
    pub tried: Tried,
    /// Our group, or why there is none.
    pub group: Result<Group, String>,
    /// What is set there.
    pub attributes: Option<Attributes>,
    /// Our entry in it.
    pub target: Option<Target>,
    /// Our interfaces.
    pub interfaces: Vec<NetworkInterface>,
    /// Those that have the role of an arm.
    pub forwarding: Vec<String>,
    /// Security groups of the ingress interface.
    pub security: Vec<SecurityGroup>,
    /// Who leads in mode routes, or why nobody does.
    pub leader: Option<Result<String, String>>,
    /// Of the ingress port; none before it is there.
    pub mac: Option<[u8; 6]>,
    /// The ingress arm's kernel interface and its MTU, where it is there.
    pub kernel_mtu: Option<(String, u32)>,
    /// What slowpath says, or why nothing.
    pub slowpath: Result<Report, String>,
    /// For the advice.
    pub ours: Ours,
}

impl Seen {
    /// Before anything is asked of AWS.
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

    /// Remembers what came of operations that are asked one after the other: those before the one
    /// that failed went well, those behind it were not asked.
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

/// Asks all of AWS that there is to ask.
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
    // Where traffic comes is what the port's MAC says, and not what somebody wrote about it.
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
    // There is no such command: with the permission AWS answers just that.
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
        // It was not asked.
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

/// As what we are registered: by the MAC of the ingress port, and before it is there by the
/// address that it is to have.
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
