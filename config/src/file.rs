//! The configuration as it is written: the keys of the TOML file, the environment and `--set`.
//!
//! The doc comments are the operator's reference (KEYS.md is made from them) and the ranges are
//! what [`crate::schema`] enforces, so each key is described once. Meaning across keys is checked
//! in [`crate::checked`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod aws;
mod azure;
mod bgp;
mod defaults;
mod endpoints;
mod list;
mod private_link;

pub use aws::Aws;
pub use azure::Azure;
pub use bgp::Bgp;
pub use endpoints::{Api, Control, Health, Metrics};
pub use private_link::PrivateLink;

use crate::checked::{Attach, GatewayKind, Idle, NoService, OnExpiry, Plane, TooBig, VxlanEnd};
use list::one_or_many;

/// The appliance itself.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Name of the appliance in logs and metrics: 1 to 63 of a-z, 0-9, `-`, `.`, `_`.
    pub name: String,
    /// Zone in which it runs; empty when there is none.
    pub zone: String,
    /// Names of the nodes and zones whose backends count as local: what a service's traffic policy
    /// `local` is about.
    pub local: Vec<String>,
    /// Number of the cluster that it belongs to; 0 where there is only one.
    pub cluster: u32,
    /// Ports that are node ports, `first-last`: a service's frontend of type NodePort has one of
    /// them.
    pub node_ports: String,
    /// Whether packets from outside may go to a cluster's own addresses (type ClusterIP).
    pub external_cluster_ip: bool,
    /// Classes of load balancers that are served (`spec.loadBalancerClass` of Kubernetes Services);
    /// Services that name no class always are.
    pub load_balancer_classes: Vec<String>,
    /// Free labels, `key = "value"`.
    pub labels: BTreeMap<String, String>,
    /// Free annotations. `"weir.dev/bgp-virtual-router.ASN" = "router-id=192.0.2.1,local-port=179"`
    /// says who this appliance is to BGP neighbors of that router, or on which port it listens.
    pub annotations: BTreeMap<String, String>,
    /// What moves packets: `dpdk`, the program fastpath with NICs of its own, or `xdp`, programs in
    /// the kernel that ebpf-fallback attaches to NICs. Tables, flows and counters go over.
    pub plane: Plane,
    /// The services: a file, or a folder of files (their keys are below); watched, changes apply
    /// without a restart. Empty: no file, all of them come through the API.
    pub services: String,
    /// The packet-moving process.
    pub fastpath: Fastpath,
    /// The shared memory, whose maxima are fixed when it is created.
    pub region: Region,
    /// The arm on which gateways reach this appliance.
    pub ingress: Arm,
    /// The arm behind which backends are; leave the section out for a one-armed appliance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Arm>,
    /// Source NAT of services with mode nat.
    pub nat: Nat,
    /// Idle times after which a flow is forgotten, and how many may begin in a second.
    pub flows: Flows,
    /// What goes to this machine's own kernel.
    pub punt: Punt,
    /// Limits of ICMP errors.
    pub icmp: Icmp,
    /// A gateway that sends packets here; one section each.
    pub gateway: Vec<Gateway>,
    /// A source that says what services there are; one section each, the preferred first. Sources
    /// without a section come last, the appliance's own files (`file`, `kubernetes-file`) too.
    pub source: Vec<Source>,
    /// The appliance at AWS; leave the section out elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<Aws>,
    /// The appliance at Azure; leave the section out elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<Azure>,
    /// Azure Private Link Services; leave the section out where none are looked after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_link: Option<PrivateLink>,
    /// How routers are told of services' addresses.
    pub bgp: Bgp,
    /// The endpoint that clouds and routers probe, and how backends are probed.
    pub health: Health,
    /// The Prometheus endpoint.
    pub metrics: Metrics,
    /// The socket of the `weir` command, and what slowpath keeps.
    pub control: Control,
    /// The API over TCP; over `control.socket` it is there always.
    pub api: Api,
    /// How backends are chosen.
    pub tables: Tables,
}

