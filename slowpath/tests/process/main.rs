//! Tests of the processes: `slowpath` over a region in a file or in kernel maps, queried by `weir`,
//! the API and the metrics.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails where what it expects is not so"
)]

mod access;
mod api;
mod appliance;
mod automatic;
mod aws;
mod backup;
mod bgp;
mod check_command;
mod cloud;
mod command;
mod documents;
mod events;
mod floods;
mod kills;
mod metrics;
mod page;
mod persistence;
mod private_link;
mod reference;
mod removal;
mod restore;
mod rotation;
mod schema;
mod service;
mod sources;
mod stall;
mod telemetry;
mod top;

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use appliance::{Folder, weir};
use patience::ports::free_port;
use tables::capture::CaptureFilter;
use tables::capture_file::{self, CaptureReader};
use tables::region::{Region, RegionLocation};

/// Addresses added to this machine for the duration of a test.
struct OwnAddresses(&'static [&'static str]);

impl OwnAddresses {
    fn new(addresses: &'static [&'static str]) -> OwnAddresses {
        let own = OwnAddresses(addresses);
        own.each("replace");
        own
    }

    /// Runs `ip addr` with a command, `replace` or `del`, for each address.
    fn each(&self, what: &str) {
        for address in self.0 {
            let mut ip = Command::new("ip");
            let done = ip.args(["addr", what, &format!("{address}/32"), "dev", "lo"]).status();
            assert!(done.unwrap().success(), "ip addr {what} {address}");
        }
    }
}

impl Drop for OwnAddresses {
    fn drop(&mut self) {
        self.each("del");
    }
}

/// Returns the generation of the tables in the output of `weir status`; 0 before the first commit.
fn generation(status: &serde_json::Value) -> u64 {
    status["generation"].as_u64().unwrap()
}

#[test]
fn state_survives_a_kill() {
    let folder = Folder::new("kill");
    let mut slowpath = folder.slowpath();
    let first = folder.until(&["status"], |s| generation(s) > 0);
    assert_eq!(first["able"], false);
    assert!(first["reasons"][0].as_str().unwrap().contains("data plane is not running"));
    assert_eq!(folder.weir(&["status"]).status.code(), Some(1), "not able is exit code 1");
    let health = folder.get(folder.ports[0], "/health", "*/*");
    assert!(health.contains("503") && health.contains("data plane is not running"), "{health}");
    assert!(
        std::net::TcpStream::connect(("127.0.0.1", folder.ports[1])).is_err(),
        "the TCP health port is closed"
    );

    let before = folder.until(&["services"], |s| s[0]["backends"].as_array().is_some());
    let first = generation(&folder.until(&["status"], |s| generation(s) > 0));
    folder.services(&["10.97.2.12", "10.97.2.13", "10.97.2.11"]);
    let after = folder.until(&["services"], |s| {
        s[0]["backends"].as_array().is_some_and(|backends| backends.len() == 3)
    });
    let id = |services: &serde_json::Value, address: &str| {
        let backends = services[0]["backends"].as_array().unwrap();
        backends.iter().find(|backend| backend["address"] == address).unwrap()["id"].clone()
    };
    for address in ["10.97.2.11", "10.97.2.12"] {
        assert_eq!(id(&after, address), id(&before, address));
    }
    // Without a fastpath no MAC address is resolved, so no backend can be reached yet.
    let explanation =
        folder.until(&["explain", "tcp 192.0.2.1:1234 -> 203.0.113.1:80"], |t| t[0].is_object());
    assert_eq!(
        (&explanation[0]["frontend"], &explanation[0]["verdict"]),
        (&"203.0.113.1:80/tcp".into(), &"drop".into())
    );
    assert_eq!(explanation[0]["service_id"], after[0]["id"]);
    let maps = |folder: &Folder| folder.until(&["maps", "dump"], |lines| lines[0].is_string());
    let dump = maps(&folder);

    // Wait for the region, which changes after the tables.
    let at = generation(&folder.until(&["status"], |s| generation(s) > first));
    slowpath.0.kill().unwrap();
    slowpath.0.wait().unwrap();
    let dead = folder.weir(&["status"]);
    let error = String::from_utf8_lossy(&dead.stderr).into_owned();
    assert!(dead.status.code() == Some(2) && error.contains("start it with"), "{error}");
    let _again = folder.slowpath();
    let again = folder.until(&["services"], |s| s[0]["backends"].as_array().is_some());
    assert_eq!(again, after, "every id, share and counter is what it was");
    assert_eq!(maps(&folder), dump, "and so is everything in the region");
    assert_eq!(generation(&folder.until(&["status"], |_| true)), at, "nothing to commit");
}

