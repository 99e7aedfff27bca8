//! Metrics of services and backends.
//!
//! Those with counters of their own have series of their own: the first `region.counted_services`
//! services and `region.counted_backends` backends, by their ids in the region, which they keep
//! until they are removed. All others are summed under `(others)`.

use std::fmt;

use ::tables::counters::Counters;
use ::tables::record::NONE;
use ::tables::region::Region;
use foldhash::{HashMap, HashMapExt};
use state::backend::Instance;
use state::backend::State;
use state::text::address_port;

use super::declared as metric;
use super::declared::Metric;
use super::family::Family;
use super::traffic::{OTHERS, TrafficCounts, is_in_others};
use crate::plane::published::{PublishedService, PublishedTables};

/// States of backends in metrics.
const STATES: [&str; 4] = ["healthy", "unhealthy", "draining", "maintenance"];

/// Number of a service's backends in each of [`STATES`].
type StateCounts = [u32; STATES.len()];

/// Returns the index in [`STATES`] of a backend's state.
fn state(backend: &Instance) -> usize {
    match backend.effective() {
        State::Active => 0,
        State::Quarantined => 1,
        State::Terminating | State::TerminatingNotServing => 2,
        State::Maintenance => 3,
    }
}

/// The metrics of a kind of object, in the order of the fields of [`TrafficCounts`].
struct TrafficMetrics {
    packets: &'static Metric<1>,
    bytes: &'static Metric<1>,
    new_flows: &'static Metric<1>,
    drops: &'static Metric<1>,
    flows: &'static Metric<1>,
}

const OF_SERVICES: TrafficMetrics = TrafficMetrics {
    packets: &metric::SERVICE_PACKETS,
    bytes: &metric::SERVICE_BYTES,
    new_flows: &metric::SERVICE_NEW_FLOWS,
    drops: &metric::SERVICE_DROPS,
    flows: &metric::SERVICE_FLOWS,
};
const OF_BACKENDS: TrafficMetrics = TrafficMetrics {
    packets: &metric::BACKEND_PACKETS,
    bytes: &metric::BACKEND_BYTES,
    new_flows: &metric::BACKEND_NEW_FLOWS,
    drops: &metric::BACKEND_DROPS,
    flows: &metric::BACKEND_FLOWS,
};

/// Encodes the metrics of services and backends as of the last commit.
pub(super) fn encode(
    published: &PublishedTables,
    region: &Region,
    family: &mut Family<'_, '_>,
) -> fmt::Result {
    let (known, counters) = (published.services(region), region.counters());
    // Backends by id. Several services may share one.
    let mut backends: HashMap<u32, String> = HashMap::new();
    for (backend, id) in known.iter().flat_map(|known| &known.backends) {
        let address = || address_port(&backend.endpoint.addr.to_string(), backend.endpoint.port);
        if *id != NONE {
            backends.entry(*id).or_insert_with(address);
        }
    }
    let omitted = [
        ("services", service_counts(known, &counters, family)?),
        ("backends", backend_counts(&backends, &counters, family)?),
        ("service_backends", states(known, &counters, &backends, family)?),
    ];
    family.gauges(&metric::SERIES_OMITTED, omitted.map(|(kind, n)| ([kind], n as f64)))
}

/// Returns whether a service has series of its own: its ids have counters, or it has no id because
/// none of its frontends is in the region.
fn has_series(known: &PublishedService, counters: &Counters<'_>) -> bool {
    known.ids.is_empty() || known.ids.iter().any(|id| counters.counts_service(*id))
}

/// Encodes the counters of services, and returns how many have no series of their own.
fn service_counts(
    known: &[PublishedService],
    counters: &Counters<'_>,
    family: &mut Family<'_, '_>,
) -> Result<usize, fmt::Error> {
    let own = known.iter().filter(|known| !known.ids.is_empty() && has_series(known, counters));
    let mut all: Vec<(&str, TrafficCounts)> = own
        .map(|known| (known.service.name.as_str(), TrafficCounts::known(counters, known)))
        .collect();
    let others = TrafficCounts::other_services(counters);
    let some = known.iter().any(|known| is_in_others(counters, known)) || others.any();
    all.extend(some.then_some((OTHERS, others)));
    traffic(&OF_SERVICES, &all, family)?;
    Ok(known.iter().filter(|known| !has_series(known, counters)).count())
}

