//! Values that the machine supplies: `"auto"` in the configuration.
//!
//! `weir auto save` writes [`Values`] to the file `auto_values` while the kernel still has the
//! NICs, that is, before DPDK takes them. [`fill`] replaces each `"auto"` of the merged layers by
//! them. So one configuration serves every machine of a scale set, and all programs of a machine
//! use the same values.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use figment::value::{Dict, Value};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::atomic_file;
use crate::checked::ArmName;
use crate::error::ConfigError;
use crate::file;
use crate::layers::Merged;

/// The value of a key that is replaced by the value of the machine.
pub const AUTO: &str = "auto";
/// Key of the file with the values.
const FILE_KEY: &str = "auto_values";
const ARMS: [ArmName; 2] = [ArmName::Ingress, ArmName::Egress];

/// The values of the machine, as they are stored in the file `auto_values`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// Name of the appliance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Availability zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Values of the arms.
    #[serde(default, rename = "arm")]
    pub arms: BTreeMap<ArmName, ArmValues>,
}

/// The values of an arm.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmValues {
    /// The device for which the values were read, as configured.
    pub device: String,
    /// Origin of the values as a phrase for messages, like `the metadata of AWS`.
    pub source: String,
    /// Addresses with prefix length.
    pub address: Vec<String>,
    /// Routers for default routes, at most one per family.
    #[serde(default)]
    pub gateway: Vec<String>,
    /// MTU in bytes, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// The keys that are `"auto"` in a configuration, and the settings of the sources from which `weir
/// auto save` takes their values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AutoKeys {
    /// Whether the name is `"auto"`.
    pub name: bool,
    /// Whether the zone is `"auto"`.
    pub zone: bool,
    /// Devices of the arms whose address or gateway is `"auto"`.
    pub devices: BTreeMap<ArmName, String>,
    /// The file with the values.
    pub file: PathBuf,
    /// The metadata service of Azure, if the configuration has a section `[azure]`.
    pub azure: Option<AzureMetadata>,
    /// Whether the configuration has a section `[aws]`.
    pub aws: bool,
}

/// The metadata service of Azure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AzureMetadata {
    /// URL of the service.
    pub url: String,
    /// `api-version` of requests.
    pub version: String,
}

impl Default for AzureMetadata {
    fn default() -> AzureMetadata {
        let file::Azure { metadata: url, imds_version: version, .. } = file::Azure::default();
        AzureMetadata { url, version }
    }
}

impl AutoKeys {
    /// Returns whether the file `auto_values` is needed.
    pub fn any(&self) -> bool {
        self.name || self.zone || !self.devices.is_empty()
    }

    pub(crate) fn of(merged: &Merged) -> AutoKeys {
        let text = |path: &str| merged.json.pointer(path).and_then(Json::as_str);
        let device = |arm: ArmName| {
            let keys = ["address", "gateway"];
            let left = keys.iter().any(|key| is_auto(merged, &format!("/{}/{key}", arm.as_str())));
            let device = text(&format!("/{}/device", arm.as_str())).unwrap_or_default();
            left.then(|| (arm, device.to_owned()))
        };
        let azure = merged.json.get("azure").filter(|section| section.is_object());
        let defaults = AzureMetadata::default();
        let of_azure = |key: &str, default: String| {
            text(&format!("/azure/{key}")).map_or(default, str::to_owned)
        };
        AutoKeys {
            name: is_auto(merged, "/name"),
            zone: is_auto(merged, "/zone"),
            devices: ARMS.into_iter().filter_map(device).collect(),
            file: text(&format!("/{FILE_KEY}")).unwrap_or_default().into(),
            azure: azure.map(|_| AzureMetadata {
                url: of_azure("metadata", defaults.url),
                version: of_azure("imds_version", defaults.version),
            }),
            aws: merged.json.get("aws").is_some_and(Json::is_object),
        }
    }
}

/// Returns whether a value is `"auto"`, alone or as the only element of a list.
fn is_auto(merged: &Merged, pointer: &str) -> bool {
    match merged.json.pointer(pointer) {
        Some(Json::String(text)) => text == AUTO,
        Some(Json::Array(list)) => list.len() == 1 && list[0] == AUTO,
        _ => false,
    }
}

impl Values {
    /// Reads the file `auto_values`.
    ///
    /// # Errors
    /// Returns the reason for which it cannot be read or parsed, as the end of a sentence about the
    /// file.
    pub fn read(path: &Path) -> Result<Values, String> {
        let text = atomic_file::read(path).map_err(|e| format!("cannot be read: {e}"))?;
        let text = text.ok_or("does not exist")?;
        toml::from_str(&text).map_err(|e| format!("cannot be parsed: {}", e.message()))
    }

