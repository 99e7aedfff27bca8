//! Services, their backends, and one backend.

use health::report::Row as Check;
use slowpath::control::report::{BackendReport, ServiceReport};
use slowpath::metrics::traffic::OTHERS;
use state::text::address_port;

use super::traffic::{FLOWS, flow_rows};
use crate::table::{bytes, count};
use crate::top::data::Data;
use crate::top::format::short_rate;
use crate::top::history::{HISTORY, Rates};
use crate::top::page::{Cell, Column, Content, RowKey, history, number, text, word};
use crate::top::sample::Extra;
use crate::top::theme::Role;

/// Columns of services.
pub const SERVICES: &[Column] = &[
    text("SERVICE", 24, 0),
    text("MODE", 10, 6),
    number("UP", 7, 3),
    number("FLOWS", 6, 2),
    number("NEW/S", 6, 5),
    number("PKT/S", 6, 0),
    number("BIT/S", 6, 1),
    number("DROP/S", 6, 2),
    history(4),
];

/// Columns of the backends of all services.
pub const ALL_BACKENDS: &[Column] = &[
    text("SERVICE", 12, 4),
    text("BACKEND", 15, 0),
    word("STATE", 11, 0),
    word("HEALTH", 9, 1),
    number("WEIGHT", 6, 9),
    number("SHARE", 6, 8),
    number("FLOWS", 6, 2),
    number("NEW/S", 6, 7),
    number("PKT/S", 6, 0),
    number("BIT/S", 6, 2),
    history(3),
];

/// Columns of the backends of one service.
pub const BACKENDS: &[Column] = &[
    text("BACKEND", 15, 0),
    word("STATE", 11, 0),
    word("HEALTH", 9, 1),
    number("WEIGHT", 6, 8),
    number("SHARE", 6, 4),
    number("FLOWS", 6, 2),
    number("NEW/S", 6, 5),
    number("PKT/S", 6, 0),
    number("BIT/S", 6, 2),
    history(3),
];

const NO_SERVICES: &str = "no services; `weir status` shows whether the services file was rejected";

fn bits(rates: Option<Rates>) -> Option<f64> {
    rates.map(|rates| rates.bytes * 8.0)
}

/// Adds a row for each service.
pub fn service_rows(data: &Data, content: &mut Content) {
    content.columns = SERVICES.to_vec();
    NO_SERVICES.clone_into(&mut content.empty);
    for service in &data.sample.services {
        let rates = data.tracks.service(&service.name);
        let backends = &service.backends;
        let active = backends.iter().filter(|backend| backend.state == "active").count();
        content.row(
            RowKey::Service(service.name.clone()),
            vec![
                Cell::text(service.name.as_str()),
                Cell::text(mode(service)),
                Cell::Of(active, backends.len()),
                Cell::Count(service.flows),
                Cell::Rate(rates.map(|rates| rates.new_flows)),
                Cell::Rate(rates.map(|rates| rates.packets)),
                Cell::Rate(bits(rates)),
                Cell::Rate(rates.map(|rates| rates.drops)),
                Cell::History,
            ],
        );
    }
}

fn mode(service: &ServiceReport) -> String {
    match service.tunnel.as_str() {
        "" => service.mode.clone(),
        tunnel => format!("{} {tunnel}", service.mode),
    }
}

/// The view of services.
pub fn all(data: &Data) -> Content {
    let mut content = Content::default();
    service_rows(data, &mut content);
    content
}

/// The view of backends.
pub fn all_backends(data: &Data, extra: Option<&Extra>) -> Content {
    let mut content = Content { columns: ALL_BACKENDS.to_vec(), ..Content::default() };
    "no backends; `weir services` shows services".clone_into(&mut content.empty);
    let checks = Checks::new(extra);
    for service in &data.sample.services {
        for backend in &service.backends {
            let mut cells = cells(data, service, backend, &checks);
            cells.insert(0, Cell::text(service.name.as_str()));
            content.row(key(service, backend), cells);
        }
    }
    content
}

