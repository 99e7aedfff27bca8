//! Tests with disks that hang, files that are not regular, and a control loop that stalls: health,
//! responses to writes, and the end of the process.
//!
//! The disk is a real one: ext4 in a file, mounted through a loop device and frozen by `fsfreeze`.
//! A write to it blocks in the kernel until it is thawed, as on a volume that hangs.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use patience::{check, eventually_within};
use serde_json::{Value, json};
use tables::region::{Region, Role};

use crate::appliance::{Answer, Folder, Running};
use crate::generation;

/// Maximum duration of any step before the test fails.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Default of `health.stall_timeout_ms`.
const STALL: Duration = Duration::from_secs(5);

#[track_caller]
fn run(program: &str, args: &[&str]) {
    let out = Command::new(program).args(args).output();
    let out = out.unwrap_or_else(|e| panic!("{program} is needed for this test: {e}"));
    assert!(out.status.success(), "{program} {args:?}: {out:?}");
}

#[track_caller]
fn until<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    eventually_within(TIMEOUT, what, look)
}

/// A file system of the test that can be frozen: writes to it then block in the kernel.
pub struct Ext4(PathBuf);

impl Ext4 {
    /// Creates the file system in a file, and mounts it at a path below the folder.
    pub fn mount(folder: &Folder, at: &str) -> Ext4 {
        let (image, at) = (folder.path.join("image"), folder.path.join(at));
        std::fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
        std::fs::create_dir_all(&at).unwrap();
        run("mkfs.ext4", &["-q", &image.display().to_string()]);
        run("mount", &["-o", "loop", &image.display().to_string(), &at.display().to_string()]);
        Ext4(at)
    }

    pub fn freeze(&self) {
        run("fsfreeze", &["--freeze", &self.0.display().to_string()]);
    }

    pub fn thaw(&self) {
        run("fsfreeze", &["--unfreeze", &self.0.display().to_string()]);
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        // Fails if the file system is not frozen.
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(&self.0).output();
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// An lcore without packets, emulated by a thread of the test: it polls and acknowledges
/// generations.
struct Lcore {
    region: &'static Region,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lcore {
    fn start(path: &Path) -> Lcore {
        let region: &'static Region = Box::leak(Box::new(Region::open(path).unwrap()));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let claim = region.claim(Role::Fastpath).unwrap();
            let lcore = &region.lcores()[0];
            lcore.join(region, claim.epoch(), 1);
            (0..2).for_each(|arm| lcore.set_link(arm, true));
            while !stopped.load(Ordering::Relaxed) {
                lcore.count_iteration();
                lcore.acknowledge(region.generation());
                std::thread::sleep(Duration::from_millis(2));
            }
            lcore.leave();
        });
        Lcore { region, stop, thread: Some(thread) }
    }

    fn set_egress_link(&self, up: bool) {
        self.region.lcores()[0].set_link(1, up);
    }
}

