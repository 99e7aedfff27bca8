//! Descriptions of a damaged store, and of an interrupted write that was cut from its log, for
//! logs, status and errors.

use std::fmt;

use super::disk::{LOG, SNAPSHOT};
use super::record::Flaw;
use crate::object::{ChangeError, ErrorClass};

/// Reason why the store is not used: which file is damaged, where, and how to repair it. The files
/// stay as they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Path of the damaged file.
    pub path: String,
    /// Offset of the first byte that cannot be read.
    pub offset: u64,
    /// Description of the damage.
    pub fault: String,
    /// Remedy for the operator.
    pub remedy: String,
}

impl Damage {
    /// Creates the description. `copy` is the name of the file's copy, or the error that prevented
    /// one.
    pub(super) fn new(file: &str, path: String, flaw: Flaw, copy: Result<String, String>) -> Self {
        let action = match file {
            SNAPSHOT => format!("move `{SNAPSHOT}` and `{LOG}` away to start with an empty store"),
            _ => format!("move `{file}` away to continue without its contents"),
        };
        let copy = match copy {
            Ok(name) => format!("copy: `{name}`"),
            Err(error) => format!("the file cannot be copied: {error}"),
        };
        let remedy = format!(
            "{action}, then restart slowpath, and restore the objects from a backup with `weir \
             restore --only objects` ({copy})"
        );
        Damage { path, offset: flaw.at as u64, fault: flaw.fault, remedy }
    }

    /// Returns the error with which every change is rejected.
    pub fn change_error(&self) -> ChangeError {
        let Damage { path, offset, fault, remedy } = self;
        let fault = format!(
            "the store takes no changes: {path} is damaged at byte {offset}: {fault}; the tables \
             stay as they are"
        );
        ChangeError::new("", fault, remedy.as_str()).with_class(ErrorClass::Damaged)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { path, offset, fault, remedy } = self;
        write!(f, "{path} is damaged at byte {offset}: {fault}; {remedy}")
    }
}

/// Interrupted write of an earlier process that was cut from the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Path of the log.
    pub path: String,
    /// Length of the log after the cut, bytes.
    pub offset: u64,
    /// Number of bytes cut.
    pub bytes: u64,
    /// Name of the copy of the log from before the cut.
    pub copy: String,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { path, offset, bytes, copy } = self;
        write!(
            f,
            "{path} ended in an interrupted write, which was not acknowledged: {bytes} bytes were \
             cut at byte {offset}; copy from before the cut: `{copy}`"
        )
    }
}
