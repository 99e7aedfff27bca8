//! Flows and drops.

use slowpath::control::report::FlowReport;

use crate::table::{count, span};
use crate::top::data::Data;
use crate::top::format::short_rate;
use crate::top::history::HISTORY;
use crate::top::page::{Cell, Column, Content, RowKey, history, number, text, word};
use crate::top::sample::{Extra, MAX_LISTED};
use crate::top::theme::Role;

/// Columns of flows.
pub const FLOWS: &[Column] = &[
    word("PROTO", 6, 3),
    text("CLIENT", 15, 0),
    text("FRONTEND", 15, 0),
    text("SERVICE", 10, 5),
    text("BACKEND", 15, 0),
    word("STATE", 11, 1),
    number("IDLE", 6, 2),
    word("KIND", 6, 9),
    text("SOURCE", 15, 8),
    text("GATEWAY", 10, 7),
];

/// Columns of drops.
pub const DROPS: &[Column] = &[
    word("ARM", 8, 0),
    word("AT", 4, 2),
    text("REASON", 22, 0),
    number("PACKETS", 8, 1),
    number("DROP/S", 6, 0),
    history(3),
    Column { title: "MEANING", width: 40, grow: 4, rank: 9, right: false },
];

/// Adds the flows of a response, and a note with the number of all flows.
pub fn flow_rows(content: &mut Content, extra: Option<&Extra>) {
    content.columns = FLOWS.to_vec();
    let Some(Extra { flows: page, .. }) = extra else {
        "waiting for slowpath's response".clone_into(&mut content.empty);
        return;
    };
    "no flow matches".clone_into(&mut content.empty);
    let (used, max) = (count(page.total.used), count(page.total.max));
    content.note = match page.next {
        Some(_) => format!("the first {MAX_LISTED} that match; {used} of {max} in use"),
        None => format!("{used} of {max} in use"),
    };
    for flow in &page.flows {
        let gateway = match (flow.gateway.as_str(), flow.node.as_str()) {
            (gateway, "") => gateway.to_owned(),
            (gateway, node) => format!("{gateway} {node}"),
        };
        let cells = vec![
            Cell::text(flow.protocol.as_str()),
            Cell::text(flow.client.as_str()),
            Cell::text(flow.frontend.as_str()),
            Cell::text(flow.service.as_str()),
            Cell::text(flow.backend.as_str()),
            Cell::Text(flow.state.clone(), flow_role(&flow.state)),
            Cell::Span(u64::from(flow.idle_s)),
            Cell::text(flow.kind.as_str()),
            Cell::text(flow.source.as_str()),
            Cell::text(gateway),
        ];
        content.row(RowKey::Flow(Box::new(flow.clone())), cells);
    }
}

fn flow_role(state: &str) -> Role {
    match state {
        "established" => Role::Good,
        "reset" => Role::Warning,
        _ => Role::Plain,
    }
}

/// The view of flows.
pub fn flows(data: &Data, extra: Option<&Extra>) -> Content {
    let mut content = Content::default();
    flow_rows(&mut content, extra);
    if data.sample.status.flows.used == 0 && content.rows.is_empty() {
        "no flows".clone_into(&mut content.empty);
    }
    content
}

