//! The content of the region as dump records ([`state::dump`]).
//!
//! The records follow the model of Cilium's load-balancing maps, in which each frontend has an
//! identifier. Here it is the id of the frontend's service, plus `region.max_services` for each
//! further frontend of that service in the order of addresses. The identifier of a backend is its
//! id in the region. A backend of several protocols is several backends in that model: one of them
//! gets the id, the others get identifiers above all ids.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::checked::Prefix;
use config::services::Algorithm;
use packet::addr::Addr;
use state::address::{Address, Endpoint, TrafficScope};
use state::backend::State;
use state::dump::{Flags, Record, Spread};
use state::plane::DesiredFrontend;
use tables::note::Member;
use tables::record::{Backend, FrontendKey, NONE, SERVICE_RANDOM};
use tables::region::Region;
use tables::set::TableSet;

use super::selection::{COPY, QUARANTINED, state_of_note};
use crate::plane::compile;

/// Returns the address of the frontend with this lookup key and note; for a copy of a wildcard, the
/// wildcard's address.
pub(crate) fn address(key: &FrontendKey, note: u32) -> Address {
    let mut address = key_address(key);
    if note & COPY != 0 {
        address.prefix.addr = match address.prefix.addr {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
    }
    address
}

/// Returns the address at which packets reach the frontend with this lookup key.
fn key_address(key: &FrontendKey) -> Address {
    Address {
        prefix: prefix(key.addr, key.prefix_len),
        port: key.port,
        protocol: key.proto,
        traffic_scope: TrafficScope::External,
        endpoint: key.scope_key,
    }
}

/// Distribution of packets shown for a service without a record: Maglev without affinity.
const PLAIN: Spread = Spread::Backends { algorithm: Algorithm::Maglev, affinity_s: 0 };

/// Converts a prefix length from its 128-bit form.
fn prefix(addr: Addr, len: u8) -> Prefix {
    let addr = IpAddr::from(addr);
    let shorter = if addr.is_ipv4() { 96 } else { 0 };
    Prefix { addr, len: len.saturating_sub(shorter) }
}

/// A backend in a slot of a frontend.
#[derive(Clone, Copy)]
struct Slot {
    endpoint: Endpoint,
    /// Id in the region; [`NONE`] if the backend is not in the region.
    id: u32,
    state: State,
    quarantined: bool,
}

/// What the records of a frontend show of its service: backends, source ranges, distribution of
/// packets, number of serving backends, and number of table slots by backend id.
#[derive(Clone)]
struct ServiceContent {
    slots: Vec<Slot>,
    ranges: Vec<Prefix>,
    spread: Spread,
    serving: usize,
    table: Vec<(u32, u32)>,
}

impl ServiceContent {
    fn of(set: &TableSet<'_>, service: u32) -> ServiceContent {
        let slots = set.members(service).filter_map(|member| {
            Some(Slot {
                endpoint: endpoint(set.backend(member.backend)?, &member),
                id: member.backend,
                state: state_of_note(member.state),
                quarantined: member.state & QUARANTINED != 0,
            })
        });
        let note = set.service_note(service).copied().unwrap_or_default();
        let (slots, serving) = (slots.collect(), note.serving as usize);
        let ranges = set.source_ranges(service).map(|range| prefix(range.addr, range.len));
        let (ranges, table) = (ranges.collect(), table(set, service, note.table_size));
        let spread = set.service(service).map_or(PLAIN, |service| match service.proxy_port {
            0 => Spread::Backends {
                algorithm: match service.flags & SERVICE_RANDOM {
                    0 => Algorithm::Maglev,
                    _ => Algorithm::Random,
                },
                affinity_s: service.affinity_s,
            },
            port => Spread::Proxy(port),
        });
        ServiceContent { slots, ranges, spread, serving, table }
    }

    /// Returns the content for a frontend that no packet can reach, which has no table.
    fn unplaced(desired: &DesiredFrontend) -> ServiceContent {
        let slots = desired.backends.iter().map(|instance| Slot {
            endpoint: instance.endpoint,
            id: NONE,
            state: instance.state,
            quarantined: instance.effective() == State::Quarantined,
        });
        let (spec, service) = (&desired.frontend.spec, &desired.frontend.service);
        let (ranges, slots) = (compile::ranges(service), slots.collect());
        let ranges = ranges.iter().map(|range| prefix(range.addr, range.len)).collect();
        let spread = Spread::of(&service.spec, spec.service_port);
        ServiceContent { slots, ranges, spread, serving: desired.serving, table: Vec::new() }
    }
}

/// Returns the number of table slots by backend id. A service with a single serving backend has no
/// table in the region; the backend counts as `size` slots.
fn table(set: &TableSet<'_>, service: u32, size: u32) -> Vec<(u32, u32)> {
    let Some(service) = set.service(service) else { return Vec::new() };
    if service.single != NONE {
        return vec![(service.single, size)];
    }
    let mut counts = BTreeMap::new();
    for backend in set.slots(&service.slots) {
        *counts.entry(backend).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

/// A frontend with its identifier, its flags and the content of its service.
struct Row<'c> {
    id: u32,
    address: Address,
    flags: Flags,
    content: &'c ServiceContent,
}

/// Returns the records of the region and of the frontends that no packet can reach. `open_cluster`
/// is whether packets from outside may reach cluster IPs (`external_cluster_ip`).
pub(crate) fn records<'w>(
    region: &Region,
    unplaced: impl Iterator<Item = &'w DesiredFrontend>,
    open_cluster: bool,
) -> Vec<Record> {
    let set = region.tables(region.generation());
    let content: HashMap<u32, ServiceContent> =
        set.services().map(|(id, _)| (id, ServiceContent::of(&set, id))).collect();
    let unplaced: Vec<(Address, Flags, ServiceContent)> = unplaced
        .map(|desired| {
            let (spec, service) = (&desired.frontend.spec, &desired.frontend.service);
            let flags = Flags::of(spec, &service.spec, open_cluster);
            (spec.address, flags, ServiceContent::unplaced(desired))
        })
        .collect();
    let mut rows = rows(&set, &content, region.sizes().services);
    let first = rows.iter().map(|row| row.id.saturating_add(1)).max().unwrap_or(0);
    rows.extend((first..).zip(&unplaced).map(|(id, (address, flags, content))| Row {
        id,
        address: *address,
        flags: *flags,
        content,
    }));
    let slots = rows.iter().flat_map(|row| &row.content.slots);
    let backends = backends(slots, region.sizes().backends);
    let mut records: Vec<Record> = backends
        .iter()
        .map(|(&endpoint, &(id, state))| Record::Backend { id, endpoint, state })
        .collect();
    for row in &rows {
        records.extend(row.records(&backends));
    }
    records
}

/// Returns the backends that failed their health checks, by frontend. Backends that their source
/// declares as quarantined are excluded: the source declares them again after a restart.
pub(super) fn quarantined(set: &TableSet<'_>) -> Vec<(Address, Endpoint)> {
    let failed_of = |service: u32| -> Vec<Endpoint> {
        let failed = |member: &Member| {
            member.state & QUARANTINED != 0 && state_of_note(member.state) != State::Quarantined
        };
        let failed = set.members(service).filter(failed);
        failed.filter_map(|member| Some(endpoint(set.backend(member.backend)?, &member))).collect()
    };
    let failed: HashMap<u32, Vec<Endpoint>> = set
        .services()
        .map(|(id, _)| (id, failed_of(id)))
        .filter(|(_, all)| !all.is_empty())
        .collect();
    let mut found = Vec::new();
    if !failed.is_empty() {
        for (key, service, note) in set.frontend_notes() {
            let endpoints = failed.get(&service).into_iter().flatten();
            found.extend(endpoints.map(|endpoint| (address(key, note), *endpoint)));
        }
    }
    found
}

fn endpoint(backend: &Backend, member: &Member) -> Endpoint {
    Endpoint { addr: backend.addr.into(), port: backend.port, protocol: member.protocol }
}

/// Returns all frontends in the region, for wildcards both the copies and the wildcard. Identifiers
/// of the frontends of one service are `services` apart: the region's capacity for services.
fn rows<'c>(
    set: &TableSet<'_>,
    content: &'c HashMap<u32, ServiceContent>,
    services: u32,
) -> Vec<Row<'c>> {
    let mut found: BTreeMap<(u32, Address), Flags> = BTreeMap::new();
    for (key, service, note) in set.frontend_notes() {
        let flags = Flags(note as u16);
        found.insert((service, key_address(key)), flags);
        if note & COPY != 0 {
            let hidden = Flags(flags.0 & !Flags::ROUTABLE.0);
            found.insert((service, address(key, note)), hidden);
        }
    }
    let mut rows = Vec::with_capacity(found.len());
    let (mut last, mut id) = (NONE, 0_u32);
    for ((service, address), flags) in found {
        let Some(content) = content.get(&service) else { continue };
        id = if service == last { id.wrapping_add(services) } else { service };
        last = service;
        rows.push(Row { id, address, flags, content });
    }
    rows
}

