//! The data that the live view requests from slowpath.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use announce::status::{BgpStatus, PeerRow, RouteRow};
use clouds::report::Report;
use health::report::Row as Check;
use serde_json::Value;
use slowpath::control::report::{DropReport, FlowPage, NicReport, ServiceReport, Status};

use crate::request::{escaped, get};

/// Maximum number of flows that a page requests, and of flows and routes that it shows.
pub const MAX_LISTED: usize = 500;

/// The data that every view needs.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Time of the sample.
    pub at: Instant,
    /// Time from `at` until all responses had arrived.
    pub took: Duration,
    /// Response of `GET /status`.
    pub status: Status,
    /// Response of `GET /services`.
    pub services: Vec<ServiceReport>,
    /// Response of `GET /drops`.
    pub drops: Vec<DropReport>,
    /// Response of `GET /nics`.
    pub nics: Vec<NicReport>,
    /// First line of the file of `--caption`; empty without.
    pub caption: String,
}

impl Sample {
    /// Requests a sample from slowpath.
    pub fn fetch(socket: &Path, caption: Option<&Path>) -> Result<Sample, String> {
        let at = Instant::now();
        let text = caption.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let caption = text.lines().next().unwrap_or_default().to_owned();
        let (status, services) = (get(socket, "/status")?, get(socket, "/services")?);
        let (drops, nics) = (get(socket, "/drops")?, get(socket, "/nics")?);
        Ok(Sample { at, took: at.elapsed(), status, services, drops, nics, caption })
    }
}

/// What a page needs in addition to a [`Sample`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Query {
    /// Nothing.
    #[default]
    None,
    /// Results of health checks.
    Checks,
    /// Flows; the text is the filter as query parameters, each after `&`.
    Flows(String),
    /// Results of health checks, and flows as with [`Query::Flows`].
    ChecksAndFlows(String),
    /// BGP sessions.
    Bgp,
    /// One BGP neighbor and the routes advertised to it.
    Neighbor {
        /// AS number of the local router.
        router: u32,
        /// Address and port of the neighbor.
        peer: String,
    },
    /// Registration at the cloud.
    Cloud,
}

/// Response to a [`Query`].
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Results of health checks.
    pub checks: Vec<Check>,
    /// Flows, at most [`MAX_LISTED`].
    pub flows: FlowPage,
    /// BGP as a whole.
    pub bgp: BgpStatus,
    /// BGP sessions by address family.
    pub peers: Vec<PeerRow>,
    /// Details of one neighbor, as in `GET /bgp/peers/detail`.
    pub neighbor: Value,
    /// Routes advertised to the neighbor, at most [`MAX_LISTED`].
    pub routes: Vec<RouteRow>,
    /// Number of routes advertised to the neighbor.
    pub all_routes: usize,
    /// Registration at the cloud.
    pub cloud: Report,
}

impl Query {
    /// Returns the shortest time between two requests. Responses that are expensive for slowpath
    /// are requested less often than counters.
    pub fn min_interval(&self) -> Duration {
        match self {
            Query::None | Query::Bgp | Query::Cloud => Duration::ZERO,
            Query::Checks | Query::Flows(_) | Query::ChecksAndFlows(_) => Duration::from_secs(2),
            Query::Neighbor { .. } => Duration::from_secs(5),
        }
    }

    /// Sends the requests of this query to slowpath, and returns the responses.
    pub fn fetch(&self, socket: &Path) -> Result<Extra, String> {
        let mut extra = Extra::default();
        match self {
            Query::None => {}
            Query::Checks => extra.checks = get(socket, "/checks")?,
            Query::Flows(filter) => extra.flows = flows(socket, filter)?,
            Query::ChecksAndFlows(filter) => {
                extra.checks = get(socket, "/checks")?;
                extra.flows = flows(socket, filter)?;
            }
            Query::Bgp => {
                (extra.bgp, extra.peers) = (get(socket, "/bgp")?, get(socket, "/bgp/peers")?);
            }
            Query::Neighbor { router, peer } => {
                let mut detail: Value = get(socket, "/bgp/peers/detail")?;
                if let Some(peers) = detail["peers"].as_array_mut() {
                    peers.retain(|one| one["local_asn"] == *router && one["peer"] == *peer);
                }
                extra.neighbor = detail;
                let path = format!("/bgp/routes/advertised?router={router}&peer={}", escaped(peer));
                extra.routes = get(socket, &path)?;
                extra.all_routes = extra.routes.len();
                extra.routes.truncate(MAX_LISTED);
            }
            Query::Cloud => extra.cloud = get(socket, "/cloud")?,
        }
        Ok(extra)
    }
}

fn flows(socket: &Path, filter: &str) -> Result<FlowPage, String> {
    get(socket, &format!("/flows?from=0&limit={MAX_LISTED}{filter}"))
}

/// Source of samples.
#[derive(Clone, Debug)]
pub struct Source {
    /// Control socket of slowpath.
    pub socket: PathBuf,
    /// File of `--caption`.
    pub caption: Option<PathBuf>,
    /// Shortest time between two samples.
    pub every: Duration,
}

impl Source {
    /// Returns the time between the starts of two samples. It is at least four times as long as the
    /// responses `took`, so that the live view occupies slowpath for at most a quarter of the time.
    pub fn interval(&self, took: Duration) -> Duration {
        self.every.max(took * 4)
    }
}
