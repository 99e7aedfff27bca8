//! Which target group is ours, and as what we are registered there.

use std::net::IpAddr;

use super::told::{Group, Identity, Interface, TargetType};

/// Why there is no group, or nothing to register in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupError {
    /// None has the tag.
    #[error(
        "no target group has the tag {tag} in {region}; tag it, or name it by aws.target_group"
    )]
    NoneMatches {
        /// `PREFIX:cluster=NAME`.
        tag: String,
        /// Where it was looked for.
        region: String,
    },
    /// More than one has the tag.
    #[error(
        "{} target groups have the tag {tag}: {}; set aws.target_group to the one that is meant",
        arns.len(), arns.join(", ")
    )]
    SeveralMatch {
        /// `PREFIX:cluster=NAME`.
        tag: String,
        /// Those that have it.
        arns: Vec<String>,
    },
    /// It is another kind of load balancer's.
    #[error(
        "target group {arn} has protocol {protocol}, a gateway load balancer's has GENEVE; set \
         aws.target_group or the tag to the gateway's"
    )]
    NotGeneve {
        /// The group.
        arn: String,
        /// Its protocol.
        protocol: String,
    },
    /// An ARN leads nowhere.
    #[error("there is no target group {arn}; see aws.target_group, and the region in it")]
    NotThere {
        /// The group.
        arn: String,
    },
    /// The ingress port is no interface of this instance.
    #[error(
        "no interface of {instance} has the ingress port's MAC address {mac}; it has {}",
        has.join(", ")
    )]
    NotOurs {
        /// This instance.
        instance: String,
        /// Of the ingress port.
        mac: String,
        /// Interfaces with theirs.
        has: Vec<String>,
    },
    /// Traffic would come to another interface.
    #[error(
        "target group {arn} registers instances, so that traffic comes to the primary interface \
         {primary}, and the ingress port is {ingress}; make a group of target type ip (the type \
         of one that exists can't change), or let ingress.device be the primary interface"
    )]
    NotPrimary {
        /// The group.
        arn: String,
        /// Interface with device number 0.
        primary: String,
        /// Interface of the ingress port.
        ingress: String,
    },
    /// Nothing that a gateway could send to.
    #[error("target group {arn} has a target type that no gateway has; make one of type ip")]
    OtherType {
        /// The group.
        arn: String,
    },
    /// GENEVE comes over IPv4 alone.
    #[error("interface {interface} has no IPv4 address, and gateways send to one; give it one")]
    NoAddress {
        /// The interface.
        interface: String,
    },
}

/// The tag that groups are found by: key and value.
pub fn tag(prefix: &str, cluster: &str) -> (String, String) {
    (format!("{prefix}:cluster"), cluster.to_owned())
}

/// The one of the groups that tagging told. `tag` is key and value.
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

/// The group of that ARN among those that were described, if it is a gateway's.
pub fn by_arn<'a>(groups: &'a [Group], arn: &str) -> Result<&'a Group, GroupError> {
    let not_there = || GroupError::NotThere { arn: arn.to_owned() };
    let group = groups.iter().find(|group| group.arn == arn).ok_or_else(not_there)?;
    if group.protocol != "GENEVE" {
        let (arn, protocol) = (group.arn.clone(), group.protocol.clone());
        return Err(GroupError::NotGeneve { arn, protocol });
    }
    Ok(group)
}

/// As what we are registered in a group: an instance id or an address. `mac` is that of the ingress
/// port, `wanted` our addresses on it, the preferred first.
pub fn registered_as(
    group: &Group,
    identity: &Identity,
    mac: [u8; 6],
    wanted: &[IpAddr],
) -> Result<String, GroupError> {
    let ingress = identity.interfaces.iter().find(|i| i.mac == mac);
    let ingress = ingress.ok_or_else(|| GroupError::NotOurs {
        instance: identity.instance_id.clone(),
        mac: spelled(mac),
        has: identity.interfaces.iter().map(|i| format!("{} {}", i.id, spelled(i.mac))).collect(),
    })?;
    match group.target_type {
        TargetType::Other => Err(GroupError::OtherType { arn: group.arn.clone() }),
        TargetType::Ip => address(ingress, wanted),
        TargetType::Instance if ingress.device_number == 0 => Ok(identity.instance_id.clone()),
        TargetType::Instance => {
            let primary = identity.interfaces.iter().find(|i| i.device_number == 0);
            Err(GroupError::NotPrimary {
                arn: group.arn.clone(),
                primary: primary.map_or("(none told)", |i| &i.id).to_owned(),
                ingress: ingress.id.clone(),
            })
        }
    }
}

/// The first of our own that the interface has, else its primary one.
fn address(interface: &Interface, wanted: &[IpAddr]) -> Result<String, GroupError> {
    let own = wanted.iter().find(|a| a.is_ipv4() && interface.addresses.contains(a));
    let address = own.or_else(|| interface.addresses.iter().find(|a| a.is_ipv4()));
    let missing = || GroupError::NoAddress { interface: interface.id.clone() };
    address.map(IpAddr::to_string).ok_or_else(missing)
}

fn spelled(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
pub(crate) mod tests;
