//! What a plane holds, in the words of the map model: typed records, and one sorted text form that
//! people who know Cilium's `lb/maps-dump` can read.
//!
//! ```text
//!   SVC: ID=1 ADDR=192.0.2.1:80/TCP SLOT=0 LBALG=maglev AFFTimeout=0 COUNT=1 QCOUNT=0 FLAGS=...
//!   SVC: ID=1 ADDR=192.0.2.1:80/TCP SLOT=1 BEID=1 COUNT=0 QCOUNT=0 FLAGS=LoadBalancer
//!   BE: ID=1 ADDR=10.0.0.1:80/TCP STATE=active
//!   REV: ID=1 ADDR=192.0.2.1:80
//!   MAGLEV: ID=1 INNER=[1(16381)]
//! ```
//! Each plane numbers as it likes, so identifiers can be hidden: things are named by address then,
//! and dumps of different planes compare equal.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display};
use std::net::IpAddr;

use config::checked::Prefix;

use crate::address::{Address, Endpoint};
use crate::backend::State;
use crate::object::ServiceSpec;
use config::services::Algorithm;

mod flags;

pub use flags::Flags;

#[cfg(test)]
mod tests;

/// How packets of a frontend are spread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Spread {
    /// Over the backends.
    Backends {
        /// By which algorithm.
        algorithm: Algorithm,
        /// Seconds for which a client stays with its backend; 0 for no affinity.
        affinity_s: u32,
    },
    /// All go to the proxy at this port.
    Proxy(u16),
}

impl Spread {
    /// How packets to a service port of a service are spread.
    pub fn of(service: &ServiceSpec, service_port: u16) -> Spread {
        match &service.proxy_redirect {
            Some(redirect) if redirect.takes(service_port) => Spread::Proxy(redirect.port),
            _ => {
                let ServiceSpec { algorithm, affinity_s, .. } = *service;
                Spread::Backends { algorithm, affinity_s }
            }
        }
    }
}

/// One thing that a plane holds. Service and backend identifiers are spaces of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A frontend: slot 0 of its address.
    Service {
        /// Identifier of the service at this address.
        id: u32,
        /// What it answers on.
        address: Address,
        /// How packets are spread.
        spread: Spread,
        /// Slots from 1 that get new flows.
        count: u32,
        /// Slots behind them, which keep their flows.
        rest: u32,
        /// What applies to it.
        flags: Flags,
    },
    /// A slot of a frontend.
    Slot {
        /// The frontend's address.
        address: Address,
        /// From 1.
        slot: u32,
        /// Identifier of its backend.
        backend: u32,
        /// The backend failed its checks for this service.
        quarantined: bool,
    },
    /// A backend; services share it.
    Backend {
        /// Its identifier.
        id: u32,
        /// Where it is.
        endpoint: Endpoint,
        /// What its sources say, the most alive of all services' words.
        state: State,
    },
    /// What the source of an answer is rewritten to.
    Reverse {
        /// Identifier of the service.
        id: u32,
        /// The frontend's address.
        address: Address,
    },
    /// A client may stay with this backend.
    AffinityMatch {
        /// Identifier of the service.
        id: u32,
        /// Identifier of the backend.
        backend: u32,
    },
    /// A range of clients that may use the service, or may not ([`Flags::DENY`]).
    SourceRange {
        /// Identifier of the service.
        id: u32,
        /// The clients.
        prefix: Prefix,
    },
    /// A Maglev table: its slots by backend.
    Maglev {
        /// Identifier of the service.
        id: u32,
        /// Backend identifiers and how many slots each has.
        inner: Vec<(u32, u32)>,
    },
}

/// In which form records are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Only the frontends at this address with all that is theirs, and the backends at it.
    pub only: Option<IpAddr>,
    /// Whether identifiers are shown; otherwise addresses stand for them.
    pub identifiers: bool,
}

impl Default for Form {
    fn default() -> Form {
        Form { only: None, identifiers: true }
    }
}

impl Form {
    /// Everything, without identifiers: what is compared between planes.
    pub const COMPARED: Form = Form { only: None, identifiers: false };
}

/// The records as sorted lines.
pub fn text(records: &[Record], form: &Form) -> Vec<String> {
    let names = Names::of(records, form);
    let mut lines: Vec<String> = records
        .iter()
        .filter(|record| names.takes(record))
        .map(|record| names.line(record))
        .collect();
    lines.sort();
    lines
}

/// What identifiers stand for, and which are asked for.
struct Names {
    services: HashMap<u32, Address>,
    masters: HashMap<Address, (u32, Flags)>,
    backends: HashMap<u32, Endpoint>,
    identifiers: bool,
    only: Option<Only>,
}

/// What belongs to one address.
struct Only {
    addr: IpAddr,
    services: HashSet<u32>,
    backends: HashSet<u32>,
}

