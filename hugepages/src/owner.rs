//! Lookup of the Unix users and groups that the configuration names.

use config::checked::{ADMIN_GROUP, SERVICE_GROUP, SERVICE_USER};
use nix::errno::Errno;
use nix::unistd::{Group, Uid, User};

/// The reason for which a configured user or group cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The machine has no user or group with this name.
    #[error(
        "{key} = \"{name}\": the {kind} does not exist; type `{kind}add --system {name}`, or \
         set another {kind}"
    )]
    Missing {
        /// Configuration key.
        key: &'static str,
        /// `user` or `group`.
        kind: &'static str,
        /// Name of the user or group.
        name: String,
    },
    /// The user database could not be read.
    #[error("{key} = \"{name}\": cannot look up the {kind}: {source}")]
    System {
        /// Configuration key.
        key: &'static str,
        /// `user` or `group`.
        kind: &'static str,
        /// Name of the user or group.
        name: String,
        /// The error from the system.
        source: std::io::Error,
    },
}

/// Returns the ID of the group `name`, the value of the configuration key `key`. Returns `None` if
/// `name` is `None`, and also if it is a default ([`SERVICE_GROUP`], [`ADMIN_GROUP`]) and the
/// machine lacks that group.
///
/// # Errors
/// The machine lacks any other group, or its user database cannot be read.
pub fn group_id(key: &'static str, name: Option<&str>) -> Result<Option<u32>, OwnerError> {
    let found = |name: &str| Group::from_name(name).map(|group| group.map(|g| g.gid.as_raw()));
    id((key, "group"), name, &[SERVICE_GROUP, ADMIN_GROUP], found)
}

/// Like [`group_id`], for the user `name`, whose default is [`SERVICE_USER`].
///
/// # Errors
/// The machine lacks any other user, or its user database cannot be read.
pub fn user_id(key: &'static str, name: Option<&str>) -> Result<Option<u32>, OwnerError> {
    let found = |name: &str| User::from_name(name).map(|user| user.map(|u| u.uid.as_raw()));
    id((key, "user"), name, &[SERVICE_USER], found)
}

/// Returns the name of the user with this ID; `None` if there is none or the user database cannot
/// be read.
pub fn user_name(id: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(id)).ok().flatten().map(|user| user.name)
}

fn id(
    (key, kind): (&'static str, &'static str),
    name: Option<&str>,
    defaults: &[&str],
    found: impl Fn(&str) -> Result<Option<u32>, Errno>,
) -> Result<Option<u32>, OwnerError> {
    let Some(name) = name else { return Ok(None) };
    // getpwnam(3): these errors mean that there is no such name, for example without /etc/passwd.
    let found = match found(name) {
        Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
        found => found,
    };
    match found {
        Ok(None) if !defaults.contains(&name) => {
            Err(OwnerError::Missing { key, kind, name: name.to_owned() })
        }
        Ok(found) => Ok(found),
        Err(source) => {
            Err(OwnerError::System { key, kind, name: name.to_owned(), source: source.into() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_user_database_the_machine_lacks_every_user() {
        let lookup =
            |name, error| id(("region.user", "user"), Some(name), &[SERVICE_USER], |_| error);
        assert_eq!(lookup(SERVICE_USER, Err(Errno::ENOENT)).unwrap(), None);
        let missing = lookup("other", Err(Errno::ESRCH)).unwrap_err();
        assert!(matches!(missing, OwnerError::Missing { .. }), "{missing}");
        let error = lookup(SERVICE_USER, Err(Errno::EIO)).unwrap_err();
        assert!(matches!(error, OwnerError::System { .. }), "{error}");
    }

    #[test]
    fn existing_owners_have_an_id_and_missing_owners_are_an_error() {
        assert_eq!(group_id("control.group", None).unwrap(), None);
        assert_eq!(group_id("control.group", Some("root")).unwrap(), Some(0));
        assert_eq!(user_id("region.user", Some("root")).unwrap(), Some(0));
        let missing = group_id("control.group", Some("weir-none")).unwrap_err().to_string();
        assert!(missing.contains("control.group = \"weir-none\""), "{missing}");
        assert!(missing.contains("groupadd --system weir-none"), "{missing}");
        let missing = user_id("region.user", Some("weir-none")).unwrap_err().to_string();
        assert!(missing.contains("region.user = \"weir-none\": the user"), "{missing}");
        assert!(missing.contains("useradd --system weir-none"), "{missing}");
    }
}