/// The packet-moving process.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fastpath {
    /// CPUs that poll, each used up whole; 1 to 64 numbers, `main_core` only if they sleep or
    /// yield.
    pub lcores: Vec<u16>,
    /// CPU of DPDK's main thread and the control thread, which need little.
    pub main_core: u16,
    /// Packet buffers in hugepages. `false` runs without (EAL `--no-huge`), 3 times slower.
    pub hugepages: bool,
    /// MiB that DPDK takes at start; must hold the buffers and rings.
    #[schemars(range(min = 16, max = 1048576))]
    pub memory_mib: u32,
    /// Packet buffers in all.
    #[schemars(range(min = 1024, max = 16777216))]
    pub buffers: u32,
    /// Bytes of one buffer: 128 of headroom and a frame of the port's MTU + 18.
    #[schemars(range(min = 2176, max = 65535))]
    pub buffer_bytes: u16,
    /// What a CPU does when there was nothing to do: `spin` polls on. `sleep` is for machines that
    /// share their CPUs: after 64 polls that found nothing it sleeps for 50 µs, so that the first
    /// packet after a pause waits up to about 0.1 ms, and the receive queue (`rx_descriptors`) has
    /// to hold what arrives meanwhile. `yield` lets other programs run but stays runnable, which
    /// starves the kernel's workers where it polls on all CPUs.
    pub idle: Idle,
    /// Packets that an lcore takes at once from a receive queue or from the kernel, at most. Fewer
    /// make less latency, more make fewer calls of the driver. Vector receive functions of some
    /// drivers (ixgbe, i40e, ice, iavf) round it down to a multiple of 4 or 8: below 8 they may
    /// take nothing.
    #[schemars(range(min = 1, max = 64))]
    pub burst: u16,
    /// Further arguments for DPDK's EAL, one string each.
    pub eal: Vec<String>,
    /// plane xdp: `native` in the NIC's driver, `generic` in the kernel's stack (any NIC, any MTU,
    /// 2 to 3 times slower), `auto` the one where the NIC can and the other where not.
    pub attach: Attach,
}

/// The shared memory.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Region {
    /// The file. Empty: `/dev/hugepages/weir-region`, or `/dev/shm/weir/region` without hugepages.
    pub path: String,
    /// plane xdp: the folder in a BPF file system where the memory lies instead, as kernel maps.
    pub maps: String,
    /// Group that may read and write the file beside its owner: one with Weir's services as its
    /// only members. `weir-data` is used where the machine has that group, another must exist.
    /// Empty: the owner alone. A file that others can write is refused.
    pub group: String,
    /// Services.
    #[schemars(range(min = 1, max = 1048576))]
    pub max_services: u32,
    /// Frontends of all services.
    #[schemars(range(min = 1, max = 4194304))]
    pub max_frontends: u32,
    /// Backends, each counted once however many services share it.
    #[schemars(range(min = 1, max = 4194304))]
    pub max_backends: u32,
    /// Next hops in use at once: one per address and arm of a backend.
    #[schemars(range(min = 8, max = 4194304))]
    pub max_next_hops: u32,
    /// Maglev slots of all services together; a change needs a service's slots once more.
    #[schemars(range(min = 512, max = 1073741824))]
    pub slots: u32,
    /// Flows remembered at once. Where it is not set: from the machine's memory, 65536 to 4194304,
    /// the largest power of two whose tables take at most a twelfth of it (`weir hugepages plan`
    /// says how many, and the price); a region that exists keeps its own number then.
    #[schemars(range(min = 64, max = 67108864))]
    pub max_flows: Option<u32>,
    /// Percent of `max_flows` that flows may take which their client has not confirmed, where
    /// answers pass Weir; the oldest of them end for new ones. With `unconfirmed_dsr_percent` at
    /// most 75: the rest is left for confirmed flows. A change keeps all flows.
    #[schemars(range(min = 1, max = 75))]
    pub unconfirmed_percent: u32,
    /// The same for flows whose answers go past Weir (mode dsr). Any two packets of a client
    /// confirm them, so a smaller part is theirs.
    #[schemars(range(min = 1, max = 50))]
    pub unconfirmed_dsr_percent: u32,
    /// Flows whose gateway options are longer than 48 bytes, and flows of inspection chains whose
    /// two directions the gateway sends with different ports or options; 320 bytes each.
    #[schemars(range(min = 1, max = 67108864))]
    pub option_slabs: u32,
    /// Datagrams in pieces that are remembered at once.
    #[schemars(range(min = 8, max = 16777216))]
    pub max_fragments: u32,
    /// NAT port maps, 8 KiB each: one per backend of mode nat and NAT address of its family.
    #[schemars(range(min = 1, max = 1048576))]
    pub nat_maps: u32,
    /// Clients that services with `affinity_s` remember; 64 bytes each, and room to spare.
    #[schemars(range(min = 8, max = 16777216))]
    pub max_affinities: u32,
    /// Gateway endpoints.
    #[schemars(range(min = 8, max = 4194304))]
    pub max_scopes: u32,
    /// Services with counters of their own, 64 bytes for each lcore (with plane xdp: each CPU that
    /// the machine may have). All others are counted together, shown as `(others)`. Where it is not
    /// set: `max_services`, at most 65536.
    #[schemars(range(min = 0, max = 1048576))]
    pub counted_services: Option<u32>,
    /// The same for backends. Where it is not set: `max_backends`, at most 65536.
    #[schemars(range(min = 0, max = 4194304))]
    pub counted_backends: Option<u32>,
    /// Messages in each ring between the two processes, a power of two.
    #[schemars(range(min = 16, max = 65536))]
    pub ring_slots: u32,
}

