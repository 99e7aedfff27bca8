//! Tests of the commands of `weir` that write objects: output, exit codes, and effects.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::api::config_without_services;
use crate::appliance::{Folder, weir};
use crate::generation;

const SHOP: &str = "\
[[service]]
name = \"shop/web\"
mode = \"nat\"
affinity_s = 30
frontends = [{address = \"203.0.113.7\", port = 80, protocol = \"tcp\"}]
backends = [{address = \"10.97.2.21\", port = 80}, {address = \"10.97.2.22\", port = 80}]
";

/// Runs `weir`, which must exit with this code; returns stdout and stderr.
#[track_caller]
fn run(folder: &Folder, args: &[&str], code: i32) -> (String, String) {
    assert_exit(args, &folder.weir(args), code)
}

/// Asserts the exit code; returns stdout and stderr.
#[track_caller]
fn assert_exit(args: &[&str], out: &Output, code: i32) -> (String, String) {
    assert_eq!(out.status.code(), Some(code), "{args:?}: {out:?}");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&out.stdout), text(&out.stderr))
}

/// Runs `test` while an emulated lcore with all links up polls and acknowledges generations.
pub fn with_an_lcore(folder: &Folder, test: impl FnOnce()) {
    let region = tables::region::Region::open(folder.path.join("region/file").as_path());
    let region: &'static tables::region::Region = Box::leak(Box::new(region.unwrap()));
    let _fastpath = region.claim(tables::region::Role::Fastpath).unwrap();
    let lcore = &region.lcores()[0];
    lcore.join(region, region.epoch(tables::region::Role::Fastpath), 1);
    (0..2).for_each(|arm| lcore.set_link(arm, true));
    let stop = AtomicBool::new(false);
    /// Stops the lcore when the test ends, also by a panic.
    struct Stop<'s>(&'s AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                lcore.count_iteration();
                lcore.acknowledge(region.generation());
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let _stop = Stop(&stop);
        test();
    });
}

fn path(folder: &Folder, name: &str) -> String {
    folder.path.join(name).display().to_string()
}

