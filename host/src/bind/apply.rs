//! Applies plans: writes to sysfs, and checks which driver the kernel bound.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use super::error::BindError;
use super::plan::{Action, Plan, Write};
use super::record::Records;
use crate::Root;
use crate::address::BusAddress;
use crate::driver::UserDriver;
use crate::nic::Inventory;

/// How files of the kernel are written.
pub trait Sysfs {
    /// Writes a text to an existing file, in one system call.
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()>;
}

/// Writes to the files of the running kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemFiles;

impl Sysfs for SystemFiles {
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        // The file is not created: a missing one is an error.
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(text.as_bytes())
    }
}

/// Applies a plan. On failure, the device is returned to its former driver as far as possible.
/// `inventory` is the one from which the plan was made.
pub fn apply(
    root: &Root,
    inventory: &Inventory,
    records: &Records,
    plan: &Plan,
    sysfs: &mut impl Sysfs,
) -> Result<(), BindError> {
    let device = plan.device;
    match &plan.action {
        Action::Nothing(_) => Ok(()),
        Action::Bind { driver, writes, record } => {
            // A record from an earlier binding is kept: it names the driver of the kernel.
            let rebinds = record.kernel_driver.as_deref().is_some_and(is_user_driver);
            if !rebinds || records.read(device)?.is_none() {
                records.write(device, record)?;
            }
            let bound =
                write_all(root, writes, sysfs).and_then(|()| match bound_driver(root, device) {
                    Some(found) if found == driver.as_str() => Ok(()),
                    found => Err(not_bound(device, driver.as_str(), found)),
                });
            bound.map_err(|error| {
                let before = record.kernel_driver.as_deref();
                let text = record.driver_override.as_deref().unwrap_or_default();
                let restored = restore(root, device, text, before, sysfs);
                if restored && !rebinds {
                    // If this fails, a record without a binding remains.
                    let _ = records.remove(device);
                }
                match error {
                    BindError::NotBound { device, expected, found, .. } => {
                        BindError::NotBound { device, expected, found, restored }
                    }
                    other => other,
                }
            })
        }
        Action::Unbind { expected, unused, writes } => {
            write_all(root, writes, sysfs)?;
            let found = bound_driver(root, device);
            let as_expected = match (&found, expected) {
                (None, _) => *unused,
                (Some(found), Some(expected)) => found == expected,
                (Some(found), None) => !is_user_driver(found),
            };
            if !as_expected {
                return Err(unreturned(inventory, device, expected.as_deref(), found));
            }
            records.remove(device)
        }
    }
}

fn is_user_driver(name: &str) -> bool {
    name.parse::<UserDriver>().is_ok()
}

fn bound_driver(root: &Root, device: BusAddress) -> Option<String> {
    root.link_name(format!("{}/driver", device.directory()))
}

fn not_bound(device: BusAddress, expected: &str, found: Option<String>) -> BindError {
    let found = found.unwrap_or_else(|| "no driver".to_owned());
    BindError::NotBound { device, expected: expected.to_owned(), found, restored: false }
}

fn unreturned(
    inventory: &Inventory,
    device: BusAddress,
    expected: Option<&str>,
    found: Option<String>,
) -> BindError {
    if found.is_some() {
        return not_bound(device, expected.unwrap_or("a driver of the kernel"), found);
    }
    let known = inventory.at(device).and_then(|nic| nic.dpdk_driver);
    let module = known.and_then(|driver| driver.recognition.kernel_drivers.first().copied());
    let module = expected.or(module).unwrap_or("the NIC's driver").to_owned();
    BindError::NoKernelDriver { device, module }
}

fn write_all(root: &Root, writes: &[Write], sysfs: &mut impl Sysfs) -> Result<(), BindError> {
    for write in writes {
        write_one(root, write, sysfs).map_err(|source| BindError::Write {
            path: write.path.clone(),
            text: write.text.clone(),
            source,
        })?;
    }
    Ok(())
}

fn write_one(root: &Root, write: &Write, sysfs: &mut impl Sysfs) -> io::Result<()> {
    let path = root.join(write.path.strip_prefix("/").unwrap_or(&write.path));
    // The newline makes an empty text a write of one byte: a write of no bytes does not reach the
    // kernel's attribute.
    sysfs.write(&path, &format!("{}\n", write.text))
}

/// Returns a device to its former override and driver; returns whether the driver is bound again.
fn restore(
    root: &Root,
    device: BusAddress,
    driver_override: &str,
    driver: Option<&str>,
    sysfs: &mut impl Sysfs,
) -> bool {
    let write =
        |path: String, text: &str| Write { path: Path::new("/").join(path), text: text.to_owned() };
    let override_file = format!("{}/driver_override", device.directory());
    let mut done = write_one(root, &write(override_file, driver_override), sysfs).is_ok();
    if bound_driver(root, device).as_deref() != driver {
        if bound_driver(root, device).is_some() {
            let unbind =
                write(format!("{}/driver/unbind", device.directory()), &device.to_string());
            done &= write_one(root, &unbind, sysfs).is_ok();
        }
        if driver.is_some() {
            let probe = write(format!("{}/drivers_probe", device.bus()), &device.to_string());
            done &= write_one(root, &probe, sysfs).is_ok();
        }
    }
    done && bound_driver(root, device).as_deref() == driver
}
