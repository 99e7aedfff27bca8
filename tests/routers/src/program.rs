//! A program that may be ended and started again in its namespace.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::signal::Signal;
use tests::lab::netns::Netns;
use tests::lab::process::Process;
use tests::lab::{LabError, Result};

use crate::PATIENCE;

/// What is started, and the process while there is one.
pub struct Program {
    /// Where it runs.
    pub ns: Arc<Netns>,
    /// Its file.
    pub path: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
    /// What starts it, with arguments; empty where nothing has to stand between.
    pub by: &'static [&'static str],
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it writes to.
    pub log: PathBuf,
    /// While it runs.
    pub process: Option<Process>,
}

impl Program {
    /// Starts it, with `more` behind its usual arguments. One that runs is left alone.
    pub fn start(&mut self, more: &[&str]) -> Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        if !Path::new(self.path).exists() {
            let (program, package) = (self.path.to_owned(), self.package);
            return Err(LabError::NoProgram { program, package });
        }
        let mut words: Vec<String> = self.by.iter().map(|word| (*word).to_owned()).collect();
        words.push(self.path.to_owned());
        words.extend(self.args.iter().cloned());
        words.extend(more.iter().map(|word| (*word).to_owned()));
        let (path, args) = (words.remove(0), words);
        let log = self.log.clone();
        self.process = Some(Process::start(&self.ns, path.as_ref(), &args, &[], log)?);
        Ok(())
    }

    /// Ends it without a chance to say anything to its neighbours.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |process| process.kill().map(drop))
    }

    /// Asks it to end, and waits. It says farewell to its neighbours in its own way.
    pub fn stop(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |process| process.stop(PATIENCE))
    }

    /// Sends a signal, for example one that makes it stand still.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.as_ref().map_or(Ok(()), |process| process.signal(signal))
    }

    /// Fails with its last words if it ended by itself.
    pub fn must_live(&mut self) -> Result<()> {
        self.process.as_mut().map_or(Ok(()), Process::must_live)
    }

    /// All that it wrote.
    pub fn log(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Waits until `answers` does, or the program ends.
    pub fn wait_until_up(&mut self, answers: impl Fn() -> Result<String>) -> Result<()> {
        let mut ended = None;
        crate::wait_for(self.path, PATIENCE, || {
            if let Err(error) = self.must_live() {
                ended = Some(error);
                return Ok((true, String::new()));
            }
            answers().map(|said| (true, said))
        })?;
        ended.map_or(Ok(()), Err)
    }
}