#[test]
fn a_service_is_applied_diffed_changed_drained_and_deleted() {
    let folder = Folder::new("command");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    with_an_lcore(&folder, || {
        let shop = path(&folder, "shop.toml");
        folder.write("shop.toml", SHOP);
        let (text, _) = run(&folder, &["diff", "-f", &shop], 1);
        assert!(text.starts_with("--- nothing\n+++ Service shop/web ("), "{text}");
        assert!(text.contains("\n+spec.endpoints[10.97.2.21:80/tcp]\n"), "{text}");
        let (text, _) = run(&folder, &["apply", "--dry-run", "-f", &shop], 0);
        let tried = "Service shop/web: would be created\nBackends shop/web: would be created\n";
        assert_eq!(text, tried);
        let (text, _) = run(&folder, &["apply", "-f", &shop], 0);
        let made = "Service shop/web: created\nBackends shop/web: created\n";
        assert_eq!(text, format!("{made}in force on all lcores\n"));
        let (text, _) = run(&folder, &["apply", "-f", &shop], 0);
        assert_eq!(text, made.replace("created", "unchanged") + "in force on all lcores\n");
        assert_eq!(run(&folder, &["diff", "-f", &shop], 0).0, "");

        // The output of `get` can be applied again, in both formats, also from standard input.
        for output in ["json", "yaml"] {
            let (got, _) = run(&folder, &["get", "service", "shop/web", "-o", output], 0);
            folder.write("got", &got);
            assert_eq!(run(&folder, &["diff", "-f", &path(&folder, "got")], 0).0, "", "{got}");
            folder.write("got", &got.replace("30", "40"));
            let input = std::fs::File::open(folder.path.join("got")).unwrap();
            let mut command = Command::new(weir());
            command.arg("--socket").arg(folder.socket()).args(["diff", "-f", "-"]).stdin(input);
            let (text, _) = assert_exit(&["diff", output], &command.output().unwrap(), 1);
            assert!(text.contains("-spec.affinity_s: 30\n+spec.affinity_s: 40\n"), "{text}");
        }
        let (got, _) = run(&folder, &["get", "service", "shop/web", "-o", "yaml"], 0);
        let set = ["service", "set", "shop/web", "--affinity", "60", "--mss", "1300"];
        let (text, _) = run(&folder, &set, 0);
        let changed = "Service shop/web: changed: spec.affinity_s 30 -> 60, + spec.mss 1300\n";
        assert_eq!(text, format!("{changed}in force on all lcores\n"));
        // A file based on an older revision is rejected with a message.
        folder.write("got", &got.replace("30", "40"));
        let (_, error) = run(&folder, &["apply", "-f", &path(&folder, "got")], 1);
        assert!(error.contains("the object has changed since"), "{error}");
        assert!(error.contains("got:") && error.ends_with("nothing was written\n"), "{error}");

        let backend = ["backend", "weight", "shop/web", "10.97.2.21:80", "50"];
        assert!(run(&folder, &backend, 0).0.contains("weight 50"));
        let (text, _) = run(&folder, &["backend", "drain", "shop/web", "10.97.2.21:80"], 0);
        assert!(text.ends_with("10.97.2.21:80 has 0 flows\n"), "{text}");
        let states = folder.until(&["services", "shop/web"], |services| {
            let all = services[0]["backends"].as_array();
            all.is_some_and(|all| all.iter().any(|one| one["state"] == "terminating"))
        });
        assert_eq!(states[0]["backends"].as_array().unwrap().len(), 2, "{states}");
        let set = ["service", "set", "shop/web", "--remove-backend", "10.97.2.21:80"];
        run(&folder, &[&set[..], &["--backend", "10.97.2.24:80"]].concat(), 0);
        let list = folder.request("GET", "/v1/objects/backends/shop/web", &[], "").json();
        let values = ["address", "protocol"].map(|key| list["spec"]["endpoints"][1][key].clone());
        assert_eq!(values, ["10.97.2.24", "tcp"], "{list}");
        let (text, _) = run(&folder, &["service", "delete", "shop/web"], 0);
        assert_eq!(
            text,
            "Service shop/web: deleted\nBackends shop/web: deleted\nin force on all lcores\n"
        );
        let (_, error) = run(&folder, &["service", "delete", "shop/web"], 1);
        assert!(error.contains("there is no service shop/web"), "{error}");

        let add = ["service", "add", "shop/dns", "--frontend", "udp://203.0.113.8:53", "--health"];
        let add = [&add[..], &["tcp:53", "--backend", "10.97.2.23:53,weight=7,zone=a"]].concat();
        let (text, _) = run(&folder, &add, 0);
        assert!(
            text.starts_with("Service shop/dns: created\nBackends shop/dns: created"),
            "{text}"
        );
        let object = folder.request("GET", "/v1/objects/backends/shop/dns", &[], "").json();
        let member = &object["spec"]["endpoints"][0];
        assert_eq!((&member["protocol"], &member["weight"]), (&json!("udp"), &json!(7)));
        assert!(run(&folder, &add, 1).1.contains("`weir service set` changes it"));
    });
}

