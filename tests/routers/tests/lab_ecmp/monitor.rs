//! What a router's kernel did to its routes to the frontends.

use std::sync::Arc;
use std::time::Duration;

use routers::{Netns, PATIENCE, Result, wait_for};
use tests::lab::folder::Folder;
use tests::lab::process::Process;

use crate::fleet::{FRONTEND, FRONTEND6};

/// Writes down each change of a route, and misses none: what is told, the kernel has done.
pub struct Monitor {
    process: Process,
    router: Arc<Netns>,
    /// Removed with it.
    _folder: Folder,
}

/// Routes that say to the reader how far the account has come; documentation's, to nobody.
const MARKS: [&str; 2] = ["198.51.100.1", "198.51.100.2"];

/// In front of what is gone.
const DELETED: &str = "Deleted ";

impl Monitor {
    /// Begins.
    pub fn start(router: &Arc<Netns>) -> Result<Monitor> {
        let folder = Folder::new()?;
        let args = ["monitor", "route", "nexthop"].map(str::to_owned);
        let log = folder.file("routes.log");
        let process = Process::start(router, "/usr/sbin/ip".as_ref(), &args, &[], log)?;
        let monitor = Monitor { process, router: router.clone(), _folder: folder };
        monitor.mark(MARKS[0])?;
        Ok(monitor)
    }

    /// Changes another route again and again until that is told.
    fn mark(&self, address: &str) -> Result<()> {
        wait_for("the monitor of routes", PATIENCE, || {
            self.router.ip(&[
                &format!("route add blackhole {address}"),
                &format!("route del blackhole {address}"),
            ])?;
            std::thread::sleep(Duration::from_millis(30));
            let log = self.process.log();
            Ok((log.contains(address), log))
        })
        .map(drop)
    }

    /// All changes of routes to the frontends and of groups of next hops so far, but those that
    /// wrote `before`, what `ip route show` said, once more.
    pub fn changes(&self, before: &str) -> Result<Vec<String>> {
        self.mark(MARKS[1])?;
        let frontends = [FRONTEND.to_string(), FRONTEND6.to_string()];
        let about = |line: &&str| {
            let route = frontends.iter().any(|frontend| line.contains(frontend.as_str()));
            route || line.trim_start_matches(DELETED).starts_with("id ")
        };
        // FRR's zebra writes an IPv6 route that is equal by removing it first.
        let equal = |line: &&str| before.contains(line.trim_start_matches(DELETED).trim_end());
        let log = self.process.log();
        Ok(log.lines().filter(about).filter(|line| !equal(line)).map(str::to_owned).collect())
    }
}
