//! Prometheus metrics, computed at each scrape from the counters in the region and from what the
//! control loop publishes. No state is kept here.
//!
//! The response is OpenMetrics if the client accepts it, as Prometheus does, and the older text
//! format otherwise. Names and help texts of counters come from the lists in `tables`.

use std::fmt;
use std::sync::Arc;

use api::Role;
use api::access::{Access, Call, Calls};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tables::counters::{ArmCounter, Counter, VerdictCounter};
use tables::reason::DropReason;
use tables::record::NONE;

use crate::live::Live;
use crate::metrics::traffic::{OTHERS, TrafficCounts, is_in_others};
use state::sources::removals;
use state::text::ARMS;
use state::text::address_port;

mod audit;
mod bgp;
mod cloud;
mod family;
mod listeners;
mod nics;
mod private_link;
mod secrets;
pub mod traffic;

use family::Family;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the calls of the metrics listener.
pub fn calls() -> Calls<Arc<Live>> {
    let call = Call::new("get", "/metrics", "metrics", Access::Read(Role::Metrics));
    Calls::default().add(call, get(respond))
}

/// Responds to one scrape.
pub async fn respond(State(live): State<Arc<Live>>, headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let open = accepts.is_some_and(|accepts| accepts.contains("application/openmetrics-text"));
    let text = tokio::task::spawn_blocking(move || text(&live)).await;
    match text {
        Ok(Ok(text)) if open => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, PLAIN)], plain(&text)).into_response(),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Returns all metrics in the OpenMetrics text format.
pub fn text(live: &Arc<Live>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(Arc::clone(live))));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Converts OpenMetrics text to the older text format, in which the `HELP` and `TYPE` lines of a
/// counter have the name of its samples (`_total`), and those of an info metric `_info`.
pub fn plain(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut counters = Vec::new();
    let types = open.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    counters.extend(types.filter_map(|line| line.strip_suffix(" counter")));
    for line in open.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(kind), Some(name), Some(rest)) if counters.contains(&name) => {
                text.push_str(&format!("# {kind} {name}_total {rest}\n"));
            }
            (Some("#"), Some("TYPE"), Some(name), Some("info")) => {
                text.push_str(&format!("# TYPE {name}_info gauge\n"));
            }
            (Some("#"), Some("HELP"), Some(name @ ("weir_build" | "weir_seed")), Some(rest)) => {
                text.push_str(&format!("# HELP {name}_info {rest}\n"));
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

struct Scrape(Arc<Live>);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut family = Family(&mut encoder);
        self.traffic(&mut family)?;
        self.drops(&mut family)?;
        nics::encode(self.0.region, self.0.config.arms().count(), &mut family)?;
        self.lcores(&mut family)?;
        self.objects(&mut family)?;
        self.checks(&mut family)?;
        listeners::encode(self.0.listening(), &mut family)?;
        let bgp_keys = self.0.bgp().map(|bgp| &*bgp.key_counts);
        secrets::encode(self.0.listening(), bgp_keys, &mut family)?;
        audit::encode(self.0.audit(), &mut family)?;
        cloud::encode(&self.0.cloud(), self.0.able().able, &mut family)?;
        if let Some(links) = self.0.private_links() {
            private_link::encode(links, &mut family)?;
        }
        if let Some(state) = self.0.bgp() {
            bgp::encode(state, &mut family)?;
        }
        self.appliance(&mut family)
    }
}

impl Scrape {
    fn arms(&self) -> impl Iterator<Item = (&'static str, u8)> + Clone {
        ARMS.into_iter().zip(0u8..).take(self.0.config.arms().count())
    }

    fn traffic(&self, family: &mut Family<'_, '_>) -> fmt::Result {
        use ArmCounter as C;
        let counters = self.0.region.counters();
        let of = |arm, counter| counters.sum(|page| page.arm_count(arm, counter));
        let packets = [
            ("rx", C::RxPackets, C::RxBytes),
            ("tx", C::TxPackets, C::TxBytes),
            ("from_kernel", C::FromKernelPackets, C::FromKernelBytes),
            ("to_kernel", C::ToKernelPackets, C::ToKernelBytes),
            ("originated", C::OriginatedPackets, C::OriginatedBytes),
        ];
        let all = || self.arms().flat_map(|arm| packets.iter().map(move |row| (arm, row)));
        let label = |arm, direction| [("arm", arm), ("direction", direction)];
        family.counters(
            "weir_packets",
            "Packets by arm and direction; rx + from_kernel + originated = tx + to_kernel + \
             weir_drops.",
            all().map(|((arm, n), (name, packets, _))| (label(arm, name), of(n, *packets))),
        )?;
        family.counters(
            "weir_bytes",
            "Bytes by arm and direction, without the frame check sequence.",
            all().map(|((arm, n), (name, _, bytes))| (label(arm, name), of(n, *bytes))),
        )?;
        let lost = |(arm, n)| ([("arm", arm)], of(n, C::KernelLost));
        family.counters("weir_kernel_lost", C::KernelLost.help(), self.arms().map(lost))?;
        family.counters(
            "weir_verdicts",
            "Packets by verdict.",
            VerdictCounter::ALL.iter().map(|verdict| {
                let count = counters.sum(|page| page.verdict_count(*verdict));
                ([("verdict", verdict.name())], count)
            }),
        )
    }

