//! Tests of the store: persistence over restarts, damaged files, and a full disk.

use std::io::Write;

use serde_json::Value;

use crate::appliance::{Folder, Tmpfs};
use crate::generation;

/// Returns a service of the services file. `last` is the last byte of its address and of its
/// backend's.
fn service(name: &str, last: u8) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nmode = \"nat\"\n\
         frontends = [{{address = \"203.0.113.{last}\", port = 80, protocol = \"tcp\"}}]\n\
         backends = [{{address = \"10.97.2.{last}\", port = 80}}]\n"
    )
}

/// The beginning of a record of the store's log, as an interrupted write leaves it (11 bytes).
const TORN: &[u8] = b"\xf7WR1\x20\0\0\0\x05\0\0";

fn names(services: &Value) -> Vec<&str> {
    let all = services.as_array().into_iter().flatten();
    all.filter_map(|service| service["name"].as_str()).collect()
}

fn log(folder: &Folder) -> String {
    std::fs::read_to_string(folder.path.join("log")).unwrap()
}

#[test]
fn a_missing_services_file_keeps_its_services_until_it_returns() {
    let folder = Folder::new("kept");
    folder.write("services.toml", &(service("shop/a", 11) + &service("shop/b", 12)));
    let mut slowpath = folder.slowpath();
    let both = |s: &Value| names(s).len() == 2 && s[1]["backends"][0]["id"].is_number();
    let before = folder.until(&["services"], both);
    let maps = |folder: &Folder| folder.until(&["maps", "dump"], |lines| lines[0].is_string());
    let dump = maps(&folder);
    let objects = folder.until(&["get", "services"], |o| names(o).len() == 2);
    slowpath.kill();

    // The services file is gone, and the last write was interrupted.
    std::fs::remove_file(folder.path.join("services.toml")).unwrap();
    let state = folder.path.join("state/log");
    std::fs::OpenOptions::new().append(true).open(&state).unwrap().write_all(TORN).unwrap();
    let mut slowpath = folder.slowpath();
    assert_eq!(folder.until(&["services"], both), before);
    assert_eq!(maps(&folder), dump);
    assert_eq!(folder.until(&["get", "services"], |o| names(o).len() == 2), objects);
    assert!(log(&folder).contains("ended in an interrupted write"), "{}", log(&folder));
    let status = folder.until(&["status"], |s| s["store"]["truncated"].is_string());
    assert!(
        status["store"]["truncated"].as_str().unwrap().contains("11 bytes were cut"),
        "{status}"
    );
    let status = folder.until(&["status"], |s| s["services_file"]["error"].is_string());
    assert_eq!(status["frontends"]["waiting_for"][0], "file");
    slowpath.kill();

    // The region is gone too, as after a reboot.
    std::fs::remove_file(folder.path.join("region/file")).unwrap();
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    assert_eq!(names(&folder.until(&["services"], both)), ["shop/a", "shop/b"]);

    // The service `shop/a` was removed from the file while slowpath was down.
    slowpath.kill();
    folder.write("services.toml", &service("shop/b", 12));
    let mut slowpath = folder.slowpath();
    folder.until(&["services"], |s| names(s) == ["shop/b"]);
    let gone = |lines: &Value| !lines.to_string().contains("203.0.113.11");
    folder.until(&["maps", "dump"], |lines| lines[0].is_string() && gone(lines));
    slowpath.kill();
    std::fs::remove_file(folder.path.join("services.toml")).unwrap();
    let _slowpath = folder.slowpath();
    folder.until(&["get", "services"], |o| names(o) == ["shop/b"]);
}

/// Flips a bit at a third of a file of the store; returns its content before and after.
fn flip(folder: &Folder, file: &str) -> [Vec<u8>; 2] {
    let path = folder.path.join("state").join(file);
    let before = std::fs::read(&path).unwrap();
    let mut bytes = before.clone();
    let position = bytes.len() / 3;
    bytes[position] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    [before, bytes]
}

