//! Tests of complete lists that would remove too much: an empty, truncated or missing services
//! file, or a smaller session. They are held, also over a restart, until the removal is confirmed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::api::config_without_services;
use crate::appliance::{Answer, Folder};
use crate::command::with_an_lcore;
use crate::generation;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Returns `count` services in Weir's format, beginning at number `first`.
fn text(first: usize, count: usize) -> String {
    let one = |n: usize| {
        format!(
            "[[service]]\nname = \"s{n}\"\nmode = \"nat\"\n\
             frontends = [{{address = \"203.0.113.{n}\", port = 80, protocol = \"tcp\"}}]\n\
             backends = [{{address = \"10.97.2.11\", port = 80}}]\n"
        )
    };
    (first..first + count).map(one).collect()
}

/// Returns the names of the desired services.
fn names(folder: &Folder) -> Vec<String> {
    let all = folder.until(&["get", "services"], Value::is_array);
    let name = |object: &Value| object["name"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(name).collect()
}

/// Waits until the files are rejected with an error that contains `why`; returns the status.
fn assert_held(folder: &Folder, why: &str) -> Value {
    folder.until(&["status"], |status| {
        status["services_file"]["error"].as_str().is_some_and(|error| error.contains(why))
    })
}

/// Waits until the files are in force.
fn assert_applied(folder: &Folder) {
    folder.until(&["status"], |status| {
        status["services_file"]["error"].is_null() && status["held"] == json!([])
    });
}

/// Returns the output of `weir`, with its errors.
fn shown(folder: &Folder, args: &[&str]) -> String {
    let out = folder.weir(args);
    String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
}

/// Returns the folder of an appliance with this services file.
fn with_services(name: &str, text: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("services.toml", text);
    folder
}

/// Same as `with_services`, with a folder of services files; returns also its path.
fn with_folder(name: &str, files: &[(&str, String)]) -> (Folder, PathBuf) {
    let folder = Folder::new(name);
    let services = folder.path.join("services.d");
    fs::create_dir(&services).unwrap();
    for (name, text) in files {
        folder.write(&format!("services.d/{name}"), text);
    }
    folder.write("weir.toml", &folder.config().replace("services.toml", "services.d"));
    (folder, services)
}

#[test]
fn an_empty_commented_out_or_truncated_file_removes_no_service() {
    let all = text(1, 12);
    let folder = with_services("removal-file", &all);
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| status["services"] == 12);
    with_an_lcore(&folder, || {
        folder.until(&["status"], |status| status["able"] == true);
        let commented: String = all.lines().map(|line| format!("# {line}\n")).collect();
        let everything = "all 24 objects of the source";
        for (text, why) in
            [(String::new(), everything), (commented, everything), (text(1, 5), "14 of 24 objects")]
        {
            let at = generation(&folder.until(&["status"], |_| true));
            folder.write("services.toml", &text);
            let status = assert_held(&folder, why);
            assert_eq!((generation(&status), &status["services"]), (at, &json!(12)));
            assert_eq!(
                (&status["able"], &status["held"][0]["source"]),
                (&json!(true), &json!("file"))
            );
            assert_eq!(names(&folder).len(), 12);
            assert!(folder.get(folder.ports[0], "/health", "*/*").contains("200"));
            let metrics = folder.get(folder.ports[2], "/metrics", "*/*");
            assert!(
                metrics.contains("weir_source_removal_on_hold{source=\"file\"} 1"),
                "{metrics}"
            );
            for args in [&["get", "source"][..], &["db", "show", "health"], &["status"]] {
                let shown = shown(&folder, args);
                assert!(shown.contains(why), "{args:?} without {why:?}:\n{shown}");
            }
            folder.write("services.toml", &all);
            assert_applied(&folder);
        }
        let metrics = folder.get(folder.ports[2], "/metrics", "*/*");
        assert!(metrics.contains("weir_source_removal_on_hold{source=\"file\"} 0"), "{metrics}");
        // Half of the list may be removed without a confirmation.
        folder.write("services.toml", &text(1, 6));
        folder.until(&["status"], |status| status["services"] == 6);
    });
}

