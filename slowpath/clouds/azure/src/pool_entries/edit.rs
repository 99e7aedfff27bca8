//! The changes to bodies of pools and interfaces; everything else in a body is kept.

use config::checked::MembershipMode;
use serde_json::{Map, Value, json};

use super::ownership::{Change, check_membership_mode, is_own_entry, own_entry};
use crate::balancer::{self, entries};
use crate::location::Pool;
use crate::membership::AdminState;
use crate::operations;
use clouds::failure::{AttemptError, Failure};

/// Adds this machine's address to a pool's list.
pub(super) fn add_address(body: &mut Value, pool: &Pool, name: &str) -> Change {
    let entries = entries(body);
    if own_entry(&entries, pool).is_some() {
        return Ok(false);
    }
    check_membership_mode(MembershipMode::Ip, pool, &entries)
        .map_err(|error| AttemptError { error, after: None })?;
    let network = json!({ "id": pool.network.as_str() });
    let address = json!({ "ipAddress": pool.address, "virtualNetwork": network });
    let entry = json!({ "name": name, "properties": address });
    array(body, &["properties", "loadBalancerBackendAddresses"])
        .ok_or_else(|| operations::POOLS_GET.operation.malformed("the pool is not an object"))?
        .push(entry);
    Ok(true)
}

/// Adds references to the pools to this machine's IP configurations, or removes them unless
/// `present`.
pub(super) fn set_pool_references(interface: &mut Value, pools: &[&Pool], present: bool) -> Change {
    let invalid = |why: String| operations::INTERFACES_GET.operation.malformed(why);
    let mut changed = false;
    for pool in pools {
        let all = array(interface, &["properties", "ipConfigurations"])
            .ok_or_else(|| invalid("no ipConfigurations".to_owned()))?;
        let id = &pool.configuration;
        let own = all.iter_mut().find(|c| balancer::id(c, "/id").as_ref() == Some(id));
        let own = own.ok_or_else(|| invalid(format!("ipConfiguration {id} no longer exists")))?;
        let path = ["properties", "loadBalancerBackendAddressPools"];
        let is_own = |reference: &Value| balancer::id(reference, "/id").as_ref() == Some(&pool.id);
        let list = array(own, &path).ok_or_else(|| invalid(format!("{id} is not an object")))?;
        match list.iter().any(is_own) {
            true if !present => list.retain(|reference| !is_own(reference)),
            false if present => list.push(json!({ "id": pool.id.as_str() })),
            _ => continue,
        }
        changed = true;
    }
    Ok(changed)
}

/// Removes this machine's address from a pool's list.
pub(super) fn remove_address(body: &mut Value, pool: &Pool) -> bool {
    let Some(index) = own_index(body, pool) else { return false };
    let list = array(body, &["properties", "loadBalancerBackendAddresses"]);
    list.is_some_and(|list| {
        list.remove(index);
        true
    })
}

/// Returns the index of this machine's entry in the list of addresses.
fn own_index(body: &Value, pool: &Pool) -> Option<usize> {
    let listed = balancer::list(body, "/properties/loadBalancerBackendAddresses").len();
    entries(body).iter().take(listed).position(|entry| is_own_entry(entry, pool))
}

/// Sets the administrative state of this machine's entry to `Down`, or if `down` is false changes
/// `Down` to `None`.
pub(super) fn set_admin_state(body: &mut Value, pool: &Pool, down: bool) -> Change {
    let entries = entries(body);
    let Some(admin) = own_entry(&entries, pool).map(|entry| entry.admin) else { return Ok(false) };
    if down == (admin == AdminState::Down) {
        return Ok(false);
    }
    // Only entries in the list of addresses have an administrative state. An entry by interface may
    // be listed there too; Azure's portal sets its state there.
    let unlisted = || {
        let why = format!(
            "pool {} lists no address for {}: it has no administrative state; only the probe keeps \
             new flows away",
            pool.id.name(),
            pool.configuration
        );
        operations::POOLS_PUT.operation.failed(Failure::Invalid, "NoEntry", why)
    };
    let index = own_index(body, pool).ok_or_else(unlisted)?;
    let list = array(body, &["properties", "loadBalancerBackendAddresses"]);
    let entry = list.and_then(|list| list.get_mut(index)).ok_or_else(unlisted)?;
    let properties = object(entry, "properties").ok_or_else(unlisted)?;
    let state = if down { "Down" } else { "None" };
    properties.insert("adminState".to_owned(), state.into());
    Ok(true)
}

/// Returns the member object of that name; it is created if missing.
fn object<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Map<String, Value>> {
    let own = value.as_object_mut()?.entry(name).or_insert(Value::Null);
    if own.is_null() {
        *own = json!({});
    }
    own.as_object_mut()
}

/// Returns the list at a path of two names; it is created if missing.
fn array<'a>(value: &'a mut Value, [outer, inner]: &[&str; 2]) -> Option<&'a mut Vec<Value>> {
    let own = object(value, outer)?.entry(*inner).or_insert(Value::Null);
    if own.is_null() {
        *own = json!([]);
    }
    own.as_array_mut()
}
