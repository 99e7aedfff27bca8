//! A frontend: an address, a port and a protocol that a service answers on.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::{Address, is_unspecified};
use crate::name::Name;
use crate::service::Service;

/// What made an address a frontend.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
pub enum Kind {
    /// The service's own address within the cluster.
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// A port on each address of the appliance.
    NodePort,
    /// An address given by a load balancer; what Weir's own services file writes.
    LoadBalancer,
    /// An address that somebody routes here.
    #[serde(rename = "ExternalIPs")]
    ExternalIps,
    /// A port of one machine.
    HostPort,
    /// A literal address that is redirected on this machine.
    LocalRedirect,
}

impl Kind {
    /// Its name in tables and dumps.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::ClusterIp => "ClusterIP",
            Kind::NodePort => "NodePort",
            Kind::LoadBalancer => "LoadBalancer",
            Kind::ExternalIps => "ExternalIPs",
            Kind::HostPort => "HostPort",
            Kind::LocalRedirect => "LocalRedirect",
        }
    }
}

/// How far a frontend has come.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// The plane isn't so yet, or has not acknowledged it.
    #[default]
    Pending,
    /// The plane is so, and every lcore has acknowledged the generation.
    Done,
    /// The plane refused; it is tried again.
    Error(Box<str>),
}

/// [`Progress`] and since when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// How far.
    pub progress: Progress,
    /// Since when.
    pub since: SystemTime,
    /// Why nobody serves although there are backends (a local policy that none matches, say);
    /// none where all is well.
    pub note: Option<&'static str>,
}

/// What is said of a frontend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// What it answers on.
    pub address: Address,
    /// What made it one.
    pub kind: Kind,
    /// Restricts backends to those of a port name; none for all.
    pub port_name: Option<Arc<str>>,
    /// The port as the service defines it; equals the address's unless it is a node port.
    pub service_port: u16,
}

impl Said {
    /// A frontend of all the service's backends.
    pub fn new(address: Address, kind: Kind) -> Said {
        Said { address, kind, port_name: None, service_port: address.port }
    }
}

/// A row of the table. Each write makes a new one with a status of its own, so that what a plane
/// says late of an older row cannot be taken for the newer.
pub struct Frontend {
    /// What its source said.
    pub said: Said,
    /// The service, as it was when this row was written.
    pub service: Arc<Service>,
    /// Another service, whose backends are used instead.
    pub redirect_to: Option<Name>,
    /// Revision of the write.
    pub revision: u64,
    status: Mutex<Status>,
}

impl Frontend {
    /// A new row, pending since `now`.
    pub fn new(
        said: Said,
        service: Arc<Service>,
        redirect_to: Option<Name>,
        revision: u64,
        now: SystemTime,
    ) -> Frontend {
        let status = Status { progress: Progress::Pending, since: now, note: None };
        Frontend { said, service, redirect_to, revision, status: Mutex::new(status) }
    }

    /// What it answers on.
    pub fn address(&self) -> &Address {
        &self.said.address
    }

    /// How far this row has come.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Notes how far this row has come; `since` moves only when that is news.
    pub fn set_status(&self, progress: Progress, note: Option<&'static str>, now: SystemTime) {
        let mut status = self.status.lock();
        if status.progress != progress {
            status.since = now;
        }
        status.progress = progress;
        status.note = note;
    }
}

impl fmt::Debug for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ({:?})", self.said.address, self.service.name, self.status())
    }
}

/// Whether a frontend is for all addresses of the appliance.
pub fn is_wildcard(said: &Said) -> bool {
    matches!(said.kind, Kind::NodePort | Kind::HostPort) && is_unspecified(&said.address)
}
