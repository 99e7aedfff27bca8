//! Runs programs of the system, such as `nft` and `ethtool`, for state that no file shows.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directories that are searched after those of `PATH`, which may lack directories of system
/// programs.
const DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// A program is missing or failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommandError {
    /// The program does not exist.
    #[error("{0} is not installed")]
    Missing(String),
    /// The program failed.
    #[error("{program}: {reason}")]
    Failed {
        /// Program with its arguments.
        program: String,
        /// Its error output, or its exit status.
        reason: String,
    },
}

/// Runs programs of the system, or in tests returns given outputs.
pub trait Commands {
    /// Runs a program, given by name or absolute path, and returns its standard output.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, CommandError>;
}

/// Runs the programs of this machine.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemCommands;

impl Commands for SystemCommands {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, CommandError> {
        let missing = || CommandError::Missing(program.to_owned());
        let path = find(program).ok_or_else(missing)?;
        let failed = |reason: String| CommandError::Failed {
            program: [&[program], arguments].concat().join(" "),
            reason,
        };
        let mut command = Command::new(path);
        command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
        let output = command.output().map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = errors.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        Err(failed(match errors[..] {
            [] => output.status.to_string(),
            _ => errors.join("; "),
        }))
    }
}

fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_path = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    let mut all = of_path.chain(DIRECTORIES.iter().map(|d| Path::new(d).to_owned()));
    all.find_map(|directory| Some(directory.join(program)).filter(|path| path.is_file()))
}

#[cfg(test)]
pub(crate) mod fake {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::{CommandError, Commands};

    /// Programs with given outputs; all others are not installed.
    #[derive(Default)]
    pub(crate) struct FakeCommands {
        outputs: BTreeMap<String, Result<String, String>>,
        pub(crate) calls: RefCell<Vec<String>>,
    }

    impl FakeCommands {
        pub(crate) fn with(mut self, command: &str, output: &str) -> FakeCommands {
            self.outputs.insert(command.to_owned(), Ok(output.to_owned()));
            self
        }

        pub(crate) fn failing(mut self, command: &str, reason: &str) -> FakeCommands {
            self.outputs.insert(command.to_owned(), Err(reason.to_owned()));
            self
        }
    }

    impl Commands for FakeCommands {
        fn run(&self, program: &str, arguments: &[&str]) -> Result<String, CommandError> {
            let call = [&[program], arguments].concat().join(" ");
            self.calls.borrow_mut().push(call.clone());
            match self.outputs.get(&call) {
                Some(Ok(output)) => Ok(output.clone()),
                Some(Err(reason)) => {
                    Err(CommandError::Failed { program: call, reason: reason.clone() })
                }
                None => Err(CommandError::Missing(program.to_owned())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_errors_and_missing_programs_are_distinguished() {
        let run = |program: &str, arguments: &[&str]| SystemCommands.run(program, arguments);
        assert_eq!(run("echo", &["-n", "a b"]), Ok("a b".to_owned()));
        let error = run("ls", &["/no/such/file"]).unwrap_err().to_string();
        assert!(error.starts_with("ls /no/such/file: ") && error.contains("No such"), "{error}");
        let error = run("false", &[]).unwrap_err().to_string();
        assert_eq!(error, "false: exit status: 1");
        for program in ["no-such-program", "/no/such/program"] {
            let error = run(program, &[]).unwrap_err();
            assert_eq!(error, CommandError::Missing(program.to_owned()));
        }
    }
}