#[test]
fn a_non_regular_file_or_a_large_removal_in_a_folder_changes_nothing() {
    let files = [("a.toml", text(1, 8)), ("b.toml", text(21, 2))];
    let (folder, services) = with_folder("removal-folder", &files);
    let _slowpath = folder.slowpath();
    let status = folder.until(&["status"], |status| {
        generation(status) > 0 && status["services"] == 10 && status["held"] == json!([])
    });
    let at = generation(&status);
    let (a, b) = (services.join("a.toml"), services.join("b.toml"));
    let nothing_changed = |why: &str| {
        let status = assert_held(&folder, why);
        assert_eq!((generation(&status), names(&folder).len()), (at, 10), "{why}");
    };
    // In each case, another change in the folder must not be applied either.
    folder.write("services.d/c.toml", "[[service]]\nname = \"c\"\n");
    nothing_changed("c.toml");
    symlink("/nowhere/at/all", services.join("link")).unwrap();
    fs::rename(services.join("link"), &b).unwrap();
    folder.write("services.d/c.toml", &text(31, 1));
    nothing_changed("b.toml: No such file");
    fs::remove_file(&b).unwrap();
    fs::create_dir(&b).unwrap();
    nothing_changed("it is a directory, not a regular file");
    fs::remove_dir(&b).unwrap();
    // With both files gone and one new service, 20 objects would be removed.
    fs::rename(&a, services.join("a.hidden")).unwrap();
    nothing_changed("all 20 objects of the source");
    folder.write("services.d/b.toml", &text(21, 2));
    nothing_changed("16 of 20 objects");
    fs::remove_file(&b).unwrap();
    fs::remove_file(services.join("c.toml")).unwrap();
    nothing_changed("all 20 objects of the source");
    assert_eq!(fs::read_dir(&services).unwrap().count(), 1, "the folder has nothing to be read");

    // One small missing file is the removal of its service.
    fs::rename(services.join("a.hidden"), &a).unwrap();
    folder.until(&["status"], |status| status["services"] == 8);
    assert_applied(&folder);
}

#[test]
fn a_held_removal_survives_restarts_until_confirmed() {
    let folder = with_services("removal-restart", &text(1, 1));
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |status| status["services"] == 1);
    slowpath.kill();
    // The file was lost while slowpath was down.
    folder.write("services.toml", "");
    for _ in 0..2 {
        let mut slowpath = folder.slowpath();
        let status = assert_held(&folder, "all 2 objects of the source");
        assert_eq!((&status["services"], names(&folder)), (&json!(1), vec!["s1".to_owned()]));
        slowpath.kill();
    }
    let _slowpath = folder.slowpath();
    assert_held(&folder, "weir source confirm file");
    let confirmed = shown(&folder, &["source", "confirm", "file"]);
    assert_eq!(confirmed, "file: the removal of 2 of 2 objects is confirmed\n");
    folder.until(&["status"], |status| status["services"] == 0);
    assert_applied(&folder);
    assert!(names(&folder).is_empty());
    // The confirmation was for that list only.
    let again = folder.weir(&["source", "confirm", "file"]);
    let stderr = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        again.status.code() == Some(2) && stderr.contains("no list of source `file`"),
        "{stderr}"
    );
    folder.write("services.toml", &text(1, 1));
    folder.until(&["status"], |status| status["services"] == 1);
    folder.write("services.toml", "");
    assert_held(&folder, "is held");
}

#[test]
fn a_key_in_a_services_file_permits_the_removal() {
    let folder = with_services("removal-key", &text(1, 12));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| status["services"] == 12);
    folder.write("services.toml", &text(1, 2));
    assert_held(&folder, "20 of 24 objects");
    folder.write("services.toml", &format!("allow_removal = true\n{}", text(1, 2)));
    folder.until(&["status"], |status| status["services"] == 2);
    assert_applied(&folder);
    folder.write("services.toml", "allow_removal = true\n");
    folder.until(&["status"], |status| status["services"] == 0);
    assert!(names(&folder).is_empty());
}

#[test]
fn the_removal_limit_is_reloaded_at_run_time() {
    let folder = with_services("removal-share", &text(1, 10));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| status["services"] == 10);
    let set_limit = |percent: u8, times: usize| {
        let config = folder.config();
        let control = "[control]\n";
        assert!(config.contains(control));
        let changed = format!("{control}max_removal_percent = {percent}\n");
        folder.write("weir.toml", &config.replace(control, &changed));
        let is_applied = |_: &Value| {
            let log = fs::read_to_string(folder.path.join("log")).unwrap();
            log.matches("configuration applied").count() == times
        };
        folder.until(&["status"], is_applied);
    };
    set_limit(0, 1);
    folder.write("services.toml", &text(1, 9));
    assert_held(&folder, "more than the 0 % of control.max_removal_percent");
    folder.write("services.toml", &text(1, 10));
    assert_applied(&folder);
    set_limit(80, 2);
    folder.write("services.toml", &text(1, 2));
    folder.until(&["status"], |status| status["services"] == 2);
}

