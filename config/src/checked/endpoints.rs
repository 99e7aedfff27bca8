//! Where others ask: probes, Prometheus, the command and the API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Prefix, Probing};

/// `[health]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Where HTTP probes are answered; there is one here or in `tcp`.
    pub listen: Vec<SocketAddr>,
    /// Where TCP probes are answered: listened on only while able.
    pub tcp: Vec<SocketAddr>,
    /// How old the control loop's heartbeat may be: 1 s to 300 s.
    pub stall_timeout: Duration,
    /// Networks that probe this appliance, as configured for that alone.
    pub reserved_sources: Vec<Prefix>,
    /// How backends are probed.
    pub probing: Probing,
}

/// `[metrics]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// Where Prometheus scrapes.
    pub listen: SocketAddr,
}

/// `[control]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Control {
    /// The unix socket of `weir status` and its siblings.
    pub socket: PathBuf,
    /// The group that may use it beside root.
    pub group: Option<String>,
    /// The folder where objects are kept; none where they are not.
    pub state: Option<PathBuf>,
    /// Share of a source's objects that its complete list may remove unconfirmed, 0 to 100.
    pub max_removal_percent: u8,
}

#[cfg(test)]
mod tests {

    /// The networks of an example with one more.
    fn networks(example: &str) -> Vec<String> {
        let config = format!("{example}\n[health]\nreserved_sources = \"192.0.2.0/24\"\n");
        let config = crate::from_toml(&config).unwrap();
        config.probe_networks().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn clouds_probe_from_their_gateways_nodes_and_azure_from_its_own_address() {
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
