//! The page as HTML. All texts are escaped by the templates; `text::visible` then treats the page
//! as a whole.

mod network;
mod parts;
mod services;
mod spark;

use maud::{DOCTYPE, Markup, html};

use super::changes::{ChangeRow, InForce};
use super::text::{count, duration, milliseconds, per_second, scaled, visible};
use super::view::{FlowSearch, Points, View};
use crate::control::report::{FlowPage, health};
use network::{bgp, cloud};
use parts::Head::{Number, Text};
use parts::{badge, table};
use services::services;
use spark::{peak, spark};

/// Style sheet, below `/page.css`.
pub const STYLE: &str = include_str!("page.css");
/// Script, below `/page.js`.
pub const SCRIPT: &str = include_str!("page.js");

/// The icon is part of the page, so that browsers do not ask for one.
const ICON: &str = "data:image/svg+xml,\
    %3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
    %3Cpath d='M1 3h14v3H1zm2 5h10v2H3zm3 4h4v2H6z' fill='%231f6feb'/%3E%3C/svg%3E";

/// Sections with their titles, for the navigation.
const SECTIONS: [(&str, &str); 8] = [
    ("health", "Health"),
    ("traffic", "Traffic"),
    ("services", "Services"),
    ("drops", "Drops"),
    ("lcores", "Lcores"),
    ("flows", "Flows"),
    ("changes", "Changes"),
    ("network", "Cloud and BGP"),
];

fn document(title: &str, script: bool, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href=(ICON);
                link rel="stylesheet" href="/page.css";
                @if script { script src="/page.js" defer {} }
            }
            body { (body) }
        }
    };
    visible(&page.into_string())
}

/// Returns the login form, with the reason why the login before failed.
pub fn login(failure: Option<&str>) -> String {
    let body = html! {
        main.login {
            h1 { "Weir" }
            form method="post" action="/login" autocomplete="off" {
                @if let Some(failure) = failure { p.failure role="alert" { (failure) } }
                label for="token" { "API token with the role read or higher" }
                input #token type="password" name="token" required autofocus
                    autocomplete="off" spellcheck="false" maxlength="1024";
                button { "Log in" }
                p.note {
                    "The page only reads. " code { "weir token create NAME --role read" }
                    " makes a token."
                }
            }
        }
    };
    document("Log in to Weir", false, &body)
}

/// Returns the page.
pub fn page(view: &View) -> String {
    let title = format!("{} – Weir", view.status.name);
    let body = html! {
        (header(&view.status.name, &view.user, true))
        main #main { (live(view)) }
        footer {
            p {
                "Weir " (view.status.version) ", values of " time #time { (view.time) } ". "
                span #state { noscript { "Reload the page for newer values." } }
            }
        }
    };
    document(&title, true, &body)
}

/// Returns the part of the page that changes, for the script: sections, and their time.
pub fn fragment(view: &View) -> String {
    let body = html! { main #main { (live(view)) } time #time { (view.time) } };
    visible(&body.into_string())
}

/// Returns the page of a search in the flow table.
pub fn flow_page((name, user): (&str, &str), search: &FlowSearch) -> String {
    let body = html! {
        (header(name, user, false))
        main #main {
            section #flows {
                h2 { "Flows" }
                (flow_form(&search.fields))
                @match &search.found {
                    Some(Ok(page)) => (flow_table(page)),
                    Some(Err(error)) => p.failure role="alert" { (error) },
                    None => {}
                }
            }
        }
    };
    document(&format!("Flows – {name} – Weir"), false, &body)
}

/// Returns a page with an error.
pub fn failure(error: &str) -> String {
    let body = html! {
        main.login { h1 { "Weir" } p.failure role="alert" { (error) } p { a href="/" { "Back" } } }
    };
    document("Weir", false, &body)
}