    fn drops(&self, family: &mut Family<'_, '_>) -> fmt::Result {
        let counters = self.0.region.counters();
        let all = self.arms().flat_map(|arm| DropReason::ALL.iter().map(move |r| (arm, *r)));
        family.counters(
            "weir_drops",
            "Packets dropped, by ingress or egress arm and reason (explained by `weir drops`).",
            all.map(|((arm, number), reason)| {
                let count = counters.sum(|page| page.dropped(number, reason));
                ([("arm", arm), ("reason", reason.name())], count)
            }),
        )
    }

    fn lcores(&self, family: &mut Family<'_, '_>) -> fmt::Result {
        let counters = self.0.region.counters();
        for counter in Counter::ALL {
            let name = format!("weir_{}", counter.name());
            let count = counters.sum(|page| page.lcore_count(*counter));
            family.metric(&name, counter.help(), MetricType::Counter, |encoder| {
                encoder.encode_counter::<NoLabelSet, _, u64>(&count, None)
            })?;
        }
        let status = self.0.status();
        let names: Vec<String> = status.lcores.iter().map(|lcore| lcore.id.to_string()).collect();
        let each = || status.lcores.iter().zip(&names).map(|(l, name)| (l, [("lcore", &**name)]));
        family.gauges(
            "weir_lcore_polling",
            "1 if the lcore polls, else 0.",
            each().map(|(lcore, label)| (label, f64::from(u8::from(lcore.polling)))),
        )?;
        family.gauges(
            "weir_lcore_busy_ratio",
            "Share of poll iterations that found packets over the last second, 0 to 1.",
            each().map(|(lcore, label)| (label, lcore.busy)),
        )?;
        let pages: Vec<_> = counters.pages().collect();
        let received = each().flat_map(|(lcore, [(_, name)])| {
            let page = pages.get(lcore.id as usize);
            self.arms().filter_map(move |(arm, number)| {
                let count = page?.arm_count(number, ArmCounter::RxPackets);
                Some(([("lcore", name), ("arm", arm)], count))
            })
        });
        family.counters(
            "weir_lcore_received_packets",
            "Packets that the lcore took from the NIC of the arm; RSS should spread them evenly.",
            received,
        )?;
        family.gauges(
            "weir_lcore_generation_lag",
            "Number of generations by which the lcore is behind the committed one.",
            each().map(|(lcore, label)| {
                (label, f64::from(status.generation.saturating_sub(lcore.acknowledged)))
            }),
        )
    }

    fn objects(&self, family: &mut Family<'_, '_>) -> fmt::Result {
        let (published, counters) = (self.0.published(), self.0.region.counters());
        let known = published.services(self.0.region);
        let mut services: Vec<(&str, TrafficCounts)> = known
            .iter()
            .filter(|known| known.ids.iter().any(|id| counters.counts_service(*id)))
            .map(|known| (known.service.name.as_str(), TrafficCounts::known(&counters, known)))
            .collect();
        let others = TrafficCounts::other_services(&counters);
        let some = known.iter().any(|known| is_in_others(&counters, known)) || others.any();
        services.extend(some.then_some((OTHERS, others)));
        each(family, "service", "Service: ", &services)?;
        let present = known.iter().flat_map(|known| &known.backends).filter(|(_, id)| *id != NONE);
        let mut ids: Vec<(u32, String)> = present
            .map(|(b, id)| (*id, address_port(&b.endpoint.addr.to_string(), b.endpoint.port)))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        let own = ids.iter().filter(|(id, _)| counters.counts_backend(*id));
        let mut backends: Vec<(&str, TrafficCounts)> =
            own.map(|(id, name)| (&**name, TrafficCounts::backend(&counters, *id))).collect();
        let others = TrafficCounts::other_backends(&counters);
        let some = backends.len() < ids.len() || others.any();
        backends.extend(some.then_some((OTHERS, others)));
        each(family, "backend", "Backend, summed over its services: ", &backends)
    }

