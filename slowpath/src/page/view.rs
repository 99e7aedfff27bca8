//! What the page shows, collected from the running appliance.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use announce::status::PeerRow;
use clouds::report::Report;
use parking_lot::Mutex;
use state::backend::Instance;
use state::name::Name;
use state::text::ARMS;
use tables::counters::ArmCounter;
use tables::reason::DropReason;
use tables::record::NONE;

use super::changes::ChangeRow;
use super::history::{History, MAX_BACKENDS, POINTS, Ring, Sample};
use crate::control::report::{FlowPage, Lcore, ServiceReport, Status};
use crate::live::{Live, PublishedService};
use crate::metrics::traffic::TrafficCounts;

/// Number of services that the page shows at once.
pub const SHOWN_SERVICES: usize = 25;
/// Number of backends of a service that the page shows.
pub const SHOWN_BACKENDS: usize = 50;
/// Number of drop reasons that the page shows.
const SHOWN_DROPS: usize = 40;
/// Number of frontends of a service that the page shows.
const SHOWN_FRONTENDS: usize = 8;

/// A backend by its address and port.
pub type BackendKey = (IpAddr, u16);
/// The history of an appliance.
pub type ApplianceHistory = History<Name, BackendKey>;
/// Points of a sparkline.
pub type Points = [Option<f32>; POINTS];

/// Everything that the page shows at one time.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Name of the token with which the viewer logged in.
    pub user: String,
    /// Time of the view (RFC 3339), in seconds.
    pub time: String,
    /// The appliance's status.
    pub status: Status,
    /// Whether the appliance drains.
    pub is_draining: bool,
    /// Rates of packets, bytes, new flows and drops.
    pub rates: [f64; 4],
    /// Their history.
    pub totals: Vec<Points>,
    /// History of the flows in the flow table.
    pub flows: Option<Points>,
    /// The services with the most traffic among those that match.
    pub services: Vec<ServiceRow>,
    /// The text that a service's name has to contain.
    pub service_filter: String,
    /// Number of services that match, and of all.
    pub service_counts: (usize, usize),
    /// Bytes, packets, new flows and drops per second of all services without counters of their
    /// own; `None` if nothing was ever counted for them.
    pub others: Option<[f64; 4]>,
    /// Drops by reason, the present ones first.
    pub drops: Vec<DropRow>,
    /// Number of further drop reasons.
    pub more_drops: usize,
    /// The lcores, each with the history of its load.
    pub lcores: Vec<(Lcore, Option<Points>)>,
    /// The latest changes.
    pub changes: Vec<ChangeRow>,
    /// Why there are no changes.
    pub changes_error: Option<String>,
    /// The cloud's report.
    pub cloud: Report,
    /// BGP neighbors, by address family.
    pub peers: Vec<PeerRow>,
}

/// A service with its rates.
#[derive(Clone, Debug, Default)]
pub struct ServiceRow {
    /// The service.
    pub report: ServiceReport,
    /// Number of further frontends.
    pub more_frontends: usize,
    /// Bytes, packets, new flows and drops per second; `None` if they are not known.
    pub rates: Option<[f64; 4]>,
    /// History of the bytes per second.
    pub points: Option<Points>,
    /// Rates of its backends, and history of their bytes per second.
    pub backends: Vec<BackendRates>,
}

/// Bytes, packets and new flows per second of a backend, if they are known, and the history of the
/// bytes.
pub type BackendRates = (Option<[f64; 3]>, Option<Points>);

/// Drops by a reason on an arm.
#[derive(Clone, Debug, Default)]
pub struct DropRow {
    /// `ingress` or `egress`.
    pub arm: String,
    /// Name of the reason.
    pub reason: String,
    /// Meaning, and what to do.
    pub help: String,
    /// Packets dropped since the region was created.
    pub packets: u64,
    /// Drops per second.
    pub rate: f64,
    /// Their history.
    pub points: Option<Points>,
}

/// A search in the flow table.
#[derive(Clone, Debug, Default)]
pub struct FlowSearch {
    /// The fields of the form as sent: client, frontend, backend, service, protocol.
    pub fields: [String; 5],
    /// Flows that were found, or why the search is not valid.
    pub found: Option<Result<FlowPage, String>>,
}

fn key(instance: &Instance) -> BackendKey {
    (instance.endpoint.addr, instance.endpoint.port)
}

