//! The configuration as the programs need it: every value parsed, every default filled in, every
//! cross-check done. Past the door of this crate nobody sees what was written. An `Option` means
//! that the thing itself may be absent. Only [`crate::load`] makes a [`Config`].

mod api;
mod arms;
mod aws;
mod azure;
mod bgp;
pub(crate) mod check;
pub(crate) mod door;
mod endpoints;
mod gateways;
mod live;
pub(crate) mod machine;
mod plane;
mod prefix;
mod private_link;
mod probing;
mod reserved;
mod sources;

pub use crate::file::VxlanEnd;
pub use api::{Api, Tls};
pub use arms::ArmName;
pub use aws::{Aws, AwsMode, AwsRoles, AwsUse, GroupBy, Lifecycle, OnLost};
pub use azure::{
    Azure, AzureCredential, AzureEndpoints, AzureLife, AzurePool, Balancer, MadeBy, Preboot,
    Remove, Told,
};
pub use bgp::{Bgp, BgpNoBackends, BgpOnConflict};
pub use endpoints::{Control, Health, Metrics};
pub use gateways::{Gateway, GatewayKind, Side, Tunnel, Wire};
pub use live::{Fixed, Restart};
pub use plane::{Attach, Plane, ROUTES, RULES_OF_PROXIES};
pub use prefix::{Interface, Prefix, mask};
pub use private_link::{PrivateLink, PrivateLinkOwner};
pub use probing::Probing;
pub use reserved::{MAX_LOCAL_PORTS, Reserved, ReservedPort};
pub use sources::{OnExpiry, SourceOf};

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The whole configuration, checked.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Name of the appliance.
    pub name: String,
    /// Zone it runs in; empty when unknown.
    pub zone: String,
    /// Names of the nodes and zones whose backends count as local.
    pub local: Vec<String>,
    /// Number of its cluster; 0 where there is only one.
    pub cluster: u32,
    /// The first and the last port that are node ports.
    pub node_ports: (u16, u16),
    /// Whether packets from outside may go to cluster addresses.
    pub external_cluster_ip: bool,
    /// Classes of load balancers that are served.
    pub load_balancer_classes: Vec<String>,
    /// Free labels of the appliance.
    pub labels: BTreeMap<String, String>,
    /// Free annotations of the appliance.
    pub annotations: BTreeMap<String, String>,
    /// What moves packets.
    pub plane: Plane,
    /// The services file, watched by slowpath; none where all services come through the API.
    pub services: Option<PathBuf>,
    /// The packet-moving process.
    pub fastpath: Fastpath,
    /// Shared memory and its maxima.
    pub region: Region,
    /// The arm on which the gateway reaches us.
    pub ingress: Arm,
    /// The arm behind which backends are; absent on a one-armed appliance.
    pub egress: Option<Arm>,
    /// Source NAT.
    pub nat: Nat,
    /// Flow timeouts.
    pub flows: Flows,
    /// What goes to this machine's kernel.
    pub punt: Punt,
    /// Limits of ICMP errors.
    pub icmp: Icmp,
    /// Gateways in the order in which they were written.
    pub gateways: Vec<Gateway>,
    /// Sources, the preferred first.
    pub sources: Vec<SourceOf>,
    /// The appliance at AWS, where it is there.
    pub aws: Option<Aws>,
    /// The appliance at Azure, where it is there.
    pub azure: Option<Azure>,
    /// Private links, where they are looked after.
    pub private_link: Option<PrivateLink>,
    /// How routers are told.
    pub bgp: Bgp,
    /// Health endpoint.
    pub health: Health,
    /// Prometheus endpoint.
    pub metrics: Metrics,
    /// Local control socket.
    pub control: Control,
    /// The API over TCP, where it is wanted.
    pub api: Option<Api>,
    /// Maglev parameters.
    pub tables: Tables,
    /// What is allowed but probably not meant, a sentence each; also in [`crate::report`].
    pub warnings: Vec<String>,
    /// Each key as it was merged, and who gave it, by dotted key.
    pub origins: BTreeMap<String, Origin>,
}

