//! Checks the request bodies that Weir writes to Azure with the models that Microsoft generated
//! from the API specification, `azure_mgmt_network` and `azure_mgmt_privatedns`. `oracle FOLDER`
//! reads the bodies that the Azure emulator recorded there, and fails if a model does not reproduce
//! one of them, or if no body was recorded for an operation.
//!
//! The models accept almost any resource: every member is optional, and unknown members are
//! ignored. A body is therefore parsed, serialized again and compared with the original. A
//! misspelled name or a misplaced member is then missing; a value of another JSON type is rejected.
//! Members that the models cannot express are listed in [`UNSUPPORTED`] with the reason; each must
//! occur.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use azure_mgmt_network::package_2024_03::models as network;
use azure_mgmt_privatedns::package_2020_06::models as dns;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A body as a model serializes it, and whether it has enumeration values that the model does not
/// know.
struct RoundTrip {
    reproduced: Value,
    unknown: bool,
}

/// Parses a body with a model, and serializes it again.
fn round_trip<Model: DeserializeOwned + Serialize + std::fmt::Debug>(
    body: &Value,
) -> Result<RoundTrip, String> {
    let model: Model = serde_json::from_value(body.clone()).map_err(|error| error.to_string())?;
    let reproduced = serde_json::to_value(&model).map_err(|error| error.to_string())?;
    Ok(RoundTrip { reproduced, unknown: format!("{model:?}").contains("UnknownValue(") })
}

type Reader = fn(&Value) -> Result<RoundTrip, String>;

/// The PUT operations of Weir with the model of each body; at least one body must be recorded for
/// each.
const READERS: [(&str, Reader); 10] = [
    (POOLS, round_trip::<network::BackendAddressPool>),
    (INTERFACES, round_trip::<network::NetworkInterface>),
    ("PUT privateDnsZones", round_trip::<dns::PrivateZone>),
    ("PUT privateDnsZones/A", round_trip::<dns::RecordSet>),
    ("PUT privateDnsZones/TXT", round_trip::<dns::RecordSet>),
    ("PUT privateDnsZones/virtualNetworkLinks", round_trip::<dns::VirtualNetworkLink>),
    ("PUT privateEndpoints", round_trip::<network::PrivateEndpoint>),
    ("PUT privateLinkServices", round_trip::<network::PrivateLinkService>),
    (
        "PUT privateLinkServices/privateEndpointConnections",
        round_trip::<network::PrivateEndpointConnection>,
    ),
    ("PUT virtualNetworks/subnets", round_trip::<network::Subnet>),
];

/// Members that the models cannot express: operation, member, reason. Each must occur in a body.
const UNSUPPORTED: [(&str, &str, &str); 13] = [
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
const EMPTY: &str =
    "the model omits an empty list; a request without it would not remove the last element";
const UNDOCUMENTED: &str = "Azure returns it, the specification lacks it; Weir must write it back";
const LATER: &str =
    "a test adds this member to simulate a later API version; Weir must write it back";

/// Collects the members that the model lost, changed or added, by path, for example
/// `.properties.ipConfigurations[].name`. A lost empty list is reported with `= []`.
fn differences(at: &str, original: &Value, reproduced: &Value, found: &mut BTreeSet<String>) {
    match (original, reproduced) {
        (Value::Object(original), Value::Object(reproduced)) => {
            for (key, value) in original {
                let other = reproduced.get(key).unwrap_or(&Value::Null);
                differences(&format!("{at}.{key}"), value, other, found);
            }
            let added = reproduced.keys().filter(|key| !original.contains_key(*key));
            found.extend(added.map(|key| format!("{at}.{key}")));
        }
        (Value::Array(original), Value::Array(reproduced))
            if original.len() == reproduced.len() =>
        {
            let pairs = original.iter().zip(reproduced);
            pairs.for_each(|(one, other)| differences(&format!("{at}[]"), one, other, found));
        }
        _ if original == reproduced => {}
        (Value::Array(original), Value::Null) if original.is_empty() => {
            found.insert(format!("{at} = []"));
        }
        _ => drop(found.insert(at.to_owned())),
    }
}

/// Returns the errors in the bodies of a directory, and the number of bodies by operation.
fn check_folder(folder: &Path) -> Result<(Vec<String>, BTreeMap<&'static str, usize>), String> {
    let listed = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let (mut wrong, mut counts) = (Vec::new(), BTreeMap::new());
    let mut unsupported: BTreeSet<(&str, &str)> = BTreeSet::new();
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
        differences("", &call["body"], &read.reproduced, &mut found);
        for member in found {
            match UNSUPPORTED.iter().find(|(of, known, _)| of == operation && *known == member) {
                Some((of, known, _)) => drop(unsupported.insert((of, known))),
                None => report(format!("the model changes {member}")),
            }
        }
    }
    let unrecorded = READERS.iter().filter(|(operation, _)| !counts.contains_key(operation));
    wrong.extend(unrecorded.map(|(operation, _)| format!("{operation}: no body was recorded")));
    let stale = UNSUPPORTED.iter().filter(|(of, member, _)| !unsupported.contains(&(*of, *member)));
    wrong.extend(stale.map(|(of, member, _)| {
        format!(
            "{of}: {member} is in no body, or the model reproduces it; record a body with it, or \
             remove it from UNSUPPORTED"
        )
    }));
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
            UNSUPPORTED.iter().for_each(|(of, member, why)| println!("  {of} {member}: {why}"));
            wrong.iter().for_each(|what| eprintln!("oracle: {what}"));
            if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differences_of(body: &Value) -> (Vec<String>, bool) {
        let read = round_trip::<network::PrivateLinkService>(body).unwrap();
        let mut found = BTreeSet::new();
        differences("", body, &read.reproduced, &mut found);
        (found.into_iter().collect(), read.unknown)
    }

    fn service(key: &str, method: &str) -> Value {
        let properties = json!({ key: method, "subnet": { "id": "/subscriptions/s" } });
        let configuration = json!({ "name": "nat", "properties": properties });
        json!({ "location": "westeurope", "properties": { "ipConfigurations": [configuration] } })
    }

    #[test]
    fn misspelled_members_unknown_values_wrong_types_and_empty_lists_are_found() {
        let (key, at) = ("privateIPAllocationMethod", ".properties.ipConfigurations[].properties");
        assert_eq!(differences_of(&service(key, "Dynamic")), (vec![], false));
        assert_eq!(differences_of(&service(key, "Dynamical")), (vec![], true));
        let misspelled = "privateIpAllocationMethod";
        let found = differences_of(&service(misspelled, "Dynamic")).0;
        assert_eq!(found, [format!("{at}.{misspelled}")]);
        let object = json!({ "location": "here", "properties": { "ipConfigurations": {} } });
        assert!(round_trip::<network::PrivateLinkService>(&object).is_err());
        let empty = json!({ "location": "here", "properties": { "fqdns": [] } });
        assert_eq!(differences_of(&empty).0, [".properties.fqdns = []"]);
    }
}
