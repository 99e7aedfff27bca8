//! Examines the machine against a configuration. Findings name what prevents Weir from working or
//! makes it slower or risky, and the command that corrects it.
//!
//! Nothing is changed. A check that cannot run on this machine is reported as not checked, never as
//! passed.

mod configuration;
mod context;
mod cpus;
mod devices;
mod finding;
mod firewall;
mod memory;
mod mtu;
mod network;
mod ports;
mod programs;
mod time;
mod xdp;

use serde::Serialize;

use config::checked::Plane;

pub use context::Context;
pub use finding::{Finding, Severity};

use crate::plane::{Decision, decide, observe};

/// The result of an examination.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// The configured plane.
    pub configured: Plane,
    /// The plane that would be selected automatically, with the reasons.
    pub automatic: Decision,
    /// What was found, the most severe first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns the number of findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

/// Runs all checks.
pub fn examine(context: &Context<'_>) -> Report {
    let checks = [
        configuration::check,
        devices::check,
        memory::check,
        mtu::check,
        cpus::check,
        xdp::check,
        network::check,
        firewall::check,
        ports::check,
        time::check,
        programs::check,
    ];
    let mut findings: Vec<Finding> = checks.iter().flat_map(|check| check(context)).collect();
    // Findings of one severity stay in the order of the checks.
    findings.sort_by_key(|finding| finding.severity);
    let Context { root, config, inventory, dpdk, .. } = context;
    let automatic = decide(&observe(root, config, inventory, dpdk.clone()));
    Report { configured: config.plane, automatic, findings }
}

#[cfg(test)]
mod tests;
