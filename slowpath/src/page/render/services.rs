//! Services with their backends.

use maud::{Markup, html};

use super::parts::Head::{Number, Text};
use super::parts::{badge, table};
use super::spark::{peak, spark};
use crate::control::report::BackendReport;
use crate::page::text::{bits, count, per_second, scaled};
use crate::page::view::{Points, SHOWN_BACKENDS, ServiceRow, View};

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
    }
}

fn service(row: &ServiceRow) -> Markup {
    let report = &row.report;
    let [bytes, packets, new_flows, drops] = row.rates;
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
                p.frontends { @for frontend in &report.frontends { code { (frontend) } } }
            }
            div.curve {
                @if let Some(points) = &row.points { (spark(points, &|value| bits(value))) }
                b { (bits(bytes)) }
                @if let Some(peak) = row.points.as_ref().and_then(peak) {
                    " " span.note { "peak " (bits(peak)) }
                }
            }
            dl {
                div { dt { "Packets" } dd { (per_second(packets, "")) } }
                div { dt { "New flows" } dd { (per_second(new_flows, "")) } }
                div { dt { "Flows" } dd { (scaled(report.flows as f64)) } }
                div { dt { "Drops" } dd { (per_second(drops, "")) } }
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
    let none = ([0.0; 3], None);
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
            p.note { "The first " (SHOWN_BACKENDS) "; " code { "weir services" } " lists all." }
        }
    }
}

fn backend(report: &BackendReport, (rates, points): &([f64; 3], Option<Points>)) -> Markup {
    let [bytes, _, new_flows] = *rates;
    html! {
        tr {
            th scope="row" {
                (report.address)
                @if report.port != 0 { " port " (report.port) }
                @if report.shared { " " span.note { "shared" } }
            }
            td { (badge(if report.state == "active" { "good" } else { "plain" }, &report.state)) }
            td.number { (bits(bytes)) }
            td { @if let Some(points) = points { (spark(points, &|value| bits(value))) } }
            td.number { (per_second(new_flows, "")) }
            td.number { (count(report.flows)) }
            td.number { (report.weight) }
            td.number { (format!("{:.1} %", report.share * 100.0)) }
            td { (report.mac.as_deref().unwrap_or("unresolved")) }
        }
    }
}
