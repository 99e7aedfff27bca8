//! The tables of Weir's own cases, by default with 1,000 frontends, and the addresses in them.

use packet::addr::Addr;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use tables::layout::{Layout, Sizes};
use tables::maglev;
use tables::next_hop::NextHop;
use tables::record::{
    Backend, BackendState, ErrorLimits, FrontendKey, Local, Mode, NONE, NoService, Prefix, Service,
    Settings, TUNNEL_BACKEND, TUNNEL_CROSS, Tunnel, TunnelKind,
};
use tables::region::{Region, RegionError};
use tables::writer::Writer;

/// The default number of services, typical of a busy appliance.
pub const SERVICES: u32 = 100;
/// The maximum number of services: their slot arrays fill the default `region.slots`.
pub const MAX_SERVICES: u32 = 1000;
/// Frontends of each service.
const EACH: u32 = 10;
/// Frontends of the default number of services.
pub const FRONTENDS: u32 = SERVICES * EACH;

/// Backends of each service.
const BACKENDS: u8 = 16;

/// Weir's MAC addresses, by arm.
pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];
/// The gateway's MAC address.
pub const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The first backend's MAC address.
pub const BACKEND: [u8; 6] = [2, 0, 0, 0, 1, 1];

/// How Weir handles the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Workload {
    /// Write and send the frames without any stage: the harness's own cost
    Refill,
    /// Return packets that match no service to the gateway
    Return,
    /// Return packets for a frontend's address but another port, after all lookups
    Elsewhere,
    /// GENEVE in, flow hit, GENEVE out to a backend
    Tunnel,
    /// GENEVE in, flow hit, NAT44 or NAT66 out
    Nat,
}

/// The address family of the packets inside the tunnel; outside is IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Family {
    /// IPv4.
    #[value(name = "4")]
    V4,
    /// IPv6.
    #[value(name = "6")]
    V6,
}

/// The packets of a flow that are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Direction {
    /// The client's packets
    Requests,
    /// The backend's packets; with --work return or elsewhere, the other side's packets, which
    /// arrive through the gateway too
    Answers,
    /// A burst of each in turn
    Both,
}

/// Returns region sizes for `flows` flows.
pub fn sizes(flows: u32) -> Sizes {
    Sizes { flows: flows.max(1024), backends: 64, nat_maps: 256, lcores: 2, ..Sizes::DEFAULT }
}

/// Returns region sizes for flows and services; `counted` services have counters of their own.
pub fn sizes_for(flows: u32, services: u32, counted: u32) -> Sizes {
    let frontends = frontends(services).max(Sizes::DEFAULT.frontends);
    Sizes { frontends, counted_services: counted, ..sizes(flows) }
}

/// Returns the number of frontends of `services` services.
pub const fn frontends(services: u32) -> u32 {
    services * EACH
}

/// Creates a region of these sizes in huge pages, as on an appliance. If the kernel has no free
/// ones, the region is in ordinary pages and every flow also costs TLB misses; the second value
/// is then the reason.
///
/// # Errors
/// The region's error.
pub fn region(sizes: &Sizes) -> Result<(Region, Option<String>), RegionError> {
    /// The hash seed, which determines the buckets of the tables; the same in every run.
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
    let in_huge_pages = || {
        let folder = PathBuf::from(format!("/run/weir-perf-{}", std::process::id()));
        let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
        std::fs::create_dir(&folder).map_err(failed)?;
        let at = folder.display().to_string();
        let region = mounts("mount", &["-t", "hugetlbfs", "-o", "mode=0700", "none", &at])
            .and_then(|()| {
                let path = folder.join("region");
                let region = Region::create_or_open(&path, sizes, SEED);
                // The mapping remains valid until the region is dropped.
                mounts("umount", &["--lazy", &at])?;
                region.map_err(|e| e.to_string())
            });
        std::fs::remove_dir(&folder).map_err(failed)?;
        region
    };
    match in_huge_pages() {
        Ok(region) => Ok((region, None)),
        Err(reason) => Ok((Region::anonymous(sizes)?, Some(reason))),
    }
}