/// A NIC and its place in the network.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Arm {
    /// PCI address (`0000:00:06.0`) or DPDK virtual device (`net_af_packet0,iface=veth0`). Plane
    /// xdp takes the kernel's interface at that address or after `iface=`, or a name (`eth1`).
    pub device: String,
    /// Addresses with prefix length (`10.0.1.10/24`), one or a list, at most 16 over both arms.
    #[serde(deserialize_with = "one_or_many")]
    pub address: Vec<String>,
    /// Routers for default routes by this arm: none, or one per family.
    #[serde(deserialize_with = "one_or_many")]
    pub gateway: Vec<String>,
    /// IPv4 network (`100.64.7.0/24`, /8 to /30) from which outer sources of IPIP by this arm are
    /// drawn, another one for most flows: backends' NICs spread packets over their queues by them.
    /// The network must route it to this arm, and accept packets from it. Empty: all packets come
    /// from the arm's own address.
    pub ipip_sources: String,
    /// Bytes of the largest IP packet on the wire, tunnel headers included.
    #[schemars(range(min = 1280, max = 9600))]
    pub mtu: u16,
    /// Receive queues; 0 for one per lcore, else at most that many.
    #[schemars(range(min = 0, max = 64))]
    pub queues: u16,
    /// Packets that each receive queue holds, a power of two.
    #[schemars(range(min = 64, max = 8192))]
    pub rx_descriptors: u16,
    /// Packets that each transmit queue holds, a power of two.
    #[schemars(range(min = 64, max = 8192))]
    pub tx_descriptors: u16,
    /// Name of the kernel's interface for this arm, at most 15 characters: a TAP, or with `plane =
    /// "xdp"` the end of a veth pair by which its probes go. Empty: `weir-in`, `weir-out`.
    pub tap: String,
}

/// Source NAT.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Nat {
    /// Source addresses, one or a list of at most 8; without any, no service may have mode nat.
    #[serde(deserialize_with = "one_or_many")]
    pub addresses: Vec<String>,
    /// Source ports, `first-last`, within 1024-65535 and apart from the kernel's own range.
    pub ports: String,
}

/// Idle times, and limits of new flows.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Flows {
    /// Seconds: TCP established (the listener's timeout on AWS).
    #[schemars(range(min = 1, max = 86400))]
    pub tcp_established_s: u32,
    /// Seconds: TCP until its client goes on after an answer (where answers go past Weir, until its
    /// second packet).
    #[schemars(range(min = 1, max = 86400))]
    pub tcp_embryonic_s: u32,
    /// Seconds: UDP and what is neither TCP nor UDP, until its client goes on after an answer
    /// (where answers go past Weir, until its second packet); at most `udp_s` or `other_s`.
    #[schemars(range(min = 1, max = 86400))]
    pub udp_embryonic_s: u32,
    /// Seconds: TCP after FIN from both sides, or RST before it was established.
    #[schemars(range(min = 1, max = 86400))]
    pub tcp_closed_s: u32,
    /// Seconds: UDP.
    #[schemars(range(min = 1, max = 86400))]
    pub udp_s: u32,
    /// Seconds: all other protocols.
    #[schemars(range(min = 1, max = 86400))]
    pub other_s: u32,
    /// Seconds: fragments of one datagram.
    #[schemars(range(min = 1, max = 300))]
    pub fragment_s: u32,
    /// New flows per second and lcore by NAT or to proxies; 0 for no limit. Those above drop as
    /// `new-flow-limited` before an entry or a port is looked for; known flows go on. Where it is
    /// not set: so many that unconfirmed flows keep entry and NAT port for two round trips of 100
    /// ms in any flood, which is four times the smaller of `region.unconfirmed_percent` of the
    /// flows and the NAT ports towards one backend, divided by the lcores (`weir hugepages plan`
    /// says how many).
    #[schemars(range(min = 0, max = 10_000_000))]
    pub nat_new_per_s: Option<u32>,
    /// New flows per second and lcore by tunnel or direct return that get an entry; 0 for no limit.
    /// Those above go on without one, as where the table is full (counter `flows_untracked`).
    #[schemars(range(min = 0, max = 10_000_000))]
    pub tunnel_new_per_s: u32,
}

/// The kernel's share.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Punt {
    /// Packets per second and lcore that may go to the kernel: to ports of health, metrics and API
    /// and `local_ports`, from BGP neighbors, and answers to probes that have a source of their
    /// own; 0 for no limit.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub local_limit_per_s: u32,
    /// The same for ARP and IPv6 neighbor discovery.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub neighbor_limit_per_s: u32,
    /// The same for all other ICMP.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub icmp_limit_per_s: u32,
    /// The same for everything else.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub limit_per_s: u32,
    /// TCP ports of this machine's other programs on the arms' addresses, such as ssh. No frontend
    /// may have them, as it may not have those of health, metrics, API, BGP (179), BFD (3784, 3785,
    /// 4784) and gateways.
    #[schemars(inner(range(min = 1)))]
    pub local_ports: Vec<u16>,
    /// Plain packets (no tunnel) for no service: `drop` or `punt`.
    pub plain_no_service: NoService,
}

