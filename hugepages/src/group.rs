//! Lookup of the groups that the configuration names.

use config::checked::DATA_GROUP;
use nix::unistd::Group;

/// The reason for which a configured group cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The machine has no group with this name.
    #[error(
        "{key} = \"{name}\": the group does not exist; type `groupadd --system {name}`, or \
         set another group"
    )]
    Missing {
        /// Configuration key.
        key: &'static str,
        /// Name of the group.
        name: String,
    },
    /// The user database could not be read.
    #[error("{key} = \"{name}\": cannot look up the group: {source}")]
    System {
        /// Configuration key.
        key: &'static str,
        /// Name of the group.
        name: String,
        /// The error from the system.
        source: std::io::Error,
    },
}

/// Returns the ID of the group that `key` names. Returns `None` if it names none, or if it names
/// [`DATA_GROUP`] and the machine lacks that group.
///
/// # Errors
/// The machine lacks any other group, or its user database cannot be read.
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
    fn group_is_found_by_name_and_missing_group_is_an_error() {
        assert_eq!(group_id("control.group", None).unwrap(), None);
        assert_eq!(group_id("control.group", Some("root")).unwrap(), Some(0));
        let missing = group_id("control.group", Some("weir-none")).unwrap_err().to_string();
        assert!(missing.contains("control.group = \"weir-none\""), "{missing}");
        assert!(missing.contains("groupadd --system weir-none"), "{missing}");
    }
}
