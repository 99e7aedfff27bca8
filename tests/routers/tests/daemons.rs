//! Tests of the crate itself: FRR, BIRD and GoBGP connected to each other, and what remains after
//! them.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use routers::{
    Bird, DEFAULT_TIMEOUT, Daemon, End, Frr, Gobgp, LabError, Netns, namespace, veth_pair, wait_for,
};

const FRR: &str = "\
router bgp 65001
 bgp router-id 10.0.1.1
 no bgp ebgp-requires-policy
 neighbor 10.0.1.2 remote-as 65002
 neighbor 10.0.2.2 remote-as 65003
 neighbor fd01::2 remote-as 65002
 address-family ipv4 unicast
  network 192.0.2.1/32
 exit-address-family
 address-family ipv6 unicast
  neighbor fd01::2 activate
  network 2001:db8::1/128
 exit-address-family
exit
ip route 192.0.2.1/32 Null0
ipv6 route 2001:db8::1/128 Null0
";

const BIRD: &str = "\
log stderr all;
router id 10.0.1.2;
protocol device {}
protocol static { ipv4; route 192.0.2.2/32 blackhole; }
protocol bgp four { local as 65002; neighbor 10.0.1.1 as 65001; connect delay time 1;
  graceful restart off;
  ipv4 { import all; export all; }; }
protocol bgp six { local as 65002; neighbor fd01::1 as 65001; connect delay time 1;
  graceful restart off;
  ipv6 { import all; export all; }; }
";

const GOBGP: &str = "\
[global.config]
  as = 65003
  router-id = \"10.0.2.2\"
[[neighbors]]
  [neighbors.config]
    neighbor-address = \"10.0.2.1\"
    peer-as = 65001
";

const PANIC_PAYLOAD: &str = "a failing test";

/// Serializes the tests of one process, because leftovers of a test are recognized by the process
/// id. Tests in separate processes are serialized by nextest's group `lab`.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// FRR, BIRD and GoBGP, connected to each other.
struct ThreeRouters {
    frr: Frr,
    bird: Bird,
    gobgp: Gobgp,
    _namespaces: [Arc<Netns>; 3],
}

/// Starts FRR between BIRD and GoBGP.
fn start_three_routers() -> routers::Result<ThreeRouters> {
    let [middle, one, two] = [namespace("frr")?, namespace("bird")?, namespace("gobgp")?];
    veth_pair(
        End { ns: &middle, device: "v1", addresses: &["10.0.1.1/24", "fd01::1/64"] },
        End { ns: &one, device: "up", addresses: &["10.0.1.2/24", "fd01::2/64"] },
    )?;
    veth_pair(
        End { ns: &middle, device: "v2", addresses: &["10.0.2.1/24"] },
        End { ns: &two, device: "up", addresses: &["10.0.2.2/24"] },
    )?;
    let frr = Frr::start(&middle, &[Daemon::Bgpd, Daemon::Bfdd, Daemon::Staticd], FRR)?;
    let (bird, gobgp) = (Bird::start(&one, BIRD)?, Gobgp::start(&two, GOBGP)?);
    gobgp.query(&["global", "rib", "add", "192.0.2.3/32"])?;
    Ok(ThreeRouters { frr, bird, gobgp, _namespaces: [middle, one, two] })
}

impl ThreeRouters {
    /// Waits until each router has the others' routes.
    fn wait_for_routes(&self) -> routers::Result<()> {
        let frr = || {
            let output = self.frr.json("show bgp ipv4 unicast")?;
            let routes = output["routes"].as_object().map_or(0, |routes| routes.len());
            Ok((routes == 3, output.to_string()))
        };
        wait_for("three routes at FRR", DEFAULT_TIMEOUT, frr)?;
        wait_for("FRR's and GoBGP's routes at BIRD", DEFAULT_TIMEOUT, || {
            let output = self.bird.query("show route")?;
            let all = ["192.0.2.1/32", "192.0.2.3/32", "2001:db8::1/128"];
            Ok((all.iter().all(|route| output.contains(route)), output))
        })?;
        wait_for("FRR's and BIRD's routes at GoBGP", DEFAULT_TIMEOUT, || {
            let rib = self.gobgp.json(&["global", "rib"])?;
            Ok((rib.get("192.0.2.1/32").and(rib.get("192.0.2.2/32")).is_some(), rib.to_string()))
        })?;
        Ok(())
    }
}

/// Returns the ids of the processes whose command line contains this text.
fn processes(text: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let named = all.filter(|entry| {
        let command_line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command_line).contains(text)
    });
    named.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Returns the prefix that the paths of this process's lab directories under `root` have in common.
