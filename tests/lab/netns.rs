//! A network namespace that is cleaned up automatically.
//!
//! The namespace has no name in `/run/netns`. A thread of this process holds it. It disappears,
//! with its devices, when its last thread, child and open file are gone, also if the lab is killed
//! with SIGKILL. The holding thread starts commands and children, because a child inherits the
//! namespace of the thread that starts it.

use super::error::{LabError, Result};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// One namespace and the thread that holds it.
pub struct Netns {
    name: String,
    file: Arc<File>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Netns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netns").field("name", &self.name).field("path", &self.path()).finish()
    }
}

/// Returns an error with the remedy unless the process is root.
pub fn need_root() -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(LabError::NotRoot { program: std::env::args().collect::<Vec<_>>().join(" ") })
}

impl Netns {
    /// Creates a namespace in which only `lo` exists, and is up. IPv6 is disabled on every device
    /// unless enabled by [`Netns::sysctl`], because the packets that the kernel itself sends over
    /// IPv6 would disturb the lab's counts.
    pub fn new(name: &str) -> Result<Self> {
        need_root()?;
        let (ready, made) = channel();
        let (jobs, queue) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name(format!("ns-{name}"))
            .spawn(move || {
                let opened = unshare(CloneFlags::CLONE_NEWNET)
                    .map_err(std::io::Error::from)
                    .and_then(|()| File::open("/proc/thread-self/ns/net"));
                let failed = opened.is_err();
                if ready.send(opened).is_err() || failed {
                    return;
                }
                queue.into_iter().for_each(|job| job());
            })
            .map_err(LabError::io(format!("starting the thread of namespace {name}")))?;
        let file = made
            .recv()
            .map_err(|_| LabError::Other(format!("the thread of namespace {name} ended")))?
            .map_err(LabError::io(format!("creating network namespace {name}")))?;
        let this = Self {
            name: name.to_owned(),
            file: Arc::new(file),
            jobs: Some(jobs),
            thread: Some(thread),
        };
        this.sysctl("ipv6/conf/all/disable_ipv6", "1")?;
        this.sysctl("ipv6/conf/default/disable_ipv6", "1")?;
        this.ip(&["link set lo up"])?;
        Ok(this)
    }

    /// Returns the name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a path that other programs can open while this process lives: `nsenter
    /// --net=PATH`, and `ip link add ... netns PATH`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Runs `work` on the thread that holds the namespace, and waits for the result.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (done, result) = channel();
        let job: Job = Box::new(move || {
            // Sending fails only if the waiting thread has panicked.
            let _ = done.send(work());
        });
        let gone = || LabError::Other(format!("the thread of namespace {} ended", self.name));
        self.jobs.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())
    }

    /// Starts a thread in this namespace.
    pub fn thread<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let (file, location) = (self.file.clone(), self.name.clone());
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                setns(&*file, CloneFlags::CLONE_NEWNET)
                    .map_err(LabError::errno(format!("entering namespace {location}")))?;
                Ok(work())
            })
            .map_err(LabError::io(format!("starting thread {name}")))
    }

    /// Runs a command to its end and returns its standard output.
    pub fn command(&self, program: &str, args: &[&str]) -> Result<String> {
        self.command_with_input(program, args, "")
    }

    /// Runs a command with `input` on its standard input.
    pub fn command_with_input(&self, program: &str, args: &[&str], input: &str) -> Result<String> {
        let location = self.name.clone();
        let (program, input) = (program.to_owned(), input.to_owned());
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        self.run(move || complete(&location, &program, &args, &input))?
    }

    /// Runs several lines of `ip` as one batch: `ns.ip(&["link set v0 up", "route add ..."])`.
    pub fn ip(&self, lines: &[&str]) -> Result<()> {
        let input = lines.join("\n") + "\n";
        let done = self.command_with_input("ip", &["-batch", "-"], &input);
        done.map(drop).map_err(|e| match e {
            LabError::Command { location, status, stderr, .. } => {
                // `ip` reports only the number of the line: "Command failed -:2".
                let line = stderr.rsplit("-:").next().and_then(|n| n.trim().parse::<usize>().ok());
                let typed = line.and_then(|n| lines.get(n - 1)).copied().unwrap_or("-batch -");
                LabError::Command { location, status, stderr, command: format!("ip {typed}") }
            }
            other => other,
        })
    }

    /// Sets `/proc/sys/net/KEY` in this namespace.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{key}");
        let value = value.to_owned();
        self.run(move || {
            std::fs::write(&path, &value).map_err(LabError::io(format!("{path} = {value}")))
        })?
    }

    /// Starts a child in this namespace that ends with this process: through `setpriv` the kernel
    /// sends SIGKILL to the child when the holding thread ends, so that even a killed lab leaves no
    /// polling lcore behind.
    pub fn spawn(
        &self,
        program: &str,
        args: &[String],
        environment: &[(String, String)],
        log: File,
    ) -> Result<Child> {
        let mut command = Command::new("setpriv");
        command.envs(environment.iter().cloned());
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(args).stdin(Stdio::null());
        let copy = log.try_clone().map_err(LabError::io("opening the log file of a child"))?;
        command.stdout(Stdio::from(log)).stderr(Stdio::from(copy));
        let child = self.run(move || command.spawn())?;
        child.map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                LabError::NoProgram { program: "setpriv".into(), package: "util-linux" }
            }
            _ => LabError::Io { what: format!("starting {program}"), source },
        })
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in a job was already printed by its thread.
            let _ = thread.join();
        }
    }
}

/// Returns the Debian package that contains a program of the lab.
fn package(program: &str) -> &'static str {
    match program {
        "ip" => "iproute2",
        "nft" => "nftables",
        "ethtool" => "ethtool",
        "tshark" => "tshark",
        "dumpcap" => "wireshark-common",
        "vtysh" => "frr",
        "birdc" => "bird2",
        "gobgp" => "gobgpd",
        "curl" => "curl",
        _ => "util-linux",
    }
}

/// Runs a command to its end in the calling thread's namespace; `location` names the namespace in
/// errors.
pub fn complete(location: &str, program: &str, args: &[String], input: &str) -> Result<String> {
    let command = format!("{program} {}", args.join(" "));
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                LabError::NoProgram { program: program.to_owned(), package: package(program) }
            }
            _ => LabError::Io { what: command.clone(), source },
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that ends without reading reports the reason by its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(LabError::io(command.clone()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(LabError::Command {
        location: location.to_owned(),
        command,
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
