//! Tests of `weir auto` and `weir setup`: values of the machine, from the AWS emulator and from the
//! kernel.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use cloud_emulators::Emulator;
use cloud_emulators::state::AwsState;
use serde_json::Value;

use crate::appliance::{Folder, weir};

/// More seconds than a test may take.
const LONG: &str = "86400";
/// End of an error that only a correction by the operator ends: `--wait` does not wait for it.
const CORRECT: &str = "time does not help: correct this, then type: systemctl restart weir.target";

/// An interface with the MAC address of the emulated ingress interface.
struct Port(&'static str);

impl Port {
    fn new(name: &'static str) -> Port {
        let port = Port(name);
        port.ip(&["link", "add", name, "address", "02:00:0a:00:01:01", "type", "veth"]);
        port
    }

    fn ip(&self, args: &[&str]) {
        let out = Command::new("ip").args(args).output().unwrap();
        assert!(out.status.success(), "ip {args:?}: {out:?}");
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", self.0]).status();
    }
}

/// Returns a configuration whose name and addresses are "auto".
fn config(folder: &Folder, port: &str, more: &str) -> String {
    let path = folder.path.display();
    format!(
        "name = \"auto\"\nauto_values = \"{path}/run/auto.toml\"\nplane = \"xdp\"\n\
         services = \"{path}/services.toml\"\n{more}\n[ingress]\ndevice = \"{port}\"\n\
         address = \"auto\"\n[nat]\naddresses = \"auto\"\n"
    )
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&[&*out.stdout, &*out.stderr].concat()).into_owned()
}

/// Returns the value of a key in `weir config check`.
fn shown(folder: &Folder, key: &str) -> String {
    let out = folder.weir(&["config", "check", "--json"]);
    let document: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    let value = document["settings"][key]["value"].as_str();
    value.unwrap_or_else(|| panic!("no {key}: {document}")).to_owned()
}

#[test]
fn values_of_the_metadata_are_saved_and_used_by_all_programs() {
    let (folder, _port) = (Folder::new("auto-aws"), Port::new("wauto-aws"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let aws = runtime.block_on(Emulator::start(AwsState::sample("ip"))).unwrap();
    let weir = |args: &[&str]| {
        let mut command = Command::new(weir());
        command.arg("--config").arg(folder.path.join("weir.toml"));
        command.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &aws.url);
        command.args(args).output().unwrap()
    };
    let more = "zone = \"auto\"\n[aws]\ncluster = \"north\"";
    folder.write("weir.toml", &config(&folder, "wauto-aws", more));
    let out = weir(&["config", "check"]);
    assert!(!out.status.success() && text(&out).contains("`weir auto save`"), "{out:?}");

    let out = weir(&["auto", "show"]);
    assert!(out.status.success() && text(&out).contains("weir auto save"), "{out:?}");
    assert!(!folder.path.join("run").exists(), "`show` writes nothing");
    let out = weir(&["auto", "save"]);
    assert!(out.status.success() && text(&out).contains("saved to"), "{out:?}");
    let out = weir(&["config", "check"]);
    assert!(out.status.success(), "{}", text(&out));
    assert!(text(&weir(&["auto", "show"])).contains("has these values"));

    assert_eq!(shown(&folder, "ingress.address"), "[\"10.0.1.11/24\",\"fd00:1::1/64\"]");
    assert_eq!(shown(&folder, "ingress.gateway"), "[\"10.0.1.1\"]");
    assert_eq!(shown(&folder, "nat.addresses"), "[\"10.0.1.11\",\"fd00:1::1\"]");
    assert_eq!(shown(&folder, "ingress.mtu"), "1500", "that of the interface");
    assert_eq!(shown(&folder, "zone"), "\"eu-central-1a\"");
    assert!(shown(&folder, "name").starts_with("\"i-"));

    // Without the metadata, saved values remain. Only the operator can enable it.
    aws.with(|cloud| cloud.imds.mode = "off".into());
    let out = weir(&["auto", "save", "--wait", LONG]);
    assert!(!out.status.success() && text(&out).contains("--http-endpoint enabled"), "{out:?}");
    assert!(text(&out).contains(CORRECT), "{out:?}");
    assert!(weir(&["config", "check"]).status.success());
}

#[test]
fn values_of_the_kernel_are_saved_outside_of_clouds() {
    let (folder, port) = (Folder::new("auto-kernel"), Port::new("wauto-kern"));
    folder.write("weir.toml", &config(&folder, "wauto-kern", ""));
    let out = folder.weir(&["auto", "save"]);
    assert!(!out.status.success(), "{out:?}");
    assert!(text(&out).contains("the kernel has no address on device"), "{out:?}");
    port.ip(&["address", "add", "10.97.9.5/24", "dev", "wauto-kern"]);
    port.ip(&["link", "set", "wauto-kern", "mtu", "1600"]);
    let out = folder.weir(&["auto", "save", "--json"]);
    let values: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(values["arm"]["ingress"]["address"], serde_json::json!(["10.97.9.5/24"]));
    assert_eq!(shown(&folder, "ingress.mtu"), "1600");

    // A configuration without "auto" needs no values, and the command changes nothing.
    folder.write("weir.toml", &folder.config());
    let out = folder.weir(&["auto", "save"]);
    assert!(out.status.success() && text(&out).contains("nothing is \"auto\""), "{out:?}");
}

/// Each command would last a day if it waited.
#[test]
fn a_fault_that_only_a_correction_ends_is_not_waited_for() {
    let folder = Folder::new("auto-permanent");
    let assert_ends = |config: &str, fault: &str| {
        folder.write("weir.toml", config);
        let out = folder.weir(&["auto", "save", "--wait", LONG]);
        assert!(!out.status.success() && text(&out).contains(fault), "{fault}: {}", text(&out));
        text(&out)
    };
    let unknown = config(&folder, "wauto-no", "").replace("plane =", "plain =");
    assert_ends(&unknown, "plain");
    for (device, fault) in [
        ("wauto-no", "wauto-no"),
        ("net_null0", "has no interface of the kernel"),
        ("a b", "device \"a b\""),
    ] {
        let text = assert_ends(&config(&folder, device, ""), fault);
        assert!(text.contains(CORRECT), "{text}");
    }
    // Also while the metadata service does not answer.
    let azure = "[azure]\nmetadata = \"http://127.0.0.1:9\"";
    assert_ends(&config(&folder, "net_null0", azure), "has no interface of the kernel");
    // The interface may get an address later, but there is no zone without a cloud.
    let _port = Port::new("wauto-zone");
    assert_ends(&config(&folder, "wauto-zone", "zone = \"auto\""), "zone = \"auto\"");
    assert!(!folder.path.join("run").exists(), "nothing is saved");
}

#[test]
fn a_metadata_service_that_does_not_answer_yet_is_waited_for() {
    let (folder, _port) = (Folder::new("auto-late"), Port::new("wauto-late"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let address = runtime
        .block_on(async { tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr() })
        .unwrap();
    folder.write("weir.toml", &config(&folder, "wauto-late", "[aws]\ncluster = \"north\""));
    let mut child = Command::new(weir())
        .arg("--config")
        .arg(folder.path.join("weir.toml"))
        .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", format!("http://{address}"))
        .args(["auto", "save", "--wait", LONG])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("no connection") && line.contains("; trying again"), "{line}");
    let _aws = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        Emulator::listen(listener, AwsState::sample("ip"))
    });
    assert!(child.wait().unwrap().success(), "the values are saved");
    assert_eq!(shown(&folder, "ingress.address"), "[\"10.0.1.11/24\",\"fd00:1::1/64\"]");
}

