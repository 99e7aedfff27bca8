//! Metrics of services and backends.
//!
//! A service or backend with counters of its own has series of its own: these are the first
//! `region.counted_services` services and `region.counted_backends` backends by their ids in the
//! region, which they keep until they are removed. Services without an id, because none of their
//! frontends is in the region, have series of their backends' states while the sum of both is
//! within the limit. All others are summed under `(others)`.

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
use super::family::{Family, flag};
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
    let (services, counters) = (published.services(region), region.counters());
    // Backends by id. Several services may share one.
    let mut backends: HashMap<u32, String> = HashMap::new();
    for (backend, id) in services.iter().flat_map(|service| &service.backends) {
        let address = || address_port(&backend.endpoint.addr.to_string(), backend.endpoint.port);
        if *id != NONE {
            backends.entry(*id).or_insert_with(address);
        }
    }
    let own = own_series(services, &counters, region.sizes().counted().0);
    let omitted = [
        ("services", service_counts(&own, &counters, family)?),
        ("backends", backend_counts(&backends, &counters, family)?),
        ("service_backends", states(&own, &counters, &backends, family)?),
    ];
    family.gauges(&metric::SERIES_OMITTED, omitted.map(|(kind, n)| ([kind], n as f64)))
}

/// Returns the services, each with whether it has series of its own, for at most `limit` services.
fn own_series<'k>(
    services: &'k [PublishedService],
    counters: &Counters<'_>,
    limit: u32,
) -> Vec<(&'k PublishedService, bool)> {
    let counts = |one: &PublishedService| one.ids.iter().any(|id| counters.counts_service(*id));
    let mut left =
        (limit as usize).saturating_sub(services.iter().filter(|one| counts(one)).count());
    let mut own = Vec::with_capacity(services.len());
    for one in services {
        let is_unnumbered = one.ids.is_empty();
        let has_series = if is_unnumbered { left > 0 } else { counts(one) };
        left -= usize::from(is_unnumbered && has_series);
        own.push((one, has_series));
    }
    own
}

/// Encodes the counters of services, and returns how many services have no series of their own.
fn service_counts(
    own: &[(&PublishedService, bool)],
    counters: &Counters<'_>,
    family: &mut Family<'_, '_>,
) -> Result<usize, fmt::Error> {
    let counted = own.iter().filter(|(service, has_series)| *has_series && !service.ids.is_empty());
    let mut all: Vec<(&str, TrafficCounts)> = counted
        .map(|(one, _)| (one.service.name.as_str(), TrafficCounts::published(counters, one)))
        .collect();
    let others = TrafficCounts::other_services(counters);
    let has_others = own.iter().any(|(service, _)| is_in_others(counters, service)) || others.any();
    all.extend(has_others.then_some((OTHERS, others)));
    traffic(&OF_SERVICES, &all, family)?;
    Ok(own.iter().filter(|(_, has_series)| !has_series).count())
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
    let has_others = own.len() < backends.len() || others.any();
    all.extend(has_others.then_some((OTHERS, others)));
    traffic(&OF_BACKENDS, &all, family)?;
    Ok(backends.len() - own.len())
}

