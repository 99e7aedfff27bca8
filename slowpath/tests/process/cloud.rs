//! Tests of the processes with the AWS emulator: route tables that follow the leader, and the
//! commands of `weir cloud`.

use std::process::{Command, Output};
use std::time::Duration;

use cloud_emulators::Emulator;
use cloud_emulators::state::AwsState;
use patience::eventually;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::appliance::{Folder, Running, weir};
use crate::command::with_an_lcore;

/// ID of another instance of the emulator than the one that runs the appliance.
const OTHER: &str = "i-00000000000000002";

/// An appliance and an AWS emulator.
pub struct Cloud {
    pub folder: Folder,
    pub aws: Emulator,
    _runtime: Runtime,
}

impl Cloud {
    /// Creates an appliance with this section `[aws]`, and an emulator for it.
    pub fn new(name: &str, section: &str) -> Cloud {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let aws = runtime.block_on(Emulator::start(AwsState::sample("ip"))).unwrap();
        let folder = Folder::new(name);
        folder.write("weir.toml", &format!("{}\n[aws]\n{section}\n", folder.config()));
        Cloud { folder, aws, _runtime: runtime }
    }

    /// Returns a command that runs a program against the emulator.
    fn program(&self, path: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut program = Command::new(path);
        program
            .arg("--config")
            .arg(self.folder.path.join("weir.toml"))
            .env("AWS_ENDPOINT_URL", &self.aws.url)
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &self.aws.url)
            .env("AWS_REGION", "eu-central-1")
            .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        program
    }

    pub fn slowpath(&self) -> Running {
        let log = std::fs::File::create(self.folder.path.join("log")).unwrap();
        let mut slowpath = self.program(env!("CARGO_BIN_EXE_slowpath"));
        Running(slowpath.stderr(log).spawn().unwrap())
    }

    fn weir(&self, args: &[&str]) -> Output {
        self.program(weir()).args(args).output().unwrap()
    }

    /// Runs `weir ARGS` with JSON output; returns the document and the exit code.
    fn run_json(&self, args: &[&str]) -> (Value, Option<i32>) {
        let out = self.weir(&[&["--output", "json"], args].concat());
        let document = serde_json::from_slice(&out.stdout);
        (document.unwrap_or_else(|e| panic!("{args:?}: {e}: {out:?}")), out.status.code())
    }

    /// Returns the target of the default route in the first route table.
    fn default_route(&self) -> String {
        self.aws.with(|state| state.tables[0].routes["0.0.0.0/0"].clone())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_leader_points_the_routes_at_itself_once_able() {
    let cloud = Cloud::new("cloud-routes", "mode = \"routes\"\ncluster = \"north\"");
    for instance in 0..2 {
        cloud.aws.with(|state| {
            let tags = &mut state.instances[instance].tags;
            tags.insert("weir:leader".into(), (2 - instance).to_string());
        });
    }
    let mut slowpath = cloud.slowpath();
    let leading = |cloud: &Value| cloud["phase"] == "leading";
    let unable = cloud.folder.until(&["cloud", "status"], leading);
    let names: Vec<_> = unable["findings"].as_array().unwrap().iter().map(|f| &f["name"]).collect();
    assert!(names.contains(&&json!("leader-not-able")), "{names:?}");
    assert_eq!(cloud.weir(&["cloud", "status"]).status.code(), Some(1));
    assert_eq!(cloud.default_route(), "igw-00000000000000001");

    with_an_lcore(&cloud.folder, || {
        let ready = cloud.folder.until(&["cloud", "status"], |c| c["ready"] == true);
        assert_eq!(cloud.default_route(), "eni-00000000000000101");
        assert_eq!(ready["peers"][0]["state"], "leading");
        let status = cloud.folder.until(&["status"], |s| s["ready"] == true);
        assert!(status["cloud"].as_str().unwrap().starts_with("aws: leading"), "{status}");
        let shown = cloud.weir(&["cloud", "status", "--calls"]);
        let shown = (text(&shown.stdout), shown.status.code());
        assert!(shown.1 == Some(0) && shown.0.starts_with("ready"), "{shown:?}");
        assert!(shown.0.contains("ReplaceRoute") && shown.0.contains("this machine"), "{shown:?}");
    });
    let pid = slowpath.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(slowpath.0.wait().unwrap().success());
    let log = std::fs::read_to_string(cloud.folder.path.join("log")).unwrap();
    assert!(log.contains("deprecated") && log.contains("leader ended"), "{log}");
}

#[test]
fn doctor_reports_problems_without_slowpath() {
    let cloud = Cloud::new("cloud-doctor", "cluster = \"north\"");
    cloud.aws.with(|state| {
        let group = &mut state.groups[0];
        group.health_port = cloud.folder.ports[0].to_string();
        let ingress = &mut state.instances[0].interfaces[1];
        ingress.addresses = vec!["10.97.1.10".into()];
        state.forbidden.push("DescribeListeners".into());
    });
    let (checks, code) = cloud.run_json(&["cloud", "doctor"]);
    let checks = checks.as_array().unwrap();
    let verdict = |name: &str| {
        let found = checks.iter().find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {checks:#?}"))["verdict"].clone()
    };
    assert_eq!(code, Some(1));
    assert_eq!(verdict("elasticloadbalancing:DescribeListeners"), "fail");
    assert_eq!(verdict("GENEVE admitted"), "fail");
    assert_eq!(verdict("target state"), "fail");
    assert_eq!(verdict("target type"), "ok");
    assert_eq!(verdict("slowpath"), "warn");
    let table = text(&cloud.weir(&["cloud", "doctor"]).stdout);
    assert!(table.contains("FAIL  elasticloadbalancing:DescribeListeners"), "{table}");
    assert!(table.contains("-> allow elasticloadbalancing:DescribeListeners"), "{table}");
    let without = cloud.folder.config();
    cloud.folder.write("weir.toml", &without);
    let none = cloud.weir(&["cloud", "doctor"]);
    assert!(none.status.code() == Some(2) && text(&none.stderr).contains("[aws]"), "{none:?}");
}

/// Waits for a command in progress at the emulator, and completes it as if the instance had run it.
fn run_command(aws: &Emulator, code: i32, output: &str) {
    eventually("a command", || {
        aws.with(|state| {
            state.now += Duration::from_secs(1);
            let all = format!("{:?}", state.commands);
            let running =
                state.commands.iter_mut().find(|c| c.status == "InProgress").ok_or(all)?;
            running.status = if code == 0 { "Success".into() } else { "Failed".into() };
            (running.code, running.output) = (code, output.into());
            Ok(())
        })
    });
    // Makes the result visible: the emulator is eventually consistent, as AWS is.
    aws.advance(Duration::from_secs(2));
}

#[test]
fn a_remote_command_returns_its_exit_status() {
    let cloud = Cloud::new("cloud-exec", "cluster = \"north\"");
    let exec = |code, output: &str, args: &[&str]| {
        std::thread::scope(|scope| {
            scope.spawn(|| run_command(&cloud.aws, code, output));
            cloud.weir(&[&["cloud", "exec"], args].concat())
        })
    };
    let done = exec(0, "up 3 days\n", &[OTHER, "--", "uptime"]);
    assert_eq!((text(&done.stdout).as_str(), done.status.code()), ("up 3 days\n", Some(0)));
    let done = exec(7, "", &[OTHER, "--output", "json", "--", "test", "-e", "a b"]);
    let document: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((done.status.code(), &document["exit_code"]), (Some(7), &json!(7)));
    assert_eq!(document["script"], "test -e 'a b'");
    let long = exec(0, &"x".repeat(24_000), &[OTHER, "--", "yes"]);
    assert!(text(&long.stderr).contains("24000 characters of output"), "{long:?}");
    let unknown = cloud.weir(&["cloud", "exec", "i-0", "--", "true"]);
    assert_eq!(unknown.status.code(), Some(255));
    assert!(text(&unknown.stderr).contains("SSM agent"), "{unknown:?}");
}

#[test]
fn wait_returns_on_the_state_or_reports_the_current_one() {
    let cloud = Cloud::new("cloud-wait", "cluster = \"north\"");
    let wait = |args: &[&str]| cloud.run_json(&[&["cloud", "wait"], args].concat());
    let (state, code) = wait(&["instance", OTHER, "running"]);
    assert_eq!((code, &state["reached"]), (Some(0), &json!(true)));
    let (state, code) = wait(&["instance", OTHER, "stopped", "--timeout", "0"]);
    assert_eq!((code, &state["last"]), (Some(1), &json!("running")));
    // The target group is found by its tag, which the configuration names.
    let (state, code) = wait(&["target", "10.0.1.11", "--timeout", "0"]);
    assert_eq!((code, &state["last"]), (Some(1), &json!("unused")));
    let (state, code) = wait(&["target", "10.0.1.11", "unused"]);
    assert_eq!((code, &state["reached"]), (Some(0), &json!(true)));
    let (state, code) = wait(&["target", "--timeout", "0"]);
    assert!(code == Some(1) && state["last"].as_str().unwrap().contains("no slowpath"), "{state}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let (state, code) = wait(&["tcp", &at]);
    assert_eq!((code, &state["last"]), (Some(0), &json!("connected")));
    drop(listener);
    let (state, code) = wait(&["tcp", &at, "--timeout", "0"]);
    assert!(code == Some(1) && state["last"].as_str().unwrap().contains("refused"), "{state}");
    let wrong = cloud.weir(&["cloud", "wait", "tcp", "nowhere"]);
    assert!(wrong.status.code() == Some(2) && text(&wrong.stderr).contains("HOST:PORT"));
    let wrong = cloud.weir(&["cloud", "wait", "instance", OTHER, "happy"]);
    assert!(wrong.status.code() == Some(2) && text(&wrong.stderr).contains("shutting-down"));
}
