//! The cloud's view of the appliance, and BGP.

use announce::status::PeerRow;
use bgp::peer::State;
use clouds::report::Report;
use maud::{Markup, html};

use super::parts::Head::{Number, Text};
use super::parts::{badge, table};
use crate::page::text::{count, duration};
use crate::page::view::View;

/// Maximum number of rows of a table.
const ROWS: usize = 100;

/// Returns the report of the cloud's lifecycle.
pub(super) fn cloud(report: &Report) -> Markup {
    if report.cloud.is_empty() {
        return html! { p { "No cloud is configured." } };
    }
    let facts = [
        ("Phase", &report.phase),
        ("Target", &report.target),
        ("State", &report.state),
        ("Reason", &report.reason),
        ("Instance", &report.instance),
        ("Region", &report.region),
        ("Zone", &report.zone),
        ("Group", &report.group),
    ];
    let peers = html! {
        @for peer in report.peers.iter().take(ROWS) {
            tr {
                th scope="row" { (peer.id) }
                td { @if let Some(address) = peer.address { (address) } }
                td { (peer.state) }
                td { (peer.zone) }
            }
        }
    };
    let target_heads = [Text("Target"), Text("Address"), Text("State"), Text("Zone")];
    html! {
        h3 { (report.cloud) }
        p {
            @if report.ready { (badge("good", "ready")) } @else { (badge("bad", "not ready")) }
            @if let Some(drain) = &report.drain {
                " leaving (" (drain.reason) "): " (count(drain.flows)) " flows left, "
                (duration(drain.at_most_s)) " at most"
            }
        }
        @if !report.error.is_empty() { p.fault { (badge("bad", "error")) " " (report.error) } }
        @for finding in &report.findings {
            p.fault {
                (badge("plain", &finding.name)) " " (finding.text) "; " (finding.remedy)
                " (" (finding.times) (if finding.times == 1 { " time)" } else { " times)" })
            }
        }
        dl {
            @for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
                div { dt { (name) } dd { (value) } }
            }
        }
        @if !report.peers.is_empty() {
            (table("targets-box", "Targets", &target_heads, &peers))
        }
    }
}

/// Returns the BGP neighbors.
pub(super) fn bgp(view: &View) -> Markup {
    let rows = html! { @for peer in view.peers.iter().take(ROWS) { (row(peer)) } };
    let heads = [
        Text("Neighbor"),
        Text("Session"),
        Number("For"),
        Number("Local AS"),
        Number("AS"),
        Text("Family"),
        Number("Received"),
        Number("Advertised"),
    ];
    html! {
        h3 { "BGP" }
        @if view.status.bgp.is_empty() && view.peers.is_empty() {
            p { "No BGP neighbor is configured." }
        } @else {
            p { (view.status.bgp) }
            @if !view.peers.is_empty() { (table("bgp-box", "BGP neighbors", &heads, &rows)) }
        }
        @if view.peers.len() > ROWS { p.note { "The first " (ROWS) " of " (view.peers.len()) "." } }
    }
}

fn row(peer: &PeerRow) -> Markup {
    let class = if peer.state == State::Established { "good" } else { "bad" };
    let family = match peer.family {
        bgp::wire::Family::Ipv4Unicast => "IPv4",
        bgp::wire::Family::Ipv6Unicast => "IPv6",
    };
    html! {
        tr {
            th scope="row" { (peer.peer) }
            td { (badge(class, &peer.state.to_string().to_lowercase())) }
            td.number { @if let Some(uptime) = peer.uptime_s { (duration(uptime as u64)) } }
            td.number { (peer.local_asn) }
            td.number { (peer.peer_asn) }
            td { (family) }
            td.number { (count(peer.received)) }
            td.number { (count(peer.advertised)) }
        }
    }
}
