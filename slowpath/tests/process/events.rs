//! Tests of the history of events and of the log: over kills, on a full disk, with a log that is
//! not read.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::appliance::{Folder, Running, Tmpfs, weir};
use crate::generation;

/// Returns the records that `weir events` prints with these arguments.
fn events(folder: &Folder, args: &[&str]) -> Vec<Value> {
    let out = folder.weir(&[&["events", "--json"], args].concat());
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

/// Waits until `weir events` has a record of this event.
fn until_recorded(folder: &Folder, event: &str) -> Value {
    patience::eventually(event, || {
        let found = events(folder, &["--kind", event]);
        found.last().cloned().ok_or_else(|| "no record".to_owned())
    })
}

#[test]
fn the_history_survives_a_kill_and_is_readable_without_slowpath() {
    let folder = Folder::new("events-kill");
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    assert!(folder.weir(&["drain"]).status.success());
    until_recorded(&folder, "drain_started");
    slowpath.kill();
    let offline = events(&folder, &[]);
    let found = names(&offline);
    for event in ["slowpath_started", "service_added", "services_applied", "drain_started"] {
        assert!(found.contains(&event), "{event}: {found:?}");
    }
    let added = offline.iter().find(|event| event["event"] == "service_added").unwrap();
    assert_eq!(added["fields"]["service"], "default/web");
    let numbers: Vec<u64> = offline.iter().map(|e| e["number"].as_u64().unwrap()).collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");

    // A record that was cut in the middle, as by a loss of power.
    let segments = std::fs::read_dir(folder.path.join("state/events")).unwrap();
    let segments = segments.map(|entry| entry.unwrap().path());
    let segment = segments.filter(|path| !path.ends_with("lock")).max().unwrap();
    let content = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &content[..content.len() - 20]).unwrap();
    let kept = numbers.len() - 1;

    // A start that fails: its error is printed once, and does not hide the kill.
    let mut failing = Command::new(env!("CARGO_BIN_EXE_slowpath"));
    failing.arg("--config").arg(folder.path.join("weir.toml"));
    let failed = failing.args(["--set", "control.socket=/dev/null"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(printed.matches("/dev/null").count(), 1, "{printed}");
    assert!(printed.contains("event=slowpath_start_failed"), "{printed}");

    let services = std::fs::read_to_string(folder.path.join("services.toml")).unwrap();
    folder.write("services.toml", &services.replace("203.0.113.1", "203.0.113.2"));
    let mut slowpath = folder.slowpath();
    let ended = until_recorded(&folder, "slowpath_ended_uncleanly");
    assert_eq!(ended["fields"]["last_seen"], offline[kept - 1]["time"]);
    until_recorded(&folder, "service_changed");
    let all = events(&folder, &[]);
    assert_eq!(all[..kept], offline[..kept]);
    let numbers: Vec<u64> = all.iter().map(|e| e["number"].as_u64().unwrap()).collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
    let warnings = events(&folder, &["--severity", "warning", "--since", "1h"]);
    assert!(!warnings.is_empty());
    assert!(warnings.iter().all(|event| event["severity"] != "info"), "{warnings:?}");
    assert_eq!(events(&folder, &["--until", "1h"]), [] as [Value; 0]);

    // A shutdown is not recorded as an unclean end.
    slowpath.terminate();
    assert!(slowpath.0.wait().unwrap().success());
    assert_eq!(names(&events(&folder, &[])).last(), Some(&"slowpath_stopped"));
    let _third = folder.slowpath();
    patience::eventually("the third start", || {
        let started = events(&folder, &["--kind", "slowpath_started"]).len();
        patience::check(started == 3, || started.to_string())
    });
    assert_eq!(events(&folder, &["--kind", "slowpath_ended_uncleanly"]).len(), 1);
}

#[test]
fn errors_of_invalid_options_name_the_option_or_the_value() {
    let folder = Folder::new("events-options");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    for (args, text) in [
        (&["events", "--since", "soon"][..], "since: `soon`"),
        (&["events", "--kind", "nothing"], "kind: `nothing`"),
        (&["events", "--severity", "fatal"], "use info, warning or error"),
        (&["log", "level", "loud"], "`loud` is not a log level"),
        (&["log", "level", "debug", "--for", "10"], "--for: `10`"),
    ] {
        let out = folder.weir(args);
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && error.contains(text), "{args:?}: {error}");
    }
}

#[test]
fn followers_get_new_records_and_those_since_a_time_if_asked() {
    let folder = Folder::new("events-follow");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    let follow = |args: &[&str]| {
        let mut follow = Command::new(weir());
        follow.args(["--json", "--socket", &folder.socket(), "events", "--follow"]).args(args);
        let mut follow = Running(follow.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(follow.0.stdout.take().unwrap()).lines();
        (follow, lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()))
    };
    assert!(folder.weir(&["drain"]).status.success());
    let old = until_recorded(&folder, "drain_started");
    let (_since, mut lines) = follow(&["--since", "1h", "--kind", "drain_started,drain_ended"]);
    assert_eq!(lines.next().unwrap(), old);
    assert!(folder.weir(&["drain", "--undo"]).status.success());
    assert_eq!(lines.next().unwrap()["event"], "drain_ended");

    // The stream has begun once it shows a record.
    let before = events(&folder, &[]).last().unwrap()["number"].as_u64();
    let (_new, mut lines) = follow(&[]);
    let first = std::thread::scope(|scope| {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let folder = &folder;
        scope.spawn(move || {
            let pause = std::time::Duration::from_millis(50);
            let mut number = 0;
            while wait.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                number += 1;
                let path = format!("/log/level?level=bgp{number}=debug");
                folder.request("PUT", &path, &[], "");
            }
        });
        let first = lines.next().unwrap();
        drop(stop);
        first
    });
    assert!(first["number"].as_u64() > before, "{first}");
}

