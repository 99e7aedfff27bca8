//! `weir completions` and `weir man`: generate shell completions and man pages from the command
//! definitions.

use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;

use super::options::GlobalOptions;
use super::output::print;

/// Prints the completions of a shell.
pub fn completions(options: &GlobalOptions, mut command: Command, shell: Shell) {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "weir", &mut text);
    let text = String::from_utf8_lossy(&text);
    print(options, &text, || text.to_string());
}

/// Writes a man page for `weir` and each of its subcommands into a directory.
pub fn man(options: &GlobalOptions, command: Command, folder: &Path) -> Result<(), String> {
    let failed = |e: io::Error| format!("{}: {e}; name a folder with --out", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(command, folder).map_err(failed)?;
    print(options, &folder, String::new);
    Ok(())
}
