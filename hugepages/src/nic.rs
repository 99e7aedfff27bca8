//! The arms' NICs, and the files that contain their NUMA nodes.

use config::Config;
use config::checked::Device;

/// An arm's NIC, if its NUMA node can be determined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nic {
    /// Configuration key that names the NIC.
    pub key: &'static str,
    /// Configured device.
    pub device: String,
    /// The file below `/` that contains the NIC's node.
    pub(crate) file: String,
}

/// Returns the arms' NICs. Virtual devices without a kernel interface have no node.
pub(crate) fn nics(config: &Config) -> Vec<Nic> {
    let file = |device: &Device| match device {
        Device::Pci(address) => {
            let address = address.split(',').next().unwrap_or_default().to_lowercase();
            let domain = if address.matches(':').count() == 1 { "0000:" } else { "" };
            Some(format!("sys/bus/pci/devices/{domain}{address}/numa_node"))
        }
        other => other.interface().map(|name| format!("sys/class/net/{name}/device/numa_node")),
    };
    let nics = config.arms().filter_map(|(name, arm)| {
        let key = match name {
            config::checked::ArmName::Ingress => "ingress.device",
            config::checked::ArmName::Egress => "egress.device",
        };
        Some(Nic { key, device: arm.device.as_str().to_owned(), file: file(&arm.device)? })
    });
    nics.collect()
}
