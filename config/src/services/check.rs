//! Validation of the services file: from the file as written to [`Services`].

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::address::Address;
use super::backend::BackendSpec;
use super::file::ServicesFile;
use super::frontend::FrontendSpec;
use super::kinds::{BackendState, FrontendKind, NatPolicy, TrafficPolicy};
use super::mode::{Mode, ModeKeys};
use super::spec::{RangesKeys, ServiceSpec};
use super::{Service, Services};
use crate::check::validator::Validator;
use crate::checked::{ArmName, Config, Reserved};
use crate::error::ConfigError;
use crate::layers::{Merged, join};
use crate::validation_error::ValidationError;

/// Longest service name in bytes that the tables can hold.
const NAME_BYTES: usize = 120;

/// Keys of a service in the file that do not belong to its spec.
const KEYS_OUTSIDE_SPEC: [&str; 4] = ["name", "labels", "annotations", "backends"];

pub(crate) fn schema() -> Json {
    schemars::schema_for!(ServicesFile).into()
}

/// Validates the services file: first each value against the schema, then all rules. All faults of
/// the first stage that fails are reported at once.
pub(crate) fn check(merged: &Merged, config: &Config) -> Result<Services, ConfigError> {
    let problems = crate::schema::check(merged, &schema());
    if !problems.is_empty() {
        return Err(ConfigError::invalid(problems));
    }
    let mut validator = Validator::new(merged);
    let mut services = Vec::new();
    for (i, written) in merged.json["service"].as_array().into_iter().flatten().enumerate() {
        services.push(check_one(&mut validator, &format!("service.{i}"), written, config));
    }
    check_across_services(&mut validator, &services);
    check_reserved_ports(&mut validator, &services, config);
    check_capacity(&mut validator, &services, config);
    if !validator.problems.is_empty() {
        return Err(ConfigError::invalid(validator.problems));
    }
    let allow_removal = merged.json["allow_removal"].as_bool().unwrap_or(false);
    Ok(Services { allow_removal, services })
}

fn check_one(validator: &mut Validator, key: &str, written: &Json, config: &Config) -> Service {
    let text = written["name"].as_str().unwrap_or_default();
    check_name(validator, &format!("{key}.name"), text);
    let mut service = Service { name: text.to_owned(), ..Service::default() };
    let pairs = |pairs: &Json| BTreeMap::<String, String>::deserialize(pairs).unwrap_or_default();
    service.labels = pairs(&written["labels"]);
    service.annotations = pairs(&written["annotations"]);
    // A service whose spec or backends are invalid takes part in later checks by its name only.
    let (Some(mut spec), Some(backends)) =
        (read_spec(validator, key, written), read_backends(validator, key, written))
    else {
        return service;
    };
    check_policies(validator, key, &spec);
    if spec.table_size == 0 {
        spec.table_size = config.tables.maglev_size;
    }
    for (i, frontend) in spec.frontends.iter().enumerate() {
        check_node_port(validator, &format!("{key}.frontends.{i}"), frontend);
    }
    for (i, backend) in backends.into_iter().enumerate() {
        let at = format!("{key}.backends.{i}");
        let Some(backend) = check_backend(validator, &at, backend, config) else { continue };
        if spec.mode == Mode::Nat {
            check_nat_backend(validator, &at, &backend, &spec, config);
        } else if backend.port != 0 {
            let fault = "packets in a tunnel keep their port";
            validator.reject(&format!("{at}.port"), fault, "remove it, or write mode = \"nat\"");
        }
        service.backends.push(backend);
    }
    service.spec = Arc::new(spec);
    service
}

/// Deserializes a part of the file, whose keys and types the schema has validated. Reports any
/// other fault under its key.
fn typed<T: DeserializeOwned>(validator: &mut Validator, key: &str, written: &Json) -> Option<T> {
    let read = serde_path_to_error::deserialize(written).map_err(ValidationError::from_serde);
    read.map_err(|error| reject(validator, key, &error)).ok()
}

/// Reports a validation error of a field below a key.
fn reject(validator: &mut Validator, key: &str, error: &ValidationError) {
    let field = error.field.replace('[', ".").replace(']', "");
    let at = if field.is_empty() { key.to_owned() } else { join(key, &field) };
    validator.reject(&at, &error.fault, &error.remedy);
}

