//! HTTP requests through the emulated gateway, with their times.

use crate::Result;
use crate::guest::Guest;
use std::time::Duration;

/// Seconds after which a request has failed.
const TIMEOUT_S: u32 = 2;

/// The time limit for a number of requests.
const TIMEOUT: Duration = Duration::from_secs(60);

const SCRIPT: &str = "/run/traffic.sh";
const LOG: &str = "/run/traffic.log";

/// The client's messages: its shell reports each request that was ended after [`TIMEOUT_S`].
const ERRORS: &str = "/run/traffic.err";

/// The client stops before its next request while this file exists.
const STOP: &str = "/run/traffic.stop";

/// What a client requests, and the file that the response must equal.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The client's network namespace.
    pub namespace: &'static str,
    /// The URL.
    pub url: &'static str,
    /// The file in the guest.
    pub expected: &'static str,
}

/// One request. Times are seconds since the guest's boot.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// When it began.
    pub begun: f64,
    /// When it ended.
    pub ended: f64,
    /// Whether the response was complete and correct.
    pub succeeded: bool,
}

impl Target {
    /// Makes `number` requests, one after another, each with a connection of its own.
    pub fn request(self, guest: &Guest, number: usize) -> Result<Vec<Request>> {
        guest.write(SCRIPT, &self.script())?;
        let (status, log) = guest.status(&self.command(number), TIMEOUT)?;
        match status {
            0 => parse(&log),
            _ => Err(format!("the client ended with {status}: {log}").into()),
        }
    }

    /// Starts a client in the background that makes requests until it is stopped.
    pub fn start(self, guest: &Guest) -> Result<Client> {
        guest.write(SCRIPT, &self.script())?;
        guest.start(&self.command(u32::MAX as usize), LOG)?;
        Ok(Client(()))
    }

    fn command(self, number: usize) -> String {
        format!("/bin/ip netns exec {} sh {SCRIPT} {number}", self.namespace)
    }

    fn script(self) -> String {
        let Self { url, expected, .. } = self;
        // Uptime instead of the time of day, which may be set. A refused request fails at once and
        // would be repeated too fast.
        format!(
            "exec 2> {ERRORS}
             left=$1
             while [ $left -gt 0 ] && [ ! -e {STOP} ]; do
               read begun _ < /proc/uptime
               timeout {TIMEOUT_S} wget -q -O - {url} 2> /dev/null | cmp -s - {expected}
               failed=$?
               read ended _ < /proc/uptime
               echo $begun $ended $failed
               [ $failed = 0 ] || sleep 0.1
               left=$((left - 1))
             done
             rm -f {STOP}"
        )
    }
}

/// A client in the guest's background.
pub struct Client(());

impl Client {
    /// Returns the requests that have ended.
    pub fn requests(&self, guest: &Guest) -> Result<Vec<Request>> {
        parse(&guest.run(&format!("cat {LOG}"))?)
    }

    /// Waits for `number` more requests, whether they succeed or not.
    pub fn wait_for(&self, guest: &Guest, number: usize) -> Result {
        let enough = self.requests(guest)?.len() + number;
        // Polled in the guest: a command from here takes as long as a request.
        let wait = format!("until [ $(wc -l < {LOG}) -ge {enough} ]; do sleep 0.2; done");
        guest.status(&wait, TIMEOUT).map(drop)
    }

    /// Stops it and returns all requests that have ended.
    pub fn stop(self, guest: &Guest) -> Result<Vec<Request>> {
        guest.run(&format!("touch {STOP}; while [ -e {STOP} ]; do sleep 0.1; done"))?;
        self.requests(guest)
    }
}

/// Parses the client's output.
fn parse(log: &str) -> Result<Vec<Request>> {
    let request = |line: &str| {
        let mut words = line.split(' ');
        let begun = words.next()?.parse().ok()?;
        let ended = words.next()?.parse().ok()?;
        Some(Request { begun, ended, succeeded: words.next()? == "0" })
    };
    let requests = log.lines().map(|line| {
        request(line).ok_or_else(|| format!("the client wrote the line {line:?}").into())
    });
    requests.collect()
}
