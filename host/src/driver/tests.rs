//! Compares the table with the installed DPDK, whose drivers describe themselves in their archives.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::*;

fn pkg_config(argument: &str) -> String {
    let out = Command::new("pkg-config").args([argument, "libdpdk"]).output().unwrap();
    assert!(out.status.success(), "DPDK is not installed (make setup): {out:?}");
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// Returns the descriptions of all drivers in the installed archives, by the driver's name.
fn installed() -> BTreeMap<String, Value> {
    let mut drivers = BTreeMap::new();
    for entry in std::fs::read_dir(pkg_config("--variable=libdir")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("librte_net_") && name.ends_with(".a") {
            drivers.extend(descriptions(&path));
        }
    }
    // Every DPDK has these drivers; one that was built for Weir has few others.
    for name in ["net_ena", "net_netvsc", "net_virtio", "net_null", "net_ring", "net_memif"] {
        assert!(drivers.contains_key(name), "{name} is not in {:?}", drivers.keys());
    }
    drivers
}

/// Parses the strings `PMD_INFO_STRING= {...}`, which end with a zero byte.
fn descriptions(archive: &Path) -> Vec<(String, Value)> {
    const MARK: &[u8] = b"PMD_INFO_STRING= ";
    let bytes = std::fs::read(archive).unwrap();
    let starts = bytes.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    let parse = |(start, _): (usize, &[u8])| {
        let text = bytes[start + MARK.len()..].split(|byte| *byte == 0).next()?;
        let value: Value = serde_json::from_slice(text).ok()?;
        Some((value["name"].as_str()?.to_owned(), value))
    };
    starts.filter_map(parse).collect()
}

fn pci_ids(description: &Value) -> Vec<PciId> {
    let id = |entry: &Value| PciId {
        vendor: entry[0].as_u64().unwrap() as u16,
        device: entry[1].as_u64().unwrap() as u16,
    };
    let mut ids: Vec<PciId> =
        description["pci_ids"].as_array().into_iter().flatten().map(id).collect();
    ids.sort();
    ids.dedup();
    ids
}

/// Returns the name under which the archive describes the driver.
fn archive_name(driver: &Driver) -> &str {
    if driver.name == "mlx5_pci" { "mlx5_eth" } else { driver.name }
}

#[test]
fn rows_agree_with_the_installed_drivers() {
    let version = pkg_config("--modversion");
    let mut parts = version.split('.').map(|part| part.parse::<u16>().unwrap());
    let version = Version(parts.next().unwrap(), parts.next().unwrap());
    let installed = installed();
    for driver in &DRIVERS {
        let name = archive_name(driver);
        let Some(description) = installed.get(name) else { continue };
        let (own, its) = (driver.recognition.pci.to_vec(), pci_ids(description));
        let missing: Vec<_> = own.iter().filter(|id| !its.contains(id)).collect();
        assert!(missing.is_empty(), "{name} does not accept {missing:?}");
        // A later version may accept more.
        if version == Version(22, 11) {
            assert_eq!(own, its, "{name}");
        }
        let modules = description["kmod"].as_str().unwrap_or_default();
        let mut modules: Vec<&str> =
            modules.trim_start_matches("* ").split([' ', '|', '&']).collect();
        modules.retain(|module| !module.is_empty());
        modules.sort_unstable();
        let mut expected: Vec<&str> = match driver.attachment {
            Attachment::Bifurcated(modules) => modules.to_vec(),
            Attachment::UserDriver(supports) => {
                supports.iter().map(|s| s.driver.as_str()).collect()
            }
            Attachment::Interface | Attachment::Virtual => Vec::new(),
        };
        expected.sort_unstable();
        assert_eq!(modules, expected, "{name}");
        if let Some(large) = driver.large_headers.at(version) {
            let parameters = description["params"].as_str().unwrap_or_default();
            let argument = large.argument.split('=').next().unwrap();
            assert!(parameters.contains(&format!("{argument}=")), "{name}: {parameters}");
        }
    }
}

#[test]
fn rows_are_complete_and_unambiguous() {
    let (mut names, mut ids, mut kernel) = (Vec::new(), Vec::<PciId>::new(), Vec::new());
    for driver in &DRIVERS {
        assert!(!driver.sources.is_empty() && !driver.title.is_empty(), "{}", driver.name);
        let recognition = driver.recognition;
        let is_hardware = recognition.vmbus || !recognition.pci.is_empty();
        let is_virtual = matches!(driver.attachment, Attachment::Interface | Attachment::Virtual);
        assert_ne!(is_hardware, is_virtual, "{}", driver.name);
        assert_eq!(is_hardware, !recognition.kernel_drivers.is_empty(), "{}", driver.name);
        let first = driver.max_mtu.at(Version(22, 11));
        assert!(first.is_some() && driver.rss.reta.at(Version(22, 11)).is_some());
        let in_order = |a: Version, b: Version| assert!(a < b, "{}", driver.name);
        driver.max_mtu.0.windows(2).for_each(|pair| in_order(pair[0].0, pair[1].0));
        driver.rss.reta.0.windows(2).for_each(|pair| in_order(pair[0].0, pair[1].0));
        driver.large_headers.0.windows(2).for_each(|pair| in_order(pair[0].0, pair[1].0));
        names.push(driver.name);
        ids.extend(recognition.pci.iter().chain(recognition.kernel_only));
        kernel.extend(recognition.kernel_drivers);
    }
    for (all, what) in [(&mut names, "name"), (&mut kernel, "kernel driver")] {
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "one {what} is in two rows");
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "one PCI id is in two rows");
}

