//! Checks the request bodies that Weir writes to Azure with the models that Microsoft generated
//! from the API specification, `azure_mgmt_network` and `azure_mgmt_privatedns`. `oracle FOLDER`
//! reads the bodies that the Azure emulator recorded there, and fails if a model does not reproduce
//! one of them.
//!
//! The models accept almost any resource: every member is optional, and unknown members are
//! ignored. A body is therefore parsed, serialized again and compared with the original. A
//! misspelled name, a misplaced member or a list in place of an object is then missing. Members
//! that the models cannot express are listed in [`BEYOND`] with the reason; each must occur.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use azure_mgmt_network::package_2024_03::models as network;
use azure_mgmt_privatedns::package_2020_06::models as dns;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A body as serialized by a model, and whether it has enumeration values unknown to the model.
struct Read {
    again: Value,
    unknown: bool,
}

fn by<Model: DeserializeOwned + Serialize + std::fmt::Debug>(body: &Value) -> Result<Read, String> {
    let model: Model = serde_json::from_value(body.clone()).map_err(|error| error.to_string())?;
    let again = serde_json::to_value(&model).map_err(|error| error.to_string())?;
    Ok(Read { again, unknown: format!("{model:?}").contains("UnknownValue(") })
}

type Reader = fn(&Value) -> Result<Read, String>;

/// The operations of Weir and their models. Each must occur.
const READERS: [(&str, Reader); 10] = [
    (POOLS, by::<network::BackendAddressPool>),
    (INTERFACES, by::<network::NetworkInterface>),
    ("PUT privateDnsZones", by::<dns::PrivateZone>),
    ("PUT privateDnsZones/A", by::<dns::RecordSet>),
    ("PUT privateDnsZones/TXT", by::<dns::RecordSet>),
    ("PUT privateDnsZones/virtualNetworkLinks", by::<dns::VirtualNetworkLink>),
    ("PUT privateEndpoints", by::<network::PrivateEndpoint>),
    ("PUT privateLinkServices", by::<network::PrivateLinkService>),
    (
        "PUT privateLinkServices/privateEndpointConnections",
        by::<network::PrivateEndpointConnection>,
    ),
    ("PUT virtualNetworks/subnets", by::<network::Subnet>),
];

/// Members that the models cannot express: operation, member, reason. Each must occur.
const BEYOND: [(&str, &str, &str); 13] = [
    (POOLS, ".properties.loadBalancerBackendAddresses = []", EMPTY),
    (POOLS, ".properties.loadBalancerBackendAddresses[].etag", UNDOCUMENTED),
    (POOLS, ".properties.loadBalancerBackendAddresses[].id", UNDOCUMENTED),
    (
        POOLS,
        ".properties.loadBalancerBackendAddresses[].properties.provisioningState",
        UNDOCUMENTED,
    ),
    (POOLS, ".properties.loadBalancerBackendAddresses[].type", UNDOCUMENTED),
    (POOLS, ".properties.futureKey", LATER),
    ("PUT privateLinkServices", ".properties.fqdns = []", EMPTY),
    ("PUT privateLinkServices", ".properties.privateEndpointConnections = []", EMPTY),
    (INTERFACES, ".properties.dnsSettings.appliedDnsServers = []", EMPTY),
    (INTERFACES, ".properties.dnsSettings.dnsServers = []", EMPTY),
    (
        INTERFACES,
        ".properties.ipConfigurations[].properties.loadBalancerBackendAddressPools = []",
        EMPTY,
    ),
    (INTERFACES, ".properties.futureKey", LATER),
    (INTERFACES, ".properties.ipConfigurations[].properties.futureKey", LATER),
];
const POOLS: &str = "PUT loadBalancers/backendAddressPools";
const INTERFACES: &str = "PUT networkInterfaces";
const EMPTY: &str = "the model omits an empty list, which would never remove the last member";
const UNDOCUMENTED: &str = "Azure returns it, the specification lacks it; it is written back";
const LATER: &str = "a test's member of a later API version; it is written back";

