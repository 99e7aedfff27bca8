//! BGP sessions and one neighbor.

use crate::bgp::detail;
use crate::table::count;
use crate::top::page::{Cell, Column, Content, RowKey, number, text, word};
use crate::top::sample::Extra;
use crate::top::theme::Role;

const PEERS: &[Column] = &[
    number("LOCAL AS", 10, 5),
    text("NEIGHBOR", 18, 0),
    number("PEER AS", 10, 1),
    word("STATE", 12, 0),
    number("UP", 6, 1),
    word("FAMILY", 6, 0),
    number("RECEIVED", 8, 2),
    number("ADVERTISED", 10, 0),
];

const ROUTES: &[Column] = &[
    text("PREFIX", 18, 0),
    text("NEXT HOP", 15, 1),
    number("AGE", 6, 2),
    Column { title: "ATTRIBUTES", width: 20, grow: 3, rank: 3, right: false },
];

const WAITING: &str = "waiting for slowpath's response";

/// The view of BGP sessions.
pub fn bgp(extra: Option<&Extra>) -> Content {
    let mut content = Content { columns: PEERS.to_vec(), ..Content::default() };
    let Some(Extra { bgp, peers, .. }) = extra else {
        WAITING.clone_into(&mut content.empty);
        return content;
    };
    content.line_if_any("error", &bgp.error, Role::Bad);
    match &bgp.policy {
        Some(policy) => content.line("policy", policy.as_str(), Role::Plain),
        None => {
            let text = format!("none of {} policies selects this appliance", bgp.policies);
            content.line("policy", text, Role::Dim);
        }
    }
    let role = match bgp.established < bgp.neighbors {
        true => Role::Warning,
        false => Role::Plain,
    };
    let text = format!("{} of {} established", bgp.established, bgp.neighbors);
    content.line("sessions", text, role);
    "no BGP sessions".clone_into(&mut content.empty);
    for peer in peers {
        // Without `unicast`, which is the only subsequent address family.
        let family = peer.family.to_string();
        let family = family.split(' ').next().unwrap_or_default().to_owned();
        let key = RowKey::Neighbor {
            router: peer.local_asn,
            peer: peer.peer.to_string(),
            family: family.clone(),
        };
        let role = if peer.uptime_s.is_some() { Role::Good } else { Role::Bad };
        let cells = vec![
            Cell::text(peer.local_asn.to_string()),
            Cell::text(peer.peer.to_string()),
            Cell::text(peer.peer_asn.to_string()),
            Cell::Text(peer.state.to_string(), role),
            peer.uptime_s.map_or(Cell::Empty, |seconds| Cell::Span(seconds as u64)),
            Cell::text(family),
            Cell::Count(peer.received),
            Cell::Count(peer.advertised),
        ];
        content.row(key, cells);
    }
    content
}

/// The page of a BGP neighbor.
pub fn neighbor(extra: Option<&Extra>) -> Content {
    let mut content = Content { columns: ROUTES.to_vec(), ..Content::default() };
    let Some(extra) = extra else {
        WAITING.clone_into(&mut content.empty);
        return content;
    };
    let peers = extra.neighbor["peers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if peers.is_empty() {
        content.columns.clear();
        content.line("removed", "there is no such neighbor any more", Role::Warning);
        return content;
    }
    for text in peers.iter().map(detail::peer) {
        for line in text.lines() {
            // The first line has the state; the others are `  name   value`.
            let (label, text) = match line.strip_prefix("  ").and_then(|line| line.split_once("  "))
            {
                Some((label, text)) => (label, text.trim_start()),
                None => ("neighbor", line),
            };
            content.line(label, text, Role::Plain);
        }
    }
    "no routes are advertised".clone_into(&mut content.empty);
    let shown = extra.routes.len();
    content.note = match shown < extra.all_routes {
        true => format!("the first {shown} of {} routes", count(extra.all_routes as u64)),
        false => "routes advertised to the neighbor".to_owned(),
    };
    for route in &extra.routes {
        let prefix = route.prefix.to_string();
        let cells = vec![
            Cell::text(prefix.as_str()),
            Cell::text(route.next_hop.to_string()),
            Cell::Span(route.age_s as u64),
            Cell::text(route.attributes.as_str()),
        ];
        content.row(RowKey::Other(prefix), cells);
    }
    content
}