    /// Returns the contents of the file `auto_values`.
    ///
    /// # Errors
    /// Fails if a value cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let head = "# Written by `weir auto save`: this machine's values for the keys that are \
                    \"auto\" in\n# the configuration. Do not edit: write values into the \
                    configuration instead.\n";
        Ok(format!("{head}{}", toml::to_string(self)?))
    }
}

/// Replaces every `"auto"` by the value of the machine: NAT addresses by those of the arm, all
/// others from the file `auto_values`. An arm whose address is `"auto"` also gets its gateway and
/// MTU from the file, unless a layer sets them.
pub(crate) fn fill(merged: Merged) -> Result<Merged, ConfigError> {
    let keys = AutoKeys::of(&merged);
    let merged = if keys.any() { fill_from_file(merged, &keys)? } else { merged };
    if !is_auto(&merged, "/nat/addresses") {
        return Ok(merged);
    }
    let addresses = nat_addresses(&merged.json);
    let list = addresses.into_iter().map(Value::from).collect::<Vec<_>>();
    let nat = Dict::from([("addresses".to_owned(), Value::from(list))]);
    let values = Dict::from([("nat".to_owned(), Value::from(nat))]);
    merged.with_layer("first address of the arm".to_owned(), values)
}

fn fill_from_file(merged: Merged, keys: &AutoKeys) -> Result<Merged, ConfigError> {
    let path = keys.file.display().to_string();
    let problem = |key: &str, fault: String, remedy: &str| {
        ConfigError::invalid(vec![merged.problem(key, &fault, remedy)])
    };
    let first = || match keys.devices.keys().next() {
        _ if keys.name => "name".to_owned(),
        _ if keys.zone => "zone".to_owned(),
        Some(arm) if is_auto(&merged, &format!("/{}/address", arm.as_str())) => {
            format!("{}.address", arm.as_str())
        }
        Some(arm) => format!("{}.gateway", arm.as_str()),
        None => FILE_KEY.to_owned(),
    };
    let save = "run `weir auto save` while the kernel has the NIC (the unit weir-auto does so at \
                boot), or write the value";
    let values = Values::read(&keys.file).map_err(|fault| {
        problem(&first(), format!("the machine's values: {path} {fault}"), save)
    })?;
    let mut dict = Dict::new();
    for (key, is_auto_key, value) in
        [("name", keys.name, &values.name), ("zone", keys.zone, &values.zone)]
    {
        let Some(value) = value.as_ref().filter(|_| is_auto_key) else {
            if is_auto_key {
                return Err(problem(key, format!("{path} has no {key}"), save));
            }
            continue;
        };
        dict.insert(key.to_owned(), value.clone().into());
    }
    for (arm, device) in &keys.devices {
        let name = arm.as_str();
        let key = |key: &str| format!("{name}.{key}");
        let Some(values) = values.arms.get(arm) else {
            return Err(problem(&key("address"), format!("{path} has no values of {name}"), save));
        };
        if values.device != *device {
            let fault = format!("{path} has the values of another device, \"{}\"", values.device);
            return Err(problem(&key("device"), fault, save));
        }
        let is_set = |key: &str| merged.is_set(&format!("{name}.{key}"));
        let of_address = is_auto(&merged, &format!("/{name}/address"));
        let mut section = Dict::new();
        if of_address {
            section.insert("address".to_owned(), values.address.clone().into());
        }
        let of_gateway = is_auto(&merged, &format!("/{name}/gateway"));
        if of_gateway || of_address && !is_set("gateway") {
            section.insert("gateway".to_owned(), values.gateway.clone().into());
        }
        if let Some(mtu) = values.mtu.filter(|_| of_address && !is_set("mtu")) {
            section.insert("mtu".to_owned(), mtu.into());
        }
        dict.insert(name.to_owned(), section.into());
    }
    merged.with_layer(path, dict)
}

/// Returns the first address of each family of the arm that faces the backends, without prefix
/// lengths. Texts that are not addresses are skipped; validation reports them.
fn nat_addresses(json: &Json) -> Vec<String> {
    let arm = json.get("egress").filter(|arm| arm.is_object()).or(json.get("ingress"));
    let texts: Vec<&str> = match arm.and_then(|arm| arm.get("address")) {
        Some(Json::String(one)) => vec![one],
        Some(Json::Array(list)) => list.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    };
    let addresses = texts.iter().filter_map(|text| text.split('/').next()?.parse().ok());
    let addresses: Vec<IpAddr> = addresses.collect();
    let first = |v6: bool| addresses.iter().find(|address| address.is_ipv6() == v6);
    [false, true].into_iter().filter_map(first).map(IpAddr::to_string).collect()
}
