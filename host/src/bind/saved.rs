//! Bindings that are applied at each boot.
//!
//! The file has one line per device: the bus address, the driver, and `force` if the binding was
//! forced. `#` begins a comment.

use std::io;
use std::path::{Path, PathBuf};

use crate::address::BusAddress;
use crate::driver::UserDriver;
use crate::file;

/// The first line of the file.
const HEADING: &str = "# DEVICE DRIVER [force]: written by `weir nic bind --save`, applied by \
                       `weir nic bind --saved`.\n";

/// A binding that is applied at each boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedBinding {
    /// The device.
    pub device: BusAddress,
    /// The driver.
    pub driver: UserDriver,
    /// Whether the device is bound even if the kernel needs it.
    pub force: bool,
}

/// The file of saved bindings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedBindings {
    path: PathBuf,
    /// The bindings, in the order of the file.
    pub bindings: Vec<SavedBinding>,
}

/// The file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// An error from the system.
    #[error("cannot {verb} {}: {source}{}", path.display(), match source.kind() {
        io::ErrorKind::PermissionDenied => "; run the command as root",
        _ => "",
    })]
    File {
        /// What was attempted, as a verb.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A line is not a binding.
    #[error(
        "{}:{line}: {found:?} is not a binding ({reason}); write a bus address and a driver: \
         0000:00:06.0 vfio-pci",
        path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line.
        line: usize,
        /// The line without its comment.
        found: String,
        /// What is wrong.
        reason: String,
    },
}

impl SavedBindings {
    /// The file on a machine.
    pub const FILE: &str = "/etc/weir/nic.bind";

    /// Reads the file; no bindings if it does not exist.
    pub fn read(path: &Path) -> Result<SavedBindings, SavedError> {
        let text = file::read(path).map_err(|source| SavedError::File {
            verb: "read",
            path: path.to_owned(),
            source,
        })?;
        let mut saved = SavedBindings { path: path.to_owned(), bindings: Vec::new() };
        for (number, line) in text.unwrap_or_default().lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let binding = parse(content).and_then(|binding| {
                let twice = saved.bindings.iter().any(|other| other.device == binding.device);
                if twice { Err("the device is listed twice".to_owned()) } else { Ok(binding) }
            });
            saved.bindings.push(binding.map_err(|reason| SavedError::Line {
                path: path.to_owned(),
                line: number + 1,
                found: content.to_owned(),
                reason,
            })?);
        }
        Ok(saved)
    }

    /// Adds a binding, or replaces that of the same device.
    pub fn set(&mut self, binding: SavedBinding) {
        match self.bindings.iter_mut().find(|other| other.device == binding.device) {
            Some(other) => *other = binding,
            None => self.bindings.push(binding),
        }
    }

    /// Removes the binding of a device; returns whether there was one.
    pub fn remove(&mut self, device: BusAddress) -> bool {
        let before = self.bindings.len();
        self.bindings.retain(|binding| binding.device != device);
        self.bindings.len() != before
    }

    /// Writes the file. Comments are not kept.
    pub fn write(&self) -> Result<(), SavedError> {
        let mut text = HEADING.to_owned();
        for SavedBinding { device, driver, force } in &self.bindings {
            let force = if *force { " force" } else { "" };
            text.push_str(&format!("{device} {driver}{force}\n"));
        }
        file::replace(&self.path, &text).map_err(|source| SavedError::File {
            verb: "write",
            path: self.path.clone(),
            source,
        })
    }
}

fn parse(line: &str) -> Result<SavedBinding, String> {
    let mut words = line.split_whitespace();
    let device = words.next().unwrap_or_default().parse::<BusAddress>();
    let device = device.map_err(|error| error.to_string())?;
    let driver = words.next().ok_or("no driver")?.parse::<UserDriver>();
    let driver = driver.map_err(|error| error.to_string())?;
    let force = match (words.next(), words.next()) {
        (None, _) => false,
        (Some("force"), None) => true,
        (Some(word), _) => return Err(format!("unexpected {word:?}")),
    };
    Ok(SavedBinding { device, driver, force })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_saved_one_a_line_and_invalid_lines_are_errors() {
        let directory = std::env::temp_dir().join(format!("weir-saved-{}", std::process::id()));
        let path = directory.join("nic.bind");
        let mut saved = SavedBindings::read(&path).unwrap();
        assert_eq!(saved.bindings, []);
        let device: BusAddress = "0000:00:06.0".parse().unwrap();
        let binding = SavedBinding { device, driver: UserDriver::IgbUio, force: false };
        saved.set(binding);
        let id: BusAddress = "000d3a7c-0001-000d-3a7c-0000000d3a7c".parse().unwrap();
        saved.set(SavedBinding { device: id, driver: UserDriver::UioHvGeneric, force: true });
        saved.set(SavedBinding { driver: UserDriver::VfioPci, ..binding });
        saved.write().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let vmbus = "000d3a7c-0001-000d-3a7c-0000000d3a7c uio_hv_generic force";
        assert_eq!(lines, ["0000:00:06.0 vfio-pci", vmbus]);
        let mut read = SavedBindings::read(&path).unwrap();
        assert_eq!(read, saved);
        assert!(read.remove(id) && !read.remove(id));
        let error = |text: &str| {
            std::fs::write(&path, format!("# comment\n\n0000:00:06.0 vfio-pci # data\n{text}\n"))
                .unwrap();
            SavedBindings::read(&path).map(|_| ()).unwrap_err().to_string()
        };
        for (text, reason) in [
            ("eth1 vfio-pci", "is not a PCI address or VMBUS"),
            ("0000:00:07.0", "no driver"),
            ("0000:00:07.0 ixgbe", "no driver \"ixgbe\" hands NICs to DPDK"),
            ("0000:00:07.0 vfio-pci now", "unexpected \"now\""),
            ("00:06.0 igb_uio", "listed twice"),
        ] {
            let error = error(text);
            assert!(error.contains("nic.bind:4:") && error.contains(reason), "{error}");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
