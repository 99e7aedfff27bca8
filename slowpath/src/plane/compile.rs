//! Converts the checked configuration and services into table records. All functions are pure.

use std::net::IpAddr;

use config::checked::{
    ArmName, Config, Gateway, MAX_LOCAL_PORTS, NoService, Reserved, TooBig,
    Tunnel as GatewayTunnel, Wire,
};
use config::services::{Algorithm, FailedTcp, FailedUdp, Mode};
use packet::addr::Addr;
use state::address::Address;
use state::service::Service;
use state::text::protocol_text;
use tables::record::{
    self, ErrorLimits, FrontendKey, LOCAL_ADDRS, LOCAL_PORTS, Local, LocalPort, NAT_ADDRS,
    NEIGHBORS, NONE, NewFlowLimits, PORT_OWN, PORT_PROTECTED, Prefix, Settings, TUNNEL_SOURCES,
    Timeouts, Tunnel, TunnelKind,
};

use super::region::desired::Need;

/// Inner MTU in bytes of tunnels that backends send through: no limit.
const BACKEND_INNER_MTU: u16 = u16::MAX;

const _: () = assert!(MAX_LOCAL_PORTS == LOCAL_PORTS);

/// Returns the settings record of the appliance. `neighbors` are the BGP neighbors of the policies.
pub fn settings(config: &Config, neighbors: &[IpAddr], new_flow_limits: NewFlowLimits) -> Settings {
    let mut settings = Settings { new_flow_limits, ..Settings::EMPTY };
    let locals = config.arms().flat_map(|(name, arm)| {
        arm.addresses.iter().map(move |i| Local {
            addr: i.addr.into(),
            arm: name as u8,
            mtu: arm.mtu,
            ..Local::default()
        })
    });
    for (slot, local) in settings.locals.iter_mut().zip(locals.take(LOCAL_ADDRS)) {
        *slot = local;
    }
    let nat = config.nat.addresses.iter();
    let nat = nat.map(|n| Local { addr: n.addr.into(), arm: n.arm as u8, ..Local::default() });
    for (slot, local) in settings.nat.iter_mut().zip(nat.take(NAT_ADDRS)) {
        *slot = local;
    }
    for (name, arm) in config.arms() {
        if let Some(network) = arm.ipip_sources {
            settings.ipip_sources[name as usize] = prefix(&network);
        }
    }
    let flows = &config.flows;
    settings.timeouts = Timeouts {
        tcp_embryonic_s: flows.tcp_embryonic_s,
        udp_embryonic_s: flows.udp_embryonic_s,
        tcp_established_s: flows.tcp_established_s,
        tcp_closed_s: flows.tcp_closed_s,
        udp_s: flows.udp_s,
        other_s: flows.other_s,
        fragment_s: flows.fragment_s,
    };
    settings.nat_port_first = config.nat.first_port;
    settings.nat_port_last = config.nat.last_port;
    let punt = &config.punt;
    settings.punt_limits = [
        punt.local_limit_per_s,
        punt.neighbor_limit_per_s,
        punt.icmp_limit_per_s,
        punt.limit_per_s,
    ];
    settings.error_limits = ErrorLimits {
        by_arm: config.icmp.errors_per_s,
        to_network: config.icmp.errors_per_network_per_s,
        path_mtu: config.icmp.path_mtu_errors_per_s,
    };
    settings.plain_no_service = punt.plain_no_service as u8;
    for (slot, port) in settings.local_ports.iter_mut().zip(local_ports(config)) {
        *slot = port;
    }
    for (slot, neighbor) in settings.neighbors.iter_mut().zip(neighbors.iter().take(NEIGHBORS)) {
        *slot = (*neighbor).into();
    }
    settings
}

fn prefix(network: &config::checked::Prefix) -> Prefix {
    Prefix { addr: network.addr.into(), len: network.len128(), pad: [0; 3] }
}

/// Returns the ports that the appliance itself uses, one entry for each protocol and port.
fn local_ports(config: &Config) -> Vec<LocalPort> {
    let addresses = || config.arms().flat_map(|(_, arm)| &arm.addresses).take(LOCAL_ADDRS);
    let mut all: Vec<LocalPort> = Vec::new();
    for port in Reserved::of(config).ports() {
        let covers = addresses().map(|own| u16::from(port.covers(own.addr)));
        let locals = covers.enumerate().fold(0, |all, (n, covered)| all | covered << n);
        let flags = PORT_OWN | if port.protected { PORT_PROTECTED } else { 0 };
        let same = |entry: &&mut LocalPort| (entry.port, entry.proto) == (port.port, port.protocol);
        if let Some(entry) = all.iter_mut().find(same) {
            entry.locals |= locals;
            entry.flags |= flags;
            continue;
        }
        all.push(LocalPort { port: port.port, locals, proto: port.protocol, flags, pad: [0; 2] });
    }
    all
}

