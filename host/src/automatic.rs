//! The values that a configuration leaves to the machine: addresses, routers and MTU of an arm,
//! from the metadata of the cloud or from the kernel.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use config::automatic::{ArmValues, Values};
use config::checked::{ArmName, Device, Interface, Prefix};

use crate::address::MacAddress;
use crate::arm_device::{Found, arm_device};
use crate::nic::{self, Inventory, Nic};
use crate::{Root, file};

/// An interface as the metadata of a cloud describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CloudInterface {
    /// MAC address.
    pub mac: MacAddress,
    /// Addresses, the primary one first.
    pub addresses: Vec<IpAddr>,
    /// Networks of its subnet.
    pub subnets: Vec<Prefix>,
}

/// The metadata of a cloud.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CloudMetadata {
    /// Name of the cloud, for messages.
    pub cloud: &'static str,
    /// The interfaces of this machine.
    pub interfaces: Vec<CloudInterface>,
}

/// Why an arm's values are unknown, with the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{arm}: {fault}; {remedy}", arm = arm.as_str())]
pub struct NoValues {
    arm: ArmName,
    fault: String,
    remedy: &'static str,
    /// What is missing, which decides whether waiting can help.
    pub missing: Missing,
}

/// What is missing for the values of an arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// A usable configuration: only a change of the file helps.
    Configuration,
    /// The device: it may appear as long as the machine looks for devices
    /// ([`is_looking_for_devices`]).
    Device,
    /// An address of the device, which DHCP or the cloud may assign at any time.
    Address,
}

/// The file that exists while udev has device events to handle.
const UDEV_QUEUE: &str = "run/udev/queue";

/// Returns true while udev has device events to handle: after a boot until all drivers are loaded.
pub fn is_looking_for_devices(root: &Root) -> bool {
    root.exists(UDEV_QUEUE)
}

/// Prefix length assumed for an IPv6 address of which neither the metadata nor the kernel gives
/// one. Azure allows no other for subnets; AWS, whose metadata names the subnet, also allows
/// shorter ones.
const CLOUD_V6_LENGTH: u8 = 64;

/// Returns the values of an arm whose configured device is `text`. Addresses are those of the
/// cloud's metadata if it describes the NIC, otherwise the kernel's. `saved` has the values of an
/// earlier call: they are returned if they are of the same device and the source has no address,
/// for example because the NIC is bound for DPDK.
///
/// # Errors
/// Fails if `text` names no device or a virtual device without a kernel interface, or if there is
/// no address.
pub fn arm_values(
    (arm, text): (ArmName, &str),
    inventory: &Inventory,
    cloud: Option<&CloudMetadata>,
    saved: Option<&ArmValues>,
) -> Result<ArmValues, NoValues> {
    let fail = |missing, fault: String, remedy| NoValues { arm, fault, remedy, missing };
    let device = Device::parse(text).map_err(|error| {
        let fault = format!("device \"{text}\": {}", error.fault);
        fail(Missing::Configuration, fault, "correct the key device")
    })?;
    let found = arm_device(arm, &device, inventory);
    let (nic, interface) = match found.found {
        Found::Nic(nic) => (Some(nic), found.interface()),
        Found::Virtual { interface: Some(name), .. } => (None, Some(name)),
        Found::Virtual { interface: None, .. } => {
            let fault = format!("device \"{text}\" has no interface of the kernel");
            let remedy = "write the addresses into the configuration";
            return Err(fail(Missing::Configuration, fault, remedy));
        }
        Found::Nothing(fault) => {
            let remedy = "correct the key device, or attach the device";
            return Err(fail(Missing::Device, fault, remedy));
        }
    };
    let all = || inventory.nics.iter().flat_map(|nic| &nic.interfaces);
    let interface = interface.and_then(|name| all().find(|one| one.name == name));
    // On Azure the addresses are on the synthetic NIC, of which the virtual function is a member.
    let upper = interface.and_then(|one| one.master.as_deref());
    let upper = upper.and_then(|name| all().find(|one| one.name == name));
    let kernel = [interface, upper].into_iter().flatten().collect::<Vec<_>>();
    let macs = match interface.and_then(|one| one.mac) {
        Some(mac) => vec![mac],
        None => nic.map(Nic::macs).unwrap_or_default(),
    };
    let of_cloud = cloud.and_then(|cloud| {
        Some((cloud.cloud, cloud.interfaces.iter().find(|one| macs.contains(&one.mac))?))
    });
    let (source, addresses) = match of_cloud {
        Some((cloud, metadata)) => {
            (format!("the metadata of {cloud}"), cloud_addresses(metadata, &kernel))
        }
        None => ("the kernel".to_owned(), kernel_addresses(&kernel)),
    };
    let is_saved = |saved: &&ArmValues| saved.device == text;
    if let (true, Some(saved)) = (addresses.is_empty(), saved.filter(is_saved)) {
        return Ok(saved.clone());
    }
    if addresses.is_empty() {
        let fault = match cloud {
            Some(cloud) => format!(
                "neither the metadata of {} nor the kernel has an address of device \"{text}\"",
                cloud.cloud
            ),
            None => format!("the kernel has no address on device \"{text}\""),
        };
        let remedy = "give the interface an address (DHCP, netplan) before its NIC is bound for \
                      DPDK, or write it into the configuration";
        return Err(fail(Missing::Address, fault, remedy));
    }
    let of_saved = saved.filter(is_saved).and_then(|saved| saved.mtu);
    Ok(ArmValues {
        device: text.to_owned(),
        source,
        gateway: routers(&addresses, &kernel, of_cloud.map(|(_, metadata)| metadata)),
        address: addresses.iter().map(ToString::to_string).collect(),
        mtu: interface.and_then(|one| one.mtu).or(of_saved),
    })
}

