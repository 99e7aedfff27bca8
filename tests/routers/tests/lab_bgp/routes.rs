//! The routers' view of the appliance's routes, and the routes of their kernels.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use routers::{Bird, Daemon, Frr, Netns, wait_for};
use serde_json::Value;
use tests::lab::folder::Folder;
use tests::lab::process::Process;

use crate::lab::{BgpLab, NEXT_HOPS, Network, OUR_ASN, Outcome, PREFIX6, THEIR_ASN, TIMEOUT};

/// Starts FRR with a BGP session over one network. `lines` are further lines of its BGP
/// configuration, in which `APPLIANCE` is replaced by the appliance's address.
pub fn frr(bgp_lab: &BgpLab, over: Network, lines: &[&str]) -> Outcome<Frr> {
    let (appliance, router) = (over.appliance(), over.router());
    let mut text = format!(
        "router bgp {THEIR_ASN}\n bgp router-id {router}\n no bgp ebgp-requires-policy\n \
         bgp log-neighbor-changes\n neighbor {appliance} remote-as {OUR_ASN}\n \
         neighbor {appliance} timers connect 1\n"
    );
    for line in lines {
        text += &format!(" {}\n", line.replace("APPLIANCE", appliance));
    }
    for family in ["ipv4", "ipv6"] {
        text += &format!(
            " address-family {family} unicast\n  neighbor {appliance} activate\n \
             exit-address-family\n"
        );
    }
    Ok(Frr::start(&bgp_lab.router, &[Daemon::Bgpd, Daemon::Bfdd], &text)?)
}

/// Starts BIRD with a BGP session over one network. `keys` are further options of its BGP protocol.
pub fn bird(bgp_lab: &BgpLab, over: Network, keys: &str) -> Outcome<Bird> {
    let (appliance, router, device) = (over.appliance(), over.router(), over.device());
    let text = format!(
        "log stderr all;\nrouter id {router};\nprotocol device {{}}\n\
         protocol direct {{ ipv4; ipv6; }}\n\
         protocol kernel {{ ipv4 {{ export where source = RTS_BGP; }}; }}\n\
         protocol kernel {{ ipv6 {{ export where source = RTS_BGP; }}; }}\n\
         protocol bfd {{ interface \"{device}\" {{ interval 300 ms; multiplier 3; }}; }}\n\
         protocol bgp weir {{ local {router} as {THEIR_ASN}; neighbor {appliance} as {OUR_ASN};\n\
         connect retry time 1; connect delay time 1; error wait time 1, 2; {keys}\n\
         ipv4 {{ import all; export none; }}; ipv6 {{ import all; export none; }}; }}\n"
    );
    Ok(Bird::start(&bgp_lab.router, &text)?)
}

/// Returns FRR's path to a prefix from the appliance, if it has one.
pub fn path(frr: &Frr, prefix: &str) -> routers::Result<Option<Value>> {
    let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
    let output = frr.json(&format!("show bgp {family} unicast {prefix}"))?;
    Ok(output["paths"].get(0).cloned())
}

/// Returns FRR's state of its session with the appliance.
pub fn session(frr: &Frr, over: Network) -> routers::Result<Value> {
    Ok(frr.json(&format!("show bgp neighbors {}", over.appliance()))?[over.appliance()].clone())
}

/// Returns how often FRR has established its session with the appliance, a number that identifies
/// the current session; `None` while the session is not established.
pub fn session_number(frr: &Frr, over: Network) -> routers::Result<Option<u64>> {
    let state = session(frr, over)?;
    let up = state["bgpState"] == "Established";
    Ok(state["connectionsEstablished"].as_u64().filter(|_| up))
}

/// Waits until FRR's path to a prefix, or its absence, satisfies `predicate`; returns when this was
/// observed.
pub fn wait_for_path(
    bgp_lab: &mut BgpLab,
    frr: &Frr,
    prefix: &str,
    what: &str,
    predicate: impl Fn(Option<&Value>) -> bool,
) -> Outcome<Instant> {
    let observed = wait_for(&format!("{prefix}: {what}"), TIMEOUT, || {
        let found = path(frr, prefix)?;
        Ok((predicate(found.as_ref()), format!("{found:?}\n{}", bgp_lab.weir.logs())))
    })?;
    Ok(observed)
}

