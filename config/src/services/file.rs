//! The services file as it is written. The doc comments are the operator's reference.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::health::HealthCheck;
use super::kinds::{
    Algorithm, BackendState, Distribution, FailedTcp, FailedUdp, FrontendKind, NatPolicy,
    RangesPolicy, TrafficPolicy, TunnelKind,
};
use super::spec::ProxyRedirect;
use crate::checked::TooBig;

/// The services.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServicesFile {
    /// Take what the files say even where it removes all services, or more than
    /// `control.max_removal_percent` of what they said before. In a folder it is for all files.
    /// Remove the key once the removal is made: as long as it is there, nothing is held back.
    #[serde(default)]
    pub allow_removal: bool,
    /// A service; one section each.
    #[serde(default)]
    pub service: Vec<Service>,
}

/// How packets reach the backends.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Nat,
    Tunnel,
    Dsr,
}

/// A service.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// `[cluster/]namespace/name` or a single word, unique, at most 120 bytes.
    pub name: String,
    /// `nat` rewrites addresses, `tunnel` wraps the packet and takes the answer back, `dsr` wraps
    /// plain packets and the backend answers by itself.
    pub mode: Mode,
    /// modes tunnel and dsr: `geneve`, `vxlan`, `ipip` or `gue`.
    #[serde(default)]
    pub tunnel: Option<TunnelKind>,
    /// UDP port of the tunnel. Default 6081 (geneve), 4789 (vxlan), 6080 (gue); ipip has none.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub tunnel_port: Option<u16>,
    /// Network identifier of geneve and vxlan. Default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 16777215))]
    pub vni: Option<u32>,
    /// Send outer UDP checksums also where they may be zero (IPv4).
    #[serde(default)]
    pub outer_checksum: bool,
    /// Forbid fragments of the outer packet (DF).
    #[serde(default = "yes")]
    pub dont_fragment: bool,
    /// Packets too big for the way to the backend: `reply` with an ICMP error, or `drop` silently
    /// (both are counted). Those that came by a gateway with `too_big = "drop"` are dropped in any
    /// case.
    #[serde(default)]
    pub too_big: TooBig,
    /// UDP flows and pings whose backend is quarantined, or that no source names any more: `move`
    /// to another backend with the client's next packet, or `keep` theirs until they are idle. As
    /// long as no other backend serves, they stay. Backends that drain or are in maintenance keep
    /// their flows in any case.
    #[serde(default)]
    pub failed_udp: FailedUdp,
    /// TCP connections whose backend is quarantined or that no source names any more: `keep` it
    /// until they are idle (300 s at most, where no source names it), since checks that fail for a
    /// moment must not cut connections, or answer the client's next segment with a `reset`.
    #[serde(default)]
    pub failed_tcp: FailedTcp,
    /// Largest TCP segment, bytes, that passing SYNs may ask for; 0 leaves them alone.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9460))]
    pub mss: u16,
    /// Seconds until an established, idle TCP flow is forgotten; 0 for `flows.tcp_established_s`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    pub tcp_idle_s: u32,
    /// How a backend is chosen for a new flow: `maglev` by a hash of the flow that moves few flows
    /// when backends change, `random` by a hash of the flow and weights alone.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Maglev slots: 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521 or 131071; 0 for
    /// `tables.maglev_size`.
    #[serde(default)]
    pub table_size: u32,
    /// Which backends serve packets from outside: all of the `cluster`, or those on nodes or in
    /// zones that the appliance calls local (`local`).
    #[serde(default)]
    pub external_policy: TrafficPolicy,
    /// The same for packets from within the cluster. Where the two differ, each frontend exists
    /// for both.
    #[serde(default)]
    pub internal_policy: TrafficPolicy,
    /// Which of those backends are preferred: `any`, those of the appliance's zone (`same-zone`),
    /// or those of a local node and then of the zone (`same-node`).
    #[serde(default)]
    pub distribution: Distribution,
    /// Seconds for which a client's address stays with its backend, counted from its latest new
    /// flow; 0 for no affinity.
    #[serde(default)]
    #[schemars(range(min = 0, max = 16777215))]
    pub affinity_s: u32,
    /// Client addresses and networks that `source_policy` is about; empty for everybody. They are
    /// asked of new flows: one that is known goes on.
    #[serde(default)]
    pub source_ranges: Vec<String>,
    /// `allow` admits `source_ranges` alone, `deny` admits all others.
    #[serde(default)]
    pub source_policy: RangesPolicy,
    /// Translation between families with mode nat: `none`, `nat46` (IPv4 frontends, IPv6 backends)
    /// or `nat64`.
    #[serde(default)]
    pub nat_policy: NatPolicy,
    /// TCP port on which the appliance tells whether it has local backends (HTTP, as Kubernetes'
    /// `healthCheckNodePort`); 0 for none. For services with `external_policy = "local"`.
    #[serde(default)]
    pub health_check_port: u16,
    /// How its backends are probed: `health = { kind = "http", path = "/healthz" }`. Left out: they
    /// are what their `state` says.
    #[serde(default)]
    pub health: Option<HealthCheck>,
    /// TCP and UDP flows go to a proxy on this machine, at the address of the arm that they come
    /// by, from the client's own address. With `plane = "xdp"` the kernel must not ask of that
    /// arm's interface whether it would answer by it (`rp_filter` 0 or 2), and a UDP proxy is to
    /// be bound to the arm's address.
    #[serde(default)]
    pub proxy_redirect: Option<ProxyRedirect>,
    /// For choosing among services.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// For whoever understands them.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// What it answers on; at least one.
    pub frontends: Vec<Frontend>,
    /// Who serves; empty drops its packets as `no-backend`.
    #[serde(default)]
    pub backends: Vec<Backend>,
}