#[test]
fn devices_are_recognized() {
    let of = |vendor, device| by_pci_id(PciId { vendor, device }).map(|driver| driver.name);
    assert_eq!(of(0x1d0f, 0xec20), Some("net_ena"));
    assert_eq!(of(0x1414, 0x00ba), Some("net_mana"));
    assert_eq!(of(0x15b3, 0x1016), Some("mlx5_pci"));
    assert_eq!(of(0x1af4, 0x1041), Some("net_virtio"));
    assert_eq!(of(0x15ad, 0x07b0), Some("net_vmxnet3"));
    assert_eq!(of(0x8086, 0x10d3), Some("net_e1000_em"));
    assert_eq!(of(0x14e4, 0x16d7), None);
    // The physical function of ENA is one of the kernel's driver only.
    let id = PciId { vendor: 0x1d0f, device: 0x1ec2 };
    assert!(by_pci_id(id).is_some_and(|driver| driver.name == "net_ena" && !driver.accepts(id)));
    assert_eq!(by_name("net_af_packet0").map(|driver| driver.name), Some("net_af_packet"));
    assert_eq!(by_name("mlx5_pci").map(|driver| driver.name), Some("mlx5_pci"));
    assert_eq!(by_name("net_bond0"), None);
    assert!(netvsc().recognition.vmbus);
}

#[test]
fn facts_depend_on_the_version_of_dpdk() {
    let mana = by_name("net_mana").unwrap();
    assert_eq!(mana.max_mtu.at(Version(22, 11)), Some(&Limit::Fixed(1500)));
    assert_eq!(mana.max_mtu.at(Version(24, 11)), Some(&Limit::Fixed(9000)));
    assert_eq!(mana.max_mtu.at(Version(21, 11)), None);
    let ena = by_name("net_ena").unwrap();
    let argument = |version| ena.large_headers.at(version).map(|large| large.argument);
    assert_eq!(argument(Version(24, 7)), Some("large_llq_hdr=1"));
    assert_eq!(argument(Version(24, 11)), Some("llq_policy=3"));
    assert_eq!(Version(24, 3).to_string(), "24.03");
    assert_eq!(Version(6, 2).to_string(), "6.2");
}
