//! `weir source`: confirms a large removal. Until then, the list that removes the objects is on
//! hold and has no effect.

use std::path::Path;

use clap::Subcommand;
use serde_json::Value;

use super::options::GlobalOptions;
use super::output::print;
use super::request::{self, Request, escaped};

/// Subcommands of `weir source`.
#[derive(Subcommand)]
pub enum SourceCommand {
    /// Confirm a removal that slowpath put on hold because it deletes too much
    ///
    /// Files are applied at once; a session must commit its list again. `weir status` and `weir get
    /// source` show the lists that are on hold, with the reason.
    Confirm {
        /// Name of the source: `file` or `kubernetes-file` for files, or that of a session
        name: String,
    },
}

/// Runs `weir source`.
pub fn run(options: &GlobalOptions, socket: &Path, command: &SourceCommand) -> Result<(), String> {
    let SourceCommand::Confirm { name } = command;
    let path = format!("/v1/sources/{}/confirm", escaped(name));
    let answer = request::send_json(socket, &Request::new("POST", &path));
    let confirmed: Value = answer.map_err(|e| e.to_string())?;
    print(options, &confirmed, || {
        let (removed, of) = (&confirmed["removed"], &confirmed["of"]);
        format!("{name}: the removal of {removed} of {of} objects is confirmed\n")
    });
    Ok(())
}
