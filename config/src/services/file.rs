//! The services file as it is written. The doc comments are the operator's reference.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BackendState, TunnelKind};
use crate::checked::TooBig;

/// The services.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServicesFile {
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
    /// Packets too big for the way to the backend: `reply` with an ICMP error, or `drop`.
    #[serde(default)]
    pub too_big: TooBig,
    /// Largest TCP segment, bytes, that passing SYNs may ask for; 0 leaves them alone.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9460))]
    pub mss: u16,
    /// Seconds until an established, idle TCP flow is forgotten; 0 for `flows.tcp_established_s`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    pub tcp_idle_s: u32,
    /// `maglev`, the only one so far.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Maglev slots: 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521 or 131071; 0 for
    /// `tables.maglev_size`.
    #[serde(default)]
    pub table_size: u32,
    /// What it answers on; at least one.
    pub frontends: Vec<Frontend>,
    /// Who serves; empty drops its packets as `no-backend`.
    #[serde(default)]
    pub backends: Vec<Backend>,
}

/// How a backend is chosen.
#[derive(Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    #[default]
    Maglev,
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
    /// `active`, `terminating` (keeps its flows, no new ones), `quarantined` or `maintenance`.
    #[serde(default)]
    pub state: BackendState,
    /// `ingress` or `egress`; empty for egress where there is one.
    #[serde(default)]
    pub arm: String,
    /// A source address reserved for probes: what this machine sends from it goes to exactly this
    /// backend, through the service's tunnel; empty for none.
    #[serde(default)]
    pub probe: String,
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
