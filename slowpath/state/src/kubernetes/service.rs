//! Conversion of Kubernetes Services to objects: policies, and frontends for addresses and ports.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::annotations::Reader;
use super::wire::{Affinity, Family, Service, ServiceFields, ServiceType};
use super::{IGNORED, Settings, health, wire};
use crate::address::Address;
use crate::frontend::Kind;
use crate::object::{ChangeError, FrontendSpec, Object, ServiceSpec, SourceRanges, Spec};
use config::services::text::prefix_of;
use config::services::{Distribution, TrafficPolicy};

/// Default timeout of session affinity in Kubernetes, seconds.
const AFFINITY_S: u32 = 10_800;
/// Supported annotations that may not be read: they have no effect without `health-kind` or without
/// `loadBalancerSourceRanges`.
const COMPANIONS: [&str; 14] = [
    "src-ranges-policy",
    "health-kind",
    "health-port",
    "health-path",
    "health-host",
    "health-expect",
    "health-verify",
    "health-ca-file",
    "health-server-name",
    "health-interval-ms",
    "health-timeout-ms",
    "health-rise",
    "health-fall",
    "health-jitter-percent",
];
/// Label that makes a service headless, whatever its other fields contain.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// Converts a service; returns `None` if its annotations select other appliances only. Ignored
/// parts are appended to `notes`, and written to the property [`IGNORED`] of the object.
pub fn service(
    from: &Service,
    settings: &Settings,
    notes: &mut Vec<String>,
) -> Result<Option<Object>, ChangeError> {
    let meta = &from.metadata;
    let name = settings.name(&meta.namespace, &meta.name, "metadata.name")?;
    let mut annotations = Reader::new(meta);
    let is_selected = annotations.selects(&settings.labels);
    let mut spec = base_spec(&from.spec)?;
    annotations.apply(&mut spec);
    spec.health = health::check(&mut annotations).map(Arc::new);
    if !from.spec.load_balancer_source_ranges.is_empty() {
        let prefixes = ranges(&from.spec.load_balancer_source_ranges)?;
        let policy = annotations.ranges_policy();
        spec.source_ranges = Some(Arc::new(SourceRanges { policy, prefixes }));
    }
    let only_kind = annotations.only_kind();
    if !is_headless(from) {
        spec.frontends = frontends(from, settings, only_kind)?;
    }
    annotations.note_unknown(&COMPANIONS);
    let mut ignored = annotations.notes;
    ignored.extend(foreign_class(&from.spec, settings));
    if !ignored.is_empty() {
        let property = (IGNORED.into(), ignored.join("; ").into());
        spec.properties = Some(Arc::new(BTreeMap::from([property])));
    }
    notes.extend(ignored.into_iter().map(|note| format!("{name}: {note}")));
    if !is_selected {
        return Ok(None);
    }
    let mut object = Object::new(name, settings.source.clone(), Spec::Service(Arc::new(spec)));
    (object.labels, object.annotations) = (meta.labels.clone(), meta.annotations.clone());
    Ok(Some(object))
}

/// Returns the spec that results from the service's fields alone, without annotations, frontends
/// and source ranges.
fn base_spec(from: &ServiceFields) -> Result<ServiceSpec, ChangeError> {
    let affinity_s = match (from.session_affinity, &from.session_affinity_config.client_ip) {
        (Affinity::None, _) => 0,
        (Affinity::ClientIp, wire::ClientIp { timeout_seconds: 0 }) => AFFINITY_S,
        (Affinity::ClientIp, config) => config.timeout_seconds,
    };
    let distribution = match &*from.traffic_distribution {
        // The internal policy Local already restricts the service to local backends.
        _ if from.internal_traffic_policy == TrafficPolicy::Local => Distribution::Any,
        "PreferClose" | "PreferSameZone" => Distribution::SameZone,
        "PreferSameNode" => Distribution::SameNode,
        "" => Distribution::Any,
        other => {
            let wrong = format!("unknown distribution `{other}`");
            let allowed = "allowed: PreferClose, PreferSameZone, PreferSameNode";
            return Err(ChangeError::new("spec.trafficDistribution", wrong, allowed));
        }
    };
    let named = from.ports.iter().filter(|port| !port.name.is_empty());
    let names: BTreeMap<Box<str>, u16> =
        named.map(|port| (port.name.as_str().into(), port.port)).collect();
    Ok(ServiceSpec {
        external_policy: from.external_traffic_policy,
        internal_policy: from.internal_traffic_policy,
        distribution,
        affinity_s,
        health_check_port: from.health_check_node_port,
        port_names: (!names.is_empty()).then(|| Arc::new(names)),
        ..ServiceSpec::default()
    })
}

fn ranges(texts: &[String]) -> Result<Vec<config::checked::Prefix>, ChangeError> {
    let one = |(i, text): (usize, &String)| {
        prefix_of(text.trim()).map_err(|wrong| {
            ChangeError::new(format!("spec.loadBalancerSourceRanges[{i}]"), wrong, "")
        })
    };
    texts.iter().enumerate().map(one).collect()
}

