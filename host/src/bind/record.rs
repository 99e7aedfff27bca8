//! Records of the driver, override, interfaces and MAC addresses that a device had before it was
//! bound for DPDK.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::BindError;
use crate::address::{BusAddress, MacAddress};
use crate::file;
use crate::nic::{Before, Inventory, Nic};

/// The state of a device before it was bound for DPDK.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The driver of the kernel; `None` if none was bound.
    pub kernel_driver: Option<String>,
    /// `driver_override`, if one was set.
    pub driver_override: Option<String>,
    /// Names of its kernel interfaces.
    pub interfaces: Vec<String>,
    /// MAC addresses of the interfaces.
    pub macs: Vec<String>,
}

impl Record {
    pub(super) fn of(nic: &Nic, driver_override: Option<String>) -> Record {
        let names = nic.interfaces.iter().map(|interface| interface.name.clone());
        Record {
            kernel_driver: nic.kernel_driver.clone(),
            driver_override,
            interfaces: names.collect(),
            macs: nic.macs().iter().map(MacAddress::to_string).collect(),
        }
    }

    fn before(self) -> Before {
        Before {
            kernel_driver: self.kernel_driver,
            interfaces: self.interfaces,
            macs: self.macs.iter().filter_map(|mac| mac.parse().ok()).collect(),
        }
    }
}

/// A directory of records, one file per device. It is emptied by a reboot, like the bindings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Records(PathBuf);

impl Records {
    /// The directory on a machine. It is not below `/run/weir`, where the group of the services may
    /// create files: root binds devices to the drivers that the records name.
    pub const DIRECTORY: &str = "/run/weir-nic";

    /// Returns the records in this directory.
    pub fn new(directory: impl Into<PathBuf>) -> Records {
        Records(directory.into())
    }

    fn path(&self, device: BusAddress) -> PathBuf {
        self.0.join(device.to_string())
    }

    /// Returns the record of a device, if there is one.
    pub fn read(&self, device: BusAddress) -> Result<Option<Record>, BindError> {
        let path = self.path(device);
        let parse = |text: String| serde_json::from_str(&text).map_err(io::Error::from);
        let record = file::read(&path).and_then(|text| text.map(parse).transpose());
        record.map_err(|source| BindError::Record {
            verb: "read",
            path,
            source,
            remedy: "remove the file: the device then returns to the driver that the kernel prefers",
        })
    }

    /// Writes the record of a device.
    pub(super) fn write(&self, device: BusAddress, record: &Record) -> Result<(), BindError> {
        let path = self.path(device);
        let text = serde_json::to_string(record).map_err(io::Error::from);
        let written = text.and_then(|text| file::replace(&path, &(text + "\n")));
        let remedy =
            "nothing was changed; run the command as root, and check that /run has free space";
        written.map_err(|source| BindError::Record { verb: "write", path, source, remedy })
    }

    /// Removes the record of a device.
    pub(super) fn remove(&self, device: BusAddress) -> Result<(), BindError> {
        let path = self.path(device);
        let remedy = "remove it by hand";
        file::remove(&path).map_err(|source| BindError::Record {
            verb: "remove",
            path,
            source,
            remedy,
        })
    }

    /// Sets [`Nic::before`] of each device without an interface from its record, so that the device
    /// is found by the name and the MAC address that its interface had.
    pub fn complete(&self, inventory: &mut Inventory) -> Result<(), BindError> {
        for nic in &mut inventory.nics {
            if let (Some(address), true) = (nic.bus_address(), nic.interfaces.is_empty()) {
                nic.before = self.read(address)?.map(Record::before);
            }
        }
        Ok(())
    }
}
