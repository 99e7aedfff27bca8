//! The validated contents of the services file.

pub mod address;
mod backend;
mod check;
mod file;
mod frontend;
mod health;
mod kinds;
pub mod labels;
mod mode;
mod spec;
pub mod text;

pub use backend::{BackendSpec, Placement};
pub(crate) use check::{check, schema};
pub use frontend::FrontendSpec;
pub use health::{HealthCheck, ProbeKind, Timing, statuses};
pub use kinds::{
    Algorithm, BackendState, Distribution, FailedTcp, FailedUdp, FrontendKind, NatPolicy,
    RangesPolicy, TrafficPolicy,
};
pub use mode::{BackendTunnel, MODE_KEYS, Mode};
pub use spec::{AFFINITY_MAX_S, ProxyRedirect, ServiceSpec, SourceRanges};
pub use tables::record::TunnelKind;
pub use text::is_default;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use crate::checked::{ArmName, Prefix, TooBig};

/// The services file, validated against itself and against the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Services {
    /// Whether the file permits any removal of services, whatever `control.max_removal_percent` is.
    pub allow_removal: bool,
    /// Services in the order of the file; names are unique.
    pub services: Vec<Service>,
}

/// One service of the services file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// Unique name, `[cluster/]namespace/name`, 1 to 120 bytes.
    pub name: String,
    /// Labels of the service, for selectors.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the service.
    pub annotations: BTreeMap<String, String>,
    /// Desired state of the service: at least one frontend, each unique over all services.
    pub spec: Arc<ServiceSpec>,
    /// Backends of the service. If empty, its packets are dropped as `no_backend`. Entries with the
    /// same address and port in several services are one backend.
    pub backends: Vec<BackendSpec>,
}
