//! Values of a configuration that belong to one machine, such as its addresses and devices. `weir
//! restore` compares those of a backup with those of the machine, to detect the backup of another
//! machine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value as Json;

use crate::automatic::AUTO;
use crate::error::ConfigError;
use crate::key_use::{LISTEN, MACHINE, MACHINE_ANNOTATIONS, MACHINE_PATH};
use crate::layers::{ParsedFile, display_path};
use crate::{file, merge, schema};

/// A value that may belong to one machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineValue {
    /// The value in the notation of TOML.
    pub text: String,
    /// Whether a layer sets it. Otherwise it is the default.
    pub is_set: bool,
    /// Whether it is a path.
    pub is_path: bool,
}

/// Returns the values that belong to one machine, by key. The configuration consists of `text`, the
/// contents of `file`, and of the environment and `sets`. Empty values are omitted, and values that
/// are `"auto"`, which fit every machine.
///
/// # Errors
/// Returns an error if a layer cannot be parsed.
pub fn machine_values(
    file: &Path,
    text: &str,
    sets: &[String],
) -> Result<BTreeMap<String, MachineValue>, ConfigError> {
    let file = ParsedFile::parse(&file.display().to_string(), text.to_owned())?;
    let (merged, _) = merge(Some(file), sets)?;
    let root = Json::from(schemars::schema_for!(file::File));
    let mut values = BTreeMap::new();
    for used in schema::used_values(&root, &merged.json) {
        let (is_set, is_path) = (merged.is_set(&used.path), used.key_use == MACHINE_PATH);
        let key = display_path(&used.path);
        let mut insert = |key: String, value: &Json| {
            if let Some(text) = text_of(value) {
                values.insert(key, MachineValue { text, is_set, is_path });
            }
        };
        match used.key_use {
            MACHINE | MACHINE_PATH => insert(key, used.value),
            LISTEN if is_of_machine(used.value) => insert(key, used.value),
            MACHINE_ANNOTATIONS => {
                for (name, value) in used.value.as_object().into_iter().flatten() {
                    if value.as_str().is_some_and(|text| text.contains("router-id=")) {
                        insert(format!("{key}.{name:?}"), value);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(values)
}

/// Returns a value in the notation of TOML; `None` if it is empty or `"auto"`. A list of one
/// element has the notation of its element.
fn text_of(value: &Json) -> Option<String> {
    let one = match value {
        Json::Array(list) if list.len() == 1 => &list[0],
        one => one,
    };
    match one {
        Json::Null => None,
        Json::String(text) if text.is_empty() || text == AUTO => None,
        Json::Array(list) if list.is_empty() => None,
        one => Some(one.to_string()),
    }
}

/// Returns whether one of the addresses to listen on belongs to a machine: it is neither loopback
/// nor unspecified.
fn is_of_machine(value: &Json) -> bool {
    let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let addresses = list.iter().filter_map(|one| one.as_str()?.parse::<SocketAddr>().ok());
    addresses.map(|address| address.ip()).any(|ip| !ip.is_unspecified() && !ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str, sets: &[&str]) -> BTreeMap<String, String> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let values = machine_values(Path::new("weir.toml"), text, &sets).unwrap();
        values.into_iter().filter(|(_, one)| one.is_set).map(|(key, one)| (key, one.text)).collect()
    }

    #[test]
    fn written_values_are_those_of_a_machine_and_auto_is_not() {
        let text = "name = \"a\"\nzone = \"auto\"\n[ingress]\naddress = [\"auto\"]\n\
                    device = \"eth1\"\n[nat]\naddresses = [\"10.0.1.11\"]\n";
        let expected =
            [("ingress.device", "\"eth1\""), ("name", "\"a\""), ("nat.addresses", "\"10.0.1.11\"")];
        let expected: BTreeMap<String, String> =
            expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!(values(text, &[]), expected);
        assert_eq!(values(&text.replace("[\"10.0.1.11\"]", "\"10.0.1.11\""), &[]), expected);
        assert!(!values(text, &["name=auto"]).contains_key("name"));
        assert!(machine_values(Path::new("weir.toml"), "name", &[]).is_err());
        // Defaults are returned too, because the values of a backup are compared with them.
        let all = machine_values(Path::new("weir.toml"), text, &[]).unwrap();
        let main_core = MachineValue { text: "0".to_owned(), is_set: false, is_path: false };
        assert_eq!(all.get("fastpath.main_core"), Some(&main_core));
        assert!(all.get("control.state").is_some_and(|state| state.is_path && !state.is_set));
    }

    #[test]
    fn identifiers_addresses_and_cpus_of_a_machine_are_found_wherever_they_are() {
        let text = "[annotations]\n\
                    \"weir.dev/bgp-virtual-router.64512\" = \"router-id=192.0.2.1\"\n\
                    \"weir.dev/bgp-virtual-router.64513\" = \"local-port=179\"\n\
                    note = \"anything\"\n\
                    [fastpath]\nmain_core = 3\nlcores = [4]\neal = [\"--file-prefix=a\"]\n\
                    [ingress]\ntap = \"in0\"\nipip_sources = \"100.64.7.0/24\"\n\
                    [egress]\ntap = \"out0\"\n\
                    [[gateway]]\nname = \"g\"\nkind = \"aws\"\nsources = \"10.0.0.0/8\"\n\
                    [[gateway]]\nname = \"h\"\nkind = \"aws\"\nsources = \"10.0.0.0/8\"\n\
                    address = \"10.0.1.7\"\n\
                    [aws]\ningress = \"eni-1\"\n\
                    [bgp]\nrouter_id = \"192.0.2.9\"\n\
                    [health]\nlisten = [\"0.0.0.0:80\", \"10.0.1.11:80\"]\ntcp = \"[::]:81\"\n\
                    probe_sources = \"10.0.1.12\"\n\
                    [metrics]\nlisten = \"127.0.0.1:9\"\n[api]\nlisten = \"[2001:db8::1]:443\"\n";
        let values = values(text, &[]);
        let keys: Vec<&str> = values.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "annotations.\"weir.dev/bgp-virtual-router.64512\"",
                "api.listen",
                "aws.ingress",
                "bgp.router_id",
                "egress.tap",
                "fastpath.eal",
                "fastpath.lcores",
                "fastpath.main_core",
                "gateway[1].address",
                "health.listen",
                "health.probe_sources",
                "ingress.ipip_sources",
                "ingress.tap",
            ]
        );
    }
}
