//! The status as the table `health` (`weir db show health`): a row for each component.

use listeners::ListenerStatus;
use serde_json::{Map, Value, json};

use super::{FailingListener, FileStatus, Status};

/// Returns one row for each component, sorted by name, with the columns `name`, `level` (`OK`,
/// `Degraded` or `Stopped`) and `message`.
pub fn health(status: &Status) -> Vec<Map<String, Value>> {
    let mut rows = Vec::new();
    let mut row = |name: String, level: &str, message: String| {
        let columns = [("name", json!(name)), ("level", json!(level)), ("message", json!(message))];
        rows.push(columns.into_iter().map(|(column, value)| (column.to_owned(), value)).collect());
    };
    match status.able {
        true => {
            row("appliance".to_owned(), "OK", "able to serve: new traffic is accepted".to_owned())
        }
        false => row("appliance".to_owned(), "Degraded", status.reasons.join("; ")),
    }
    for one in &status.listeners {
        row(format!("listener {} {}", one.key, one.address), "Degraded", one.error.clone());
    }
    for one in &status.secrets {
        let (name, mut faults) = (format!("secret {}", one.key), one.warnings.clone());
        faults.splice(0..0, one.error.clone());
        match (faults.is_empty(), one.overlap_left_s) {
            (false, _) => row(name, "Degraded", faults.join("; ")),
            (true, Some(left)) => {
                row(name, "OK", format!("in force, the replaced one for {left} s more"));
            }
            (true, None) => row(name, "OK", format!("{} is in force", one.path)),
        }
    }
    let frontends = &status.frontends;
    let all = frontends.done + frontends.pending + frontends.errors;
    match (frontends.errors, frontends.pending) {
        (0, 0) => row("control.frontends".to_owned(), "OK", format!("OK, {all} object(s)")),
        (0, pending) => {
            let message = format!("{pending} of {all} pending");
            row("control.frontends".to_owned(), "OK", message);
        }
        (errors, _) => {
            let first = &frontends.error;
            let message = format!("{errors} error(s): {first}");
            row("control.frontends".to_owned(), "Degraded", message);
        }
    }
    match frontends.waiting_for.is_empty() {
        true => row("control.sources".to_owned(), "OK", "all sources have synced".to_owned()),
        false => {
            let message = format!("waiting for {}", frontends.waiting_for.join(", "));
            row("control.sources".to_owned(), "Degraded", message);
        }
    }
    for one in &status.held {
        row(format!("source {}", one.source), "Degraded", one.message.clone());
    }
    for nic in status.nics.iter().filter(|nic| !nic.detail.is_empty()) {
        row(format!("nic {}", nic.arm), "Degraded", format!("{}: {}", nic.state, nic.detail));
    }
    for lcore in &status.lcores {
        let links = lcore.links.iter().filter(|link| !link.up).map(|link| link.arm.as_str());
        let down: Vec<&str> = links.collect();
        let name = format!("lcores.{}", lcore.id);
        match (lcore.polling, lcore.late, down.is_empty()) {
            (false, ..) => row(name, "Stopped", "does not poll".to_owned()),
            (_, true, _) => {
                let message = format!("late: serves generation {}", lcore.acknowledged);
                row(name, "Degraded", message);
            }
            (.., false) => row(name, "Degraded", format!("link down: {}", down.join(", "))),
            _ => row(name, "OK", format!("polls, serves generation {}", lcore.acknowledged)),
        }
    }
    let hops = &status.next_hops;
    match &hops.error {
        Some(error) => row("next-hops".to_owned(), "Degraded", error.clone()),
        None => {
            let level = if hops.known < hops.needed { "Degraded" } else { "OK" };
            let message = format!("{} known of {} needed", hops.known, hops.needed);
            row("next-hops".to_owned(), level, message);
        }
    }
    let store = &status.store;
    match (&store.damage, &store.truncated) {
        (Some(damage), _) => row("store".to_owned(), "Stopped", damage.clone()),
        (None, Some(truncated)) => row("store".to_owned(), "OK", truncated.clone()),
        (None, None) if store.path.is_empty() => {}
        (None, None) => row("store".to_owned(), "OK", format!("objects are in {}", store.path)),
    }
    for (name, file) in
        [("configuration", &status.config_file), ("services", &status.services_file)]
    {
        if !file.path.is_empty() {
            let (level, message) = file_health(file);
            row(format!("sources.{name}"), level, message);
        }
    }
    rows.sort_by_key(name);
    rows
}