fn header(name: &str, user: &str, is_whole: bool) -> Markup {
    html! {
        a.skip href="#main" { "Skip to the content" }
        header {
            h1 { a href="/" { bdi { (name) } } }
            nav aria-label="Sections" {
                ul {
                    @if is_whole {
                        @for (id, title) in SECTIONS { li { a href={ "#" (id) } { (title) } } }
                    } @else {
                        li { a href="/" { "Overview" } }
                    }
                }
            }
            form method="post" action="/logout" {
                span { bdi { (user) } }
                button { "Log out" }
            }
        }
    }
}

fn live(view: &View) -> Markup {
    html! {
        section #health { h2 { "Health" } div #live-health data-live { (able(view)) } }
        section #traffic { h2 { "Traffic" } div #live-traffic data-live { (traffic(view)) } }
        section #services {
            h2 { "Services" }
            form.search method="get" action="/" role="search" {
                div {
                    label for="service" { "Name contains" }
                    input #service type="search" name="service" value=(view.service_filter)
                        maxlength="253" spellcheck="false" autocapitalize="off";
                }
                button { "Search" }
            }
            div #live-services data-live { (services(view)) }
        }
        section #drops { h2 { "Drops" } div #live-drops data-live { (drops(view)) } }
        section #lcores { h2 { "Lcores and NICs" } div #live-lcores data-live { (lcores(view)) } }
        section #flows {
            h2 { "Flows" }
            div #live-flows data-live {
                p {
                    (count(view.status.flows.used)) " of " (count(view.status.flows.max))
                    " entries of the flow table are in use. A search reads the table once."
                }
            }
            (flow_form(&FlowSearch::default().fields))
        }
        section #changes { h2 { "Changes" } div #live-changes data-live { (changes(view)) } }
        section #network {
            h2 { "Cloud and BGP" }
            div #live-network data-live { (cloud(&view.cloud)) (bgp(view)) }
        }
    }
}

fn able(view: &View) -> Markup {
    let status = &view.status;
    let degraded: Vec<_> = health(status)
        .into_iter()
        .filter(|row| row["level"] != "OK" && row["name"] != "appliance")
        .collect();
    let text = |row: &serde_json::Map<String, serde_json::Value>, column: &str| {
        row.get(column).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
    };
    let frontends = &status.frontends;
    html! {
        p.able {
            @if status.able {
                (badge("good", "able")) " New traffic is accepted."
            } @else {
                (badge("bad", "not able")) " Health probes fail: no new traffic is accepted."
            }
            @if view.is_draining { " " (badge("plain", "draining")) }
        }
        @if !status.reasons.is_empty() {
            ul.reasons { @for reason in &status.reasons { li { (reason) } } }
        }
        @for row in &degraded {
            p.fault {
                (badge("bad", &text(row, "level"))) " " b { (text(row, "name")) } ": "
                (text(row, "message"))
            }
        }
        @for finding in &status.findings { p.fault { (badge("plain", "finding")) " " (finding) } }
        dl {
            div { dt { "Ready" } dd { (if status.ready { "yes" } else { "no" }) } }
            div { dt { "Up for" } dd { (duration(status.uptime_s)) } }
            div {
                dt { "Generation" }
                dd {
                    (status.generation)
                    @if status.acknowledged != status.generation {
                        ", of the slowest lcore " (status.acknowledged)
                    }
                }
            }
            div {
                dt { "Frontends" }
                dd {
                    (frontends.done) " in force"
                    @if frontends.pending > 0 { ", " (frontends.pending) " pending" }
                    @if frontends.errors > 0 { ", " (frontends.errors) " with errors" }
                }
            }
            div { dt { "Services" } dd { (status.services) } }
            div { dt { "Backends" } dd { (status.backends) } }
            div {
                dt { "Next hops" }
                dd { (status.next_hops.known) " of " (status.next_hops.needed) " resolved" }
            }
        }
    }
}

