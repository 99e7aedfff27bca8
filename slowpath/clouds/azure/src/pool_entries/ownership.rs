//! Which entry of a pool is this machine's, and whether an entry may be added.

use clouds::failure::{AttemptError, Failure};
use config::checked::MembershipMode;

use crate::balancer::Entry;
use crate::location::Pool;
use crate::operations;
use crate::types::CallError;

/// Result of a change to a resource's body: true if the body had to be changed.
pub(super) type Change = Result<bool, AttemptError>;

/// Returns this machine's entry.
pub(crate) fn own_entry<'a>(entries: &'a [Entry], pool: &Pool) -> Option<&'a Entry> {
    entries.iter().find(|entry| is_own_entry(entry, pool))
}

pub(super) fn is_own_entry(entry: &Entry, pool: &Pool) -> bool {
    match entry.mode {
        MembershipMode::Nic => entry.configuration.as_ref() == Some(&pool.configuration),
        MembershipMode::Ip => {
            let network = entry.network.as_ref();
            entry.address == Some(pool.address) && network.is_none_or(|n| *n == pool.network)
        }
    }
}

/// Fails if the pool has members of the other kind: Azure does not allow both in one pool.
pub(super) fn check_membership_mode(
    mode: MembershipMode,
    pool: &Pool,
    entries: &[Entry],
) -> Result<(), CallError> {
    let others: Vec<String> = entries.iter().filter(|e| e.mode != mode).map(display_name).collect();
    if others.is_empty() {
        return Ok(());
    }
    let (configured, existing) = match mode {
        MembershipMode::Nic => ("nic", "ip"),
        MembershipMode::Ip => ("ip", "nic"),
    };
    let why = format!(
        "pool {} has members by {existing} ({}), and a pool cannot have both; set \
         azure.membership = {existing:?} instead of {configured:?}, or remove them",
        pool.id.name(),
        others.join(", ")
    );
    Err(operations::POOLS_PUT.operation.failed(Failure::Invalid, "OtherMembership", why).error)
}

/// Returns the name of an entry for messages: that of the scale set instance, the interface or the
/// entry, else its address.
pub(crate) fn display_name(entry: &Entry) -> String {
    let machine = entry.configuration.as_ref().and_then(|id| {
        let instance = id.named("virtualMachineScaleSets").zip(id.named("virtualMachines"));
        let instance = instance.map(|(set, number)| format!("{set}_{number}"));
        instance.or_else(|| id.named("networkInterfaces").map(str::to_owned))
    });
    let address = || entry.address.map(|address| address.to_string());
    machine.or_else(|| entry.name.clone()).or_else(address).unwrap_or_else(|| "?".to_owned())
}