/// Runs `mount` or `umount`.
fn mounts(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = std::process::Command::new(program).args(arguments).output();
    let output = output.map_err(|e| format!("{program}: {e}"))?;
    let why = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {}", why.trim())) }
}

/// Returns the number of 2 MiB huge pages that a region for `flows` flows takes.
pub fn region_pages(flows: u32) -> u64 {
    Layout::new(&sizes(flows)).bytes().div_ceil(2 << 20) as u64
}

fn v4(a: u8, b: u8, c: u8, d: u8) -> Addr {
    Addr::v4(u32::from_ne_bytes([a, b, c, d]))
}

/// Returns an address of Weir or of a backend, with the same last byte in both families.
fn own_addr(family: Family, arm: u8, host: u8) -> Addr {
    match family {
        Family::V4 => v4(10, 0, 1 + arm, host),
        Family::V6 => {
            let net = 1 + u16::from(arm);
            Addr::from(IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, net, 0, 0, 0, host.into())))
        }
    }
}

/// Returns the address of a backend, 1 to 16.
pub fn backend(family: Family, n: u8) -> IpAddr {
    IpAddr::from(own_addr(family, 1, 100 + n))
}

/// Returns the first NAT source address.
pub fn nat(family: Family) -> IpAddr {
    IpAddr::from(own_addr(family, 1, 11))
}

/// Returns the first frontend's address.
pub fn frontend_base(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(203, 0, 0, 0).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0x203, 0, 0, 0, 0, 0).into(),
    }
}

/// Returns the first address of another network, which contains no frontend.
pub fn unmatched_base(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(198, 18, 0, 0).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0x198, 0, 0, 0, 0, 0).into(),
    }
}

/// Returns the address of frontend `n`.
pub fn frontend(family: Family, n: u32) -> IpAddr {
    match frontend_base(family) {
        IpAddr::V4(base) => Ipv4Addr::from_bits(base.to_bits() + n).into(),
        IpAddr::V6(base) => Ipv6Addr::from_bits(base.to_bits() + u128::from(n)).into(),
    }
}

/// The services, gateway and limits that [`fill_tables`] writes.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The number of services.
    pub services: u32,
    /// How packets reach a backend.
    pub mode: Mode,
    /// The tunnel, for modes with one.
    pub tunnel: TunnelKind,
    /// The address family of frontends and backends.
    pub family: Family,
    /// The protocols and ports of each frontend address.
    pub ports: &'static [(u8, u16)],
    /// Limits of ICMP errors.
    pub error_limits: ErrorLimits,
    /// The tunnels of the gateway in front of the services: GENEVE (AWS) or VXLAN (Azure).
    pub gateway: TunnelKind,
}

impl Policy {
    /// Returns the policy for the packets of a workload.
    pub fn of(work: Workload, family: Family) -> Policy {
        let mode = if work == Workload::Nat { Mode::Nat } else { Mode::Tunnel };
        let error_limits = ErrorLimits::default();
        let (tunnel, gateway) = (TunnelKind::Geneve, TunnelKind::Geneve);
        let (services, ports) = (SERVICES, &[(6, 80)]);
        Policy { services, mode, tunnel, family, ports, error_limits, gateway }
    }
}

/// Fills the region's tables.
///
/// # Errors
/// The writer's error.
pub fn fill_tables(region: &Region, policy: &Policy) -> Result<(), Box<dyn Error>> {
    let family = policy.family;
    let mut writer = Writer::attach(region)?;
    let error_limits = policy.error_limits;
    let mut settings = Settings { nat_port_last: u16::MAX, error_limits, ..Settings::EMPTY };
    let local =
        |family, arm, host| Local { addr: own_addr(family, arm, host), arm, ..Local::default() };
    settings.locals[0] = local(Family::V4, 0, 10);
    settings.locals[1] = local(family, 1, 10);
    // Two addresses: one has too few ports for a million flows to sixteen backends.
    settings.nat[0] = local(family, 1, 11);
    settings.nat[1] = local(family, 1, 12);
    writer.put_settings(&settings)?;
    let first = if policy.gateway == TunnelKind::Vxlan {
        let [external, internal] = azure();
        writer.put_tunnel(0, &external)?;
        writer.put_tunnel(1, &internal)?;
        2
    } else {
        writer.put_tunnel(0, &aws())?;
        1
    };
    if policy.mode == Mode::Tunnel && policy.tunnel == TunnelKind::Geneve {
        writer.put_tunnel(first, &backend_tunnel(family))?;
    }
    write_services(&mut writer, policy)?;
    writer.commit()?;
    Ok(())
}

