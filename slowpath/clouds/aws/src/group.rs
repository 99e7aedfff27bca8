//! Selection of the target group, and of the target to register in it.

use std::net::IpAddr;

use super::types::{Group, Identity, Interface, TargetType};

/// Why no target group was found, or no target can be registered in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupError {
    /// No target group has the tag.
    #[error(
        "no target group has the tag {tag} in {region}; tag the group, or set aws.target_group"
    )]
    NoneMatches {
        /// The tag: `PREFIX:cluster=NAME`.
        tag: String,
        /// The region that was searched.
        region: String,
    },
    /// More than one target group has the tag.
    #[error(
        "{} target groups have the tag {tag}: {}; set aws.target_group to the intended one",
        arns.len(), arns.join(", ")
    )]
    SeveralMatch {
        /// The tag: `PREFIX:cluster=NAME`.
        tag: String,
        /// ARNs of the groups with the tag.
        arns: Vec<String>,
    },
    /// The group belongs to another kind of load balancer.
    #[error(
        "target group {arn} has protocol {protocol} instead of GENEVE; set aws.target_group, or \
         the tag, to the group of a gateway load balancer"
    )]
    NotGeneve {
        /// ARN of the group.
        arn: String,
        /// Protocol of the group.
        protocol: String,
    },
    /// No group has the configured ARN.
    #[error("target group {arn} does not exist; check aws.target_group, and the region in it")]
    NotFound {
        /// The ARN.
        arn: String,
    },
    /// The ingress port is not an interface of this instance.
    #[error(
        "no interface of {instance} has the ingress port's MAC address {mac}; AWS reports {}; set \
         ingress.device to the port of one of them",
        interfaces.join(", ")
    )]
    NoIngressInterface {
        /// Id of this instance.
        instance: String,
        /// MAC address of the ingress port.
        mac: String,
        /// The instance's interfaces with their MAC addresses.
        interfaces: Vec<String>,
    },
    /// The group sends traffic to the primary interface, which is not the ingress port.
    #[error(
        "target group {arn} registers instances, so that traffic arrives at the primary interface \
         {primary}, but the ingress port is {ingress}; create a group of target type ip (the type \
         of an existing group cannot be changed), or set ingress.device to the primary interface"
    )]
    NotPrimary {
        /// ARN of the group.
        arn: String,
        /// Id of the interface with device number 0.
        primary: String,
        /// Id of the interface of the ingress port.
        ingress: String,
    },
    /// The group's target type is not supported by gateway load balancers.
    #[error(
        "target group {arn} has a target type that gateway load balancers do not support; \
         create one of type ip"
    )]
    OtherType {
        /// ARN of the group.
        arn: String,
    },
    /// The interface has no IPv4 address, and gateways send GENEVE over IPv4 only.
    #[error("interface {interface} has no IPv4 address, which gateways require; assign one")]
    NoAddress {
        /// Id of the interface.
        interface: String,
    },
}

/// Returns key and value of the tag by which a target group is found.
pub fn tag(prefix: &str, cluster: &str) -> (String, String) {
    (format!("{prefix}:cluster"), cluster.to_owned())
}

/// Returns the ARN of the target group with the tag, or an error unless there is exactly one.
/// `arns` are those of all groups with the tag.
pub fn by_tag<'a>(
    arns: &'a [String],
    (key, value): (&str, &str),
    region: &str,
) -> Result<&'a str, GroupError> {
    let tag = format!("{key}={value}");
    match arns {
        [arn] => Ok(arn),
        [] => Err(GroupError::NoneMatches { tag, region: region.to_owned() }),
        several => Err(GroupError::SeveralMatch { tag, arns: several.to_vec() }),
    }
}

/// Returns the group with this ARN, or an error if there is none, or if the group does not belong
/// to a gateway load balancer.
pub fn by_arn<'a>(groups: &'a [Group], arn: &str) -> Result<&'a Group, GroupError> {
    let not_found = || GroupError::NotFound { arn: arn.to_owned() };
    let group = groups.iter().find(|group| group.arn == arn).ok_or_else(not_found)?;
    if group.protocol != "GENEVE" {
        let (arn, protocol) = (group.arn.clone(), group.protocol.clone());
        return Err(GroupError::NotGeneve { arn, protocol });
    }
    Ok(group)
}

/// Returns the target to register in a group: an instance id or an address. `mac` is the MAC
/// address of the ingress port, `preferred` its configured addresses in order of preference.
pub fn target_id(
    group: &Group,
    identity: &Identity,
    mac: [u8; 6],
    preferred: &[IpAddr],
) -> Result<String, GroupError> {
    let ingress = identity.interfaces.iter().find(|i| i.mac == mac);
    let ingress = ingress.ok_or_else(|| GroupError::NoIngressInterface {
        instance: identity.instance_id.clone(),
        mac: mac_text(mac),
        interfaces: identity
            .interfaces
            .iter()
            .map(|i| format!("{} {}", i.id, mac_text(i.mac)))
            .collect(),
    })?;
    match group.target_type {
        TargetType::Other => Err(GroupError::OtherType { arn: group.arn.clone() }),
        TargetType::Ip => address(ingress, preferred),
        TargetType::Instance if ingress.device_number == 0 => Ok(identity.instance_id.clone()),
        TargetType::Instance => {
            let primary = identity.interfaces.iter().find(|i| i.device_number == 0);
            Err(GroupError::NotPrimary {
                arn: group.arn.clone(),
                primary: primary.map_or("(unknown)", |i| &i.id).to_owned(),
                ingress: ingress.id.clone(),
            })
        }
    }
}

/// Returns the first configured IPv4 address that the interface has, else its primary one.
fn address(interface: &Interface, preferred: &[IpAddr]) -> Result<String, GroupError> {
    let own = preferred.iter().find(|a| a.is_ipv4() && interface.addresses.contains(a));
    let address = own.or_else(|| interface.addresses.iter().find(|a| a.is_ipv4()));
    let missing = || GroupError::NoAddress { interface: interface.id.clone() };
    address.map(IpAddr::to_string).ok_or_else(missing)
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
pub(crate) mod tests;
