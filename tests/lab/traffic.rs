//! Six clients at once: through each gateway to the service, to the service on connections that
//! last, and to a server that is no service.

use super::client::{Client, Load, Seen};
use super::error::Result;
use super::topology::{AWS_CLIENTS, AWS_SERVER, AZURE_CLIENT, AZURE_SERVER, FRONTEND, Lab};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The clients that decide when it is over.
const MAIN: [&str; 2] = ["aws", "azure"];

/// The running clients, by name: `aws` and `azure` keep a connection for ten requests; `aws-steady`
/// and `azure-steady` keep six for the whole time; `aws-beyond` and `azure-beyond` ask servers that
/// are no service.
pub struct Traffic(Vec<(&'static str, Client)>);

impl Traffic {
    /// Starts all of them: `requests` through each gateway to the service, with this pause after
    /// each request of a worker; a quarter as many to the servers beyond.
    pub fn start(lab: &Lab, requests: u64, pause: Duration) -> Result<Self> {
        let web = SocketAddr::from((FRONTEND, 80));
        let sources: Vec<IpAddr> = AWS_CLIENTS.iter().map(|a| IpAddr::V4(*a)).collect();
        let ways = [
            (&lab.aws[0], sources, SocketAddr::from((AWS_SERVER, 80))),
            (&lab.azure[0], vec![AZURE_CLIENT.into()], SocketAddr::from((AZURE_SERVER, 80))),
        ];
        let names =
            [["aws", "aws-steady", "aws-beyond"], ["azure", "azure-steady", "azure-beyond"]];
        let mut clients = Vec::new();
        for ((ns, sources, beyond), names) in ways.into_iter().zip(names) {
            let usual = Load { sources, pause, per_connection: 10, ..Load::new(web, requests) };
            let steady =
                Load { requests: u64::MAX, workers: 6, per_connection: u64::MAX, ..usual.clone() };
            let beyond =
                Load { target: beyond, requests: requests / 4, workers: 2, ..usual.clone() };
            for (name, load) in names.into_iter().zip([usual, steady, beyond]) {
                clients.push((name, Client::start(ns, load)?));
            }
        }
        Ok(Self(clients))
    }

    /// Requests of the slower main client so far, answered rightly or not.
    pub fn answered(&self) -> u64 {
        let main = self.seen().into_iter().filter(|(name, _)| MAIN.contains(name));
        main.map(|(_, seen)| seen.right + seen.failed).min().unwrap_or(0)
    }

    /// What each saw so far.
    pub fn seen(&self) -> Vec<(&'static str, Seen)> {
        self.0.iter().map(|(name, client)| (*name, client.seen())).collect()
    }

    /// Lets the bounded clients come to their end and stops the steady ones.
    pub fn finish(self) -> Result<Vec<(&'static str, Seen)>> {
        let end = |(name, client): (&'static str, Client)| {
            let steady = name.ends_with("steady");
            Ok((name, if steady { client.stop()? } else { client.finish()? }))
        };
        // The bounded ones first: the steady ones are there for as long as the others need.
        let (steady, bounded): (Vec<_>, Vec<_>) =
            self.0.into_iter().partition(|(name, _)| name.ends_with("steady"));
        bounded.into_iter().chain(steady).map(end).collect()
    }
}

impl std::fmt::Display for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.seen().iter().try_for_each(|(name, seen)| write!(f, "{name}: {seen}"))
    }
}
