//! Tests of `weir backup` and `weir restore` on the running program: another machine, rejected
//! backups, full disks, users, and a command that is killed at each of its system calls.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::api::config_without_services;
use crate::appliance::{Folder, Running, Tmpfs, weir};
use crate::generation;

/// User and group without rights (nobody).
const NOBODY: u32 = 65_534;
/// Number of objects of the large store.
const MANY: usize = 10_000;
/// System calls before which the commands are killed: those by which they change something, and
/// some between those.
const KILLED_AT: [&str; 25] = [
    "openat",
    "chown",
    "fchown",
    "fchownat",
    "chmod",
    "fchmod",
    "fchmodat",
    "connect",
    "recvfrom",
    "rename",
    "renameat2",
    "link",
    "linkat",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "fsync",
    "fdatasync",
    "write",
    "writev",
    "sendto",
    "sendmsg",
    "flock",
];
/// System calls of Linux that change files or send data, except `openat` and `open`.
const CHANGES: [&str; 48] = [
    "chmod",
    "chown",
    "connect",
    "copy_file_range",
    "creat",
    "fallocate",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "fdatasync",
    "flock",
    "fremovexattr",
    "fsetxattr",
    "fsync",
    "ftruncate",
    "lchown",
    "link",
    "linkat",
    "lremovexattr",
    "lsetxattr",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "removexattr",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sendfile",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setxattr",
    "splice",
    "symlink",
    "symlinkat",
    "sync_file_range",
    "truncate",
    "unlink",
    "unlinkat",
    "write",
    "writev",
];

/// A machine with the configuration file that all machines of a test share: its paths and ports are
/// in the environment, and its name and addresses are "auto".
struct Machine {
    folder: Folder,
    name: &'static str,
}

impl Machine {
    fn new(name: &'static str, address: &str) -> Machine {
        let folder = Folder::new(&format!("restore-{name}"));
        for file in ["weir.toml", "services.toml"] {
            std::fs::remove_file(folder.path.join(file)).unwrap();
        }
        let values = format!(
            "name = \"{name}\"\n[arm.ingress]\ndevice = \"net_null0\"\nsource = \"a test\"\n\
             address = [\"{address}/24\"]\n"
        );
        folder.write("auto.toml", &values);
        Machine { folder, name }
    }

    /// Returns the configuration that all machines share, with further lines.
    fn configuration(more: &str) -> String {
        format!(
            "name = \"auto\"\n[fastpath]\nhugepages = false\nlcores = [1]\n[region]\n\
             max_flows = 1024\n[ingress]\ndevice = \"net_null0\"\naddress = \"auto\"\nmtu = 9001\n\
             [nat]\naddresses = \"auto\"\n[tables]\nseed = \"generate\"\n{more}"
        )
    }

    /// Returns the environment variables with the machine's own settings.
    fn environment(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.folder.path.join(name).display().to_string();
        let [http, tcp, metrics] = self.folder.ports;
        vec![
            ("WEIR_AUTO_VALUES", path("auto.toml")),
            ("WEIR_SERVICES", path("services")),
            ("WEIR_REGION__PATH", path("region/file")),
            ("WEIR_REGION__MAPS", self.folder.maps().path().display().to_string()),
            ("WEIR_CONTROL__SOCKET", self.folder.socket()),
            ("WEIR_CONTROL__STATE", path("state")),
            ("WEIR_HEALTH__LISTEN", format!("[\"127.0.0.1:{http}\"]")),
            ("WEIR_HEALTH__TCP", format!("[\"127.0.0.1:{tcp}\"]")),
            ("WEIR_METRICS__LISTEN", format!("127.0.0.1:{metrics}")),
        ]
    }

    fn start(&self) -> Running {
        let all = self.environment();
        let all: Vec<(&str, &str)> = all.iter().map(|(key, value)| (*key, &**value)).collect();
        let slowpath = self.folder.slowpath_with(&all);
        self.folder.until(&["--socket", &self.folder.socket(), "status"], |s| generation(s) > 0);
        slowpath
    }

    #[track_caller]
    fn run(&self, args: &[&str], code: i32) -> (String, String) {
        // The modes of files do not depend on the umask.
        let mut program = Command::new("sh");
        program.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(weir());
        program.arg("--config").arg(self.folder.path.join("weir.toml")).args(args);
        exits(&program.envs(self.environment()).output().unwrap(), code)
    }

    /// Returns the status of an appliance without lcores, which is unable to serve.
    fn status(&self) -> Value {
        serde_json::from_str(&self.run(&["status", "--json"], 1).0).unwrap()
    }
}

/// Returns kind, name, source and spec of all desired objects in the store. `weir get` would show
/// those of the control loop, which lag behind the store.
fn objects(folder: &Folder) -> Vec<[Value; 4]> {
    let all = folder.request("GET", "/v1/backup", &[], "").json();
    let parts = |object: &Value| ["kind", "name", "source", "spec"].map(|key| object[key].clone());
    all["items"].as_array().unwrap().iter().map(parts).collect()
}

/// Returns whether the store has a service of the API.
fn has_service(folder: &Folder, name: &str) -> bool {
    let path = format!("/v1/objects/services/{name}");
    folder.request("GET", &path, &[], "").status == 200
}