/// A value and who gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The value as it was merged, in TOML notation.
    pub value: String,
    /// `default`, `weir.toml:12`, `environment WEIR_INGRESS__MTU`, `--set ingress.mtu=9001`.
    pub layer: String,
}

impl Config {
    /// The arm of that name, if it is configured.
    pub fn arm(&self, name: ArmName) -> Option<&Arm> {
        match name {
            ArmName::Ingress => Some(&self.ingress),
            ArmName::Egress => self.egress.as_ref(),
        }
    }

    /// The networks that probe this appliance: gateways' nodes, Azure's prober and those that are
    /// configured as such. AWS probes from its gateway's nodes.
    pub fn probe_networks(&self) -> Vec<Prefix> {
        let mut networks = self.health.reserved_sources.clone();
        let tunnels = self.gateways.iter().flat_map(|gateway| &gateway.tunnels);
        networks.extend(tunnels.flat_map(|tunnel| tunnel.sources.iter().copied()));
        let azure = self.gateways.iter().any(|gateway| gateway.kind == GatewayKind::Azure);
        if azure || self.azure.is_some() {
            networks.extend(azure::PROBERS);
        }
        networks.sort_unstable();
        networks.dedup();
        networks
    }

    /// The configured arms in the order of their numbers.
    pub fn arms(&self) -> impl Iterator<Item = (ArmName, &Arm)> {
        let egress = self.egress.as_ref().map(|arm| (ArmName::Egress, arm));
        std::iter::once((ArmName::Ingress, &self.ingress)).chain(egress)
    }

    /// Where backends are unless they say otherwise: egress where there is one.
    pub fn backend_arm(&self) -> ArmName {
        if self.egress.is_some() { ArmName::Egress } else { ArmName::Ingress }
    }
}

/// `[fastpath]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Fastpath {
    /// CPUs that poll, ascending, at least one, at most 64; `main_core` among them only if idle
    /// lcores sleep or yield.
    pub lcores: Vec<u16>,
    /// CPU of DPDK's main lcore and of the control thread.
    pub main_core: u16,
    /// False: EAL runs with `--no-huge`.
    pub hugepages: bool,
    /// Memory that EAL takes at start (`-m`), MiB; enough for the buffers (checked).
    pub memory_mib: u32,
    /// Packet buffers in the pool.
    pub buffers: u32,
    /// Bytes of one buffer's room, headroom included; at most 65,535.
    pub buffer_bytes: u16,
    /// What an lcore does when a poll found nothing.
    pub idle: Idle,
    /// Packets per poll, 1..=[`MAX_BURST`].
    pub burst: u16,
    /// Further EAL arguments, as typed.
    pub eal: Vec<String>,
    /// Where XDP programs run.
    pub attach: Attach,
}

/// Packets that a burst has room for: the most that a poll may ask for.
pub const MAX_BURST: u16 = 64;
/// What both parts of [`Region::unconfirmed_percent`] may be together.
pub const MAX_UNCONFIRMED_PERCENT: u32 = 75;
/// Bytes that a buffer takes beside its room: the mempool's header (64), the mbuf (128), and what
/// DPDK adds to spread the buffers over the memory channels.
pub const BUFFER_OVERHEAD: u64 = 256;
/// Buffers that a pool's cache of one lcore may hold back.
pub const CACHED_BUFFERS: u64 = 512;
/// Bytes of one descriptor with the driver's note about it, generously.
pub const DESCRIPTOR_BYTES: u64 = 128;
/// MiB that EAL and the drivers take for themselves.
pub const EAL_OWN_MIB: u64 = 24;

impl Fastpath {
    /// Bytes of the buffer pool.
    pub fn pool_bytes(&self) -> u64 {
        u64::from(self.buffers) * (u64::from(self.buffer_bytes) + BUFFER_OVERHEAD)
    }
}

/// What an lcore does when a poll found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// Polls again.
    Spin,
    /// Gives the CPU away first (`sched_yield`). The thread stays runnable, so that the kernel's
    /// workers get little of a CPU on which it polls.
    Yield,
    /// Sleeps for some 50 µs after 64 polls in a row that found nothing: for machines that share
    /// their CPUs, the lab.
    Sleep,
}

