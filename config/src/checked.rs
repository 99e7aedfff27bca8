//! The validated configuration: values are parsed, defaults filled in, and rules across keys
//! checked. A field is an `Option` if its value may be absent, or is derived later from the
//! machine. Only the loading functions of this crate, such as [`crate::load`] and
//! [`crate::from_toml`], create a [`Config`].

mod api;
mod arms;
mod aws;
mod azure;
mod bgp;
pub(crate) mod device;
mod endpoints;
mod fastpath;
mod gateways;
mod live;
mod log;
pub(crate) mod machine;
mod plane;
mod prefix;
mod private_link;
mod probing;
mod reserved;
mod sources;
mod telemetry;
mod unforwarded;

pub use api::{Api, TOKENS_FILE, Tls, Tokens};
pub use arms::{Arm, ArmName, DEFAULT_DESCRIPTORS, Nat, NatAddress};
pub use aws::{Aws, AwsLifecycleSettings, AwsMode, AwsRoles, AwsUse, GroupBy, OnLost};
pub use azure::{
    Azure, AzureCredential, AzureEndpoints, AzureLifecycleSettings, AzurePool, Balancer,
    MembershipMode, Preboot, Remove, TunnelPolicy,
};
pub use bgp::{Bgp, BgpNoBackends, BgpOnConflict};
pub use device::{Device, DeviceError, DeviceName};
pub use endpoints::{Control, Health, Metrics};
pub use fastpath::{
    BUFFER_OVERHEAD, CACHED_BUFFERS, DEFAULT_BUFFER_BYTES, DEFAULT_BUFFERS, DEFAULT_BURST,
    DESCRIPTOR_BYTES, EAL_OWN_MIB, Fastpath, Idle, MAX_BURST, PageSize, frame_buffer_bytes,
};
pub use gateways::{Gateway, GatewayKind, Side, Tunnel, VxlanEnd, Wire};
pub use live::{Restart, RestartRequired};
pub use log::{Events, Log, LogFormat};
pub use machine::{MachineWarning, PortOverlap, machine_warnings};
pub use plane::{Attach, PROXY_RULE_PROTOCOL, Plane, PlaneFrom, PlaneSetting, ROUTE_TABLES};
pub(crate) use prefix::address_and_length;
pub use prefix::{Interface, Prefix, mask};
pub use private_link::{PrivateLink, PrivateLinkOwner};
pub use probing::Probing;
pub use reserved::{MAX_LOCAL_PORTS, Reserved, ReservedPort};
pub use sources::{OnExpiry, SourceSettings};
pub use telemetry::Telemetry;
pub use unforwarded::{NoService, TooBig};

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The whole validated configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Name of the appliance.
    pub name: String,
    /// Availability zone; empty if unknown.
    pub zone: String,
    /// Names of the nodes and zones whose backends count as local.
    pub local: Vec<String>,
    /// Number of the cluster that the appliance belongs to, as shown in its object; 0 if there is
    /// only one.
    pub cluster: u32,
    /// First and last node port.
    pub node_ports: (u16, u16),
    /// Accept packets from outside the cluster to ClusterIP frontends.
    pub external_cluster_ip: bool,
    /// Load balancer classes to serve.
    pub load_balancer_classes: Vec<String>,
    /// Labels of the appliance.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the appliance.
    pub annotations: BTreeMap<String, String>,
    /// The data plane.
    pub plane: Plane,
    /// Origin of `plane`.
    pub plane_from: PlaneFrom,
    /// File of the decision for `plane = "auto"`.
    pub plane_file: PathBuf,
    /// Services file or directory, watched by slowpath; `None` if all services come through the
    /// API.
    pub services: Option<PathBuf>,
    /// The packet forwarding process.
    pub fastpath: Fastpath,
    /// The shared memory region and its capacities.
    pub region: Region,
    /// The arm that faces the gateways.
    pub ingress: Arm,
    /// The arm that faces the backends; `None` on a one-armed appliance.
    pub egress: Option<Arm>,
    /// Source NAT.
    pub nat: Nat,
    /// Flow timeouts and limits of new flows.
    pub flows: Flows,
    /// Packets passed to this machine's kernel.
    pub punt: Punt,
    /// Rate limits of ICMP errors.
    pub icmp: Icmp,
    /// Gateways in the order of the configuration.
    pub gateways: Vec<Gateway>,
    /// Sources of services in order of precedence, highest first.
    pub sources: Vec<SourceSettings>,
    /// The appliance on AWS, if configured.
    pub aws: Option<Aws>,
    /// The appliance on Azure, if configured.
    pub azure: Option<Azure>,
    /// Management of Private Link Services, if configured.
    pub private_link: Option<PrivateLink>,
    /// BGP settings.
    pub bgp: Bgp,
    /// Health endpoints and health checks.
    pub health: Health,
    /// The Prometheus endpoint.
    pub metrics: Metrics,
    /// The control socket and persisted state.
    pub control: Control,
    /// The log.
    pub log: Log,
    /// The history of events.
    pub events: Events,
    /// Export to an OpenTelemetry collector, if configured.
    pub telemetry: Option<Telemetry>,
    /// The API over TCP, if configured.
    pub api: Option<Api>,
    /// Tokens of the API and, if it requires them, of the metrics listener.
    pub tokens: Tokens,
    /// Maximum size of the audit log in bytes.
    pub audit_max_bytes: u64,
    /// Backend selection.
    pub tables: Tables,
    /// Settings that are valid but probably unintended, one sentence each; also in
    /// [`crate::report`].
    pub warnings: Vec<String>,
    /// The merged value of each key and the layer that set it, by dotted key.
    pub origins: BTreeMap<String, Origin>,
}

