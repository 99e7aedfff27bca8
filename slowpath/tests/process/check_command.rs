//! Tests that `weir config check` and slowpath accept and reject the same configurations, and of
//! commands that need no running slowpath.

use crate::appliance::Folder;
use crate::generation;

/// Runs `weir config check`, which must exit with this code; returns its output.
fn check(folder: &Folder, code: i32) -> String {
    let out = folder.weir(&["config", "check"]);
    assert_eq!(out.status.code(), Some(code), "{out:?}");
    String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
}

#[test]
fn the_check_command_reads_a_folder_as_slowpath_does() {
    let folder = Folder::new("check-folder");
    let services = folder.path.join("services");
    std::fs::create_dir_all(&services).unwrap();
    std::fs::rename(folder.path.join("services.toml"), services.join("one.toml")).unwrap();
    let kubernetes = "apiVersion: v1\nkind: Service\nmetadata: {name: two, namespace: shop}\n\
                      spec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}\n";
    std::fs::write(services.join("two.yaml"), kubernetes).unwrap();
    folder.write("weir.toml", &folder.config().replace("services.toml", "services"));
    assert!(check(&folder, 0).contains(": 2 services, valid"));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    folder.until(&["get", "service"], |all| all.as_array().is_some_and(|all| all.len() == 2));
    std::fs::write(services.join("two.yaml"), kubernetes.replace("port: 80", "port: 0")).unwrap();
    assert!(check(&folder, 1).contains("two.yaml:4"));
}

#[test]
fn the_check_command_rejects_what_slowpath_rejects_at_start() {
    let folder = Folder::new("check-maps");
    let few = folder.config().replace("max_flows = 1024", "max_flows = 1024\nnat_maps = 100");
    folder.write("weir.toml", &few);
    assert!(check(&folder, 1).contains("region.nat_maps"));
    assert_eq!(folder.slowpath().0.wait().unwrap().code(), Some(2), "rejected when it is read");
    let log = std::fs::read_to_string(folder.path.join("log")).unwrap();
    assert!(log.contains("region.nat_maps") && log.contains("4096"), "{log}");
}

#[test]
fn a_generated_seed_is_persisted_and_only_its_fingerprint_is_shown() {
    let folder = Folder::new("check-seed");
    folder.write("weir.toml", &(folder.config() + "\n[tables]\nseed = \"generate\"\n"));
    check(&folder, 0);
    let fingerprint = || {
        let status = folder.until(&["status"], |s| s["seed_fingerprint"].is_string());
        status["seed_fingerprint"].as_str().unwrap().to_owned()
    };
    let mut slowpath = folder.slowpath();
    let first = fingerprint();
    // `a47fae25` is the fingerprint of the default seed.
    assert!(first.len() == 8 && first != "a47fae25", "{first}");
    let metrics = folder.get(folder.ports[2], "/metrics", "*/*");
    let line = format!("weir_seed_info{{fingerprint=\"{first}\"}} 1");
    assert!(metrics.contains(&line), "{metrics}");
    let seed = std::fs::read_to_string(folder.path.join("state/seed")).unwrap();
    let status = folder.weir(&["status", "--json"]);
    assert!(
        !String::from_utf8_lossy(&status.stdout).contains(seed.trim())
            && !metrics.contains(seed.trim())
    );
    slowpath.kill();
    std::fs::remove_file(folder.path.join("region/file")).unwrap();
    let _again = folder.slowpath();
    assert_eq!(fingerprint(), first, "a new region has the same seed");
}

#[test]
fn a_conversion_of_the_region_prints_the_selected_format() {
    let folder = Folder::new("convert");
    let convert = |options: &[&str]| {
        let out = folder.weir(&[&["upgrade", "convert", "--format", "13"][..], options].concat());
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(convert(&[]), "the region has format 13, or there is none\n");
    let json: serde_json::Value = serde_json::from_str(&convert(&["--json"])).unwrap();
    assert_eq!(json, serde_json::json!({ "format": 13, "converted": null }));
    let yaml = convert(&["-o", "yaml"]);
    assert!(yaml.contains("format: 13\n") && yaml.contains("converted: null\n"), "{yaml}");
}
