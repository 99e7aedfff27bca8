//! Settings that AWS or Azure reports and that override the configuration file.

use std::collections::BTreeMap;
use std::time::Duration;

use config::checked::{Config, VxlanEnd};

/// Ports and VNIs of a gateway's two tunnels: external, internal.
pub type Ends = (VxlanEnd, VxlanEnd);

/// Reported settings that differ from the configuration file; empty if none differs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Followed {
    /// The gateway's idle timeout of TCP flows.
    pub tcp_idle: Option<Duration>,
    /// Tunnel ends by name of the gateway.
    pub tunnels: BTreeMap<String, Ends>,
}

impl Followed {
    /// Applies the settings to a configuration.
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
