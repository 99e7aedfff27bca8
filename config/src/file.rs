//! The configuration as written: the keys of the TOML file, the environment and `--set`.
//!
//! The doc comments are the operator's key reference, from which KEYS.md is generated, and the
//! ranges are enforced by [`crate::schema`], so each key is described once. [`crate::check`]
//! validates rules that involve several keys.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod aws;
mod azure;
mod bgp;
mod defaults;
mod endpoints;
mod list;
mod log;
mod private_link;
mod telemetry;

pub use aws::Aws;
pub use azure::Azure;
pub use bgp::Bgp;
pub use endpoints::{Api, Audit, Control, Health, Metrics};
pub use log::{Events, Log};
pub use private_link::PrivateLink;
pub use telemetry::Telemetry;

use crate::checked::{
    Attach, GatewayKind, Idle, NoService, OnExpiry, PageSize, PlaneSetting, TooBig, VxlanEnd,
};
use list::one_or_many;

/// The top-level keys: identity of the appliance, its data plane, and the services file.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Name of the appliance in logs and metrics, 1 to 63 characters of a-z, 0-9, `-`, `.` and `_`.
    /// `"auto"`: the instance id on AWS, the machine's name on Azure, elsewhere the host name.
    #[schemars(extend("x-weir" = "machine"))]
    pub name: String,
    /// Availability zone of the appliance. Empty: no zone. `"auto"`: from the cloud's metadata.
    #[schemars(extend("x-weir" = "machine"))]
    pub zone: String,
    /// File with this machine's values for the keys that are `"auto"` in this configuration. `weir
    /// auto save` writes it.
    #[schemars(extend("x-weir" = "machine path"))]
    pub auto_values: String,
    /// Names of the nodes and zones whose backends count as local. Services with traffic policy
    /// `local` use local backends only.
    #[schemars(extend("x-weir" = "machine"))]
    pub local: Vec<String>,
    /// Number of the cluster that the appliance belongs to, as shown in the appliance's object; 0
    /// if there is only one cluster.
    pub cluster: u32,
    /// Range of node ports, `first-last`. Frontends of type NodePort must have a port in this
    /// range.
    pub node_ports: String,
    /// Accept packets from outside the cluster to frontends of type ClusterIP.
    pub external_cluster_ip: bool,
    /// Load balancer classes to serve (`spec.loadBalancerClass` of Kubernetes Services). Services
    /// without a class are always served.
    pub load_balancer_classes: Vec<String>,
    /// Labels of the appliance, `key = "value"`. The `node_selector` of BGP policies selects
    /// appliances by them.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the appliance. `"weir.dev/bgp-virtual-router.ASN" =
    /// "router-id=192.0.2.1,local-port=179"` sets the BGP identifier, the listening port, or both,
    /// of the virtual router with that local AS number.
    #[schemars(extend("x-weir" = "machine annotations"))]
    pub annotations: BTreeMap<String, String>,
    /// The data plane: `dpdk` (the fastpath process with dedicated NICs), `xdp` (programs in the
    /// kernel, attached to NICs by ebpf-fallback), or `auto`: DPDK where NICs, drivers and memory
    /// allow it, otherwise XDP. With `auto`, `weir plane decide` selects the plane once per start,
    /// and the configuration must be valid for both. Tables, flows and counters are carried over
    /// when the plane changes.
    pub plane: PlaneSetting,
    /// Path of the file in which `weir plane decide` writes the plane that it selected for
    /// `plane = "auto"`.
    #[schemars(extend("x-weir" = "machine path"))]
    pub plane_file: String,
    /// Path of the services file, or of a directory of such files; their keys are listed below.
    /// Changes are applied without a restart. Empty: no file; all services come through the API.
    pub services: String,
    /// The packet forwarding process.
    pub fastpath: Fastpath,
    /// The shared memory region. Its capacities are fixed when it is created.
    pub region: Region,
    /// The arm that faces the gateways.
    pub ingress: Arm,
    /// The arm that faces the backends. Omit the section for a one-armed appliance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Arm>,
    /// Source NAT for services with mode nat.
    pub nat: Nat,
    /// Idle timeouts of flows, and rate limits of new flows.
    pub flows: Flows,
    /// Packets passed to this machine's kernel.
    pub punt: Punt,
    /// Rate limits of ICMP errors.
    pub icmp: Icmp,
    /// A gateway that sends packets to this appliance; one section each.
    pub gateway: Vec<Gateway>,
    /// A source of services; one section each, in order of precedence, highest first. Sources
    /// without a section follow, among them the appliance's own files (`file`, `kubernetes-file`).
    pub source: Vec<Source>,
    /// The appliance on AWS; omit the section elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<Aws>,
    /// The appliance on Azure; omit the section elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<Azure>,
    /// Azure Private Link Services; omit the section if this appliance manages none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_link: Option<PrivateLink>,
    /// How service addresses are advertised to routers.
    pub bgp: Bgp,
    /// The endpoints that clouds and routers probe, and the health checks of backends.
    pub health: Health,
    /// The Prometheus endpoint.
    pub metrics: Metrics,
    /// The control socket, used by the `weir` command, and persisted state.
    pub control: Control,
    /// The log of all programs.
    pub log: Log,
    /// The history of events, for `weir events`.
    pub events: Events,
    /// Export of traces and metrics to an OpenTelemetry collector.
    pub telemetry: Telemetry,
    /// The API over TCP. Its files are read again when they change, and on SIGHUP; a file that
    /// cannot be used leaves the previous content in force. The API is always available on
    /// `control.socket`.
    pub api: Api,
    /// The audit log in `control.state`: every change through the API, the control socket and
    /// `weir`.
    pub audit: Audit,
    /// Backend selection.
    pub tables: Tables,
}