impl Names {
    fn of(records: &[Record], form: &Form) -> Names {
        let mut names = Names {
            services: HashMap::new(),
            masters: HashMap::new(),
            backends: HashMap::new(),
            identifiers: form.identifiers,
            only: None,
        };
        for record in records {
            match record {
                Record::Service { id, address, flags, .. } => {
                    names.services.insert(*id, *address);
                    names.masters.insert(*address, (*id, *flags));
                }
                Record::Backend { id, endpoint, .. } => {
                    names.backends.insert(*id, *endpoint);
                }
                _ => {}
            }
        }
        names.only = form.only.map(|addr| Only::of(records, addr));
        names
    }

    fn takes(&self, record: &Record) -> bool {
        let Some(only) = &self.only else { return true };
        match record {
            Record::Service { address, .. } | Record::Slot { address, .. } => only.is_at(address),
            Record::Backend { id, .. } => only.backends.contains(id),
            Record::Reverse { id, .. }
            | Record::AffinityMatch { id, .. }
            | Record::SourceRange { id, .. }
            | Record::Maglev { id, .. } => only.services.contains(id),
        }
    }

    /// A service in a line that has no address of its own.
    fn service(&self, id: u32) -> String {
        named(id, self.services.get(&id).filter(|_| !self.identifiers))
    }

    fn backend(&self, id: u32) -> String {
        named(id, self.backends.get(&id).filter(|_| !self.identifiers))
    }

    /// `ID=1 `, or nothing where an address follows.
    fn id(&self, id: u32) -> String {
        if self.identifiers { format!("ID={id} ") } else { String::new() }
    }

    fn line(&self, record: &Record) -> String {
        match record {
            Record::Service { id, address, spread, count, rest, flags } => format!(
                "SVC: {}ADDR={address} SLOT=0 {} COUNT={count} QCOUNT={rest} FLAGS={flags}",
                self.id(*id),
                spread
            ),
            Record::Slot { address, slot, backend, quarantined } => {
                let (id, flags) = self.masters.get(address).copied().unwrap_or_default();
                format!(
                    "SVC: {}ADDR={address} SLOT={slot} BEID={} COUNT=0 QCOUNT=0 FLAGS={}",
                    self.id(id),
                    self.backend(*backend),
                    flags.of_slot(*quarantined),
                )
            }
            Record::Backend { id, endpoint, state } => {
                format!("BE: {}ADDR={endpoint} STATE={}", self.id(*id), state.as_str())
            }
            Record::Reverse { id, address } => {
                format!("REV: {}ADDR={}", self.id(*id), without_protocol(address))
            }
            Record::AffinityMatch { id, backend } => {
                format!("AFF: ID={} BEID={}", self.service(*id), self.backend(*backend))
            }
            Record::SourceRange { id, prefix } => {
                format!("SRCRANGE: ID={} CIDR={}/{}", self.service(*id), prefix.addr, prefix.len)
            }
            Record::Maglev { id, inner } => {
                format!("MAGLEV: ID={} INNER=[{}]", self.service(*id), self.inner(inner))
            }
        }
    }

    /// By falling count, and by name among equals.
    fn inner(&self, inner: &[(u32, u32)]) -> String {
        let mut sorted = inner.to_vec();
        sorted.sort_by_key(|&(backend, count)| {
            (std::cmp::Reverse(count), self.backends.get(&backend).copied(), backend)
        });
        let parts: Vec<String> = sorted
            .into_iter()
            .map(|(backend, count)| format!("{}({count})", self.backend(backend)))
            .collect();
        parts.join(", ")
    }
}

impl Only {
    fn of(records: &[Record], addr: IpAddr) -> Only {
        let mut only = Only { addr, services: HashSet::new(), backends: HashSet::new() };
        for record in records {
            match record {
                Record::Service { id, address, .. } if only.is_at(address) => {
                    only.services.insert(*id);
                }
                Record::Slot { address, backend, .. } if only.is_at(address) => {
                    only.backends.insert(*backend);
                }
                Record::Backend { id, endpoint, .. } if endpoint.addr == addr => {
                    only.backends.insert(*id);
                }
                _ => {}
            }
        }
        only
    }

    fn is_at(&self, address: &Address) -> bool {
        address.prefix.contains(self.addr)
    }
}

fn named(id: u32, name: Option<&impl Display>) -> String {
    match name {
        Some(name) => name.to_string(),
        None => id.to_string(),
    }
}

fn without_protocol(address: &Address) -> String {
    let text = address.to_string();
    let end = text.rfind(':').and_then(|colon| Some(colon + text.get(colon..)?.find('/')?));
    end.and_then(|end| text.get(..end)).unwrap_or(&text).to_owned()
}

impl Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spread::Proxy(port) => write!(f, "L7Proxy={port}"),
            Spread::Backends { algorithm, affinity_s } => {
                let algorithm = match algorithm {
                    Algorithm::Maglev => "maglev",
                    Algorithm::Random => "random",
                };
                write!(f, "LBALG={algorithm} AFFTimeout={affinity_s}")
            }
        }
    }
}