/// Encodes the counters of backends, and returns how many have no series of their own.
fn backend_counts(
    backends: &HashMap<u32, String>,
    counters: &Counters<'_>,
    family: &mut Family<'_, '_>,
) -> Result<usize, fmt::Error> {
    let mut own: Vec<(u32, &str)> = backends.iter().map(|(id, name)| (*id, &**name)).collect();
    own.retain(|(id, _)| counters.counts_backend(*id));
    own.sort_unstable();
    let mut all: Vec<(&str, TrafficCounts)> =
        own.iter().map(|(id, name)| (*name, TrafficCounts::backend(counters, *id))).collect();
    let others = TrafficCounts::other_backends(counters);
    let some = own.len() < backends.len() || others.any();
    all.extend(some.then_some((OTHERS, others)));
    traffic(&OF_BACKENDS, &all, family)?;
    Ok(backends.len() - own.len())
}

/// Encodes the states of services and of their backends, and returns how many backends of services
/// have no series of their own.
fn states(
    known: &[PublishedService],
    counters: &Counters<'_>,
    names: &HashMap<u32, String>,
    family: &mut Family<'_, '_>,
) -> Result<usize, fmt::Error> {
    let mut total = StateCounts::default();
    let mut others: Option<StateCounts> = None;
    let mut own: Vec<(&str, StateCounts)> = Vec::with_capacity(known.len());
    let (mut available, mut pairs, mut omitted) = (0, Vec::new(), 0);
    for one in known {
        let mut counts = StateCounts::default();
        for (backend, _) in &one.backends {
            counts[state(backend)] += 1;
        }
        let takes_new = state::backend::new_flow_state(one.backends.iter().map(|(b, _)| &**b));
        available += usize::from(takes_new.is_some());
        add(&mut total, &counts);
        let name = one.service.name.as_str();
        if !has_series(one, counters) {
            add(others.get_or_insert_default(), &counts);
            omitted += one.backends.len();
            continue;
        }
        own.push((name, counts));
        for (backend, id) in &one.backends {
            match names.get(id).filter(|_| counters.counts_backend(*id)) {
                Some(address) => {
                    let up = takes_new == Some(backend.effective());
                    pairs.push(([name, address.as_str()], f64::from(u8::from(up))));
                }
                None => omitted += 1,
            }
        }
    }
    own.extend(others.map(|counts| (OTHERS, counts)));
    let without = known.len() - available;
    family.gauges(
        &metric::SERVICES,
        [(["available"], available as f64), (["no_backend"], without as f64)],
    )?;
    let by_state = |counts: StateCounts| STATES.into_iter().zip(counts.map(f64::from));
    family.gauges(&metric::BACKENDS, by_state(total).map(|(state, n)| ([state], n)))?;
    family.gauges(
        &metric::SERVICE_BACKENDS,
        own.iter().flat_map(|(name, counts)| {
            by_state(*counts).map(move |(state, n)| ([*name, state], n))
        }),
    )?;
    family.gauges(&metric::SERVICE_BACKEND_UP, pairs)?;
    Ok(omitted)
}

fn add(sum: &mut StateCounts, counts: &StateCounts) {
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

/// Encodes the counters of all services, or of all backends.
fn traffic(
    metrics: &TrafficMetrics,
    all: &[(&str, TrafficCounts)],
    family: &mut Family<'_, '_>,
) -> fmt::Result {
    let part = |part: fn(&TrafficCounts) -> u64| {
        all.iter().map(move |(name, counts)| ([*name], part(counts)))
    };
    family.counters(metrics.packets, part(|counts| counts.packets))?;
    family.counters(metrics.bytes, part(|counts| counts.bytes))?;
    family.counters(metrics.new_flows, part(|counts| counts.new_flows))?;
    family.counters(metrics.drops, part(|counts| counts.drops))?;
    family.gauges(metrics.flows, all.iter().map(|(name, counts)| ([*name], counts.flows as f64)))
}
