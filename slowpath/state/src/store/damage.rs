//! A store that cannot be used, and what was cut from one that can: for logs, status and errors.

use std::fmt;

use super::disk::{LOG, SNAPSHOT};
use super::record::Flaw;
use crate::object::{Refusal, Why};

/// Why the store is not used: which file is damaged, where, and what to do. The files stay as they
/// are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The damaged file, with its folder.
    pub path: String,
    /// Offset of the first byte that is not understood.
    pub offset: u64,
    /// What is wrong there.
    pub wrong: String,
    /// What to do.
    pub remedy: String,
}

impl Damage {
    /// `copy` is the name of the file's copy, or why there is none.
    pub(super) fn new(file: &str, path: String, flaw: Flaw, copy: Result<String, String>) -> Self {
        let away = match file {
            SNAPSHOT => format!("move `{SNAPSHOT}` and `{LOG}` away to begin with nothing"),
            _ => format!("move `{file}` away to go on without what it holds"),
        };
        let copy = match copy {
            Ok(name) => format!("a copy of it is `{name}`"),
            Err(error) => format!("it could not be copied: {error}"),
        };
        let remedy = format!(
            "restore `{SNAPSHOT}` and `{LOG}` from a backup, or {away}, then restart slowpath \
             ({copy})"
        );
        Damage { path, offset: flaw.at as u64, wrong: flaw.wrong, remedy }
    }

    /// The answer to every change.
    pub fn refusal(&self) -> Refusal {
        let Damage { path, offset, wrong, remedy } = self;
        let wrong = format!(
            "the store takes no changes: {path} is damaged at byte {offset}: {wrong}; the tables \
             stay as they are"
        );
        Refusal::new("", wrong, remedy.as_str()).because(Why::Damaged)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { path, offset, wrong, remedy } = self;
        write!(f, "{path} is damaged at byte {offset}: {wrong}; {remedy}")
    }
}

/// An interrupted write that was cut from the log at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The log, with its folder.
    pub path: String,
    /// Where it ends now.
    pub offset: u64,
    /// Bytes that were cut.
    pub bytes: u64,
    /// Name of the copy with them.
    pub copy: String,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { path, offset, bytes, copy } = self;
        write!(
            f,
            "{path} ended in an interrupted write, which was not acknowledged: {bytes} bytes were \
             cut at byte {offset}; as it was before: `{copy}`"
        )
    }
}