#[test]
fn services_of_a_file_are_read_only_but_their_backends_can_be_drained() {
    let folder = Folder::new("command-file");
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let (service, backend) = ("default/web", "10.97.2.11:80");
    for what in [&["set", service, "--affinity", "9"][..], &["delete", service]] {
        let (_, error) = run(&folder, &[&["service"], what].concat(), 1);
        assert!(
            error.contains("belongs to source `file`") && error.contains("services file"),
            "{error}"
        );
    }
    let (_, error) = run(&folder, &["backend", "drain", service, "10.97.2.99:80"], 1);
    assert!(error.contains("it has 10.97.2.11:80, 10.97.2.12:80"), "{error}");
    let states = |expected: [&'static str; 2]| {
        move |services: &Value| {
            let all = services[0]["backends"].as_array();
            all.is_some_and(|all| all.iter().map(|one| one["state"].as_str().unwrap()).eq(expected))
        }
    };
    let (text, _) = run(&folder, &["backend", "drain", service, backend], 0);
    assert!(
        text.contains("source `file` defines this backend too") && text.contains("--undo"),
        "{text}"
    );
    let drained = |services: &Value| {
        let all = services[0]["backends"].as_array();
        all.is_some_and(|all| {
            all.len() == 2
                && all
                    .iter()
                    .all(|one| (one["address"] == "10.97.2.11") == (one["state"] == "terminating"))
        })
    };
    folder.until(&["services"], drained);
    run(&folder, &["backend", "drain", service, backend, "--undo"], 0);
    folder.until(&["services"], states(["active", "active"]));
    assert_eq!(folder.until(&["get", "backends"], |_| true).as_array().unwrap().len(), 1);

    // If the file takes precedence, the command is rejected and leaves no object of its own.
    slowpath.kill();
    let order = "[[source]]\nname = \"file\"\n[[source]]\nname = \"api\"\n";
    folder.write("weir.toml", &(folder.config() + order));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let (_, error) = run(&folder, &["backend", "drain", service, backend], 1);
    assert!(error.contains("`file`, which takes precedence over the API"), "{error}");
    assert_eq!(folder.until(&["get", "backends"], |_| true).as_array().unwrap().len(), 1);
}

#[test]
fn apply_is_all_or_nothing() {
    let folder = Folder::new("command-rejected");
    folder.write("weir.toml", &config_without_services(&folder));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let file = path(&folder, "objects.yaml");
    let service = |name: &str, mss: u32| {
        format!("kind: Service\nname: {name}\nspec:\n  mss: {mss}\n  frontends: []\n")
    };
    let apply = ["apply", "-f", &file, "--wait", "0"];
    folder.write("objects.yaml", &format!("{}---\n{}", service("a", 0), service("b", 9461)));
    let (text, error) = run(&folder, &apply, 1);
    assert_eq!(text, "");
    let begins = format!("{file}:10: Service b of api: spec.mss: 9461 is out of range; allowed");
    assert!(error.starts_with(&begins) && error.ends_with("nothing was written\n"), "{error}");
    // The same name twice, in two formats.
    let doubled = SHOP.replace("shop/web", "a");
    folder.write("objects.yaml", &service("a", 0));
    folder.write("more.toml", &doubled);
    let more = path(&folder, "more.toml");
    let (_, error) = run(&folder, &["apply", "-f", &file, "-f", &more, "--wait", "0"], 1);
    assert!(error.contains("Service a is also in") && error.contains("keep one"), "{error}");
    assert_eq!(folder.until(&["get", "services"], |_| true), json!([]));
    let (_, error) = run(&folder, &["apply", "-f", "/nowhere"], 2);
    assert!(error.contains("/nowhere"), "{error}");
    run(&folder, &["apply"], 2);
    // The objects are stored, but not in force: no lcore runs.
    let (text, error) = run(&folder, &["apply", "-f", &more, "--wait", "1"], 1);
    assert_eq!(text, "Service a: created\nBackends a: created\n");
    assert!(error.contains("stored, but not in force on all lcores after 1 s"), "{error}");
    let (text, _) = run(&folder, &["apply", "-f", &more, "--wait", "0", "-o", "json"], 0);
    let reports: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&reports[0]["done"], &reports[1]["kind"]),
        (&json!("unchanged"), &json!("Backends"))
    );
}

#[test]
fn kubernetes_objects_and_folders_are_applied_too() {
    let folder = Folder::new("command-kubernetes");
    folder.write("weir.toml", &config_without_services(&folder));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    std::fs::create_dir(folder.path.join("shop")).unwrap();
    folder.write("shop/a.toml", SHOP);
    folder.write(
        "shop/b.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: api}\nspec:\n  \
         type: LoadBalancer\n  ports: [{port: 80, protocol: TCP}]\nstatus:\n  loadBalancer:\n    \
         ingress: [{ip: 203.0.113.9}]\n",
    );
    let (text, _) = run(&folder, &["apply", "-f", &path(&folder, "shop"), "--wait", "0"], 0);
    let made = "Service shop/web: created\nBackends shop/web: created\nService shop/api: created\n";
    assert_eq!(text, made);
    let object = folder.request("GET", "/v1/objects/services/shop/api", &[], "").json();
    assert_eq!(object["source"], "api", "{object}");
    let rows =
        folder.until(&["db", "show", "frontends"], |rows| rows.to_string().contains("113.9"));
    assert!(rows.to_string().contains("shop/api"), "{rows}");
}