#[test]
fn a_damaged_log_is_reported_and_copied_while_the_region_serves() {
    let folder = Folder::new("damaged");
    let slowpath = folder.slowpath();
    let at = generation(&folder.until(&["status"], |s| generation(s) > 0));
    let object = |name: &str| {
        format!(
            r#"{{"kind": "Service", "name": "{name}", "spec": {{"mode": "nat", "frontends":
               [{{"address": "203.0.113.{}", "port": 80, "protocol": "tcp"}}]}}}}"#,
            20 + name.len()
        )
    };
    for name in ["shop/a", "shop/bb"] {
        let path = format!("/v1/objects/services/{name}");
        let json = [("Content-Type", "application/json")];
        let answer = folder.request("PUT", &path, &json, &object(name));
        assert!(matches!(answer.status, 200..=202), "{answer:?}");
    }
    let before =
        folder.until(&["services"], |s| names(s).len() == 3 && generation_of(&folder) > at);
    let maps = || folder.until(&["maps", "dump"], |lines| lines[0].is_string());
    let dump = maps();
    drop(slowpath);
    let [good, bad] = flip(&folder, "log");

    let mut slowpath = folder.slowpath();
    let status = folder.until(&["status"], |s| s["services_file"]["error"].is_string());
    let damage = status["store"]["damage"].as_str().unwrap();
    let log_file = folder.path.join("state/log");
    let location = format!("{} is damaged at byte ", log_file.display());
    for part in [&location, "a complete record follows at byte", "then restart slowpath"] {
        assert!(damage.contains(part), "no {part:?} in {damage}");
        assert!(log(&folder).contains(part), "no {part:?} in {}", log(&folder));
    }
    assert_eq!((maps(), generation(&status) > at), (dump.clone(), true), "the region serves");
    for (method, path) in [
        ("DELETE", "/v1/objects/services/shop/a"),
        ("GET", "/v1/objects/services/shop/a"),
        ("POST", "/v1/sources/k/renew"),
    ] {
        let answer = folder.request(method, path, &[], "");
        assert!(answer.status == 503 && answer.body.contains("is damaged at byte"), "{answer:?}");
    }
    let shown = folder.weir(&["status"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("DAMAGED") && shown.contains(&location), "{shown}");
    let metrics = folder.get(folder.ports[2], "/metrics", "text/plain");
    assert!(metrics.contains("weir_store_damaged 1"), "{metrics}");
    assert_eq!(std::fs::read(&log_file).unwrap(), bad);
    let copies = || {
        let names = std::fs::read_dir(folder.path.join("state")).unwrap();
        let names = names.map(|entry| entry.unwrap().path());
        names.filter(|path| path.to_string_lossy().contains("/log.damaged-")).collect::<Vec<_>>()
    };
    assert_eq!(std::fs::read(&copies()[0]).unwrap(), bad);

    // Restarts create no further copies; the operator restores the file.
    slowpath.kill();
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| s["store"]["damage"].is_string());
    assert_eq!(copies().len(), 1);
    slowpath.kill();
    std::fs::write(&log_file, good).unwrap();
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| s["store"]["damage"].is_null() && generation(s) > 0);
    assert_eq!(folder.until(&["services"], |s| names(s).len() == 3), before);
    let answer = folder.request("DELETE", "/v1/objects/services/shop/a", &[], "");
    assert_eq!(answer.status, 204, "{answer:?}");
}

fn generation_of(folder: &Folder) -> u64 {
    generation(&folder.until(&["status"], |_| true))
}

#[test]
fn a_damaged_snapshot_is_reported_and_left_in_place() {
    let folder = Folder::new("snapshot");
    let state = folder.path.join("state");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("snapshot"), "nonsense").unwrap();
    let _slowpath = folder.slowpath();
    let status = folder.until(&["status"], |s| s["store"]["damage"].is_string());
    let damage = status["store"]["damage"].as_str().unwrap();
    for part in
        ["state/snapshot is damaged at byte 0", "no record begins at this offset", "restart"]
    {
        assert!(damage.contains(part), "no {part:?} in {damage}");
    }
    assert_eq!(std::fs::read(state.join("snapshot")).unwrap(), b"nonsense");
}

#[test]
fn a_full_disk_rejects_writes_until_space_is_free() {
    let folder = Folder::new("full");
    folder.write("services.toml", &service("shop/a", 11));
    let disk = Tmpfs::new(folder.path.join("state"), "256k");
    let _slowpath = folder.slowpath();
    let at = generation(&folder.until(&["status"], |s| generation(s) > 0));
    let filler = disk.0.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 512]).is_ok() {}
    drop(file);
    // Many objects, because the log may have space left in its last page.
    folder.write(
        "services.toml",
        &(1..60).fold("allow_removal = true\n".to_owned(), |all, n| {
            all + &service(&format!("s/{n}"), n)
        }),
    );
    let file_error = |s: &Value| s["services_file"]["error"].as_str().map(str::to_owned);
    let status = folder.until(&["status"], |s| file_error(s).is_some());
    let error = file_error(&status).unwrap();
    assert!(error.contains("store's disk failed: No space left"), "{error}");
    assert_eq!(generation(&status), at);
    assert_eq!(names(&folder.until(&["services"], |s| s[0]["name"].is_string())), ["shop/a"]);
    let answer = folder.request("DELETE", "/v1/objects/services/none", &[], "");
    assert_eq!(answer.status, 404, "{answer:?}");
    std::fs::remove_file(&filler).unwrap();
    folder.until(&["services"], |s| names(s).len() == 59);
    folder.until(&["status"], |s| file_error(s).is_none());
}