/// Sends a request below `/v1/sources`.
fn request(folder: &Folder, method: &str, path: &str, body: &Value) -> Answer {
    folder.request(method, &format!("/v1/sources/{path}"), &[JSON], &body.to_string())
}

/// Opens a session of source `inventory` with these objects; returns its path for the commit.
fn session(folder: &Folder, objects: &Value) -> String {
    let begun = request(folder, "POST", "inventory/sessions", &json!({ "revision": "1" })).json();
    let session = format!("inventory/sessions/{}", begun["session"]);
    assert_eq!(request(folder, "PUT", &format!("{session}/chunks/0"), objects).status, 200);
    format!("{session}/commit")
}

#[test]
fn a_session_that_lost_its_services_is_held_but_single_deletes_are_applied() {
    let folder = Folder::new("removal-session");
    folder.write("weir.toml", &config_without_services(&folder));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |_| true);
    let service = |n: usize| {
        let address = format!("203.0.113.{n}");
        let frontend = json!({ "address": address, "port": 80, "protocol": "tcp" });
        json!({ "kind": "Service", "name": format!("s{n}"), "spec": { "frontends": [frontend] } })
    };
    let all: Value = (1..=12).map(service).collect();
    let none = json!({});
    let commit = session(&folder, &all);
    assert_eq!(request(&folder, "POST", &commit, &none).status, 200);

    let commit = session(&folder, &json!([]));
    let tried = request(&folder, "POST", &format!("{commit}?dry_run=true"), &none);
    assert_eq!(tried.json()["type"], "urn:weir:held");
    let report = |folder: &Folder| request(folder, "GET", "inventory", &none).json();
    assert_eq!(report(&folder)["held"], Value::Null, "a dry run does not hold");
    let held = request(&folder, "POST", &commit, &none);
    assert_eq!((held.status, &held.json()["type"]), (409, &json!("urn:weir:held")), "{held:?}");
    assert_eq!(
        (report(&folder)["held"].clone(), names(&folder).len()),
        (held.json()["detail"].clone(), 12)
    );
    let status = shown(&folder, &["status"]);
    assert!(status.contains("the list of source `inventory` is held"), "{status}");
    let wrong = request(&folder, "POST", &commit, &json!({ "allow_removals": true }));
    assert_eq!((wrong.status, names(&folder).len()), (422, 12), "{wrong:?}");

    // Confirmed by the operator, for that list only.
    let confirmed = shown(&folder, &["source", "confirm", "inventory"]);
    assert_eq!(confirmed, "inventory: the removal of 12 of 12 objects is confirmed\n");
    assert_eq!(names(&folder).len(), 12, "nothing changes until the source commits again");
    let other = session(&folder, &json!([service(1)]));
    assert_eq!(request(&folder, "POST", &other, &none).status, 409);
    let commit = session(&folder, &json!([]));
    assert_eq!(request(&folder, "POST", &commit, &none).status, 409, "this list is held now");
    assert_eq!(request(&folder, "POST", "inventory/confirm", &none).json()["removed"], 12);
    let made = request(&folder, "POST", &commit, &none);
    assert_eq!(made.json(), json!({ "written": 0, "released": 12 }), "{made:?}");
    assert!(names(&folder).is_empty());

    // Permitted by the source itself.
    let commit = session(&folder, &all);
    assert_eq!(request(&folder, "POST", &commit, &none).status, 200);
    let commit = session(&folder, &json!([service(1)]));
    assert_eq!(request(&folder, "POST", &commit, &none).status, 409);
    assert_eq!(request(&folder, "POST", &commit, &json!({ "allow_removal": true })).status, 200);
    assert_eq!(names(&folder), ["s1"]);
    assert_eq!(report(&folder)["held"], Value::Null);

    // The only object of the source `api` can be deleted without a confirmation.
    let only = "/v1/objects/service/shop/only";
    let body = json!({ "spec": { "frontends": [] } }).to_string();
    assert_eq!(folder.request("PUT", only, &[JSON], &body).status, 201);
    assert_eq!(folder.request("DELETE", only, &[], "").status, 204);
}
