//! Conversion of objects stored by earlier builds.
//!
//! In such objects, some keys of specs are nested in sections or have other names, and some types
//! and reasons of conditions have other names. Only objects read from the store are converted, not
//! those of requests and files.

use serde_json::{Map, Value};

use super::Condition;
use super::kind::Kind;

/// Converts a stored spec to the current keys.
pub(super) fn upgrade(kind: Kind, spec: &mut Value) {
    let Some(spec) = spec.as_object_mut() else { return };
    match kind {
        Kind::Service => {
            if let Some(Value::Object(mode)) = spec.get("mode").cloned() {
                for (name, tunnel) in mode {
                    spec.insert("mode".to_owned(), name.into());
                    let names = [("kind", "tunnel"), ("port", "tunnel_port")];
                    insert(spec, &tunnel, &names, |key, value| !is_zero(key, value));
                }
            }
            if let Some(ranges @ Value::Object(_)) = spec.get("source_ranges").cloned() {
                spec.remove("source_ranges");
                let names = [("prefixes", "source_ranges"), ("policy", "source_policy")];
                insert(spec, &ranges, &names, |_, _| true);
            }
            let frontends = spec.get_mut("frontends").and_then(Value::as_array_mut);
            for frontend in frontends.into_iter().flatten().filter_map(Value::as_object_mut) {
                if let Some(scope) = frontend.remove("reach") {
                    frontend.insert("traffic_scope".to_owned(), scope);
                }
            }
        }
        Kind::Backends => {
            let endpoints = spec.get_mut("endpoints").and_then(Value::as_array_mut);
            for backend in endpoints.into_iter().flatten().filter_map(Value::as_object_mut) {
                if let Some(place) = backend.remove("place") {
                    insert(backend, &place, &[], |_, _| true);
                }
            }
        }
        _ => {}
    }
}

/// Renames the types and reasons of stored conditions that earlier builds named differently.
pub(super) fn upgrade_conditions(conditions: &mut [Condition]) {
    for condition in conditions {
        for name in [&mut condition.aspect, &mut condition.reason] {
            let current = match &**name {
                "CarriedOut" => "Applied",
                "Heard" => "LeaseValid",
                "Kept" => "Persisted",
                "PartlyIgnored" => "PartiallyApplied",
                "Refused" => "Rejected",
                "UnderWay" => "InProgress",
                _ => continue,
            };
            *name = current.into();
        }
    }
}

/// Returns whether a key is a tunnel's port or VNI with value 0, which earlier builds stored for a
/// tunnel without port or VNI.
fn is_zero(key: &str, value: &Value) -> bool {
    matches!(key, "tunnel_port" | "vni") && *value == 0
}

/// Copies the keys of a section into the spec if `is_included` returns true for the new name and
/// the value. `names` has the old and new names of renamed keys.
fn insert(
    spec: &mut Map<String, Value>,
    section: &Value,
    names: &[(&str, &str)],
    is_included: impl Fn(&str, &Value) -> bool,
) {
    for (key, value) in section.as_object().into_iter().flatten() {
        let key = names.iter().find(|(old, _)| old == key).map_or(key.as_str(), |(_, new)| new);
        if is_included(key, value) {
            spec.insert(key.to_owned(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Object;

    #[test]
    fn conditions_of_earlier_builds_are_renamed() {
        let object = |aspect: &str, reason: &str| {
            let condition = json!({"type": aspect, "status": "False", "reason": reason,
                                   "message": "", "since": "2026-11-22T08:00:00Z"});
            json!({"kind": "Source", "name": "k8s", "source": "k8s", "spec": {},
                   "status": {"observed": 1, "conditions": [condition]}})
        };
        for (stored, current) in [
            (object("Heard", "Kept"), object("LeaseValid", "Persisted")),
            (object("Heard", "Heard"), object("LeaseValid", "LeaseValid")),
            (object("Heard", "Released"), object("LeaseValid", "Released")),
            (object("Accepted", "Refused"), object("Accepted", "Rejected")),
            (object("Complete", "PartlyIgnored"), object("Complete", "PartiallyApplied")),
        ] {
            let read: Object = serde_json::from_value(stored).unwrap();
            assert_eq!(read, serde_json::from_value(current).unwrap());
        }
    }

    #[test]
    fn objects_of_earlier_builds_are_upgraded() {
        let frontends = json!([{"address": "203.0.113.1", "port": 80, "protocol": "tcp"}]);
        let service = |more: serde_json::Value| {
            let mut spec = json!({ "frontends": frontends });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"kind": "Service", "name": "a", "source": "api", "spec": spec})
        };
        let backends = |endpoint: serde_json::Value| {
            let spec = json!({"service": "a", "endpoints": [endpoint]});
            json!({"kind": "Backends", "name": "a", "source": "api", "spec": spec})
        };
        let internal = |key: &str| {
            let (address, protocol) = ("10.96.0.1", "tcp");
            json!({"address": address, "port": 80, "protocol": protocol, key: "internal"})
        };
        let geneve = json!({"kind": "geneve", "port": 6081, "vni": 5, "outer_checksum": true,
                            "dont_fragment": false});
        let ipip = json!({"kind": "ipip", "port": 0, "vni": 0, "outer_checksum": false,
                          "dont_fragment": true});
        for (old, current) in [
            (
                service(json!({"mode": {"tunnel": geneve}})),
                service(
                    json!({"mode": "tunnel", "tunnel": "geneve", "tunnel_port": 6081, "vni": 5,
                               "outer_checksum": true, "dont_fragment": false}),
                ),
            ),
            (
                service(json!({"mode": {"dsr": ipip}})),
                service(json!({"mode": "dsr", "tunnel": "ipip"})),
            ),
            (
                service(json!({"mode": "nat",
                               "source_ranges": {"policy": "deny", "prefixes": ["10.0.0.0/8"]}})),
                service(json!({"mode": "nat", "source_ranges": ["10.0.0.0/8"],
                               "source_policy": "deny"})),
            ),
            (
                service(json!({"mode": "nat", "frontends": [internal("reach")]})),
                service(json!({"mode": "nat", "frontends": [internal("traffic_scope")]})),
            ),
            (
                backends(json!({"address": "10.0.0.1", "place": {"node": "n1", "zone": "a",
                                "for_zones": [], "cluster": 0}})),
                backends(json!({"address": "10.0.0.1", "node": "n1", "zone": "a"})),
            ),
        ] {
            let read: Object = serde_json::from_value(old.clone()).unwrap();
            assert_eq!(read, serde_json::from_value(current.clone()).unwrap());
            assert_eq!(read, Object::from_json(&current).unwrap());
            // The API rejects the old format.
            assert!(Object::from_json(&old).is_err(), "{old}");
        }
    }
}
