//! slowpath as a service: its messages to the service manager, and its work as a user other than
//! root.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::appliance::{Folder, Running};
use crate::generation;
use crate::stall::Ext4;

/// Upper bound of any wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// The watchdog's timeout. slowpath sends `WATCHDOG=1`, a beat, four times as often.
const WATCHDOG: Duration = Duration::from_secs(1);
/// Debian's user and group without privileges.
const NOBODY: u32 = 65_534;

/// An emulated service manager.
struct Manager {
    path: String,
    socket: UnixDatagram,
}

impl Manager {
    fn new(folder: &Folder) -> Manager {
        let path = folder.path.join("notify").display().to_string();
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(WATCHDOG)).unwrap();
        Manager { path, socket }
    }

    /// Starts slowpath with this service manager.
    fn start(&self, folder: &Folder) -> Running {
        let timeout = WATCHDOG.as_micros().to_string();
        folder.slowpath_with(&[("NOTIFY_SOCKET", &self.path), ("WATCHDOG_USEC", &timeout)])
    }

    /// Returns the next message; `None` if none arrives for a timeout of the watchdog.
    fn next(&self) -> Option<String> {
        let mut bytes = [0; 1024];
        match self.socket.recv(&mut bytes) {
            Ok(len) => Some(String::from_utf8_lossy(&bytes[..len]).into_owned()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for a message that contains the line.
    #[track_caller]
    fn wait_for(&self, line: &str) -> String {
        let (begun, mut received) = (Instant::now(), Vec::new());
        while begun.elapsed() < PATIENCE {
            let Some(message) = self.next() else { continue };
            if message.lines().any(|found| found == line) {
                return message;
            }
            received.push(message);
        }
        panic!("no {line}, but {received:?}");
    }

    /// Waits until no beat has arrived for a timeout of the watchdog.
    #[track_caller]
    fn wait_for_silence(&self) {
        let (begun, mut last_beat) = (Instant::now(), Instant::now());
        while last_beat.elapsed() < WATCHDOG {
            assert!(begun.elapsed() < PATIENCE, "beats do not stop");
            if self.next().is_some_and(|message| message == "WATCHDOG=1") {
                last_beat = Instant::now();
            }
        }
    }
}

/// Sends a signal, given as for `kill`: `-HUP`.
fn signal(slowpath: &Running, signal: &str) {
    let pid = slowpath.0.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

/// Returns the number of backends of the service `default/web`.
fn backends(folder: &Folder) -> usize {
    let output = folder.weir(&["services", "--json"]);
    let services: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    services[0]["backends"].as_array().unwrap().len()
}

#[test]
fn readiness_reload_and_shutdown_are_reported() {
    let folder = Folder::new("service");
    let manager = Manager::new(&folder);
    let mut slowpath = manager.start(&folder);
    let ready = manager.wait_for("READY=1");
    assert!(ready.contains("\nSTATUS=not able: "), "{ready}");
    UnixStream::connect(folder.socket()).expect("a process that is ready serves");
    manager.wait_for("STATUS=not able: no lcore: the data plane is not running");
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1");

    folder.until(&["status"], |s| generation(s) > 0);
    assert_eq!(backends(&folder), 2);
    folder.services(&["10.97.2.11", "10.97.2.12", "10.97.2.13"]);
    signal(&slowpath, "-HUP");
    let reloading = manager.wait_for("RELOADING=1");
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    manager.wait_for("READY=1");
    assert_eq!(backends(&folder), 3, "the reload has ended when it is reported");

    folder.write("services.toml", "nonsense");
    signal(&slowpath, "-HUP");
    manager.wait_for("RELOADING=1");
    manager.wait_for("READY=1");
    // A reload with a rejected file ends too.
    folder.until(&["status"], |status| status["services_file"]["error"].is_string());

    signal(&slowpath, "-TERM");
    let stopping = manager.wait_for("STOPPING=1");
    assert!(stopping.contains("\nSTATUS="), "{stopping}");
    assert_eq!(slowpath.0.wait().unwrap().code(), Some(0));
}

#[test]
fn beats_stop_while_the_control_loop_is_stuck() {
    let folder = Folder::new("service-stuck");
    // The region's own file hangs: the loop's next write to it does not return.
    let disk = Ext4::mount(&folder, "region");
    let manager = Manager::new(&folder);
    let mut slowpath = manager.start(&folder);
    manager.wait_for("READY=1");
    folder.until(&["status"], |s| generation(s) > 0);
    manager.wait_for("WATCHDOG=1");
    disk.freeze();
    folder.services(&["10.97.2.11", "10.97.2.12", "10.97.2.13"]);
    manager.wait_for_silence();
    disk.thaw();
    manager.wait_for("WATCHDOG=1");
    signal(&slowpath, "-TERM");
    assert_eq!(slowpath.0.wait().unwrap().code(), Some(0));
}

/// Runs `slowpath --prepare` as root.
fn prepare(folder: &Folder) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_slowpath"));
    program.arg("--config").arg(folder.path.join("weir.toml")).arg("--prepare");
    let Output { status, stderr, .. } = program.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
}

/// Starts slowpath as nobody with these capabilities.
fn as_nobody(folder: &Folder, capabilities: &str) -> Running {
    let log = std::fs::File::create(folder.path.join("log")).unwrap();
    let id = NOBODY.to_string();
    let mut program = Command::new("setpriv");
    program.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--no-new-privs"]);
    program.args(["--inh-caps", capabilities, "--ambient-caps", capabilities]);
    program.arg(env!("CARGO_BIN_EXE_slowpath"));
    program.arg("--config").arg(folder.path.join("weir.toml"));
    Running(program.stdin(Stdio::null()).stderr(log).spawn().unwrap())
}

#[test]
fn slowpath_runs_as_another_user_and_as_root_on_the_same_files() {
    const CAPABILITIES: &str = "-all,+net_admin,+net_bind_service,+dac_read_search";
    let folder = Folder::new("service-user");
    let config = folder.config();
    let config = config.replace("[region]", "[region]\nuser = \"nobody\"\ngroup = \"nogroup\"");
    folder.write("weir.toml", &config.replace("[control]", "[control]\ngroup = \"\""));
    // The directory of the control socket.
    chown(&folder.path, Some(NOBODY), Some(NOBODY)).unwrap();
    let owner = |name: &str| std::fs::metadata(folder.path.join(name)).unwrap().uid();
    prepare(&folder);
    assert_eq!((owner("region/file"), owner("state")), (0, NOBODY));

    let mut slowpath = as_nobody(&folder, CAPABILITIES);
    folder.until(&["status"], |s| generation(s) > 0);
    assert_eq!(owner("control.sock"), NOBODY);
    let capabilities = |status: &str, set: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let process = format!("/proc/{}", slowpath.0.id());
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
    // CAP_NET_BIND_SERVICE and CAP_NET_ADMIN. Each thread has dropped CAP_DAC_READ_SEARCH, which is
    // needed only to open the region.
    let granted = 1 << 10 | 1 << 12;
    for set in ["CapEff:", "CapPrm:", "CapAmb:"] {
        assert_eq!(capabilities(&status, set), granted, "{set} {status}");
    }
    let mut without_capabilities = 0;
    for thread in std::fs::read_dir(format!("{process}/task")).unwrap() {
        // A thread may end meanwhile.
        let Ok(status) = std::fs::read_to_string(thread.unwrap().path().join("status")) else {
            continue;
        };
        for set in ["CapEff:", "CapPrm:", "CapAmb:"] {
            assert_eq!(capabilities(&status, set) & !granted, 0, "{set} {status}");
        }
        without_capabilities += u32::from(capabilities(&status, "CapPrm:") == 0);
    }
    assert_eq!(without_capabilities, 2, "the threads of the log and of the event history");
    slowpath.kill();

    // As root, by hand, and then as the user again.
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    assert_eq!(owner("control.sock"), 0);
    slowpath.kill();
    prepare(&folder);
    assert!(!folder.path.join("control.sock").exists(), "the socket of root is removed");
    let mut slowpath = as_nobody(&folder, CAPABILITIES);
    folder.until(&["status"], |s| generation(s) > 0);
    assert_eq!(owner("control.sock"), NOBODY);
    slowpath.kill();

    let ended = as_nobody(&folder, "-all,+net_bind_service").0.wait().unwrap();
    assert_eq!(ended.code(), Some(1));
    let log = folder.log();
    assert!(log.contains("missing capabilities: CAP_NET_ADMIN (neighbors"), "{log}");
    assert!(log.contains("systemctl start weir-slowpath"), "{log}");
}
