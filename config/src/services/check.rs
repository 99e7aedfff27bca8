//! From the services file as written to the checked services.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::address::{Address, Reach};
use super::file::{self, ServicesFile};
use super::frontend::FrontendSpec;
use super::kinds::{BackendState, BackendTunnel, FrontendKind, Mode, NatPolicy, TunnelKind};
use super::policy;
use super::spec::ServiceSpec;
use super::{Backend, Service, Services};
use crate::check::door::Door;
use crate::check::table_size;
use crate::checked::{ArmName, Config, Reserved};
use crate::error::ConfigError;
use crate::layers::Merged;
use crate::protocol;

/// Bytes of the longest name that the tables hold.
const NAME_BYTES: usize = 120;

pub(crate) fn schema() -> serde_json::Value {
    schemars::schema_for!(ServicesFile).into()
}

/// Checks everything and tells everything that is wrong.
pub(crate) fn check(merged: &Merged, config: &Config) -> Result<Services, ConfigError> {
    let wrong = crate::schema::check(merged, &schema());
    if !wrong.is_empty() {
        return Err(ConfigError::wrong(wrong));
    }
    let file: ServicesFile = merged.typed()?;
    let mut door = Door::new(merged);
    let mut services = Vec::new();
    for (i, service) in file.service.into_iter().enumerate() {
        services.push(check_one(&mut door, &format!("service.{i}"), service, config));
    }
    between(&mut door, &services);
    reserved(&mut door, &services, config);
    room(&mut door, &services, config);
    if !door.problems.is_empty() {
        return Err(ConfigError::wrong(door.problems));
    }
    Ok(Services { allow_removal: file.allow_removal, services })
}

fn check_one(door: &mut Door, key: &str, file: file::Service, config: &Config) -> Service {
    let at = |field: &str| format!("{key}.{field}");
    name(door, &at("name"), &file.name);
    let mode = mode(door, key, &file);
    policy::check(door, key, &file);
    let table_size = match file.table_size {
        0 => config.tables.maglev_size,
        size => table_size(door, &at("table_size"), size),
    };
    if file.frontends.is_empty() {
        let example = "frontends = [{address = \"203.0.113.10\", port = 80, protocol = \"tcp\"}]";
        let allowed = format!("write at least one: {example}");
        door.refuse(&at("frontends"), "a service without frontends gets no packet", &allowed);
    }
    let keyed = file.frontends.iter().enumerate();
    let frontends: Vec<FrontendSpec> =
        keyed.filter_map(|(i, f)| frontend(door, &format!("{key}.frontends.{i}"), f)).collect();
    let mut backends = Vec::new();
    for (i, written) in file.backends.iter().enumerate() {
        let at = format!("{key}.backends.{i}");
        let Some(backend) = backend(door, &at, written, config) else { continue };
        if mode == Mode::Nat {
            nat_backend(door, &at, &backend, &frontends, file.nat_policy, config);
        } else if backend.port != 0 {
            let wrong = "the packet inside the tunnel keeps its port";
            door.refuse(&format!("{at}.port"), wrong, "remove it, or write mode = \"nat\"");
        }
        backends.push(backend);
    }
    let source_ranges = policy::source_ranges(door, key, &file);
    let named = frontends.iter().filter_map(|of| Some((of.port_name.as_deref()?, of.address.port)));
    let port_names: BTreeMap<Box<str>, u16> = named.map(|(name, n)| (name.into(), n)).collect();
    let spec = ServiceSpec {
        nat_policy: file.nat_policy,
        external_policy: file.external_policy,
        internal_policy: file.internal_policy,
        distribution: file.distribution,
        mode,
        algorithm: file.algorithm,
        affinity_s: file.affinity_s,
        health_check_port: file.health_check_port,
        health: file.health.map(Arc::new),
        mss: file.mss,
        tcp_idle_s: file.tcp_idle_s,
        table_size,
        too_big: file.too_big,
        failed_udp: file.failed_udp,
        failed_tcp: file.failed_tcp,
        proxy_redirect: file.proxy_redirect.map(Arc::new),
        source_ranges: source_ranges.map(Arc::new),
        port_names: (!port_names.is_empty()).then(|| Arc::new(port_names)),
        frontends,
        ..ServiceSpec::default()
    };
    Service {
        name: file.name,
        labels: file.labels,
        annotations: file.annotations,
        spec: Arc::new(spec),
        backends,
    }
}