/// The packet forwarding process.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fastpath {
    /// CPUs that poll, 1 to 64 numbers. Each is fully used with `idle = "spin"`. `main_core` may be
    /// among them only if `idle` is `sleep` or `yield`.
    #[schemars(extend("x-weir" = "machine"))]
    pub lcores: Vec<u16>,
    /// CPU of DPDK's main thread and of the control thread. Both need little CPU time.
    #[schemars(extend("x-weir" = "machine"))]
    pub main_core: u16,
    /// Allocate packet buffers in hugepages. `false` runs without (EAL `--no-huge`), about 3 times
    /// slower.
    pub hugepages: bool,
    /// Size of the hugepages of DPDK's memory and of the region, `2M` or `1G`. Both are rounded up
    /// to whole pages. `1G` suits regions above 4 GiB, whose lookups then miss the TLB less often;
    /// such pages should be reserved at boot (`weir tune apply`), since a running machine seldom
    /// has a contiguous gigabyte. A region does not move to another size: its flows end.
    pub hugepage_size: PageSize,
    /// Memory that DPDK reserves at start, in MiB. It must hold the buffers and rings.
    #[schemars(range(min = 16, max = 1048576))]
    pub memory_mib: u32,
    /// Total number of packet buffers.
    #[schemars(range(min = 1024, max = 16777216))]
    pub buffers: u32,
    /// Size of one buffer in bytes. It should hold 128 bytes of headroom and a frame of the arm's
    /// `mtu` + 22 bytes; larger frames take several buffers, which is slower and unsupported by
    /// some virtual devices.
    #[schemars(range(min = 2176, max = 65535))]
    pub buffer_bytes: u16,
    /// What a polling CPU does when no packet arrived. `spin` polls again at once. `sleep`, for
    /// machines with shared CPUs, sleeps 50 µs after 64 empty polls: the first packet after a pause
    /// waits up to about 0.1 ms, and the receive queue (`rx_descriptors`) must hold what arrives
    /// meanwhile. `yield` yields the CPU but stays runnable, which starves the kernel's workers if
    /// all CPUs poll.
    pub idle: Idle,
    /// Maximum number of packets that an lcore takes at once from a receive queue or from the
    /// kernel. Smaller bursts lower latency, larger bursts need fewer driver calls. The vector
    /// receive functions of some drivers (ixgbe, i40e, ice, iavf) round it down to a multiple of 4
    /// or 8, so that below 8 they may receive nothing.
    #[schemars(range(min = 1, max = 64))]
    pub burst: u16,
    /// Additional arguments for DPDK's EAL, one string each.
    #[schemars(extend("x-weir" = "machine"))]
    pub eal: Vec<String>,
    /// plane xdp: where programs are attached. `native`: in the NIC driver. `generic`: in the
    /// kernel's network stack (any NIC, any MTU, 2 to 3 times slower). `auto`: `native` if the NIC
    /// supports it, otherwise `generic`.
    pub attach: Attach,
}

