//! A daemon under test: started in a namespace, with a log file, and killed at the latest when it
//! is dropped or the lab's process ends.

use super::error::{LabError, Result};
use super::netns::Netns;
use super::unit::Unit;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use patience::poll;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// A running daemon.
pub struct Process {
    name: String,
    running: Running,
    log: PathBuf,
}

/// What runs a daemon.
enum Running {
    /// This process.
    Child(Child),
    /// systemd, in a container.
    Unit(Unit),
}

/// Returns the path of a program of this repository: in `WEIR_BIN_DIR`, or in the directory of the
/// running program. Tests run from the directory `deps` below that.
pub fn find(program: &str, package: &str) -> Result<PathBuf> {
    let folder = match std::env::var_os("WEIR_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let own = std::env::current_exe();
            let own = own.map_err(LabError::io("finding the path of this program"))?;
            let folder = own.parent().unwrap_or(Path::new("/"));
            let deeper = folder.ends_with("deps");
            folder.ancestors().nth(usize::from(deeper)).unwrap_or(folder).to_owned()
        }
    };
    let path = folder.join(program);
    if path.is_file() {
        return Ok(path);
    }
    Err(LabError::NotBuilt {
        program: program.to_owned(),
        location: folder.display().to_string(),
        package: package.to_owned(),
    })
}

impl Process {
    /// Starts `path` in `ns`; its output is appended to `log`.
    pub fn start(
        ns: &Netns,
        path: &Path,
        args: &[String],
        environment: &[(String, String)],
        log: PathBuf,
    ) -> Result<Self> {
        let file = File::options().create(true).append(true).open(&log);
        let file = file.map_err(LabError::io(format!("opening {}", log.display())))?;
        let child = ns.spawn(&path.display().to_string(), args, environment, file)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { name, running: Running::Child(child), log })
    }

    /// Returns the daemon of a unit, whose output is appended to `log`.
    pub fn of_unit(name: &str, unit: Unit, log: PathBuf) -> Self {
        Self { name: name.to_owned(), running: Running::Unit(unit), log }
    }

    /// Returns the exit status if the daemon has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let what = || format!("querying {}", self.name);
        match &mut self.running {
            Running::Child(child) => child.try_wait().map_err(LabError::io(what())),
            Running::Unit(unit) => unit.ended(),
        }
    }

    /// Returns an error with the end of the log if the daemon has ended.
    pub fn check_running(&mut self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(self.exit_error(&status)),
        }
    }

    /// Returns the error for a daemon that ended unexpectedly.
    fn exit_error(&self, status: &ExitStatus) -> LabError {
        LabError::Ended {
            program: self.name.clone(),
            status: status.to_string(),
            log: self.log_tail(),
        }
    }

    /// Returns the complete log.
    pub fn log(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Returns the last 20 lines of the log.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Returns the daemon's process id.
    pub fn id(&self) -> u32 {
        match &self.running {
            Running::Child(child) => child.id(),
            Running::Unit(unit) => unit.id(),
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let what = || format!("sending {signal} to {}", self.name);
        match &self.running {
            Running::Child(child) => {
                kill(Pid::from_raw(child.id() as i32), signal).map_err(LabError::errno(what()))
            }
            Running::Unit(unit) => unit.signal(signal),
        }
    }

    /// Sends SIGTERM and waits; an error unless the daemon ends in time and with status 0.
    pub fn stop(mut self, patience: Duration) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        let status = self.wait(patience)?;
        match status.success() {
            true => Ok(()),
            false => Err(self.exit_error(&status)),
        }
    }

    /// Kills the daemon with SIGKILL.
    pub fn kill(mut self) -> Result<ExitStatus> {
        self.signal(Signal::SIGKILL)?;
        self.wait(Duration::from_secs(10))
    }

    /// Waits until the daemon ends by itself.
    pub fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        poll(&format!("exit of {}", self.name), patience, || {
            self.ended().transpose().ok_or_else(|| self.log_tail())
        })?
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If the daemon has ended already, killing it fails.
        match &mut self.running {
            Running::Child(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Running::Unit(unit) => unit.kill(),
        }
    }
}