fn name(door: &mut Door, key: &str, text: &str) {
    let good = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let parts: Vec<&str> = text.split('/').collect();
    let whole = parts.iter().all(|part| !part.is_empty() && part.chars().all(good));
    if text.len() > NAME_BYTES || parts.len() > 3 || !whole {
        let allowed = "write \"name\", \"namespace/name\" or \"cluster/namespace/name\" of \
                       letters, digits, `-`, `.`, `_` and `:`, at most 120 bytes";
        door.refuse(key, "this is no name", allowed);
    }
}

fn mode(door: &mut Door, key: &str, file: &file::Service) -> Mode {
    let at = |field: &str| format!("{key}.{field}");
    if file.mode == file::Mode::Nat {
        for (field, written) in [
            ("tunnel", file.tunnel.is_some()),
            ("tunnel_port", file.tunnel_port.is_some()),
            ("vni", file.vni.is_some()),
        ] {
            if written {
                let allowed = "remove it, or write mode = \"tunnel\" or \"dsr\"";
                door.refuse(&at(field), "mode nat has no tunnel", allowed);
            }
        }
        return Mode::Nat;
    }
    let Some(kind) = file.tunnel else {
        let allowed = "write tunnel = \"geneve\", \"vxlan\", \"ipip\" or \"gue\"";
        door.refuse(&at("tunnel"), "modes tunnel and dsr need to know which tunnel", allowed);
        return Mode::Nat;
    };
    if kind == TunnelKind::Ipip && file.tunnel_port.is_some() {
        door.refuse(&at("tunnel_port"), "ipip has no ports", "remove it");
    }
    if matches!(kind, TunnelKind::Ipip | TunnelKind::Gue) && file.vni.is_some() {
        door.refuse(&at("vni"), "only geneve and vxlan have a VNI", "remove it");
    }
    let tunnel = BackendTunnel {
        kind,
        port: file.tunnel_port.unwrap_or(BackendTunnel::new(kind).port),
        vni: file.vni.unwrap_or(0),
        outer_checksum: file.outer_checksum,
        dont_fragment: file.dont_fragment,
    };
    if file.mode == file::Mode::Dsr { Mode::Dsr(tunnel) } else { Mode::Tunnel(tunnel) }
}

fn frontend(door: &mut Door, key: &str, file: &file::Frontend) -> Option<FrontendSpec> {
    let at = |field: &str| format!("{key}.{field}");
    let protocol = protocol::number(&file.protocol);
    if protocol.is_none() {
        let allowed = "allowed: \"tcp\", \"udp\", \"icmp\", \"icmpv6\", \"sctp\", \"any\", \
                       \"1\" to \"254\"";
        door.refuse(&at("protocol"), "there is no such protocol", allowed);
    }
    let (told, protocol) = (protocol.is_none(), protocol.unwrap_or(0));
    if file.port != 0 && protocol == 0 && !told {
        let allowed = "write protocol = \"tcp\" or \"udp\" (one frontend each), or port = 0";
        door.refuse(&at("protocol"), "a port has no meaning in any protocol", allowed);
    } else if file.port != 0 && !matches!(protocol, 0 | 6 | 17 | 132) {
        door.refuse(&at("port"), "this protocol has no ports", "write port = 0, or remove it");
    }
    let digits = file.scope.strip_prefix("0x").unwrap_or(&file.scope);
    let scope = match digits {
        "" if file.scope.is_empty() => Some(0),
        digits => u64::from_str_radix(digits, 16).ok().filter(|s| *s != 0),
    };
    if scope.is_none() {
        let allowed = "write the endpoint's id in hexadecimal, 0x1 to 0xffffffffffffffff, or leave \
                       it out for all endpoints";
        door.refuse(&at("scope"), "this is no endpoint", allowed);
    }
    let prefix = door.prefix(&at("address"), &file.address)?;
    if file.kind == FrontendKind::NodePort && !(prefix.is_single() && prefix.addr.is_unspecified())
    {
        let wrong = "a node port answers on all addresses of the appliance";
        door.refuse(&at("address"), wrong, "write \"0.0.0.0\" or \"::\"");
    }
    if file.kind == FrontendKind::NodePort && file.port == 0 {
        door.refuse(&at("port"), "a node port is one port", "allowed: 1 to 65535");
    }
    let address = Address {
        prefix,
        port: file.port,
        protocol,
        reach: Reach::External,
        endpoint: scope.unwrap_or(0),
    };
    let port_name = (!file.port_name.is_empty()).then(|| file.port_name.as_str().into());
    Some(FrontendSpec { port_name, ..FrontendSpec::new(address, file.kind) })
}