/// Writes the values to the file `auto_values`.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn save(path: &Path, values: &Values) -> Result<(), SaveError> {
    let text = values.to_toml().map_err(io::Error::other);
    let saved = text.and_then(|text| file::replace(path, &text));
    saved.map_err(|source| SaveError { path: path.to_owned(), source })
}

/// The file `auto_values` could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {} (key auto_values): {source}{}", path.display(), remedy(source))]
pub struct SaveError {
    path: PathBuf,
    source: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run the command as root",
        _ => "",
    }
}

fn kernel_addresses(interfaces: &[&nic::Interface]) -> Vec<Interface> {
    let all = interfaces.iter().flat_map(|interface| &interface.addresses);
    let routable = all.filter(|one| !is_link_local(one.address));
    routable.map(|one| Interface { addr: one.address, len: one.length }).collect()
}

/// Returns the addresses of the metadata, each with its prefix length: that of the subnet that
/// contains it, otherwise the kernel's for the same address (unless it is /128), otherwise
/// [`CLOUD_V6_LENGTH`]. An IPv4 address without a prefix length is left out.
fn cloud_addresses(metadata: &CloudInterface, kernel: &[&nic::Interface]) -> Vec<Interface> {
    let of_kernel = kernel_addresses(kernel);
    let length = |addr: IpAddr| {
        let subnet = metadata.subnets.iter().find(|subnet| subnet.contains(addr));
        let kernel = || of_kernel.iter().find(|one| one.addr == addr && one.len < 128);
        subnet
            .map(|subnet| subnet.len)
            .or_else(|| kernel().map(|one| one.len))
            .or(addr.is_ipv6().then_some(CLOUD_V6_LENGTH))
    };
    let addresses = metadata.addresses.iter();
    addresses.filter_map(|addr| Some(Interface { addr: *addr, len: length(*addr)? })).collect()
}

/// Returns the routers of the arm, at most one of each family, that an address of the arm reaches
/// directly: the gateway of the kernel's default route, or else, for IPv4, the address after the
/// network address of the cloud's subnet, which AWS and Azure reserve for their router.
fn routers(
    addresses: &[Interface],
    kernel: &[&nic::Interface],
    metadata: Option<&CloudInterface>,
) -> Vec<String> {
    let on_link = |router: &IpAddr| {
        let own = addresses.iter().any(|one| one.addr == *router);
        !own && addresses.iter().any(|one| one.network().contains(*router))
    };
    let routes = kernel.iter().flat_map(|interface| &interface.default_routes);
    let of_kernel: Vec<IpAddr> = routes.filter_map(|route| route.gateway).collect();
    let of_cloud = metadata.into_iter().flat_map(|metadata| &metadata.subnets).filter_map(|net| {
        let IpAddr::V4(first) = net.addr else { return None };
        Some(IpAddr::V4(Ipv4Addr::from(u32::from(first).checked_add(1)?)))
    });
    let all: Vec<IpAddr> = of_kernel.into_iter().chain(of_cloud).filter(on_link).collect();
    let first = |v6: bool| all.iter().find(|router| router.is_ipv6() == v6);
    [false, true].into_iter().filter_map(first).map(IpAddr::to_string).collect()
}