fn is_headless(from: &Service) -> bool {
    let mut addresses = std::iter::once(&from.spec.cluster_ip).chain(&from.spec.cluster_ips);
    from.metadata.label(HEADLESS).is_some()
        || addresses.any(|address| address.eq_ignore_ascii_case("none"))
}

/// Returns a frontend for each kind, address and port of the service; of those that its type
/// implies, only the ones of `only_kind` if it is set. Of two with the same address, port and
/// protocol, only the first is returned.
fn frontends(
    from: &Service,
    settings: &Settings,
    only_kind: Option<Kind>,
) -> Result<Vec<FrontendSpec>, ChangeError> {
    let spec = &from.spec;
    if let Some(i) = spec.ports.iter().position(|port| port.port == 0) {
        let wrong = "the port number is missing or 0";
        return Err(ChangeError::new(
            format!("spec.ports[{i}].port"),
            wrong,
            "allowed: 1 to 65535",
        ));
    }
    let cluster = cluster_addresses(spec)?;
    let names: Vec<Option<Arc<str>>> = spec
        .ports
        .iter()
        .map(|port| (!port.name.is_empty()).then(|| port.name.as_str().into()))
        .collect();
    let mut all: Vec<FrontendSpec> = Vec::new();
    let mut add = |kind: Kind, addr: IpAddr| {
        for (port, name) in spec.ports.iter().zip(&names) {
            let number = if kind == Kind::NodePort { port.node_port } else { port.port };
            let address = Address::new(addr, number, port.protocol.number());
            if number != 0 && !all.iter().any(|frontend| frontend.address == address) {
                let port_name = name.clone();
                all.push(FrontendSpec { address, kind, port_name, service_port: port.port });
            }
        }
    };
    let is_exposed = |kind: Kind| only_kind.is_none_or(|only| only == kind);
    if spec.kind != ServiceType::ExternalName && is_exposed(Kind::ClusterIp) {
        cluster.iter().for_each(|addr| add(Kind::ClusterIp, *addr));
    }
    let has_node_ports = matches!(spec.kind, ServiceType::NodePort | ServiceType::LoadBalancer);
    if has_node_ports && is_exposed(Kind::NodePort) {
        wildcard_addresses(spec, &cluster).into_iter().for_each(|addr| add(Kind::NodePort, addr));
    }
    let is_own_class = foreign_class(spec, settings).is_none();
    if spec.kind == ServiceType::LoadBalancer && is_own_class && is_exposed(Kind::LoadBalancer) {
        let addresses = from.status.load_balancer.ingress.iter().filter_map(|ingress| ingress.ip);
        addresses.for_each(|addr| add(Kind::LoadBalancer, addr));
    }
    // External IPs do not depend on the service's type, so the annotation does not restrict them.
    spec.external_ips.iter().for_each(|addr| add(Kind::ExternalIps, *addr));
    Ok(all)
}

/// Returns a note if the service has a load balancer class that is not served: the addresses in its
/// status belong to another load balancer, and are ignored.
fn foreign_class(spec: &ServiceFields, settings: &Settings) -> Option<String> {
    let class = spec.load_balancer_class.as_deref()?;
    let is_served = settings.classes.iter().any(|own| **own == *class);
    (spec.kind == ServiceType::LoadBalancer && !is_served).then(|| {
        format!(
            "spec.loadBalancerClass: `{class}` is not served, and the addresses in \
             status.loadBalancer are ignored; classes served (load_balancer_classes): {}",
            settings.classes.join(", ")
        )
    })
}

fn cluster_addresses(spec: &ServiceFields) -> Result<Vec<IpAddr>, ChangeError> {
    let (field, texts) = match spec.cluster_ips.as_slice() {
        [] if spec.cluster_ip.is_empty() => return Ok(Vec::new()),
        [] => ("spec.clusterIP", std::slice::from_ref(&spec.cluster_ip)),
        several => ("spec.clusterIPs", several),
    };
    let one = |text: &String| {
        text.parse().map_err(|_| {
            let wrong = format!("`{text}` is not an address");
            ChangeError::new(field, wrong, "allowed: an IPv4 or IPv6 address, or None for headless")
        })
    };
    texts.iter().map(one).collect()
}

/// Returns the unspecified address of each address family of the service, for node ports, which
/// answer on all addresses of the appliance. `cluster` are the service's cluster addresses.
fn wildcard_addresses(spec: &ServiceFields, cluster: &[IpAddr]) -> Vec<IpAddr> {
    let (v4, v6) = match spec.ip_families.as_slice() {
        [] => (cluster.iter().any(IpAddr::is_ipv4), cluster.iter().any(IpAddr::is_ipv6)),
        listed => (listed.contains(&Family::V4), listed.contains(&Family::V6)),
    };
    let any = [(v4, Ipv4Addr::UNSPECIFIED.into()), (v6, Ipv6Addr::UNSPECIFIED.into())];
    any.into_iter().filter(|(is_listed, _)| *is_listed).map(|(_, addr)| addr).collect()
}
