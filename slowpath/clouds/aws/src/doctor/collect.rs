//! Collects the observations for [`evaluate`](super::evaluate): reads, and EC2 dry runs of writes.

use std::collections::BTreeMap;

use config::checked::AwsMode;

use super::check_config::CheckConfig;
use crate::advice::LocalSettings;
use crate::call::{Aws, RouteReplacement};
use crate::group::{GroupError, target_id};
use crate::leader;
use crate::roles::roles;
use crate::runner::{LocationError, find_group};
use crate::types::{
    Attributes, CallError, Group, Identity, Interface, NetworkInterface, SecurityGroup, Target,
};
use clouds::report::Report;

/// Result of each operation that was tried, by the operation's name.
pub type TriedOperations = BTreeMap<&'static str, Result<(), CallError>>;

/// Observations for the checks.
#[derive(Clone, Debug)]
pub struct Observations {
    /// Identity of this instance.
    pub identity: Result<Identity, CallError>,
    /// Why the account could not be loaded, if so.
    pub account: Option<CallError>,
    /// Operations that were tried, with their results.
    pub tried: TriedOperations,
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
    /// Id of the leader, or why there is none; `None` unless in mode routes.
    pub leader: Option<Result<String, String>>,
    /// MAC address of the ingress port; `None` until the port exists.
    pub mac: Option<[u8; 6]>,
    /// Kernel interface of the ingress port and its MTU, if it exists.
    pub kernel_mtu: Option<(String, u32)>,
    /// Report of slowpath, or why it did not answer.
    pub slowpath: Result<Report, String>,
    /// Settings for the advice.
    pub local: LocalSettings,
}

impl Observations {
    /// Returns observations before AWS is queried.
    pub fn new(
        config: &CheckConfig,
        identity: Result<Identity, CallError>,
        slowpath: Result<Report, String>,
    ) -> Observations {
        Observations {
            identity,
            account: None,
            tried: TriedOperations::new(),
            group: Err("AWS was not queried".to_owned()),
            attributes: None,
            target: None,
            interfaces: Vec::new(),
            forwarding: Vec::new(),
            security: Vec::new(),
            leader: None,
            mac: None,
            kernel_mtu: None,
            slowpath,
            local: config.local.clone(),
        }
    }