impl Drop for Lcore {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Starts slowpath and an lcore, and waits until the appliance is able.
fn start_able(folder: &Folder) -> (Running, Lcore) {
    let slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let lcore = Lcore::start(&folder.path.join("region/file"));
    until_able(folder);
    (slowpath, lcore)
}

#[track_caller]
fn until_able(folder: &Folder) {
    until("a health response with 200", || {
        let answer = health(folder);
        check(answer.contains(" 200 "), || answer)
    });
}

fn health(folder: &Folder) -> String {
    folder.get(folder.ports[0], "/", "*/*")
}

/// Returns exit code and output of `weir status`.
fn status(folder: &Folder) -> (Option<i32>, Value) {
    let out = folder.weir(&["status", "--json"]);
    (out.status.code(), serde_json::from_slice(&out.stdout).unwrap())
}

/// Waits until health responds with 503 and this reason, over HTTP and TCP, and `weir status`
/// agrees.
#[track_caller]
fn fails(folder: &Folder, reason: &str) {
    until(reason, || {
        let answer = health(folder);
        check(answer.contains(" 503 ") && answer.contains(reason), || answer)
    });
    until("a refused TCP probe", || {
        let probe = TcpStream::connect(("127.0.0.1", folder.ports[1]));
        check(probe.is_err(), || format!("{probe:?}"))
    });
    let (code, status) = status(folder);
    assert_eq!((code, &status["able"]), (Some(1), &json!(false)), "{status}");
    assert!(status["reasons"].to_string().contains(reason), "{status}");
}

#[track_caller]
fn recovers(folder: &Folder) {
    until_able(folder);
    assert_eq!(status(folder).0, Some(0));
}

/// Returns the error of the services file in the output of `weir status`; empty without one.
fn services_error(status: &Value) -> String {
    status["services_file"]["error"].as_str().unwrap_or_default().to_owned()
}

/// Writes a service through the API.
fn put(folder: &Folder, name: &str) -> Answer {
    let frontend = json!({ "address": "203.0.113.9", "port": 1000, "protocol": "udp" });
    let body = json!({ "spec": { "frontends": [frontend] } }).to_string();
    let path = format!("/v1/objects/services/{name}");
    folder.request("PUT", &path, &[("Content-Type", "application/json")], &body)
}

/// Returns whether a service of the API exists.
fn exists(folder: &Folder, name: &str) -> bool {
    folder.request("GET", &format!("/v1/objects/services/{name}"), &[], "").status == 200
}

#[track_caller]
fn assert_unavailable(answer: &Answer, problem_type: &str, part: &str) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.json()["type"], format!("urn:weir:{problem_type}"), "{answer:?}");
    assert!(answer.body.contains(part) && answer.body.contains("control.state"), "{answer:?}");
}

/// Waits until the service `default/web` has this number of backends.
fn wait_for_backends(folder: &Folder, count: usize) {
    folder.until(&["services"], |services| {
        let mut all = services.as_array().into_iter().flatten();
        let web = all.find(|service| service["name"] == "default/web");
        web.is_some_and(|web| web["backends"].as_array().is_some_and(|b| b.len() == count))
    });
}

/// Waits until the process exits with this code.
#[track_caller]
fn ends(slowpath: &mut Running, code: i32) {
    let ended = until("the end of the process", || {
        slowpath.0.try_wait().unwrap().ok_or_else(|| "it runs".to_owned())
    });
    assert_eq!(ended.code(), Some(code));
}

#[test]
fn a_frozen_disk_fails_writes_but_not_health_checks() {
    let folder = Folder::new("frozen");
    let disk = Ext4::mount(&folder, "state");
    let (mut slowpath, lcore) = start_able(&folder);
    assert_eq!(put(&folder, "a").status, 201);

    disk.freeze();
    // The loop submits the services to the store, reports that the write takes long, and continues.
    folder.services(&["10.97.2.11", "10.97.2.12", "10.97.2.13"]);
    folder.until(&["status"], |s| services_error(s).contains("has not responded"));
    let begun = Instant::now();
    while begun.elapsed() < STALL + Duration::from_secs(2) {
        let answer = health(&folder);
        assert!(answer.contains(" 200 "), "a slow disk does not change ability: {answer}");
        std::thread::sleep(Duration::from_millis(100));
    }
    // A write queued behind another one is withdrawn after a timeout, so that it is not made.
    assert_unavailable(&put(&folder, "b"), "store", "nothing was changed");
    assert_unavailable(&put(&folder, "b"), "store", "does not respond");
    assert!(!exists(&folder, "b") && exists(&folder, "a"), "reads still work");
    // The lcores' status still counts.
    lcore.set_egress_link(false);
    fails(&folder, "the link of egress is down");
    lcore.set_egress_link(true);
    recovers(&folder);

    disk.thaw();
    wait_for_backends(&folder, 3);
    folder.until(&["status"], |s| services_error(s).is_empty());
    assert!(!exists(&folder, "b"), "the write was reported as not made");
    assert_eq!(put(&folder, "b").status, 201);

    // A write that was already passed to the disk may still be made, and the response says so.
    disk.freeze();
    assert_unavailable(&put(&folder, "c"), "store-timeout", "may still be made");
    assert!(!exists(&folder, "c"), "nothing is published before its sync");
    drop(lcore);
    fails(&folder, "the data plane is not running");
    disk.thaw();
    until("the write of c", || check(exists(&folder, "c"), || "c does not exist".to_owned()));
    slowpath.terminate();
    ends(&mut slowpath, 0);
}

