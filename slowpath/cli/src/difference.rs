//! Differences between two objects, field by field.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value};
use state::object::Object;

/// A field of the desired state that differs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Field {
    /// Path, for example `spec.mss` or `spec.endpoints[10.0.2.11:80/tcp].weight`.
    pub path: String,
    /// Old value; `None` if the field is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// New value; `None` if the field is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
}

/// Maximum number of fields that a summary names; the others are counted.
const MAX_NAMED: usize = 4;

/// Returns the differing fields of the desired state, ordered by path.
pub fn fields(before: Option<&Object>, after: Option<&Object>) -> Vec<Field> {
    let (mut old, mut new) = (leaves(before), leaves(after));
    let paths: BTreeSet<String> = old.keys().chain(new.keys()).cloned().collect();
    let field = |path: String| {
        let (old, new) = (old.remove(&path), new.remove(&path));
        (old != new).then_some(Field { path, old, new })
    };
    paths.into_iter().filter_map(field).collect()
}

/// Returns the leaf values of the desired state by path. Objects, and lists whose elements all have
/// an address, are not leaves: their fields and elements have paths of their own. Other lists are
/// compared as a whole.
fn leaves(object: Option<&Object>) -> BTreeMap<String, Value> {
    let mut leaves = BTreeMap::new();
    let Some(Ok(json)) = object.map(serde_json::to_value) else { return leaves };
    for part in ["labels", "annotations", "spec"] {
        if let Some(value) = json.get(part) {
            collect(value, part, &mut leaves);
        }
    }
    leaves
}

fn collect(value: &Value, path: &str, leaves: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                collect(value, &format!("{path}.{key}"), leaves);
            }
        }
        // An address identifies an element, whatever its position in the list.
        Value::Array(list)
            if !list.is_empty() && list.iter().all(|one| element_key(one).is_some()) =>
        {
            for one in list.iter().filter_map(Value::as_object) {
                element(one, path, leaves);
            }
        }
        plain => drop(leaves.insert(path.to_owned(), plain.clone())),
    }
}

fn element(one: &Map<String, Value>, path: &str, leaves: &mut BTreeMap<String, Value>) {
    let element_key = one.get("address").and_then(|_| key_of_map(one)).unwrap_or_default();
    let mut path = format!("{path}[{element_key}]");
    // Elements with the same address get distinct paths.
    while leaves.contains_key(&path) {
        path.push('\'');
    }
    // The element itself, so that its addition or removal is a difference of its own.
    leaves.insert(path.clone(), Value::Null);
    let about = one.iter().filter(|(key, _)| !["address", "port", "protocol"].contains(&&***key));
    for (key, value) in about {
        collect(value, &format!("{path}.{key}"), leaves);
    }
}

fn element_key(element: &Value) -> Option<String> {
    key_of_map(element.as_object()?)
}

/// Returns the key of a list element, `10.0.2.11:80/tcp`, with `@` and the gateway endpoint if it
/// has one. Returns `None` if the element has no address.
fn key_of_map(element: &Map<String, Value>) -> Option<String> {
    let address = element.get("address")?.as_str()?;
    let port = element.get("port").and_then(Value::as_u64).unwrap_or(0);
    let port = u16::try_from(port).unwrap_or(0);
    let element_key = state::text::address_port(address, port);
    let protocol = element.get("protocol").and_then(Value::as_str).unwrap_or("any");
    let scope = element.get("scope").and_then(Value::as_str);
    Some(format!(
        "{element_key}/{protocol}{}",
        scope.map(|at| format!("@{at}")).unwrap_or_default()
    ))
}

/// Formats a value; null is empty.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if !text.is_empty() => text.clone(),
        other => other.to_string(),
    }
}

/// Formats a summary on one line: `spec.affinity_s 30 -> 60, + spec.mss 1300, and 3 more`.
pub fn summary(fields: &[Field]) -> String {
    let one = |field: &Field| match (&field.old, &field.new) {
        (Some(old), Some(new)) => format!("{} {} -> {}", field.path, text(old), text(new)),
        (None, Some(Value::Null)) => format!("+ {}", field.path),
        (None, Some(new)) => format!("+ {} {}", field.path, text(new)),
        _ => format!("- {}", field.path),
    };
    let mut parts: Vec<String> = fields.iter().take(MAX_NAMED).map(one).collect();
    if fields.len() > MAX_NAMED {
        parts.push(format!("and {} more", fields.len() - MAX_NAMED));
    }
    parts.join(", ")
}

/// Formats the differences as lines that begin with `-` for old and `+` for new values.
pub fn lines(fields: &[Field]) -> String {
    let mut all = String::new();
    for field in fields {
        for (sign, value) in [('-', &field.old), ('+', &field.new)] {
            match value.as_ref().map(text) {
                None => {}
                Some(text) if text.is_empty() => all.push_str(&format!("{sign}{}\n", field.path)),
                Some(text) => all.push_str(&format!("{sign}{}: {text}\n", field.path)),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(spec: Value) -> Object {
        let json = json!({ "kind": "Service", "name": "shop/web", "spec": spec });
        Object::from_json(&json).unwrap()
    }

    fn frontend(port: u16) -> Value {
        json!({ "address": "203.0.113.1", "port": port, "protocol": "tcp" })
    }

    #[test]
    fn reports_only_differences_and_matches_elements_by_address() {
        let old = service(json!({ "affinity_s": 30, "mss": 1300,
            "frontends": [frontend(80), frontend(81)] }));
        let new = service(json!({ "affinity_s": 60, "algorithm": "random",
            "frontends": [frontend(82), frontend(80)] }));
        let changed = fields(Some(&old), Some(&new));
        let expected = "\
-spec.affinity_s: 30
+spec.affinity_s: 60
+spec.algorithm: random
-spec.frontends[203.0.113.1:81/tcp]
-spec.frontends[203.0.113.1:81/tcp].type: LoadBalancer
+spec.frontends[203.0.113.1:82/tcp]
+spec.frontends[203.0.113.1:82/tcp].type: LoadBalancer
-spec.mss: 1300
";
        assert_eq!(lines(&changed), expected);
        assert_eq!(
            summary(&changed),
            "spec.affinity_s 30 -> 60, + spec.algorithm random, \
             - spec.frontends[203.0.113.1:81/tcp], - spec.frontends[203.0.113.1:81/tcp].type, \
             and 3 more"
        );
        assert!(fields(Some(&old), Some(&old)).is_empty());
    }

    #[test]
    fn created_and_deleted_objects_differ_in_all_fields() {
        let object = service(json!({ "frontends": [frontend(80)] }));
        assert!(lines(&fields(None, Some(&object))).lines().all(|line| line.starts_with('+')));
        assert!(lines(&fields(Some(&object), None)).lines().all(|line| line.starts_with('-')));
    }
}
