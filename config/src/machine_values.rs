//! Keys whose values belong to one machine: a configuration that names them is that of one machine.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;

use crate::automatic::AUTO;
use crate::error::ConfigError;
use crate::layers::ParsedFile;
use crate::merge;

/// The keys, as paths.
const KEYS: [&str; 14] = [
    "name",
    "zone",
    "ingress.device",
    "ingress.address",
    "ingress.gateway",
    "egress.device",
    "egress.address",
    "egress.gateway",
    "nat.addresses",
    "fastpath.lcores",
    "region.path",
    "region.maps",
    "control.socket",
    "control.state",
];

/// Returns the values of these keys that the text of a configuration file, the environment and
/// `sets` contain, in the notation of TOML. A key that no layer sets is missing, and so is one that
/// is `"auto"`: its value is that of any machine.
///
/// # Errors
/// Returns an error if a layer cannot be parsed.
pub fn machine_values(
    file: &Path,
    text: &str,
    sets: &[String],
) -> Result<BTreeMap<&'static str, String>, ConfigError> {
    let file = ParsedFile::parse(&file.display().to_string(), text.to_owned())?;
    let (merged, _) = merge(Some(file), sets)?;
    let value = |key: &&'static str| {
        let pointer = format!("/{}", key.replace('.', "/"));
        let value = merged.json.pointer(&pointer).filter(|_| merged.is_set(key))?;
        let list = match value {
            Json::Array(list) => list.clone(),
            one => vec![one.clone()],
        };
        // An element alone and a list of it are the same setting.
        let is_auto = list.len() == 1 && list[0] == AUTO;
        let text = if let [one] = &list[..] { one.to_string() } else { value.to_string() };
        (!is_auto).then_some((*key, text))
    };
    Ok(KEYS.iter().filter_map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_those_of_a_machine_and_auto_is_not() {
        let text = "name = \"a\"\nzone = \"auto\"\n[ingress]\naddress = [\"auto\"]\n\
                    device = \"eth1\"\n[nat]\naddresses = [\"10.0.1.11\"]\n";
        let values = machine_values(Path::new("weir.toml"), text, &[]).unwrap();
        let expected =
            [("ingress.device", "\"eth1\""), ("name", "\"a\""), ("nat.addresses", "\"10.0.1.11\"")];
        assert_eq!(values, expected.map(|(key, value)| (key, value.to_owned())).into());
        let one = text.replace("[\"10.0.1.11\"]", "\"10.0.1.11\"");
        assert_eq!(machine_values(Path::new("weir.toml"), &one, &[]).unwrap(), values);
        let sets = ["name=auto".to_owned()];
        let values = machine_values(Path::new("weir.toml"), text, &sets).unwrap();
        assert!(!values.contains_key("name"), "{values:?}");
        assert!(machine_values(Path::new("weir.toml"), "name", &[]).is_err());
    }
}
