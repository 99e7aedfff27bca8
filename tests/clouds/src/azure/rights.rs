//! Permissions: which actions are denied, and how.

use crate::azure::answer::{Told, refuse};
use crate::azure::path::Path;
use crate::azure::world::World;

/// Object id of the caller.
pub const OBJECT: &str = "00000000-0000-0000-0000-00000000000b";

pub fn allowed(world: &World, action: &str, scope: &str) -> Told<()> {
    if !world.forbids(action) {
        return Ok(());
    }
    let why = format!(
        "The client '{0}' with object id '{0}' does not have authorization to perform action \
         '{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, \
         please refresh your credentials.",
        OBJECT
    );
    refuse(403, "AuthorizationFailed", why)
}

/// Checks the permission for an action on another resource to which a write refers.
pub fn joins(world: &World, path: &Path, action: &str, linked: &str) -> Told<()> {
    let action = format!("Microsoft.Network/{action}");
    if !world.forbids(&action) {
        return Ok(());
    }
    let why = format!(
        "The client '{0}' with object id '{0}' has permission to perform action '{1}/{2}/write' on \
         scope '{3}'; however, it does not have permission to perform action(s) '{action}' on the \
         linked scope(s) '{linked}' (respectively) or the linked scope(s) are invalid.",
        OBJECT,
        path.provider,
        path.types(),
        path.id()
    );
    refuse(403, "LinkedAuthorizationFailed", why)
}
