//! What the region holds, in the words of the map model.
//!
//! A frontend's identifier is its service's, plus `region.max_services` for each further frontend
//! of the same service, by address: there each frontend has one of its own. A backend's is its id in
//! the region; where it serves several protocols, which the map model tells apart, the others lie
//! above all ids in the same way.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::checked::Prefix;
use state::address::{Address, Endpoint, Reach};
use state::backend::State;
use state::dump::{Flags, Record, Spread};
use state::plane::Wanted;
use state::service::Algorithm;
use tables::record::{FrontendKey, NONE};
use tables::set::TableSet;

use super::RegionPlane;
use super::choice::{COPY, QUARANTINED, noted};

/// What the frontend with this key and note was told as: a copy of a wildcard as the wildcard.
pub(super) fn address(key: &FrontendKey, note: u32) -> Address {
    let mut address = place(key);
    if note & COPY != 0 {
        address.prefix.addr = match address.prefix.addr {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
    }
    address
}

/// Where packets find it.
fn place(key: &FrontendKey) -> Address {
    let addr = IpAddr::from(key.addr);
    let shorter = if addr.is_ipv4() { 96 } else { 0 };
    Address {
        prefix: Prefix { addr, len: key.prefix_len.saturating_sub(shorter) },
        port: key.port,
        protocol: key.proto,
        reach: Reach::External,
        endpoint: key.scope_key,
    }
}

/// A backend of a frontend.
#[derive(Clone, Copy)]
struct Slot {
    endpoint: Endpoint,
    /// Its id in the region, [`NONE`] where it isn't.
    id: u32,
    state: State,
    quarantined: bool,
}

/// The backends of a service, and its table by region id.
#[derive(Clone, Default)]
struct Chosen {
    slots: Vec<Slot>,
    serving: usize,
    table: Vec<(u32, u32)>,
}

impl Chosen {
    fn of(set: &TableSet<'_>, service: u32) -> Chosen {
        let slots = set.members(service).filter_map(|member| {
            let backend = set.backend(member.backend)?;
            let (addr, port) = (IpAddr::from(backend.addr), backend.port);
            Some(Slot {
                endpoint: Endpoint { addr, port, protocol: member.protocol },
                id: member.backend,
                state: noted(member.state),
                quarantined: member.state & QUARANTINED != 0,
            })
        });
        let note = set.service_note(service).copied().unwrap_or_default();
        let (slots, serving) = (slots.collect(), note.serving as usize);
        Chosen { slots, serving, table: table(set, service, note.table_size) }
    }

    /// One that no packet meets has no table.
    fn unmet(wanted: &Wanted) -> Chosen {
        let slots = wanted.backends.iter().map(|instance| Slot {
            endpoint: instance.endpoint,
            id: NONE,
            state: instance.state,
            quarantined: instance.effective() == State::Quarantined,
        });
        Chosen { slots: slots.collect(), serving: wanted.serving, table: Vec::new() }
    }
}

/// Slots by backend. A single backend has no table in the region, and would have all of it.
fn table(set: &TableSet<'_>, service: u32, size: u32) -> Vec<(u32, u32)> {
    let Some(service) = set.service(service) else { return Vec::new() };
    if service.single != NONE {
        return vec![(service.single, size)];
    }
    let mut counts = BTreeMap::new();
    for backend in set.slots(&service.slots[0]) {
        *counts.entry(backend).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

/// A frontend with its identifier, its flags, and which choice is its.
struct Row<'c> {
    id: u32,
    address: Address,
    flags: Flags,
    chosen: &'c Chosen,
}

impl RegionPlane<'_> {
    pub(super) fn records(&self) -> Vec<Record> {
        let set = self.writer.committed();
        let chosen: HashMap<u32, Chosen> =
            set.services().map(|(id, _)| (id, Chosen::of(&set, id))).collect();
        let unmet: Vec<(Address, Flags, Chosen)> = self
            .unmet
            .iter()
            .map(|(address, wanted)| {
                let (said, service) = (&wanted.frontend.said, &wanted.frontend.service);
                let flags = Flags::of(said, service, self.appliance.external_cluster_ip);
                (*address, flags, Chosen::unmet(wanted))
            })
            .collect();
        let mut rows = self.rows(&set, &chosen);
        let first = rows.iter().map(|row| row.id.saturating_add(1)).max().unwrap_or(0);
        rows.extend((first..).zip(&unmet).map(|(id, (address, flags, chosen))| Row {
            id,
            address: *address,
            flags: *flags,
            chosen,
        }));
        let backends = self.backends(rows.iter().flat_map(|row| &row.chosen.slots));
        let mut records: Vec<Record> = backends
            .iter()
            .map(|(endpoint, (id, state))| Record::Backend {
                id: *id,
                endpoint: *endpoint,
                state: *state,
            })
            .collect();
        for row in &rows {
            records.extend(row.records(&backends));
        }
        records
    }

    /// All frontends that lie in the region; wildcards by their copies.
    fn rows<'c>(&self, set: &TableSet<'_>, chosen: &'c HashMap<u32, Chosen>) -> Vec<Row<'c>> {
        let mut found: BTreeMap<(u32, Address), Flags> = BTreeMap::new();
        for (key, service, note) in set.frontend_notes() {
            let flags = Flags(note as u16);
            found.insert((service, place(key)), flags);
            if note & COPY != 0 {
                let hidden = Flags(flags.0 & !Flags::ROUTABLE.0);
                found.insert((service, address(key, note)), hidden);
            }
        }
        let mut rows = Vec::with_capacity(found.len());
        let (mut last, mut id) = (NONE, 0_u32);
        for ((service, address), flags) in found {
            let Some(chosen) = chosen.get(&service) else { continue };
            id = if service == last {
                id.wrapping_add(self.region.sizes().services)
            } else {
                service
            };
            last = service;
            rows.push(Row { id, address, flags, chosen });
        }
        rows
    }

    /// Identifier and state of each endpoint: the most alive of what is said of it.
    fn backends<'c>(
        &self,
        slots: impl Iterator<Item = &'c Slot>,
    ) -> BTreeMap<Endpoint, (u32, State)> {
        let mut known: BTreeMap<Endpoint, (u32, State)> = BTreeMap::new();
        for slot in slots {
            let one = known.entry(slot.endpoint).or_insert((slot.id, slot.state));
            *one = (one.0.min(slot.id), one.1.min(slot.state));
        }
        let room = self.region.sizes().backends;
        let mut given = std::collections::HashSet::new();
        let mut above = room;
        for (id, _) in known.values_mut() {
            if *id == NONE || !given.insert(*id) {
                *id = above;
                above = above.wrapping_add(1);
            }
        }
        known
    }
}

