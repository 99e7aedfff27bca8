//! `weir tune`: sets CPUs, interrupts, memory and sysctls of this machine, and restores them.

use std::process::ExitCode;

use clap::Subcommand;
use host::Root;
use host::commands::SystemCommands;
use host::tune::{Outcome, apply, plan, revert};

use super::machine::Machine;
use super::options::GlobalOptions;
use super::output::print;
use super::plane;

/// Subcommands of `weir tune`.
#[derive(Subcommand)]
pub enum TuneCommand {
    /// Show each setting: its value, the desired value, the reason, and whether a reboot is needed
    ///
    /// Changes nothing.
    Plan,
    /// Write Weir's drop-in files and apply the settings that need no reboot; requires root
    ///
    /// Former values are recorded in /var/lib/weir-tune. A second run changes nothing. Exit
    /// code 1 if something could not be set.
    Apply,
    /// Undo `weir tune apply`; requires root
    ///
    /// Restores the recorded values of kernel settings and removes Weir's drop-in files.
    Revert,
}

/// Runs `weir tune`.
pub fn run(options: &GlobalOptions, command: &TuneCommand) -> Result<ExitCode, String> {
    let outcome = match command {
        TuneCommand::Revert => {
            revert(&Root::default(), &SystemCommands).map_err(|e| e.to_string())?
        }
        TuneCommand::Plan | TuneCommand::Apply => {
            let machine = Machine::read()?;
            let config = plane::load_for(options, &machine)?;
            let Machine { root, inventory, .. } = machine;
            let plan = plan(&root, &config, &inventory).map_err(|e| e.to_string())?;
            if matches!(command, TuneCommand::Plan) {
                print(options, &plan, || plan.render());
                return Ok(ExitCode::SUCCESS);
            }
            apply(&root, &plan, &SystemCommands).map_err(|e| e.to_string())?
        }
    };
    let Outcome { failed, .. } = &outcome;
    let code = if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) };
    print(options, &outcome, || outcome.render());
    Ok(code)
}