/// Name of the lowest layer.
pub(crate) const DEFAULT_LAYER: &str = "default";

/// A configuration value and the layer that set it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The merged value in TOML notation.
    pub value: String,
    /// The layer: `default`, `weir.toml:12`, `environment WEIR_INGRESS__MTU` or `--set
    /// ingress.mtu=9001`; for values that were `"auto"` the path of the file `auto_values`, or
    /// `first address of the arm` (`nat.addresses`).
    pub layer: String,
}

impl Origin {
    /// Returns whether no layer sets the value.
    pub fn is_default(&self) -> bool {
        self.layer == DEFAULT_LAYER
    }
}

impl Config {
    /// Returns the plane as configured.
    pub fn plane_setting(&self) -> PlaneSetting {
        match (self.plane_from, self.plane) {
            (PlaneFrom::Decided | PlaneFrom::Undecided, _) => PlaneSetting::Auto,
            (PlaneFrom::Configured, Plane::Dpdk) => PlaneSetting::Dpdk,
            (PlaneFrom::Configured, Plane::Xdp) => PlaneSetting::Xdp,
        }
    }

    /// Sets the plane of a configuration with `plane = "auto"`; does nothing with `dpdk` or `xdp`.
    pub(crate) fn resolve_auto(&mut self, plane: Plane) {
        if self.plane_from != PlaneFrom::Configured {
            (self.plane, self.plane_from) = (plane, PlaneFrom::Decided);
        }
    }

    /// Returns the arm of that name, if configured.
    pub fn arm(&self, name: ArmName) -> Option<&Arm> {
        match name {
            ArmName::Ingress => Some(&self.ingress),
            ArmName::Egress => self.egress.as_ref(),
        }
    }

    /// Returns the networks that probe this appliance: the sources of gateways (AWS probes from the
    /// gateway's nodes), Azure's health probes, and `health.reserved_sources`.
    pub fn probe_networks(&self) -> Vec<Prefix> {
        let mut networks = self.health.reserved_sources.clone();
        let tunnels = self.gateways.iter().flat_map(|gateway| &gateway.tunnels);
        networks.extend(tunnels.flat_map(|tunnel| tunnel.sources.iter().copied()));
        let azure = self.gateways.iter().any(|gateway| gateway.kind == GatewayKind::Azure);
        if azure || self.azure.is_some() {
            networks.extend(azure::PROBE_SOURCES);
        }
        networks.sort_unstable();
        networks.dedup();
        networks
    }

    /// Returns the configured arms in the order of their numbers.
    pub fn arms(&self) -> impl Iterator<Item = (ArmName, &Arm)> {
        let egress = self.egress.as_ref().map(|arm| (ArmName::Egress, arm));
        std::iter::once((ArmName::Ingress, &self.ingress)).chain(egress)
    }

    /// Returns the default arm of backends: egress if there is one, otherwise ingress.
    pub fn backend_arm(&self) -> ArmName {
        if self.egress.is_some() { ArmName::Egress } else { ArmName::Ingress }
    }
}

/// Maximum sum of both parts of [`Region::unconfirmed_percent`].
pub const MAX_UNCONFIRMED_PERCENT: u32 = 75;

/// Default of [`Region::user`]: the Unix user as which slowpath runs.
pub const SERVICE_USER: &str = "weir";

/// Default of [`Region::group`]: the Unix group of Weir's services.
pub const SERVICE_GROUP: &str = "weir";

/// Default of [`Control::group`]: the Unix group that may use the control socket.
pub const ADMIN_GROUP: &str = "weir-admin";

