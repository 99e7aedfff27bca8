//! Counters of services, backends and drops, with their names and the state of the backends.

use std::collections::{HashMap, HashSet};

use state::address::TrafficScope;
use state::backend::Instance;
use tables::counters::{Counters, ServiceCounter};
use tables::reason::DropReason;
use tables::record::NONE;
use tables::set::TableSet;

use crate::control::report::{BackendReport, DropReport, ServiceReport};
use crate::live::{Live, PublishedService};
use crate::plane::compile::{frontend_text, tunnel_name};
use state::text::ARMS;

/// Name under which services and backends without counters of their own are reported
/// (`region.counted_services`, `region.counted_backends`). No service can have this name.
pub const OTHERS: &str = "(others)";

/// Counters of a service or backend, or of several together, summed over all lcores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrafficCounts {
    /// Forwarded packets of both directions.
    pub packets: u64,
    /// Bytes of the forwarded packets as sent.
    pub bytes: u64,
    /// Flows that began.
    pub new_flows: u64,
    /// Flows that began and have not ended.
    pub flows: u64,
    /// Dropped packets.
    pub drops: u64,
}

impl TrafficCounts {
    fn read(one: impl Fn(ServiceCounter) -> u64) -> TrafficCounts {
        let new_flows = one(ServiceCounter::NewFlows);
        TrafficCounts {
            packets: one(ServiceCounter::Packets),
            bytes: one(ServiceCounter::Bytes),
            new_flows,
            // Lcores keep counting while their pages are read, so that a flow's end may be read
            // without its beginning.
            flows: new_flows.saturating_sub(one(ServiceCounter::EndedFlows)),
            drops: one(ServiceCounter::Drops),
        }
    }

    /// Returns whether any counter is not zero.
    pub fn any(&self) -> bool {
        *self != TrafficCounts::default()
    }

    /// Returns the counters of all services without counters of their own.
    pub fn other_services(counters: &Counters<'_>) -> TrafficCounts {
        TrafficCounts::read(|counter| counters.sum(|page| page.other_services_count(counter)))
    }

    /// Returns the counters of all backends without counters of their own.
    pub fn other_backends(counters: &Counters<'_>) -> TrafficCounts {
        TrafficCounts::read(|counter| counters.sum(|page| page.other_backends_count(counter)))
    }

    /// Returns the counters of a published service, summed over its services in the region.
    pub fn published(counters: &Counters<'_>, service: &PublishedService) -> TrafficCounts {
        let each = service.ids.iter().map(|id| TrafficCounts::service(counters, *id));
        each.fold(TrafficCounts::default(), |sum, one| TrafficCounts {
            packets: sum.packets + one.packets,
            bytes: sum.bytes + one.bytes,
            new_flows: sum.new_flows + one.new_flows,
            flows: sum.flows + one.flows,
            drops: sum.drops + one.drops,
        })
    }

    /// Returns the counters of a service of the region.
    pub fn service(counters: &Counters<'_>, id: u32) -> TrafficCounts {
        TrafficCounts::read(|counter| counters.sum(|page| page.service_count(id, counter)))
    }

    /// Returns the counters of a backend, summed over the services that share it.
    pub fn backend(counters: &Counters<'_>, id: u32) -> TrafficCounts {
        TrafficCounts::read(|counter| counters.sum(|page| page.backend_count(id, counter)))
    }
}

impl Live {
    /// Returns the rows of `GET /services`.
    pub fn services(&self) -> Vec<ServiceReport> {
        let published = self.published();
        let known: Vec<&PublishedService> = published.services(self.region).iter().collect();
        let mut reports = self.service_reports(&known);
        reports.extend(others(&reports, &self.region.counters()));
        reports
    }

    /// Returns the reports of some of the published services.
    pub fn service_reports(&self, known: &[&PublishedService]) -> Vec<ServiceReport> {
        let set = self.region.tables(self.region.generation());
        let counters = self.region.counters();
        let mut reports: Vec<ServiceReport> =
            known.iter().map(|known| service(known, &set, &counters)).collect();
        let published = self.published();
        let mut users: HashMap<u32, u32> = HashMap::new();
        for one in published.services(self.region) {
            // A service may reach a backend by TCP and UDP.
            let ids: HashSet<u32> = one.backends.iter().map(|(_, id)| *id).collect();
            ids.into_iter().for_each(|id| *users.entry(id).or_default() += 1);
        }
        for backend in reports.iter_mut().flat_map(|service| &mut service.backends) {
            backend.shared = users.get(&backend.id).is_some_and(|users| *users > 1);
        }
        reports
    }