/// Deserializes the elements of a list, each on its own.
fn elements<T: DeserializeOwned>(
    validator: &mut Validator,
    key: &str,
    list: &Json,
) -> Vec<Option<T>> {
    let list = list.as_array().into_iter().flatten().enumerate();
    list.map(|(i, one)| typed(validator, &format!("{key}.{i}"), one)).collect()
}

fn read_backends(validator: &mut Validator, key: &str, written: &Json) -> Option<Vec<BackendSpec>> {
    let list = elements(validator, &format!("{key}.backends"), &written["backends"]);
    list.into_iter().collect()
}

/// Deserializes the spec of a service. Its parts are read first, so that each reports its own
/// fault.
fn read_spec(validator: &mut Validator, key: &str, written: &Json) -> Option<ServiceSpec> {
    let before = validator.problems.len();
    elements::<FrontendSpec>(validator, &format!("{key}.frontends"), &written["frontends"]);
    let mode = typed::<ModeKeys>(validator, key, written);
    for fault in mode.iter().flat_map(ModeKeys::faults) {
        reject(validator, key, &fault);
    }
    typed::<RangesKeys>(validator, key, written);
    if before < validator.problems.len() {
        return None;
    }
    let mut spec_keys = written.as_object().cloned().unwrap_or_default();
    spec_keys.retain(|key, value| !KEYS_OUTSIDE_SPEC.contains(&key.as_str()) && !value.is_null());
    let mut spec: ServiceSpec = typed(validator, key, &spec_keys.into())?;
    if spec.port_names.is_none() {
        let named = spec.frontends.iter();
        let named = named.filter_map(|f| Some((f.port_name.as_deref()?, f.address.port)));
        let names: BTreeMap<Box<str>, u16> = named.map(|(name, n)| (name.into(), n)).collect();
        spec.port_names = (!names.is_empty()).then(|| Arc::new(names));
    }
    for fault in spec.faults() {
        reject(validator, key, &fault);
    }
    Some(spec)
}

/// Reports combinations that are valid in objects, but are mistakes in a file written by hand.
fn check_policies(validator: &mut Validator, key: &str, spec: &ServiceSpec) {
    let at = |field: &str| format!("{key}.{field}");
    if spec.proxy_redirect.is_some() && spec.affinity_s != 0 {
        let remedy = "remove one of them";
        validator.reject(
            &at("affinity_s"),
            "with proxy_redirect, affinity is the proxy's task",
            remedy,
        );
    }
    if spec.health_check_port != 0 && spec.external_policy != TrafficPolicy::Local {
        let fault = "the port reports local backends, which only policy local uses";
        let remedy = "write external_policy = \"local\", or remove the key";
        validator.reject(&at("health_check_port"), fault, remedy);
    }
    if spec.nat_policy != NatPolicy::None && spec.mode != Mode::Nat {
        let remedy = "remove it (a tunnel carries either family), or write mode = \"nat\"";
        validator.reject(&at("nat_policy"), "only mode nat translates", remedy);
    }
    if spec.frontends.is_empty() {
        let example = "frontends = [{address = \"203.0.113.10\", port = 80, protocol = \"tcp\"}]";
        let remedy = format!("write at least one: {example}");
        validator.reject(&at("frontends"), "a service without frontends gets no packet", &remedy);
    }
}

fn check_node_port(validator: &mut Validator, key: &str, frontend: &FrontendSpec) {
    let prefix = &frontend.address.prefix;
    if frontend.kind != FrontendKind::NodePort {
        return;
    }
    if !prefix.is_single() || !prefix.addr.is_unspecified() {
        let fault = "a node port is served at all addresses of the appliance";
        validator.reject(&format!("{key}.address"), fault, "write \"0.0.0.0\" or \"::\"");
    }
    if frontend.address.port == 0 {
        validator.reject(
            &format!("{key}.port"),
            "a node port is a single port",
            "allowed: 1 to 65535",
        );
    }
}

fn check_name(validator: &mut Validator, key: &str, text: &str) {
    let good = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let parts: Vec<&str> = text.split('/').collect();
    let valid = parts.iter().all(|part| !part.is_empty() && part.chars().all(good));
    if text.len() > NAME_BYTES || parts.len() > 3 || !valid {
        let remedy = "write \"name\", \"namespace/name\" or \"cluster/namespace/name\" of \
                       letters, digits, `-`, `.`, `_` and `:`, at most 120 bytes";
        validator.reject(key, "not a valid name", remedy);
    }
}

