//! Validation of environment variables that begin with `WEIR_` and are not keys. Probable typos of
//! keys are errors; the others cause a warning, since other software may use the prefix (Kubernetes
//! does, for a service of that name).

use serde_json::Value as Json;

use crate::error::Problem;
use crate::layers::shortened;
use crate::schema;

/// Suffixes of variables that Weir's programs and tests use and that are not keys.
const OWN: [&str; 3] = ["LOG", "LAB_KEEP", "BIN_DIR"];

/// Returns errors for variables whose name resembles a key, and warnings for other unknown ones.
/// Names with `__` are keys and are validated with all other keys.
pub(crate) fn strangers(
    root: &Json,
    variables: impl Iterator<Item = (String, String)>,
) -> (Vec<Problem>, Vec<String>) {
    let (mut wrong, mut strange) = (Vec::new(), Vec::new());
    let keys = schema::keys(root);
    let top = |name: &str| root["properties"].get(name.to_lowercase()).is_some();
    for (variable, value) in variables {
        let Some(name) = variable.strip_prefix("WEIR_") else { continue };
        if name.contains("__") || top(name) || OWN.contains(&name) || name.starts_with("TEST_") {
            continue;
        }
        let flat = name.to_lowercase();
        let near = keys.iter().map(|key| (schema::distance(&flat, &key.replace('.', "_")), key));
        match near.min().filter(|(far, key)| *far <= key.len() / 4) {
            Some((_, key)) => wrong.push(typo(&variable, &value, key)),
            None => strange.push(format!(
                "the variable {variable} is no key of Weir's and does nothing here (keys are \
                 written WEIR_INGRESS__MTU)"
            )),
        }
    }
    (wrong, strange)
}

fn typo(variable: &str, value: &str, key: &str) -> Problem {
    let meant = format!("WEIR_{}", key.replace('.', "__").to_uppercase());
    Problem {
        place: format!("environment {variable}={}", shortened(value)),
        key: String::new(),
        found: String::new(),
        wrong: "there is no such variable".into(),
        allowed: format!(
            "did you mean {meant} (the key {key}; two underscores between section and key)?"
        ),
        shown: None,
    }
}