/// The shared memory region. Its capacities are fixed when it is created.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Region {
    /// Path of the region's file. Empty: `/dev/hugepages/weir-region`, with hugepages of 1 GiB
    /// `/dev/hugepages-1G/weir-region`, without hugepages `/dev/shm/weir/region`.
    #[schemars(extend("x-weir" = "machine path"))]
    pub path: String,
    /// plane xdp: directory in a BPF file system that holds the region as pinned BPF maps, instead
    /// of `path`.
    #[schemars(extend("x-weir" = "machine path"))]
    pub maps: String,
    /// User besides root that may own the region: the one as which slowpath runs. The default
    /// `weir` is used if the machine has that user; any other user must exist. Empty: root alone. A
    /// region of any other user is rejected.
    pub user: String,
    /// Group with read and write access to the region besides its owner. Its only members should be
    /// Weir's services. The default `weir` is used if the machine has that group; any other group
    /// must exist. Empty: the owner alone. A region that a group other than this one and root's, or
    /// all users, can read or write is rejected.
    pub group: String,
    /// Maximum number of services.
    #[schemars(range(min = 1, max = 1048576))]
    pub max_services: u32,
    /// Maximum number of frontends of all services together.
    #[schemars(range(min = 1, max = 4194304))]
    pub max_frontends: u32,
    /// Maximum number of backends. A backend that several services share counts once.
    #[schemars(range(min = 1, max = 4194304))]
    pub max_backends: u32,
    /// Maximum number of next hops in use at once; a backend needs one per address and arm.
    #[schemars(range(min = 8, max = 4194304))]
    pub max_next_hops: u32,
    /// Maximum number of Maglev slots of all services together. While a service changes, it needs
    /// its slots twice.
    #[schemars(range(min = 512, max = 1073741824))]
    pub slots: u32,
    /// Capacity of the flow table. Unset: derived from the machine's memory, the largest power of
    /// two from 65536 to 4194304 whose tables take at most a twelfth of it (`weir hugepages plan`
    /// shows the number and the memory); an existing region then keeps its own number.
    #[schemars(range(min = 64, max = 67108864))]
    pub max_flows: Option<u32>,
    /// Maximum share of unconfirmed flows in `max_flows`, in percent, for flows whose replies pass
    /// through Weir. A flow is confirmed once its client sends again after a reply. Above the
    /// limit, new flows evict the oldest unconfirmed ones. The sum with `unconfirmed_dsr_percent`
    /// may be at most 75; the rest is reserved for confirmed flows. A change keeps all flows.
    #[schemars(range(min = 1, max = 75))]
    pub unconfirmed_percent: u32,
    /// Like `unconfirmed_percent`, for flows whose replies bypass Weir (mode dsr). Their share is
    /// smaller because any two packets of the client confirm them.
    #[schemars(range(min = 1, max = 50))]
    pub unconfirmed_dsr_percent: u32,
    /// Maximum number of option slabs, 320 bytes each. A flow needs one if its gateway options are
    /// longer than 48 bytes, and another one if it belongs to an inspection chain and the gateway
    /// uses different nodes, ports or options in the two directions.
    #[schemars(range(min = 1, max = 67108864))]
    pub option_slabs: u32,
    /// Maximum number of fragmented datagrams tracked at once.
    #[schemars(range(min = 8, max = 16777216))]
    pub max_fragments: u32,
    /// Maximum number of NAT port maps, 8 KiB each: one per backend of mode nat and NAT address of
    /// its family; at least `max_backends` times the number of NAT addresses of one family.
    #[schemars(range(min = 1, max = 1048576))]
    pub nat_maps: u32,
    /// Maximum number of clients tracked by services with `affinity_s`; 64 bytes each plus spare
    /// capacity.
    #[schemars(range(min = 8, max = 16777216))]
    pub max_affinities: u32,
    /// Maximum number of gateway endpoints (aws: VPC endpoints; azure: external VNIs).
    #[schemars(range(min = 8, max = 4194304))]
    pub max_scopes: u32,
    /// Number of services with counters of their own, 64 bytes for each lcore (plane xdp: for each
    /// possible CPU). The remaining services are counted together as `(others)`. Unset:
    /// `max_services`, at most 65536.
    #[schemars(range(min = 0, max = 1048576))]
    pub counted_services: Option<u32>,
    /// Like `counted_services`, for backends. Unset: `max_backends`, at most 65536.
    #[schemars(range(min = 0, max = 4194304))]
    pub counted_backends: Option<u32>,
    /// Messages in each ring between slowpath and fastpath; a power of two.
    #[schemars(range(min = 16, max = 65536))]
    pub ring_slots: u32,
}

