//! The arms' NICs, and the files that contain their NUMA nodes.

use config::Config;
use config::checked::{Device, DeviceName};

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
    let file = |device: &Device| {
        Some(match device.name() {
            DeviceName::Bus(address) => format!("{}/numa_node", address.directory()),
            DeviceName::Mac(_) | DeviceName::Vdev(_) | DeviceName::Interface(_) => {
                format!("sys/class/net/{}/device/numa_node", device.interface()?)
            }
        })
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
