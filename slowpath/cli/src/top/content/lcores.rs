//! Lcores, NICs and their queues.

use slowpath::control::report::{Lcore, NicReport};

use crate::table::count;
use crate::top::data::Data;
use crate::top::history::{ARRIVED, HISTORY, TAKEN, nic_counters};
use crate::top::page::{Cell, Column, Content, RowKey, history, number, text, word};
use crate::top::theme::Role;

const COLUMNS: &[Column] = &[
    text("WHAT", 18, 0),
    word("STATE", 9, 0),
    number("BUSY", 6, 1),
    number("PKT/S", 6, 0),
    number("BIT/S", 6, 2),
    number("LOST/S", 6, 1),
    history(3),
    Column { title: "DETAILS", width: 22, grow: 2, rank: 4, right: false },
];

/// Counters of frames that were lost at a NIC.
const LOST: [&str; 3] = ["missed_packets", "receive_errors", "send_errors"];

/// The view of lcores, NICs and queues.
pub fn all(data: &Data) -> Content {
    let mut content = Content { columns: COLUMNS.to_vec(), ..Content::default() };
    "no lcore and no NIC: the data plane is not running".clone_into(&mut content.empty);
    let status = &data.sample.status;
    for lcore in &status.lcores {
        let (state, role) = lcore_state(lcore);
        let cells = vec![
            Cell::text(format!("lcore {}", lcore.id)),
            Cell::Text(state.to_owned(), role),
            Cell::Share(lcore.busy),
            Cell::Empty,
            Cell::Empty,
            Cell::Empty,
            Cell::History,
            Cell::text(links(lcore)),
        ];
        content.row(RowKey::Lcore(lcore.id), cells);
    }
    for nic in &data.sample.nics {
        nic_row(data, nic, &mut content);
        queue_rows(data, nic, &mut content);
    }
    if status.lcores.is_empty() {
        content.line("lcores", "none: the data plane is not running", Role::Bad);
    }
    content
}

fn lcore_state(lcore: &Lcore) -> (&'static str, Role) {
    match (lcore.polling, lcore.late) {
        (false, _) => ("STALLED", Role::Bad),
        (true, true) => ("LATE", Role::Warning),
        (true, false) => ("polling", Role::Good),
    }
}

fn links(lcore: &Lcore) -> String {
    let link = |link: &slowpath::control::report::Link| {
        let share = link.share.map(|share| format!(" {:.0} %", share * 100.0));
        let state = if link.up { "up" } else { "DOWN" };
        format!("{} {state}{}", link.arm, share.unwrap_or_default())
    };
    lcore.links.iter().map(link).collect::<Vec<_>>().join(", ")
}

fn nic_state(nic: &NicReport) -> (String, Role) {
    match (nic.state.as_str(), nic.link_up) {
        ("running", true) => ("running".to_owned(), Role::Good),
        ("running", false) => ("LINK DOWN".to_owned(), Role::Bad),
        ("unknown", _) => ("unknown".to_owned(), Role::Dim),
        (state, _) => (state.to_uppercase(), Role::Bad),
    }
}

fn nic_row(data: &Data, nic: &NicReport, content: &mut Content) {
    let rate = |name: &str| data.tracks.nic(&nic.arm, name);
    let lost: Option<f64> = LOST.iter().map(|name| rate(name)).sum();
    let (state, role) = nic_state(nic);
    let cells = vec![
        Cell::text(format!("{} NIC", nic.arm)),
        Cell::Text(state, role),
        Cell::Empty,
        Cell::Rate(rate(TAKEN)),
        Cell::Rate(rate("received_bytes").map(|bytes| bytes * 8.0)),
        Cell::Rate(lost),
        Cell::History,
        Cell::text(format!("{} {}, {} rx queues", nic.driver, nic.port, nic.rx_queues)),
    ];
    content.row(RowKey::Nic(nic.arm.clone()), cells);
}

/// Adds the queues for which the driver counts packets.
fn queue_rows(data: &Data, nic: &NicReport, content: &mut Content) {
    let mut queues: Vec<(&str, u32, &str)> = Vec::new();
    for name in nic.driver_counters.keys() {
        if let Some((direction, queue, "packets")) = queue_counter(name) {
            queues.push((direction, queue, name));
        }
    }
    queues.sort_unstable();
    for (direction, queue, name) in queues {
        let of = |what: &'static str| {
            let mut all = nic.driver_counters.keys();
            let name = all.find(|name| queue_counter(name) == Some((direction, queue, what)))?;
            data.tracks.nic(&nic.arm, name)
        };
        let cells = vec![
            Cell::text(format!("{} {direction} {queue}", nic.arm)),
            Cell::Text("queue".to_owned(), Role::Dim),
            Cell::Empty,
            Cell::Rate(data.tracks.nic(&nic.arm, name)),
            Cell::Rate(of("bytes").map(|bytes| bytes * 8.0)),
            Cell::Rate(of("errors")),
            Cell::History,
            Cell::text(name),
        ];
        content.row(RowKey::Counter(nic.arm.clone(), name.to_owned()), cells);
    }
}