fn key(service: &ServiceReport, backend: &BackendReport) -> RowKey {
    let address = address_port(&backend.address, backend.port);
    RowKey::Backend { service: service.name.clone(), id: backend.id, address }
}

/// Results of health checks by service and backend.
struct Checks<'a>(std::collections::HashMap<(&'a str, &'a str), &'a Check>);

impl<'a> Checks<'a> {
    fn new(extra: Option<&'a Extra>) -> Checks<'a> {
        let all = extra.into_iter().flat_map(|extra| &extra.checks);
        // The backend of a check is followed by its protocol: `10.0.2.11:80/TCP`.
        let address = |check: &'a Check| check.backend.split('/').next().unwrap_or_default();
        Checks(all.map(|check| ((check.service.as_str(), address(check)), check)).collect())
    }

    fn of(&self, service: &ServiceReport, backend: &BackendReport) -> Option<&'a Check> {
        let address = address_port(&backend.address, backend.port);
        self.0.get(&(service.name.as_str(), address.as_str())).copied()
    }
}

fn state_role(state: &str) -> Role {
    match state {
        "active" => Role::Good,
        "quarantined" => Role::Bad,
        _ => Role::Warning,
    }
}

fn health_cell(check: Option<&Check>) -> Cell {
    let Some(check) = check else { return Cell::Empty };
    let role = match check.state.as_str() {
        "healthy" => Role::Good,
        "unhealthy" => Role::Bad,
        _ => Role::Dim,
    };
    Cell::Text(check.state.clone(), role)
}

/// Returns the cells of a backend for the columns [`BACKENDS`].
fn cells(
    data: &Data,
    service: &ServiceReport,
    backend: &BackendReport,
    checks: &Checks<'_>,
) -> Vec<Cell> {
    let rates = data.tracks.backend(backend.id);
    let shared = if backend.shared { " *" } else { "" };
    let own = |cell: Cell| match backend.in_others {
        true => Cell::Text(OTHERS.to_owned(), Role::Dim),
        false => cell,
    };
    vec![
        Cell::text(address_port(&backend.address, backend.port) + shared),
        Cell::Text(backend.state.clone(), state_role(&backend.state)),
        health_cell(checks.of(service, backend)),
        Cell::Count(u64::from(backend.weight)),
        Cell::Share(backend.share),
        own(Cell::Count(backend.flows)),
        own(Cell::Rate(rates.map(|rates| rates.new_flows))),
        own(Cell::Rate(rates.map(|rates| rates.packets))),
        own(Cell::Rate(bits(rates))),
        Cell::History,
    ]
}

/// The page of a service.
pub fn one(data: &Data, name: &str, extra: Option<&Extra>) -> Content {
    let mut content = Content { columns: BACKENDS.to_vec(), ..Content::default() };
    let found = data.sample.services.iter().find(|service| service.name == name);
    let Some(service) = found else {
        content.columns.clear();
        content.line("removed", format!("there is no service {name} any more"), Role::Warning);
        return content;
    };
    "no backends; `weir service set` adds one".clone_into(&mut content.empty);
    content.line("mode", mode(service), Role::Plain);
    content.line_if_any("frontends", &service.frontends.join(", "), Role::Plain);
    let rates = data.tracks.service(name);
    let series = data.tracks.service_series(name);
    content.line_with_values(
        "traffic",
        format!(
            "{} packets/s, {}bit/s; {} packets, {} in all",
            short_rate(rates.map(|rates| rates.packets)),
            prefixed(bits(rates)),
            count(service.packets),
            bytes(service.bytes),
        ),
        Role::Plain,
        series.map(|series| series.last(HISTORY)).unwrap_or_default(),
    );
    content.line(
        "flows",
        format!(
            "{} live; {}/s new, {} in all",
            count(service.flows),
            short_rate(rates.map(|rates| rates.new_flows)),
            count(service.new_flows)
        ),
        Role::Plain,
    );
    let drops = rates.map(|rates| rates.drops);
    let role = if drops.is_some_and(|drops| drops > 0.0) { Role::Warning } else { Role::Plain };
    let text = format!("{}/s; {} in all", short_rate(drops), count(service.drops));
    content.line("drops", text, role);
    if service.in_others {
        let text = format!("counted in {OTHERS}, in whole or in part (region.counted_services)");
        content.line("note", text, Role::Dim);
    }
    let checks = Checks::new(extra);
    for backend in &service.backends {
        content.row(key(service, backend), cells(data, service, backend, &checks));
    }
    if service.backends.iter().any(|backend| backend.shared) {
        "* shared: counts of all its services".clone_into(&mut content.note);
    }
    content
}