/// Returns stdout and stderr of a program that must have ended with this code.
#[track_caller]
fn exits(out: &Output, code: i32) -> (String, String) {
    assert_eq!(out.status.code(), Some(code), "{out:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&out.stdout), text(&out.stderr))
}

#[track_caller]
fn run(folder: &Folder, args: &[&str], code: i32) -> (String, String) {
    exits(&folder.weir(args), code)
}

fn path(folder: &Folder, name: &str) -> String {
    folder.path.join(name).display().to_string()
}

fn read(folder: &Folder, name: &str) -> String {
    std::fs::read_to_string(folder.path.join(name)).unwrap()
}

/// Adds a service to the API.
fn add(folder: &Folder, name: &str) {
    let frontend = ["--frontend", "tcp://203.0.113.7:80", "--backend", "10.97.2.21:80"];
    run(folder, &[&["service", "add", name][..], &frontend, &["--wait", "0"]].concat(), 0);
}

/// Returns a services file with one service.
fn service_file(name: &str, address: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nmode = \"nat\"\n\
         frontends = [{{address = \"{address}\", port = 80, protocol = \"tcp\"}}]\n\
         backends = [{{address = \"10.97.2.11\", port = 80}}]\n"
    )
}

/// Returns the names of all entries of a directory, also hidden ones.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|one| one.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_backup_makes_another_machine_the_same_appliance_under_its_own_name() {
    let a = Machine::new("a", "10.97.1.10");
    let secrets = format!("[bgp]\nsecrets = \"{}\"\n", path(&a.folder, "bgp"));
    a.folder.write("weir.toml", &Machine::configuration(&secrets));
    std::fs::set_permissions(a.folder.path.join("weir.toml"), PermissionsExt::from_mode(0o640))
        .unwrap();
    std::fs::create_dir_all(a.folder.path.join("services")).unwrap();
    std::fs::set_permissions(a.folder.path.join("services"), PermissionsExt::from_mode(0o751))
        .unwrap();
    a.folder.write("services/one.toml", &service_file("file/one", "203.0.113.1"));
    a.folder.write("services/two.toml", &service_file("file/two", "203.0.113.2"));
    a.folder.write("services/ignored.conf", "not read by slowpath");
    std::fs::create_dir_all(a.folder.path.join("bgp/router")).unwrap();
    a.folder.write("bgp/router/password", "the-password-of-the-router");
    let slowpath = a.start();
    a.run(&["service", "add", "shop/web", "--frontend", "tcp://203.0.113.7:80", "--wait", "0"], 0);
    let policy = json!({ "spec": { "routers": [{ "local_asn": 65000, "neighbors": [{
        "address": "127.0.0.9", "asn": 65001, "passive": true, "password": { "secret": "router" },
    }] }] } });
    let json = [("Content-Type", "application/json")];
    let put = |path: &str, body: &Value| {
        let answer = a.folder.request("PUT", path, &json, &body.to_string());
        assert!(answer.status < 300, "{answer:?}");
    };
    put("/v1/objects/bgp-peering-policies/rack", &policy);
    let session = a.folder.request("POST", "/v1/sources/inventory/sessions", &json, "{}").json();
    let session = format!("/v1/sources/inventory/sessions/{}", session["session"]);
    let dns = json!([{ "kind": "Service", "name": "inventory/dns", "spec": { "frontends": [] } }]);
    put(&format!("{session}/chunks/0"), &dns);
    assert_eq!(a.folder.request("POST", &format!("{session}/commit"), &json, "").status, 200);
    let before = objects(&a.folder);
    assert_eq!(before.len(), 7, "{before:#?}");
    let status = a.status();
    assert_eq!(status["name"], a.name);

    let backup = path(&a.folder, "backup");
    let (text, _) = a.run(&["backup", &backup], 0);
    for part in ["objects: 7", "services/two.toml", "weir.toml", "seed", "bgp/router/password"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(text.contains("no file sets it: control.state (environment WEIR_"), "{text}");
    let contents = std::fs::read_to_string(&backup).unwrap();
    assert!(!contents.contains("the-password-of-the-router") && !contents.contains("ignored"));
    assert_eq!(std::fs::metadata(&backup).unwrap().mode() & 0o7777, 0o600);
    drop(slowpath);

    // The other machine has the file with its own values only, so slowpath cannot run there yet.
    let b = Machine::new("b", "10.97.1.99");
    let only = |what: &'static str| ["restore", &backup, "--wait", "0", "--only", what];
    let (text, _) = b.run(&[&only("configuration")[..], &["--dry-run"]].concat(), 0);
    assert!(text.contains("services/one.toml: would be created"), "{text}");
    assert!(text.contains("generated seed: would be stored"), "{text}");
    assert_eq!(names(&b.folder.path), BTreeSet::from(["auto.toml".to_owned()]));
    let (_, error) = b.run(&["--socket", &b.folder.socket(), "restore", &backup], 2);
    assert!(error.contains("no slowpath listens") && error.contains("--only"), "{error}");
    let (text, _) = b.run(&only("configuration"), 0);
    assert!(text.contains("takes effect at the next start"), "{text}");
    for name in ["weir.toml", "services/one.toml", "services/two.toml"] {
        assert_eq!(read(&b.folder, name), read(&a.folder, name));
    }
    let mode = |folder: &Folder, name: &str| {
        std::fs::metadata(folder.path.join(name)).unwrap().permissions().mode() & 0o7777
    };
    assert_eq!((mode(&b.folder, "weir.toml"), mode(&b.folder, "services")), (0o640, 0o751));
    assert_eq!((mode(&b.folder, "state"), mode(&b.folder, "state/seed")), (0o700, 0o640));
    let _slowpath = b.start();
    let (text, _) = b.run(&only("objects"), 0);
    assert!(text.contains("Service shop/web: created"), "{text}");
    assert!(text.contains("source `file`, which defines them again: 4"), "{text}");
    assert!(text.contains("source `inventory`, which defines them again: 1"), "{text}");
    let restored = b.status();
    assert_eq!(restored["name"], b.name);
    assert_eq!(restored["seed_fingerprint"], status["seed_fingerprint"]);
    let without_inventory: Vec<[Value; 4]> =
        before.iter().filter(|object| object[2] != "inventory").cloned().collect();
    assert_eq!(objects(&b.folder), without_inventory);
    b.run(&[&only("objects")[..], &["--as-api"]].concat(), 0);
    assert_eq!(
        objects(&b.folder).len(),
        7 + 4,
        "the objects of files are objects of the API as well"
    );
    let both = path(&b.folder, "both");
    b.run(&["backup", &both], 0);
    let (_, error) = b.run(&["restore", &both, "--dry-run", "--as-api"], 1);
    assert!(error.contains("the backup contains it from the sources `api` and `file`"), "{error}");
    b.run(&["restore", &both, "--dry-run"], 0);

    // A secret is not in the backup, only its path: the restore names a file that does not exist.
    std::fs::remove_file(a.folder.path.join("bgp/router/password")).unwrap();
    let (text, _) = b.run(&["restore", &backup, "--dry-run"], 0);
    let missing = format!("missing: {}", path(&a.folder, "bgp/router/password"));
    assert!(text.contains(&missing), "{text}");
    assert!(text.contains("generated seed: unchanged"), "{text}");
    let other = read(&b.folder, "state/seed").replace(['A', 'a', '1'], "z");
    b.folder.write("state/seed", &("AAAA".to_owned() + &other[4..]));
    let (text, _) = b.run(&["restore", &backup, "--dry-run", "--only", "configuration"], 0);
    assert!(text.contains("this machine has another one, which stays"), "{text}");
}

