//! Test of BGP as operators see it: the real process with FRR as its neighbor, observed by
//! `weir bgp`, the API and the metrics.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use routers::{DEFAULT_TIMEOUT, Daemon, End, Frr, Netns, namespace, veth_pair, wait_for};
use serde_json::{Value, json};
use slowpath::metrics::declared::{self, Presence, compare};
use tables::region::{Region, Role};

use crate::appliance::{Folder, Running};
use crate::check_with_promtool;

/// Address of the ingress port, at which the neighbor reaches the appliance.
const LOCAL: &str = "10.97.1.10";
/// Address of the neighbor.
const PEER: &str = "10.97.1.1";

/// Configuration of the neighbor's FRR.
const FRR: &str = "\
router bgp 65002
 no bgp ebgp-requires-policy
 neighbor 10.97.1.10 remote-as 65001
 neighbor 10.97.1.10 timers connect 1
 neighbor 10.97.1.10 bfd
";

/// An lcore that only polls and acknowledges, with its links up.
pub struct Polling {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Polling {
    pub fn start(folder: &Folder) -> Polling {
        let region = Region::open(folder.path.join("region/file").as_path()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let _fastpath = region.claim(Role::Fastpath).unwrap();
            let lcore = &region.lcores()[0];
            lcore.join(&region, region.epoch(Role::Fastpath), 1);
            (0..2).for_each(|arm| lcore.set_link(arm, true));
            while !stopped.load(Ordering::Relaxed) {
                lcore.count_iteration();
                lcore.acknowledge(region.generation());
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Polling { stop, thread: Some(thread) }
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic in the thread has been printed already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The appliance in its network namespace, and the neighbor's namespace.
struct Stage {
    folder: Folder,
    neighbor: Arc<Netns>,
    _lcore: Polling,
    _slowpath: Running,
    _local: Arc<Netns>,
}

impl Stage {
    /// Creates a stage with a service and no policy.
    fn new() -> Stage {
        let (local, neighbor) = (namespace("local").unwrap(), namespace("neighbor").unwrap());
        let end = |ns, device, address| End { ns, device, addresses: address };
        let addresses = [[format!("{LOCAL}/24")], [format!("{PEER}/24")]];
        let addresses = addresses.each_ref().map(|all| all.each_ref().map(String::as_str));
        let ends = (end(&local, "data0", &addresses[0]), end(&neighbor, "data0", &addresses[1]));
        veth_pair(ends.0, ends.1).unwrap();
        let folder = Folder::new("bgp");
        std::fs::create_dir_all(folder.path.join("desired")).unwrap();
        folder.write("weir.toml", &folder.config().replace("services.toml", "desired"));
        let frontend = json!({ "address": "203.0.113.1", "port": 80, "protocol": "tcp",
            "type": "LoadBalancer" });
        let spec = json!({ "mode": "nat", "frontends": [frontend] });
        let service = json!({ "kind": "Service", "name": "shop/web", "spec": spec });
        folder.write("desired/service.yaml", &service.to_string());
        let log = std::fs::File::create(folder.path.join("log")).unwrap();
        let config = folder.path.join("weir.toml").display().to_string();
        let args = ["--config".to_owned(), config];
        let slowpath = local.spawn(env!("CARGO_BIN_EXE_slowpath"), &args, &[], log).unwrap();
        let slowpath = Running(slowpath);
        folder.until(&["status"], |status| status["generation"].as_u64() > Some(0));
        let _lcore = Polling::start(&folder);
        folder.until(&["status"], |status| status["able"] == true);
        Stage { folder, neighbor, _lcore, _slowpath: slowpath, _local: local }
    }

    /// Writes the file of a BGP peering policy with these routers.
    fn write(&self, name: &str, routers: &Value) {
        let policy = json!({ "kind": "BgpPeeringPolicy", "name": name,
            "spec": { "routers": routers } });
        self.folder.write(&format!("desired/{name}.yaml"), &policy.to_string());
    }

    /// Runs `weir bgp ARGS`; returns exit code, stdout and stderr.
    fn shown(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.folder.weir(&[&["bgp"], args].concat());
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (status.code(), text(stdout), text(stderr))
    }

    /// Runs `weir bgp ARGS --json` until the output satisfies `fits`.
    fn until(&self, args: &[&str], fits: impl Fn(&Value) -> bool) -> Value {
        self.folder.until(&[&["bgp"], args].concat(), fits)
    }

    fn metrics(&self) -> String {
        self.folder.request("GET", "/metrics", &[], "").body
    }

    /// Asserts that `weir bgp ARGS` is rejected with an error that contains all `parts`.
    #[track_caller]
    fn assert_rejected(&self, args: &[&str], parts: &[&str]) {
        let (code, out, error) = self.shown(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{args:?}: {error}");
    }
}

/// Returns a router that advertises the addresses of all services to one neighbor.
fn router(asn: u32, neighbor: &Value) -> Value {
    json!({ "local_asn": asn, "router_id": LOCAL, "neighbors": [neighbor],
        "advertisements": [{ "services": {}, "attributes": { "communities": ["65001:7"] } }] })
}

/// Returns the neighbor of the test in the form of a policy.
fn neighbor() -> Value {
    let families = [json!({ "family": "ipv4-unicast" })];
    json!({ "address": PEER, "asn": 65002, "connect_retry_s": 1, "families": families,
        "bfd": { "enabled": true } })
}

/// Returns the elements of an array; none of any other value.
fn rows(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[test]
fn sessions_routes_and_policies_appear_in_command_api_and_metrics() {
    let stage = Stage::new();
    assert_eq!(
        stage.shown(&["peers"]),
        (Some(0), "there is no BGP peering policy\n".to_owned(), String::new())
    );
    stage.assert_rejected(&["routes", "available", "--router", "65001"], &["no router 65001"]);
    stage.write("edge", &json!([router(65001, &neighbor())]));
    check_without_neighbor(&stage);
    let frr = Frr::start(&stage.neighbor, &[Daemon::Bgpd, Daemon::Bfdd], FRR).unwrap();
    check_established(&stage, &frr);
    check_errors(&stage);
}

/// Before the neighbor runs: available routes are shown, and no established session.
fn check_without_neighbor(stage: &Stage) {
    let is_one = |all: &Value| rows(all).len() == 1;
    let available = stage.until(&["routes", "available"], is_one);
    let row = &available[0];
    assert_eq!((&row["prefix"], &row["next_hop"]), (&"203.0.113.1/32".into(), &LOCAL.into()));
    let peers = stage.until(&["peers"], is_one);
    assert_ne!(peers[0]["state"], "established", "{peers}");
    assert_eq!(stage.until(&["routes", "advertised"], |_| true), json!([]));
    let (code, text, _) = stage.shown(&["routes", "advertised"]);
    let expected = "nothing to show; policy edge is in force\n";
    assert_eq!((code, text.as_str()), (Some(0), expected));
    let metrics = stage.metrics();
    let down = "weir_bgp_session_state{router=\"65001\",neighbor=\"10.97.1.1:179\",\
                neighbor_asn=\"65002\"} 0";
    assert!(metrics.contains(down), "{metrics}");
}

/// With the neighbor running: session, routes, policies, details, metrics and status.
fn check_established(stage: &Stage, frr: &Frr) {
    // FRR restarts BFD once the session is up, which takes the session down once. Wait until it has
    // been established for 4 s.
    stage.until(&["peers", "--detail"], |all| {
        let peer = &all["peers"][0];
        let is_up = peer["state"] == "established" && peer["since_s"].as_f64() > Some(4.0);
        let is_up = is_up && peer["bfd"]["up"] == true;
        is_up && peer["families"][0]["advertised"] == 1
    });
    let peers = stage.until(&["peers"], |_| true);
    assert_eq!((&peers[0]["state"], &peers[0]["advertised"]), (&"established".into(), &1.into()));
    let row = &peers[0];
    assert_eq!(
        (&row["node"], &row["local_asn"], &row["peer_asn"], &row["peer"], &row["family"]),
        (
            &"weir-p".into(),
            &65001.into(),
            &65002.into(),
            &"10.97.1.1:179".into(),
            &"ipv4-unicast".into()
        )
    );
    wait_for("our route at FRR", DEFAULT_TIMEOUT, || {
        let route = frr.json("show bgp ipv4 unicast 203.0.113.1/32")?;
        Ok((route["paths"][0]["community"]["string"] == "65001:7", route.to_string()))
    })
    .unwrap();
    let (code, table, _) = stage.shown(&["peers"]);
    let heads = "NODE    LOCAL AS  PEER AS  PEER ADDRESS   SESSION STATE  UPTIME";
    assert!(code == Some(0) && table.starts_with(heads), "{table}");
    assert!(table.contains("Established") && table.contains("ipv4 unicast"), "{table}");
    check_routes(stage);
    check_details(stage);
    check_metrics(stage);
    let status = stage.folder.until(&["status"], |_| true);
    assert_eq!(status["bgp"], "1 of 1 sessions established");
    let status = stage.folder.weir(&["status"]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("\nbgp            1 of 1 sessions"), "{text}");
}

fn check_routes(stage: &Stage) {
    let query = ["routes", "advertised", "ipv4", "unicast", "--peer", PEER];
    let advertised = stage.until(&query, |all| rows(all).len() == 1);
    assert_eq!(advertised[0]["attributes"], "origin igp, communities 65001:7");
    let (_, table, _) = stage.shown(&[&query[..], &["--router", "65001"]].concat());
    let heads = "NODE    VROUTER  PEER           PREFIX          NEXTHOP     AGE";
    assert!(table.starts_with(heads) && table.contains(LOCAL), "{table}");
    assert_eq!(stage.until(&["routes", "available", "ipv6"], |_| true), json!([]));
    let expected = ["no neighbor 10.97.1.2", "available: 10.97.1.1:179"];
    stage.assert_rejected(&["routes", "available", "--peer", "10.97.1.2"], &expected);
    let expected = ["no router 65009", "available: 65001"];
    stage.assert_rejected(&["routes", "advertised", "--router", "65009"], &expected);
    stage.assert_rejected(&["routes", "advertised", "--peer", "x"], &["`x` is not an address"]);
    let policies = stage.until(&["policies"], |all| rows(all).len() == 2);
    assert_eq!((&policies[0]["type"], &policies[0]["policy"]), (&"export".into(), &"edge".into()));
    let (_, table, _) = stage.shown(&["policies"]);
    assert!(table.starts_with("VROUTER  POLICY NAME  TYPE"), "{table}");
    assert!(table.contains("203.0.113.1/32 (32..32)") && table.contains("reject"), "{table}");
    // The API returns the same.
    let get = |path: &str| stage.folder.request("GET", &format!("/v1/bgp{path}"), &[], "");
    assert_eq!(get("/policies").json(), policies);
    let of = get("/routes/advertised?family=ipv4-unicast&router=65001&peer=10.97.1.1").json();
    assert_eq!(of[0]["prefix"], advertised[0]["prefix"]);
    let status = get("").json();
    assert_eq!((&status["policy"], &status["established"]), (&"edge".into(), &1.into()));
    let rejected = get("/routes/available?family=ipv5");
    assert_eq!((rejected.status, &rejected.json()["type"]), (400, &"urn:weir:request".into()));
    let rejected = get("/routes/available?peer=10.97.1.2");
    assert_eq!((rejected.status, &rejected.json()["type"]), (404, &"urn:weir:not-found".into()));
}

fn check_details(stage: &Stage) {
    let all = stage.until(&["peers", "--detail"], |all| all["peers"][0]["bfd"]["up"] == true);
    let peer = &all["peers"][0];
    let capabilities = peer["connection"]["capabilities"].to_string();
    assert!(capabilities.contains("4-octet AS"), "{all}");
    assert!(peer["connection"]["hold_s"].as_f64() > Some(0.0), "{all}");
    let (code, text, _) = stage.shown(&["peers", "--detail"]);
    let first = "10.97.1.1:179 (AS 65002) of router 65001: established for ";
    assert!(code == Some(0) && text.starts_with(first), "{text}");
    for part in ["  BFD", "up\n", "  timers", "hold ", "keepalives", "1 advertised, "] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

fn check_metrics(stage: &Stage) {
    let text = stage.metrics();
    let labels = "router=\"65001\",neighbor=\"10.97.1.1:179\",neighbor_asn=\"65002\"";
    for (name, more, value) in [
        ("session_state", "", "1"),
        ("bfd_session_state", "", "1"),
        ("advertised_routes", ",afi=\"ipv4\",safi=\"unicast\"", "1"),
        ("malformed_updates_total", ",treatment=\"treat-as-withdraw\"", "0"),
    ] {
        let line = format!("weir_bgp_{name}{{{labels}{more}}} {value}");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
    let keepalives = format!("weir_bgp_received_messages_total{{{labels},type=\"keepalive\"}} ");
    // FRR may advertise the appliance's own route back. The number of flaps before BFD was up
    // depends on FRR.
    let flaps = format!("weir_bgp_session_flaps_total{{{labels}}} ");
    let received = format!("weir_bgp_received_routes{{{labels},afi=\"ipv4\",safi=\"unicast\"}} ");
    let seconds = "weir_bgp_reconcile_run_duration_seconds_sum ";
    for (part, min) in [(&*keepalives, 1.0), (&flaps, 0.0), (&received, 0.0), (seconds, 1e-9)] {
        let values = text.lines().filter_map(|line| line.strip_prefix(part));
        let values: Vec<f64> = values.map(|value| value.parse().unwrap()).collect();
        assert!(values.len() == 1 && values[0] >= min, "{part}: {values:?}");
    }
    let found = compare(&text);
    assert!(found.differences.is_empty(), "{:#?}", found.differences);
    // There are no errors yet.
    let errors = "weir_bgp_reconcile_errors_total";
    for one in declared::all() {
        let is_expected = one.presence == Presence::Bgp && one.name != errors;
        assert!(!is_expected || found.sampled.contains(&one.name), "{} has no sample", one.name);
    }
    check_with_promtool(&text, &stage.folder.path);
}

/// Two policies for one appliance, and a policy that cannot be applied on it.
fn check_errors(stage: &Stage) {
    stage.write("rim", &json!([router(65003, &neighbor())]));
    stage.until(&["peers"], |all| rows(all).is_empty());
    for what in [&["peers"][..], &["peers", "--detail"], &["routes", "available"], &["policies"]] {
        let (code, out, error) = stage.shown(what);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{what:?}");
        assert!(error.contains("2 BGP peering policies select this appliance (edge, rim)"));
    }
    let metrics = stage.metrics();
    assert!(metrics.contains("weir_bgp_reconcile_errors_total{router=\"0\"} "), "{metrics}");
    assert!(metrics.contains("weir_bgp_reconcile_failing 1"), "{metrics}");
    std::fs::remove_file(stage.folder.path.join("desired/rim.yaml")).unwrap();

    let mut wrong = neighbor();
    wrong["next_hop"] = json!({ "ipv4": "192.0.2.1" });
    let other = json!({ "address": "10.97.1.3", "asn": 65002 });
    stage.write("edge", &json!([router(65001, &wrong), router(65004, &other)]));
    stage.until(&["peers"], |all| rows(all).len() == 3);
    let (code, table, error) = stage.shown(&["peers"]);
    assert!(code == Some(1) && table.contains("10.97.1.1:179"), "{table}");
    assert!(error.contains("router 65001") && error.contains("192.0.2.1"), "{error}");
    let several = ["several routers", "65001, 65004"];
    stage.assert_rejected(&["routes", "available", "--peer", PEER], &several);
    let status = stage.folder.until(&["status"], |s| s["bgp"].to_string().contains("192.0.2.1"));
    assert!(status["bgp"].as_str().unwrap().contains("sessions established; router 65001"));
}
