//! Formats the details of BGP neighbors and listeners.

use serde_json::Value;

use crate::table::{Table, span};

/// Formats the response of `GET /bgp/peers/detail`; empty if it has no neighbors, no listeners and
/// no BFD error.
pub fn text(report: &Value) -> String {
    let part = |name: &str| report[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut parts: Vec<String> = part("peers").iter().map(peer).collect();
    let mut table = Table::new(&["LISTENER", "INTERFACE", "STATE", ">ACCEPTED", ">REFUSED"]);
    for one in part("listeners") {
        let state = match (field(one, "/error").as_str(), &one["listens"]) {
            ("", Value::Bool(true)) => "listening".to_owned(),
            (error, _) => format!("not listening: {error}"),
        };
        let cell = |path: &str| field(one, path);
        let (address, interface) = (cell("/address"), cell("/interface"));
        table.row(vec![address, interface, state, cell("/accepted"), cell("/refused")]);
    }
    if !table.is_empty() {
        parts.push(table.text());
    }
    if let Some(error) = report["bfd_error"].as_str() {
        parts.push(format!("BFD is not running: {error}\n"));
    }
    parts.join("\n")
}

/// Formats the value at a JSON pointer without quotes; empty if there is none.
fn field(of: &Value, path: &str) -> String {
    match of.pointer(path) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Formats the number of seconds at a JSON pointer; empty if there is none.
fn time(of: &Value, path: &str) -> String {
    let seconds = of.pointer(path).and_then(Value::as_f64);
    seconds.map(|seconds| span(seconds as u64)).unwrap_or_default()
}

/// Formats the details of one neighbor: a line with its state, and a line for each property.
pub fn peer(peer: &Value) -> String {
    let (field, time) = (|path: &str| field(peer, path), |path: &str| time(peer, path));
    let mut text = format!(
        "{} (AS {}) of router {}: {} for {}\n",
        field("/peer"),
        field("/peer_asn"),
        field("/local_asn"),
        field("/state"),
        time("/since_s")
    );
    let mut table = Table::new(&["", ""]);
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            table.row(vec![format!("  {name}"), value]);
        }
    };
    let router_id = match field("/connection/peer_router_id") {
        peer_router_id if peer_router_id.is_empty() => field("/router_id"),
        peer_router_id => format!("{}, neighbor {peer_router_id}", field("/router_id")),
    };
    line("router id", router_id);
    if !peer["connection"].is_null() {
        line("connection", connection(peer));
        line("timers", timers(peer));
        let names = peer["connection"]["capabilities"].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        line("capabilities", names.join(", "));
        let restart = time("/connection/peer_restart_s");
        if !restart.is_empty() {
            line("graceful restart", format!("restart time of the neighbor {restart}"));
        }
        line("messages", messages(&peer["connection"]["messages"]));
        line("malformed", field("/connection/last_malformed"));
        match field("/connection/unsendable").as_str() {
            "0" => {}
            some => line("unsendable", format!("{some} routes cannot be sent on this session")),
        }
    }
    for family in peer["families"].as_array().into_iter().flatten() {
        line(&self::field(family, "/family"), of_family(family));
    }
    let bfd = match peer["bfd"]["up"].as_bool() {
        None => "not monitored".to_owned(),
        Some(true) => "up".to_owned(),
        Some(false) => format!("down: {}", field("/bfd/why")),
    };
    line("BFD", bfd);
    line("flaps", field("/flaps"));
    for (name, path) in [
        ("last sent", "/last_sent"),
        ("last received", "/last_received"),
        ("last lost", "/last_lost"),
    ] {
        let message = field(&format!("{path}/message"));
        if !message.is_empty() {
            line(name, format!("{message}, {} ago", time(&format!("{path}/ago_s"))));
        }
    }
    if field("/refused") != "0" {
        line("refused", format!("{} connections of the neighbor", field("/refused")));
    }
    line("error", field("/error"));
    text.push_str(table.text().trim_start_matches('\n'));
    text
}

fn connection(peer: &Value) -> String {
    let field = |path: &str| field(peer, path);
    let direction = match field("/connection/direction").as_str() {
        "outbound" => "opened by this appliance",
        _ => "opened by the neighbor",
    };
    format!("{} with {}, {direction}", field("/connection/local"), field("/connection/remote"))
}

fn timers(peer: &Value) -> String {
    let time = |name: &str| time(peer, &format!("/connection/{name}"));
    let one = |name: &str, all: String, left: String| match left.as_str() {
        "" => format!("{name} {all}"),
        left => format!("{name} {all}, {left} left"),
    };
    match time("hold_s") {
        hold if hold.is_empty() => String::new(),
        hold => format!(
            "{}; {}",
            one("hold", hold, time("hold_left_s")),
            one("keepalive", time("keepalive_s"), time("keepalive_left_s"))
        ),
    }
}

fn messages(received: &Value) -> String {
    let field = |name: &str| field(received, &format!("/{name}"));
    format!(
        "received {} updates, {} keepalives, {} route refreshes; malformed updates: {} with an \
         attribute discarded, {} treated as withdrawal",
        field("updates"),
        field("keepalives"),
        field("refreshes"),
        field("discarded"),
        field("withdrawn")
    )
}

fn of_family(family: &Value) -> String {
    let field = |path: &str| field(family, path);
    if family["agreed"] != Value::Bool(true) {
        return "not negotiated".to_owned();
    }
    let flag = |path: &str, text: &'static str| match family.pointer(path) {
        Some(Value::Bool(true)) => text,
        _ => "",
    };
    format!(
        "{} advertised, {}{} received{}{}",
        field("/advertised"),
        field("/received/prefixes"),
        flag("/received/or_more", " or more"),
        flag("/received/end_of_rib", ", End-of-RIB received"),
        flag("/received/disabled", ", DISABLED: an UPDATE could not be parsed"),
    )
}