#[test]
fn an_empty_directory_of_services_is_restored() {
    let (a, b) = (Machine::new("e", "10.97.1.10"), Machine::new("f", "10.97.1.99"));
    a.folder.write("weir.toml", &Machine::configuration(""));
    std::fs::create_dir(a.folder.path.join("services")).unwrap();
    let backup = path(&a.folder, "backup");
    let (text, _) = a.run(&["backup", &backup, "--only", "configuration"], 0);
    let folder = format!("directory: {}\n", path(&a.folder, "services"));
    assert!(text.contains(&folder), "{text}");
    let (text, _) = b.run(&["restore", &backup], 0);
    assert!(text.contains("services: created"), "{text}");
    assert_eq!(names(&b.folder.path.join("services")), BTreeSet::new());
    let (text, _) = b.run(&["restore", &backup], 0);
    assert!(!text.contains("created") && text.contains("weir.toml: unchanged"), "{text}");
    b.run(&["config", "check"], 0);
}

#[test]
fn values_of_another_machine_are_named_and_restored_only_on_request() {
    let (a, b) = (Folder::new("restore-literal"), Folder::new("restore-other"));
    let text = a.config().replace("10.97.1.10/24", "10.97.1.11/24");
    a.write("weir.toml", &text.replace("\"weir-p\"", "\"weir-a\""));
    let backup = path(&a, "backup");
    let (_, error) = run(&a, &["backup", &backup], 2);
    assert!(error.contains("no slowpath listens") && error.contains("its store"), "{error}");
    assert!(!Path::new(&backup).exists());
    run(&a, &["backup", &backup, "--only", "configuration"], 0);
    let before = read(&b, "weir.toml");
    for dry_run in [&["--dry-run"][..], &[]] {
        let (text, error) = run(&b, &[&["restore", &backup][..], dry_run].concat(), 1);
        assert!(error.contains("--with-machine-values"), "{error}");
        for value in [
            "name = \"weir-a\"; here \"weir-p\"",
            "ingress.address = \"10.97.1.11/24\"; here \"10.97.1.10/24\"",
            "control.state = ",
        ] {
            assert!(text.contains(&format!("value of another machine: {value}")), "{text}");
        }
        assert!(!text.contains("ingress.device"), "the same on both: {text}");
        assert_eq!(read(&b, "weir.toml"), before);
    }
    let (text, _) = run(&b, &["restore", &backup, "--with-machine-values"], 0);
    assert!(text.contains("keys of the replaced file that change only at a restart"), "{text}");
    assert!(text.contains("ingress.address: restart the data plane and slowpath"), "{text}");
    assert_eq!(read(&b, "weir.toml"), read(&a, "weir.toml"));
    let lacks = run(&b, &["restore", &backup, "--only", "objects"], 1).1;
    assert!(lacks.contains("the backup has no objects"), "{lacks}");
}

