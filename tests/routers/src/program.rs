//! A program that can be stopped and started again in its namespace.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::signal::Signal;
use tests::lab::netns::Netns;
use tests::lab::process::Process;
use tests::lab::{LabError, Result};

use crate::DEFAULT_TIMEOUT;

/// A program's parameters, and its process while it runs.
pub struct Program {
    /// The namespace in which the program runs.
    pub ns: Arc<Netns>,
    /// The executable.
    pub path: &'static str,
    /// The Debian package that contains the executable.
    pub package: &'static str,
    /// A command with arguments that starts the executable; empty for none.
    pub wrapper: &'static [&'static str],
    /// The arguments of every start.
    pub args: Vec<String>,
    /// The log file.
    pub log: PathBuf,
    /// The process; `None` before the first start, and after a kill or a stop.
    pub process: Option<Process>,
}

impl Program {
    /// Starts the program with `more` after its usual arguments. Does nothing if it was started
    /// before and neither killed nor stopped since.
    pub fn start(&mut self, more: &[&str]) -> Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        if !Path::new(self.path).exists() {
            let (program, package) = (self.path.to_owned(), self.package);
            return Err(LabError::NoProgram { program, package });
        }
        let mut command: Vec<String> = self.wrapper.iter().map(|arg| (*arg).to_owned()).collect();
        command.push(self.path.to_owned());
        command.extend(self.args.iter().cloned());
        command.extend(more.iter().map(|arg| (*arg).to_owned()));
        let (path, args) = (command.remove(0), command);
        let log = self.log.clone();
        self.process = Some(Process::start(&self.ns, path.as_ref(), &args, &[], log)?);
        Ok(())
    }

    /// Kills the program with SIGKILL, so that it cannot notify its neighbors.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |process| process.kill().map(drop))
    }

    /// Stops the program with SIGTERM and waits for its end; it may notify its neighbors.
    pub fn stop(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |process| process.stop(DEFAULT_TIMEOUT))
    }

    /// Sends a signal, for example SIGSTOP.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.as_ref().map_or(Ok(()), |process| process.signal(signal))
    }

    /// Returns an error with the end of the log if the program ended by itself.
    pub fn check_running(&mut self) -> Result<()> {
        self.process.as_mut().map_or(Ok(()), Process::check_running)
    }

    /// Returns the complete log.
    pub fn log(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Waits until `answers` succeeds; fails early if the program ends.
    pub fn wait_until_up(&mut self, answers: impl Fn() -> Result<String>) -> Result<()> {
        let mut ended = None;
        crate::wait_for(self.path, DEFAULT_TIMEOUT, || {
            if let Err(error) = self.check_running() {
                ended = Some(error);
                return Ok((true, String::new()));
            }
            answers().map(|output| (true, output))
        })?;
        ended.map_or(Ok(()), Err)
    }
}
