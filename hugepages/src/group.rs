//! Groups of this machine by the names that the configuration has for them.

use config::checked::DATA_GROUP;
use nix::unistd::Group;

/// Why a group that the configuration names can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The machine has no such group.
    #[error(
        "{key} = \"{name}\": this machine has no such group; type `groupadd --system {name}`, or \
         name another"
    )]
    Missing {
        /// The key.
        key: &'static str,
        /// The name.
        name: String,
    },
    /// The user database does not answer.
    #[error("{key} = \"{name}\": {source}")]
    System {
        /// The key.
        key: &'static str,
        /// The name.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The id of the group that `key` names; none where it names none, and where the machine doesn't
/// have [`DATA_GROUP`].
///
/// # Errors
/// The machine doesn't have that group, or can't say whether it does.
pub fn group_id(key: &'static str, name: Option<&str>) -> Result<Option<u32>, GroupError> {
    let Some(name) = name else { return Ok(None) };
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(Some(group.gid.as_raw())),
        Ok(None) if name == DATA_GROUP => Ok(None),
        Ok(None) => Err(GroupError::Missing { key, name: name.to_owned() }),
        Err(source) => {
            Err(GroupError::System { key, name: name.to_owned(), source: source.into() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_name_and_a_missing_one_is_named() {
        assert_eq!(group_id("control.group", None).unwrap(), None);
        assert_eq!(group_id("control.group", Some("root")).unwrap(), Some(0));
        let missing = group_id("control.group", Some("weir-none")).unwrap_err().to_string();
        assert!(missing.contains("control.group = \"weir-none\""), "{missing}");
        assert!(missing.contains("groupadd --system weir-none"), "{missing}");
    }
}
