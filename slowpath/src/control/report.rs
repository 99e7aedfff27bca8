//! JSON documents of the control socket: status, services, flows, drops and traces.
//!
//! slowpath serializes them; `weir` parses them and prints tables. Counters count since the region
//! was created.

mod component_health;
mod nics;
mod secrets;
mod store;

use serde::{Deserialize, Serialize};

pub use component_health::health;
pub(crate) use component_health::listeners;
pub(crate) use nics::trouble;
pub use nics::{NicReport, nics};
pub(crate) use secrets::secrets;
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
    /// Path of the region: a file, or with XDP the folder of the kernel maps.
    pub region: String,
    /// Fingerprint of `tables.seed`, the seed of the Maglev hash. Appliances with the same seed and
    /// the same services select the same backends.
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
    /// Secrets of the API over TCP.
    #[serde(default)]
    pub secrets: Vec<SecretStatus>,
    /// The audit log.
    #[serde(default)]
    pub audit: AuditStatus,
    /// Generation committed last.
    pub generation: u32,
    /// Lowest generation that an lcore serves; the committed one if no lcore exists.
    pub acknowledged: u32,
    /// The watched configuration file; its path is empty if there is none.
    pub config_file: FileStatus,
    /// The watched services file.
    pub services_file: FileStatus,
    /// The persistent store of objects.
    #[serde(default)]
    pub store: StoreStatus,
    /// Sources whose complete list is held, because it would remove too much.
    #[serde(default)]
    pub held: Vec<HeldSource>,
    /// Lcores that have joined the region.
    pub lcores: Vec<Lcore>,
    /// NICs of the arms, without their drivers' own counters.
    #[serde(default)]
    pub nics: Vec<NicReport>,
    /// Conditions that an operator should know although the appliance serves.
    #[serde(default)]
    pub findings: Vec<String>,
    /// Next hops of backends.
    pub next_hops: NextHopStatus,
    /// Flows in the flow table.
    pub flows: Use,
    /// Number of frontends by whether the lcores serve them.
    #[serde(default)]
    pub frontends: Frontends,
    /// Number of services in the region.
    pub services: usize,
    /// Number of backends in the region.
    pub backends: usize,
}

/// A source whose complete list is held: not applied until an operator confirms it.
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

/// State of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditStatus {
    /// Entries that could not be written since slowpath started.
    pub lost: u64,
    /// Why the last entry could not be written; `None` if it was.
    pub error: Option<String>,
}

/// A secret whose file is watched. Nothing of its content is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecretStatus {
    /// Configuration key of the file; `api.tls_cert` for a certificate with its key.
    pub key: String,
    /// Path of the file.
    pub path: String,
    /// Why the present content of the file was rejected, and what to do; the previous content stays
    /// in force. `None` if the present content is in force.
    pub error: Option<String>,
    /// What needs attention although the secret is in force: an expired certificate, a file that
    /// every local user can access.
    pub warnings: Vec<String>,
    /// End of the certificate's validity, in UTC (RFC 3339); `None` for other secrets.
    pub valid_until: Option<String>,
    /// Seconds for which the replaced token is still accepted; `None` if there is none.
    pub overlap_left_s: Option<u64>,
}

/// Number of frontends by whether the lcores serve them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frontends {
    /// Frontends that every lcore serves as desired.
    pub done: usize,
    /// Frontends that are being applied.
    pub pending: usize,
    /// Frontends that the region rejected; they are retried.
    pub errors: usize,
    /// One of the errors, with its frontend; empty if there is none.
    pub error: String,
    /// Names of the sources that have not yet sent a complete list.
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

/// Status of one lcore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lcore {
    /// Index of the lcore in the region.
    pub id: u32,
    /// Whether its count of poll iterations advanced within the last 700 ms.
    pub polling: bool,
    /// Generation that it serves.
    pub acknowledged: u32,
    /// Whether it has not served the committed generation for at least 1 s.
    pub late: bool,
    /// Link state by arm.
    pub links: Vec<Link>,
    /// Share of its time in iterations with packets over the last second, 0 to 1; with XDP 0,
    /// because the packet loop is the kernel's and is not measured.
    pub busy: f64,
}

/// The link of one arm as an lcore sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// `ingress` or `egress`.
    pub arm: String,
    /// Whether the link is up.
    pub up: bool,
    /// Share of the lcore in the packets from the arm's NIC over the last 10 s, 0 to 1; `None` if
    /// fewer than 10,000 arrived.
    #[serde(default)]
    pub share: Option<f64>,
}

/// Next hops that backends need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NextHopStatus {
    /// Number of next hops needed.
    pub needed: usize,
    /// Number of these whose MAC address is resolved.
    pub known: usize,
    /// Why next hops can't be resolved at the moment.
    pub error: Option<String>,
}

/// Entries in use and capacity of a table.
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
    /// Id in the region; the first one if the service is several services there.
    pub id: u32,
    /// Name of the service.
    pub name: String,
    /// `nat`, `tunnel` or `dsr`.
    pub mode: String,
    /// Encapsulation towards backends: `geneve`, `vxlan`, `ipip` or `gue`; empty for `nat`.
    pub tunnel: String,
    /// Frontends as `address:port/protocol`: a network with its prefix length, `*` for any port or
    /// protocol.
    pub frontends: Vec<String>,
    /// Number of slots of its largest selection table; 0 if no table is needed, because at most one
    /// backend serves.
    pub table_size: u32,
    /// Packets forwarded, both directions.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Number of flows created.
    pub new_flows: u64,
    /// Number of flows in the flow table.
    pub flows: u64,
    /// Packets dropped after the service was selected.
    pub drops: u64,
    /// Whether the counters have no capacity for all of its ids, so that the rest is counted in the
    /// service `(others)`.
    #[serde(default)]
    pub in_others: bool,
    /// Backends of the service.
    pub backends: Vec<BackendReport>,
}

/// A backend of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendReport {
    /// Id in the region.
    pub id: u32,
    /// Address.
    pub address: String,
    /// Port; 0 keeps that of the frontend.
    pub port: u16,
    /// `active`, `terminating`, `terminating-not-serving`, `quarantined` or `maintenance`.
    pub state: String,
    /// Configured weight.
    pub weight: u32,
    /// Share of the service's slots, 0 to 1.
    pub share: f64,
    /// Packets forwarded, both directions, for all services of the backend.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Number of flows created.
    pub new_flows: u64,
    /// Number of flows in the flow table.
    pub flows: u64,
    /// Whether other services use the backend too. Packets, bytes and flows are then the sum of all
    /// of them.
    pub shared: bool,
    /// Whether the counters have no capacity for its id, so that it is counted in the backend
    /// `(others)`.
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
    /// Flows in the flow table, independent of page and filter.
    pub total: Use,
}

/// One flow of the flow table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Id of its path record.
    pub path: u32,
    /// `nat`, `tunnel`, `dsr` or `return`.
    pub kind: String,
    /// `tcp`, `udp`, `icmp`, `icmpv6` or the number of another IP protocol.
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
    /// Arm of the packets: `ingress` or `egress`.
    pub arm: String,
    /// Name of the drop reason.
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
    /// Sequence number of the traced packet; each lcore has its own sequence.
    pub packet: u32,
    /// Name of the stage.
    pub stage: String,
    /// Result of the stage.
    pub result: String,
    /// Whether this is the packet's last stage.
    pub last: bool,
}

/// Body of an error response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What was wrong, and what to do.
    pub error: String,
}