fn is_link_local(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::fake::Fake;

    const INGRESS: ArmName = ArmName::Ingress;

    fn metadata(mac: &str, addresses: &[&str], subnets: &[(&str, u8)]) -> CloudMetadata {
        let subnets = subnets.iter();
        CloudMetadata {
            cloud: "AWS",
            interfaces: vec![CloudInterface {
                mac: mac.parse().unwrap(),
                addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
                subnets: subnets
                    .map(|(addr, len)| Prefix { addr: addr.parse().unwrap(), len: *len })
                    .collect(),
            }],
        }
    }

    #[test]
    fn addresses_router_and_mtu_come_from_the_kernel_without_a_cloud() {
        let mut machine = Fake::aws();
        machine.address("ens5", "fe80::5", 64);
        machine.address("ens5", "fd00:5::5", 64);
        machine.default_route("ens5", "fe80::1");
        let values = arm_values((INGRESS, "ens5"), &machine.inventory(), None, None).unwrap();
        assert_eq!(
            values,
            ArmValues {
                device: "ens5".to_owned(),
                source: "the kernel".to_owned(),
                address: vec!["10.0.0.5/24".to_owned(), "fd00:5::5/64".to_owned()],
                gateway: vec!["10.0.0.1".to_owned()],
                mtu: Some(1500),
            }
        );
        let vdev = "net_af_packet0,iface=ens6";
        let values = arm_values((INGRESS, vdev), &machine.inventory(), None, None).unwrap();
        assert_eq!(values.address, ["10.0.1.10/24"]);
    }

    #[test]
    fn metadata_precedes_the_kernel_and_the_first_subnet_address_is_the_router() {
        let machine = Fake::aws();
        let cloud = metadata(
            "02:00:00:00:00:06",
            &["10.0.1.10", "10.0.1.77", "fd00:1::10"],
            &[("10.0.0.0", 23)],
        );
        let inventory = machine.inventory();
        let device = (INGRESS, "0000:00:06.0,large_llq_hdr=1");
        let values = arm_values(device, &inventory, Some(&cloud), None).unwrap();
        assert_eq!(values.address, ["10.0.1.10/23", "10.0.1.77/23", "fd00:1::10/64"]);
        assert_eq!((values.gateway, values.mtu), (vec!["10.0.0.1".to_owned()], Some(1500)));
        assert_eq!(values.source, "the metadata of AWS");
        // The metadata does not describe this NIC.
        let values = arm_values((INGRESS, "ens5"), &inventory, Some(&cloud), None).unwrap();
        assert_eq!(values.source, "the kernel");
    }

    #[test]
    fn addresses_of_a_virtual_function_are_those_of_its_synthetic_nic() {
        let machine = Fake::azure("1414:00ba", "mana");
        let device = (INGRESS, "0002:00:02.0");
        let values = arm_values(device, &machine.inventory(), None, None).unwrap();
        assert_eq!(values.address, ["10.1.2.4/24"]);
    }

    #[test]
    fn saved_values_replace_missing_addresses_of_the_same_device_only() {
        let machine = Fake::new();
        let _ = machine.pci("0000:00:06.0", "1d0f:ec20", "vfio-pci");
        let (inventory, device) = (machine.inventory(), (INGRESS, "0000:00:06.0"));
        let error = arm_values(device, &inventory, None, None).unwrap_err();
        assert_eq!(error.missing, Missing::Address);
        let error = error.to_string();
        assert!(error.starts_with("ingress: the kernel has no address on device"), "{error}");
        let saved = ArmValues {
            device: "0000:00:06.0".to_owned(),
            address: vec!["10.0.1.10/24".to_owned()],
            mtu: Some(9001),
            ..ArmValues::default()
        };
        assert_eq!(arm_values(device, &inventory, None, Some(&saved)), Ok(saved.clone()));
        let other = ArmValues { device: "eth1".to_owned(), ..saved };
        assert!(arm_values(device, &inventory, None, Some(&other)).is_err());
        let error = arm_values((INGRESS, "net_null0"), &inventory, None, None).unwrap_err();
        assert!(error.to_string().contains("has no interface of the kernel"), "{error}");
        assert_eq!(error.missing, Missing::Configuration);
        let error = arm_values((INGRESS, "a b"), &inventory, None, None).unwrap_err();
        assert_eq!(error.missing, Missing::Configuration, "{error}");
        let error = arm_values((INGRESS, "eth9"), &inventory, None, None).unwrap_err();
        assert!(error.to_string().contains("eth9"), "{error}");
        assert_eq!(error.missing, Missing::Device);
    }
}
