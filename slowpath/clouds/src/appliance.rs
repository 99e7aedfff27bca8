//! The interface through which a cloud lifecycle reads and controls the appliance.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::report::Report;

/// The ingress port, as needed to find its network interface at the cloud.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ingress {
    /// MAC address of the port.
    pub mac: [u8; 6],
    /// The appliance's own addresses on the port, in order of preference.
    pub addresses: Vec<IpAddr>,
}

/// Writes the MAC address, then the addresses, separated by spaces. The state file contains this
/// text in its search criteria, so a change of the format makes existing state files unusable.
impl fmt::Display for Ingress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mac.map(|byte| format!("{byte:02x}")).join(":"))?;
        self.addresses.iter().try_for_each(|address| write!(f, " {address}"))
    }
}

/// The appliance, as a cloud lifecycle reads and controls it. No method may block.
pub trait Appliance: Send + Sync {
    /// Returns `Ok` if the appliance can take new traffic, else the reasons why it cannot.
    fn able(&self) -> Result<(), Vec<String>>;
    /// Returns the number of flows that a drain has to wait for (reset connections do not count),
    /// and the number of packets forwarded since start (those that the kernel sent do not count).
    fn activity(&self) -> (u64, u64);
    /// Returns the number of packets dropped since start because their VNI or UDP port belongs to
    /// no tunnel.
    fn unknown_tunnel(&self) -> u64 {
        0
    }
    /// Returns the ingress port; `None` until the port exists.
    fn ingress(&self) -> Option<Ingress>;
    /// Sets the reasons for which health probes fail. Without reasons, probes pass if the appliance
    /// is able.
    fn set_probe_failures(&self, reasons: Vec<String>);
    /// Sets the data plane's idle timeout of TCP flows to `idle`, the gateway's.
    fn set_tcp_idle(&self, idle: Duration);
    /// Publishes the report for the API, `weir cloud status` and the metrics.
    fn publish(&self, report: Report);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ingress_is_written_as_mac_and_addresses() {
        let addresses = vec!["10.0.0.4".parse().unwrap(), "fd00::4".parse().unwrap()];
        let ingress = Ingress { mac: [2, 0, 10, 0, 1, 255], addresses };
        assert_eq!(ingress.to_string(), "02:00:0a:00:01:ff 10.0.0.4 fd00::4");
    }
}