/// The page of a flow: as it is now, or as it was when the page was opened.
pub fn flow(opened: &FlowReport, extra: Option<&Extra>) -> Content {
    let mut content = Content::default();
    let now = extra.and_then(|extra| {
        // Clients of two endpoints may have the same addresses and ports. A flow keeps its place in
        // the table, while its gateway can change.
        let same = extra.flows.flows.iter().filter(|flow| {
            (&flow.client, &flow.frontend, &flow.protocol)
                == (&opened.client, &opened.frontend, &opened.protocol)
                && (flow.path == opened.path || flow.gateway == opened.gateway)
        });
        same.min_by_key(|flow| flow.path != opened.path)
    });
    if extra.is_some() && now.is_none() {
        content.line("ended", "the flow table has no such flow any more", Role::Warning);
    }
    let flow = now.unwrap_or(opened);
    content.line("protocol", flow.protocol.as_str(), Role::Plain);
    content.line_if_any("state", &flow.state, flow_role(&flow.state));
    content.line("idle", span(u64::from(flow.idle_s)), Role::Plain);
    content.line("client", flow.client.as_str(), Role::Plain);
    content.line("frontend", flow.frontend.as_str(), Role::Plain);
    content.line_if_any("service", &flow.service, Role::Plain);
    content.line_if_any("backend", &flow.backend, Role::Plain);
    content.line("kind", flow.kind.as_str(), Role::Plain);
    content.line_if_any("source", &flow.source, Role::Plain);
    content.line_if_any("gateway", &flow.gateway, Role::Plain);
    content.line_if_any("node", &flow.node, Role::Plain);
    content.line("path", flow.path.to_string(), Role::Plain);
    let (client, frontend) = (&flow.client, &flow.frontend);
    let trace = format!("weir trace --client {client} --frontend {frontend}");
    content.line("trace", trace, Role::Dim);
    content
}

/// The view of drops: reasons with drops, and losses at the NICs.
pub fn drops(data: &Data) -> Content {
    let mut content = Content { columns: DROPS.to_vec(), ..Content::default() };
    "nothing was dropped".clone_into(&mut content.empty);
    let mut zero = 0;
    for drop in &data.sample.drops {
        if drop.packets == 0 {
            zero += 1;
            continue;
        }
        let key = RowKey::Drop(drop.arm.clone(), drop.reason.clone());
        let rate = data.tracks.drop(&drop.arm, &drop.reason);
        let cells = cells(&drop.arm, "weir", &drop.reason, (drop.packets, rate), &drop.help);
        content.meanings.push((key.clone(), drop.help.clone()));
        content.row(key, cells);
    }
    for nic in &data.sample.nics {
        for (name, lost, help) in nic.losses() {
            let key = RowKey::Counter(nic.arm.clone(), name.to_owned());
            let rate = data.tracks.nic(&nic.arm, name);
            content.meanings.push((key.clone(), help.to_owned()));
            content.row(key, cells(&nic.arm, "nic", name, (lost, rate), help));
        }
    }
    content.note = format!("{zero} reasons without drops");
    content
}

fn cells(
    arm: &str,
    at: &str,
    reason: &str,
    (packets, rate): (u64, Option<f64>),
    help: &str,
) -> Vec<Cell> {
    let role = if rate.is_some_and(|rate| rate > 0.0) { Role::Warning } else { Role::Plain };
    vec![
        Cell::text(arm),
        Cell::text(at),
        Cell::Text(reason.to_owned(), role),
        Cell::Count(packets),
        Cell::Rate(rate),
        Cell::History,
        Cell::text(help),
    ]
}

/// The page of a drop reason.
pub fn drop(data: &Data, arm: &str, reason: &str) -> Content {
    let mut content = Content::default();
    let mut all = data.sample.drops.iter();
    let Some(drop) = all.find(|drop| drop.arm == arm && drop.reason == reason) else {
        content.line("removed", "slowpath does not report this reason any more", Role::Warning);
        return content;
    };
    let series = data.tracks.drop_series(arm, reason);
    let rate = short_rate(data.tracks.drop(arm, reason));
    content.line("arm", arm, Role::Plain);
    content.line("reason", reason, Role::Title);
    let text = format!("{rate}/s; {} in all", count(drop.packets));
    let values = series.map(|series| series.last(HISTORY)).unwrap_or_default();
    content.line_with_values("packets", text, Role::Plain, values);
    content.line("meaning", drop.help.as_str(), Role::Plain);
    let text = "weir explain 'tcp CLIENT:PORT -> FRONTEND:PORT' shows how a packet is handled";
    content.line("next", text, Role::Dim);
    content
}