/// The `[region]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// The mapped file, on hugetlbfs or tmpfs.
    pub path: PathBuf,
    /// Directory of the pinned BPF maps that plane xdp uses instead of a file.
    pub maps: PathBuf,
    /// Unix user besides root that may own the region. The default, [`SERVICE_USER`], applies only
    /// if the machine has that user.
    pub user: Option<String>,
    /// Unix group with write access to the region besides its owner. The default,
    /// [`SERVICE_GROUP`], applies only if the machine has that group.
    pub group: Option<String>,
    /// Maximum number of services.
    pub max_services: u32,
    /// Maximum number of frontends.
    pub max_frontends: u32,
    /// Maximum number of backends.
    pub max_backends: u32,
    /// Maximum number of next hops.
    pub max_next_hops: u32,
    /// Maximum number of Maglev slots of all services together.
    pub slots: u32,
    /// Capacity of the flow table; `None` derives it from the machine's memory.
    pub max_flows: Option<u32>,
    /// Maximum share of unconfirmed flows in the flow table in percent: of flows whose replies pass
    /// through Weir, and of flows whose replies bypass it.
    pub unconfirmed_percent: [u32; 2],
    /// Maximum number of slabs, each for a gateway option area longer than 48 bytes, or for the
    /// second gateway leg of a flow that has one leg per direction.
    pub option_slabs: u32,
    /// Maximum number of fragmented datagrams tracked at once.
    pub max_fragments: u32,
    /// Maximum number of NAT port maps: one per backend and NAT address of its family.
    pub nat_maps: u32,
    /// Maximum number of clients with session affinity.
    pub max_affinities: u32,
    /// Maximum number of gateway endpoints, each of which has a scope.
    pub max_scopes: u32,
    /// Number of services with counters of their own.
    pub counted_services: u32,
    /// Number of backends with counters of their own.
    pub counted_backends: u32,
    /// Messages per ring between slowpath and an lcore; a power of two.
    pub ring_slots: u32,
}

/// The `[flows]` section: timeouts in seconds, and limits of new flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flows {
    /// Idle timeout of established TCP connections.
    pub tcp_established_s: u32,
    /// Idle timeout of TCP connections until the client sends again after a reply.
    pub tcp_embryonic_s: u32,
    /// Idle timeout of UDP and other flows until the client sends again after a reply.
    pub udp_embryonic_s: u32,
    /// Timeout of TCP connections after FIN from both sides, or after RST before they were
    /// established.
    pub tcp_closed_s: u32,
    /// Idle timeout of UDP flows.
    pub udp_s: u32,
    /// Idle timeout of flows of other protocols.
    pub other_s: u32,
    /// Time for which the fragments of one datagram are tracked.
    pub fragment_s: u32,
    /// Maximum number of new flows per second and lcore by NAT or to proxies, 0 for no limit.
    /// `None`: the limit is derived from the capacity for unconfirmed flows.
    pub nat_new_per_s: Option<u32>,
    /// Maximum number of new flows per second and lcore by tunnel or direct server return that get
    /// a flow entry; 0 for no limit.
    pub tunnel_new_per_s: u32,
}

/// The `[icmp]` section: maximum numbers of ICMP errors per second and lcore; 0 for no limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Icmp {
    /// Errors that an arm sends, for each of the two kinds: too big, and time exceeded.
    pub errors_per_s: u32,
    /// Errors that an arm sends to one IPv4 /24 or IPv6 /64, within `errors_per_s`.
    pub errors_per_network_per_s: u32,
    /// Received too-big errors about Weir's own tunnel packets that may lower a path MTU.
    pub path_mtu_errors_per_s: u32,
}

/// The `[punt]` section: packets passed to this machine's kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Punt {
    /// Packets per second and lcore to the appliance's own ports, from BGP neighbors, and in reply
    /// to health checks from the address `probe` of a backend; 0 for no limit.
    pub local_limit_per_s: u32,
    /// ARP and neighbor discovery packets per second and lcore; 0 for no limit.
    pub neighbor_limit_per_s: u32,
    /// Other ICMP packets per second and lcore; 0 for no limit.
    pub icmp_limit_per_s: u32,
    /// All other packets per second and lcore; 0 for no limit.
    pub limit_per_s: u32,
    /// TCP ports of this machine's other programs on the arms' addresses, ascending.
    pub local_ports: Vec<u16>,
    /// Action for packets without a tunnel that match no service: `Drop` or `Punt`, never `Return`.
    pub plain_no_service: NoService,
}

/// Sizes that a Maglev table may have: primes near powers of two (Cilium's list).
pub const MAGLEV_SIZES: [u32; 10] =
    [251, 509, 1021, 2039, 4093, 8191, 16_381, 32_749, 65_521, 131_071];

/// The `[tables]` section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tables {
    /// The hash seed, 12 bytes: the first 4 seed the Maglev tables, the other 8 the flow hash.
    pub seed: [u8; 12],
    /// Origin of the seed.
    pub seed_from: SeedFrom,
    /// Slots of services without a size of their own: one of [`MAGLEV_SIZES`].
    pub maglev_size: u32,
}

/// Origin of `tables.seed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeedFrom {
    /// The public default.
    Default,
    /// Set in the configuration.
    Configured,
    /// Generated by this appliance and persisted in `control.state`.
    Generated,
    /// Not generated yet: [`crate::load_to_run`] does so, and until then the seed is zero.
    Missing,
}

impl Tables {
    /// Returns the key of all flow hashes: the seed's last 8 bytes, big endian.
    pub fn hash_seed(&self) -> u64 {
        let [_, _, _, _, key @ ..] = self.seed;
        u64::from_be_bytes(key)
    }
}
