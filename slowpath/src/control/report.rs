//! What the live system says about itself: the documents of the control socket.
//!
//! slowpath writes them as JSON, `weir` reads them and draws tables. Times are seconds unless the
//! name says otherwise; counters count since the region was made.

mod parts;
mod store;

use serde::{Deserialize, Serialize};

pub use parts::health;
pub(crate) use parts::listeners;
pub use store::StoreStatus;

/// `GET /status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The appliance's name.
    pub name: String,
    /// slowpath's version.
    pub version: String,
    /// How long this slowpath runs.
    pub uptime_s: u64,
    /// Path of the region file.
    pub region: String,
    /// What tells seeds (`tables.seed`) apart: appliances with the same one choose alike.
    #[serde(default)]
    pub seed_fingerprint: String,
    /// True when a probe is told that traffic may come.
    pub able: bool,
    /// Why not able; empty when able.
    pub reasons: Vec<String>,
    /// Able, and the cloud says healthy, where there is one.
    #[serde(default)]
    pub ready: bool,
    /// Its place at the cloud in a line; empty without a cloud.
    #[serde(default)]
    pub cloud: String,
    /// Sessions with routers in a line, and what is wrong with their policies; empty without.
    #[serde(default)]
    pub bgp: String,
    /// Addresses that should be listened on and are not.
    #[serde(default)]
    pub listeners: Vec<FailingListener>,
    /// Generation last committed.
    pub generation: u32,
    /// Generation that every polling lcore serves.
    pub acknowledged: u32,
    /// The watched configuration file; its path is empty when there is none.
    pub config_file: FileStatus,
    /// The watched services file.
    pub services_file: FileStatus,
    /// Where objects are kept over restarts.
    #[serde(default)]
    pub store: StoreStatus,
    /// Sources whose complete list is held, because it would remove too much.
    #[serde(default)]
    pub held: Vec<HeldSource>,
    /// Poll loops, those that exist.
    pub lcores: Vec<Lcore>,
    /// Next hops in use.
    pub next_hops: NextHopStatus,
    /// Flow paths in use.
    pub flows: Use,
    /// How far frontends have come.
    #[serde(default)]
    pub frontends: Frontends,
    /// How many services the tables hold.
    pub services: usize,
    /// How many backends the tables hold.
    pub backends: usize,
}

/// A source whose complete list is held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldSource {
    /// Its name.
    pub source: String,
    /// Why, and what to do.
    pub message: String,
}

/// An address that should be listened on and is not. It is tried again all the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FailingListener {
    /// Its setting.
    pub key: String,
    /// The address.
    pub address: String,
    /// Why it is not listened on, and what to do.
    pub error: String,
    /// For how many seconds.
    pub failing_for_s: u64,
}

/// How far frontends have come on their way to the plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frontends {
    /// Every lcore serves them as they shall be.
    pub done: usize,
    /// On their way.
    pub pending: usize,
    /// Refused by the plane, and tried again.
    pub errors: usize,
    /// One of the errors, with its frontend; empty without.
    pub error: String,
    /// Sources that have not said yet all that they know.
    pub waited_for: Vec<String>,
}

/// What became of a watched file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileStatus {
    /// Where it is.
    pub path: String,
    /// When its content was last taken, seconds ago; none before the first time.
    pub applied_s_ago: Option<u64>,
    /// Why the file as it is now was refused whole; none when it is in force.
    pub refused: Option<String>,
}

/// One poll loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lcore {
    /// Its number in the region.
    pub id: u32,
    /// Its tick moved within the last look.
    pub polling: bool,
    /// Generation it serves.
    pub acknowledged: u32,
    /// It is longer behind the committed generation than it may be.
    pub late: bool,
    /// Link state by arm.
    pub links: Vec<Link>,
    /// Share of its time with packets to work on, 0 to 1, over the last look.
    pub busy: f64,
}

/// The link of one arm as an lcore sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// `ingress` or `egress`.
    pub arm: String,
    /// Whether it is up.
    pub up: bool,
}

/// Next hops that backends need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NextHopStatus {
    /// How many are needed.
    pub wanted: usize,
    /// How many of these have a MAC.
    pub known: usize,
    /// Why they can't be learned at the moment.
    pub trouble: Option<String>,
}

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// In use.
    pub used: u64,
    /// The most there can be.
    pub max: u64,
}

/// One element of `GET /services`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceReport {
    /// Id in the tables.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// `nat`, `tunnel` or `dsr`.
    pub mode: String,
    /// `geneve`, `vxlan`, `ipip`, `gue`, or empty.
    pub tunnel: String,
    /// `address:port/protocol`, with the prefix length of a network, `*` for any.
    pub frontends: Vec<String>,
    /// Slots of its table; 0 when at most one backend serves.
    pub table_size: u32,
    /// Packets passed, both directions.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows begun.
    pub new_flows: u64,
    /// Flows alive now.
    pub flows: u64,
    /// Packets dropped after the service was found.
    pub drops: u64,
    /// What it counts is counted, in whole or in part, with that of other services in `(others)`.
    #[serde(default)]
    pub in_others: bool,
    /// Its backends.
    pub backends: Vec<BackendReport>,
}

/// A backend of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendReport {
    /// Id in the tables.
    pub id: u32,
    /// Its address.
    pub address: String,
    /// Its port, 0 keeps the frontend's.
    pub port: u16,
    /// `active`, `terminating`, `quarantined` or `maintenance`.
    pub state: String,
    /// The weight asked for.
    pub weight: u32,
    /// Share of the service's slots, 0 to 1.
    pub share: f64,
    /// Packets passed, both directions, whichever service sent them.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows begun with it.
    pub new_flows: u64,
    /// Flows alive now.
    pub flows: u64,
    /// Other services have it as well; packets, bytes and flows are those of all of them.
    pub shared: bool,
    /// What it counts is counted with that of other backends in `(others)`.
    #[serde(default)]
    pub in_others: bool,
    /// Its next hop's MAC, or none while unknown.
    pub mac: Option<String>,
}

/// `GET /flows`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowPage {
    /// The flows of this page.
    pub flows: Vec<FlowReport>,
    /// Where the next page starts (`from=`), or none when this is the last.
    pub next: Option<u32>,
    /// Flow paths in use, of all pages and whatever the filter.
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
    /// Who began it, `address:port`.
    pub client: String,
    /// What it was addressed to, `address:port`.
    pub frontend: String,
    /// Service name, empty for `return`.
    pub service: String,
    /// Backend `address:port`, empty for `return`.
    pub backend: String,
    /// Our own address and port towards the backend (NAT), or empty.
    pub source: String,
    /// Name or number of the gateway tunnel it came by, or empty.
    pub gateway: String,
    /// Gateway node, or empty.
    pub node: String,
    /// TCP state, or empty.
    pub state: String,
    /// Seconds since its last packet.
    pub idle_s: u32,
}

/// One element of `GET /drops`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DropReport {
    /// `ingress` or `egress`.
    pub arm: String,
    /// The reason's name.
    pub reason: String,
    /// Packets dropped for it.
    pub packets: u64,
    /// What it means and what to do.
    pub help: String,
}

/// One line of `GET /trace`: what a stage did with a packet of the followed flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceLine {
    /// The lcore that worked on it.
    pub lcore: u32,
    /// Number of the packet within this trace.
    pub packet: u32,
    /// The stage's name, in the order of the pipeline.
    pub stage: String,
    /// What it found or did.
    pub said: String,
    /// The packet's last stage.
    pub last: bool,
}

/// An answer that is no document: what was wrong and what to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// One sentence.
    pub error: String,
}