fn directory_prefix(root: &Path) -> String {
    root.join(format!("weir-lab-{}-", std::process::id())).display().to_string()
}

#[test]
fn routes_follow_kills_restarts_and_changes_and_nothing_is_left() -> Result<(), Box<dyn Error>> {
    let _alone = alone();
    let before = crash_log_directories();
    let mut three = start_three_routers()?;
    three.wait_for_routes()?;

    three.frr.kill(Daemon::Bgpd)?;
    wait_for("the withdrawal of FRR's route at BIRD", DEFAULT_TIMEOUT, || {
        let output = three.bird.query("show route")?;
        Ok((!output.contains("192.0.2.1/32"), output))
    })?;
    three.frr.restart(Daemon::Bgpd)?;
    three.wait_for_routes()?;

    three.bird.kill()?;
    three.gobgp.kill()?;
    three.bird.restart()?;
    three.gobgp.restart()?;
    three.gobgp.query(&["global", "rib", "add", "192.0.2.3/32"])?;
    three.wait_for_routes()?;

    three.frr.configure(&["router bgp 65001", "neighbor 10.0.2.2 shutdown"])?;
    wait_for("the withdrawal of FRR's route at GoBGP", DEFAULT_TIMEOUT, || {
        let output = three.gobgp.json(&["global", "rib"])?;
        Ok((output.get("192.0.2.1/32").is_none(), output.to_string()))
    })?;
    three.bird.configure(&BIRD.replace("192.0.2.2/32", "192.0.2.9/32"))?;
    wait_for("BIRD's new route at FRR", DEFAULT_TIMEOUT, || {
        let output = three.frr.json("show bgp ipv4 unicast")?;
        Ok((output["routes"].get("192.0.2.9/32").is_some(), output.to_string()))
    })?;

    three.frr.stop(Daemon::Bgpd)?;
    three.bird.stop()?;
    three.gobgp.stop()?;
    assert!(three.bird.log().contains("Shutdown completed"), "{}", three.bird.log());
    assert!(three.frr.log(Daemon::Bgpd).contains("Terminating on signal"));
    drop(three);
    assert_nothing_left(&before);
    Ok(())
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let _alone = alone();
    let before = crash_log_directories();
    let unwound = std::panic::catch_unwind(|| {
        let three = start_three_routers().unwrap();
        let prefix = directory_prefix(&std::env::temp_dir());
        assert!(!processes(&prefix).is_empty(), "no daemon is running");
        let _running = three;
        std::panic::panic_any(PANIC_PAYLOAD);
    });
    let payload = unwound.unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&PANIC_PAYLOAD), "another panic");
    assert_nothing_left(&before);
}

#[test]
fn invalid_configurations_are_errors_of_the_start() -> Result<(), Box<dyn Error>> {
    let _alone = alone();
    let ns = namespace("one")?;
    let message = |result: Result<(), LabError>| result.unwrap_err().to_string();
    let wrong = "router bgp 1\n neighbour 10.0.0.1 remote-as 2\n";
    let error = message(Frr::start(&ns, &[Daemon::Bgpd], wrong).map(drop));
    assert!(error.contains("Unknown command"), "{error}");
    let error = message(Bird::start(&ns, "protocol bgq {}").map(drop));
    assert!(error.contains("syntax error"), "{error}");
    let error = message(Gobgp::start(&ns, "[global.config]\n as = \"no\"\n").map(drop));
    assert!(error.contains("ended"), "{error}");
    Ok(())
}

/// Returns the names of the crash log directories of FRR daemons that have ended.
fn crash_log_directories() -> BTreeSet<String> {
    let all = std::fs::read_dir("/var/tmp/frr").into_iter().flatten().flatten();
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let number = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    names.filter(|name| !Path::new("/proc").join(number(name)).exists()).collect()
}

#[track_caller]
fn assert_nothing_left(crash_logs_before: &BTreeSet<String>) {
    let prefix = directory_prefix(&std::env::temp_dir());
    let left = processes(&prefix);
    assert!(left.is_empty(), "processes {left:?} with {prefix} in their command line");
    for root in [std::env::temp_dir(), "/dev/shm".into()] {
        let prefix = directory_prefix(&root);
        let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path().display().to_string());
        let left: Vec<String> = paths.filter(|path| path.starts_with(&prefix)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let crash_logs = crash_log_directories();
    let left: Vec<String> = crash_logs.difference(crash_logs_before).cloned().collect();
    assert!(left.is_empty(), "{left:?} in /var/tmp/frr");
}
