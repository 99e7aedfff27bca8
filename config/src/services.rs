//! The services: what the services file says, checked.

mod check;
mod file;

pub(crate) use check::{check, schema};

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::checked::{ArmName, Prefix, TooBig};

/// The services file, checked against itself and against the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Services {
    /// In the order of the file; names are unique.
    pub services: Vec<Service>,
}

/// One service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// `[cluster/]namespace/name`, 1..=120 bytes.
    pub name: String,
    /// How its packets reach the backends, with what belongs to it.
    pub mode: Mode,
    /// What becomes of packets too big for the way to the backend.
    pub too_big: TooBig,
    /// Upper bound for the MSS option of passing SYNs, bytes; 0 for none.
    pub mss: u16,
    /// TCP established idle time in seconds; 0 for `flows.tcp_established_s`.
    pub tcp_idle_s: u32,
    /// Maglev slots, one of [`crate::checked::MAGLEV_SIZES`].
    pub table_size: u32,
    /// What it answers on, at least one, unique over all services.
    pub frontends: Vec<Frontend>,
    /// Who serves it; empty means that its packets are dropped as `no-backend`.
    pub backends: Vec<Backend>,
}

/// How packets reach the backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Rewritten, source NAT to an address of ours. Frontends and backends are of one family.
    #[default]
    Nat,
    /// In a tunnel with a return leg.
    Tunnel(BackendTunnel),
    /// In a tunnel, for plain flows: the backend answers by itself.
    Dsr(BackendTunnel),
}

/// The tunnel to a service's backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackendTunnel {
    /// The encapsulation.
    pub kind: TunnelKind,
    /// UDP destination port; 0 for IPIP.
    pub port: u16,
    /// Network identifier, 24 bits; 0 for IPIP and GUE.
    #[serde(default)]
    pub vni: u32,
    /// Fill in the outer UDP checksum where it could be zero.
    #[serde(default)]
    pub outer_checksum: bool,
    /// Set DF on the outer IPv4 header.
    #[serde(default = "yes")]
    pub dont_fragment: bool,
}

fn yes() -> bool {
    true
}

/// What a tunnel is made of; the numbers are those of the tables' records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum TunnelKind {
    /// RFC 8926, UDP 6081.
    Geneve = 1,
    /// RFC 7348, UDP 4789.
    Vxlan = 2,
    /// RFC 2003, 2473, 4213; no port.
    Ipip = 3,
    /// Generic UDP encapsulation, variant 1, UDP 6080.
    Gue = 4,
}

/// What a service answers on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frontend {
    /// One address or a network.
    pub prefix: Prefix,
    /// Port; 0 for any.
    pub port: u16,
    /// IP protocol number; 0 for any.
    pub protocol: u8,
    /// Gateway endpoint (GENEVE endpoint id, external VNI) that it is limited to; 0 for all.
    pub scope: u64,
}

/// Who serves. The same address and port in several services are one backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backend {
    /// Its address.
    pub addr: IpAddr,
    /// Its port; 0 keeps the port of the frontend (always 0 in tunnel and dsr).
    pub port: u16,
    /// Share relative to the service's other backends, 0..=65535; 0 goes with `Maintenance`.
    pub weight: u16,
    /// Who gets new flows.
    pub state: BackendState,
    /// The arm behind which it is.
    pub arm: ArmName,
    /// Source address whose packets on the exception path go to exactly this backend.
    pub probe: Option<IpAddr>,
}

/// State of a backend; the numbers are those of the tables' records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum BackendState {
    /// Serves.
    #[default]
    Active = 0,
    /// Keeps its flows, gets no new ones.
    Terminating = 1,
    /// Failed its checks.
    Quarantined = 2,
    /// Taken out by the operator.
    Maintenance = 3,
}
