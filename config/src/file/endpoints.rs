//! As written: where others ask, and how backends are asked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::list::one_or_many;

/// Health: of the appliance, as others probe it, and of backends, as it probes them.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// `address:port`, one or a list, where HTTP probes are answered: 200, or 503 with the reasons.
    #[serde(deserialize_with = "one_or_many")]
    pub listen: Vec<String>,
    /// `address:port`, one or a list, where TCP probes are answered: a connection comes about only
    /// while the appliance is able, and is refused otherwise.
    #[serde(deserialize_with = "one_or_many")]
    pub tcp: Vec<String>,
    /// Milliseconds without a heartbeat of slowpath's control loop after which the appliance is not
    /// able: what the loop reported before no longer counts, probes fail and routes are withdrawn.
    /// A disk that hangs does not stop the loop.
    #[schemars(range(min = 1_000, max = 300_000))]
    pub stall_timeout_ms: u32,
    /// Networks that probe this appliance, beside the `sources` of gateways and, at Azure,
    /// 168.63.129.16. Their connections to health and health check ports have slots of their own,
    /// so that connections from elsewhere can't keep a probe out.
    #[serde(deserialize_with = "one_or_many")]
    pub reserved_sources: Vec<String>,
    /// Probes of backends that are under way at once, at most. One that hangs takes its timeout:
    /// N backends that all hang need N x `timeout_ms` / `interval_ms`.
    #[schemars(range(min = 1, max = 10_000))]
    pub probes_at_once: u32,
    /// Addresses of this machine that probes of backends come from, one of each family at most;
    /// empty leaves it to the kernel.
    #[serde(deserialize_with = "one_or_many")]
    pub probe_sources: Vec<String>,
    /// PEM file of the authorities that https probes believe, of services that name no `ca_file`.
    pub ca_file: String,
    /// Folder in which the `ca_file` of a service has to be; links may lead to files in it only.
    pub ca_folder: String,
    /// Milliseconds from one probe of a backend to the next, of services that don't say.
    #[schemars(range(min = 100, max = 300_000))]
    pub interval_ms: u32,
    /// Milliseconds that a probe may take in all, of services that don't say.
    #[schemars(range(min = 10, max = 300_000))]
    pub timeout_ms: u32,
    /// Good probes in a row that make a backend healthy, of services that don't say.
    #[schemars(range(min = 1, max = 100))]
    pub rise: u8,
    /// Bad probes in a row that make a backend unhealthy, of services that don't say.
    #[schemars(range(min = 1, max = 100))]
    pub fall: u8,
    /// By how much of the interval a probe may come later than its turn, in percent, of services
    /// that don't say.
    #[schemars(range(min = 0, max = 50))]
    pub jitter_percent: u8,
    /// A backend that fails within 32 probes after it recovered needs twice as many good ones the
    /// next time, doubled so often at most; every 32 probes in health take one doubling back. 0
    /// for never.
    #[schemars(range(min = 0, max = 6))]
    pub damping: u8,
}

/// Metrics.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// `address:port`; loopback by default, as there is no login. The default port lies outside of
    /// 9100 to 9999, which Prometheus exporters share (9100 is node_exporter's).
    pub listen: String,
}

/// Control.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// Path of the unix socket, at most 107 bytes.
    pub socket: String,
    /// Group whose members may use the socket, and so do all that `weir` does, without being root.
    /// It must exist; not that of `region.group`. Empty: root alone.
    pub group: String,
    /// Folder where services and all else that was asked for is kept over restarts, a few kB each
    /// and this appliance's alone. Empty: nothing is kept, and what came through the API is gone
    /// when slowpath ends.
    pub state: String,
    /// Share of a source's objects, percent, that a complete list of it (the services file or
    /// folder, a session) may remove at once where the source has 10 objects or more. A list that
    /// removes more, or all objects or services whatever their number, changes nothing until it is
    /// confirmed: `weir source confirm NAME`, `allow_removal` in a services file or in the commit.
    #[schemars(range(min = 0, max = 100))]
    pub max_removal_percent: u8,
}

/// The API.
#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Api {
    /// `address:port`, one or a list, where the API is served; empty for none. Anything but
    /// loopback needs `tls_cert` and `tls_key`.
    #[serde(deserialize_with = "one_or_many")]
    pub listen: Vec<String>,
    /// File with the certificate and those that lead to its root, in PEM.
    pub tls_cert: String,
    /// File with the certificate's private key, in PEM.
    pub tls_key: String,
    /// File with the token that clients send (`Authorization: Bearer ...`), 16 characters or more,
    /// as from `head -c 24 /dev/urandom | base64`. Read at start.
    pub token_file: String,
}