/// Returns direction, queue and quantity of a driver's counter: `rx_q0_packets` of DPDK,
/// `rx_queue_0_packets` and `rx_0_packets` of the kernel's drivers, `queue_0_rx_cnt` of ena.
fn queue_counter(name: &str) -> Option<(&'static str, u32, &'static str)> {
    let quantity = |rest: &str| match rest {
        "packets" | "good_packets" | "cnt" => Some("packets"),
        "bytes" | "good_bytes" => Some("bytes"),
        "errors" => Some("errors"),
        _ => None,
    };
    let direction = |name: &str| match name {
        "rx" => Some("rx"),
        "tx" => Some("tx"),
        _ => None,
    };
    let parts: Vec<&str> = name.splitn(4, '_').collect();
    match parts[..] {
        ["queue", number, rx_or_tx, rest] => {
            Some((direction(rx_or_tx)?, number.parse().ok()?, quantity(rest)?))
        }
        [rx_or_tx, "queue", number, rest] => {
            Some((direction(rx_or_tx)?, number.parse().ok()?, quantity(rest)?))
        }
        [rx_or_tx, number, ref rest @ ..] if !rest.is_empty() => {
            let number = number.strip_prefix('q').unwrap_or(number);
            Some((direction(rx_or_tx)?, number.parse().ok()?, quantity(&rest.join("_"))?))
        }
        _ => None,
    }
}

/// The page of an lcore.
pub fn one(data: &Data, id: u32) -> Content {
    let mut content = Content::default();
    let Some(lcore) = data.sample.status.lcores.iter().find(|lcore| lcore.id == id) else {
        content.line("removed", format!("there is no lcore {id} any more"), Role::Warning);
        return content;
    };
    let (state, role) = lcore_state(lcore);
    content.line("state", state, role);
    let series = data.tracks.lcore_series(id);
    let values = series.map(|series| series.last(HISTORY)).unwrap_or_default();
    let text = format!("{:.0} % of the time, the poll loop had packets", lcore.busy * 100.0);
    content.line_with_values("busy", text, Role::Plain, values);
    let committed = data.sample.status.generation;
    let text = format!("{} of {committed}", lcore.acknowledged);
    content.line("generation", text, if lcore.late { Role::Warning } else { Role::Plain });
    for link in &lcore.links {
        let share = match link.share {
            Some(share) => format!("{:.1} % of the NIC's packets in 10 s", share * 100.0),
            None => "fewer than 10 000 packets in 10 s: no share".to_owned(),
        };
        let (state, role) = if link.up { ("up", Role::Good) } else { ("DOWN", Role::Bad) };
        content.line(&link.arm, format!("link {state}; {share}"), role);
    }
    content
}

const COUNTERS: &[Column] =
    &[text("COUNTER", 30, 0), number("VALUE", 16, 0), number("PER S", 6, 0), history(1)];

/// The page of a NIC: all of its counters.
pub fn nic(data: &Data, arm: &str) -> Content {
    let mut content = Content { columns: COUNTERS.to_vec(), ..Content::default() };
    let Some(nic) = data.sample.nics.iter().find(|nic| nic.arm == arm) else {
        content.columns.clear();
        content.line("removed", "slowpath does not report this NIC any more", Role::Warning);
        return content;
    };
    let (state, role) = nic_state(nic);
    let speed = match nic.speed_mbps {
        0 => String::new(),
        mbps => format!(", {mbps} Mbit/s"),
    };
    content.line("state", format!("{state}{speed}"), role);
    content.line_if_any("trouble", &nic.detail, Role::Bad);
    let text = format!("{} {}, {} rx queues", nic.driver, nic.port, nic.rx_queues);
    content.line("device", text, Role::Plain);
    content.line("MAC", nic.mac.as_str(), Role::Plain);
    for (name, value) in nic_counters(nic) {
        // Most counters of a driver are zero; those that every driver has are shown in any case.
        if value == 0 && nic.driver_counters.contains_key(name) {
            continue;
        }
        let cells = vec![
            Cell::text(name),
            Cell::Text(count(value), Role::Plain),
            Cell::Rate(data.tracks.nic(arm, name)),
            Cell::History,
        ];
        content.row(RowKey::Counter(arm.to_owned(), name.to_owned()), cells);
    }
    let text = format!("{ARRIVED} = {TAKEN} + missed + errors");
    content.note = text;
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_names_of_queue_counters() {
        assert_eq!(queue_counter("rx_q0_packets"), Some(("rx", 0, "packets")));
        assert_eq!(queue_counter("tx_q12_bytes"), Some(("tx", 12, "bytes")));
        assert_eq!(queue_counter("rx_q3_good_packets"), Some(("rx", 3, "packets")));
        assert_eq!(queue_counter("rx_queue_4_packets"), Some(("rx", 4, "packets")));
        assert_eq!(queue_counter("queue_5_rx_cnt"), Some(("rx", 5, "packets")));
        assert_eq!(queue_counter("rx_6_packets"), Some(("rx", 6, "packets")));
        for other in ["rx_packets", "rx_q_packets", "rx_q0", "", "rx_q0_xdp_packets", "q0_x", "_"] {
            assert_eq!(queue_counter(other), None, "{other}");
        }
    }
}