fn file_health(file: &FileStatus) -> (&'static str, String) {
    match (&file.error, file.applied_s_ago) {
        (Some(error), _) => ("Degraded", format!("{} was rejected: {error}", file.path)),
        (None, Some(ago)) => ("OK", format!("{} applied {ago} s ago", file.path)),
        (None, None) => ("Stopped", format!("{} has not been read yet", file.path)),
    }
}

fn name(row: &Map<String, Value>) -> String {
    row.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the listeners that are not listening, of all listeners.
pub(crate) fn listeners(all: Vec<ListenerStatus>) -> Vec<FailingListener> {
    let failing = all.into_iter().filter_map(|one| {
        Some(FailingListener {
            key: one.key,
            address: one.address.to_string(),
            error: one.error?,
            failing_for_s: one.failing_for.as_secs(),
        })
    });
    failing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::report::{Frontends, Lcore, Link, SecretStatus};

    fn level<'r>(rows: &'r [Map<String, Value>], part: &str) -> (&'r str, &'r str) {
        let row = rows.iter().find(|row| row["name"] == part).unwrap();
        (row["level"].as_str().unwrap(), row["message"].as_str().unwrap())
    }

    #[test]
    fn every_component_reports_its_health() {
        let mut status = Status {
            able: true,
            frontends: Frontends { done: 3, ..Frontends::default() },
            lcores: vec![Lcore { id: 1, polling: true, acknowledged: 7, ..Lcore::default() }],
            ..Status::default()
        };
        assert!(health(&status).iter().all(|row| row["level"] == "OK"));
        assert_eq!(level(&health(&status), "control.frontends").1, "OK, 3 object(s)");

        let secret = SecretStatus { key: "api.tls_cert".to_owned(), ..SecretStatus::default() };
        status.secrets = vec![secret];
        assert_eq!(level(&health(&status), "secret api.tls_cert").0, "OK");
        status.secrets[0].warnings = vec!["it expired".to_owned()];
        status.secrets[0].error = Some("no PEM".to_owned());
        let message = "no PEM; it expired";
        assert_eq!(level(&health(&status), "secret api.tls_cert"), ("Degraded", message));
        status.able = false;
        status.reasons = vec!["link down".to_owned()];
        status.frontends.errors = 1;
        status.frontends.error = "203.0.113.10:80/TCP: raise region.slots".to_owned();
        status.frontends.waiting_for = vec!["kubernetes".to_owned()];
        status.lcores[0].links = vec![Link { arm: "egress".to_owned(), up: false, share: None }];
        status.services_file =
            FileStatus { path: "s.toml".to_owned(), applied_s_ago: None, error: Some("no".into()) };
        let rows = health(&status);
        assert_eq!(level(&rows, "appliance"), ("Degraded", "link down"));
        let message = "1 error(s): 203.0.113.10:80/TCP: raise region.slots";
        assert_eq!(level(&rows, "control.frontends"), ("Degraded", message));
        assert_eq!(level(&rows, "control.sources"), ("Degraded", "waiting for kubernetes"));
        assert_eq!(level(&rows, "lcores.1"), ("Degraded", "link down: egress"));
        assert_eq!(level(&rows, "sources.services"), ("Degraded", "s.toml was rejected: no"));
        let damage = "log is damaged at byte 7: no; restore it";
        status.store.damage = Some(damage.to_owned());
        assert_eq!(level(&health(&status), "store"), ("Stopped", damage));
        status.lcores[0].polling = false;
        assert_eq!(level(&health(&status), "lcores.1"), ("Stopped", "does not poll"));
    }
}
