//! Documents of the control socket: status, services, flows, drops and traces.
//!
//! slowpath serializes them as JSON; `weir` parses them and prints tables. Times are in seconds
//! unless the name states another unit. Counters count since the region was created.

mod parts;
mod store;

use serde::{Deserialize, Serialize};

pub use parts::health;
pub(crate) use parts::listeners;
pub use store::StoreStatus;

/// Response of `GET /status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the appliance.
    pub name: String,
    /// Version of slowpath.
    pub version: String,
    /// Uptime of this slowpath process in seconds.
    pub uptime_s: u64,
    /// Path of the region's file.
    pub region: String,
    /// Fingerprint of `tables.seed`. Appliances with the same seed select the same backends.
    #[serde(default)]
    pub seed_fingerprint: String,
    /// Whether health probes are answered positively.
    pub able: bool,
    /// Reasons for not being able; empty if able.
    pub reasons: Vec<String>,
    /// Whether the appliance is able and, if a cloud is configured, the cloud reports it healthy.
    #[serde(default)]
    pub ready: bool,
    /// Registration at AWS or Azure in one line; empty without a cloud.
    #[serde(default)]
    pub cloud: String,
    /// BGP sessions and policy errors in one line; empty without BGP.
    #[serde(default)]
    pub bgp: String,
    /// Configured addresses that can't be listened on.
    #[serde(default)]
    pub listeners: Vec<FailingListener>,
    /// Generation committed last.
    pub generation: u32,
    /// Generation that every polling lcore serves.
    pub acknowledged: u32,
    /// The watched configuration file; its path is empty if there is none.
    pub config_file: FileStatus,
    /// The watched services file.
    pub services_file: FileStatus,
    /// The persistent store of objects.
    #[serde(default)]
    pub store: StoreStatus,
    /// Sources whose complete list is held because it would remove too much.
    #[serde(default)]
    pub held: Vec<HeldSource>,
    /// Poll loops that exist.
    pub lcores: Vec<Lcore>,
    /// Next hops in use.
    pub next_hops: NextHopStatus,
    /// Flow paths in use.
    pub flows: Use,
    /// Frontends by progress.
    #[serde(default)]
    pub frontends: Frontends,
    /// Number of services in the tables.
    pub services: usize,
    /// Number of backends in the tables.
    pub backends: usize,
}

/// A source whose complete list is held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldSource {
    /// Name of the source.
    pub source: String,
    /// Why the list is held, and what to do.
    pub message: String,
}

/// A configured address that can't be listened on. Listening is retried until it succeeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FailingListener {
    /// Configuration key of the listener.
    pub key: String,
    /// The address.
    pub address: String,
    /// Cause, and what to do.
    pub error: String,
    /// Duration of the failure in seconds.
    pub failing_for_s: u64,
}

/// Number of frontends by their progress to the plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frontends {
    /// Every lcore serves the desired state.
    pub done: usize,
    /// Being applied.
    pub pending: usize,
    /// Rejected by the plane; retried.
    pub errors: usize,
    /// One of the errors, with its frontend; empty if there is none.
    pub error: String,
    /// Sources that have not yet sent a complete list.
    pub waiting_for: Vec<String>,
}

/// Status of a watched file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileStatus {
    /// Path of the file.
    pub path: String,
    /// Seconds since the content was last applied; `None` before the first time.
    pub applied_s_ago: Option<u64>,
    /// Why the current content was rejected as a whole; `None` if it is in force.
    pub error: Option<String>,
}

/// One poll loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lcore {
    /// Number in the region.
    pub id: u32,
    /// Whether its tick advanced within the last 700 ms.
    pub polling: bool,
    /// Generation that it serves.
    pub acknowledged: u32,
    /// Whether it has been behind the committed generation for too long (1 s).
    pub late: bool,
    /// Link state by arm.
    pub links: Vec<Link>,
    /// Share of poll iterations that found packets over the last second, 0 to 1.
    pub busy: f64,
}

/// The link of one arm as an lcore sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// `ingress` or `egress`.
    pub arm: String,
    /// Whether the link is up.
    pub up: bool,
}

