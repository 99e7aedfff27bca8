//! Formats reports of the live system as text.

use super::table::{Table, bytes, count, span};
use slowpath::control::report::{
    DropReport, FlowPage, Frontends, NicReport, ServiceReport, Status, TraceLine,
};
use slowpath::metrics::traffic::OTHERS;

/// Formats `weir status`.
pub fn status(status: &Status) -> String {
    let mut text = format!("{} is ", status.name);
    if status.able {
        text.push_str("able to serve: new traffic is accepted\n");
    } else {
        text.push_str("UNABLE to serve:\n");
        for reason in &status.reasons {
            text.push_str(&format!("  - {reason}\n"));
        }
    }
    let mut table = Table::new(&["", ""]);
    let mut line = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
    let ready = if status.ready { "yes" } else { "no" };
    line("ready", ready.to_owned());
    if !status.cloud.is_empty() {
        line("cloud", status.cloud.clone());
    }
    if !status.bgp.is_empty() {
        line("bgp", status.bgp.clone());
    }
    line("slowpath", format!("{}, up {}", status.version, span(status.uptime_s)));
    line("region", status.region.clone());
    line("seed", status.seed_fingerprint.clone());
    let lag = status.generation.saturating_sub(status.acknowledged);
    let served = match lag {
        0 => "served by all lcores".to_owned(),
        _ => format!("lcores serve {}", status.acknowledged),
    };
    line("generation", format!("{} ({served})", status.generation));
    line("services", format!("{} with {} backends", status.services, status.backends));
    line("frontends", frontends(&status.frontends));
    let files = [("configuration", &status.config_file), ("services file", &status.services_file)];
    for (name, file) in files.into_iter().filter(|(_, file)| !file.path.is_empty()) {
        let state = match (&file.error, file.applied_s_ago) {
            (Some(_), _) => "REJECTED, the previous content stays in force".to_owned(),
            (None, Some(ago)) => format!("applied {} ago", span(ago)),
            (None, None) => "not read yet".to_owned(),
        };
        line(name, format!("{} ({state})", file.path));
    }
    if !status.store.path.is_empty() {
        let state = match &status.store.damage {
            Some(_) => " (DAMAGED: no changes are accepted)",
            None => "",
        };
        line("store", format!("{}{state}", status.store.path));
    }
    let hops = &status.next_hops;
    line("next hops", format!("{} known of {} needed", hops.known, hops.needed));
    line("flows", format!("{} of {}", count(status.flows.used), count(status.flows.max)));
    text.push_str(table.text().trim_start_matches('\n'));
    for (name, file) in files {
        if let Some(error) = &file.error {
            text.push_str(&format!("\nthe {name} was rejected:\n{error}\n"));
        }
    }
    // A removal by files that is on hold is already shown as the error of the file.
    let files = slowpath::sources::file_sources();
    let is_file = |source: &str| files.iter().any(|file| file.as_str() == source);
    for one in status.held.iter().filter(|one| !is_file(&one.source)) {
        text.push_str(&format!("\n{}\n", one.message));
    }
    let store = &status.store;
    for message in store.damage.iter().chain(&store.truncated) {
        text.push_str(&format!("\nstore: {message}\n"));
    }
    for one in &status.listeners {
        let duration = match one.failing_for_s {
            0 => String::new(),
            seconds => format!(" (for {})", span(seconds)),
        };
        text.push_str(&format!("\nnot listening{duration}: {}\n", one.error));
    }
    if let Some(error) = &status.audit.error {
        let lost = status.audit.lost;
        text.push_str(&format!("\naudit log ({lost} entries lost): {error}\n"));
    }
    for one in &status.secrets {
        if let Some(error) = &one.error {
            text.push_str(&format!("\nsecret rejected; if one was in force, it stays: {error}\n"));
        }
        for warning in &one.warnings {
            text.push_str(&format!("\nsecret: {warning}\n"));
        }
        if let Some(left) = one.overlap_left_s {
            let left = span(left);
            let key = &one.key;
            text.push_str(&format!("\n{key}: the replaced token is accepted for {left} more\n"));
        }
    }
    if let Some(message) = &hops.error {
        text.push_str(&format!("\nnext hops: {message}\n"));
    }
    for finding in &status.findings {
        text.push_str(&format!("\nfinding: {finding}\n"));
    }
    text.push('\n');
    text.push_str(&lcores(status));
    if !status.nics.is_empty() {
        text.push('\n');
        text.push_str(&nics(&status.nics));
    }
    text
}

