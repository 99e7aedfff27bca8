//! Properties of objects read from arbitrary text: each is accepted or rejected with a reason, and
//! an accepted object survives a round trip through JSON and can be applied to the tables. Checked
//! by unit tests and by the fuzz targets `kubernetes` and `objects`.

use std::time::UNIX_EPOCH;

use config::checked::ArmName;

use crate::kubernetes;
use crate::name::{Precedence, Source};
use crate::object::{Change, Object, Objects};
use crate::reflect::Reflector;
use crate::writer::Writer;

/// Reads the bytes as a file of Kubernetes objects, and checks the properties.
pub fn kubernetes(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let settings = kubernetes::Settings::new(Source::new("kubernetes"));
    match kubernetes::read([("objects.yaml", text.as_ref())], &settings) {
        Ok(found) => apply(found.objects),
        Err(errors) => assert!(errors.iter().all(|one| !one.to_string().is_empty())),
    }
}

/// Reads the bytes as the JSON of one object, as the API does, and checks the properties.
pub fn object(bytes: &[u8]) {
    let Ok(json) = serde_json::from_slice(bytes) else { return };
    match Object::from_json(&json) {
        Ok(object) => apply([object]),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Checks that objects survive a round trip through JSON, and applies them to a set of objects and
/// to the tables.
fn apply(all: impl IntoIterator<Item = Object>) {
    let (mut objects, mut events) = (Objects::default(), Vec::new());
    for object in all {
        let text = serde_json::to_string(&object).expect("an object serializes to JSON");
        let parsed: Object = serde_json::from_str(&text).expect("a serialized object parses");
        assert_eq!(parsed, object);
        if let Ok(event) = objects.apply(&Change::put(object), UNIX_EPOCH) {
            events.extend(event);
        }
    }
    let writer = Writer::new();
    let mut reflector = Reflector::new(Precedence::default(), ArmName::Egress);
    let mut transaction = writer.begin(UNIX_EPOCH);
    reflector.apply(&objects, &events, &mut transaction);
    transaction.commit();
}

#[cfg(test)]
mod tests {
    /// Calls `each` with the text, with each prefix of it, and with copies in which one byte is
    /// replaced.
    fn for_each_corruption(text: &str, each: impl Fn(&[u8])) {
        for at in 0..text.len() {
            each(&text.as_bytes()[..at]);
            for new in [0, b'"', b'{', b'-', b'9', 0xff] {
                let mut changed = text.as_bytes().to_vec();
                changed[at] = new;
                each(&changed);
            }
        }
        each(text.as_bytes());
    }

    #[test]
    fn kubernetes_objects_are_converted_or_rejected() {
        let text = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: b}\nspec:\n  \
                    type: LoadBalancer\n  clusterIP: 10.0.0.1\n  \
                    ports: [{port: 80, nodePort: 30001}]\n\
                    status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}\n";
        for_each_corruption(text, super::kubernetes);
    }

    #[test]
    fn api_objects_are_accepted_or_rejected() {
        let text = r#"{"kind":"Service","name":"a/b","source":"api","labels":{"x":"y"},"spec":
            {"frontends":[{"address":"203.0.113.1","port":80,"protocol":"tcp"}],"mode":"nat"}}"#;
        for_each_corruption(text, super::object);
    }
}
