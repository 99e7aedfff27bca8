//! Permissions: which actions are denied, and how.

use crate::azure::answer::{ServiceResult, fail};
use crate::azure::path::Path;
use crate::azure::state::AzureState;

/// Object id of the caller.
pub const OBJECT: &str = "00000000-0000-0000-0000-00000000000b";

/// Fails if an action is denied.
pub fn check_allowed(cloud: &AzureState, action: &str, scope: &str) -> ServiceResult<()> {
    if !cloud.forbids(action) {
        return Ok(());
    }
    let why = format!(
        "The client '{0}' with object id '{0}' does not have authorization to perform action \
         '{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, \
         please refresh your credentials.",
        OBJECT
    );
    fail(403, "AuthorizationFailed", why)
}

/// Checks the permission for an action on another resource to which a write refers.
pub fn check_join(
    cloud: &AzureState,
    path: &Path,
    action: &str,
    linked: &str,
) -> ServiceResult<()> {
    let action = format!("Microsoft.Network/{action}");
    if !cloud.forbids(&action) {
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
    fail(403, "LinkedAuthorizationFailed", why)
}
