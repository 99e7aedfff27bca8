//! The appliance's status at its cloud, as shown by the API, `weir cloud status` and the metrics.

use serde::{Deserialize, Serialize};

use crate::requests::{AttemptStats, Counts};

/// Status of the appliance at its cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the cloud: `aws` or `azure`; empty if no cloud is configured.
    pub cloud: String,
    /// Phase of the lifecycle: `looking` (for its location), `outside`, `registered`, `ready`,
    /// `leaving` or `over`. In mode routes (AWS without a gateway load balancer) it is `looking`,
    /// `leading`, `following` or `over`.
    pub phase: String,
    /// True if the appliance is able and the cloud reports it healthy; in mode routes, if it is
    /// able and the last round succeeded.
    pub ready: bool,
    /// Why the location was not found, or in mode routes why the last round failed, with a remedy;
    /// empty if neither applies.
    pub error: String,
    /// Id of the instance.
    pub instance: String,
    /// Region of the instance.
    pub region: String,
    /// Availability zone of the instance.
    pub zone: String,
    /// ARN of the target group; on Azure, the ids of the backend pools.
    pub group: String,
    /// What the appliance is registered as: an instance id or an address. In mode routes, the
    /// ingress interface; on Azure, IP configurations or addresses.
    pub target: String,
    /// State of the target as the cloud reports it; empty if it is not registered. On Azure
    /// `member`, or `down` or `up` by its administrative state, or `none` if it is missing in a
    /// pool; empty before the first query.
    pub state: String,
    /// The cloud's reason for the state, if it gives one.
    pub reason: String,
    /// True if, for a minute or longer, the appliance has been able, but its target was neither
    /// healthy nor initial (AWS), or the appliance was not ready (Azure).
    pub differs: bool,
    /// Progress of the drain, while the appliance leaves.
    pub drain: Option<DrainProgress>,
    /// Deregistration delay of the target group in seconds; `None` until it was read, and on Azure.
    pub deregistration_delay_s: Option<u64>,
    /// Idle timeout of TCP flows at the gateway in seconds; `None` until it was read.
    pub tcp_idle_s: Option<u64>,
    /// Findings for the operator, sorted by name.
    pub findings: Vec<ReportedFinding>,
    /// All targets of the group, this machine included; on Azure, all entries of its pools.
    pub peers: Vec<Peer>,
    /// Number of attempts since start, by operation and outcome; a retry counts as an attempt.
    pub calls: Vec<CallCount>,
    /// On Azure, the tunnels of each pool.
    #[serde(default)]
    pub tunnels: Vec<GatewayTunnels>,
}

/// Tunnels of a gateway and an address family: those in force in the data plane, and those that
/// Azure reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayTunnels {
    /// Name of the `[[gateway]]` in the configuration.
    pub gateway: String,
    /// Address family: `ipv4` or `ipv6`.
    pub family: String,
    /// Tunnels in force in the data plane.
    pub in_force: TunnelPair,
    /// Tunnels as reported by Azure; if there is no report, those in force.
    pub reported: TunnelPair,
    /// Source of the report: `imds`, `arm`, `persisted` (from before a restart) or `file`.
    pub source: String,
}

/// The two tunnels of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelPair {
    /// Outer UDP destination port of the tunnel from and to the internet.
    pub external_port: u16,
    /// VNI of the external tunnel.
    pub external_vni: u32,
    /// Outer UDP destination port of the tunnel from and to the application.
    pub internal_port: u16,
    /// VNI of the internal tunnel.
    pub internal_vni: u32,
}

/// Progress of a drain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainProgress {
    /// Reason for leaving.
    pub reason: String,
    /// Number of flows that the drain still waits for.
    pub flows: u64,
    /// Seconds until the process ends at the latest.
    pub at_most_s: u64,
}

/// A reported finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportedFinding {
    /// Name of the finding, as used in metrics.
    pub name: String,
    /// Description of the condition.
    pub text: String,
    /// Action for the operator.
    pub remedy: String,
    /// Number of times that the condition was found since start.
    pub times: u64,
}

/// A condition that the operator should see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Name of the finding in metrics and in the documentation.
    pub name: &'static str,
    /// Description of the condition.
    pub text: String,
    /// Action for the operator.
    pub remedy: String,
}

/// A target of the group; on Azure, an entry of a pool; in mode routes, an instance of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Instance id or address; on Azure, name of the machine, its interface or the entry.
    pub id: String,
    /// Private address, if known.
    pub address: Option<std::net::IpAddr>,
    /// State of the target; on Azure `member`, or the administrative state `up` or `down`; in mode
    /// routes the state of the instance, or `leading`.
    pub state: String,
    /// Availability zone, if known.
    pub zone: String,
}

/// Number of attempts of one operation with the same outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallCount {
    /// Name of the operation in the cloud's API.
    pub operation: String,
    /// Outcome: `ok`, `throttled`, `transient`, `conflict`, `denied`, `absent` or `invalid`.
    pub outcome: String,
    /// Number of attempts.
    pub times: u64,
    /// Their durations, for the metrics.
    #[serde(skip)]
    pub attempts: AttemptStats,
}

impl Report {
    /// Sets the number of attempts since start.
    pub fn set_calls(&mut self, counts: Counts) {
        let count = |((operation, outcome), attempts): ((&str, &str), AttemptStats)| CallCount {
            operation: operation.to_owned(),
            outcome: outcome.to_owned(),
            times: attempts.times(),
            attempts,
        };
        self.calls = counts.into_iter().map(count).collect();
    }

    /// Adds a finding, or counts a known one again; logs it if it is new or its text has changed.
    pub fn add_finding(&mut self, finding: Finding) {
        let Finding { name, text, remedy } = finding;
        let at = match self.findings.binary_search_by(|known| known.name.as_str().cmp(name)) {
            Ok(at) => at,
            Err(at) => {
                let name = name.to_owned();
                let new = ReportedFinding { name, ..ReportedFinding::default() };
                self.findings.insert(at, new);
                at
            }
        };
        let known = &mut self.findings[at];
        if known.text != text {
            tracing::warn!(
                event = "cloud_finding",
                finding = name,
                cloud = %self.cloud,
                %text,
                %remedy,
                "cloud finding"
            );
        }
        (known.text, known.remedy) = (text, remedy);
        known.times += 1;
    }

    /// Sets the error, and logs it if it is new.
    pub fn set_error(&mut self, error: String) {
        if self.error != error {
            tracing::error!(
                event = "cloud_failed",
                cloud = %self.cloud,
                %error,
                "cloud integration failed"
            );
        }
        self.error = error;
    }

    /// Returns the status in one line; empty if no cloud is configured.
    pub fn line(&self) -> String {
        let mut line = match (self.cloud.as_str(), self.phase.as_str()) {
            ("", _) => return String::new(),
            (cloud, phase) => format!("{cloud}: {phase}"),
        };
        let target = match (self.target.is_empty(), self.state.as_str()) {
            (true, _) => String::new(),
            (false, "") => format!(", as {}", self.target),
            (false, state) => format!(", {} is {state}", self.target),
        };
        line.push_str(&target);
        if let Some(drain) = &self.drain {
            let DrainProgress { flows, at_most_s, .. } = drain;
            line.push_str(&format!(", {flows} flows left, {at_most_s} s at most"));
        }
        if !self.error.is_empty() {
            line.push_str(&format!("; {}", self.error));
        }
        match self.findings.len() {
            0 => line,
            findings => format!("{line}; {findings} findings (weir cloud status)"),
        }
    }
}