/// Returns identifier and state of each endpoint. The state is the most active one of its slots.
/// Endpoints without an id of their own in the region get identifiers from `capacity` on.
fn backends<'c>(
    slots: impl Iterator<Item = &'c Slot>,
    capacity: u32,
) -> BTreeMap<Endpoint, (u32, State)> {
    let mut found: BTreeMap<Endpoint, (u32, State)> = BTreeMap::new();
    for slot in slots {
        let one = found.entry(slot.endpoint).or_insert((slot.id, slot.state));
        *one = (one.0.min(slot.id), one.1.min(slot.state));
    }
    let mut assigned = HashSet::new();
    let mut above = capacity;
    for (id, _) in found.values_mut() {
        if *id == NONE || !assigned.insert(*id) {
            *id = above;
            above = above.wrapping_add(1);
        }
    }
    found
}

impl Row<'_> {
    fn records(&self, backends: &BTreeMap<Endpoint, (u32, State)>) -> Vec<Record> {
        let Row { id, address, flags, content } = *self;
        let identifier = |endpoint: &Endpoint| backends.get(endpoint).map_or(NONE, |(id, _)| *id);
        let count = content.serving.min(content.slots.len()) as u32;
        let rest = content.slots.len() as u32 - count;
        let spread = content.spread;
        let mut records = vec![
            Record::Service { id, address, spread, count, rest, flags },
            Record::Reverse { id, address },
        ];
        for (slot, backend) in (1..).zip(&content.slots) {
            let Slot { endpoint, quarantined, state, .. } = backend;
            let (backend, quarantined) = (identifier(endpoint), *quarantined);
            records.push(Record::Slot { address, slot, backend, quarantined });
            if flags.has(Flags::AFFINITY) && *state == State::Active && !quarantined {
                records.push(Record::AffinityMatch { id, backend });
            }
        }
        records
            .extend(content.ranges.iter().map(|range| Record::SourceRange { id, prefix: *range }));
        let maglev = matches!(spread, Spread::Backends { algorithm: Algorithm::Maglev, .. });
        if maglev && flags.has(Flags::ROUTABLE) && !content.table.is_empty() {
            let of_id = |id: u32| content.slots.iter().find(|slot| slot.id == id);
            let named = |(id, count): &(u32, u32)| {
                (of_id(*id).map_or(*id, |slot| identifier(&slot.endpoint)), *count)
            };
            let inner = content.table.iter().map(named).collect();
            records.push(Record::Maglev { id, inner });
        }
        records
    }
}