/// An arm: a NIC and its addresses, routers and queues.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Arm {
    /// The NIC: PCI address (`0000:00:06.0`), UUID of a VMBUS device, MAC address, interface of the
    /// kernel (`eth1`), or virtual device of DPDK (`net_af_packet0,iface=veth0`); `weir nic list`
    /// shows them. Arguments of the DPDK driver follow after commas (`0000:00:06.0,llq_policy=3`).
    /// Plane xdp uses the kernel's interface of that device.
    #[schemars(extend("x-weir" = "machine"))]
    pub device: String,
    /// Addresses with prefix length (`10.0.1.10/24`), one or a list, at most 16 on both arms
    /// together. `"auto"`: those of the machine, with its gateway and MTU unless these are set;
    /// from the cloud's metadata, elsewhere from the kernel.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(extend("x-weir" = "machine"))]
    pub address: Vec<String>,
    /// Routers for the default routes of this arm: none, or one per address family. `"auto"`: those
    /// of the machine.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(extend("x-weir" = "machine"))]
    pub gateway: Vec<String>,
    /// IPv4 network (`100.64.7.0/24`, /8 to /30) from which outer IPIP sources on this arm are
    /// taken. They vary by flow, so that the NICs of backends spread packets over their receive
    /// queues. The network must route this range to this arm and accept packets from it. Empty: the
    /// arm's own address is the outer source of all packets.
    #[schemars(extend("x-weir" = "machine"))]
    pub ipip_sources: String,
    /// Largest IP packet on the wire in bytes, tunnel headers included.
    #[schemars(range(min = 1280, max = 9600))]
    pub mtu: u16,
    /// Receive queues; 0 for one per lcore, otherwise at most one per lcore.
    #[schemars(range(min = 0, max = 64))]
    pub queues: u16,
    /// Capacity of each receive queue in packets; a power of two.
    #[schemars(range(min = 64, max = 8192))]
    pub rx_descriptors: u16,
    /// Capacity of each transmit queue in packets; a power of two.
    #[schemars(range(min = 64, max = 8192))]
    pub tx_descriptors: u16,
    /// Name of the kernel's interface for this arm, at most 15 characters: a TAP, or with `plane =
    /// "xdp"` the veth end that this machine's health checks use. Empty: `weir-in` (ingress),
    /// `weir-out` (egress).
    #[schemars(extend("x-weir" = "machine"))]
    pub tap: String,
}

/// Source NAT for services with mode nat.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Nat {
    /// Source addresses, one or a list of at most 8. Services with mode nat require at least one.
    /// `"auto"`: the first address of each family of the arm that faces the backends.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(extend("x-weir" = "machine"))]
    pub addresses: Vec<String>,
    /// Source ports, `first-last`, within 1024-65535 and outside the kernel's ephemeral range.
    pub ports: String,
}

