//! Tests of the daemons' sandboxes: docs/src/operate/security.md states the exposure that
//! `systemd-analyze security` computes for each unit, and the capabilities that the units grant.
#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The units, each with its exposure times ten: 0 is best, 100 worst.
const UNITS: [(&str, u32); 3] = [
    ("weir-slowpath.service", 26),
    ("weir-fastpath.service", 35),
    ("weir-ebpf-fallback.service", 28),
];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name)
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/operate/security.md");
    std::fs::read_to_string(path).unwrap()
}

/// Returns the values of a key of a unit.
fn values(name: &str, key: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path(name)).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.filter(|(found, _)| *found == key).map(|(_, value)| value.to_owned()).collect()
}

#[test]
fn each_unit_has_the_documented_exposure() {
    let page = page();
    for (name, tenths) in UNITS {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager"]).arg(path(name));
        let output = analyze.output();
        let output = output.unwrap_or_else(|e| panic!("systemd-analyze (Debian: systemd): {e}"));
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find(|line| line.contains("Overall exposure level")).unwrap();
        let rated = line.split_once(&format!("{name}: ")).unwrap().1;
        let exposure: f64 = rated.split(' ').next().unwrap().parse().unwrap();
        assert_eq!((exposure * 10.0).round() as u32, tenths, "tenths: {line}");
        let row = format!("| `{name}` | {}.{} |", tenths / 10, tenths % 10);
        assert!(page.contains(&row), "docs/src/operate/security.md lacks the row {row}");
        // With `RemoveIPC=yes`, systemd would remove the region in /dev/shm when the last daemon
        // ends.
        assert_eq!(values(name, "RemoveIPC").iter().find(|value| *value != "no"), None, "{name}");
    }
}

#[test]
fn page_states_the_capabilities_of_each_unit() {
    let page = page();
    for (name, _) in UNITS {
        let granted = values(name, "CapabilityBoundingSet");
        assert_eq!(granted.len(), 1, "{name}: {granted:?}");
        let granted: BTreeSet<&str> = granted[0].split(' ').collect();
        let program = name.trim_start_matches("weir-").trim_end_matches(".service");
        let rows = page.lines().filter_map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let (capability, programs) = (cells.next()?, cells.next()?);
            let named = programs.split(", ").any(|one| one == program);
            (named && capability.starts_with("`CAP_")).then(|| capability.trim_matches('`'))
        });
        assert_eq!(rows.collect::<BTreeSet<&str>>(), granted, "{name}");
    }
    let ambient = values("weir-slowpath.service", "AmbientCapabilities");
    assert_eq!(ambient, values("weir-slowpath.service", "CapabilityBoundingSet"));
}

#[test]
fn every_daemon_reports_readiness_and_has_a_watchdog() {
    for (name, _) in UNITS {
        // notify-reload needs systemd 253; Debian 12 has 252.
        assert_eq!(values(name, "Type"), ["notify"], "{name}");
        let seconds: u32 = values(name, "WatchdogSec")[0].parse().unwrap();
        assert!((5..=60).contains(&seconds), "{name}: {seconds}");
    }
    assert_eq!(values("weir-slowpath.service", "User"), ["weir"]);
}