#[test]
fn applied_objects_survive_a_kill() {
    let folder = Folder::new("command-kills");
    folder.write("weir.toml", &config_without_services(&folder));
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let (mut applied, mut interrupted) = (0, 0);
    for round in 1..=40_u64 {
        let object = |n: u64| {
            format!(
                "kind: Service\nname: s{n}\nannotations: {{round: '{round}'}}\nspec: {{}}\n---\n"
            )
        };
        let text: String = (0..20).map(object).collect();
        let mut apply = Command::new(weir())
            .args(["--socket", &folder.socket(), "apply", "-f", "-", "--wait", "0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        apply.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        // At a different moment each time: during the dry run, during the write, or after it.
        std::thread::sleep(std::time::Duration::from_micros(round * 1_000));
        slowpath.kill();
        let out = apply.wait_with_output().unwrap();
        slowpath = folder.slowpath();
        folder.until(&["status"], |s| generation(s) > 0);
        let objects = folder.until(&["get", "services"], |_| true);
        let is_of_round = |name: &str| {
            let all = objects.as_array().unwrap();
            let found = all.iter().find(|object| object["name"] == name);
            found.map(|object| object["annotations"]["round"] == round.to_string().as_str())
        };
        let output = String::from_utf8(out.stdout.clone()).unwrap();
        for line in output.lines() {
            let (name, done) =
                line.strip_prefix("Service ").and_then(|rest| rest.split_once(": ")).unwrap();
            let is_written = is_of_round(name) == Some(true);
            match done.split(':').next().unwrap() {
                "created" | "changed" => assert!(is_written, "{round}: {line}: {objects}"),
                "skipped" => assert!(!is_written, "{round}: {line}: {objects}"),
                "unknown" => {}
                other => panic!("{round}: {other}: {out:?}"),
            }
        }
        match out.status.success() {
            true => applied += 1,
            false => interrupted += u32::from(output.lines().any(|line| line.ends_with("skipped"))),
        }
    }
    println!("{applied} of 40 were applied completely, {interrupted} were interrupted");
}

#[test]
fn commands_support_json_and_yaml() {
    let folder = Folder::new("command-json");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let services = path(&folder, "services.toml");
    let tuple = "tcp 192.0.2.1:1234 -> 203.0.113.1:80";
    for args in [
        &["status"][..],
        &["services"],
        &["flows"],
        &["drops"],
        &["explain", tuple],
        &["config", "check"],
        &["hugepages", "plan"],
        &["hugepages", "check"],
        &["db", "show", "services"],
        &["db", "prefix", "health"],
        &["get", "service"],
        &["health"],
        &["maps", "dump"],
        &["completions", "bash"],
        &["top", "--samples", "1"],
        &["drain", "--undo"],
        &["apply", "--dry-run", "-f", &services],
        &["diff", "-f", &services],
        &["service", "delete", "none"],
        &["backend", "drain", "none", "10.0.0.1"],
    ] {
        let out = folder.weir(&[args, &["--output", "json"]].concat());
        let parsed: Result<Value, _> = serde_json::from_slice(&out.stdout);
        assert!(parsed.is_ok(), "{args:?}: {out:?}");
        let yaml = folder.weir(&[args, &["-o", "yaml"]].concat());
        let text = String::from_utf8(yaml.stdout.clone()).unwrap();
        let read: Vec<_> = config::yaml::Documents::new(&text).collect();
        assert!(!read.is_empty() && read.iter().all(Result::is_ok), "{args:?}: {yaml:?} {read:?}");
    }
}