/// ICMP errors, per second and lcore.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Icmp {
    /// Errors (fragmentation needed or packet too big; time exceeded) that an arm sends, of each of
    /// the two kinds; 0 for no limit (RFC 1812 4.3.2.8, RFC 4443 2.4 f).
    #[schemars(range(min = 0, max = 10_000_000))]
    pub errors_per_s: u32,
    /// Of these, errors to one IPv4 /24 or IPv6 /64; 0 for no limit.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub errors_per_network_per_s: u32,
    /// Too-big errors about Weir's own tunnel packets that may lower the path MTU to a backend; 0
    /// for no limit.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub path_mtu_errors_per_s: u32,
}

/// A source.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its name, unique: 1 to 63 of a-z, 0-9, `-`, `.`, `_`.
    pub name: String,
    /// Over the API (`/v1/sources/NAME`): seconds for which what it says holds after it was last
    /// heard, by any step of a session or a renewal, unless it asks for a lease of its own; 0 for
    /// ever.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    pub lease_s: u32,
    /// What becomes of what it said when its lease runs out: `keep`, `quarantine` (its backends get
    /// no new flows until it renews the lease or says everything again, and what other sources say
    /// of them comes first) or `release` (it is gone until the source says everything again).
    #[serde(default)]
    pub on_expiry: OnExpiry,
}

/// A gateway.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// Its name, unique: 1 to 63 of a-z, 0-9, `-`, `.`, `_`.
    pub name: String,
    /// `aws` (GENEVE) or `azure` (VXLAN, two tunnels).
    pub kind: GatewayKind,
    /// Networks that its outer packets may come from, one or a list of at most 8 per family.
    #[serde(deserialize_with = "one_or_many")]
    pub sources: Vec<String>,
    /// Our addresses that it sends to, one or a list; each on an arm. Empty: the ingress arm's
    /// first of each family in `sources`.
    #[serde(default, deserialize_with = "one_or_many")]
    pub address: Vec<String>,
    /// aws: outer UDP destination port. Default 6081.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// aws: class of its GENEVE options. Default 264 (0x0108, AWS).
    #[serde(default)]
    pub option_class: Option<u16>,
    /// azure: the tunnel from and to the internet. Default `{port = 10801, vni = 801}`.
    #[serde(default)]
    pub external: Option<VxlanEnd>,
    /// azure: the tunnel from and to the application. Default `{port = 10800, vni = 800}`.
    #[serde(default)]
    pub internal: Option<VxlanEnd>,
    /// azure: packets for no service leave by the other tunnel; `false`: by the same. Default
    /// true.
    #[serde(default)]
    pub cross: Option<bool>,
    /// Packets for no service: `return` to the gateway, `drop`, or `punt` to the kernel.
    #[serde(default = "returns")]
    pub no_service: NoService,
    /// Bytes of the largest inner IP packet. Default 8500 (aws), 1500 (azure). The arm's mtu must
    /// be larger by the tunnel: aws 68 (outer IPv6: 88), azure 50 (outer IPv6: 70).
    #[serde(default)]
    #[schemars(range(min = 576, max = 9500))]
    pub inner_mtu: Option<u16>,
    /// Larger inner packets, and those that came by it and are too big for the way to a backend:
    /// `reply` with an ICMP error, or `drop` silently (both are counted).
    #[serde(default)]
    pub too_big: TooBig,
    /// Send outer UDP checksums also where they may be zero (IPv4).
    #[serde(default)]
    pub outer_checksum: bool,
}

/// Tables.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tables {
    /// 12 bytes in base64 (16 characters): 4 for the Maglev tables, 8 for the hash of flows. Equal
    /// on all appliances that must choose alike (a gateway or ECMP in front of them). The default
    /// is public, and warned about: with the seed anyone can aim flows at one place of the flow
    /// table, so have your own from `head -c 12 /dev/urandom | base64`. `generate`, for a single
    /// appliance, has one made at the first start and kept in `control.state`. A region keeps the
    /// one that it was made with. `weir status` shows its fingerprint.
    pub seed: String,
    /// Slots of services that name no `table_size`: 251, 509, 1021, 2039, 4093, 8191, 16381,
    /// 32749, 65521 or 131071. More slots: finer shares, more memory.
    pub maglev_size: u32,
}

fn returns() -> NoService {
    NoService::Return
}