fn backend(door: &mut Door, key: &str, file: &file::Backend, config: &Config) -> Option<Backend> {
    let arm = match file.arm.as_str() {
        "" => config.backend_arm(),
        "ingress" => ArmName::Ingress,
        "egress" if config.egress.is_some() => ArmName::Egress,
        "egress" => {
            let allowed = "write arm = \"ingress\", or configure [egress]";
            door.refuse(&format!("{key}.arm"), "this appliance has no egress arm", allowed);
            ArmName::Ingress
        }
        _ => {
            let allowed = "allowed: \"ingress\", \"egress\"";
            door.refuse(&format!("{key}.arm"), "there is no such arm", allowed);
            ArmName::Ingress
        }
    };
    let probe = match file.probe.as_str() {
        "" => None,
        text => door.address(&format!("{key}.probe"), text),
    };
    let state = if file.weight == 0 { BackendState::Maintenance } else { file.state };
    let addr = door.address(&format!("{key}.address"), &file.address)?;
    Some(Backend {
        addr,
        port: file.port,
        weight: file.weight,
        state,
        arm,
        probe,
        node: file.node.clone(),
        zone: file.zone.clone(),
        port_names: file.port_names.clone(),
    })
}

/// NAT translates within a family, and needs an address of its own in it.
fn nat_backend(
    door: &mut Door,
    key: &str,
    backend: &Backend,
    frontends: &[FrontendSpec],
    policy: NatPolicy,
    config: &Config,
) {
    let family = |v4| if v4 { "IPv4" } else { "IPv6" };
    let (own, at) = (backend.addr.is_ipv4(), format!("{key}.address"));
    let crosses = |v4| match policy {
        NatPolicy::None => false,
        NatPolicy::Nat46 => v4,
        NatPolicy::Nat64 => !v4,
    };
    let reached = |v4| (v4 == own) != crosses(v4);
    let foreign = frontends.iter().find(|f| !reached(f.address.is_ipv4()));
    if let Some(frontend) = foreign {
        let wrong = format!(
            "an {} backend, but frontend {} is {}, and mode nat does not translate between them",
            family(own),
            frontend.address.prefix,
            family(!own)
        );
        let allowed = "write a service for each family, nat_policy = \"nat46\" or \"nat64\", or \
                       mode = \"tunnel\"";
        door.refuse(&at, &wrong, allowed);
    } else if !config.nat.addresses.iter().any(|nat| nat.addr.is_ipv4() == own) {
        let wrong = format!("mode nat needs an {} source address of ours", family(own));
        door.refuse(&at, &wrong, "add one to nat.addresses in the configuration");
    }
}