/// Waits until FRR and its kernel have a route to a prefix through the data port.
pub fn wait_until_present(bgp_lab: &mut BgpLab, frr: &Frr, prefix: &str) -> Outcome<Instant> {
    let hop = hop(prefix);
    let is_through_appliance = |path: Option<&Value>| {
        let hops = path.and_then(|path| path["nexthops"].as_array());
        hops.into_iter().flatten().any(|of| of["ip"] == hop)
    };
    let observed = wait_for_path(bgp_lab, frr, prefix, "present", is_through_appliance)?;
    wait_until_in_kernel(bgp_lab, prefix)?;
    Ok(observed)
}

/// Waits until the router's kernel routes a prefix to the data port.
pub fn wait_until_in_kernel(bgp_lab: &BgpLab, prefix: &str) -> Outcome {
    let via = format!("via {} dev data", hop(prefix));
    wait_for(&format!("{prefix} in the router's kernel"), TIMEOUT, || {
        let output = bgp_lab.fib(prefix)?;
        Ok((output.contains(&via), output))
    })?;
    Ok(())
}

/// Waits until FRR has no path to a prefix; returns when this was observed.
pub fn wait_until_gone(bgp_lab: &mut BgpLab, frr: &Frr, prefix: &str) -> Outcome<Instant> {
    wait_for_path(bgp_lab, frr, prefix, "gone", |path| path.is_none())
}

/// Returns the next hop of a frontend's prefix: the data port's address of the same family.
fn hop(prefix: &str) -> &'static str {
    if prefix == PREFIX6 { NEXT_HOPS[1] } else { NEXT_HOPS[0] }
}

/// Waits until FRR reports BFD with the appliance as up.
pub fn wait_for_bfd(frr: &Frr, over: Network) -> Outcome {
    wait_for("BFD up at FRR", TIMEOUT, || {
        let output = frr.json("show bfd peers")?;
        let mut all = output.as_array().into_iter().flatten();
        let up = all.any(|peer| peer["peer"] == over.appliance() && peer["status"] == "up");
        Ok((up, output.to_string()))
    })?;
    Ok(())
}

/// Records the changes of a kernel's routes from its start on.
pub struct RouteMonitor {
    process: Process,
    folder: Folder,
}

impl RouteMonitor {
    /// Starts to record the route changes of a namespace.
    pub fn start(ns: &Arc<Netns>) -> Outcome<RouteMonitor> {
        let folder = Folder::new()?;
        let arguments = ["-oneline", "-tshort", "monitor", "label", "route"].map(str::to_owned);
        let log = folder.file("routes.log");
        let process = Process::start(ns, Path::new("ip"), &arguments, &[], log)?;
        // The record of a probe route shows that the monitor runs, before the test causes changes.
        let probe = ["route add blackhole 192.0.2.199/32", "route del blackhole 192.0.2.199/32"];
        wait_for("the route monitor", TIMEOUT, || {
            ns.ip(&probe)?;
            Ok((process.log().contains("192.0.2.199"), process.log()))
        })?;
        Ok(RouteMonitor { process, folder })
    }

    /// Returns how often a prefix was removed from the kernel.
    pub fn lost(&self, prefix: &str) -> usize {
        let bare = prefix.trim_end_matches("/32").trim_end_matches("/128");
        let log = self.process.log();
        log.lines().filter(|line| line.contains("Deleted") && line.contains(bare)).count()
    }

    /// Returns the record of all changes, with the path of its file.
    pub fn log(&self) -> String {
        format!("{}: {}", self.folder.file("routes.log").display(), self.process.log())
    }
}

/// Waits until FRR has no path to a prefix. Returns the time from `begun` to the start of the last
/// poll in which FRR still showed one.
pub fn shown_for(
    bgp_lab: &mut BgpLab,
    frr: &Frr,
    prefix: &str,
    begun: Instant,
) -> Outcome<Duration> {
    let last = Cell::new(begun);
    wait_for(&format!("{prefix}: gone"), TIMEOUT, || {
        let looked = Instant::now();
        let path = path(frr, prefix)?;
        if path.is_some() {
            last.set(looked);
        }
        Ok((path.is_none(), format!("{path:?}\n{}", bgp_lab.weir.logs())))
    })?;
    Ok(last.get() - begun)
}

/// Prints the time of each attempt and asserts a bound on the longest.
#[track_caller]
pub fn assert_within(what: &str, took: &[Duration], bound: Duration) {
    println!("{what}: {took:.2?}");
    let longest = took.iter().max().copied().unwrap_or(Duration::MAX);
    assert!(longest <= bound, "{what}: {took:.2?}, the longest exceeds {bound:?}");
}