/// The group that has the region unless the configuration names another.
pub const DATA_GROUP: &str = "weir-data";

/// `[region]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// The mapped file, on hugetlbfs or a tmpfs.
    pub path: PathBuf,
    /// The folder of the kernel maps that plane xdp has instead.
    pub maps: PathBuf,
    /// The group that may write the file beside its owner; [`DATA_GROUP`] only where it exists.
    pub group: Option<String>,
    /// Services.
    pub max_services: u32,
    /// Frontends.
    pub max_frontends: u32,
    /// Backends.
    pub max_backends: u32,
    /// Next hops.
    pub max_next_hops: u32,
    /// Maglev slots of all services together.
    pub slots: u32,
    /// Flows; `None`: as many as the machine's memory is for.
    pub max_flows: Option<u32>,
    /// Percent of the flows that may be unconfirmed: where answers pass Weir, and where not.
    pub unconfirmed_percent: [u32; 2],
    /// Gateway option areas longer than 48 bytes.
    pub option_slabs: u32,
    /// Datagrams whose fragments are remembered.
    pub max_fragments: u32,
    /// NAT port maps: one per backend and NAT address of its family.
    pub nat_maps: u32,
    /// Clients with session affinity.
    pub max_affinities: u32,
    /// Gateway endpoints.
    pub max_scopes: u32,
    /// Services with counters of their own.
    pub counted_services: u32,
    /// Backends with counters of their own.
    pub counted_backends: u32,
    /// Messages per ring, a power of two.
    pub ring_slots: u32,
}

/// The NIC of an arm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Device {
    /// A PCI address `0000:00:06.0`, bound to vfio-pci (or a bifurcated driver); `-a`.
    Pci(String),
    /// A DPDK virtual device with its arguments, `net_af_packet0,iface=veth0`; `--vdev`.
    Vdev(String),
    /// An interface of the kernel's, for plane xdp alone.
    Interface(String),
}

impl Device {
    /// As it was written, which is what EAL takes.
    pub fn as_str(&self) -> &str {
        let (Device::Pci(text) | Device::Vdev(text) | Device::Interface(text)) = self;
        text
    }

    /// The kernel's interface that it stands on, where that is written.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Device::Pci(_) => None,
            Device::Vdev(text) => text.split(',').find_map(|part| part.strip_prefix("iface=")),
            Device::Interface(name) => Some(name),
        }
    }

    /// The name by which DPDK knows the port: the PCI address, or what precedes the first comma.
    pub fn port_name(&self) -> &str {
        self.as_str().split(',').next().unwrap_or_default()
    }
}

/// `[ingress]`, `[egress]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Arm {
    /// The NIC or virtual device.
    pub device: Device,
    /// Our addresses on it, at least one; 16 at most over both arms.
    pub addresses: Vec<Interface>,
    /// Routers for a default route by this arm, at most one per family, each on link.
    pub gateways: Vec<IpAddr>,
    /// IPv4 network from which outer sources of IPIP are drawn; none where the arm's address is
    /// the only one.
    pub ipip_sources: Option<Prefix>,
    /// Largest IP packet on the wire, outer headers included, bytes: 1280..=9600.
    pub mtu: u16,
    /// Receive queues, 1..=number of lcores. (Transmit queues: one per lcore.)
    pub queues: u16,
    /// Descriptors of each receive queue, a power of two.
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue, a power of two.
    pub tx_descriptors: u16,
    /// Name of the kernel exception port (TAP), at most 15 bytes.
    pub tap: String,
}

impl Arm {
    /// Descriptors of all its receive queues and of a transmit queue per lcore.
    pub fn descriptors(&self, lcores: u64) -> u64 {
        u64::from(self.queues) * u64::from(self.rx_descriptors)
            + lcores * u64::from(self.tx_descriptors)
    }

    /// The first address of a family, if it has one.
    pub fn address(&self, v6: bool) -> Option<IpAddr> {
        self.addresses.iter().map(|i| i.addr).find(|a| a.is_ipv6() == v6)
    }
}