/// A frontend.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Frontend {
    /// An address, or a network (`10.0.0.0/8`, `0.0.0.0/0`).
    pub address: String,
    /// Port; 0 for any.
    #[serde(default)]
    pub port: u16,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, `sctp`, a number, or `any` (then port must be 0).
    #[serde(default = "any")]
    pub protocol: String,
    /// Only packets of this gateway endpoint, in hexadecimal (`0x1f2e...`; for azure the external
    /// VNI); empty for all.
    #[serde(default)]
    pub scope: String,
    /// What made the address a frontend: `LoadBalancer`, `ClusterIP`, `NodePort` (address 0.0.0.0
    /// or ::), `ExternalIPs`, `HostPort`, `LocalRedirect`.
    #[serde(default, rename = "type")]
    pub kind: FrontendKind,
    /// Only backends that have this port name; empty for all.
    #[serde(default)]
    pub port_name: String,
}

/// A backend.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// Its address.
    pub address: String,
    /// Its port; 0 keeps the frontend's. Modes tunnel and dsr: leave out.
    #[serde(default)]
    pub port: u16,
    /// Share relative to the others; 0 is the same as state maintenance.
    #[serde(default = "hundred")]
    pub weight: u16,
    /// `active`, `terminating` (keeps its flows, gets new ones only where nothing is active),
    /// `terminating-not-serving` (gets none), `quarantined` or `maintenance`.
    #[serde(default)]
    pub state: BackendState,
    /// `ingress` or `egress`; empty for egress where there is one.
    #[serde(default)]
    pub arm: String,
    /// A source address reserved for probes: what this machine sends from it goes to exactly this
    /// backend, through the service's tunnel; empty for none. Answers come back by the tunnel, or
    /// plain from a backend that answers directly and has a route for it to this machine. With
    /// `health`, the machine gets it by itself, on `lo`, until no backend wants it; one that is
    /// there already, on any interface, is left alone. With `plane = "xdp"` answers come in by the
    /// NIC from the frontend's address, which the kernel must not take for forged: `rp_filter` 0,
    /// or 2 and any route there.
    #[serde(default)]
    pub probe: String,
    /// The node on which it runs; empty counts as local everywhere.
    #[serde(default)]
    pub node: String,
    /// The zone in which it runs; empty for unknown.
    #[serde(default)]
    pub zone: String,
    /// Names of the service's ports that it serves; empty for all.
    #[serde(default)]
    pub port_names: Vec<String>,
}

fn yes() -> bool {
    true
}

fn any() -> String {
    "any".into()
}

fn hundred() -> u16 {
    100
}