/// Next hops that backends need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NextHopStatus {
    /// Number of next hops needed.
    pub needed: usize,
    /// Number of these with a known MAC address.
    pub known: usize,
    /// Why next hops can't be resolved at the moment.
    pub error: Option<String>,
}

/// Used and total capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// Entries in use.
    pub used: u64,
    /// Capacity.
    pub max: u64,
}

/// One element of `GET /services`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceReport {
    /// Id in the tables.
    pub id: u32,
    /// Name of the service.
    pub name: String,
    /// `nat`, `tunnel` or `dsr`.
    pub mode: String,
    /// `geneve`, `vxlan`, `ipip`, `gue`, or empty.
    pub tunnel: String,
    /// `address:port/protocol`, with the prefix length of a network, `*` for any.
    pub frontends: Vec<String>,
    /// Number of slots of its Maglev table; 0 if at most one backend serves.
    pub table_size: u32,
    /// Packets passed, both directions.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Flows begun.
    pub new_flows: u64,
    /// Flows alive now.
    pub flows: u64,
    /// Packets dropped after the service was selected.
    pub drops: u64,
    /// Whether some of its counts are included in the service `(others)` instead.
    #[serde(default)]
    pub in_others: bool,
    /// Backends of the service.
    pub backends: Vec<BackendReport>,
}

/// A backend of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendReport {
    /// Id in the tables.
    pub id: u32,
    /// Address.
    pub address: String,
    /// Port; 0 keeps that of the frontend.
    pub port: u16,
    /// `active`, `terminating`, `quarantined` or `maintenance`.
    pub state: String,
    /// Configured weight.
    pub weight: u32,
    /// Share of the service's slots, 0 to 1.
    pub share: f64,
    /// Packets passed, both directions, for all services of the backend.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Flows begun.
    pub new_flows: u64,
    /// Flows alive now.
    pub flows: u64,
    /// Whether other services use the backend too. Packets, bytes and flows are then the sum of all
    /// of them.
    pub shared: bool,
    /// Whether its counts are included in the backend `(others)` instead.
    #[serde(default)]
    pub in_others: bool,
    /// MAC address of its next hop; `None` while unknown.
    pub mac: Option<String>,
}

/// Response of `GET /flows`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowPage {
    /// Flows of this page.
    pub flows: Vec<FlowReport>,
    /// Value of `from` for the next page; `None` on the last page.
    pub next: Option<u32>,
    /// Flow paths in use, independent of page and filter.
    pub total: Use,
}

/// One live flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Id of its path record.
    pub path: u32,
    /// `nat`, `tunnel`, `dsr` or `return`.
    pub kind: String,
    /// `tcp`, `udp`, `icmp`, `icmpv6` or the number.
    pub protocol: String,
    /// `address:port` of the end that began the flow.
    pub client: String,
    /// `address:port` that the client sent to.
    pub frontend: String,
    /// Name of the service; empty for `return`.
    pub service: String,
    /// `address:port` of the backend; empty for `return`.
    pub backend: String,
    /// Local address and port towards the backend (NAT); empty without NAT.
    pub source: String,
    /// Name or number of the gateway tunnel that the flow came through, or empty.
    pub gateway: String,
    /// Address of the gateway node, or empty.
    pub node: String,
    /// TCP state, or empty.
    pub state: String,
    /// Seconds since the last packet.
    pub idle_s: u32,
}

/// One element of `GET /drops`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DropReport {
    /// `ingress` or `egress`.
    pub arm: String,
    /// Name of the reason.
    pub reason: String,
    /// Packets dropped.
    pub packets: u64,
    /// Meaning of the reason, and what to do.
    pub help: String,
}

/// One line of `GET /trace`: the result of a stage for a traced packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceLine {
    /// The lcore that processed the packet.
    pub lcore: u32,
    /// Number of the packet at its lcore.
    pub packet: u32,
    /// Name of the stage, in pipeline order.
    pub stage: String,
    /// Result of the stage.
    pub result: String,
    /// Whether this is the packet's last stage.
    pub last: bool,
}

/// Error response: what was wrong and what to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The message, one sentence.
    pub error: String,
}
