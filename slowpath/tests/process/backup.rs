//! Test of `weir get all` and `weir apply --restore`: desired state exported from one appliance and
//! imported into another. `restore.rs` tests `weir backup` and `weir restore`. Also a test of the
//! spellings of kinds.

use serde_json::Value;

use crate::api::config_without_services;
use crate::appliance::Folder;
use crate::generation;

/// Runs `weir`, which must exit with this code; returns stdout and stderr.
#[track_caller]
fn run(folder: &Folder, args: &[&str], code: i32) -> (String, String) {
    let out = folder.weir(args);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {out:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&out.stdout), text(&out.stderr))
}

/// Returns kind, name, source and spec of all desired objects.
fn desired(folder: &Folder) -> Vec<[Value; 4]> {
    let (all, _) = run(folder, &["get", "all", "-o", "json"], 0);
    let all: Vec<Value> = serde_json::from_str(&all).unwrap();
    let parts = |object: &Value| ["kind", "name", "source", "spec"].map(|key| object[key].clone());
    all.iter().map(parts).collect()
}

fn of_source(all: &[[Value; 4]], source: &str) -> Vec<[Value; 4]> {
    all.iter().filter(|object| object[2] == source).cloned().collect()
}

#[test]
fn a_backup_restores_api_objects_and_on_request_all_sources() {
    let folder = Folder::new("backup");
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    folder.until(&["get", "service"], |all| all[0].is_object());
    let add = ["service", "add", "shop/web", "--frontend", "tcp://203.0.113.7:80"];
    let no_wait = ["--backend", "10.97.2.21:80", "--wait", "0"];
    run(&folder, &[&add[..], &no_wait].concat(), 0);
    let session = |method: &str, path: &str, body: &str| {
        let path = format!("/v1/sources/inventory/sessions{path}");
        let answer = folder.request(method, &path, &[("Content-Type", "application/json")], body);
        assert!(answer.status < 300, "{answer:?}");
        answer
    };
    let begun = session("POST", "", r#"{"revision": "1"}"#).json();
    let at = begun["session"].to_string().replace('"', "");
    let object = r#"[{"kind": "Service", "name": "inventory/dns", "spec": {"frontends": []}}]"#;
    session("PUT", &format!("/{at}/chunks/0"), object);
    session("POST", &format!("/{at}/commit"), "");
    let before = desired(&folder);
    for (source, objects) in [("api", 2), ("file", 2), ("inventory", 1)] {
        assert_eq!(of_source(&before, source).len(), objects, "{before:#?}");
    }
    let (backup, _) = run(&folder, &["get", "all", "-o", "yaml"], 0);
    folder.write("backup.yaml", &backup);
    let path = folder.path.join("backup.yaml").display().to_string();
    let apply = |more: &[&str], code| {
        run(&folder, &[&["apply", "-f", &path, "--wait", "0"], more].concat(), code)
    };

    // Applied to the same appliance: nothing changes, and objects of other sources are skipped with
    // a notice.
    let (text, error) = apply(&[], 0);
    assert!(text.contains("Service shop/web: unchanged"), "{text}");
    for (object, source) in [("default/web", "file"), ("inventory/dns", "inventory")] {
        let left = format!("Service {object}: skipped: source `{source}` defines it");
        assert!(error.contains(&left), "{error}");
    }
    // Without `--restore`, the backup does not create an object that was deleted since.
    run(&folder, &["service", "delete", "shop/web", "--wait", "0"], 0);
    assert!(apply(&[], 1).1.contains("the object no longer exists"));
    apply(&["--restore"], 0);
    assert_eq!(desired(&folder), before);

    // As on another machine: no stored objects, and no services file.
    slowpath.kill();
    std::fs::remove_dir_all(folder.path.join("state")).unwrap();
    folder.write("weir.toml", &config_without_services(&folder));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| s["version"].is_string());
    assert_eq!(desired(&folder), Vec::<[Value; 4]>::new());
    apply(&["--restore"], 0);
    assert_eq!(desired(&folder), of_source(&before, "api"));
    apply(&["--restore", "--as-api"], 0);
    let mut all = before;
    all.iter_mut().for_each(|object| object[2] = "api".into());
    let sorted = |mut all: Vec<[Value; 4]>| {
        all.sort_by_key(|object| format!("{} {}", object[0], object[1]));
        all
    };
    assert_eq!(sorted(desired(&folder)), sorted(all));
}

#[test]
fn get_accepts_kinds_in_several_spellings() {
    let folder = Folder::new("kinds");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    for kind in [
        "service",
        "Services",
        "backends",
        "appliance",
        "sources",
        "bgp-peering-policy",
        "BgpPeeringPolicy",
        "bgp-peering-policies",
        "private-link-service",
        "PrivateLinkService",
    ] {
        run(&folder, &["get", kind], 0);
    }
    assert!(run(&folder, &["get", "sevice"], 2).1.contains("unknown kind"));
}