/// Takes the counters of everything that has a history.
pub fn sample(live: &Live) -> Sample<Name, BackendKey> {
    let counters = live.region.counters();
    let published = live.published();
    let known = published.services(live.region);
    let four =
        |counts: TrafficCounts| [counts.bytes, counts.packets, counts.new_flows, counts.drops];
    let mut sample =
        Sample { others: four(TrafficCounts::other_services(&counters)), ..Sample::default() };
    for service in known {
        // The ids are in ascending order.
        let of_id = |id: &u32| (*id, four(TrafficCounts::service(&counters, *id)));
        let counts = service.ids.iter().map(of_id).collect();
        sample.services.push((service.service.name.clone(), counts));
    }
    let mut keys = HashSet::new();
    let backends = known.iter().flat_map(|service| &service.backends);
    // Services may share a backend.
    let distinct = backends.filter(|(instance, _)| keys.insert(key(instance)));
    for (instance, id) in distinct.take(MAX_BACKENDS) {
        let ids = Some(*id).filter(|id| *id != NONE);
        let counts = ids.map(|id| {
            let [bytes, packets, new_flows, _] = four(TrafficCounts::backend(&counters, id));
            (id, [bytes, packets, new_flows])
        });
        sample.backends.push((key(instance), counts.into_iter().collect()));
    }
    let arms = ARMS.iter().zip(0u8..).take(live.config.arms().count());
    for (_, arm) in arms {
        let of = |counter| counters.sum(|page| page.arm_count(arm, counter));
        sample.totals[0] += of(ArmCounter::RxPackets);
        sample.totals[1] += of(ArmCounter::RxBytes);
        for (at, reason) in DropReason::ALL.iter().enumerate() {
            let packets = counters.sum(|page| page.dropped(arm, *reason));
            sample.totals[2] += packets;
            sample.drops.push(((arm, at), [packets]));
        }
    }
    sample.flows = live.flows_in_use().used;
    let status = live.shared().status_now();
    sample.busy = status.lcores.iter().map(|lcore| (lcore.id, lcore.busy)).collect();
    sample
}

/// Collects what the page shows. May block. The history is locked only while it is read.
pub fn collect(
    live: &Live,
    history: &Mutex<ApplianceHistory>,
    (changes, changes_error): (Vec<ChangeRow>, Option<String>),
    (user, service_filter): (&str, &str),
) -> View {
    let status = live.status();
    let published = live.published();
    let all = published.services(live.region);
    let is_match = |known: &&PublishedService| known.service.name.as_str().contains(service_filter);
    let matching: Vec<&PublishedService> = all.iter().filter(is_match).collect();
    let service_counts = (matching.len(), all.len());
    let (mut drops, others) = (drops(live), TrafficCounts::other_services(&live.region.counters()));
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let no_log = || "no audit log is kept, because control.state is empty".to_owned();

    let history = history.lock();
    let number = history.number;
    let lcores = status
        .lcores
        .iter()
        .map(|lcore| (lcore.clone(), history.busy.get(&lcore.id).map(|ring| ring.points(number))))
        .collect();
    let shown = busiest(matching, |known| history.services.rates(&known.service.name));
    let services: Vec<ServiceRow> = shown.iter().map(|known| service(known, &history)).collect();
    for (key, row) in &mut drops {
        row.rate = history.drops.rates(&*key).map(|[rate]| rate).unwrap_or_default();
        row.points = history.drops.ring(&*key).map(|ring| ring.points(number));
    }
    let (rates, rates_of_others) = (history.rates, history.others);
    let totals = history.totals.iter().map(|ring| ring.points(number)).collect();
    let flows = Some(history.flows.points(number));
    drop(history);

    let mut drops: Vec<DropRow> = drops.into_iter().map(|(_, row)| row).collect();
    // The reasons of the last sample first, then by their count.
    drops.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(b.packets.cmp(&a.packets)));
    let more_drops = drops.len().saturating_sub(SHOWN_DROPS);
    drops.truncate(SHOWN_DROPS);
    View {
        user: user.to_owned(),
        time: config::rfc3339::format(UNIX_EPOCH + Duration::from_secs(since_1970.as_secs())),
        is_draining: live.region.draining(),
        rates,
        totals,
        flows,
        services: with_reports(live, &shown, services),
        service_filter: service_filter.to_owned(),
        service_counts,
        others: others.any().then_some(rates_of_others),
        drops,
        more_drops,
        lcores,
        changes,
        changes_error: match live.audit().files() {
            Some(_) => changes_error,
            None => Some(no_log()),
        },
        cloud: live.cloud(),
        peers: live
            .bgp()
            .map(|bgp| bgp.announcer.lock().peer_rows(Instant::now()))
            .unwrap_or_default(),
        status,
    }
}