#[test]
fn rejected_backups_and_restores_change_nothing() {
    let folder = Folder::new("restore-invalid");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    add(&folder, "shop/web");
    let backup = path(&folder, "backup");
    run(&folder, &["backup", &backup], 0);
    let (_, error) = run(&folder, &["backup", &backup], 2);
    assert!(error.contains("exists; --force replaces it"), "{error}");
    run(&folder, &["backup", &backup, "--force"], 0);
    std::os::unix::fs::symlink("backup", folder.path.join("link")).unwrap();
    let (link, directory) = (path(&folder, "link"), folder.path.display().to_string());
    for (target, cause) in [
        ("/dev/null", "not a regular file"),
        (&link, "is a symbolic link and is not replaced"),
        (&directory, "is a directory; name a file in it"),
    ] {
        for args in [&["backup", target][..], &["backup", target, "--force"]] {
            let (_, error) = run(&folder, args, 2);
            assert!(error.contains(cause) && !error.contains("--force"), "{error}");
        }
    }
    std::fs::remove_file(&link).unwrap();
    let (document, report) = run(&folder, &["backup", "-"], 0);
    assert!(document.starts_with("{\"weir_backup\":1,") && report.contains("objects: 4"));

    // Settings of this machine with which the configuration is not valid.
    let (config, before) = (read(&folder, "weir.toml"), objects(&folder));
    folder.write("weir.toml", &config.replace("lcores = [1]", "lcores = [2]"));
    let changed = read(&folder, "weir.toml");
    let restore = |args: &[&str], code| {
        run(&folder, &[&["restore", &backup, "--wait", "0"][..], args].concat(), code)
    };
    let (_, error) = restore(&["--set", "ingress.mtu=1"], 1);
    assert!(error.contains("ingress.mtu") && error.contains("nothing was restored"), "{error}");
    let (_, error) = restore(&["--set", "services=/nowhere/services.toml"], 2);
    assert!(error.contains("nothing was restored"), "{error}");
    assert!(error.contains("there is no directory /nowhere; create it"), "{error}");
    assert_eq!(read(&folder, "weir.toml"), changed);

    // A damaged backup, an incomplete one, and a file that is no backup.
    let bytes = std::fs::read(&backup).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 3] ^= 1;
    let other = path(&folder, "other");
    for (bytes, cause) in [
        (&damaged[..], "is damaged"),
        (&bytes[..bytes.len() - 30], "is incomplete"),
        (b"kind: Service\n", "is not a backup"),
    ] {
        std::fs::write(&other, bytes).unwrap();
        let (_, error) = run(&folder, &["restore", &other], 1);
        assert!(error.contains(&other) && error.contains(cause), "{error}");
    }
    std::fs::remove_file(&other).unwrap();
    let (_, error) = run(&folder, &["restore", &other], 2);
    assert!(error.contains("No such file") && error.contains("nothing was restored"), "{error}");
    assert_eq!((read(&folder, "weir.toml"), objects(&folder)), (changed, before));

    // A credential in a file or in an object is not backed up.
    folder.write("weir.toml", &(config.clone() + "# -----BEGIN PRIVATE KEY-----\n"));
    let (_, error) = run(&folder, &["backup", "-"], 2);
    assert!(error.contains("a private key or a password in a URL"), "{error}");
    folder.write("weir.toml", &config);
    let body = json!({ "annotations": { "from": "https://me:word@example.com/" }, "spec": {} });
    let json = [("Content-Type", "application/json")];
    folder.request("PUT", "/v1/objects/services/shop/leak", &json, &body.to_string());
    let (_, error) = run(&folder, &["backup", "-"], 2);
    assert!(error.contains("Service shop/leak: a private key or a password"), "{error}");
}

