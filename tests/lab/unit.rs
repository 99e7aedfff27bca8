//! A daemon that systemd runs in a container, under the restrictions of its unit.

use super::error::{LabError, Result};
use container::Container;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use patience::{DEFAULT_TIMEOUT, poll};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A unit that was started.
pub struct Unit {
    container: Arc<Container>,
    name: String,
    /// The id of the main process in this machine's PID namespace, not in the container's; `None`
    /// if the process ended before its id was read.
    process: Option<u32>,
    /// Whether systemd was asked to stop the unit.
    is_stopping: AtomicBool,
}

impl Unit {
    /// Starts a unit without its dependencies, and returns once its main process runs. The unit
    /// need not be ready.
    pub fn start(container: &Arc<Container>, name: &str) -> Result<Self> {
        let (container, name) = (container.clone(), name.to_owned());
        let mut unit = Self { container, name, process: None, is_stopping: AtomicBool::new(false) };
        let before = unit.property("InvocationID")?;
        unit.systemctl("start --no-block --job-mode=ignore-dependencies")?;
        unit.process = poll(&format!("a process of {}", unit.name), DEFAULT_TIMEOUT, || {
            unit.look_for_process(&before).map_err(|error| error.to_string())?
        })?;
        Ok(unit)
    }

    /// Returns the main process's id once systemd has started the unit, which gives it another
    /// invocation id than `before`; `None` if that process has already ended. The inner error says
    /// that the unit is not started yet: the caller tries again.
    fn look_for_process(&self, before: &str) -> Result<std::result::Result<Option<u32>, String>> {
        let [invocation, state, pid] =
            ["InvocationID", "ActiveState", "MainPID"].map(|name| self.property(name));
        let (invocation, state, pid) = (invocation?, state?, pid?);
        if invocation == before || invocation.is_empty() {
            return Ok(Err("not started".to_owned()));
        }
        if pid != "0" {
            // An error: it has ended in the meantime.
            return Ok(Ok(self.container.host_process(&pid).ok()));
        }
        match &*state {
            "inactive" | "failed" => Ok(Ok(None)),
            _ => Ok(Err(state)),
        }
    }

    /// Returns the main process's id in this machine's PID namespace; 0 if the process ended before
    /// its id was read.
    pub fn id(&self) -> u32 {
        self.process.unwrap_or_default()
    }

    /// Returns the exit status if the unit has ended.
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        if self.process.is_some_and(|pid| kill(Pid::from_raw(pid as i32), None).is_ok()) {
            return Ok(None);
        }
        let state = self.property("ActiveState")?;
        if !matches!(&*state, "inactive" | "failed") {
            return Ok(None);
        }
        let number = |name| Ok::<i32, LabError>(self.property(name)?.parse().unwrap_or_default());
        let (code, status) = (number("ExecMainCode")?, number("ExecMainStatus")?);
        // CLD_EXITED of waitid(2); otherwise the status is a signal.
        const EXITED: i32 = 1;
        let is_signal = code > EXITED;
        Ok(Some(ExitStatus::from_raw(if is_signal { status } else { status << 8 })))
    }

    /// Sends a signal to the main process. With the first SIGTERM, systemd stops the unit, and ends
    /// it after its timeout.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if signal == Signal::SIGTERM && !self.is_stopping.swap(true, Ordering::Relaxed) {
            return self.systemctl("stop --no-block").map(drop);
        }
        let what = || format!("sending {signal} to {}", self.name);
        let pid = self.process.ok_or_else(|| LabError::Other(format!("{}: it ended", what())))?;
        kill(Pid::from_raw(pid as i32), signal).map_err(LabError::errno(what()))
    }

    /// Kills the main process if it still runs. systemd sends the signal, because a signal to the
    /// stored process id could reach another process that got the same id.
    pub fn kill(&self) {
        let _ = self.systemctl("kill --kill-whom=main --signal=KILL");
    }

    fn property(&self, name: &str) -> Result<String> {
        let value = self.container.property(&self.name, name);
        value.map_err(|error| LabError::Other(error.to_string()))
    }

    fn systemctl(&self, command: &str) -> Result<String> {
        let done = self.container.systemctl(&format!("{command} {}", self.name));
        done.map_err(|error| LabError::Other(error.to_string()))
    }
}