    /// Records the result of `operations`, which were performed in this order until the first
    /// failure: those before the failed one succeeded, those after it were not tried.
    fn record<T>(
        &mut self,
        operations: &[&'static str],
        result: Result<T, CallError>,
    ) -> Option<T> {
        let error = result.as_ref().err();
        for operation in operations {
            let failed = error.filter(|error| error.operation == *operation);
            self.tried.insert(operation, failed.map_or(Ok(()), |error| Err(error.clone())));
            if failed.is_some() {
                break;
            }
        }
        result.ok()
    }
}

/// Queries AWS, and adds the results to `observed`.
pub async fn collect(aws: &dyn Aws, config: &CheckConfig, observed: &mut Observations) {
    observe_group(aws, config, observed).await;
    let Ok(identity) = observed.identity.clone() else { return };
    let id = identity.instance_id.as_str();
    let result = aws.instances(std::slice::from_ref(&identity.instance_id)).await;
    observed.record(&["DescribeInstances"], result);
    let result = aws.network_interfaces(id).await;
    observed.interfaces =
        observed.record(&["DescribeNetworkInterfaces"], result).unwrap_or_default();
    let (mut forwarding, mut ingress) = (Vec::new(), None);
    if let Ok(roles) =
        roles(&observed.interfaces, &config.settings.roles, &config.settings.tag_prefix)
    {
        ingress = roles.ingress.cloned();
        forwarding.extend([roles.ingress, roles.egress].into_iter().flatten());
    }
    let forwarding = forwarding.into_iter().map(|nic| nic.id.clone()).collect();
    let of_port = observed.interfaces.iter().find(|nic| observed.mac == Some(nic.mac));
    let by_address = || {
        observed
            .interfaces
            .iter()
            .find(|n| config.addresses.iter().any(|a| n.addresses.contains(a)))
    };
    // The port's MAC address determines where traffic arrives; tags and descriptions may be wrong.
    let ingress = of_port.or_else(by_address).cloned().or(ingress);
    observed.forwarding = forwarding;
    if let Some(ingress) = &ingress {
        let result = aws.security_groups(&ingress.security_groups).await;
        observed.security =
            observed.record(&["DescribeSecurityGroups"], result).unwrap_or_default();
    }
    let vpc = identity.interfaces.first().map(|i| i.vpc_id.clone()).unwrap_or_default();
    let result = aws.route_tables(&vpc).await;
    let tables = observed.record(&["DescribeRouteTables"], result).unwrap_or_default();
    if let AwsMode::Routes { cluster } = &config.settings.mode {
        if let Some(nic) = &ingress {
            let result = aws.set_source_dest_check(&nic.id, false, true).await;
            observed.record(&["ModifyNetworkInterfaceAttribute"], result);
            let bound = tables.iter().find(|table| table.subnets.contains(&nic.subnet_id));
            if let Some(table) = bound.or_else(|| tables.iter().find(|table| table.main)) {
                let (table, interface) = (table.id.clone(), nic.id.clone());
                let to = RouteReplacement { table, destination: "0.0.0.0/0".to_owned(), interface };
                let result = aws.replace_route(&to, true).await;
                observed.record(&["ReplaceRoute"], result);
            }
        }
        observe_leader(aws, config, observed, cluster, &vpc).await;
    }
    let scaling = aws.scaling_instance(id).await;
    if let Some(Some(scaling)) = observed.record(&["DescribeAutoScalingInstances"], scaling) {
        let result = aws.lifecycle_hooks(&scaling.group).await;
        observed.record(&["DescribeLifecycleHooks"], result);
    }
    // No command has this id: if the permission exists, AWS answers that the command is absent.
    let result = aws.invocation("00000000-0000-0000-0000-000000000000", id).await;
    observed.record(&["GetCommandInvocation"], result);
}

async fn observe_group(aws: &dyn Aws, config: &CheckConfig, observed: &mut Observations) {
    let prefix = &config.settings.tag_prefix;
    let result = aws.groups_by_tag(&format!("{prefix}:cluster"), "").await;
    observed.record(&["GetResources"], result);
    if config.routes() {
        return;
    }
    let region = observed.identity.as_ref().map(|i| i.region.clone()).unwrap_or_default();
    let result = find_group(aws, &config.settings, &region).await;
    let groups = &["DescribeTargetGroups"];
    match &result {
        Err(LocationError::Call(error)) if groups.contains(&error.operation) => {
            observed.record::<()>(groups, Err(error.clone()));
        }
        Ok(_)
        | Err(LocationError::Group(GroupError::NotFound { .. } | GroupError::NotGeneve { .. })) => {
            observed.record(groups, Ok(()));
        }
        // DescribeTargetGroups was not performed.
        Err(_) => {}
    }
    observed.group = result.map_err(|error| error.to_string());
    let Ok(group) = observed.group.clone() else { return };
    let result = aws.attributes(&group).await;
    let mut operations = vec!["DescribeTargetGroupAttributes"];
    if !group.load_balancers.is_empty() {
        operations.extend([
            "DescribeLoadBalancerAttributes",
            "DescribeListeners",
            "DescribeListenerAttributes",
        ]);
    }
    observed.attributes = observed.record(&operations, result);
    let own = observed
        .identity
        .as_ref()
        .ok()
        .and_then(|identity| own_target(config, &group, identity, observed.mac).ok());
    if let Some(own) = own {
        let result = aws.targets(&group.arn, Some(&own)).await;
        let result = observed.record(&["DescribeTargetHealth"], result);
        observed.target = result.and_then(|all| all.into_iter().find(|target| target.id == own));
    }
}

async fn observe_leader(
    aws: &dyn Aws,
    config: &CheckConfig,
    observed: &mut Observations,
    cluster: &str,
    vpc: &str,
) {
    let prefix = config.settings.tag_prefix.as_str();
    let key = format!("{prefix}:cluster");
    let result = aws.instances_by_tag(vpc, &key, Some(cluster)).await;
    let Some(instances) = observed.record(&["DescribeInstances"], result) else { return };
    let all: Vec<leader::Peer> = instances.into_iter().map(Into::into).collect();
    let elected = leader::peers(&all, prefix, cluster, vpc)
        .and_then(|peers| leader::elect(&peers, prefix).map(|elected| elected.leader.id.clone()));
    observed.leader = Some(elected.map_err(|error| error.to_string()));
}

/// Returns the target of this instance, determined by the MAC address of the ingress port, or by
/// its configured address if the port does not exist yet.
pub(super) fn own_target(
    config: &CheckConfig,
    group: &Group,
    identity: &Identity,
    mac: Option<[u8; 6]>,
) -> Result<String, GroupError> {
    let has = |i: &&Interface| config.addresses.iter().any(|address| i.addresses.contains(address));
    let by_address = || identity.interfaces.iter().find(has).map(|interface| interface.mac);
    target_id(group, identity, mac.or_else(by_address).unwrap_or_default(), &config.addresses)
}