/// Formats the state of frontends: `12 done, 1 pending, 1 rejected: 203.0.113.10:80/TCP: raise
/// region.slots`.
fn frontends(of: &Frontends) -> String {
    let mut text = format!("{} done", of.done);
    if of.pending > 0 {
        text.push_str(&format!(", {} pending", of.pending));
    }
    if of.errors > 0 {
        text.push_str(&format!(", {} rejected: {}", of.errors, of.error));
    }
    if !of.waiting_for.is_empty() {
        text.push_str(&format!("; waiting for {}", of.waiting_for.join(", ")));
    }
    text
}

fn lcores(status: &Status) -> String {
    if status.lcores.is_empty() {
        return "no lcore: the data plane is not running\n".to_owned();
    }
    let mut table = Table::new(&["LCORE", "STATE", ">GENERATION", ">BUSY", "LINKS"]);
    for lcore in &status.lcores {
        let links = lcore
            .links
            .iter()
            .map(|link| format!("{} {}", link.arm, if link.up { "up" } else { "DOWN" }));
        table.row(vec![
            lcore.id.to_string(),
            if lcore.polling { "polling" } else { "STALLED" }.to_owned(),
            lcore.acknowledged.to_string(),
            format!("{:.0} %", lcore.busy * 100.0),
            links.collect::<Vec<_>>().join(", "),
        ]);
    }
    table.text()
}

/// Formats the NICs: their states, and the packets that were lost at the NIC.
pub fn nics(nics: &[NicReport]) -> String {
    let headings =
        ["ARM", "NIC", "DRIVER", "STATE", "LINK", ">ARRIVED", ">TAKEN", ">MISSED", ">ERRORS"];
    let mut table = Table::new(&headings);
    for nic in nics {
        let link = match (nic.link_up, nic.speed_mbps) {
            (true, 0) => "up".to_owned(),
            (true, mbps) => format!("up, {}", speed(mbps)),
            (false, _) => "DOWN".to_owned(),
        };
        let state =
            if nic.state == "running" { nic.state.clone() } else { nic.state.to_uppercase() };
        table.row(vec![
            nic.arm.clone(),
            nic.port.clone(),
            nic.driver.clone(),
            state,
            link,
            count(nic.arrived),
            count(nic.taken),
            count(nic.counter("missed_packets")),
            count(nic.counter("receive_errors") + nic.counter("send_errors") + nic.xdp_losses()),
        ]);
    }
    let mut text = table.text();
    for nic in nics.iter().filter(|nic| !nic.detail.is_empty()) {
        text.push_str(&format!("{}: {}\n", nic.arm, nic.detail));
    }
    text
}

/// Formats the speed of a link.
fn speed(mbps: u32) -> String {
    match mbps {
        mbps if mbps.is_multiple_of(1000) => format!("{} Gbit/s", mbps / 1000),
        mbps => format!("{mbps} Mbit/s"),
    }
}

/// Formats the counters and troubles of the NICs, and the counters of their drivers; those that are
/// zero only if `all`.
pub fn driver_counters(nics: &[NicReport], all: bool) -> String {
    let mut table = Table::new(&["ARM", "COUNTER", ">VALUE"]);
    for nic in nics {
        let named = nic.counters.iter().chain(&nic.events).chain(&nic.driver_counters);
        for (name, value) in named.filter(|(_, value)| all || **value > 0) {
            table.row(vec![nic.arm.clone(), name.clone(), count(*value)]);
        }
    }
    if table.is_empty() { String::new() } else { format!("\n{}", table.text()) }
}

/// Formats the packets that were lost at the NICs, received or sent, with the meaning of each loss;
/// empty without losses.
pub fn nic_losses(nics: &[NicReport]) -> String {
    let mut table = Table::new(&["ARM", "LOST AT THE NIC", ">COUNT", "MEANING"]);
    for nic in nics {
        for (name, lost, help) in nic.losses() {
            table.row(vec![nic.arm.clone(), name.to_owned(), count(lost), help.to_owned()]);
        }
    }
    if table.is_empty() { String::new() } else { format!("\n{}", table.text()) }
}

