//! The record of values before Weir changed them.

use std::io::ErrorKind;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::value::ValueFile;
use crate::Root;
use crate::file;
use crate::machine::CommandLine;

/// The file of the record, without a leading slash. `weir tune revert` runs as root and writes to
/// the paths in it, so that only root may write to its directory: `/var/lib/weir` is the service
/// user's.
pub(super) const RECORD: &str = "var/lib/weir-tune/record.json";

/// Values before Weir changed them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    /// The kernel's id of the boot in which the record was last written.
    pub(super) boot: String,
    /// The values, in the order in which they were changed.
    pub(super) values: Vec<FormerValue>,
    /// Kernel parameters that the operator was asked to add, where no drop-in file sets them.
    #[serde(default)]
    pub(super) parameters: Vec<String>,
}

/// A value before Weir changed it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct FormerValue {
    /// Path of the file, without a leading slash.
    pub(super) path: String,
    /// The value that it had.
    pub(super) value: String,
    /// Whether a drop-in file sets Weir's value at boot. Otherwise a boot undoes the change, and
    /// the record expires with it: numbers of interrupts differ from boot to boot.
    pub(super) persistent: bool,
}

/// Returns the name of a kernel parameter: `isolcpus` of `isolcpus=2-3`.
pub(super) fn parameter_name(parameter: &str) -> &str {
    parameter.split('=').next().unwrap_or_default()
}

/// The record cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {}: {reason}; {remedy}", path.display())]
pub struct RecordError {
    verb: &'static str,
    path: PathBuf,
    reason: String,
    remedy: &'static str,
}

/// Remedy if root is required.
const AS_ROOT: &str = "run the command as root";
/// Remedy for a record that is damaged or cannot be read for another reason.
const REPAIR: &str =
    "repair or restore the file; if you remove it, Weir can no longer revert its tuning";

/// Returns the kernel's id of this boot; empty if there is none.
fn boot_id(root: &Root) -> String {
    root.read("proc/sys/kernel/random/boot_id").unwrap_or_default()
}

impl Record {
    /// Reads the record, without the entries that expired with an earlier boot. Returns an empty
    /// record if there is no file.
    pub(super) fn read(root: &Root) -> Result<Record, RecordError> {
        let path = root.join(RECORD);
        let error = |reason: String, remedy: &'static str| RecordError {
            verb: "read",
            path: path.clone(),
            reason,
            remedy,
        };
        let boot = boot_id(root);
        let mut record = match std::fs::read_to_string(&path) {
            Err(missing) if missing.kind() == ErrorKind::NotFound => Record::default(),
            Err(other) => {
                let remedy = match other.kind() {
                    ErrorKind::PermissionDenied => AS_ROOT,
                    _ => REPAIR,
                };
                return Err(error(other.to_string(), remedy));
            }
            Ok(text) => serde_json::from_str(&text).map_err(|e| error(e.to_string(), REPAIR))?,
        };
        if record.boot != boot {
            record.values.retain(|former| former.persistent);
            let command_line = CommandLine::read(root).unwrap_or_default();
            record.parameters.retain(|parameter| command_line.has(parameter));
            record.boot = boot;
        }
        Ok(record)
    }

    /// Writes the record, or removes its file if it is empty.
    pub(super) fn write(&self, root: &Root) -> Result<(), RecordError> {
        let path = root.join(RECORD);
        let error = |error: std::io::Error| RecordError {
            verb: "write",
            path: path.clone(),
            reason: error.to_string(),
            remedy: match error.kind() {
                ErrorKind::PermissionDenied => AS_ROOT,
                _ => "check that the file system is writable and has free space",
            },
        };
        if self.values.is_empty() && self.parameters.is_empty() {
            return file::remove(&path).map_err(error);
        }
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        file::replace(&path, &text).map_err(error)
    }

    /// Returns the value of a file before Weir changed it, which is the present one if it did not.
    pub(super) fn before(&self, root: &Root, file: &ValueFile) -> Option<String> {
        let recorded = self.values.iter().find(|former| former.path == file.path());
        recorded.map(|former| former.value.clone()).or_else(|| file.read(root))
    }

    /// Returns whether the operator was asked to add a kernel parameter of this name.
    pub(super) fn has_parameter(&self, name: &str) -> bool {
        self.parameters.iter().any(|parameter| parameter_name(parameter) == name)
    }

    /// Returns whether Weir changed this file.
    pub(super) fn has(&self, file: &ValueFile) -> bool {
        self.values.iter().any(|former| former.path == file.path())
    }
}
