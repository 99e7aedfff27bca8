//! Contents of a plane as typed records and as sorted text, in a format similar to Cilium's
//! `lb/maps-dump`.
//!
//! ```text
//!   SVC: ID=1 ADDR=192.0.2.1:80/TCP SLOT=0 LBALG=maglev AFFTimeout=0 COUNT=1 QCOUNT=0 FLAGS=...
//!   SVC: ID=1 ADDR=192.0.2.1:80/TCP SLOT=1 BEID=1 COUNT=0 QCOUNT=0 FLAGS=LoadBalancer
//!   BE: ID=1 ADDR=10.0.0.1:80/TCP STATE=active
//!   REV: ID=1 ADDR=192.0.2.1:80
//!   MAGLEV: ID=1 INNER=[1(16381)]
//! ```
//! Each plane assigns its own identifiers. The text can have addresses instead of identifiers, so
//! that dumps of different planes can be compared.

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

/// Distribution of a frontend's packets: to backends, or to a proxy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Spread {
    /// Packets go to the backends.
    Backends {
        /// Algorithm that selects the backend of a new flow.
        algorithm: Algorithm,
        /// Session affinity timeout in seconds; 0 for no affinity.
        affinity_s: u32,
    },
    /// All packets go to the proxy at this port.
    Proxy(u16),
}

impl Spread {
    /// Returns the distribution of packets to a port of a service.
    pub fn of(service: &ServiceSpec, service_port: u16) -> Spread {
        match &service.proxy_redirect {
            Some(redirect) if redirect.redirects(service_port) => Spread::Proxy(redirect.port),
            _ => {
                let ServiceSpec { algorithm, affinity_s, .. } = *service;
                Spread::Backends { algorithm, affinity_s }
            }
        }
    }
}

/// Entry of a plane, as in Cilium's load-balancing maps. Services and backends have separate
/// identifier spaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Frontend. Its line has slot number 0.
    Service {
        /// Identifier of the frontend, which Cilium calls service.
        id: u32,
        /// Address of the frontend.
        address: Address,
        /// Distribution of packets.
        spread: Spread,
        /// Number of slots, from 1, that get new flows.
        count: u32,
        /// Number of further slots, whose backends keep established flows only (`QCOUNT`).
        rest: u32,
        /// Flags of the frontend.
        flags: Flags,
    },
    /// Slot of a frontend.
    Slot {
        /// Address of the frontend.
        address: Address,
        /// Slot number, from 1.
        slot: u32,
        /// Identifier of the slot's backend.
        backend: u32,
        /// Whether the backend is quarantined in this service, by its source or its health check.
        quarantined: bool,
    },
    /// Backend, shared by all services that use it.
    Backend {
        /// Identifier of the backend.
        id: u32,
        /// Address, port and protocol.
        endpoint: Endpoint,
        /// State set by the sources: the most active one among all services that use the backend.
        state: State,
    },
    /// Address to which the source of replies is rewritten.
    Reverse {
        /// Identifier of the service.
        id: u32,
        /// Address of the frontend.
        address: Address,
    },
    /// Permission for clients with session affinity to stay with this backend.
    AffinityMatch {
        /// Identifier of the service.
        id: u32,
        /// Identifier of the backend.
        backend: u32,
    },
    /// Range of clients that are allowed to use the service, or denied ([`Flags::DENY`]).
    SourceRange {
        /// Identifier of the service.
        id: u32,
        /// Network of the clients.
        prefix: Prefix,
    },
    /// Maglev lookup table, as the number of its slots for each backend.
    Maglev {
        /// Identifier of the service.
        id: u32,
        /// Backend identifiers, each with its number of lookup table slots (`INNER`).
        inner: Vec<(u32, u32)>,
    },
}

/// Format of the text output, and selection of its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextFormat {
    /// Selects the frontends at this address with all their entries and backends, and the backends
    /// at this address. `None` selects all records.
    pub only: Option<IpAddr>,
    /// Whether identifiers are shown; otherwise lines have addresses instead.
    pub identifiers: bool,
}

impl Default for TextFormat {
    fn default() -> TextFormat {
        TextFormat { only: None, identifiers: true }
    }
}

impl TextFormat {
    /// All records, without identifiers, for comparing planes.
    pub const WITHOUT_IDENTIFIERS: TextFormat = TextFormat { only: None, identifiers: false };
}

/// Returns the records as sorted lines.
pub fn text(records: &[Record], form: &TextFormat) -> Vec<String> {
    let names = Names::of(records, form);
    let mut lines: Vec<String> = records
        .iter()
        .filter(|record| names.selects(record))
        .map(|record| names.line(record))
        .collect();
    lines.sort();
    lines
}

/// Addresses that replace identifiers, and the selection of records.
struct Names {
    services: HashMap<u32, Address>,
    frontends: HashMap<Address, (u32, Flags)>,
    backends: HashMap<u32, Endpoint>,
    identifiers: bool,
    only: Option<AddressSelection>,
}

/// Identifiers of the services and backends that belong to one address.
struct AddressSelection {
    addr: IpAddr,
    services: HashSet<u32>,
    backends: HashSet<u32>,
}

impl Names {
    fn of(records: &[Record], form: &TextFormat) -> Names {
        let mut names = Names {
            services: HashMap::new(),
            frontends: HashMap::new(),
            backends: HashMap::new(),
            identifiers: form.identifiers,
            only: None,
        };
        for record in records {
            match record {
                Record::Service { id, address, flags, .. } => {
                    names.services.insert(*id, *address);
                    names.frontends.insert(*address, (*id, *flags));
                }
                Record::Backend { id, endpoint, .. } => {
                    names.backends.insert(*id, *endpoint);
                }
                _ => {}
            }
        }
        names.only = form.only.map(|addr| AddressSelection::of(records, addr));
        names
    }

    fn selects(&self, record: &Record) -> bool {
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

    /// Returns a frontend's identifier for a line that does not show the frontend's address: its
    /// address if identifiers are hidden.
    fn service(&self, id: u32) -> String {
        named(id, self.services.get(&id).filter(|_| !self.identifiers))
    }

    fn backend(&self, id: u32) -> String {
        named(id, self.backends.get(&id).filter(|_| !self.identifiers))
    }

    /// Returns an identifier for a line that also shows the address, for example `ID=1 `; empty if
    /// identifiers are hidden.
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
                let (id, flags) = self.frontends.get(address).copied().unwrap_or_default();
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

    /// Formats a Maglev table by descending number of slots, then by endpoint.
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

impl AddressSelection {
    fn of(records: &[Record], addr: IpAddr) -> AddressSelection {
        let (services, backends) = (HashSet::new(), HashSet::new());
        let mut only = AddressSelection { addr, services, backends };
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
