//! A container with systemd as its first process, in an existing network namespace
//! (`systemd-nspawn`).

#![forbid(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use patience::{check, poll};

/// The result of a step; the error names the failed step and its cause.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The time limit of booting, of shutting down, and of [`Container::until`].
const TIMEOUT: Duration = Duration::from_secs(60);

/// A booted container. It is killed when it is dropped.
pub struct Container {
    nspawn: Child,
    root: PathBuf,
    /// Process ID of its systemd.
    leader: String,
}

impl Container {
    /// Boots the system at `root` with further arguments of nspawn, and waits until all units of
    /// the boot have started or failed.
    ///
    /// # Errors
    /// The error contains what was printed during the boot.
    pub fn boot(root: &Path, network_namespace: &str, arguments: &[String]) -> Result<Self> {
        let log = File::create(console(root))?;
        // If the test is killed, nspawn gets SIGTERM and shuts the container down: SIGKILL would
        // leave it running. Without registration nspawn needs no machined. The device nodes of
        // nspawn include /dev/net/tun.
        let nspawn = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--", "systemd-nspawn", "--quiet", "--register=no"])
            .args(["--keep-unit", "--boot", "--console=pipe", "--link-journal=no", "--directory"])
            .arg(root)
            .arg(format!("--network-namespace-path={network_namespace}"))
            // DPDK looks for the module vfio in it, and does not start without the directory.
            .arg("--bind-ro=/sys/module")
            .args(arguments)
            // systemd 256 and later refuse the cgroup hierarchy v1, which this machine may have.
            .env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1")
            .env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "network")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|e| format!("setpriv systemd-nspawn: {e}; run: make setup"))?;
        let mut container = Self { nspawn, root: root.to_owned(), leader: String::new() };
        let booted = poll("a booted system", TIMEOUT, || {
            if let Ok(Some(status)) = container.nspawn.try_wait() {
                return Ok(Err(format!("systemd-nspawn ended: {status}")));
            }
            let children = container.children().map_err(|e| e.to_string())?;
            let leader = children.into_iter().find(|pid| has_booted(pid, root));
            container.leader = leader.ok_or("no systemd that accepts commands")?;
            let output = container.output("systemctl is-system-running");
            let output = output.map_err(|e| e.to_string())?;
            let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            check(matches!(&*state, "running" | "degraded"), || format!("{output:?}")).map(Ok)
        });
        let booted = booted.map_err(|e| e.to_string()).and_then(|result| result);
        booted.map_err(|e| format!("{e}\n{}", container.console()))?;
        Ok(container)
    }

    /// Returns the process IDs of nspawn's children.
    fn children(&self) -> Result<Vec<String>> {
        let pid = self.nspawn.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        Ok(children.split_whitespace().map(str::to_owned).collect())
    }

    /// Runs a shell command as root for at most 300 s, and returns its output whether it succeeds
    /// or not.
    ///
    /// # Errors
    /// The command could not be started.
    pub fn output(&self, command: &str) -> Result<Output> {
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let output = Command::new("nsenter")
            .args(["--target", &self.leader, "--all", "--root", "--wd", "--"])
            .args(["timeout", "300", "env", "--chdir=/root", "-i", path, "HOME=/root"])
            .args(["LANG=C.UTF-8", "bash", "-c", command])
            .stdin(Stdio::null())
            .output()?;
        Ok(output)
    }

    /// Runs a shell command, which must succeed, and returns what it printed.
    ///
    /// # Errors
    /// The error contains the command's output.
    pub fn run(&self, command: &str) -> Result<String> {
        let output = self.output(command)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text + &String::from_utf8_lossy(&output.stderr));
        }
        let error = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{command}` failed ({}): {text}{error}", output.status).into())
    }

    /// Runs `systemctl` with these arguments.
    ///
    /// # Errors
    /// The error contains the end of the journal.
    pub fn systemctl(&self, arguments: &str) -> Result<String> {
        let done = self.run(&format!("systemctl --no-pager {arguments}"));
        done.map_err(|e| format!("{e}\n{}", self.journal()).into())
    }

    /// Waits until a shell command succeeds, and returns what it printed.
    ///
    /// # Errors
    /// The error contains the command's last output and the end of the journal.
    pub fn until(&self, command: &str) -> Result<String> {
        let done = poll(&format!("`{command}` to succeed"), TIMEOUT, || {
            self.run(command).map_err(|e| e.to_string())
        });
        done.map_err(|e| format!("{e}\n{}", self.journal()).into())
    }

    /// Returns a property of a unit, such as `MainPID`.
    ///
    /// # Errors
    /// systemctl failed. A unit that does not exist has default values, such as `inactive`.
    pub fn property(&self, unit: &str, name: &str) -> Result<String> {
        let show = format!("show --value --property {name} {unit}");
        Ok(self.systemctl(&show)?.trim().to_owned())
    }

    /// Returns the process ID, as this machine sees it, of a process of the container.
    ///
    /// # Errors
    /// There is no such process.
    pub fn host_process(&self, pid: &str) -> Result<u32> {
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let of_container = namespace(&self.leader).ok_or("the container has ended")?;
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            // The last number is that of the innermost namespace.
            let is_pid = numbers.and_then(|all| all.split_whitespace().last()) == Some(pid);
            if is_pid && namespace(&name).as_ref() == Some(&of_container) {
                return Ok(name.parse()?);
            }
        }
        Err(format!("the container has no process {pid}").into())
    }

    /// Returns a line of `/proc/PID/status` of a unit's main process, without its name.
    ///
    /// # Errors
    /// The unit does not run, or there is no such line.
    pub fn process_status(&self, unit: &str, name: &str) -> Result<String> {
        let pid = self.property(unit, "MainPID")?;
        let text = self.run(&format!("cat /proc/{pid}/status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(line.ok_or_else(|| format!("{unit}: no {name} in {text}"))?.trim().to_owned())
    }

    /// Returns the end of the journal, for a message about a failure.
    pub fn journal(&self) -> String {
        let journal = self.run("journalctl --no-pager --lines 60; systemctl --failed");
        journal.unwrap_or_else(|error| error.to_string())
    }

    /// Returns what was printed during the boot.
    pub fn console(&self) -> String {
        std::fs::read_to_string(console(&self.root)).unwrap_or_else(|error| error.to_string())
    }

    /// Shuts the system down by `systemctl poweroff`, and waits until the container has ended.
    ///
    /// # Errors
    /// The container does not end in time.
    pub fn shut_down(mut self) -> Result {
        self.run("systemctl poweroff")?;
        poll("the end of the container", TIMEOUT, || {
            let ended = self.nspawn.try_wait().map_err(|e| e.to_string())?;
            check(ended.is_some(), || "it runs".to_owned())
        })?;
        Ok(())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // All processes of the container end with its first one. If that has already ended, killing
        // it fails, which is no error.
        if self.nspawn.try_wait().is_ok_and(|ended| ended.is_none()) {
            for process in self.children().unwrap_or_default() {
                let _ = Command::new("kill").args(["-KILL", &process]).status();
            }
            let _ = self.nspawn.kill();
            let _ = self.nspawn.wait();
        }
        let _ = std::fs::remove_file(console(&self.root));
    }
}

/// Returns the file for what is printed during the boot.
fn console(root: &Path) -> PathBuf {
    root.with_extension("console")
}

/// Returns whether a process has this root directory, with a systemd that accepts commands. For a
/// moment nspawn has another child, which starts the container's first process.
fn has_booted(pid: &str, root: &Path) -> bool {
    let inode = |path: &Path| path.metadata().map(|folder| (folder.dev(), folder.ino())).ok();
    let theirs = PathBuf::from(format!("/proc/{pid}/root"));
    inode(&theirs).is_some_and(|found| inode(root) == Some(found))
        && theirs.join("run/systemd/private").exists()
}
