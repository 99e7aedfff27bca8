//! Endpoints of the appliance, validated: health, metrics and the control socket.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Prefix, Probing, Tls};

/// The `[health]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Addresses for HTTP probes. `listen` and `tcp` together have at least one address.
    pub listen: Vec<SocketAddr>,
    /// Addresses for TCP probes, listened on only while the appliance is able to serve.
    pub tcp: Vec<SocketAddr>,
    /// Maximum age of the control loop's heartbeat, 1 s to 300 s. With an older one the appliance
    /// counts as unable to serve.
    pub stall_timeout: Duration,
    /// Networks that probe this appliance, in addition to gateways and clouds.
    pub reserved_sources: Vec<Prefix>,
    /// Health checks of backends.
    pub probing: Probing,
}

/// The `[metrics]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// Addresses of the Prometheus endpoint; empty for none.
    pub listen: Vec<SocketAddr>,
    /// TLS certificate; `None` for no TLS.
    pub tls: Option<Tls>,
    /// Whether a token of the API is required.
    pub token: bool,
}

/// The `[control]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Control {
    /// The Unix socket of the `weir` command.
    pub socket: PathBuf,
    /// Unix group that may use the socket besides its owner. The default, `weir-admin`, applies
    /// only if the machine has that group.
    pub group: Option<String>,
    /// Group whose members have the role `operate`.
    pub operate_group: Option<String>,
    /// Group whose members have the role `read`.
    pub read_group: Option<String>,
    /// Directory of persisted objects; `None` if they are not persisted.
    pub state: Option<PathBuf>,
    /// Maximum share of a source's objects, in percent, that a complete list may remove without
    /// confirmation, 0 to 100.
    pub max_removal_percent: u8,
}

#[cfg(test)]
mod tests {
    /// Returns the probe networks of an example configuration with one reserved source added.
    fn networks(example: &str) -> Vec<String> {
        let config = format!("{example}\n[health]\nreserved_sources = \"192.0.2.0/24\"\n");
        let config = crate::from_toml(&config).unwrap();
        config.probe_networks().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn probe_networks_are_gateway_nodes_azures_probes_and_reserved_sources() {
        let gateway = |kind: &str| {
            format!(
                "name = \"t\"\n[fastpath]\nlcores = [1]\n[ingress]\ndevice = \"net_null0\"\n\
                 address = [\"10.0.1.11/24\"]\nmtu = 9001\n[nat]\naddresses = [\"10.0.1.11\"]\n\
                 [[gateway]]\nname = \"g\"\nkind = \"{kind}\"\nsources = [\"10.0.1.0/26\"]\n"
            )
        };
        assert_eq!(networks(&gateway("aws")), ["10.0.1.0/26", "192.0.2.0/24"]);
        assert_eq!(
            networks(&gateway("azure")),
            ["10.0.1.0/26", "168.63.129.16/32", "192.0.2.0/24", "fe80::1234:5678:9abc/128"]
        );
    }
}
