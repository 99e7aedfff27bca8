//! Settings that AWS or Azure reports and that override the configuration file.

use std::collections::BTreeMap;
use std::time::Duration;

use config::checked::{Config, VxlanEnd};

/// Ports and VNIs of the two VXLAN tunnels of an Azure gateway, external and internal.
pub type Ends = (VxlanEnd, VxlanEnd);

/// Settings that the cloud has reported; empty before the first report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Followed {
    /// The idle timeout after which the gateway forgets a TCP flow.
    pub tcp_idle: Option<Duration>,
    /// Ports and VNIs by name of the gateway.
    pub tunnels: BTreeMap<String, Ends>,
}

impl Followed {
    /// Overwrites the values of a configuration with the reported ones.
    pub fn put_into(&self, config: &mut Config) {
        if let Some(idle) = self.tcp_idle {
            config.flows.tcp_established_s = u32::try_from(idle.as_secs()).unwrap_or(u32::MAX);
        }
        for gateway in &mut config.gateways {
            if let Some((external, internal)) = self.tunnels.get(&gateway.name) {
                gateway.set_vxlan_ends(*external, *internal);
            }
        }
    }
}
