//! The services: what the services file says, checked.

pub mod address;
mod check;
mod file;
mod frontend;
mod health;
mod kinds;
pub mod labels;
mod policy;
mod spec;
pub mod text;

pub(crate) use check::{check, schema};
pub use frontend::FrontendSpec;
pub use health::{HealthCheck, ProbeKind, Timing, Wrong, statuses};
pub use kinds::{
    Algorithm, BackendState, BackendTunnel, Distribution, FailedTcp, FailedUdp, FrontendKind, Mode,
    NatPolicy, RangesPolicy, TrafficPolicy, TunnelKind,
};
pub use spec::{AFFINITY_MAX_S, ProxyRedirect, ServiceSpec, SourceRanges};
pub use text::is_default;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

pub use crate::checked::{ArmName, Prefix, TooBig};

/// The services file, checked against itself and against the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Services {
    /// The file permits any removal.
    pub allow_removal: bool,
    /// In the order of the file; names are unique.
    pub services: Vec<Service>,
}

/// One service of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// `[cluster/]namespace/name`, 1..=120 bytes.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// What is wanted of it: at least one frontend, each unique over all services.
    pub spec: Arc<ServiceSpec>,
    /// Who serves it; empty means that its packets are dropped as `no-backend`.
    pub backends: Vec<Backend>,
}

/// Who serves. The same address and port in several services are one backend.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// Its node; empty counts as local everywhere.
    pub node: String,
    /// Its zone; empty for unknown.
    pub zone: String,
    /// Names of the service's ports that it serves; empty for all.
    pub port_names: Vec<String>,
}
