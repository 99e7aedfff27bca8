//! Programs under measurement, each in a session of its own.
//!
//! The kernel shares a core among sessions (autogroup), so the nice value of a process has no
//! effect on other sessions: the session's weight is raised instead, and the polling thread's
//! actual share of its core is measured and printed beside every figure.

use crate::meter;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, mem};

/// The format in which a program prints its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// Lines `Mpps <rate>`, one per second: Weir's programs, and the C loop.
    Meter,
    /// testpmd's statistics, one block per port and second: received packets, all ports together.
    Testpmd,
    /// No rate.
    Silent,
}

/// A program to run: its arguments, and how to read its output.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program, then its arguments.
    pub command: Vec<String>,
    /// The format of its rate.
    pub reading: Reading,
}

/// A running program, which is ended on drop.
#[derive(Debug)]
pub struct Running {
    child: Child,
    reading: Reading,
    output: Option<JoinHandle<Vec<String>>>,
    errors: Option<JoinHandle<Vec<String>>>,
    share_start: Option<(Instant, BTreeMap<u32, Duration>)>,
}

/// The output of a program that has ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Million packets per second, one value per second, without the first two, in which caches,
    /// pools and peers settle.
    pub rates: Vec<f64>,
    /// The last lines of the program's output, for diagnosis.
    pub last_lines: Vec<String>,
}

impl Program {
    /// Starts the program.
    ///
    /// # Errors
    /// The system's error if the program is missing.
    pub fn start(&self) -> io::Result<Running> {
        // setsid first, then the new session's weight, then the program, all in one process.
        let raise = "echo -20 > /proc/self/autogroup; exec \"$@\"";
        let mut child = Command::new("setsid")
            .args(["sh", "-c", raise, "sh"])
            .args(&self.command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().map(collect);
        let errors = child.stderr.take().map(collect);
        Ok(Running { child, reading: self.reading, output, errors, share_start: None })
    }
}

/// Reads a pipe to its end on a thread, so that the program never blocks on output.
fn collect(pipe: impl Read + Send + 'static) -> JoinHandle<Vec<String>> {
    thread::spawn(move || {
        BufReader::new(pipe)
            .split(b'\n')
            .map_while(Result::ok)
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .collect()
    })
}

impl Running {
    /// Starts the measurement of the core share.
    pub fn start_core_share(&mut self) {
        self.share_start = Some((Instant::now(), worker_times(self.child.id())));
    }

    /// Returns whether the program is running.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns whether the program ended by itself with a failure, which invalidates its figures.
    pub fn has_failed(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(status)) if !status.success())
    }

    /// Ends the program and returns its output.
    pub fn stop(mut self) -> Outcome {
        self.end();
        let lines = |thread: Option<JoinHandle<Vec<String>>>| {
            thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
        };
        let output = lines(mem::take(&mut self.output));
        let errors = lines(mem::take(&mut self.errors));
        let rates = match self.reading {
            Reading::Meter => output.iter().filter_map(|l| meter::read(l)).skip(2).collect(),
            Reading::Testpmd => testpmd_rates(&output),
            Reading::Silent => Vec::new(),
        };
        let all = output.into_iter().chain(errors).filter(|line| !line.trim().is_empty());
        let all: Vec<String> = all.collect();
        let last_lines = all[all.len().saturating_sub(12)..].to_vec();
        Outcome { rates, last_lines }
    }

    /// Returns the minimum share of a core, 0 to 1, of the program's worker threads since
    /// [`Running::start_core_share`]; 0 if the program has ended.
    pub fn share(&self) -> f64 {
        let Some((then, before)) = &self.share_start else {
            return 0.0;
        };
        let passed = then.elapsed().as_secs_f64();
        let used = worker_times(self.child.id())
            .into_iter()
            .map(|(thread, now)| now.saturating_sub(before.get(&thread).copied().unwrap_or(now)));
        used.min().unwrap_or_default().as_secs_f64() / passed
    }

    /// Sends SIGINT and, after 8 s, SIGKILL.
    fn end(&mut self) {
        let pid = Pid::from_raw(self.child.id() as i32);
        let deadline = Instant::now() + Duration::from_secs(8);
        if self.is_alive() {
            // It may have ended just now; the signal then has no target.
            let _ = kill(pid, Signal::SIGINT);
        }
        while self.is_alive() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        if self.is_alive() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the CPU time that each of a process's DPDK worker threads has used.
fn worker_times(pid: u32) -> BTreeMap<u32, Duration> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return BTreeMap::new();
    };
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let time = |thread: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
        worker_time(&stat).map(|time| (thread, time))
    };
    threads.filter_map(number).filter_map(time).collect()
}

/// Returns user plus system time of a `stat` line of a worker lcore (DPDK names the threads
/// lcore-worker-1, rte-worker-1 or dpdk-worker1, depending on its version).
fn worker_time(stat: &str) -> Option<Duration> {
    /// Linux's USER_HZ on x86.
    const TICKS_PER_SECOND: u64 = 100;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    if !name.contains("worker") {
        return None;
    }
    // The state is the third field of the line and the first of the rest; the times are 14 and
    // 15.
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>().ok()?;
    Some(Duration::from_millis(ticks * (1000 / TICKS_PER_SECOND)))
}

/// Returns the packets that testpmd received on all ports, in millions, second by second.
fn testpmd_rates(lines: &[String]) -> Vec<f64> {
    let mut ports: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut port = None;
    for line in lines {
        if let Some((_, rest)) = line.split_once("NIC statistics for port ") {
            port = rest.split_whitespace().next();
        } else if let (Some(port), Some((_, rest))) = (port, line.split_once("Rx-pps:")) {
            let rate = rest.split_whitespace().next().and_then(|rate| rate.parse::<f64>().ok());
            ports.entry(port).or_default().extend(rate);
        }
    }
    let seconds = ports.values().map(Vec::len).min().unwrap_or(0);
    // testpmd may be stopped between the blocks of two ports, so the shortest list counts.
    (2..seconds).map(|at| ports.values().map(|rates| rates[at]).sum::<f64>() / 1e6).collect()
}

#[cfg(test)]
mod tests;