impl Row<'_> {
    fn records(&self, backends: &BTreeMap<Endpoint, (u32, State)>) -> Vec<Record> {
        let Row { id, address, flags, chosen } = *self;
        let number = |endpoint: &Endpoint| backends.get(endpoint).map_or(NONE, |(id, _)| *id);
        let count = chosen.serving.min(chosen.slots.len()) as u32;
        let rest = chosen.slots.len() as u32 - count;
        let spread = Spread::Backends { algorithm: Algorithm::Maglev, affinity_s: 0 };
        let mut records = vec![
            Record::Service { id, address, spread, count, rest, flags },
            Record::Reverse { id, address },
        ];
        for (slot, backend) in (1..).zip(&chosen.slots) {
            let Slot { endpoint, quarantined, .. } = backend;
            let (backend, quarantined) = (number(endpoint), *quarantined);
            records.push(Record::Slot { address, slot, backend, quarantined });
        }
        if flags.has(Flags::ROUTABLE) && !chosen.table.is_empty() {
            let of_id = |id: u32| chosen.slots.iter().find(|slot| slot.id == id);
            let named = |(id, count): &(u32, u32)| {
                (of_id(*id).map_or(*id, |slot| number(&slot.endpoint)), *count)
            };
            let inner = chosen.table.iter().map(named).collect();
            records.push(Record::Maglev { id, inner });
        }
        records
    }
}