fn traffic(view: &View) -> Markup {
    let [packets, bytes, new_flows, drops] = view.rates;
    let curve = |points: &Points, text: &dyn Fn(f64) -> String| {
        html! {
            (spark(points, text))
            @if let Some(peak) = peak(points) { p.note { "peak " (text(peak)) } }
        }
    };
    let tile = |title: &str, now: &str, at: usize, text: &dyn Fn(f64) -> String| {
        html! {
            div.tile {
                h3 { (title) }
                p.value { (now) }
                @if let Some(points) = view.totals.get(at) { (curve(points, text)) }
            }
        }
    };
    let of = |unit: &'static str| move |value: f64| per_second(value, unit);
    let bits = |value: f64| super::text::bits(value);
    html! {
        div.tiles {
            (tile("Received", &bits(bytes), 1, &bits))
            (tile("Packets", &of("")(packets), 0, &of("")))
            (tile("New flows", &of("")(new_flows), 2, &of("")))
            (tile("Drops", &of("")(drops), 3, &of("")))
            div.tile {
                h3 { "Flows" }
                p.value { (scaled(view.status.flows.used as f64)) }
                @if let Some(points) = &view.flows { (curve(points, &|value| scaled(value))) }
            }
        }
        p.note { "Curves: the last ten minutes, peaks of ten seconds." }
    }
}

fn drops(view: &View) -> Markup {
    if view.drops.is_empty() {
        return html! { p { "No packet was dropped." } };
    }
    let rows = html! {
        @for row in &view.drops {
            tr {
                th scope="row" { code { (row.reason) } }
                td { (row.arm) }
                td.number { (per_second(row.rate, "")) }
                td {
                    @if let Some(points) = &row.points {
                        (spark(points, &|value| per_second(value, "")))
                    }
                }
                td.number { (count(row.packets)) }
                td.text { (row.help) }
            }
        }
    };
    let heads = [
        Text("Reason"),
        Text("Arm"),
        Number("Now"),
        Text("Ten minutes"),
        Number("Total"),
        Text("Meaning, and what to do"),
    ];
    html! {
        (table("drops-box", "Drops by reason", &heads, &rows))
        @if view.more_drops > 0 {
            p.note { "and " (view.more_drops) " more; " code { "weir drops" } " lists all." }
        }
    }
}

fn lcores(view: &View) -> Markup {
    let rows = html! {
        @for (lcore, points) in &view.lcores {
            tr {
                th scope="row" { (lcore.id) }
                td {
                    @if lcore.polling {
                        (badge("good", "polls"))
                    } @else {
                        (badge("bad", "stopped"))
                    }
                    @if lcore.late { " " (badge("bad", "late")) }
                }
                td.number { (format!("{:.1} %", lcore.busy * 100.0)) }
                td {
                    @if let Some(points) = points {
                        (spark(points, &|busy| format!("{:.1} %", busy * 100.0)))
                    }
                }
                td.number { (lcore.acknowledged) }
                td {
                    @for link in &lcore.links {
                        span.item {
                            (link.arm) " " (if link.up { "up" } else { "down" })
                            @if let Some(share) = link.share {
                                (format!(", {:.0} %", share * 100.0))
                            }
                        }
                    }
                }
            }
        }
    };
    let nics = html! {
        @for nic in &view.status.nics {
            tr {
                th scope="row" { (nic.arm) }
                td { (nic.port) }
                td { (nic.driver) }
                td {
                    (badge(if nic.state == "running" { "good" } else { "bad" }, &nic.state))
                    " " (nic.detail)
                }
                td { (if nic.link_up { "up" } else { "down" }) }
                td.number {
                    @if nic.speed_mbps > 0 { (f64::from(nic.speed_mbps) / 1000.0) " Gbit/s" }
                }
                td.number { (nic.rx_queues) }
                td {
                    @for (name, lost, help) in nic.losses() {
                        span.item title=(help) { (name) " " (count(lost)) }
                    }
                }
            }
        }
    };
    let heads = [
        Text("Lcore"),
        Text("State"),
        Number("Busy"),
        Text("Ten minutes"),
        Number("Generation"),
        Text("Links, share of packets"),
    ];
    let nic_heads = [
        Text("Arm"),
        Text("NIC"),
        Text("Driver"),
        Text("State"),
        Text("Link"),
        Number("Speed"),
        Number("Queues"),
        Text("Lost"),
    ];
    html! {
        @if view.lcores.is_empty() {
            p { "No lcore has joined: the data plane does not run." }
        } @else {
            (table("lcores-box", "Lcores", &heads, &rows))
        }
        @if !view.status.nics.is_empty() {
            (table("nics-box", "NICs", &nic_heads, &nics))
        }
    }
}

