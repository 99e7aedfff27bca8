//! Six concurrent clients, three per gateway: to the service, to the service on long-lived
//! connections, and to a server for which Weir has no service.

use super::client::{Client, ClientStats, Load};
use super::error::Result;
use super::topology::{AWS_CLIENTS, AWS_SERVER, AZURE_CLIENT, AZURE_SERVER, FRONTEND, Lab};
use patience::{check, poll};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The time limit of a wait for responses.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The main clients; the slower one determines the progress of a scenario.
const MAIN: [&str; 2] = ["aws", "azure"];

/// The clients of servers without a service.
const BEYOND: [&str; 2] = ["aws-beyond", "azure-beyond"];

/// The running clients, by name: `aws` and `azure` make ten requests per connection; `aws-steady`
/// and `azure-steady` keep 24 connections for the whole time; `aws-beyond` and `azure-beyond` use
/// servers without a service.
pub struct Traffic(Vec<(&'static str, Client)>);

impl Traffic {
    /// Starts all clients, with this pause after each request of a worker.
    pub fn start(lab: &Lab, pause: Duration) -> Result<Self> {
        let web = SocketAddr::from((FRONTEND, 80));
        let sources: Vec<IpAddr> = AWS_CLIENTS.iter().map(|a| IpAddr::V4(*a)).collect();
        let paths = [
            (&lab.aws[0], sources, SocketAddr::from((AWS_SERVER, 80))),
            (&lab.azure[0], vec![AZURE_CLIENT.into()], SocketAddr::from((AZURE_SERVER, 80))),
        ];
        let names =
            [["aws", "aws-steady", "aws-beyond"], ["azure", "azure-steady", "azure-beyond"]];
        let mut clients = Vec::new();
        for ((ns, sources, beyond), names) in paths.into_iter().zip(names) {
            let short = Load { sources, pause, per_connection: 10, ..Load::new(web, u64::MAX) };
            // Enough connections that each backend gets some: a given one of three backends gets
            // none of the 48 steady connections once in 280 million runs. The 24 workers of a
            // client make as many requests as six workers with the other clients' pause.
            let pause = pause * 4;
            let steady = Load { workers: 24, per_connection: u64::MAX, pause, ..short.clone() };
            let beyond = Load { target: beyond, workers: 2, ..short.clone() };
            for (name, load) in names.into_iter().zip([short, steady, beyond]) {
                clients.push((name, Client::start(ns, load)?));
            }
        }
        Ok(Self(clients))
    }

    /// Returns the number of responses of the slower main client so far, correct or not.
    pub fn answered(&self) -> u64 {
        self.fewest_responses(&MAIN)
    }

    /// Returns the number of responses, correct or not, of the client among `names` that has the
    /// fewest.
    fn fewest_responses(&self, names: &[&str]) -> u64 {
        let stats = self.stats().into_iter().filter(|(name, _)| names.contains(name));
        stats.map(|(_, stats)| stats.right + stats.failed).min().unwrap_or(0)
    }

    /// Returns the results so far.
    pub fn stats(&self) -> Vec<(&'static str, ClientStats)> {
        self.0.iter().map(|(name, client)| (*name, client.stats())).collect()
    }

    /// Waits until each main client has at least `requests` responses, correct or not.
    pub fn wait_for_responses(&self, requests: u64) -> Result<()> {
        self.wait(&MAIN, requests)
    }

    /// Waits until each client of a server without a service has at least `requests` responses,
    /// correct or not. Weir returns those requests and their responses to the gateway.
    pub fn wait_for_returned(&self, requests: u64) -> Result<()> {
        self.wait(&BEYOND, requests)
    }

    fn wait(&self, names: &[&str], requests: u64) -> Result<()> {
        let what = format!("{requests} responses for each of {names:?}");
        let reached = || self.fewest_responses(names) >= requests;
        poll(&what, TIMEOUT, || check(reached(), || self.to_string()))?;
        Ok(())
    }

    /// Lets each client complete its current request, and returns the results.
    pub fn finish(self) -> Result<Vec<(&'static str, ClientStats)>> {
        self.0.iter().for_each(|(_, client)| client.stop_requests());
        self.0.into_iter().map(|(name, client)| Ok((name, client.finish()?))).collect()
    }
}

impl std::fmt::Display for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stats().iter().try_for_each(|(name, stats)| write!(f, "{name}: {stats}"))
    }
}
