//! Tests of the registration at AWS: the real process, with an AWS emulator in the test's process.

use std::process::Command;

use cloud_emulators::Emulator;
use cloud_emulators::state::AwsState;
use cloud_emulators::target::{State, Target};
use patience::eventually;
use serde_json::Value;

use crate::appliance::{Folder, Running};

/// Address of the appliance's ingress interface at the emulator.
const OWN_IP: &str = "10.0.1.11";

/// A network interface for the duration of a test, in place of the fastpath's.
struct Port(&'static str);

impl Port {
    fn new(name: &'static str) -> Port {
        let mut ip = Command::new("ip");
        ip.args(["link", "add", name, "address", "02:00:0a:00:01:01", "type", "veth"]);
        assert!(ip.status().unwrap().success(), "{ip:?}");
        Port(name)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", self.0]).status();
    }
}

/// The appliance of a test, with an emulator of its own. Its ingress port is `tap`.
struct Stage {
    folder: Folder,
    aws: Emulator,
    _runtime: tokio::runtime::Runtime,
}

impl Stage {
    fn new(name: &str, tap: &str) -> Stage {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let aws = runtime.block_on(Emulator::start(AwsState::sample("ip"))).unwrap();
        let folder = Folder::new(name);
        let config = folder.config().replace("wsp-none0", tap);
        folder.write("weir.toml", &format!("{config}\n[aws]\ncluster = \"north\"\n"));
        Stage { folder, aws, _runtime: runtime }
    }

    /// Registers the appliance as a healthy target, as an earlier slowpath would have left it.
    fn registered(self) -> Stage {
        self.aws.with(|state| {
            let health_check = state.groups[0].health_check();
            let mut target = Target::new(OWN_IP, true, state.now, health_check);
            target.state = State::Healthy;
            state.groups[0].targets.push(target);
        });
        self
    }

    fn slowpath(&self) -> Running {
        let url = &self.aws.url;
        self.folder
            .slowpath_with(&[("AWS_ENDPOINT_URL", url), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)])
    }

    /// Polls `GET /cloud` of the control socket until the report satisfies `fits`, and returns it.
    fn until(&self, fits: impl Fn(&Value) -> bool) -> Value {
        eventually("a report of the cloud that fits", || {
            let report = self.folder.try_request("GET", "/cloud", &[], "");
            let report = report.ok().filter(|answer| answer.status == 200).map(|a| a.json());
            let fitting = report.clone().filter(|report| fits(report));
            fitting.ok_or_else(|| format!("{report:?}\n{}", self.folder.log()))
        })
    }

    /// Sends a signal, given as for `kill`: `-TERM`.
    fn signal(&self, slowpath: &Running, signal: &str) {
        let id = slowpath.0.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for the process to exit with status 0; returns its log.
    fn await_exit(&self, slowpath: &mut Running) -> String {
        let status = slowpath.0.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.folder.log());
        self.folder.log()
    }

    /// Returns the state of the first registered target.
    fn state(&self) -> Option<State> {
        self.aws.with(|state| state.groups[0].targets.first().map(|target| target.state))
    }

    /// Returns whether the operation was called since the last call of this function.
    fn was_called(&self, operation: &str) -> bool {
        self.aws.take_calls().iter().any(|call| call.operation == operation)
    }
}

#[test]
fn without_a_fastpath_slowpath_returns_503_and_does_not_register() {
    let _port = Port::new("wsp-aws0");
    let stage = Stage::new("aws-unable", "wsp-aws0");
    let _slowpath = stage.slowpath();
    let read = |report: &Value| report["deregistration_delay_s"] == 120;
    let report = stage.until(read);
    assert_eq!((&report["phase"], &report["target"]), (&"outside".into(), &OWN_IP.into()));
    let health = stage.folder.get(stage.folder.ports[0], "/", "*/*");
    for part in [" 503 ", "data plane is not running", "not registered with the target group yet"] {
        assert!(health.contains(part), "no {part:?} in {health}");
    }
    let metrics = stage.folder.get(stage.folder.ports[2], "/metrics", "text/plain");
    for metric in ["weir_cloud_phase{phase=\"outside\"} 1", "weir_ready 0"] {
        assert!(metrics.contains(metric), "{metric} is missing in\n{metrics}");
    }
    assert!(!stage.was_called("RegisterTargets"));
    assert_eq!(stage.state(), None);
}

#[test]
fn sigterm_during_discovery_ends_slowpath() {
    // The interface does not exist, so discovery can't finish.
    let stage = Stage::new("aws-looking", "wsp-none9");
    let mut slowpath = stage.slowpath();
    let report = stage.until(|report| report["error"] != "");
    assert_eq!(report["phase"], "looking");
    assert!(report["error"].as_str().unwrap().contains("is the fastpath running?"), "{report}");
    stage.signal(&slowpath, "-TERM");
    let log = stage.await_exit(&mut slowpath);
    assert!(log.contains("cloud lifecycle ended cloud=AWS outcome=Drained"), "{log}");
    assert!(!stage.was_called("DeregisterTargets"));
}

#[test]
fn sigterm_deregisters_and_a_second_one_ends_slowpath_at_once() {
    let _port = Port::new("wsp-aws1");
    let stage = Stage::new("aws-second", "wsp-aws1").registered();
    let mut slowpath = stage.slowpath();
    stage.until(|report| report["state"] == "healthy");
    stage.signal(&slowpath, "-TERM");
    let report = stage.until(|report| report["phase"] == "leaving");
    assert_eq!(report["drain"]["reason"], "leaving: SIGTERM received");
    // Wait for the deregistration: a second signal before it would abort the call.
    stage.until(|_| stage.state() == Some(State::Draining));
    stage.signal(&slowpath, "-TERM");
    let log = stage.await_exit(&mut slowpath);
    assert!(log.contains("cloud lifecycle ended cloud=AWS outcome=Forced"), "{log}");
    assert_eq!(stage.state(), Some(State::Draining));
}

#[test]
fn sigint_ends_slowpath_and_leaves_the_registration() {
    let _port = Port::new("wsp-aws2");
    let stage = Stage::new("aws-interrupt", "wsp-aws2").registered();
    let mut slowpath = stage.slowpath();
    stage.until(|report| report["state"] == "healthy");
    stage.signal(&slowpath, "-INT");
    stage.await_exit(&mut slowpath);
    assert_eq!(stage.state(), Some(State::Healthy));
    assert!(!stage.was_called("DeregisterTargets"));
    // The next slowpath finds the target registered and healthy, and does not register it again.
    assert!(stage.folder.path.join("state/aws.json").exists());
    let _again = stage.slowpath();
    stage.until(|report| report["state"] == "healthy");
    assert!(!stage.was_called("RegisterTargets"));
}