/// Idle timeouts of flows, and rate limits of new flows.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Flows {
    /// Idle timeout of established TCP connections in seconds (on AWS: the listener's timeout).
    #[schemars(range(min = 1, max = 86400))]
    pub tcp_established_s: u32,
    /// Idle timeout in seconds of TCP connections until the client sends again after a reply
    /// (if replies bypass Weir: until the client's second packet).
    #[schemars(range(min = 1, max = 86400))]
    pub tcp_embryonic_s: u32,
    /// Idle timeout in seconds of flows other than TCP until the client sends again after a reply
    /// (if replies bypass Weir: until the client's second packet). At most `udp_s` for UDP and
    /// `other_s` for other protocols.
    #[schemars(range(min = 1, max = 86400))]
    pub udp_embryonic_s: u32,
    /// Timeout in seconds of TCP connections after FIN from both sides, or after RST before they
    /// were established.
    #[schemars(range(min = 1, max = 86400))]
    pub tcp_closed_s: u32,
    /// Idle timeout of UDP flows in seconds.
    #[schemars(range(min = 1, max = 86400))]
    pub udp_s: u32,
    /// Idle timeout of flows of all other protocols in seconds.
    #[schemars(range(min = 1, max = 86400))]
    pub other_s: u32,
    /// Seconds for which the fragments of one datagram are tracked.
    #[schemars(range(min = 1, max = 300))]
    pub fragment_s: u32,
    /// New flows per second and lcore by NAT or to proxies; 0 for no limit. Packets above the limit
    /// are dropped as `new_flow_limited` before a flow entry or port is allocated; established
    /// flows are not affected. Unset: four times N, divided by the number of lcores (`weir
    /// hugepages plan` shows the result). N is the number of unconfirmed flows that fit:
    /// `region.unconfirmed_percent` of the flow table, or the NAT ports towards one backend if
    /// these are fewer. Even in a flood, an unconfirmed flow thus keeps its entry and its NAT port
    /// for two round trips of 100 ms.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub nat_new_per_s: Option<u32>,
    /// New flows per second and lcore by tunnel or direct return that get a flow entry; 0 for no
    /// limit. Flows above the limit are forwarded without one, as if the table were full (counter
    /// `flows_untracked`).
    #[schemars(range(min = 0, max = 10_000_000))]
    pub tunnel_new_per_s: u32,
}

/// Packets passed to this machine's kernel: rate limits and ports.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Punt {
    /// Packets per second and lcore to the kernel that are addressed to the ports of health,
    /// metrics, API and `local_ports`, come from BGP neighbors, or are replies to health checks
    /// from the address `probe` of a backend; 0 for no limit.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub local_limit_per_s: u32,
    /// ARP and IPv6 neighbor discovery packets per second and lcore to the kernel; 0 for no limit.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub neighbor_limit_per_s: u32,
    /// All other ICMP packets per second and lcore to the kernel; 0 for no limit.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub icmp_limit_per_s: u32,
    /// All other packets per second and lcore to the kernel; 0 for no limit.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub limit_per_s: u32,
    /// TCP ports of other programs on this machine that are reachable at the arms' addresses, such
    /// as ssh. Frontends may not use them, nor the ports of health, metrics, API, BGP (179), BFD
    /// (3784, 3785, 4784) and gateways.
    #[schemars(inner(range(min = 1)))]
    pub local_ports: Vec<u16>,
    /// Action for packets without a tunnel that match no service: `drop` or `punt` (pass to the
    /// kernel).
    // `return` needs a gateway.
    #[schemars(with = "String", extend("enum" = ["drop", "punt"]))]
    pub plain_no_service: NoService,
}

/// Rate limits of ICMP errors, per second and lcore.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Icmp {
    /// ICMP errors that an arm sends, for each of the two kinds (fragmentation needed or packet too
    /// big; time exceeded); 0 for no limit (RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f)).
    #[schemars(range(min = 0, max = 10_000_000))]
    pub errors_per_s: u32,
    /// Of these, errors to one IPv4 /24 or IPv6 /64; 0 for no limit.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub errors_per_network_per_s: u32,
    /// Received too-big errors about Weir's own tunnel packets that may lower the path MTU to a
    /// backend; 0 for no limit.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub path_mtu_errors_per_s: u32,
}