/// Encodes the states of services and of their backends, and returns how many backends of services
/// have no series of their own.
fn states(
    own: &[(&PublishedService, bool)],
    counters: &Counters<'_>,
    names: &HashMap<u32, String>,
    family: &mut Family<'_, '_>,
) -> Result<usize, fmt::Error> {
    let mut total = StateCounts::default();
    let mut others: Option<StateCounts> = None;
    let mut rows: Vec<(&str, StateCounts)> = Vec::with_capacity(own.len());
    let (mut available, mut pairs, mut omitted) = (0, Vec::new(), 0);
    for (one, has_series) in own {
        let mut counts = StateCounts::default();
        for (backend, _) in &one.backends {
            counts[state(backend)] += 1;
        }
        let takes_new = state::backend::new_flow_state(one.backends.iter().map(|(b, _)| &**b));
        available += usize::from(takes_new.is_some());
        add(&mut total, &counts);
        let name = one.service.name.as_str();
        if !has_series {
            add(others.get_or_insert_default(), &counts);
            omitted += one.backends.len();
            continue;
        }
        rows.push((name, counts));
        let counted = one.backends.iter().filter(|(_, id)| counters.counts_backend(*id));
        let up = |backend: &Instance| takes_new == Some(backend.effective());
        let mut ups: Vec<(u32, bool)> = counted.map(|(b, id)| (*id, up(b))).collect();
        omitted += one.backends.len() - ups.len();
        // A service that reaches a backend by TCP and UDP has two instances with one id. The
        // backend is up if one of them is.
        ups.sort_unstable_by_key(|(id, up)| (*id, !up));
        ups.dedup_by_key(|(id, _)| *id);
        let of_service = ups
            .into_iter()
            .filter_map(|(id, up)| Some(([name, names.get(&id)?.as_str()], flag(up))));
        pairs.extend(of_service);
    }
    rows.extend(others.map(|counts| (OTHERS, counts)));
    let without = own.len() - available;
    family.gauges(
        &metric::SERVICES,
        [(["available"], available as f64), (["no_backend"], without as f64)],
    )?;
    let by_state = |counts: StateCounts| STATES.into_iter().zip(counts.map(f64::from));
    family.gauges(&metric::BACKENDS, by_state(total).map(|(state, n)| ([state], n)))?;
    family.gauges(
        &metric::SERVICE_BACKENDS,
        rows.iter().flat_map(|(name, counts)| {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::tables::layout::Sizes;
    use state::address::Endpoint;
    use state::name::{Name, Source};
    use state::service::Service;

    use super::*;
    use crate::metrics::family::{assert_all_sampled, text};

    fn published(name: &str, ids: &[u32], backends: &[(&Instance, u32)]) -> PublishedService {
        let (name, source) = (Name::new(name).unwrap(), Source::new("file"));
        let backends = backends.iter().map(|(backend, id)| (Arc::new((*backend).clone()), *id));
        PublishedService {
            service: Arc::new(Service::new(name, source)),
            frontends: Vec::new(),
            ids: ids.to_vec(),
            backends: backends.collect(),
        }
    }

    fn instance(protocol: u8, unhealthy: bool) -> Instance {
        let endpoint = Endpoint { addr: [10, 0, 0, 1].into(), port: 53, protocol };
        let name = Name::new("default/dns").unwrap();
        let mut instance = Instance::new(endpoint, name, Source::new("file"));
        instance.health.unhealthy = unhealthy;
        instance
    }

    #[test]
    fn a_backend_reached_by_two_protocols_has_one_series() {
        for (tcp_fails, udp_fails, up) in [(false, true, 1), (true, false, 1), (true, true, 0)] {
            let text = assert_all_sampled("weir_service_backend_up", move |family| {
                let region = Region::anonymous(&Sizes::SMALL).unwrap();
                let (tcp, udp) = (instance(6, tcp_fails), instance(17, udp_fails));
                let service = published("default/dns", &[0], &[(&tcp, 3), (&udp, 3), (&tcp, NONE)]);
                let names = HashMap::from_iter([(3, "10.0.0.1:53".to_owned())]);
                let omitted = states(&[(&service, true)], &region.counters(), &names, family)?;
                assert_eq!(omitted, 1, "the backend that is not in the region");
                Ok(())
            });
            let labels = "service=\"default/dns\",backend=\"10.0.0.1:53\"";
            let line = format!("weir_service_backend_up{{{labels}}} {up}");
            assert!(text.contains(&line), "{line} is missing in\n{text}");
        }
    }

    /// Services without an id have no counters. They get series as far as those with counters leave
    /// some of the limit.
    #[test]
    fn services_without_an_id_share_the_limit() {
        let sizes = Sizes { counted_services: 3, ..Sizes::SMALL };
        let region = Region::anonymous(&sizes).unwrap();
        let ids: [&[u32]; 6] = [&[], &[9], &[0], &[], &[1, 12], &[]];
        let services = ids.map(|ids| published("default/web", ids, &[]));
        let own = |limit| {
            let own = own_series(&services, &region.counters(), limit);
            own.into_iter().map(|(_, has_series)| has_series).collect::<Vec<_>>()
        };
        assert_eq!(own(3), [true, false, true, false, true, false]);
        assert_eq!(own(0), [false, false, true, false, true, false]);
        let counts = text(move |family| {
            let own = own_series(&services, &region.counters(), 3);
            assert_eq!(service_counts(&own, &region.counters(), family)?, 3);
            Ok(())
        });
        // Services without an id have counted nothing.
        let counts = counts.unwrap();
        let lines = counts.lines().filter(|line| line.starts_with("weir_service_packets_total{"));
        assert_eq!(lines.count(), 3, "two services, and (others)\n{counts}");
    }
}
