//! Services with their backends.

use maud::{Markup, html};

use super::parts::Head::{Number, Text};
use super::parts::{badge, table};
use super::spark::{peak, spark};
use crate::control::report::BackendReport;
use crate::page::text::{bits, count, per_second, scaled};
use crate::page::view::{BackendRates, SHOWN_BACKENDS, ServiceRow, View};

/// Returns the services that match, those with the most traffic first.
pub(super) fn services(view: &View) -> Markup {
    let (matching, all) = view.service_counts;
    html! {
        p {
            @match (matching, all) {
                (_, 0) => "There is no service.",
                (0, _) => "No service has such a name.",
                _ => {
                    (view.services.len()) " of " (count(matching as u64))
                    @if matching < all { " with such a name, " (count(all as u64)) " in all" }
                    ", those with the most traffic first."
                }
            }
        }
        @for row in &view.services { (service(row)) }
        @if let Some([bytes, packets, new_flows, drops]) = view.others {
            p.note {
                "(others), all services without counters of their own: " (bits(bytes)) ", "
                (per_second(packets, "")) " packets, " (per_second(new_flows, "")) " new flows, "
                (per_second(drops, "")) " drops."
            }
        }
    }
}

/// Returns each of the rates; `None` if they are not known.
fn known<const N: usize>(rates: Option<[f64; N]>) -> [Option<f64>; N] {
    rates.map_or([None; N], |rates| rates.map(Some))
}

fn each_second(rate: f64) -> String {
    per_second(rate, "")
}

/// Returns a rate as text; a dash if it is not known.
fn or_unknown(rate: Option<f64>, text: fn(f64) -> String) -> String {
    rate.map_or_else(|| "–".to_owned(), text)
}

fn service(row: &ServiceRow) -> Markup {
    let report = &row.report;
    let [bytes, packets, new_flows, drops] = known(row.rates);
    let serving = report.backends.iter().filter(|one| one.state == "active").count();
    let is_serving = serving > 0;
    html! {
        article.service {
            div.head {
                h3 { bdi { (report.name) } }
                " "
                span.note {
                    (report.mode)
                    @if !report.tunnel.is_empty() { " in " (report.tunnel) }
                }
                p.frontends {
                    @for frontend in &report.frontends { code { (frontend) } }
                    @if row.more_frontends > 0 { " and " (row.more_frontends) " more" }
                }
            }
            div.curve {
                @if let Some(points) = &row.points { (spark(points, &|value| bits(value))) }
                b { (or_unknown(bytes, bits)) }
                @if let Some(peak) = row.points.as_ref().and_then(peak) {
                    " " span.note { "peak " (bits(peak)) }
                }
            }
            dl {
                div { dt { "Packets" } dd { (or_unknown(packets, each_second)) } }
                div { dt { "New flows" } dd { (or_unknown(new_flows, each_second)) } }
                div { dt { "Flows" } dd { (scaled(report.flows as f64)) } }
                div { dt { "Drops" } dd { (or_unknown(drops, each_second)) } }
                @if report.in_others { div { dt { "Counted in" } dd { "(others)" } } }
            }
            details id={ "service-" (report.name) } {
                summary {
                    (badge(if is_serving { "good" } else { "bad" }, &serving.to_string()))
                    " of " (report.backends.len()) " backends active"
                }
                (backends(row))
            }
        }
    }
}

fn backends(row: &ServiceRow) -> Markup {
    let none = (None, None);
    let shown = row.report.backends.iter().take(SHOWN_BACKENDS);
    let rates = row.backends.iter().chain(std::iter::repeat(&none));
    let rows = html! { @for (report, one) in shown.zip(rates) { (backend(report, one)) } };
    let heads = [
        Text("Backend"),
        Text("State"),
        Number("Traffic"),
        Text("Ten minutes"),
        Number("New flows"),
        Number("Flows"),
        Number("Weight"),
        Number("Share"),
        Text("MAC"),
    ];
    let id = format!("backends-{}", row.report.name);
    html! {
        (table(&id, "Backends", &heads, &rows))
        @if row.report.backends.len() > SHOWN_BACKENDS {
            p.note {
                "and " (row.report.backends.len() - SHOWN_BACKENDS) " more; "
                code { "weir services" } " lists all."
            }
        }
    }
}

fn backend(report: &BackendReport, (rates, points): &BackendRates) -> Markup {
    let [bytes, _, new_flows] = known(*rates);
    html! {
        tr {
            th scope="row" {
                (report.address)
                @if report.port != 0 { " port " (report.port) }
                @if report.shared { " " span.note { "shared" } }
            }
            td { (badge(if report.state == "active" { "good" } else { "plain" }, &report.state)) }
            td.number { (or_unknown(bytes, bits)) }
            td { @if let Some(points) = points { (spark(points, &|value| bits(value))) } }
            td.number { (or_unknown(new_flows, each_second)) }
            td.number { (count(report.flows)) }
            td.number { (report.weight) }
            td.number { (format!("{:.1} %", report.share * 100.0)) }
            td { (report.mac.as_deref().unwrap_or("unresolved")) }
        }
    }
}