/// VNI and port of Azure's external and internal tunnels.
pub const AZURE: [(u32, u16); 2] = [(801, 10801), (800, 10800)];

/// Returns Azure's pair of tunnels.
fn azure() -> [Tunnel; 2] {
    let side = |(vni, port): (u32, u16), peer| Tunnel {
        kind: TunnelKind::Vxlan as u8,
        option_class: 0,
        scope_key: 77,
        flags: TUNNEL_CROSS,
        peer,
        vni,
        port,
        ..aws()
    };
    [side(AZURE[0], 1), side(AZURE[1], 0)]
}

/// Returns the tunnel through which backends answer in the mode `tunnel`.
fn backend_tunnel(family: Family) -> Tunnel {
    let local = own_addr(family, 1, 10);
    Tunnel { local, flags: TUNNEL_BACKEND, source_count: 0, arm: 1, inner_mtu: 0, ..aws() }
}

/// Returns the tunnel of an AWS gateway.
fn aws() -> Tunnel {
    let mut sources = [Prefix::default(); tables::record::TUNNEL_SOURCES];
    sources[0] = Prefix { addr: v4(10, 0, 1, 0), len: 120, pad: [0; 3] };
    Tunnel {
        local: v4(10, 0, 1, 10),
        sources,
        scope_key: 0,
        vni: 0,
        peer: NONE,
        gateway: 0,
        port: 6081,
        option_class: 0x0108,
        inner_mtu: 8500,
        flags: 0,
        kind: TunnelKind::Geneve as u8,
        no_service: NoService::Return as u8,
        source_count: 1,
        arm: 0,
        side: 0,
        successor: 0,
    }
}

/// Writes the backends with their next hops, the services and their frontends.
fn write_services(writer: &mut Writer<'_>, policy: &Policy) -> Result<(), Box<dyn Error>> {
    let family = policy.family;
    let mut backends = Vec::new();
    for n in 1..=BACKENDS {
        let addr = own_addr(family, 1, 100 + n);
        let next_hop = writer.put_next_hop(&addr, 1)?;
        let mac = [2, 0, 0, 0, 1, n];
        let hop = NextHop { mac, src_mac: MACS[1], mtu: 9001, arm: 1, known: true };
        writer.set_next_hop(next_hop, &hop)?;
        backends.push(writer.put_backend(&Backend {
            addr,
            probe: Addr::UNSPECIFIED,
            incarnation: 0,
            next_hop,
            nat_ports: 0,
            probe_service: NONE,
            port: 8080,
            state: BackendState::Active as u8,
            arm: 1,
            pad: 0,
        })?);
    }
    let mode = policy.mode as u8;
    let tunnel = if policy.mode == Mode::Nat { 0 } else { policy.tunnel as u8 };
    let service = Service { tunnel_port: 6081, mode, tunnel, ..Service::EMPTY };
    let slots = if policy.services > SERVICES { 2039 } else { 16_381 };
    for n in 0..policy.services {
        let id = writer.put_service(&format!("bench/{n}"), &service)?;
        writer.set_table(
            id,
            &backends,
            |_| maglev::shares(&vec![1; backends.len()], slots),
            slots,
        )?;
        for frontend_number in n * EACH..n * EACH + EACH {
            let addr = Addr::from(frontend(family, frontend_number));
            for (proto, port) in policy.ports.iter().copied() {
                let key = FrontendKey { scope_key: 0, addr, port, proto, prefix_len: 128, pad: 0 };
                writer.put_noted_frontend(&key, id, 0)?;
            }
        }
    }
    Ok(())
}
