//! Validation of environment variables that begin with `WEIR_` and are not keys. Probable typos of
//! keys are errors. Other variables cause a warning, since other software may use the prefix: for a
//! Service named `weir`, Kubernetes sets `WEIR_SERVICE_HOST`.

use serde_json::Value as Json;

use crate::error::ConfigProblem;
use crate::layers::truncated;
use crate::schema;

/// Names, without `WEIR_`, of variables that Weir's programs and tests use and that are not keys.
const VARIABLES: [&str; 3] = ["LOG", "LAB_KEEP", "BIN_DIR"];

/// Returns errors for variables whose name resembles a key, and warnings for other unknown ones.
/// Names with `__` are keys and are validated with all other keys.
pub(crate) fn check(
    root: &Json,
    variables: impl Iterator<Item = (String, String)>,
) -> (Vec<ConfigProblem>, Vec<String>) {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    let keys = schema::keys(root);
    let top = |name: &str| root["properties"].get(name.to_lowercase()).is_some();
    for (variable, value) in variables {
        let Some(name) = variable.strip_prefix("WEIR_") else { continue };
        if name.contains("__")
            || top(name)
            || VARIABLES.contains(&name)
            || name.starts_with("TEST_")
        {
            continue;
        }
        let flat = name.to_lowercase();
        let candidates =
            keys.iter().map(|key| (schema::distance(&flat, &key.replace('.', "_")), key));
        match candidates.min().filter(|(distance, key)| *distance <= key.len() / 4) {
            Some((_, key)) => errors.push(typo(&variable, &value, key)),
            None => warnings.push(format!(
                "environment variable {variable} is not a key of Weir and has no effect (keys are \
                 written like WEIR_INGRESS__MTU)"
            )),
        }
    }
    (errors, warnings)
}

fn typo(variable: &str, value: &str, key: &str) -> ConfigProblem {
    let meant = format!("WEIR_{}", key.replace('.', "__").to_uppercase());
    ConfigProblem {
        location: format!("environment {variable}={}", truncated(value)),
        key: String::new(),
        found: String::new(),
        fault: "unknown variable".into(),
        remedy: format!(
            "did you mean {meant} (the key {key}; two underscores between section and key)?"
        ),
        snippet: None,
    }
}