/// Formats `weir services`.
pub fn services(services: &[ServiceReport]) -> String {
    if services.is_empty() {
        return "no services, or none with this name; `weir status` shows whether the services file \
                was rejected\n"
            .to_owned();
    }
    let mut text = String::new();
    for service in services {
        let mode = match service.tunnel.as_str() {
            "" => service.mode.clone(),
            tunnel => format!("{} over {tunnel}", service.mode),
        };
        if service.name == OTHERS {
            text.push_str(&format!(
                "{OTHERS}  services and backends without counters of their own "
            ));
            text.push_str("(region.counted_services, region.counted_backends)\n");
        } else {
            text.push_str(&format!("{}  ({mode})\n", service.name));
            text.push_str(&format!("  frontends  {}\n", service.frontends.join(", ")));
        }
        if service.in_others {
            text.push_str(&format!("  counted in {OTHERS}, in whole or in part\n"));
        }
        text.push_str(&format!(
            "  traffic    {} packets, {}, {} live flows, {} begun, {} drops\n",
            count(service.packets),
            bytes(service.bytes),
            count(service.flows),
            count(service.new_flows),
            count(service.drops)
        ));
        for line in backends(service).text().lines() {
            text.push_str(&format!("  {line}\n"));
        }
        if service.backends.iter().any(|backend| backend.shared) {
            text.push_str("  * shared with other services; the counts are those of all of them\n");
        }
        text.push('\n');
    }
    text.pop();
    text
}

fn backends(service: &ServiceReport) -> Table {
    let mut table = Table::new(&[
        "BACKEND", "STATE", ">WEIGHT", ">SHARE", ">FLOWS", ">BEGUN", ">PACKETS", ">BYTES", "MAC",
    ]);
    for backend in &service.backends {
        let shared = if backend.shared { " *" } else { "" };
        let own = |text: String| if backend.in_others { OTHERS.to_owned() } else { text };
        table.row(vec![
            state::text::address_port(&backend.address, backend.port) + shared,
            backend.state.clone(),
            backend.weight.to_string(),
            format!("{:.1} %", backend.share * 100.0),
            own(count(backend.flows)),
            own(count(backend.new_flows)),
            own(count(backend.packets)),
            own(bytes(backend.bytes)),
            backend.mac.clone().unwrap_or_else(|| "unknown".to_owned()),
        ]);
    }
    table
}

/// Formats `weir flows`.
pub fn flows(page: &FlowPage) -> String {
    let mut table = Table::new(&[
        "PROTO", "CLIENT", "FRONTEND", "KIND", "SERVICE", "BACKEND", "SOURCE", "GATEWAY", "STATE",
        ">IDLE",
    ]);
    for flow in &page.flows {
        let gateway = match (flow.gateway.as_str(), flow.node.as_str()) {
            (gateway, "") => gateway.to_owned(),
            (gateway, node) => format!("{gateway} {node}"),
        };
        table.row(vec![
            flow.protocol.clone(),
            flow.client.clone(),
            flow.frontend.clone(),
            flow.kind.clone(),
            flow.service.clone(),
            flow.backend.clone(),
            flow.source.clone(),
            gateway,
            flow.state.clone(),
            format!("{} s", flow.idle_s),
        ]);
    }
    let shown = page.flows.len();
    let more = if page.next.is_some() { "; there are more (--limit, --all)" } else { "" };
    let used = count(page.total.used);
    format!("{}{shown} shown, {used} of {} in use{more}\n", table.text(), count(page.total.max))
}

/// Formats `weir drops`; reasons without drops are included only if `all`.
pub fn drops(drops: &[DropReport], all: bool) -> String {
    let mut table = Table::new(&["ARM", "REASON", ">PACKETS", "MEANING"]);
    for drop in drops.iter().filter(|drop| all || drop.packets > 0) {
        let (arm, reason) = (drop.arm.clone(), drop.reason.clone());
        table.row(vec![arm, reason, count(drop.packets), drop.help.clone()]);
    }
    if table.is_empty() {
        return "nothing was dropped\n".to_owned();
    }
    table.text()
}

/// Formats one line of `weir trace`.
pub fn trace(line: &TraceLine) -> String {
    format!("packet {:<3} lcore {:<2} {:<10} {}", line.packet, line.lcore, line.stage, line.result)
}
