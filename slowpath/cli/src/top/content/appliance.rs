//! The whole appliance, and its registration at the cloud.

use slowpath::control::report::Status;

use super::services::{bit_rate, service_rows};
use crate::cloud::{CloudStatus, lines};
use crate::table::count;
use crate::top::data::Data;
use crate::top::format::{short, short_rate};
use crate::top::history::{HISTORY, TAKEN};
use crate::top::page::{Cell, Column, Content, RowKey, text, word};
use crate::top::sample::Extra;
use crate::top::theme::Role;

/// Maximum number of drop reasons, and of messages of one kind, in the overview.
const MAX_LISTED: usize = 3;
/// Maximum number of lcores whose shares are in the overview.
const MAX_LCORES: usize = 8;

/// The overview, with a table of the services.
pub fn overview(data: &Data) -> Content {
    let mut content = Content::default();
    let status = &data.sample.status;
    for reason in &status.reasons {
        content.line("unable", reason.as_str(), Role::Bad);
    }
    let totals = &data.tracks.totals;
    let rate = |get: fn(&crate::top::history::Rates) -> f64| totals.rates.as_ref().map(get);
    let text = format!(
        "{} packets/s, {}bit/s",
        short_rate(rate(|rates| rates.packets)),
        bit_rate(totals.rates)
    );
    content.line_with_values("traffic", text, Role::Plain, totals.packets.last(HISTORY));
    let flows = status.flows;
    let share = flows.used as f64 / flows.max.max(1) as f64;
    let text = format!(
        "{}/s new; {} of {} in use ({:.0} %)",
        short_rate(rate(|rates| rates.new_flows)),
        count(flows.used),
        count(flows.max),
        share * 100.0
    );
    let role = if share > 0.9 { Role::Warning } else { Role::Plain };
    content.line_with_values("flows", text, role, totals.new_flows.last(HISTORY));
    let drops = rate(|rates| rates.drops);
    let role = if drops.is_some_and(|drops| drops > 0.0) { Role::Warning } else { Role::Plain };
    let text = format!("{}/s{}", short_rate(drops), drop_reasons(data));
    content.line_with_values("drops", text, role, totals.drops.last(HISTORY));
    lcores(status, &mut content, totals.busy.last(HISTORY));
    for nic in &data.sample.nics {
        let rate = |name: &str| data.tracks.nic(&nic.arm, name);
        let lost: Option<f64> =
            ["missed_packets", "receive_errors"].iter().map(|name| rate(name)).sum();
        let series = data.tracks.nic_series(&nic.arm, TAKEN);
        let link = if nic.link_up { "up" } else { "DOWN" };
        let text = format!(
            "{} {link}; {} packets/s taken, {}/s lost",
            nic.driver,
            short_rate(rate(TAKEN)),
            short_rate(lost)
        );
        let role = match (nic.link_up && nic.state == "running", lost) {
            (false, _) => Role::Bad,
            (true, Some(lost)) if lost > 0.0 => Role::Warning,
            _ => Role::Plain,
        };
        let values = series.map(|series| series.last(HISTORY)).unwrap_or_default();
        content.line_with_values(&nic.arm, text, role, values);
    }
    state(status, &mut content);
    service_rows(data, &mut content);
    content
}

