//! `weir source`: the sources of services, and lists of theirs that are held.

use std::path::Path;

use clap::Subcommand;
use serde_json::Value;

use super::ask::{self, Request, escaped};
use super::options::With;
use super::output::print;

/// What `weir source` does.
#[derive(Subcommand)]
pub enum SourceWhat {
    /// Permits the removal for which the list of a source is held: files are taken at once, a
    /// session when its source commits the list again. `weir status` and `weir get source` show
    /// what is held and why
    Confirm {
        /// Name of the source: `file` and `kubernetes-file` for what files say, or a session's
        name: String,
    },
}

/// Runs `weir source`.
pub fn run(with: &With, socket: &Path, what: &SourceWhat) -> Result<(), String> {
    let SourceWhat::Confirm { name } = what;
    let path = format!("/v1/sources/{}/confirm", escaped(name));
    let answer = ask::document_of(socket, &Request::new("POST", &path));
    let confirmed: Value = answer.map_err(|e| e.to_string())?;
    print(with, &confirmed, || {
        let (removed, of) = (&confirmed["removed"], &confirmed["of"]);
        format!("{name}: the removal of {removed} of {of} objects is confirmed\n")
    });
    Ok(())
}