/// Formats a number with its decimal prefix before a unit: `12.3 k`, `0 `.
fn prefixed(value: Option<f64>) -> String {
    let text = short_rate(value);
    match text.char_indices().last() {
        Some((at, prefix)) if prefix.is_ascii_alphabetic() => {
            format!("{} {prefix}", &text[..at])
        }
        _ => format!("{text} "),
    }
}

/// The page of a backend.
pub fn backend(
    data: &Data,
    service: &str,
    (id, address): (u32, &str),
    extra: Option<&Extra>,
) -> Content {
    let mut content = Content { columns: FLOWS.to_vec(), ..Content::default() };
    let services = data.sample.services.iter().filter(|one| one.name == service);
    let mut all = services.flat_map(|one| one.backends.iter().map(move |backend| (one, backend)));
    let Some((service, backend)) =
        all.find(|(_, one)| one.id == id && address_port(&one.address, one.port) == address)
    else {
        let text = "the service has no such backend any more";
        content.line("removed", text, Role::Warning);
        content.columns.clear();
        return content;
    };
    let state = format!(
        "{}, weight {}, {:.1} % of the service's slots",
        backend.state,
        backend.weight,
        backend.share * 100.0
    );
    content.line("state", state, state_role(&backend.state));
    match &backend.mac {
        Some(mac) => content.line("next hop", mac.as_str(), Role::Plain),
        None => content.line("next hop", "its MAC address is not known", Role::Bad),
    }
    let rates = data.tracks.backend(id);
    let series = data.tracks.backend_series(id);
    if backend.in_others {
        let text = format!("counted in {OTHERS} (region.counted_backends)");
        content.line("traffic", text, Role::Dim);
    } else {
        let text = format!(
            "{} packets/s, {}bit/s; {} packets, {} in all",
            short_rate(rates.map(|rates| rates.packets)),
            prefixed(bits(rates)),
            count(backend.packets),
            bytes(backend.bytes)
        );
        let values = series.map(|series| series.last(HISTORY)).unwrap_or_default();
        content.line_with_values("traffic", text, Role::Plain, values);
        let text = format!(
            "{} live; {}/s new, {} in all",
            count(backend.flows),
            short_rate(rates.map(|rates| rates.new_flows)),
            count(backend.new_flows)
        );
        content.line("flows", text, Role::Plain);
    }
    if backend.shared {
        content.line("note", "shared with other services: all of them are counted", Role::Dim);
    }
    if let Some(check) = Checks::new(extra).of(service, backend) {
        let since = check.since_s.map(|s| format!(" for {}", crate::table::span(s)));
        let took = check.took_ms.map(|ms| format!(" in {ms} ms"));
        let text = format!(
            "{}{}; last check {}{}: {}",
            check.state,
            since.unwrap_or_default(),
            check.last,
            took.unwrap_or_default(),
            check.result
        );
        let role = match health_cell(Some(check)) {
            Cell::Text(_, role) => role,
            _ => Role::Plain,
        };
        content.line("health", text, role);
    }
    flow_rows(&mut content, extra);
    content
}

/// Formats bits per second for a line.
pub fn bit_rate(rates: Option<Rates>) -> String {
    prefixed(bits(rates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_their_prefix() {
        let all = [None, Some(0.0), Some(12_345.0)].map(prefixed);
        assert_eq!(all, ["- ", "0 ", "12.3 k"]);
    }
}