    fn checks(&self, family: &mut Family<'_, '_>) -> fmt::Result {
        let counts = self.0.checks().counters().read();
        let results = [("good", counts.good), ("bad", counts.bad), ("not_run", counts.not_run)];
        family.counters(
            "weir_probes",
            "Probes of backends, by result; `not_run`: this machine could not run the probe.",
            results.map(|(result, count)| ([("result", result)], count)),
        )?;
        let late = "Health probes that started late by more than a tenth of their interval.";
        family.counters("weir_probes_late", late, [([], counts.late)])?;
        let verdicts = [("healthy", counts.healthy), ("unhealthy", counts.unhealthy)];
        family.counters(
            "weir_health_verdicts",
            "Changes of the health verdict of a backend of a service.",
            verdicts.map(|(verdict, count)| ([("verdict", verdict)], count)),
        )?;
        let states = ["unknown", "healthy", "unhealthy"].into_iter().zip(counts.states);
        family.gauges(
            "weir_health_backends",
            "Probed backends by health state, counted once per service.",
            states.map(|(state, count)| ([("state", state)], count as f64)),
        )?;
        family.gauge("weir_probes_running", "Health probes in progress.", counts.running as f64)
    }

    fn appliance(&self, family: &mut Family<'_, '_>) -> fmt::Result {
        let status = self.0.status();
        let flag = |on: bool| f64::from(u8::from(on));
        family.gauge(
            "weir_able",
            "1 while health probes of the appliance succeed, else 0.",
            flag(status.able),
        )?;
        family.gauge("weir_flows", "Flows in the flow table.", status.flows.used as f64)?;
        let help = "Capacity of the flow table in flows.";
        family.gauge("weir_flows_max", help, status.flows.max as f64)?;
        family.gauge(
            "weir_generation",
            "Last committed generation of the tables.",
            f64::from(status.generation),
        )?;
        family.gauge(
            "weir_services_file_rejected",
            "1 while the services file is rejected and its previous content stays in force.",
            flag(status.services_file.error.is_some()),
        )?;
        let sources = self.0.desired().objects;
        let sources: Vec<(&str, bool)> = removals::sources(&sources).collect();
        family.gauges(
            "weir_source_removal_on_hold",
            "1 while a list of the source waits for confirmation because it removes too much.",
            sources.iter().map(|(source, held)| ([("source", *source)], flag(*held))),
        )?;
        family.gauge(
            "weir_store_damaged",
            "1 while the files in control.state are damaged, so that changes are rejected (`weir \
             status`).",
            flag(status.store.damage.is_some()),
        )?;
        let hops = &status.next_hops;
        family.gauge("weir_next_hops", "Next hops of backends.", hops.needed as f64)?;
        let help = "Next hops of backends with a resolved MAC address.";
        family.gauge("weir_next_hops_known", help, hops.known as f64)?;
        let seed = [("fingerprint", status.seed_fingerprint.as_str())];
        let help = "Fingerprint of `tables.seed`; equal on all appliances that select the same \
                    backends.";
        family.metric("weir_seed", help, MetricType::Info, |encoder| encoder.encode_info(&seed))?;
        let build = [("version", env!("CARGO_PKG_VERSION")), ("name", status.name.as_str())];
        let help = "Version and name of the appliance.";
        family.metric("weir_build", help, MetricType::Info, |encoder| encoder.encode_info(&build))
    }
}

/// Encodes the metrics of all services, or of all backends.
fn each(
    family: &mut Family<'_, '_>,
    what: &'static str,
    of: &str,
    all: &[(&str, TrafficCounts)],
) -> fmt::Result {
    type Part = fn(&TrafficCounts) -> u64;
    let parts: [(&str, &str, Part); 4] = [
        ("packets", "packets forwarded, both directions.", |c| c.packets),
        ("bytes", "bytes forwarded, both directions, as sent.", |c| c.bytes),
        ("new_flows", "new flows.", |c| c.new_flows),
        ("drops", "packets dropped.", |c| c.drops),
    ];
    for (name, help, part) in parts {
        family.counters(
            &format!("weir_{what}_{name}"),
            &format!("{of}{help}"),
            all.iter().map(|(name, counts)| ([(what, *name)], part(counts))),
        )?;
    }
    family.gauges(
        &format!("weir_{what}_flows"),
        &format!("{of}live flows."),
        all.iter().map(|(name, counts)| ([(what, *name)], counts.flows as f64)),
    )
}