#[test]
fn the_api_stores_a_list_as_a_whole_or_not_at_all() {
    let folder = Folder::new("restore-list");
    folder.write("weir.toml", &config_without_services(&folder));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let list = |body: &str, query: &str| {
        let json = [("Content-Type", "application/json")];
        folder.request("POST", &format!("/v1/restore{query}"), &json, body)
    };
    let service = |name: &str, mss: u32| {
        let spec = json!({ "mss": mss, "frontends": [] });
        json!({ "kind": "Service", "name": name, "spec": spec })
    };
    // The last of many is invalid: none is stored.
    let mut all: Vec<Value> = (0..50).map(|number| service(&format!("s{number}"), 1400)).collect();
    all.push(service("last", 9461));
    let answer = list(&json!(all).to_string(), "");
    assert_eq!(answer.status, 422, "{answer:?}");
    assert!(answer.body.contains("Service last") && answer.body.contains("[50].spec.mss"));
    assert_eq!(objects(&folder), Vec::<[Value; 4]>::new());
    for (body, status) in [
        (json!([{ "kind": "Source", "name": "a", "spec": {} }]), 422),
        (json!([{ "kind": "Service", "name": "a", "source": "file", "spec": {} }]), 403),
        (json!([service("a", 0), service("a", 0)]), 422),
        (json!({}), 400),
    ] {
        assert_eq!(list(&body.to_string(), "").status, status, "{body}");
    }
    all.pop();
    let text = json!(all).to_string();
    let planned = list(&text, "?dry_run=true").json();
    assert_eq!(planned["objects"].as_array().unwrap().len(), 50);
    assert_eq!(objects(&folder), Vec::<[Value; 4]>::new());
    let action = |answer: &Value, name: &str| {
        let all = answer["objects"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["action"].clone()
    };
    let restored = list(&text, "").json();
    assert_eq!(action(&restored, "s7"), "created");
    assert_eq!(
        restored["revision"],
        folder.request("GET", "/v1/backup", &[], "").json()["revision"]
    );
    all.truncate(10);
    all[7] = service("s7", 1300);
    let restored = list(&json!(all).to_string(), "").json();
    let actions = ["s6", "s7", "s40"].map(|name| action(&restored, name));
    assert_eq!(actions, ["unchanged", "replaced", "left"].map(Value::from));
    let again = list(&json!(all).to_string(), "").json();
    assert_eq!(again["revision"], restored["revision"], "nothing differs, nothing is written");
}

#[test]
fn a_full_disk_leaves_no_backup_and_no_half_restore() {
    let folder = Folder::new("restore-full");
    let state = Tmpfs::new(folder.path.join("state"), "256k");
    let files = Tmpfs::new(folder.path.join("etc"), "64k");
    let target = Tmpfs::new(folder.path.join("target"), "64k");
    let config = folder.config().replace("/services.toml", "/etc/services.toml");
    folder.write("weir.toml", &config);
    std::fs::write(files.0.join("services.toml"), service_file("file/old", "203.0.113.1")).unwrap();
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    // Longer than a page: on a full tmpfs, the last page of a file may have space left.
    let body = json!({ "annotations": { "text": "x".repeat(9_000) }, "spec": {} });
    let json = [("Content-Type", "application/json")];
    folder.request("PUT", "/v1/objects/services/shop/web", &json, &body.to_string());
    let backup = path(&folder, "backup");
    run(&folder, &["backup", &backup], 0);

    target.fill();
    let (_, error) = run(&folder, &["backup", &path(&folder, "target/backup")], 2);
    assert!(error.contains("No space left") && error.contains("no backup was written"), "{error}");
    assert_eq!(names(&target.0), BTreeSet::from(["filler".to_owned()]));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut program = Command::new(weir());
    program.args(["--config", &path(&folder, "weir.toml"), "backup", "-"]).stdout(full);
    assert!(exits(&program.output().unwrap(), 2).1.contains("the backup is incomplete"));

    // The disk of the services file is full, that of the configuration file is not.
    let changed = service_file("file/new", "203.0.113.2");
    std::fs::write(files.0.join("services.toml"), &changed).unwrap();
    folder.write("weir.toml", &(config.clone() + "\n# changed\n"));
    run(&folder, &["service", "delete", "shop/web", "--wait", "0"], 0);
    files.fill();
    let unchanged = |what: &str| {
        assert_eq!(read(&folder, "weir.toml"), config.clone() + "\n# changed\n", "{what}");
        assert_eq!(read(&folder, "etc/services.toml"), changed, "{what}");
        assert!(!has_service(&folder, "shop/web"), "{what}");
        assert!(!names(&folder.path).contains(".weir-restore"), "{what}");
    };
    let restore = ["restore", &backup, "--wait", "0"];
    let (_, error) = run(&folder, &restore, 2);
    assert!(error.contains("services.toml: No space left"), "{error}");
    assert!(error.contains("nothing was restored"), "{error}");
    unchanged("the disk of the services file is full");
    files.empty();

    // The disk of the store: the files are replaced before the objects are stored.
    state.fill();
    let (_, error) = run(&folder, &restore, 2);
    assert!(error.contains("the write to the store's disk failed"), "{error}");
    assert!(error.contains("nothing was restored"), "{error}");
    unchanged("the disk of the store is full");
    state.empty();
    run(&folder, &restore, 0);
    assert_eq!(read(&folder, "weir.toml"), config);
    assert!(has_service(&folder, "shop/web"));
}

#[test]
fn members_of_the_control_group_back_up_and_restore_objects_alone() {
    let folder = Folder::new("restore-user");
    let config = folder.config().replace("[control]", "[control]\ngroup = \"nogroup\"");
    folder.write("weir.toml", &config);
    std::fs::set_permissions(folder.path.join("weir.toml"), PermissionsExt::from_mode(0o600))
        .unwrap();
    let home = folder.path.join("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    add(&folder, "shop/web");
    let member = |args: &[&str], code: i32| {
        let mut program = Command::new("setpriv");
        program.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(weir());
        program.args(["--config", &path(&folder, "weir.toml")]);
        program.args(["--socket", &folder.socket()]).args(args).current_dir(&home);
        exits(&program.output().unwrap(), code)
    };
    let (_, error) = member(&["backup", "b"], 2);
    assert!(error.contains("Permission denied") && error.contains("--only objects"), "{error}");
    member(&["backup", "b", "--only", "objects"], 0);
    let about = std::fs::metadata(home.join("b")).unwrap();
    assert_eq!((about.mode() & 0o7777, about.uid()), (0o600, NOBODY));
    run(&folder, &["service", "delete", "shop/web", "--wait", "0"], 0);
    let (text, _) = member(&["restore", "b", "--wait", "0"], 0);
    assert!(text.contains("Service shop/web: created"), "{text}");
    run(&folder, &["backup", &path(&folder, "home/all")], 0);
    let (_, error) = member(&["restore", "all"], 2);
    assert!(error.contains("all: Permission denied"), "{error}");
    std::fs::set_permissions(home.join("all"), PermissionsExt::from_mode(0o644)).unwrap();
    let (_, error) = member(&["restore", "all", "--dry-run"], 2);
    assert!(error.contains("weir.toml: Permission denied"), "{error}");
    member(&["restore", "all", "--only", "objects", "--wait", "0"], 0);
    assert_eq!(names(&home), BTreeSet::from(["all".to_owned(), "b".to_owned()]));
}

#[test]
fn a_store_with_ten_thousand_objects_is_restored_and_read_without_slowpath() {
    let folder = Folder::new("restore-many");
    folder.write("weir.toml", &config_without_services(&folder));
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let service = |number: usize| {
        let labels = json!({ "team": format!("team-{}", number % 100), "text": "x".repeat(400) });
        let spec = json!({ "frontends": [], "mss": 1300 + number % 100 });
        json!({ "kind": "Service", "name": format!("n/{number}"), "labels": labels, "spec": spec })
    };
    let all = json!((0..MANY).map(service).collect::<Vec<_>>()).to_string();
    assert!(all.len() > api::MAX_BODY_BYTES, "longer than other requests may be");
    let answer =
        folder.request("POST", "/v1/restore", &[("Content-Type", "application/json")], &all);
    assert_eq!(answer.status, 200, "{}", answer.status);
    let objects = |name: &str| {
        let text = read(&folder, name);
        let is_object = |line: &&str| line.starts_with("{\"kind\":");
        text.lines().filter(is_object).map(str::to_owned).collect::<Vec<_>>()
    };
    run(&folder, &["backup", &path(&folder, "live")], 0);
    assert_eq!(objects("live").len(), MANY);
    slowpath.kill();
    let (_, error) = run(&folder, &["backup", &path(&folder, "stopped")], 0);
    assert!(error.contains("slowpath does not run"), "{error}");
    assert_eq!(objects("stopped"), objects("live"));
    std::fs::remove_dir_all(folder.path.join("state")).unwrap();
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let live = path(&folder, "live");
    let restored = folder.weir(&["restore", &live, "--wait", "0", "--json"]);
    let restored: Value = serde_json::from_str(&exits(&restored, 0).0).unwrap();
    assert_eq!(restored["objects"].as_array().unwrap().len(), MANY);
    run(&folder, &["backup", &path(&folder, "again")], 0);
    let desired = |name: &str| {
        let parts = |line: String| {
            let value: Value = serde_json::from_str(&line).unwrap();
            ["kind", "name", "labels", "spec"].map(|key| value[key].clone())
        };
        objects(name).into_iter().map(parts).collect::<Vec<_>>()
    };
    assert_eq!(desired("again"), desired("live"));
}

/// Returns `strace` of `weir`, with its options. What it traces is written to `output`.
fn strace(output: &str, options: &[&str]) -> Command {
    let mut program = Command::new("strace");
    program.args(["-f", "-qq", "-o", output]);
    for option in options {
        program.args(["-e", option]);
    }
    program.arg(weir());
    // With the test runner's path, the dynamic linker would open a hundred files first.
    program.env_remove("LD_LIBRARY_PATH");
    program
}

fn output(mut program: Command) -> Output {
    program.output().unwrap_or_else(|e| panic!("strace (Debian package strace): {e}"))
}

/// Returns `weir` with a fault at its system calls of this name.
fn with_fault(call: &str, fault: &str) -> Command {
    strace("/dev/null", &[&format!("trace={call}"), &format!("inject={call}:{fault}")])
}

/// Runs `weir` and kills it before its system call number `at` of this name. Returns whether it was
/// killed; it ends otherwise, successfully.
fn killed(folder: &Folder, call: &str, at: usize, args: &[&str]) -> bool {
    let mut program = with_fault(call, &format!("signal=SIGKILL:when={at}"));
    program.args(["--config", &path(folder, "weir.toml")]).args(args);
    let out = output(program);
    // strace ends by the signal that ended the program.
    let signal = std::os::unix::process::ExitStatusExt::signal(&out.status);
    assert!(signal == Some(9) || out.status.code() == Some(0), "{call} {at}: {out:?}");
    signal == Some(9)
}

/// Runs `weir`, which must succeed, and asserts that [`KILLED_AT`] has all of its system calls that
/// are in [`CHANGES`].
fn assert_all_changes_are_in_killed_at(folder: &Folder, args: &[&str]) {
    let trace = path(folder, "trace");
    let mut program = strace(&trace, &[]);
    program.args(["--config", &path(folder, "weir.toml")]).args(args);
    exits(&output(program), 0);
    let text = read(folder, "trace");
    std::fs::remove_file(&trace).unwrap();
    // `1234 write(1, ...`
    let call =
        |line: &str| Some(line.split_once(' ')?.1.trim_start().split_once('(')?.0.to_owned());
    let calls: BTreeSet<String> = text.lines().filter_map(call).collect();
    assert!(calls.contains("renameat2") || calls.contains("rename"), "{calls:?}");
    let is_change = |call: &&String| CHANGES.contains(&call.as_str());
    for call in calls.iter().filter(is_change) {
        assert!(KILLED_AT.contains(&call.as_str()), "{call} is missing in KILLED_AT");
    }
}

#[test]
fn a_restore_killed_at_any_system_call_is_completed_or_undone() {
    let folder = Folder::new("restore-kill");
    let state = |folder: &Folder| {
        let files = [read(folder, "weir.toml"), read(folder, "services.toml")];
        (files, has_service(folder, "shop/web"))
    };
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    add(&folder, "shop/web");
    let backup = path(&folder, "backup");
    run(&folder, &["backup", &backup], 0);
    let new = state(&folder);
    let old_files =
        [new.0[0].clone() + "\n# old\n", service_file("default/web", "203.0.113.1") + "# old\n"];
    let reset = || {
        folder.write("weir.toml", &old_files[0]);
        folder.write("services.toml", &old_files[1]);
        run(&folder, &["service", "delete", "shop/web", "--wait", "0"], 0);
    };
    let old = (old_files.clone(), false);
    let entries = names(&folder.path);
    let restore = ["restore", &backup, "--wait", "0"];
    let (mut kills, mut interrupted) = (0, 0);
    reset();
    assert_all_changes_are_in_killed_at(&folder, &restore);
    for call in KILLED_AT {
        for at in 1.. {
            reset();
            if !killed(&folder, call, at, &restore) {
                assert_eq!(state(&folder), new, "{call} {at}");
                break;
            }
            kills += 1;
            let has_journal = folder.path.join(".weir-restore/journal.json").exists();
            if has_journal {
                interrupted += 1;
                let (_, error) = run(&folder, &["status"], 1);
                assert!(error.contains("`weir restore --undo`"), "{call} {at}: {error}");
                let (text, _) = run(&folder, &["config", "check"], 0);
                assert!(text.contains("`weir restore FILE` repeats it"), "{call} {at}: {text}");
            } else {
                let state = state(&folder);
                assert!(state == old || state == new, "{call} {at}: {state:?}");
            }
            if has_journal && at % 2 == 0 {
                run(&folder, &["restore", "--undo"], 0);
                assert_eq!(state(&folder).0, old.0, "{call} {at}");
                assert_eq!(names(&folder.path), entries, "{call} {at}");
            }
            run(&folder, &restore, 0);
            assert_eq!(state(&folder), new, "{call} {at}");
            assert_eq!(names(&folder.path), entries, "{call} {at}");
        }
    }
    assert!(kills > 60 && interrupted > 20, "{kills} kills, {interrupted} of them left a journal");
}

#[test]
fn an_interrupted_restore_is_undone_in_any_directory_and_keeps_corrections() {
    let folder = Folder::new("restore-undo");
    let config = read(&folder, "weir.toml");
    let backup = path(&folder, "backup");
    run(&folder, &["backup", &backup, "--only", "configuration"], 0);
    let old = config + "\n# old\n";
    folder.write("weir.toml", &old);
    folder.write("services.toml", &(service_file("default/web", "203.0.113.1") + "# old\n"));
    let services = read(&folder, "services.toml");
    let journal = folder.path.join(".weir-restore/journal.json");
    // Killed before the second file is moved to its path; the first renames are those of copies and
    // of the journal.
    let interrupt = || {
        for at in 1.. {
            let mut program = with_fault("rename", &format!("signal=SIGKILL:when={at}"));
            program.args(["--config", "weir.toml", "restore", &backup]).current_dir(&folder.path);
            output(program);
            if journal.exists() && read(&folder, "weir.toml") != old {
                return;
            }
            assert!(at < 20, "the restore does not replace two files one after the other");
        }
    };
    let undo = |args: &[&str], code| {
        let mut program = Command::new(weir());
        program.args(["--config", &path(&folder, "weir.toml"), "restore"]).args(args);
        exits(&program.current_dir("/").output().unwrap(), code)
    };
    interrupt();
    undo(&["--undo"], 0);
    assert_eq!(
        (read(&folder, "weir.toml"), read(&folder, "services.toml")),
        (old.clone(), services)
    );
    assert!(!journal.exists());

    interrupt();
    let corrected = read(&folder, "weir.toml") + "# a correction\n";
    folder.write("weir.toml", &corrected);
    for args in [&["--undo"][..], &[&backup]] {
        let (_, error) = undo(args, 2);
        assert!(error.contains("weir.toml: changed since the interrupted restore"), "{error}");
        assert!(error.contains("weir restore --undo --force"), "{error}");
        assert_eq!(read(&folder, "weir.toml"), corrected);
    }
    undo(&["--undo", "--force"], 0);
    assert_eq!(read(&folder, "weir.toml"), old);
    let (text, _) = undo(&["--undo"], 0);
    assert!(text.contains("no restore was interrupted"), "{text}");
}

#[test]
fn what_a_restore_reports_after_a_failed_sync_is_true() {
    let folder = Folder::new("restore-sync");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    add(&folder, "shop/web");
    let backup = path(&folder, "backup");
    run(&folder, &["backup", &backup], 0);
    let state = || {
        let files = [read(&folder, "weir.toml"), read(&folder, "services.toml")];
        (files, has_service(&folder, "shop/web"))
    };
    let new = state();
    let old_files =
        [new.0[0].clone() + "\n# old\n", service_file("default/web", "203.0.113.1") + "# old\n"];
    let old = (old_files.clone(), false);
    let entries = names(&folder.path);
    // One sync fails, or all from one on: then the undo fails too.
    for (end, mut outcomes) in [("", BTreeSet::new()), ("+", BTreeSet::new())] {
        for at in 1.. {
            folder.write("weir.toml", &old_files[0]);
            folder.write("services.toml", &old_files[1]);
            run(&folder, &["service", "delete", "shop/web", "--wait", "0"], 0);
            let mut program = with_fault("fsync", &format!("error=EIO:when={at}{end}"));
            program.args(["--config", &path(&folder, "weir.toml")]);
            program.args(["restore", &backup, "--wait", "0"]);
            let out = output(program);
            let error = String::from_utf8_lossy(&out.stderr).into_owned();
            let has_journal = folder.path.join(".weir-restore/journal.json").exists();
            let outcome = match out.status.code() {
                Some(0) if error.is_empty() => break,
                Some(0) => {
                    assert!(error.contains("warning: ") && !has_journal, "{at}{end}: {error}");
                    assert_eq!(state(), new, "{at}{end}: {error}");
                    "restored with a warning"
                }
                Some(2) if has_journal => {
                    assert!(
                        error.contains("some files of the configuration may be new"),
                        "{error}"
                    );
                    assert!(!error.contains("nothing was restored"), "{at}{end}: {error}");
                    run(&folder, &["restore", "--undo"], 0);
                    assert_eq!(state(), old, "{at}{end}: {error}");
                    "not undone"
                }
                Some(2) => {
                    assert!(error.contains("nothing was restored"), "{at}{end}: {error}");
                    assert_eq!(state(), old, "{at}{end}: {error}");
                    "nothing"
                }
                _ => panic!("{at}{end}: {out:?}"),
            };
            outcomes.insert(outcome);
            run(&folder, &["restore", &backup, "--wait", "0"], 0);
            assert_eq!((state(), names(&folder.path)), (new.clone(), entries.clone()));
        }
        let expected: &[&str] = match end {
            "" => &["nothing", "restored with a warning"],
            _ => &["not undone", "nothing", "restored with a warning"],
        };
        assert!(outcomes.iter().eq(expected), "{outcomes:?}");
    }

    // The first sync is that of the file, the second that of its directory.
    let other = path(&folder, "other");
    for (at, text, is_written) in
        [(1, "no backup was written", false), (2, "the backup is complete", true)]
    {
        let mut program = with_fault("fsync", &format!("error=EIO:when={at}"));
        program.args(["--config", &path(&folder, "weir.toml"), "backup", &other]);
        let (_, error) = exits(&output(program), 2);
        assert!(error.contains(text), "{error}");
        assert_eq!(Path::new(&other).exists(), is_written);
    }
    run(&folder, &["restore", &other, "--dry-run"], 0);
}

#[test]
fn a_backup_killed_at_any_system_call_is_whole_or_absent() {
    let folder = Folder::new("backup-kill");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    add(&folder, "shop/web");
    let (target, old) = (path(&folder, "target"), path(&folder, "old"));
    run(&folder, &["backup", &old], 0);
    let mut kills = 0;
    for force in [false, true] {
        let mut backup = vec!["backup", target.as_str()];
        backup.extend(force.then_some("--force"));
        let _ = std::fs::remove_file(&target);
        assert_all_changes_are_in_killed_at(&folder, &backup);
        for call in KILLED_AT {
            for at in 1.. {
                let _ = std::fs::remove_file(&target);
                if force {
                    std::fs::copy(&old, &target).unwrap();
                }
                if !killed(&folder, call, at, &backup) {
                    break;
                }
                kills += 1;
                if force || Path::new(&target).exists() {
                    run(&folder, &["restore", &target, "--dry-run"], 0);
                }
                for name in names(&folder.path) {
                    if name.starts_with(".target.new-") {
                        let about = std::fs::metadata(folder.path.join(&name)).unwrap();
                        assert_eq!(about.mode() & 0o77, 0, "{call} {at}");
                        std::fs::remove_file(folder.path.join(name)).unwrap();
                    }
                }
            }
        }
    }
    assert!(kills > 8, "{kills}");
}

#[test]
fn objects_are_restored_all_or_none_when_slowpath_is_killed() {
    let folder = Folder::new("restore-slowpath-kill");
    folder.write("weir.toml", &config_without_services(&folder));
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let count = 400;
    let service = |number: usize, round: u64| {
        let annotations = json!({ "round": round.to_string() });
        let name = format!("s{number}");
        json!({ "kind": "Service", "name": name, "annotations": annotations, "spec": {} })
    };
    let list = |round| json!((0..count).map(|n| service(n, round)).collect::<Vec<_>>()).to_string();
    let json = [("Content-Type", "application/json")];
    assert_eq!(folder.request("POST", "/v1/restore", &json, &list(0)).status, 200);
    let (mut before, mut restored) = (0, 0);
    let mut delay = std::time::Duration::from_micros(500);
    for round in 1..=30_u64 {
        let body = list(round);
        let acknowledged = std::thread::scope(|scope| {
            let sent = scope.spawn(|| folder.try_request("POST", "/v1/restore", &json, &body));
            // Adjusted after each round, so that kills come shortly before and after the write.
            std::thread::sleep(delay);
            slowpath.kill();
            sent.join().unwrap().is_ok_and(|answer| answer.status == 200)
        });
        slowpath = folder.slowpath();
        folder.until(&["status"], |s| generation(s) > 0);
        let stored = folder.request("GET", "/v1/backup", &[], "").json();
        let stored = stored["items"].as_array().unwrap();
        let rounds: BTreeSet<String> =
            stored.iter().map(|one| one["annotations"]["round"].to_string()).collect();
        assert_eq!(stored.len(), count);
        assert_eq!(rounds.len(), 1, "round {round}: a part of a restore is stored: {rounds:?}");
        let is_new = rounds.contains(&format!("\"{round}\""));
        assert!(is_new || !acknowledged, "round {round}: {rounds:?}");
        if is_new {
            restored += 1;
            delay = delay * 2 / 3;
        } else {
            before += 1;
            delay *= 2;
        }
    }
    assert!(restored > 0 && before > 0, "{restored} restored, {before} not");
}
