//! The appliance as its cloud's lifecycle sees it.

use std::net::IpAddr;
use std::time::Duration;

use crate::report::Report;

/// The ingress port as the cloud has to know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ingress {
    /// Its link address.
    pub mac: [u8; 6],
    /// Our addresses on it, the preferred first.
    pub addresses: Vec<IpAddr>,
}

/// What is asked of the appliance, and told to it. Nothing of it may block.
pub trait Appliance: Send + Sync {
    /// Whether it could take traffic, and if not, why.
    fn able(&self) -> Result<(), Vec<String>>;
    /// Flows in the table, and packets forwarded so far.
    fn activity(&self) -> (u64, u64);
    /// Packets dropped so far because their tunnel is unknown: by its VNI, or by its port.
    fn strange(&self) -> u64 {
        0
    }
    /// The ingress port; none before it is there.
    fn ingress(&self) -> Option<Ingress>;
    /// Why probes are to be told that no new traffic is wanted; nothing where its own ability
    /// counts.
    fn hold_back(&self, reasons: Vec<String>);
    /// The gateway forgets idle TCP flows after so long.
    fn tcp_idle(&self, idle: Duration);
    /// What people are told from now on.
    fn publish(&self, report: Report);
}