/// A tunnel record and its name. `peer` in the record is a position in the list of tunnels; ids are
/// assigned when the tunnels are written to the region.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedTunnel {
    /// Name of the gateway, with the side for Azure; `backends/` and the encapsulation for
    /// backends.
    pub name: String,
    /// Record of the tunnel.
    pub record: Tunnel,
}

/// Returns the tunnels of all gateways. In the records, `peer` is a position in the returned list,
/// and `gateway` a position in the configured list of gateways.
pub fn gateway_tunnels(config: &Config) -> Vec<NamedTunnel> {
    let mut all = Vec::new();
    for (number, gateway) in config.gateways.iter().enumerate() {
        let first = all.len() as u32;
        for tunnel in &gateway.tunnels {
            let (record, side) = gateway_tunnel(number as u16, gateway, tunnel, first);
            all.push(NamedTunnel { name: format!("{}{side}", gateway.name), record });
        }
    }
    all
}

fn gateway_tunnel(
    number: u16,
    gateway: &Gateway,
    tunnel: &GatewayTunnel,
    first: u32,
) -> (Tunnel, &'static str) {
    let mut record = blank_tunnel(tunnel.local, tunnel.arm);
    record.gateway = number;
    record.port = tunnel.port;
    record.inner_mtu = gateway.inner_mtu;
    record.no_service = gateway.no_service as u8;
    for (slot, source) in record.sources.iter_mut().zip(tunnel.sources.iter().take(TUNNEL_SOURCES))
    {
        *slot = prefix(source);
    }
    record.source_count = tunnel.sources.len().min(TUNNEL_SOURCES) as u8;
    if gateway.too_big == TooBig::Reply {
        record.flags |= record::TUNNEL_REPLY_TOO_BIG;
    }
    if gateway.outer_checksum {
        record.flags |= record::TUNNEL_CHECKSUM;
    }
    match tunnel.wire {
        Wire::Geneve { option_class } => {
            record.kind = TunnelKind::Geneve as u8;
            record.option_class = option_class;
            (record, "")
        }
        Wire::Vxlan { vni, side, peer, scope_key } => {
            record.kind = TunnelKind::Vxlan as u8;
            record.vni = vni;
            record.scope_key = scope_key;
            if let Some(peer) = peer {
                record.peer = first + peer as u32;
                record.flags |= record::TUNNEL_CROSS;
            }
            let (side, name) = match side {
                config::checked::Side::External => (record::SIDE_EXTERNAL, "/external"),
                config::checked::Side::Internal => (record::SIDE_INTERNAL, "/internal"),
            };
            record.side = side;
            (record, name)
        }
    }
}

fn blank_tunnel(local: IpAddr, arm: ArmName) -> Tunnel {
    Tunnel {
        local: local.into(),
        sources: [Prefix::default(); TUNNEL_SOURCES],
        scope_key: 0,
        vni: 0,
        peer: NONE,
        gateway: 0,
        port: 0,
        option_class: 0,
        inner_mtu: 0,
        flags: 0,
        kind: 0,
        no_service: NoService::Drop as u8,
        source_count: 0,
        arm: arm as u8,
        side: 0,
        successor: 0,
    }
}

/// Returns the tunnels through which backends of tunnel services send packets back: one for each
/// encapsulation with port and VNI, arm and address family that has such backends.
pub(crate) fn needed_tunnels<'a>(
    config: &Config,
    needs: impl Iterator<Item = &'a Need>,
) -> Vec<NamedTunnel> {
    let mut all: Vec<NamedTunnel> = Vec::new();
    for need in needs {
        let arm = if need.arm == 0 { ArmName::Ingress } else { ArmName::Egress };
        let Some(local) = config.arm(arm).and_then(|arm| arm.address(need.ipv6)) else { continue };
        let record = needed_tunnel(config, need, local, arm);
        if !all.iter().any(|other| other.record == record) {
            all.push(NamedTunnel { name: format!("backends/{}", tunnel_name(need.kind)), record });
        }
    }
    all
}

fn needed_tunnel(config: &Config, need: &Need, local: IpAddr, arm: ArmName) -> Tunnel {
    let mut record = blank_tunnel(local, arm);
    record.kind = need.kind;
    record.port = need.port;
    record.vni = need.vni;
    record.inner_mtu = BACKEND_INNER_MTU;
    record.flags = record::TUNNEL_BACKEND;
    // Packets to and from an inspection appliance carry the option class of the first GENEVE
    // gateway, by default that of AWS (0x0108).
    let class = config.gateways.iter().flat_map(|g| &g.tunnels).find_map(|t| match t.wire {
        Wire::Geneve { option_class } => Some(option_class),
        Wire::Vxlan { .. } => None,
    });
    record.option_class = class.unwrap_or(0x0108);
    record
}

