//! Single-steps a daemon's polling thread, to kill it at a chosen instruction.

use super::error::{LabError, Result};
use super::process::Process;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// The number of words that an x86 CPU can watch at the same time.
pub const WATCHED: usize = 4;

/// The first polling lcore of a fastpath process, stopped and traced by the thread that called
/// [`Stepper::seize`]. On drop, the lcore continues untraced.
#[derive(Debug)]
pub struct Stepper {
    process: u32,
    thread: Pid,
    state: State,
}

/// The state of a traced thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Running,
    Stopped,
    Ended,
}

impl Stepper {
    /// Stops the polling lcore of a running fastpath. DPDK's thread names depend on its version;
    /// all contain "worker".
    pub fn seize(fastpath: &Process) -> Result<Self> {
        let folder = format!("/proc/{}/task", fastpath.id());
        let threads = std::fs::read_dir(&folder).map_err(LabError::io(folder.clone()))?;
        let worker = threads.flatten().find_map(|entry| {
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            name.contains("worker").then(|| entry.file_name().to_str()?.parse().ok())?
        });
        let none = || LabError::Other(format!("{folder}: no thread of an lcore"));
        let thread = Pid::from_raw(worker.ok_or_else(none)?);
        let failed = || LabError::errno("tracing an lcore");
        ptrace::seize(thread, Options::empty()).map_err(failed())?;
        let mut this = Self { process: fastpath.id(), thread, state: State::Running };
        ptrace::interrupt(thread).map_err(failed())?;
        this.wait()?;
        Ok(this)
    }

    /// Sets watchpoints, so that each later write of the lcore to one of these words stops the
    /// lcore. fastpath and this process must have mapped the words from the same file.
    pub fn watch(&self, words: [&AtomicU64; WATCHED]) -> Result<()> {
        /// The fields R/W and LEN of DR7, two bits each: writes, eight bytes (Intel's manual,
        /// volume 3, "Debug Control Register").
        const WRITES_OF_EIGHT_BYTES: u64 = 0b10_01;
        let mut control = 0;
        for (i, word) in words.into_iter().enumerate() {
            let address = translate(std::ptr::from_ref(word).addr() as u64, self.process)?;
            self.poke(i, address)?;
            control |= 1 << (2 * i) | WRITES_OF_EIGHT_BYTES << (16 + 4 * i);
        }
        self.poke(7, control)
    }

    /// Sets a debug register.
    fn poke(&self, register: usize, value: u64) -> Result<()> {
        let offset = offset_of!(libc::user, u_debugreg) + 8 * register;
        let offset = std::ptr::without_provenance_mut(offset);
        let done = ptrace::write_user(self.thread, offset, value as i64);
        done.map_err(LabError::errno("setting a watchpoint"))
    }

    /// Continues the lcore until it has just written a watched word. Returns false if it does not
    /// within `patience`; the lcore then still runs.
    pub fn run_until_written(&mut self, patience: Duration) -> Result<bool> {
        ptrace::cont(self.thread, None).map_err(LabError::errno("continuing an lcore"))?;
        self.state = State::Running;
        let begun = Instant::now();
        while begun.elapsed() < patience {
            let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
            let status = waitpid(self.thread, Some(flags));
            match status.map_err(LabError::errno("waiting for an lcore"))? {
                WaitStatus::StillAlive => std::thread::sleep(Duration::from_micros(100)),
                status => return self.note(status).map(|()| true),
            }
        }
        Ok(false)
    }

    /// Executes one instruction.
    pub fn step(&mut self) -> Result<()> {
        ptrace::step(self.thread, None).map_err(LabError::errno("stepping an lcore"))?;
        self.wait()
    }

    /// Kills the fastpath while the lcore is stopped at its current instruction.
    pub fn kill(mut self, fastpath: Process) -> Result<()> {
        fastpath.signal(Signal::SIGKILL)?;
        // The kernel reports the end to the parent only after the tracer has taken note of it.
        while self.state != State::Ended {
            self.wait()?;
        }
        fastpath.kill().map(drop)
    }

    /// Waits until the lcore stops or ends.
    fn wait(&mut self) -> Result<()> {
        let status = waitpid(self.thread, Some(WaitPidFlag::__WALL));
        self.note(status.map_err(LabError::errno("waiting for an lcore"))?)
    }

    /// Records whether the lcore has stopped or ended.
    fn note(&mut self, status: WaitStatus) -> Result<()> {
        self.state = match status {
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => State::Ended,
            _ => State::Stopped,
        };
        Ok(())
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        // Only a stopped thread can be detached. A thread that is stopped already reports no
        // second stop, for which this would wait forever.
        if self.state == State::Running {
            let _ = ptrace::interrupt(self.thread).map(|()| self.wait());
        }
        if self.state == State::Stopped {
            let _ = self.poke(7, 0);
            let _ = ptrace::detach(self.thread, None);
        }
    }
}

/// Returns the address at which another process maps the byte of a file that this process maps at
/// `address`.
fn translate(address: u64, process: u32) -> Result<u64> {
    let own = mappings(std::process::id())?;
    let unmapped =
        || LabError::Other(format!("{address:#x} is not in a file that both processes map"));
    let local = own.iter().find(|m| m.start <= address && address < m.end).ok_or_else(unmapped)?;
    let offset = address - local.start + local.offset;
    mappings(process)?
        .iter()
        .find(|m| m.file == local.file && m.offset <= offset && offset < m.offset + m.end - m.start)
        .map(|remote| offset - remote.offset + remote.start)
        .ok_or_else(unmapped)
}

/// A line of `/proc/PID/maps`.
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    /// Device and inode.
    file: String,
}

/// Returns a process's memory mappings.
fn mappings(process: u32) -> Result<Vec<Mapping>> {
    let path = format!("/proc/{process}/maps");
    let text = std::fs::read_to_string(&path).map_err(LabError::io(path))?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let mapping = |line: &str| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (number(start)?, number(end)?);
        let offset = number(fields.nth(1)?)?;
        let file = format!("{} {}", fields.next()?, fields.next()?);
        Some(Mapping { start, end, offset, file })
    };
    Ok(text.lines().filter_map(mapping).collect())
}
