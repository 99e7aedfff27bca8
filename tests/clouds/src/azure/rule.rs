//! Rules of a load balancer, and its SKU.

use serde_json::Value;

use crate::azure::answer::{list, text};
use crate::azure::path::same;

/// Returns the SKU of a load balancer; `Basic` if its body names none, as at Azure.
pub fn sku(body: &Value) -> &str {
    Some(text(body, "/sku/name")).filter(|sku| !sku.is_empty()).unwrap_or("Basic")
}

/// Returns the rules of a load balancer that refer to one of its parts.
pub fn rules<'a>(body: &'a Value, id: &'a str) -> impl Iterator<Item = &'a Value> {
    list(body, "/properties/loadBalancingRules").iter().filter(move |rule| {
        let single = ["frontendIPConfiguration", "backendAddressPool", "probe"];
        let mut found = single.iter().map(|m| text(rule, &format!("/properties/{m}/id")));
        let pools = list(rule, "/properties/backendAddressPools");
        found.any(|to| same(to, id)) || pools.iter().any(|pool| same(text(pool, "/id"), id))
    })
}

/// Returns the rules that use a pool.
pub fn rules_of(body: &Value, pool: &str) -> Vec<Value> {
    rules(body, pool).cloned().collect()
}
