//! Clients that send requests continuously, on long-lived connections or on a new connection for
//! each request.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use routers::{Netns, Result, wait_for};
use tests::lab::client::{Client, ClientStats, Load};

use crate::fleet::{FRONTEND, FRONTEND6, HTTP};

/// Number of long-lived connections of each family. With 24, all take the same one of two routes
/// once in eight million times.
pub const LASTING: u64 = 24;
/// Maximum wait for the clients' progress.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The running clients, by name: `steady` and `steady6` keep their connections, `fresh` opens one
/// for each request.
pub struct Traffic(Vec<(&'static str, Client)>);

impl Traffic {
    /// Starts the clients `steady` and `steady6`, and `fresh` if that argument is true; `sources`
    /// are the IPv4 clients' addresses.
    pub fn start(ns: &Netns, sources: &[IpAddr], fresh: bool) -> Result<Traffic> {
        let (four, six) = (SocketAddr::from((FRONTEND, HTTP)), SocketAddr::from((FRONTEND6, HTTP)));
        let steady = Load {
            sources: sources.to_vec(),
            workers: LASTING,
            per_connection: u64::MAX,
            pause: Duration::from_millis(50),
            ..Load::new(four, u64::MAX)
        };
        let steady6 = Load { target: six, sources: Vec::new(), ..steady.clone() };
        let once = Load { workers: 2, per_connection: 1, ..steady.clone() };
        let all = [("steady", steady), ("steady6", steady6), ("fresh", once)];
        let all = all.into_iter().filter(|(name, _)| fresh || *name != "fresh");
        let start = |(name, load)| Ok((name, Client::start(ns, load)?));
        Ok(Traffic(all.map(start).collect::<Result<_>>()?))
    }

    /// Returns the clients' results so far.
    pub fn stats(&self) -> Vec<(&'static str, ClientStats)> {
        self.0.iter().map(|(name, client)| (*name, client.stats())).collect()
    }

    /// Returns the number of requests that failed so far. A request fails if its connection is
    /// lost.
    pub fn lost(&self) -> u64 {
        self.stats().iter().map(|(_, stats)| stats.failed).sum()
    }

    /// Waits until this many requests failed.
    pub fn wait_for_losses(&self, expected: u64) -> Result<()> {
        wait_for(&format!("{expected} lost connections"), TIMEOUT, || {
            let lost = self.lost();
            Ok((lost >= expected, lost.to_string()))
        })
        .map(drop)
    }

    /// Waits until each client has `more` further responses; failed requests do not count.
    pub fn wait_for_responses(&self, more: u64) -> Result<()> {
        let before = self.stats();
        wait_for(&format!("{more} more responses of each client"), TIMEOUT, || {
            let now = self.stats();
            let on =
                now.iter().zip(&before).all(|((_, now), (_, then))| now.right >= then.right + more);
            Ok((on, now.iter().map(|(name, stats)| format!("{name}: {stats}")).collect()))
        })
        .map(drop)
    }

    /// Lets each client complete its current request, and returns the results.
    pub fn finish(self) -> Result<Vec<(&'static str, ClientStats)>> {
        self.0.iter().for_each(|(_, client)| client.stop_requests());
        self.0.into_iter().map(|(name, client)| Ok((name, client.finish()?))).collect()
    }
}

/// Asserts that every request was answered, no long-lived connection was opened again, and every
/// connection stayed with one backend.
#[track_caller]
pub fn assert_no_losses(clients: &[(&'static str, ClientStats)]) {
    for (name, stats) in clients {
        println!("{name}: {stats}");
    }
    for (name, stats) in clients {
        assert!(stats.right > 0 && stats.failed == 0 && stats.moved == 0, "{name}: {stats}");
        if *name != "fresh" {
            assert_eq!(stats.connections, LASTING, "{name}: {stats}");
        }
    }
}
