//! What people and programs are told of this machine at its cloud.

use serde::{Deserialize, Serialize};

use crate::requests::Counts;

/// All that is known of this machine at its cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `aws`, `azure`; empty where no cloud is asked anything.
    pub cloud: String,
    /// `looking` for its place, `outside`, `registered`, `ready`, `leaving`, `over`; in mode routes
    /// `leading` or `following` as well.
    pub phase: String,
    /// Able, and the cloud says healthy; in mode routes able, and it is known who leads.
    pub ready: bool,
    /// Why it has no place, and what to do; empty where it has one.
    pub trouble: String,
    /// The instance.
    pub instance: String,
    /// The instance's region.
    pub region: String,
    /// The instance's availability zone.
    pub zone: String,
    /// ARN of the target group; at Azure the ids of the pools.
    pub group: String,
    /// As what it is registered there: an instance id or an address; in mode routes the interface
    /// that routes lead to when it leads; at Azure IP configurations or addresses.
    pub target: String,
    /// The target's state as the cloud sees it; empty where it is none. At Azure `member`, `down`
    /// and `up` by its administrative state, or `none`.
    pub state: String,
    /// Why that is its state, where the cloud says so.
    pub reason: String,
    /// For a minute or longer the cloud thinks otherwise of its health than the machine itself.
    pub differs: bool,
    /// While it leaves.
    pub leaving: Option<Leaving>,
    /// Seconds that a deregistered target keeps its flows; none before it was read.
    pub deregistration_delay_s: Option<u64>,
    /// Seconds that a TCP flow may be idle; none before it was read.
    pub tcp_idle_s: Option<u64>,
    /// What people should know, by name.
    pub findings: Vec<Told>,
    /// All targets of the group, ourselves included.
    pub peers: Vec<Peer>,
    /// What was asked of the cloud so far.
    pub calls: Vec<Asked>,
    /// At Azure each pool's tunnels.
    #[serde(default)]
    pub tunnels: Vec<Carried>,
}

/// A gateway's tunnels as the data plane has them, and as they should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// The gateway's name.
    pub gateway: String,
    /// `ipv4`, `ipv6`.
    pub family: String,
    /// In force.
    pub carried: Ends,
    /// As the cloud tells them; where nobody told, those in force.
    pub told: Ends,
    /// Who told: `imds`, `arm`, `kept` from before, or the `file`.
    pub by: String,
}

/// The two tunnels of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// Outer UDP destination port of the tunnel from and to the internet.
    pub external_port: u16,
    /// Its VNI.
    pub external_vni: u32,
    /// Outer UDP destination port of the tunnel from and to the application.
    pub internal_port: u16,
    /// Its VNI.
    pub internal_vni: u32,
}

/// On the way out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Leaving {
    /// Who wants it.
    pub why: String,
    /// Flows in the table.
    pub flows: u64,
    /// Seconds until the process ends at the latest.
    pub at_most_s: u64,
}

/// A finding that was told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Its name in metrics.
    pub name: String,
    /// What was found.
    pub text: String,
    /// What to do.
    pub remedy: String,
    /// How often.
    pub times: u64,
}

/// Something that people should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Its name in metrics and on the page that explains it.
    pub name: &'static str,
    /// What was found.
    pub text: String,
    /// What to do.
    pub remedy: String,
}

/// A target of our group, or in mode routes an instance of our cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Instance id or address.
    pub id: String,
    /// Its private address, where it is known.
    pub address: Option<std::net::IpAddr>,
    /// Its state; in mode routes the instance's, or `leading`.
    pub state: String,
    /// Its availability zone, where it is known.
    pub zone: String,
}

/// Questions of one kind that ended alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// By the cloud's name.
    pub operation: String,
    /// `ok`, `throttled`, `transient`, `conflict`, `denied`, `absent` or `invalid`.
    pub outcome: String,
    /// How many.
    pub times: u64,
}

impl Report {
    /// Sets what was asked of the cloud so far.
    pub fn asked(&mut self, counts: Counts) {
        let asked = |((operation, outcome), times): ((&str, &str), u64)| Asked {
            operation: operation.to_owned(),
            outcome: outcome.to_owned(),
            times,
        };
        self.calls = counts.into_iter().map(asked).collect();
    }

    /// Adds a finding, and logs it when it is new or says something new.
    pub fn found(&mut self, finding: Finding) {
        let Finding { name, text, remedy } = finding;
        let at = match self.findings.binary_search_by(|told| told.name.as_str().cmp(name)) {
            Ok(at) => at,
            Err(at) => {
                self.findings.insert(at, Told { name: name.to_owned(), ..Told::default() });
                at
            }
        };
        let told = &mut self.findings[at];
        if told.text != text {
            tracing::warn!("{}: {name}: {text}; {remedy}", self.cloud);
        }
        (told.text, told.remedy) = (text, remedy);
        told.times += 1;
    }

    /// Sets what is in the way, and logs it when it is new.
    pub fn trouble(&mut self, trouble: String) {
        if self.trouble != trouble {
            tracing::error!("{}: {trouble}", self.cloud);
        }
        self.trouble = trouble;
    }

    /// All of it in a line; empty without a cloud.
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
        if let Some(leaving) = &self.leaving {
            let Leaving { flows, at_most_s, .. } = leaving;
            line.push_str(&format!(", {flows} flows left, {at_most_s} s at most"));
        }
        if !self.trouble.is_empty() {
            line.push_str(&format!("; {}", self.trouble));
        }
        match self.findings.len() {
            0 => line,
            findings => format!("{line}; {findings} findings (weir cloud status)"),
        }
    }
}