#[test]
fn the_configuration_reloads_and_names_keys_that_need_a_restart() {
    let folder = Folder::new("config");
    let mut slowpath = folder.slowpath();
    let at = generation(&folder.until(&["status"], |s| generation(s) > 0));
    let wider = folder.config().replace("\"10.97.1.0/24\"", "\"10.97.1.0/24\", \"10.97.9.0/24\"");
    folder.write("weir.toml", &wider);
    folder.until(&["status"], |s| generation(s) == at + 1);
    // A change of the device takes a restart, so the timeout that changes with it is not applied
    // either.
    let other =
        wider.replace("net_null0", "net_null5").replace("[nat]", "[flows]\nudp_s = 9\n[nat]");
    folder.write("weir.toml", &other);
    let hangup = || {
        let pid = slowpath.0.id().to_string();
        Command::new("kill").args(["-HUP", &pid]).status().unwrap()
    };
    assert!(hangup().success());
    let file_error = |s: &serde_json::Value| s["config_file"]["error"].as_str().map(str::to_owned);
    let status = folder.until(&["status"], |s| file_error(s).is_some());
    let text = file_error(&status).unwrap();
    let parts = ["ingress.device = \"net_null5\"", "restart the data plane and slowpath"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    assert_eq!(generation(&status), at + 1);
    let shown = folder.weir(&["--socket", &folder.socket(), "status"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("the configuration was rejected:") && shown.contains("net_null5"));
    folder.write("weir.toml", &other.replace("net_null5", "net_null0"));
    // The timeout is applied now.
    folder.until(&["status"], |s| file_error(s).is_none() && generation(s) == at + 2);
    assert!(slowpath.0.try_wait().unwrap().is_none(), "SIGHUP ends no process");
}

#[test]
fn a_second_slowpath_is_rejected_by_region_state_and_socket() {
    let folder = Folder::new("second");
    let _first = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let run = |set: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_slowpath"));
        program.arg("--config").arg(folder.path.join("weir.toml")).args(set);
        let out = program.stdin(Stdio::null()).output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let text = run(&[]);
    assert!(text.contains("another slowpath (process"), "{text}");
    let other = folder.path.join("other");
    let region = format!("region.path={}", other.join("region").display());
    let socket = format!("control.socket={}", other.join("sock").display());
    let text = run(&["--set", &region, "--set", &socket]);
    assert!(text.contains("control.state") && text.contains("in use by another process"), "{text}");
    let state = format!("control.state={}", other.join("state").display());
    let region = [&region, "--set", &state];
    let text = run(&["--set", region[0], region[1], region[2]]);
    assert!(text.contains("another process, probably slowpath, listens there"), "{text}");
}

#[test]
fn a_typo_is_reported_with_file_and_key() {
    let folder = Folder::new("typo");
    folder.write("weir.toml", &folder.config().replace("[metrics]", "[metrix]"));
    for program in [PathBuf::from(env!("CARGO_BIN_EXE_slowpath")), weir()] {
        let mut command = Command::new(&program);
        command.arg("--config").arg(folder.path.join("weir.toml"));
        if program.ends_with("weir") {
            command.args(["config", "check"]);
        }
        let out = command.output().unwrap();
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success(), "{program:?}");
        assert!(error.contains("metrix") && error.contains("weir.toml"), "{program:?}: {error}");
    }
}

#[test]
fn a_file_that_is_no_region_is_rejected_with_a_remedy() {
    let folder = Folder::new("version");
    let region = folder.path.join("region");
    std::fs::create_dir_all(&region).unwrap();
    let file = region.join("file");
    std::fs::write(&file, vec![b'x'; 1 << 16]).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut slowpath = folder.slowpath();
    assert_eq!(slowpath.0.wait().unwrap().code(), Some(1));
    let log = std::fs::read_to_string(folder.path.join("log")).unwrap();
    assert!(log.contains("not a region of Weir") && log.contains("region.path"), "{log}");
}

#[test]
fn a_truncated_region_ends_slowpath_with_a_message() {
    let folder = Folder::new("cut");
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let file = folder.path.join("region/file");
    std::fs::File::options().write(true).open(&file).unwrap().set_len(0).unwrap();
    let status = slowpath.0.wait().unwrap();
    let log = std::fs::read_to_string(folder.path.join("log")).unwrap();
    assert_eq!(status.code(), Some(74), "{status:?}: {log}");
    assert!(log.contains("the region's file was truncated"), "{log}");
    assert!(log.contains(&format!("rm {}", file.display())), "{log}");
}

#[test]
fn the_control_socket_belongs_to_root_or_the_configured_group() {
    let folder = Folder::new("sockets-group");
    let about = |folder: &Folder| std::fs::metadata(folder.socket()).unwrap();
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    assert_eq!(about(&folder).mode() & 0o7777, 0o600);
    slowpath.kill();
    let configure_group = |group: &str| {
        let config = folder.config();
        folder.write("weir.toml", &config.replace("[control]", &format!("[control]\n{group}")));
    };
    configure_group("group = \"nogroup\"");
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    assert_eq!((about(&folder).mode() & 0o7777, about(&folder).gid()), (0o660, 65_534));
    slowpath.kill();
    configure_group("group = \"weir-none\"");
    assert_eq!(folder.slowpath().0.wait().unwrap().code(), Some(1));
    let log = std::fs::read_to_string(folder.path.join("log")).unwrap();
    let message = r#"control.group = \"weir-none\""#;
    assert!(log.contains(message) && log.contains("groupadd"), "{log}");
    configure_group("group = \"weir\"");
    assert_eq!(folder.slowpath().0.wait().unwrap().code(), Some(2));
    let log = std::fs::read_to_string(folder.path.join("log")).unwrap();
    assert!(log.contains("the same group as region.group"), "{log}");
}

#[test]
fn xdp_tables_are_kernel_maps_and_each_plane_takes_over_from_the_other() {
    let folder = Folder::new("xdp");
    let dpdk = folder.config();
    let xdp = format!("plane = \"xdp\"\n{}", dpdk.replace("net_null", "wsp-none"));
    let (mut before, mut ids) = (folder.path.join("region/file"), Vec::new());
    for (config, location) in
        [(&xdp, folder.maps()), (&dpdk, (&before.clone()).into()), (&xdp, folder.maps())]
    {
        folder.write("weir.toml", config);
        let slowpath = folder.slowpath();
        let status = folder.until(&["status"], |s| generation(s) > 0);
        assert_eq!(status["region"], location.path().display().to_string());
        assert!(!before.exists(), "{}", before.display());
        let log = std::fs::read_to_string(folder.path.join("log")).unwrap();
        assert_eq!(log.contains("taken over from the region"), !ids.is_empty());
        let second = folder.slowpath().0.wait().unwrap();
        assert!(!second.success(), "a second writer is rejected, in maps as in a file");
        ids.push(Region::open(&location).unwrap().tables(1).services().next().map(|(id, _)| id));
        drop(slowpath);
        before = location.path().to_owned();
    }
    assert!(ids[0].is_some() && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn metrics_pass_promtool_and_views_render() {
    let folder = Folder::new("metrics");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let text = folder.get(folder.ports[2], "/metrics", "text/plain");
    let (head, plain) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("version=0.0.4"), "{head}");
    for metric in [
        "weir_packets_total{arm=\"ingress\",direction=\"rx\"} 0",
        "weir_drops_total{arm=\"egress\",reason=\"no_neighbor\"} 0",
        "weir_service_packets_total{service=\"default/web\"} 0",
        "weir_backend_flows{backend=\"10.97.2.11:80\"} 0",
        "weir_table_capacity{table=\"flows\"} 1024",
        "weir_build_info{version=",
    ] {
        assert!(plain.contains(metric), "{metric} is missing in\n{plain}");
    }
    let open = folder.get(folder.ports[2], "/metrics", "application/openmetrics-text");
    assert!(open.contains("openmetrics-text") && open.trim_end().ends_with("# EOF"), "{open}");
    check_with_promtool(plain, &folder.path);

    for view in [&["services"][..], &["flows"], &["drops", "--all"], &["top", "--samples", "2"]] {
        let out = folder.weir(view);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.lines().count() > 1, "{view:?}: {out:?}");
    }
    let out = folder.weir(&["trace", "--service", "default/web", "--seconds", "1"]);
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(error.contains("no live flow matches"), "{error}");
    let out = folder.weir(&["trace", "--client", "nonsense"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("ADDRESS:PORT"));
    let file = folder.path.join("none.pcapng");
    let file = file.to_str().unwrap();
    let out = folder.weir(&["capture", "-w", file, "--client", "nonsense"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("ADDRESS:PORT"), "{out:?}");
    let out = folder.weir(&["capture", "-w", file]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("data plane"), "{out:?}");
    assert!(!out.status.success() && !std::path::Path::new(file).exists());
}

#[test]
fn an_orderly_end_removes_the_files_of_captures() {
    let folder = Folder::new("capture-files");
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let location = RegionLocation::from(folder.path.join("region/file").as_path());
    let filter = CaptureFilter::default();
    // As if the capture's thread had not ended before the process.
    std::mem::forget(CaptureReader::begin_at(&location, 1, &filter, 1).unwrap());
    let file = capture_file::path(&location, 1);
    assert!(file.exists());
    slowpath.terminate();
    assert!(slowpath.0.wait().unwrap().success());
    assert!(!file.exists());
}

#[test]
fn a_drain_survives_a_restart_until_undone() {
    let folder = Folder::new("drain");
    let mut slowpath = folder.slowpath();
    let draining = |s: &serde_json::Value| s["reasons"].to_string().contains("draining");
    let status = folder.until(&["status"], |s| generation(s) > 0);
    assert!(!draining(&status));
    let out = folder.weir(&["drain"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(folder.until(&["status"], draining)["able"], false);
    slowpath.0.kill().unwrap();
    slowpath.0.wait().unwrap();
    let mut again = folder.slowpath();
    // The appliance is not able in between: first it is starting, then it is draining.
    folder.until(&["status"], |s| {
        assert_eq!(s["able"], false, "{s}");
        draining(s)
    });
    assert!(folder.weir(&["drain", "--undo"]).status.success());
    folder.until(&["status"], |s| !draining(s));
    again.0.kill().unwrap();
    again.0.wait().unwrap();
    let _third = folder.slowpath();
    assert!(!draining(&folder.until(&["status"], |s| generation(s) > 0)));
}

#[test]
fn health_verdicts_are_shown_and_survive_a_restart_and_health_check_ports_respond() {
    let folder = Folder::new("checks");
    let (port, other) = (free_port(), free_port());
    let taken = TcpListener::bind(("::", other)).unwrap();
    // Addresses of this machine without listeners.
    let _own = OwnAddresses::new(&["10.97.3.11", "10.97.3.12"]);
    let service = |name: &str, last: u8, port: u16| {
        format!(
            "[[service]]\nname = \"shop/{name}\"\nmode = \"nat\"\nexternal_policy = \"local\"\n\
             health_check_port = {port}\nhealth = {{ kind = \"tcp\", interval_ms = 200, \
             timeout_ms = 100, fall = 2 }}\n\
             frontends = [{{address = \"203.0.113.{last}\", port = 80, protocol = \"tcp\"}}]\n\
             backends = [{{address = \"10.97.3.{last}\", port = 9}}]\n"
        )
    };
    folder.write("services.toml", &(service("web", 11, port) + &service("dns", 12, other)));
    let mut slowpath = folder.slowpath();
    let all = |rows: &serde_json::Value, state: &str| {
        let rows = rows.as_array().unwrap();
        rows.len() == 2 && rows.iter().all(|row| row["state"] == state)
    };
    let rows = folder.until(&["health"], |rows| all(rows, "unhealthy"));
    assert_eq!(
        (&rows[1]["service"], &rows[1]["backend"]),
        (&"shop/web".into(), &"10.97.3.11:9/TCP".into())
    );
    assert_eq!(rows[1]["last"], "bad", "{rows}");
    let shown = folder.weir(&["health", "web"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.lines().count() == 2 && shown.contains("SINCE") && shown.contains("unhealthy"),
        "{shown}"
    );
    let answer = folder.get(port, "/", "*/*");
    assert!(answer.contains(" 503 ") && answer.contains("endpoint-weight: 0"), "{answer}");
    assert!(answer.contains("\"namespace\":\"shop\",\"name\":\"web\""), "{answer}");

    let condition = |truth: &'static str| {
        move |objects: &serde_json::Value| {
            let conditions = objects[0]["status"]["conditions"].as_array();
            let mut all = conditions.into_iter().flatten();
            all.any(|one| one["type"] == "HealthCheckPort" && one["status"] == truth)
        }
    };
    let objects = folder.until(&["get", "service", "shop/dns"], condition("False"));
    assert!(objects.to_string().contains("ss -ltnp"), "{objects}");
    drop(taken);
    folder.until(&["get", "service", "shop/dns"], condition("True"));
    assert!(folder.get(other, "/", "*/*").contains("\"dns\""));

    slowpath.0.kill().unwrap();
    slowpath.0.wait().unwrap();
    let _again = folder.slowpath();
    let rows = folder.until(&["health"], |rows| !rows.as_array().unwrap().is_empty());
    assert!(all(&rows, "unhealthy"), "verdicts are kept: {rows}");
    folder.until(&["health"], |rows| all(rows, "unhealthy") && rows[0]["last"] == "bad");
    let metrics = folder.get(folder.ports[2], "/metrics", "text/plain");
    for metric in [
        "weir_health_backends{state=\"unhealthy\"} 2",
        "weir_health_verdict_changes_total{verdict=\"unhealthy\"} 0",
        "weir_health_probes_late_total ",
    ] {
        assert!(metrics.contains(metric), "{metric} is missing in\n{metrics}");
    }
}

/// Checks the format with promtool (Debian package `prometheus`, installed by `make setup`).
fn check_with_promtool(text: &str, folder: &Path) {
    let file = folder.join("metrics.txt");
    std::fs::write(&file, text).unwrap();
    let input = std::fs::File::open(&file).unwrap();
    let out = Command::new("promtool").args(["check", "metrics"]).stdin(input).output();
    let out = out.unwrap_or_else(|e| panic!("promtool (Debian package prometheus): {e}"));
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
}