    /// Returns the rows of `GET /drops`: all reasons for all existing arms.
    pub fn drops(&self) -> Vec<DropReport> {
        let counters = self.region.counters();
        let arms = ARMS.iter().zip(0u8..).take(self.config.arms().count());
        let all = arms.flat_map(|(arm, number)| {
            DropReason::ALL.iter().map(move |reason| (arm, number, *reason))
        });
        let report = all.map(|(arm, number, reason)| DropReport {
            arm: (*arm).to_owned(),
            reason: reason.name().to_owned(),
            packets: counters.sum(|page| page.dropped(number, reason)),
            help: reason.help().to_owned(),
        });
        report.collect()
    }
}

/// Returns whether some of the counts of a service are included in `(others)` instead of its own
/// counters.
pub fn is_in_others(counters: &Counters<'_>, service: &PublishedService) -> bool {
    service.ids.iter().any(|id| !counters.counts_service(*id))
}

/// Returns the services and backends without counters of their own as one row. Returns `None` if
/// every service and backend has counters of its own and nothing was counted for others.
fn others(reports: &[ServiceReport], counters: &Counters<'_>) -> Option<ServiceReport> {
    let (services, backends) =
        (TrafficCounts::other_services(counters), TrafficCounts::other_backends(counters));
    let each = reports.iter().flat_map(|service| &service.backends);
    let of_backends = each.clone().any(|backend| backend.in_others) || backends.any();
    let of_services = reports.iter().any(|service| service.in_others) || services.any();
    if !of_services && !of_backends {
        return None;
    }
    let backend = BackendReport {
        id: NONE,
        address: OTHERS.to_owned(),
        packets: backends.packets,
        bytes: backends.bytes,
        new_flows: backends.new_flows,
        flows: backends.flows,
        ..BackendReport::default()
    };
    Some(ServiceReport {
        id: NONE,
        name: OTHERS.to_owned(),
        packets: services.packets,
        bytes: services.bytes,
        new_flows: services.new_flows,
        flows: services.flows,
        drops: services.drops,
        backends: if of_backends { vec![backend] } else { Vec::new() },
        ..ServiceReport::default()
    })
}

fn service(
    published: &PublishedService,
    set: &TableSet<'_>,
    counters: &Counters<'_>,
) -> ServiceReport {
    let counts = TrafficCounts::published(counters, published);
    let mut slots: HashMap<u32, u32> = HashMap::new();
    let (mut all, mut table_size, mut tunnel) = (0, 0, "");
    for record in published.ids.iter().filter_map(|id| set.service(*id)) {
        tunnel = tunnel_name(record.tunnel);
        table_size = table_size.max(record.slots.count);
        let only = Some(record.single).filter(|single| *single != NONE);
        for id in set.slots(&record.slots).chain(only) {
            *slots.entry(id).or_default() += 1;
            all += 1;
        }
    }
    let slot_count = f64::from(all.max(1));
    let backends = published.backends.iter().map(|(instance, id)| {
        let share = f64::from(slots.get(id).copied().unwrap_or(0)) / slot_count;
        backend(*id, instance, share, set, counters)
    });
    let external = published
        .frontends
        .iter()
        .filter(|row| row.address().traffic_scope == TrafficScope::External);
    ServiceReport {
        id: published.ids.first().copied().unwrap_or(NONE),
        name: published.service.name.to_string(),
        mode: mode(&published.service.spec.mode).to_owned(),
        tunnel: tunnel.to_owned(),
        frontends: external.map(|row| frontend_text(row.address())).collect(),
        table_size,
        packets: counts.packets,
        bytes: counts.bytes,
        new_flows: counts.new_flows,
        flows: counts.flows,
        drops: counts.drops,
        in_others: is_in_others(counters, published),
        backends: backends.collect(),
    }
}

fn backend(
    id: u32,
    instance: &Instance,
    share: f64,
    set: &TableSet<'_>,
    counters: &Counters<'_>,
) -> BackendReport {
    let counts = TrafficCounts::backend(counters, id);
    let hop = set.backend(id).and_then(|record| set.next_hop(record.next_hop));
    BackendReport {
        id,
        address: instance.endpoint.addr.to_string(),
        port: instance.endpoint.port,
        state: instance.effective().as_str().to_owned(),
        weight: u32::from(instance.weight),
        share,
        packets: counts.packets,
        bytes: counts.bytes,
        new_flows: counts.new_flows,
        flows: counts.flows,
        shared: false,
        in_others: id != NONE && !counters.counts_backend(id),
        mac: hop.filter(|hop| hop.known).map(|hop| mac(hop.mac)),
    }
}

fn mode(mode: &config::services::Mode) -> &'static str {
    match mode {
        config::services::Mode::Nat => "nat",
        config::services::Mode::Tunnel(_) => "tunnel",
        config::services::Mode::Dsr(_) => "dsr",
    }
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}