/// Returns the policy part of a service's record. The writer adds the parts that depend on the
/// backends: slots, runs of the slot arena and the single backend.
pub fn policy(service: &Service) -> record::Service {
    let mut record = record::Service {
        affinity_s: service.spec.affinity_s,
        tcp_idle_s: service.spec.tcp_idle_s,
        udp_idle_s: service.spec.udp_idle_s,
        mss: service.spec.mss,
        ..record::Service::EMPTY
    };
    if service.spec.too_big == TooBig::Reply {
        record.flags |= record::SERVICE_REPLY_TOO_BIG;
    }
    if service.spec.failed_udp == FailedUdp::Keep {
        record.flags |= record::SERVICE_FAILED_UDP_KEEP;
    }
    if service.spec.failed_tcp == FailedTcp::Reset {
        record.flags |= record::SERVICE_FAILED_TCP_RESET;
    }
    if service.spec.source_ranges.as_ref().is_some_and(|ranges| ranges.denies()) {
        record.flags |= record::SERVICE_DENY;
    }
    if service.spec.algorithm == Algorithm::Random {
        record.flags |= record::SERVICE_RANDOM;
    }
    let (mode, tunnel) = match service.spec.mode {
        Mode::Nat => return record,
        Mode::Tunnel(tunnel) => (record::Mode::Tunnel, tunnel),
        Mode::Dsr(tunnel) => (record::Mode::Dsr, tunnel),
    };
    record.mode = mode as u8;
    record.tunnel = tunnel.kind as u8;
    record.tunnel_port = tunnel.port;
    record.vni = tunnel.vni;
    if tunnel.outer_checksum {
        record.flags |= record::SERVICE_CHECKSUM;
    }
    if tunnel.dont_fragment {
        record.flags |= record::SERVICE_DF;
    }
    record
}

/// Returns the source ranges of a service, sorted and without duplicates.
pub fn ranges(service: &Service) -> Vec<Prefix> {
    let prefixes = service.spec.source_ranges.iter().flat_map(|ranges| &ranges.prefixes);
    let record =
        |p: &config::checked::Prefix| Prefix { addr: p.addr.into(), len: p.len128(), pad: [0; 3] };
    let mut ranges: Vec<Prefix> = prefixes.map(record).collect();
    ranges.sort_unstable_by_key(|range| (range.addr.octets(), range.len));
    ranges.dedup();
    ranges
}

/// Returns the boundaries of the union of `ranges`, as 32-bit words (see [`tables::run`]).
pub fn bounds(ranges: &[Prefix]) -> Vec<u32> {
    let mut spans: Vec<(u128, u128)> = ranges.iter().flat_map(spans).collect();
    spans.sort_unstable();
    let mut merged: Vec<(u128, u128)> = Vec::new();
    for (first, last) in spans {
        match merged.last_mut().filter(|(_, end)| first <= end.saturating_add(1)) {
            Some((_, end)) => *end = last.max(*end),
            None => merged.push((first, last)),
        }
    }
    let bounds = merged.into_iter().flat_map(|(first, last)| [Some(first), last.checked_add(1)]);
    let words = |bound: u128| [96, 64, 32, 0].map(|shift| (bound >> shift) as u32);
    bounds.flatten().flat_map(words).collect()
}

/// Returns first and last address of each part of a range. An IPv6 range does not include the IPv4
/// addresses, which are mapped into the IPv6 address space (`::ffff:0:0/96`).
fn spans(range: &Prefix) -> impl Iterator<Item = (u128, u128)> + use<> {
    const IPV4: (u128, u128) = (0xffff_0000_0000, 0xffff_ffff_ffff);
    let first = u128::from_be_bytes(range.addr.octets());
    let last = first | u128::MAX.checked_shr(u32::from(range.len)).unwrap_or(0);
    // Two parts; an empty one has its first address after the last.
    let parts = match first < IPV4.0 && last >= IPV4.1 {
        true => [(first, IPV4.0 - 1), (IPV4.1 + 1, last)],
        false => [(first, last), (1, 0)],
    };
    parts.into_iter().filter(|(first, last)| first <= last)
}

/// Returns the lookup key of a frontend.
pub fn key(address: &Address) -> FrontendKey {
    FrontendKey {
        scope_key: address.endpoint,
        addr: Addr::from(address.prefix.addr),
        port: address.port,
        proto: address.protocol,
        prefix_len: address.prefix.len128(),
        pad: 0,
    }
}

/// Returns the name of the encapsulation with this number ([`TunnelKind`]); empty for an unknown
/// number.
pub fn tunnel_name(kind: u8) -> &'static str {
    TunnelKind::from_u8(kind).map_or("", TunnelKind::name)
}

/// Formats a frontend: `203.0.113.10:80/tcp`, `10.0.0.0/8:*/*`.
pub fn frontend_text(frontend: &Address) -> String {
    let address = match (frontend.prefix.is_single(), frontend.prefix.addr) {
        (true, IpAddr::V6(v6)) => format!("[{v6}]"),
        (true, v4) => v4.to_string(),
        (false, _) => frontend.prefix.to_string(),
    };
    let port = match frontend.port {
        0 => "*".to_owned(),
        port => port.to_string(),
    };
    let scope = match frontend.endpoint {
        0 => String::new(),
        scope => format!(" of endpoint {scope:x}"),
    };
    format!("{address}:{port}/{}{scope}", protocol_text(frontend.protocol))
}
