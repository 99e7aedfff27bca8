//! Status of an object in the form of the Kubernetes resource `AzurePrivateLinkService`.

use serde_json::{Map, Value, json};

use super::status::{ConditionStatus, Status};
use crate::time::Time;

/// Returns the `status` field of `AzurePrivateLinkService`. `time` formats the times of conditions.
pub fn status_for_kubernetes(status: &Status, time: impl Fn(Time) -> String) -> Value {
    let mut written = Map::new();
    let conditions: Vec<Value> = status
        .conditions
        .iter()
        .map(|condition| {
            json!({
                "type": condition.aspect,
                "status": if condition.status == ConditionStatus::True { "True" } else { "False" },
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": time(condition.since),
                "observedGeneration": status.observed,
            })
        })
        .collect();
    written.insert("conditions".to_owned(), conditions.into());
    let (service, endpoint) = (&status.service, &status.endpoint);
    // The suffix identifies the cluster's own zone; the other zone is that of the base domain.
    let own = |zone: &&String| zone.ends_with(".hypershift.local");
    let own_zone = endpoint.zones.keys().find(own);
    let base = endpoint.zones.iter().find(|(name, _)| !own(name));
    for (key, value) in [
        ("internalLoadBalancerID", service.balancer.as_ref().map(|(id, _)| id.to_string())),
        ("privateLinkServiceID", service.id.as_ref().map(ToString::to_string)),
        ("privateLinkServiceAlias", service.alias.clone()),
        ("privateEndpointID", endpoint.id.as_ref().map(ToString::to_string)),
        ("privateEndpointIP", endpoint.address.map(|address| address.to_string())),
        ("privateDNSZoneID", own_zone.map(|name| endpoint.zones[name].id.to_string())),
        ("dnsZoneName", own_zone.cloned()),
        ("baseDomainDNSZoneID", base.map(|(_, zone)| zone.id.to_string())),
    ] {
        if let Some(value) = value {
            written.insert(key.to_owned(), value.into());
        }
    }
    Value::Object(written)
}