fn changes(view: &View) -> Markup {
    let rows = html! { @for row in &view.changes { (change(row)) } };
    let heads = [
        Text("When"),
        Text("Who"),
        Text("Call"),
        Text("What"),
        Text("Outcome"),
        Number("In force after"),
    ];
    html! {
        @if let Some(error) = &view.changes_error { p.fault { (error) } }
        @if !view.changes.is_empty() {
            (table("changes-box", "Latest changes", &heads, &rows))
        } @else if view.changes_error.is_none() {
            p { "No change is recorded." }
        }
    }
}

fn change(row: &ChangeRow) -> Markup {
    let class = if row.outcome == "done" { "good" } else { "bad" };
    html! {
        tr {
            td { time { (row.time) } }
            td { bdi { (row.who) } }
            td { (row.call) }
            td {
                @for object in &row.objects { span.item { bdi { (object) } } }
                @if row.more_objects > 0 { span.item { (row.more_objects) " more" } }
            }
            td { (badge(class, row.outcome)) " " (row.reason) }
            td.number {
                @match &row.in_force {
                    InForce::Unknown => "–",
                    InForce::Pending => "pending",
                    InForce::After(time) => (milliseconds(*time)),
                    InForce::Not(why) => { (badge("bad", "not in force")) " " (why) }
                }
            }
        }
    }
}

fn flow_form(fields: &[String; 5]) -> Markup {
    const NAMES: [(&str, &str); 5] = [
        ("client", "Client"),
        ("frontend", "Frontend"),
        ("backend", "Backend"),
        ("service", "Service"),
        ("protocol", "Protocol"),
    ];
    html! {
        form.search method="get" action="/flows" role="search" {
            @for ((name, title), value) in NAMES.iter().zip(fields) {
                div {
                    label for={ "flow-" (name) } { (title) }
                    input id={ "flow-" (name) } name=(name) value=(value) maxlength="253"
                        spellcheck="false" autocapitalize="off";
                }
            }
            button { "Search flows" }
        }
        p.note { "Addresses with or without a port: 192.0.2.1:80. Empty fields match all." }
    }
}

fn flow_table(page: &FlowPage) -> Markup {
    let rows = html! {
        @for flow in &page.flows {
            tr {
                td { (flow.protocol) }
                td { (flow.client) }
                td { (flow.frontend) }
                td { bdi { (flow.service) } }
                td { (flow.backend) }
                td { (flow.kind) }
                td { (flow.state) }
                td { @if !flow.gateway.is_empty() { (flow.gateway) " " (flow.node) } }
                td.number { (flow.idle_s) " s" }
            }
        }
    };
    let heads = [
        Text("Protocol"),
        Text("Client"),
        Text("Frontend"),
        Text("Service"),
        Text("Backend"),
        Text("Kind"),
        Text("State"),
        Text("Gateway"),
        Number("Idle"),
    ];
    html! {
        p {
            (page.flows.len()) (if page.flows.len() == 1 { " flow" } else { " flows" })
            @if page.next.is_some() { ", and more: narrow the search" }
            "; " (count(page.total.used)) " in the table."
        }
        @if !page.flows.is_empty() { (table("flows-box", "Flows", &heads, &rows)) }
    }
}

#[cfg(test)]
mod tests;
