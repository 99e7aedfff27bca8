//! What a gateway says of itself, through its cloud, and the configuration file says otherwise.

use std::collections::BTreeMap;
use std::time::Duration;

use config::checked::{Config, VxlanEnd};

/// Ports and VNIs of a gateway's two tunnels, external and internal.
pub type Ends = (VxlanEnd, VxlanEnd);

/// All of it; nothing where the file is right.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Followed {
    /// How long the gateway remembers an idle TCP flow.
    pub tcp_idle: Option<Duration>,
    /// Tunnels by the gateway's name.
    pub tunnels: BTreeMap<String, Ends>,
}

impl Followed {
    /// Puts it into a configuration, as if the file had said so.
    pub fn put_into(&self, config: &mut Config) {
        if let Some(idle) = self.tcp_idle {
            config.flows.tcp_established_s = u32::try_from(idle.as_secs()).unwrap_or(u32::MAX);
        }
        for gateway in &mut config.gateways {
            if let Some((external, internal)) = self.tunnels.get(&gateway.name) {
                gateway.carry(*external, *internal);
            }
        }
    }
}