#[test]
fn sigterm_with_a_frozen_disk_exits_and_loses_no_acknowledged_write() {
    let folder = Folder::new("frozen-end");
    let disk = Ext4::mount(&folder, "state");
    let (mut slowpath, lcore) = start_able(&folder);
    assert_eq!(put(&folder, "a").status, 201);
    disk.freeze();
    assert_unavailable(&put(&folder, "b"), "store-timeout", "may still be made");
    slowpath.terminate();
    // The kernel keeps the thread that is blocked on the disk, and with it the process id;
    // everything else of the process is gone.
    let stat = format!("/proc/{}/stat", slowpath.0.id());
    until("the end of the process but for that thread", || {
        let stat = std::fs::read_to_string(&stat).unwrap();
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        check(state.starts_with('Z'), || stat.clone())
    });
    for port in folder.ports {
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "port {port} is open");
    }
    assert!(!Path::new(&folder.socket()).exists());
    disk.thaw();
    ends(&mut slowpath, 0);
    drop(lcore);
    let (_again, _lcore) = start_able(&folder);
    assert!(exists(&folder, "a"), "the write was acknowledged");
}

#[test]
fn a_fifo_as_services_file_is_reported_and_blocks_nothing() {
    let folder = Folder::new("fifo");
    let (mut slowpath, lcore) = start_able(&folder);
    let services = folder.path.join("services.toml");
    let fifo = folder.path.join("fifo");
    run("mkfifo", &[&fifo.display().to_string()]);
    std::fs::rename(&fifo, &services).unwrap();
    let error = services_error(&folder.until(&["status"], |s| !services_error(s).is_empty()));
    let path = services.display().to_string();
    assert!(error.contains(&path) && error.contains("is a FIFO, not a regular file"), "{error}");
    assert!(health(&folder).contains(" 200 "), "the previous services stay in force");
    wait_for_backends(&folder, 2);
    lcore.set_egress_link(false);
    fails(&folder, "the link of egress is down");
    lcore.set_egress_link(true);
    recovers(&folder);
    slowpath.terminate();
    ends(&mut slowpath, 0);

    // A new process reports the FIFO too.
    let mut again = folder.slowpath();
    folder.until(&["status"], |s| services_error(s).contains("is a FIFO"));
    folder.services(&["10.97.2.11"]);
    wait_for_backends(&folder, 1);
    again.terminate();
    ends(&mut again, 0);
}

#[test]
fn a_stalled_loop_fails_health_until_it_continues() {
    let folder = Folder::new("stalled");
    // Here the region's own file hangs: the loop's next write to it does not return.
    let disk = Ext4::mount(&folder, "region");
    let (mut slowpath, lcore) = start_able(&folder);
    disk.freeze();
    folder.services(&["10.97.2.11", "10.97.2.12", "10.97.2.13"]);
    fails(&folder, "the control loop is stalled");
    assert!(health(&folder).contains("health.stall_timeout_ms"));
    let metrics = folder.get(folder.ports[2], "/metrics", "text/plain");
    assert!(metrics.contains("\nweir_able 0.0\n"), "{metrics}");
    disk.thaw();
    recovers(&folder);
    wait_for_backends(&folder, 3);
    drop(lcore);
    slowpath.terminate();
    ends(&mut slowpath, 0);
}
