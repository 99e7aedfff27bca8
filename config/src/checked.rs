//! The configuration as the programs need it: every value parsed, every default filled in, every
//! cross-check done. Past the door of this crate nobody sees what was written. An `Option` means
//! that the thing itself may be absent. Only [`crate::load`] makes a [`Config`].

mod api;
mod arms;
mod aws;
mod azure;
mod bgp;
mod endpoints;
mod fastpath;
mod gateways;
mod live;
pub(crate) mod machine;
mod plane;
mod prefix;
mod private_link;
mod probing;
mod reserved;
mod sources;
mod unforwarded;

pub use api::{Api, Tls};
pub use arms::{Arm, ArmName, Device, Nat, NatAddress};
pub use aws::{Aws, AwsMode, AwsRoles, AwsUse, GroupBy, Lifecycle, OnLost};
pub use azure::{
    Azure, AzureCredential, AzureEndpoints, AzureLife, AzurePool, Balancer, MadeBy, Preboot,
    Remove, Told,
};
pub use bgp::{Bgp, BgpNoBackends, BgpOnConflict};
pub use endpoints::{Control, Health, Metrics};
pub use fastpath::{
    BUFFER_OVERHEAD, CACHED_BUFFERS, DESCRIPTOR_BYTES, EAL_OWN_MIB, Fastpath, Idle, MAX_BURST,
};
pub use gateways::{Gateway, GatewayKind, Side, Tunnel, VxlanEnd, Wire};
pub use live::{Fixed, Restart};
pub use plane::{Attach, Plane, ROUTES, RULES_OF_PROXIES};
pub(crate) use prefix::address_and_length;
pub use prefix::{Interface, Prefix, mask};
pub use private_link::{PrivateLink, PrivateLinkOwner};
pub use probing::Probing;
pub use reserved::{MAX_LOCAL_PORTS, Reserved, ReservedPort};
pub use sources::{OnExpiry, SourceOf};
pub use unforwarded::{NoService, TooBig};

use std::collections::BTreeMap;
use std::path::PathBuf;

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

/// What both parts of [`Region::unconfirmed_percent`] may be together.
pub const MAX_UNCONFIRMED_PERCENT: u32 = 75;

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
