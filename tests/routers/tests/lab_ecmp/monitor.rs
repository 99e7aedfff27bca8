//! Records the changes of the routes to the frontends in the router's kernel.

use std::sync::Arc;
use std::time::Duration;

use routers::{DEFAULT_TIMEOUT, Netns, Result, wait_for};
use tests::lab::folder::Folder;
use tests::lab::process::Process;

use crate::fleet::{FRONTEND, FRONTEND6};

/// A running record of the changes of routes and next-hop groups that the kernel reports.
pub struct Monitor {
    process: Process,
    router: Arc<Netns>,
    /// Removed on drop.
    _folder: Folder,
}

/// Addresses of marker routes: once a marker is in the record, all earlier changes are too. The
/// first shows that recording has begun, the second that it is up to date.
const MARKS: [&str; 2] = ["198.51.100.1", "198.51.100.2"];

/// The text before a removal in the record.
const DELETED: &str = "Deleted ";

impl Monitor {
    /// Starts recording.
    pub fn start(router: &Arc<Netns>) -> Result<Monitor> {
        let folder = Folder::new()?;
        let args = ["monitor", "route", "nexthop"].map(str::to_owned);
        let log = folder.file("routes.log");
        let process = Process::start(router, "/usr/sbin/ip".as_ref(), &args, &[], log)?;
        let monitor = Monitor { process, router: router.clone(), _folder: folder };
        monitor.mark(MARKS[0])?;
        Ok(monitor)
    }

    /// Adds and removes a marker route repeatedly until it is in the record.
    fn mark(&self, address: &str) -> Result<()> {
        wait_for("the route monitor", DEFAULT_TIMEOUT, || {
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

    /// Returns all changes so far of routes to the frontends and of next-hop groups. Reports that a
    /// line of `before`, the output of `ip route show`, was removed or added are left out, because
    /// zebra may rewrite an equal route.
    pub fn changes(&self, before: &str) -> Result<Vec<String>> {
        self.mark(MARKS[1])?;
        let frontends = [FRONTEND.to_string(), FRONTEND6.to_string()];
        let about = |line: &&str| {
            let route = frontends.iter().any(|frontend| line.contains(frontend.as_str()));
            route || line.trim_start_matches(DELETED).starts_with("id ")
        };
        let equal = |line: &&str| before.contains(line.trim_start_matches(DELETED).trim_end());
        let log = self.process.log();
        Ok(log.lines().filter(about).filter(|line| !equal(line)).map(str::to_owned).collect())
    }
}
