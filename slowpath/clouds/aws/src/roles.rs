//! Roles of network interfaces: by configuration, by tag, by description, in this order.

use config::checked::AwsRoles;

use super::types::NetworkInterface;

/// Role of a network interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Management access and control plane.
    Management,
    /// Traffic from and to the gateway.
    Ingress,
    /// Traffic from and to the backends.
    Egress,
}

impl Role {
    /// Returns the role as spelled in descriptions and tags.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Management => "management",
            Role::Ingress => "ingress",
            Role::Egress => "egress",
        }
    }
}

/// Network interfaces of an instance by role; interfaces without a role are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Roles<'a> {
    /// Management access and control plane.
    pub management: Option<&'a NetworkInterface>,
    /// Traffic from and to the gateway.
    pub ingress: Option<&'a NetworkInterface>,
    /// Traffic from and to the backends.
    pub egress: Option<&'a NetworkInterface>,
}

/// Why the roles of the interfaces are not clear.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RoleError {
    /// The configuration names an interface that this instance does not have.
    #[error("aws.{} = {id:?}: this instance has no such interface; it has {}", role.as_str(),
            has.join(", "))]
    UnknownInterface {
        /// The role.
        role: Role,
        /// Id of the configured interface.
        id: String,
        /// Ids of this instance's interfaces.
        has: Vec<String>,
    },
    /// More than one interface has the role.
    #[error("{} are all marked as {}; set aws.{} to the intended one", ids.join(", "),
            role.as_str(), role.as_str())]
    Ambiguous {
        /// The role.
        role: Role,
        /// Ids of the interfaces with that role.
        ids: Vec<String>,
    },
    /// An interface has two roles.
    #[error("{id} is both {} and {}; set aws.{} and aws.{}", one.as_str(), other.as_str(),
            one.as_str(), other.as_str())]
    TwoRoles {
        /// Id of the interface.
        id: String,
        /// Its first role.
        one: Role,
        /// Its second role.
        other: Role,
    },
}

/// Returns the interfaces of an instance by role. `configured` are the interface ids in the
/// configuration (`aws.ingress` and so on); the key of the tag is `PREFIX:role`.
pub fn roles<'a>(
    interfaces: &'a [NetworkInterface],
    configured: &AwsRoles,
    prefix: &str,
) -> Result<Roles<'a>, RoleError> {
    let tag = format!("{prefix}:role");
    let management = role(interfaces, Role::Management, configured.management.as_deref(), &tag)?;
    let ingress = role(interfaces, Role::Ingress, configured.ingress.as_deref(), &tag)?;
    let egress = role(interfaces, Role::Egress, configured.egress.as_deref(), &tag)?;
    let pairs = [
        (Role::Management, management, Role::Ingress, ingress),
        (Role::Management, management, Role::Egress, egress),
        (Role::Ingress, ingress, Role::Egress, egress),
    ];
    for (one, first, other, second) in pairs {
        if let Some((first, second)) = first.zip(second)
            && first.id == second.id
        {
            return Err(RoleError::TwoRoles { id: first.id.clone(), one, other });
        }
    }
    Ok(Roles { management, ingress, egress })
}

fn role<'a>(
    interfaces: &'a [NetworkInterface],
    role: Role,
    configured: Option<&str>,
    tag: &str,
) -> Result<Option<&'a NetworkInterface>, RoleError> {
    let ids = |of: &[&NetworkInterface]| of.iter().map(|i| i.id.clone()).collect();
    if let Some(id) = configured {
        let found = interfaces.iter().find(|interface| interface.id == id);
        let has = ids(&interfaces.iter().collect::<Vec<_>>());
        let missing = || RoleError::UnknownInterface { role, id: id.to_owned(), has };
        return found.map(Some).ok_or_else(missing);
    }
    let tagged = |i: &&NetworkInterface| i.tags.get(tag).is_some_and(|to| to == role.as_str());
    let mut found: Vec<_> = interfaces.iter().filter(tagged).collect();
    if found.is_empty() {
        let described = |i: &&NetworkInterface| {
            !i.tags.contains_key(tag) && i.description.trim().eq_ignore_ascii_case(role.as_str())
        };
        found = interfaces.iter().filter(described).collect();
    }
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        ref several => Err(RoleError::Ambiguous { role, ids: ids(several) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(id: &str, description: &str, tag: &str) -> NetworkInterface {
        let tags = [("weir:role".to_owned(), tag.to_owned())];
        NetworkInterface {
            id: id.into(),
            description: description.into(),
            tags: tags.into_iter().filter(|(_, to)| !to.is_empty()).collect(),
            device_index: Some(0),
            primary_address: [10, 0, 0, 1].into(),
            addresses: vec![],
            source_dest_check: true,
            subnet_id: "subnet-1".into(),
            vpc_id: "vpc-1".into(),
            security_groups: vec![],
            mac: [0; 6],
        }
    }

    /// Returns ids by role: management, ingress, egress.
    fn found(
        interfaces: &[NetworkInterface],
        configured: &AwsRoles,
    ) -> Result<[String; 3], String> {
        let id = |of: Option<&NetworkInterface>| of.map_or("-".to_owned(), |i| i.id.clone());
        let roles = roles(interfaces, configured, "weir").map_err(|e| e.to_string())?;
        Ok([id(roles.management), id(roles.ingress), id(roles.egress)])
    }

    #[test]
    fn roles_prefer_configuration_over_tags_and_tags_over_descriptions() {
        let plain = [interface("a", "management", ""), interface("b", " Ingress ", "")];
        let none = AwsRoles::default();
        assert_eq!(found(&plain, &none).unwrap(), ["a", "b", "-"]);
        // Both descriptions are ignored, because both interfaces have the tag.
        let tagged = [interface("a", "ingress", "egress"), interface("b", "", "ingress")];
        assert_eq!(found(&tagged, &none).unwrap(), ["-", "b", "a"]);
        let configured = AwsRoles { management: Some("c".into()), ..AwsRoles::default() };
        let three = [plain.as_slice(), &[interface("c", "", "")]].concat();
        assert_eq!(found(&three, &configured).unwrap(), ["c", "b", "-"]);
    }

    #[test]
    fn ambiguous_roles_are_errors_that_name_the_key() {
        let twice = [interface("a", "ingress", ""), interface("b", "ingress", "")];
        let none = AwsRoles::default();
        let several = found(&twice, &none).unwrap_err();
        assert!(several.contains("a, b are all marked as ingress") && several.contains("aws."));
        let unknown = AwsRoles { egress: Some("x".into()), ..none.clone() };
        let missing = found(&[interface("a", "", "")], &unknown).unwrap_err();
        assert!(missing.contains("aws.egress = \"x\"") && missing.contains("it has a"));
        let both = AwsRoles { egress: Some("a".into()), ..none };
        let both = found(&[interface("a", "ingress", "")], &both).unwrap_err();
        assert!(both.contains("a is both ingress and egress"), "{both}");
    }
}
