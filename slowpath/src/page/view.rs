//! What the page shows, collected from the running appliance.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use announce::status::PeerRow;
use clouds::report::Report;
use state::name::Name;
use state::text::ARMS;
use tables::counters::ArmCounter;
use tables::reason::DropReason;

use super::changes::{ChangeRow, Changes, Writes};
use super::history::{History, MAX_BACKENDS, MAX_SERVICES, POINTS, Sample};
use crate::control::report::{FlowPage, Lcore, ServiceReport, Status};
use crate::live::{Live, PublishedService};
use crate::metrics::traffic::TrafficCounts;

/// Number of services that the page shows at once.
pub const SHOWN_SERVICES: usize = 25;
/// Number of backends of a service that the page shows.
pub const SHOWN_BACKENDS: usize = 50;
/// Number of drop reasons that the page shows.
const SHOWN_DROPS: usize = 40;

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
    /// Drops by reason, the present ones first.
    pub drops: Vec<DropRow>,
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
    /// Bytes, packets, new flows and drops per second.
    pub rates: [f64; 4],
    /// History of the bytes per second.
    pub points: Option<Points>,
    /// Rates of its backends, and history of their bytes per second.
    pub backends: Vec<([f64; 3], Option<Points>)>,
}

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

/// Takes the counters of everything that has a history.
pub fn sample(live: &Live) -> Sample<Name, BackendKey> {
    let counters = live.region.counters();
    let published = live.published();
    let known = published.services(live.region);
    let mut sample = Sample::default();
    let mut new_flows = TrafficCounts::other_services(&counters).new_flows;
    for (at, service) in known.iter().enumerate() {
        let counts = TrafficCounts::published(&counters, service);
        new_flows += counts.new_flows;
        if at < MAX_SERVICES {
            let counts = [counts.bytes, counts.packets, counts.new_flows, counts.drops];
            sample.services.push((service.service.name.clone(), counts));
        }
    }
    let backends = known.iter().flat_map(|service| &service.backends);
    // A backend of several services is read for each of them; the first one counts.
    for (instance, id) in backends.take(MAX_BACKENDS) {
        let counts = TrafficCounts::backend(&counters, *id);
        let key = (instance.endpoint.addr, instance.endpoint.port);
        sample.backends.push((key, [counts.bytes, counts.packets, counts.new_flows]));
    }
    let arms = ARMS.iter().zip(0u8..).take(live.config.arms().count());
    for (_, arm) in arms {
        let of = |counter| counters.sum(|page| page.arm_count(arm, counter));
        sample.totals[0] += of(ArmCounter::RxPackets);
        sample.totals[1] += of(ArmCounter::RxBytes);
        for (at, reason) in DropReason::ALL.iter().enumerate() {
            let packets = counters.sum(|page| page.dropped(arm, *reason));
            sample.totals[3] += packets;
            sample.drops.push(((arm, at), [packets]));
        }
    }
    sample.totals[2] = new_flows;
    sample.flows = live.flows_in_use().used;
    let status = live.shared().status_now();
    sample.busy = status.lcores.iter().map(|lcore| (lcore.id, lcore.busy)).collect();
    sample
}

/// Collects what the page shows. May block.
pub fn collect(
    live: &Live,
    history: &ApplianceHistory,
    (changes, writes): (&Changes, &Writes),
    (user, service_filter): (&str, &str),
) -> View {
    let status = live.status();
    let number = history.number;
    let (services, service_counts) = services(live, history, service_filter);
    let lcores = status
        .lcores
        .iter()
        .map(|lcore| (lcore.clone(), history.busy.get(&lcore.id).map(|ring| ring.points(number))));
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let no_log = || "no audit log is kept, because control.state is empty".to_owned();
    View {
        user: user.to_owned(),
        time: config::rfc3339::format(UNIX_EPOCH + Duration::from_secs(since_1970.as_secs())),
        is_draining: live.region.draining(),
        rates: history.rates,
        totals: history.totals.iter().map(|ring| ring.points(number)).collect(),
        flows: Some(history.flows.points(number)),
        services,
        service_filter: service_filter.to_owned(),
        service_counts,
        drops: drops(live, history),
        lcores: lcores.collect(),
        changes: changes.rows(writes),
        changes_error: match live.audit().files() {
            Some(_) => changes.error.clone(),
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

/// Returns the services with the most traffic among those whose names contain the filter, and the
/// numbers of those that match and of all. The reports of the others, which read whole selection
/// tables, are not made.
fn services(
    live: &Live,
    history: &ApplianceHistory,
    filter: &str,
) -> (Vec<ServiceRow>, (usize, usize)) {
    let published = live.published();
    let all = published.services(live.region);
    let rates = |known: &PublishedService| {
        history.services.get(&known.service.name).map(|(rates, _)| rates).unwrap_or_default()
    };
    let is_match = |known: &&PublishedService| known.service.name.as_str().contains(filter);
    let mut matching: Vec<&PublishedService> = all.iter().filter(is_match).collect();
    let counts = (matching.len(), all.len());
    // The sort is stable: services without traffic stay in the order of their names.
    matching.sort_by(|a, b| rates(b)[0].total_cmp(&rates(a)[0]));
    matching.truncate(SHOWN_SERVICES);
    let rows =
        live.service_reports(&matching).into_iter().zip(&matching).map(|(mut report, known)| {
            let of_service = history.services.get(&known.service.name);
            let keys = known.backends.iter().map(|(one, _)| (one.endpoint.addr, one.endpoint.port));
            let backends = keys.take(SHOWN_BACKENDS).map(|key| {
                let found = history.backends.get(&key);
                let points = found.map(|(_, ring)| ring.points(history.number));
                (found.map(|(rates, _)| rates).unwrap_or_default(), points)
            });
            report.frontends.truncate(8);
            ServiceRow {
                rates: of_service.map(|(rates, _)| rates).unwrap_or_default(),
                points: of_service.map(|(_, ring)| ring.points(history.number)),
                backends: backends.collect(),
                report,
            }
        });
    (rows.collect(), counts)
}

/// Returns the reasons for which packets were dropped: those of the last sample first, then by
/// their count.
fn drops(live: &Live, history: &ApplianceHistory) -> Vec<DropRow> {
    let index: HashMap<&str, usize> =
        DropReason::ALL.iter().enumerate().map(|(at, reason)| (reason.name(), at)).collect();
    let dropped = live.drops().into_iter().filter(|report| report.packets > 0);
    let mut rows: Vec<DropRow> = dropped
        .map(|report| {
            let arm = ARMS.iter().position(|arm| *arm == report.arm).unwrap_or_default();
            let reason = index.get(report.reason.as_str()).copied().unwrap_or_default();
            let found = history.drops.get(&(arm as u8, reason));
            DropRow {
                rate: found.map(|(rates, _)| rates[0]).unwrap_or_default(),
                points: found.map(|(_, ring)| ring.points(history.number)),
                arm: report.arm,
                reason: report.reason,
                help: report.help,
                packets: report.packets,
            }
        })
        .collect();
    rows.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(b.packets.cmp(&a.packets)));
    rows.truncate(SHOWN_DROPS);
    rows
}