/// A source of services.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Unique name of the source, 1 to 63 characters of a-z, 0-9, `-`, `.` and `_`.
    pub name: String,
    /// Lease in seconds of what the source published over the API (`/v1/sources/NAME`). Each
    /// request of a session (which publishes a complete list) and each renewal of the lease extends
    /// it. A source may request a lease of its own; 0 for no expiry.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    pub lease_s: u32,
    /// How the source's objects are handled when its lease expires: `keep` them; `quarantine` (its
    /// backends get no new flows until it renews the lease or publishes everything again, and other
    /// sources take precedence for them); or `release` (they are removed until the source publishes
    /// everything again).
    #[serde(default)]
    pub on_expiry: OnExpiry,
}

/// A gateway that sends packets to this appliance.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// Unique name of the gateway, 1 to 63 characters of a-z, 0-9, `-`, `.` and `_`.
    pub name: String,
    /// Kind of gateway: `aws` (GENEVE) or `azure` (VXLAN, two tunnels).
    pub kind: GatewayKind,
    /// Networks allowed as outer source, one or a list of at most 8 per address family.
    #[serde(deserialize_with = "one_or_many")]
    pub sources: Vec<String>,
    /// Addresses of this appliance to which the gateway sends, one or a list; each must be on an
    /// arm. Empty: the first address of the ingress arm for each address family in `sources`.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(extend("x-weir" = "machine"))]
    pub address: Vec<String>,
    /// aws: outer UDP destination port. Default 6081.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// aws: class of the gateway's GENEVE options. Default 264 (0x0108, AWS).
    #[serde(default)]
    pub option_class: Option<u16>,
    /// azure: tunnel for traffic from and to the internet. Default `{port = 10801, vni = 801}`.
    #[serde(default)]
    pub external: Option<VxlanEnd>,
    /// azure: tunnel for traffic from and to the application. Default `{port = 10800, vni = 800}`.
    #[serde(default)]
    pub internal: Option<VxlanEnd>,
    /// azure: return packets that match no service through the other tunnel; `false`: through the
    /// same. Default true.
    #[serde(default)]
    pub cross: Option<bool>,
    /// Action for packets that match no service: `return` to the gateway, `drop`, or `punt` (pass
    /// to the kernel).
    #[serde(default = "returns")]
    pub no_service: NoService,
    /// Largest inner IP packet in bytes. Default 8500 (aws), 1500 (azure). The arm's MTU must
    /// exceed it by the tunnel's overhead: aws 68 (outer IPv6: 88), azure 50 (outer IPv6: 70).
    #[serde(default)]
    #[schemars(range(min = 576, max = 9500))]
    pub inner_mtu: Option<u16>,
    /// Action for inner packets larger than `inner_mtu`, and for packets from this gateway that
    /// exceed the path MTU to a backend: `reply` with an ICMP error, or `drop` silently. Both are
    /// counted.
    #[serde(default)]
    pub too_big: TooBig,
    /// Compute outer UDP checksums where they may be zero (IPv4).
    #[serde(default)]
    pub outer_checksum: bool,
}

/// Backend selection: hash seed and size of the Maglev tables.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tables {
    /// Hash seed, 12 bytes in base64 (16 characters): 4 for the Maglev tables, 8 for the flow hash.
    /// It must be equal on all appliances that must select the same backends (behind one gateway or
    /// ECMP), as must `maglev_size` and `region.max_scopes`. The default is public and causes a
    /// warning: anyone who knows the seed can aim flows at one bucket of the flow table. Create
    /// your own with `head -c 12 /dev/urandom | base64`. `generate`, for a single appliance,
    /// creates one at the first start and keeps it in `control.state`. The data plane and slowpath
    /// do not start with a region of another seed. `weir status` shows its fingerprint.
    pub seed: String,
    /// Maglev slots of services without `table_size`: 251, 509, 1021, 2039, 4093, 8191, 16381,
    /// 32749, 65521 or 131071. More slots distribute more evenly and take more memory.
    pub maglev_size: u32,
}

fn returns() -> NoService {
    NoService::Return
}