#[test]
fn a_missing_device_is_waited_for_while_udev_has_events() {
    let folder = Folder::new("auto-udev");
    folder.write("weir.toml", &config(&folder, "wauto-udev", ""));
    // In a mount namespace in which udev has events for ever.
    let udev = "mkdir -p /run/udev && mount -t tmpfs tmpfs /run/udev && touch /run/udev/queue && \
                exec \"$@\"";
    let mut child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", udev, "sh"])
        .arg(weir())
        .arg("--config")
        .arg(folder.path.join("weir.toml"))
        .args(["auto", "save", "--wait", LONG])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("wauto-udev") && line.contains("; trying again"), "{line}");
    // Longer than the command would look for the device if udev had no events.
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(child.try_wait().unwrap(), None, "it waits");
    let port = Port::new("wauto-udev");
    port.ip(&["address", "add", "10.97.7.5/24", "dev", "wauto-udev"]);
    assert!(child.wait().unwrap().success(), "the values are saved");
    assert_eq!(shown(&folder, "ingress.address"), "[\"10.97.7.5/24\"]");
}

#[test]
fn setup_writes_a_valid_configuration_and_never_replaces_one_by_accident() {
    let (folder, port) = (Folder::new("setup"), Port::new("wsetup0"));
    port.ip(&["address", "add", "10.97.8.5/24", "dev", "wsetup0"]);
    let file = folder.path.join("etc/weir.toml");
    let setup = |more: &[&str]| {
        let path = file.display().to_string();
        let nics: &[&str] = match more.contains(&"--ingress") {
            true => &["--egress", "none", "--plane", "xdp"],
            false => &["--ingress", "wsetup0", "--egress", "none", "--plane", "xdp"],
        };
        let args = [&["setup", "--to", &path, "--cloud", "none"], nics, more].concat();
        folder.weir(&args)
    };
    std::fs::create_dir(folder.path.join("state")).unwrap();
    let out = setup(&[]);
    assert!(out.status.success() && text(&out).contains("--yes writes it"), "{out:?}");
    assert!(!file.exists());
    let out = setup(&["--yes", "--lcores", "1,3"]);
    assert!(out.status.success() && text(&out).contains("next:"), "{out:?}");
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains("device = \"wsetup0\"") && written.contains("lcores = [1, 3]"));
    assert!(file.with_file_name("services.toml").exists());
    let mode = std::os::unix::fs::MetadataExt::mode(&file.metadata().unwrap());
    assert_eq!(mode & 0o777, 0o640, "it contains the seed");

    let out = setup(&["--yes"]);
    assert!(!out.status.success() && text(&out).contains("--force"), "{out:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written);
    let out = setup(&["--yes", "--force", "--lcores", "200"]);
    assert!(!out.status.success() && text(&out).contains("0 to 127"), "{out:?}");
    assert!(setup(&["--yes", "--force"]).status.success());
    assert_eq!(std::fs::read_to_string(file.with_extension("toml.old")).unwrap(), written);
    assert!(!setup(&["--ingress", "nosuch0"]).status.success());
    assert!(folder.weir(&["nic", "bind", "--auto"]).status.success(), "the plane is configured");
    // What was written is in the audit log, and nothing else.
    let out = folder.weir(&["audit", "--json"]);
    let entries: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap();
    let recorded: Vec<_> = entries.iter().map(|one| (&one["call"], &one["object"])).collect();
    let object = Value::from(format!("file{}", file.display()));
    let setup = (&Value::from("setup"), &object);
    assert_eq!(recorded, [setup, setup], "{out:?}");
}