/// Validates a backend and fills in the appliance's defaults for omitted keys. Returns `None` if an
/// address is invalid.
fn check_backend(
    validator: &mut Validator,
    key: &str,
    mut backend: BackendSpec,
    config: &Config,
) -> Option<BackendSpec> {
    if backend.arm == Some(ArmName::Egress) && config.egress.is_none() {
        let remedy = "write arm = \"ingress\", or configure [egress]";
        validator.reject(&format!("{key}.arm"), "this appliance has no egress arm", remedy);
    }
    backend.arm = Some(backend.arm.unwrap_or(config.backend_arm()));
    if backend.weight == 0 {
        backend.state = BackendState::Maintenance;
    }
    let probe =
        backend.probe.map(|probe| validator.address(&format!("{key}.probe"), &probe.to_string()));
    let address = validator.address(&format!("{key}.address"), &backend.address.to_string());
    (address.is_some() && probe.is_none_or(|probe| probe.is_some())).then_some(backend)
}

/// Checks that NAT can reach a backend: mode nat translates within a family unless `nat_policy`
/// allows otherwise, and needs a source address of the backend's family.
fn check_nat_backend(
    validator: &mut Validator,
    key: &str,
    backend: &BackendSpec,
    spec: &ServiceSpec,
    config: &Config,
) {
    let family = |v4| if v4 { "IPv4" } else { "IPv6" };
    let (backend_v4, at) = (backend.address.is_ipv4(), format!("{key}.address"));
    let crosses = |frontend_v4| match spec.nat_policy {
        NatPolicy::None => false,
        NatPolicy::Nat46 => frontend_v4,
        NatPolicy::Nat64 => !frontend_v4,
    };
    let reaches = |frontend_v4| (frontend_v4 == backend_v4) != crosses(frontend_v4);
    let unsuitable = spec.frontends.iter().find(|f| !reaches(f.address.is_ipv4()));
    if let Some(frontend) = unsuitable {
        let fault = format!(
            "an {} backend, but frontend {} is {}, and mode nat does not translate between them",
            family(backend_v4),
            frontend.address.prefix,
            family(!backend_v4)
        );
        let remedy = "write a service for each family, nat_policy = \"nat46\" or \"nat64\", or \
                       mode = \"tunnel\"";
        validator.reject(&at, &fault, remedy);
    } else if !config.nat.addresses.iter().any(|nat| nat.addr.is_ipv4() == backend_v4) {
        let fault = format!("mode nat needs an {} source address", family(backend_v4));
        validator.reject(&at, &fault, "add one to nat.addresses in the configuration");
    }
}

/// Checks that names and frontends are unique over all services, and that services which share a
/// backend give it the same state, arm and probe address.
fn check_across_services(validator: &mut Validator, services: &[Service]) {
    let (mut names, mut frontends) = (Vec::new(), Vec::new());
    let mut backends: Vec<(String, &BackendSpec)> = Vec::new();
    for (i, service) in services.iter().enumerate() {
        names.push((format!("service.{i}.name"), service.name.as_str()));
        let keys = |field: &'static str| (0..).map(move |n| format!("service.{i}.{field}.{n}"));
        let addresses = service.spec.frontends.iter().map(|frontend| frontend.address);
        frontends.extend(keys("frontends").zip(addresses));
        let own: Vec<(String, &BackendSpec)> = keys("backends").zip(&service.backends).collect();
        let ends: Vec<(String, (IpAddr, u16))> =
            own.iter().map(|(key, b)| (format!("{key}.address"), (b.address, b.port))).collect();
        validator.unique(&ends, "backend");
        backends.extend(own);
    }
    validator.unique(&names, "name");
    validator.unique(&frontends, "frontend");
    let mut first: HashMap<(IpAddr, u16), (String, BackendSpec)> = HashMap::new();
    for (key, backend) in backends {
        let end = (backend.address, backend.port);
        let (earlier, agreed) = first.entry(end).or_insert_with(|| (key.clone(), backend.clone()));
        // The probe address belongs to the backend, so only one of the services needs to set it.
        let probe = agreed.probe.or(backend.probe);
        for (field, differs) in [
            ("state", agreed.state != backend.state),
            ("arm", agreed.arm != backend.arm),
            ("probe", backend.probe.is_some() && backend.probe != probe),
        ] {
            if differs {
                let remedy =
                    format!("the first is {}: write the same", validator.location(earlier));
                let fault = format!("the same backend with another {field}");
                validator.reject(&format!("{key}.{field}"), &fault, &remedy);
            }
        }
        agreed.probe = probe;
    }
    let mut probes: Vec<(String, IpAddr)> = first
        .into_values()
        .filter_map(|(key, b)| Some((format!("{key}.probe"), b.probe?)))
        .collect();
    probes.sort();
    validator.unique(&probes, "probe address");
}