/// `[nat]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nat {
    /// Source addresses, at most 8; empty means that no service may use mode nat.
    pub addresses: Vec<NatAddress>,
    /// First source port.
    pub first_port: u16,
    /// Last source port.
    pub last_port: u16,
}

/// An address that NAT uses as a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatAddress {
    /// The address.
    pub addr: IpAddr,
    /// The arm by whose network it is reached.
    pub arm: ArmName,
}

/// `[flows]`: idle times in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flows {
    /// TCP established.
    pub tcp_established_s: u32,
    /// TCP before both sides were seen.
    pub tcp_embryonic_s: u32,
    /// UDP and others before their client went on after an answer.
    pub udp_embryonic_s: u32,
    /// TCP after FIN from both sides, or RST.
    pub tcp_closed_s: u32,
    /// UDP.
    pub udp_s: u32,
    /// Other protocols.
    pub other_s: u32,
    /// Fragments of one datagram.
    pub fragment_s: u32,
    /// New flows per second and lcore by NAT or to proxies, 0 for no limit; `None`: as many as
    /// unconfirmed flows have room for.
    pub nat_new_per_s: Option<u32>,
    /// The same of flows by tunnel or direct return, above which they get no entry.
    pub tunnel_new_per_s: u32,
}

/// What becomes of a packet that is for no service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum NoService {
    /// Back to the gateway, untouched (gateways only).
    Return = 0,
    /// Dropped as `no-service`.
    Drop = 1,
    /// To this machine's kernel.
    Punt = 2,
}

/// What becomes of a packet that is too big for its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TooBig {
    /// Dropped, counted, and answered with ICMP frag-needed or packet-too-big.
    #[default]
    Reply,
    /// Dropped and counted.
    Drop,
}

/// `[icmp]`, per second and lcore; 0 for no limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Icmp {
    /// Errors that an arm sends, of each kind.
    pub errors_per_s: u32,
    /// Of these, to one IPv4 /24 or IPv6 /64.
    pub errors_per_network_per_s: u32,
    /// Too-big errors about our own packets that may lower a path MTU.
    pub path_mtu_errors_per_s: u32,
}

/// `[punt]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Punt {
    /// Packets per second and lcore to own ports and from BGP neighbors; 0 for no limit.
    pub local_limit_per_s: u32,
    /// ARP and neighbor discovery per second and lcore; 0 for no limit.
    pub neighbor_limit_per_s: u32,
    /// Other ICMP per second and lcore; 0 for no limit.
    pub icmp_limit_per_s: u32,
    /// All other packets per second and lcore; 0 for no limit.
    pub limit_per_s: u32,
    /// TCP ports of this machine's other programs on the arms' addresses, ascending.
    pub local_ports: Vec<u16>,
    /// Plain packets for nobody: `Drop` or `Punt`, never `Return`.
    pub plain_no_service: NoService,
}

/// The sizes a Maglev table may have: primes near the powers of two (Cilium's list).
pub const MAGLEV_SIZES: [u32; 10] =
    [251, 509, 1021, 2039, 4093, 8191, 16_381, 32_749, 65_521, 131_071];

/// `[tables]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tables {
    /// The seed's 12 bytes; the first 4 seed the Maglev table, the other 8 the flow hash.
    pub seed: [u8; 12],
    /// Who gave it.
    pub seed_from: SeedFrom,
    /// Slots of a service that names no size: one of [`MAGLEV_SIZES`].
    pub maglev_size: u32,
}

/// Where `tables.seed` is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeedFrom {
    /// Nobody wrote one: the public default.
    Default,
    /// The configuration.
    Written,
    /// Generated by this appliance, and kept in `control.state`.
    Generated,
    /// To be generated by the first program that runs; zero until then.
    Missing,
}

impl Tables {
    /// The key of all flow hashes: the seed's last 8 bytes, big endian.
    pub fn hash_seed(&self) -> u64 {
        let [_, _, _, _, key @ ..] = self.seed;
        u64::from_be_bytes(key)
    }
}