/// Returns the reasons with the most drops per second: `: ingress no_route 3`.
fn drop_reasons(data: &Data) -> String {
    let all = data.sample.drops.iter().filter_map(|drop| {
        let rate = data.tracks.drop(&drop.arm, &drop.reason)?;
        (rate > 0.0).then_some((rate, drop))
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by(|one, other| other.0.total_cmp(&one.0));
    let first = all.iter().take(MAX_LISTED);
    let texts: Vec<String> = first
        .map(|(rate, drop)| format!("{} {} {}", drop.arm, drop.reason, short(*rate)))
        .collect();
    match texts.is_empty() {
        true => format!("; {} in all", count(data.sample.drops.iter().map(|d| d.packets).sum())),
        false => format!(": {}", texts.join(", ")),
    }
}

fn lcores(status: &Status, content: &mut Content, busy: Vec<f32>) {
    if status.lcores.is_empty() {
        content.line("lcores", "none: the data plane is not running", Role::Bad);
        return;
    }
    let stalled = status.lcores.iter().filter(|lcore| !lcore.polling).count();
    let first = status.lcores.iter().take(MAX_LCORES);
    let shares = first.map(|lcore| format!("{:.0} %", lcore.busy * 100.0));
    let shares = shares.collect::<Vec<_>>().join(", ");
    let more = match status.lcores.len() {
        0..=MAX_LCORES => String::new(),
        all => format!(" + {} more", all - MAX_LCORES),
    };
    let (stalls, role) = match stalled {
        0 => (String::new(), Role::Plain),
        _ => (format!("; {stalled} STALLED"), Role::Bad),
    };
    content.line_with_values("lcores", format!("busy {shares}{more}{stalls}"), role, busy);
}

/// Adds the lines of generation, cloud, BGP, and everything that `weir status` reports as rejected
/// or failing.
fn state(status: &Status, content: &mut Content) {
    let hops = &status.next_hops;
    let frontends = &status.frontends;
    let served = match status.acknowledged >= status.generation {
        true => String::new(),
        false => format!(" (lcores serve {})", status.acknowledged),
    };
    let pending = match (frontends.pending, frontends.errors) {
        (0, 0) => String::new(),
        (pending, errors) => format!(", {pending} pending, {errors} rejected"),
    };
    let role = match (frontends.errors, hops.known < hops.needed) {
        (0, false) => Role::Plain,
        _ => Role::Warning,
    };
    let text = format!(
        "generation {}{served}; {} services, {} backends; {} frontends done{pending}; next hops \
         {}/{}",
        status.generation,
        count(status.services as u64),
        count(status.backends as u64),
        count(frontends.done as u64),
        count(hops.known as u64),
        count(hops.needed as u64)
    );
    content.line("state", text, role);
    content.line_if_any("cloud", &status.cloud, Role::Plain);
    content.line_if_any("bgp", &status.bgp, Role::Plain);
    let files = [&status.config_file, &status.services_file];
    let rejected = files.into_iter().filter_map(|file| {
        let error = file.error.as_ref()?;
        let line = error.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Some(format!("{}: {}", file.path, line.trim()))
    });
    let held = status.held.iter().map(|held| held.message.clone());
    let listeners = status.listeners.iter().map(|one| one.error.clone());
    let store = status.store.damage.clone();
    let hops = hops.error.clone();
    let audit = status.audit.error.clone();
    for (label, texts) in [
        ("rejected", rejected.collect::<Vec<_>>()),
        ("held", held.collect()),
        ("listener", listeners.collect()),
        ("store", store.into_iter().collect()),
        ("next hops", hops.into_iter().collect()),
        ("audit", audit.into_iter().collect()),
        ("finding", status.findings.clone()),
    ] {
        let more = texts.len().saturating_sub(MAX_LISTED);
        for text in texts.into_iter().take(MAX_LISTED) {
            content.line(label, text, Role::Warning);
        }
        if more > 0 {
            content.line("", format!("{more} more: weir status"), Role::Dim);
        }
    }
}

const PEERS: &[Column] = &[
    text("PEER", 22, 0),
    text("ADDRESS", 15, 0),
    word("ZONE", 14, 1),
    word("STATE", 12, 0),
    word("", 12, 2),
];

/// The view of the registration at the cloud.
pub fn cloud(data: &Data, extra: Option<&Extra>) -> Content {
    let mut content = Content::default();
    let status = &data.sample.status;
    let Some(Extra { cloud: report, .. }) = extra else {
        content.line("", "waiting for slowpath's response", Role::Dim);
        return content;
    };
    if report.cloud.is_empty() {
        let text = "none is configured: no section [aws] or [azure]";
        content.line("cloud", text, Role::Dim);
        return content;
    }
    let (ready, role) = match status.ready {
        true => ("the cloud may send traffic", Role::Good),
        false => ("NO: the cloud does not send new traffic", Role::Bad),
    };
    content.line("cloud", report.cloud.as_str(), Role::Plain);
    content.line("ready", ready, role);
    let cloud_status =
        CloudStatus { report: report.clone(), able: status.able, reasons: status.reasons.clone() };
    for (label, text) in lines(&cloud_status) {
        let role = match label.as_str() {
            "error" => Role::Bad,
            _ => Role::Plain,
        };
        content.line(&label, text, role);
    }
    for finding in &report.findings {
        let text = format!("{}: {}; {}", finding.name, finding.text, finding.remedy);
        content.line("finding", text, Role::Warning);
    }
    let failed: u64 =
        report.calls.iter().filter(|call| call.outcome != "ok").map(|call| call.times).sum();
    let all: u64 = report.calls.iter().map(|call| call.times).sum();
    let text = format!("{} calls, {} without success", count(all), count(failed));
    content.line("calls", text, Role::Plain);
    if report.peers.is_empty() {
        return content;
    }
    content.columns = PEERS.to_vec();
    "no peers".clone_into(&mut content.empty);
    for peer in &report.peers {
        let own = peer.id == report.target || peer.id == report.instance;
        let cells = vec![
            Cell::text(peer.id.as_str()),
            Cell::text(peer.address.map(|address| address.to_string()).unwrap_or_default()),
            Cell::text(peer.zone.as_str()),
            Cell::text(peer.state.as_str()),
            Cell::text(if own { "this machine" } else { "" }),
        ];
        content.row(RowKey::Other(format!("{} {:?}", peer.id, peer.address)), cells);
    }
    content
}