/// Collects the members that the model lost or changed, by path, for example
/// `.properties.ipConfigurations[].name`. A lost empty list is reported with `= []`.
fn differences(at: &str, meant: &Value, again: &Value, found: &mut BTreeSet<String>) {
    match (meant, again) {
        (Value::Object(meant), Value::Object(again)) => {
            for (key, value) in meant {
                let other = again.get(key).unwrap_or(&Value::Null);
                differences(&format!("{at}.{key}"), value, other, found);
            }
            let more = again.keys().filter(|key| !meant.contains_key(*key));
            found.extend(more.map(|key| format!("{at}.{key}")));
        }
        (Value::Array(meant), Value::Array(again)) if meant.len() == again.len() => {
            let pairs = meant.iter().zip(again);
            pairs.for_each(|(one, other)| differences(&format!("{at}[]"), one, other, found));
        }
        _ if meant == again => {}
        (Value::Array(meant), Value::Null) if meant.is_empty() => {
            found.insert(format!("{at} = []"));
        }
        _ => drop(found.insert(at.to_owned())),
    }
}

/// Returns the errors in the bodies of a directory, and the number of bodies by operation.
fn check_folder(folder: &Path) -> Result<(Vec<String>, BTreeMap<&'static str, usize>), String> {
    let listed = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let (mut wrong, mut counts) = (Vec::new(), BTreeMap::new());
    let mut beyond: BTreeSet<(&str, &str)> = BTreeSet::new();
    for entry in listed {
        let path = entry.map_err(|error| error.to_string())?.path();
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let call: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let operation = call["operation"].as_str().unwrap_or_default();
        let mut report =
            |what: String| wrong.push(format!("{operation}: {what} ({})", path.display()));
        let Some((operation, reader)) = READERS.iter().find(|(known, _)| *known == operation)
        else {
            report("no model for this operation; add one to READERS".to_owned());
            continue;
        };
        *counts.entry(*operation).or_default() += 1;
        let read = match reader(&call["body"]) {
            Ok(read) => read,
            Err(error) => {
                report(format!("the model rejects it: {error}"));
                continue;
            }
        };
        if read.unknown {
            report("it has an enumeration value unknown to the model".to_owned());
        }
        let mut found = BTreeSet::new();
        differences("", &call["body"], &read.again, &mut found);
        for member in found {
            match BEYOND.iter().find(|(of, known, _)| of == operation && *known == member) {
                Some((of, known, _)) => drop(beyond.insert((of, known))),
                None => report(format!("the model changes {member}")),
            }
        }
    }
    let unseen = READERS.iter().filter(|(operation, _)| !counts.contains_key(operation));
    wrong.extend(unseen.map(|(operation, _)| format!("{operation}: no body was recorded")));
    let stale = BEYOND.iter().filter(|(of, member, _)| !beyond.contains(&(*of, *member)));
    wrong.extend(stale.map(|(of, member, _)| format!("{of}: {member} is equal; remove the entry")));
    wrong.sort();
    Ok((wrong, counts))
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("oracle: no directory of bodies given; run: make oracle");
        return ExitCode::from(2);
    };
    match check_folder(Path::new(&folder)) {
        Err(error) => {
            eprintln!("oracle: {error}");
            ExitCode::from(2)
        }
        Ok((wrong, counts)) => {
            counts.iter().for_each(|(operation, count)| println!("{count:5}  {operation}"));
            println!("members that the models cannot express:");
            BEYOND.iter().for_each(|(of, member, why)| println!("  {of} {member}: {why}"));
            wrong.iter().for_each(|what| eprintln!("oracle: {what}"));
            if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lost(body: &Value) -> (Vec<String>, bool) {
        let read = by::<network::PrivateLinkService>(body).unwrap();
        let mut found = BTreeSet::new();
        differences("", body, &read.again, &mut found);
        (found.into_iter().collect(), read.unknown)
    }

    fn service(key: &str, method: &str) -> Value {
        let properties = json!({ key: method, "subnet": { "id": "/subscriptions/s" } });
        let configuration = json!({ "name": "nat", "properties": properties });
        json!({ "location": "westeurope", "properties": { "ipConfigurations": [configuration] } })
    }

    #[test]
    fn misspelled_or_misplaced_members_are_found() {
        let (key, at) = ("privateIPAllocationMethod", ".properties.ipConfigurations[].properties");
        assert_eq!(lost(&service(key, "Dynamic")), (vec![], false));
        assert_eq!(lost(&service(key, "Dynamical")), (vec![], true));
        let misspelled = "privateIpAllocationMethod";
        let found = lost(&service(misspelled, "Dynamic")).0;
        assert_eq!(found, [format!("{at}.{misspelled}")]);
        let list = json!({ "location": "here", "properties": { "ipConfigurations": {} } });
        assert!(by::<network::PrivateLinkService>(&list).is_err());
        let empty = json!({ "location": "here", "properties": { "fqdns": [] } });
        assert_eq!(lost(&empty).0, [".properties.fqdns = []"]);
    }
}
