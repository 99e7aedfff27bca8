//! Where others ask: probes, Prometheus, the command and the API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::Probing;

/// `[health]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Where HTTP probes are answered; there is one here or in `tcp`.
    pub listen: Vec<SocketAddr>,
    /// Where TCP probes are answered: listened on only while able.
    pub tcp: Vec<SocketAddr>,
    /// How old the control loop's heartbeat may be: 1 s to 300 s.
    pub stall_timeout: Duration,
    /// How backends are probed.
    pub probing: Probing,
}

/// `[metrics]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// Where Prometheus scrapes.
    pub listen: SocketAddr,
}

/// `[control]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Control {
    /// The unix socket of `weir status` and its siblings.
    pub socket: PathBuf,
    /// The group that may use it beside root.
    pub group: Option<String>,
    /// The folder where objects are kept; none where they are not.
    pub state: Option<PathBuf>,
}