/// What must be unique over all services, and what must agree where they share a backend.
fn between(door: &mut Door, services: &[Service]) {
    let (mut names, mut frontends) = (Vec::new(), Vec::new());
    let mut backends: Vec<(String, &Backend)> = Vec::new();
    for (i, service) in services.iter().enumerate() {
        names.push((format!("service.{i}.name"), service.name.as_str()));
        let keys = |field: &'static str| (0..).map(move |n| format!("service.{i}.{field}.{n}"));
        let addresses = service.spec.frontends.iter().map(|frontend| frontend.address);
        frontends.extend(keys("frontends").zip(addresses));
        let own: Vec<(String, &Backend)> = keys("backends").zip(&service.backends).collect();
        let ends: Vec<(String, (IpAddr, u16))> =
            own.iter().map(|(key, b)| (format!("{key}.address"), (b.addr, b.port))).collect();
        door.unique(&ends, "backend");
        backends.extend(own);
    }
    door.unique(&names, "name");
    door.unique(&frontends, "frontend");
    let mut first: HashMap<(IpAddr, u16), (String, Backend)> = HashMap::new();
    for (key, backend) in backends {
        let end = (backend.addr, backend.port);
        let (earlier, agreed) = first.entry(end).or_insert_with(|| (key.clone(), backend.clone()));
        // One of the services may leave the probe out: it is the backend that is probed.
        let probe = agreed.probe.or(backend.probe);
        for (field, differs) in [
            ("state", agreed.state != backend.state),
            ("arm", agreed.arm != backend.arm),
            ("probe", backend.probe.is_some() && backend.probe != probe),
        ] {
            if differs {
                let allowed = format!("the first is {}: write the same", door.place(earlier));
                let wrong = format!("the same backend with another {field}");
                door.refuse(&format!("{key}.{field}"), &wrong, &allowed);
            }
        }
        agreed.probe = probe;
    }
    let mut probes: Vec<(String, IpAddr)> = first
        .into_values()
        .filter_map(|(key, b)| Some((format!("{key}.probe"), b.probe?)))
        .collect();
    probes.sort();
    door.unique(&probes, "probe address");
}

/// No frontend has a port of the appliance itself.
fn reserved(door: &mut Door, services: &[Service], config: &Config) {
    let reserved = Reserved::of(config);
    for (i, service) in services.iter().enumerate() {
        for (n, frontend) in service.spec.frontends.iter().enumerate() {
            // Packets of one gateway endpoint are never the appliance's own.
            let Address { prefix, port, protocol, endpoint, .. } = &frontend.address;
            let any_endpoint = *endpoint == 0;
            let holder = reserved.holder(prefix, *port, *protocol);
            let Some(holder) = holder.filter(|_| any_endpoint) else { continue };
            let wrong = format!(
                "service \"{}\" cannot have this port of the appliance's own address: {} has it",
                service.name, holder.holder
            );
            let allowed = "write another port or address";
            door.refuse(&format!("service.{i}.frontends.{n}.port"), &wrong, allowed);
        }
    }
}

/// The region's maxima, so that a file that cannot be committed is refused before.
fn room(door: &mut Door, services: &[Service], config: &Config) {
    let (region, mut backends, mut slots) = (&config.region, Vec::new(), 0_u64);
    for service in services {
        let serving = |b: &&Backend| b.state == BackendState::Active;
        if service.backends.iter().filter(serving).count() > 1 {
            slots += u64::from(service.spec.table_size);
        }
        backends.extend(service.backends.iter().map(|b| (b.addr, b.port)));
    }
    backends.sort_unstable();
    backends.dedup();
    let frontends = services.iter().map(|s| s.spec.frontends.len()).sum::<usize>();
    for (what, needed, setting, room) in [
        ("services", services.len() as u64, "max_services", region.max_services),
        ("frontends", frontends as u64, "max_frontends", region.max_frontends),
        ("backends", backends.len() as u64, "max_backends", region.max_backends),
        ("Maglev slots", slots, "slots", region.slots),
    ] {
        if needed > u64::from(room) {
            let wrong = format!("{needed} {what} in all, the region has room for {room}");
            let allowed = format!("raise region.{setting} in the configuration and restart both");
            door.refuse("service", &wrong, &allowed);
        }
    }
}