/// Returns the services with the most bytes per second, at most [`SHOWN_SERVICES`]. Those without
/// traffic, or without known rates, stay in their order, after the others.
fn busiest<T>(all: Vec<T>, rates: impl Fn(&T) -> Option<[f64; 4]>) -> Vec<T> {
    let with_rate = |one: T| (rates(&one).map_or(0.0, |[bytes, ..]| bytes), one);
    let mut ranked: Vec<(f64, T)> = all.into_iter().map(with_rate).collect();
    ranked.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    ranked.truncate(SHOWN_SERVICES);
    ranked.into_iter().map(|(_, one)| one).collect()
}

/// Returns the row of a service, without its report.
fn service(known: &PublishedService, history: &ApplianceHistory) -> ServiceRow {
    let points = |ring: &Ring| ring.points(history.number);
    let backends = known.backends.iter().take(SHOWN_BACKENDS).map(|(instance, _)| {
        let key = key(instance);
        (history.backends.rates(&key), history.backends.ring(&key).map(points))
    });
    let name = &known.service.name;
    ServiceRow {
        rates: history.services.rates(name),
        points: history.services.ring(name).map(points),
        backends: backends.collect(),
        ..ServiceRow::default()
    }
}

/// Adds the reports of the services to their rows. The reports of services that are not shown,
/// which read whole selection tables, are not made.
fn with_reports(
    live: &Live,
    shown: &[&PublishedService],
    mut rows: Vec<ServiceRow>,
) -> Vec<ServiceRow> {
    for (row, mut report) in rows.iter_mut().zip(live.service_reports(shown)) {
        row.more_frontends = report.frontends.len().saturating_sub(SHOWN_FRONTENDS);
        report.frontends.truncate(SHOWN_FRONTENDS);
        // What has no counters of its own has no rates either.
        if report.in_others {
            (row.rates, row.points) = (None, None);
        }
        for (rates, backend) in row.backends.iter_mut().zip(&report.backends) {
            if backend.in_others {
                *rates = (None, None);
            }
        }
        row.report = report;
    }
    rows
}

/// Returns the reasons for which packets were dropped, without rates, each with the key of its
/// history.
fn drops(live: &Live) -> Vec<((u8, usize), DropRow)> {
    let index: HashMap<&str, usize> =
        DropReason::ALL.iter().enumerate().map(|(at, reason)| (reason.name(), at)).collect();
    let dropped = live.drops().into_iter().filter(|report| report.packets > 0);
    let rows = dropped.map(|report| {
        let arm = ARMS.iter().position(|arm| *arm == report.arm).unwrap_or_default();
        let reason = index.get(report.reason.as_str()).copied().unwrap_or_default();
        let row = DropRow {
            arm: report.arm,
            reason: report.reason,
            help: report.help,
            packets: report.packets,
            ..DropRow::default()
        };
        ((arm as u8, reason), row)
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_services_are_shown_whatever_their_names() {
        let mut history = History::<u32, BackendKey>::default();
        let (all, start) = (10_000_u32, Instant::now());
        for number in 0..2_u32 {
            let bytes = |service: u32| u64::from(number * service);
            let counts = |service: u32| vec![(service, [bytes(service), 0, 0, 0])];
            let services = (0..all).map(|service| (service, counts(service))).collect();
            let sample = Sample { services, ..Sample::default() };
            history.add(sample, start + Duration::from_secs(2 * u64::from(number)));
        }
        let shown =
            busiest((0..all + 1).collect(), |service: &u32| history.services.rates(service));
        let expected: Vec<u32> = (0..all).rev().take(SHOWN_SERVICES).collect();
        assert_eq!(shown, expected);
        let none = busiest((0..all).collect(), |_| None);
        assert_eq!(none, (0..SHOWN_SERVICES as u32).collect::<Vec<_>>(), "the order of names");
    }
}