/// Checks that no frontend uses a port that the appliance itself uses.
fn check_reserved_ports(validator: &mut Validator, services: &[Service], config: &Config) {
    let reserved = Reserved::of(config);
    for (i, service) in services.iter().enumerate() {
        for (n, frontend) in service.spec.frontends.iter().enumerate() {
            // Packets of a gateway endpoint are never addressed to the appliance itself.
            let Address { prefix, port, protocol, endpoint, .. } = &frontend.address;
            let any_endpoint = *endpoint == 0;
            let holder = reserved.holder(prefix, *port, *protocol);
            let Some(holder) = holder.filter(|_| any_endpoint) else { continue };
            let fault = format!(
                "service \"{}\" cannot use this port of the appliance's own address: {} uses it",
                service.name, holder.holder
            );
            let remedy = "write another port or address";
            validator.reject(&format!("service.{i}.frontends.{n}.port"), &fault, remedy);
        }
    }
}

/// Checks the region's capacities, so that a file that cannot be committed is rejected early.
fn check_capacity(validator: &mut Validator, services: &[Service], config: &Config) {
    let (region, mut backends, mut slots) = (&config.region, Vec::new(), 0_u64);
    for service in services {
        // A single serving backend needs no slots.
        let serving = |b: &&BackendSpec| b.state == BackendState::Active;
        if service.backends.iter().filter(serving).count() > 1 {
            slots += u64::from(service.spec.table_size);
        }
        backends.extend(service.backends.iter().map(|b| (b.address, b.port)));
    }
    backends.sort_unstable();
    backends.dedup();
    let frontends = services.iter().map(|s| s.spec.frontends.len()).sum::<usize>();
    for (what, needed, setting, capacity) in [
        ("services", services.len() as u64, "max_services", region.max_services),
        ("frontends", frontends as u64, "max_frontends", region.max_frontends),
        ("backends", backends.len() as u64, "max_backends", region.max_backends),
        ("Maglev slots", slots, "slots", region.slots),
    ] {
        if needed > u64::from(capacity) {
            let fault =
                format!("{needed} {what} in total exceed the region's capacity of {capacity}");
            let remedy = format!(
                "raise region.{setting}, stop the data plane and slowpath, and remove the region \
                 (flows are lost)"
            );
            validator.reject("service", &fault, &remedy);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::default;
    use crate::services::HealthCheck;

    /// Asserts that a key of `T` which is written with its documented default has the same effect
    /// as an omitted key, for each key that is not in `base`.
    #[track_caller]
    fn assert_documented_defaults<T>(base: &Json)
    where
        T: DeserializeOwned + schemars::JsonSchema + PartialEq + std::fmt::Debug,
    {
        let root: Json = schemars::schema_for!(T).into();
        let of = &root["properties"];
        let absent: T = serde_json::from_value(base.clone()).unwrap();
        let mut checked = 0;
        for (key, property) in of.as_object().unwrap() {
            let value = default(&root, property);
            if value.is_null() || !base[key].is_null() {
                continue;
            }
            let mut written = base.clone();
            written[key] = value;
            assert_eq!(serde_json::from_value::<T>(written).unwrap(), absent, "{key}");
            checked += 1;
        }
        assert!(checked >= 5, "only {checked} keys with a default: {of}");
    }

    #[test]
    fn omitted_key_has_the_documented_default() {
        assert_documented_defaults::<ServiceSpec>(&json!({}));
        assert_documented_defaults::<FrontendSpec>(&json!({"address": "10.0.0.1"}));
        assert_documented_defaults::<BackendSpec>(&json!({"address": "10.0.0.1"}));
        assert_documented_defaults::<HealthCheck>(&json!({"kind": "tcp"}));
    }
}