#[test]
fn no_level_turns_the_audit_log_off() {
    let folder = Folder::new("log-audit");
    folder.write("weir.toml", &format!("{}\n[log]\nlevel = \"off\"\n", folder.config()));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    assert!(folder.weir(&["drain"]).status.success());
    let audited = |call: &str| {
        patience::eventually(call, || {
            let log = folder.log();
            let is_call = |line: &str| line.contains(&format!("call={call}"));
            patience::check(log.lines().any(is_call), || log.clone())
        });
    };
    audited("drain");
    let log = folder.log();
    assert!(log.lines().all(|line| line.contains(" audit: ")), "{log}");
    assert!(folder.weir(&["log", "level", "bgp=off", "--for", "1h"]).status.success());
    assert!(folder.weir(&["log", "level", "off"]).status.success());
    audited("setLogLevel");
    let entries = folder.weir(&["audit", "--json", "--object", "log/level"]);
    let entries: Value = serde_json::from_slice(&entries.stdout).unwrap();
    let change = &entries[1]["changes"][0];
    assert_eq!(
        (&change["before"]["level"], &change["after"]["level"]),
        (&"info,bgp=off".into(), &"off".into())
    );
    for query in ["seconds=60", "level=debug&second=60", "level=debug&seconds=0"] {
        let answer = folder.request("PUT", &format!("/log/level?{query}"), &[], "");
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
    }
}

#[test]
fn a_full_disk_is_reported_and_its_events_are_stored_when_it_has_space_again() {
    let folder = Folder::new("events-full");
    let disk = Tmpfs::new(folder.path.join("state"), "1m");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    until_recorded(&folder, "slowpath_started");
    disk.fill();
    let is_reported = |status: &Value| status["findings"].to_string().contains("not stored");
    // The last block of the open segment may have space for some records before writes fail.
    let written = std::cell::Cell::new(0_u64);
    folder.until(&["status"], |status| {
        written.set(written.get() + 1);
        let level = format!("bgp{}=debug", written.get());
        assert!(folder.weir(&["log", "level", &level]).status.success());
        is_reported(status)
    });
    disk.empty();
    folder.until(&["status"], |status| !is_reported(status));
    let changed = events(&folder, &["--kind", "log_level_changed"]);
    let counts = changed.iter().map(|event| event["count"].as_u64().unwrap_or(1));
    assert_eq!(counts.sum::<u64>(), written.get(), "each is stored once");
}

#[test]
fn a_level_ends_after_its_time_and_is_recorded() {
    let folder = Folder::new("log-level");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    let level = |args: &[&str]| -> Value {
        let out = folder.weir(&[&["log", "level", "--json"], args].concat());
        assert!(out.status.success(), "{out:?}");
        serde_json::from_slice(&out.stdout).unwrap()
    };
    assert_eq!(level(&[])["origin"], "log.level");
    let set = level(&["info,slowpath=debug", "--for", "2s"]);
    assert_eq!(
        (&set["level"], &set["origin"]),
        (&"info,slowpath=debug".into(), &"weir log level".into())
    );
    folder.until(&["log", "level"], |status| status["origin"] == "log.level");
    let changed = until_recorded(&folder, "log_level_changed");
    assert_eq!(changed["fields"]["origin"], "log.level");
    level(&["trace"]);
    assert_eq!(level(&["--reset"])["level"], "info");
    // The setting may change at run time.
    folder.write("weir.toml", &format!("{}\n[log]\nlevel = \"warn\"\n", folder.config()));
    folder.until(&["log", "level"], |status| status["level"] == "warn");
}

#[test]
fn a_log_that_is_not_read_stops_nothing_and_its_loss_is_counted() {
    let folder = Folder::new("log-stuck");
    let config = folder.path.join("weir.toml");
    folder
        .write("weir.toml", &format!("{}\n[log]\nlevel = \"trace\"\nlimit = 0\n", folder.config()));
    // Nothing reads the pipe, which has a buffer of 64 KiB.
    let slowpath = Command::new(env!("CARGO_BIN_EXE_slowpath"))
        .args(["--config".as_ref(), config.as_os_str()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _slowpath = Running(slowpath);
    folder.until(&["status"], |status| generation(status) > 0);
    let lost = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("weir_log_lost_lines_total"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or_default()
    };
    patience::eventually("lost lines", || {
        for _ in 0..200 {
            folder.request("PUT", "/log/level?level=trace", &[], "");
        }
        let metrics = folder.request("GET", "/metrics", &[], "").body;
        patience::check(lost(&metrics) > 0, || metrics)
    });
    // The control loop applies a change.
    folder.services(&["10.97.2.77"]);
    folder.until(&["services"], |services| services.to_string().contains("10.97.2.77"));
    assert!(folder.weir(&["drain"]).status.success());
    until_recorded(&folder, "drain_started");
}

#[test]
fn lines_of_json_have_event_message_and_fields() {
    let folder = Folder::new("log-json");
    folder.write("weir.toml", &format!("{}\n[log]\nformat = \"json\"\n", folder.config()));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    let lines = || -> Vec<Value> {
        folder.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let started = patience::eventually("the line", || {
        let found = lines().into_iter().find(|line| line["event"] == "slowpath_started");
        found.ok_or_else(|| folder.log())
    });
    assert_eq!(started["message"], "slowpath started");
    assert_eq!(started["fields"]["socket"], folder.socket());
    assert!(lines().iter().all(|line| line["event"].is_string()), "{}", folder.log());
}
