//! The arms' devices: checks that they exist, and passes them to DPDK.

use config::Config;
use config::checked::Device;
use std::path::Path;

/// DPDK drivers that use an interface of the kernel, given by `iface=`.
const INTERFACE_DRIVERS: [&str; 3] = ["net_af_packet", "net_af_xdp", "net_pcap"];

/// Checks that the arms' devices exist, as far as possible before DPDK starts, whose own error only
/// names a missing port.
pub(super) fn check(config: &Config) -> Result<(), String> {
    let interfaces = interfaces(&std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default());
    for (name, arm) in config.arms() {
        let error = match &arm.device {
            Device::Pci(address) => missing_pci_device(address, Path::new("/sys/bus/pci/devices")),
            Device::Vdev(device) => missing_interface(device, &interfaces),
            // The configuration accepts it for plane xdp only.
            Device::Interface(_) => None,
        };
        if let Some(error) = error {
            return Err(format!("{}.device = \"{}\": {error}", name.as_str(), arm.device.as_str()));
        }
    }
    Ok(())
}

/// Returns the interface names in `/proc/self/net/dev`, which are those of this process's
/// namespace.
fn interfaces(text: &str) -> Vec<String> {
    let names = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Returns an error text if a virtual device needs an interface of the kernel that is not named, or
/// not `present`.
fn missing_interface(device: &str, present: &[String]) -> Option<String> {
    let mut parts = device.split(',');
    let driver = parts.next()?.trim_end_matches(|c: char| c.is_ascii_digit());
    let required = parts.find_map(|part| part.strip_prefix("iface="));
    if !INTERFACE_DRIVERS.contains(&driver) || present.is_empty() {
        return None;
    }
    let present_text = format!("existing interfaces: {}", present.join(", "));
    match required {
        None if driver == "net_pcap" => None,
        None => {
            Some(format!("the driver requires an interface: {device},iface=eth1; {present_text}"))
        }
        Some(required) if present.iter().any(|name| name == required) => None,
        Some(required) => Some(format!("interface {required} does not exist; {present_text}")),
    }
}

/// Returns an error text if no device in the folder `pci_devices` has this address.
fn missing_pci_device(address: &str, pci_devices: &Path) -> Option<String> {
    let exists = |name: &str| pci_devices.join(name).exists();
    let found = !pci_devices.exists() || exists(address) || exists(&format!("0000:{address}"));
    (!found).then(|| {
        "no PCI device has this address; `dpdk-devbind.py --status` lists the existing ones"
            .to_owned()
    })
}

/// Returns the configured devices with their keys, for an error message.
pub(super) fn describe(config: &Config) -> String {
    let arms = config.arms();
    let each =
        arms.map(|(name, arm)| format!("{}.device = \"{}\"", name.as_str(), arm.device.as_str()));
    each.collect::<Vec<_>>().join(" and ")
}

/// Returns the command line of DPDK's EAL, which allocates memory on NUMA node `numa_node` if
/// given.
pub(super) fn eal_arguments(config: &Config, numa_node: Option<u32>) -> Vec<String> {
    let fastpath = &config.fastpath;
    // Each lcore is numbered like its CPU, except the main lcore if a polling lcore uses its CPU.
    let polls = |number: &u16| fastpath.lcores.contains(number);
    let mut numbers = std::iter::once(fastpath.main_core).chain(0..);
    let main = numbers.find(|number| !polls(number)).unwrap_or(fastpath.main_core);
    let mut cores = vec![format!("{main}@{}", fastpath.main_core)];
    cores.extend(fastpath.lcores.iter().map(|cpu| format!("{cpu}@{cpu}")));
    let mut arguments = vec![
        "--lcores".to_owned(),
        cores.join(","),
        "--main-lcore".to_owned(),
        main.to_string(),
        "--file-prefix".to_owned(),
        format!("weir-{}", std::process::id()),
        "--no-telemetry".to_owned(),
        "--log-level=lib.*:notice".to_owned(),
    ];
    let mib = fastpath.memory_mib.to_string();
    match numa_node.filter(|_| fastpath.hugepages) {
        // MiB per node, from node 0 on.
        Some(numa_node) => {
            arguments.push(format!("--socket-mem={}{mib}", "0,".repeat(numa_node as usize)))
        }
        None => arguments.extend(["-m".to_owned(), mib]),
    }
    if fastpath.hugepages {
        arguments.push("--in-memory".to_owned());
    } else {
        arguments.extend(["--no-huge".to_owned(), "--no-shconf".to_owned()]);
    }
    let mut pci = false;
    for (_, arm) in config.arms() {
        match &arm.device {
            Device::Pci(address) => {
                pci = true;
                arguments.extend(["-a".to_owned(), address.clone()]);
            }
            Device::Vdev(device) => arguments.push(format!("--vdev={device}")),
            Device::Interface(_) => {}
        }
    }
    if !pci {
        arguments.push("--no-pci".to_owned());
    }
    arguments.extend(fastpath.eal.iter().cloned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "Inter-|   Receive\n face |bytes\n    lo: 1 2\n  eth1:3 4\n";

    #[test]
    fn missing_interface_is_reported_with_the_existing_ones() {
        let present = interfaces(DEV);
        assert_eq!(present, ["lo", "eth1"]);
        let error = |device: &str| missing_interface(device, &present).unwrap_or_default();
        assert_eq!(error("net_af_packet0,iface=eth1,blocksz=4096"), "");
        assert_eq!(error("net_tap0,iface=new0"), "", "this driver creates its interface");
        assert_eq!(error("net_pcap0,rx_pcap=a.pcap"), "");
        let text = error("net_af_packet0,framesz=2048,iface=eth9");
        assert!(text.contains("eth9 does not exist") && text.contains("lo, eth1"), "{text}");
        assert!(error("net_af_xdp0").contains("net_af_xdp0,iface=eth1"));
    }

    #[test]
    fn memory_is_allocated_on_the_numa_node_of_the_nics() {
        let config = |more: &str| {
            let arm = "[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"";
            config::from_toml(&format!("[fastpath]\nlcores = [1]\n{more}\n{arm}")).unwrap()
        };
        let has = |more: &str, numa_node, expected: &[&str]| {
            let arguments = eal_arguments(&config(more), numa_node);
            arguments.windows(expected.len()).any(|run| run == expected)
        };
        assert!(has("memory_mib = 500", Some(0), &["--socket-mem=500"]));
        assert!(has("memory_mib = 500", Some(2), &["--socket-mem=0,0,500"]));
        assert!(!has("memory_mib = 500", Some(2), &["-m"]));
        assert!(has("memory_mib = 500", None, &["-m", "500"]));
        assert!(has("memory_mib = 500\nhugepages = false", Some(1), &["-m", "500"]));
    }

    #[test]
    fn missing_pci_device_is_reported() {
        let all = std::env::temp_dir().join(format!("weir-cards-{}", std::process::id()));
        std::fs::create_dir_all(all.join("0000:00:06.0")).unwrap();
        let addresses = ["0000:00:06.0", "00:06.0", "0000:99:00.0"];
        let error = addresses.map(|address| missing_pci_device(address, &all));
        std::fs::remove_dir_all(&all).unwrap();
        assert_eq!((&error[0], &error[1]), (&None, &None));
        assert!(
            error[2].as_ref().is_some_and(|text| text.contains("dpdk-devbind.py")),
            "{error:?}"
        );
        assert_eq!(missing_pci_device("00:06.0", &all), None, "no error on a machine without PCI");
    }
}
