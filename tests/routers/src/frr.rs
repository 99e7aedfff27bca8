//! FRR: one process per daemon, one configuration, controlled by vtysh.

use std::collections::BTreeMap;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::sync::Arc;

use nix::sys::signal::Signal;
use nix::unistd::User;
use serde_json::Value;
use tests::lab::folder::Folder;
use tests::lab::netns::Netns;
use tests::lab::{LabError, Result};

use crate::program::Program;

/// The user as which Debian runs FRR's daemons.
const USER: &str = "frr";

/// The command that starts a daemon as [`USER`], with the capabilities that it needs. A daemon that
/// starts as root drops its privileges, which clears the parent-death signal.
const AS_USER: &[&str] = &[
    "setpriv",
    "--reuid=frr",
    "--regid=frr",
    "--groups=frr,frrvty",
    "--inh-caps=-all,+net_admin,+net_raw,+net_bind_service,+sys_admin",
    "--ambient-caps=-all,+net_admin,+net_raw,+net_bind_service,+sys_admin",
    "--pdeathsig=KILL",
    "--",
];

/// One of FRR's daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    /// Interfaces and kernel routes; always runs, since the others need it.
    Zebra,
    /// BGP.
    Bgpd,
    /// BFD.
    Bfdd,
    /// Static routes: without it, `ip route` and `ipv6 route` are accepted without an effect.
    Staticd,
}

impl Daemon {
    fn name(self) -> &'static str {
        match self {
            Daemon::Zebra => "zebra",
            Daemon::Bgpd => "bgpd",
            Daemon::Bfdd => "bfdd",
            Daemon::Staticd => "staticd",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Daemon::Zebra => "/usr/lib/frr/zebra",
            Daemon::Bgpd => "/usr/lib/frr/bgpd",
            Daemon::Bfdd => "/usr/lib/frr/bfdd",
            Daemon::Staticd => "/usr/lib/frr/staticd",
        }
    }
}

/// An FRR instance, whose daemons end when the value is dropped.
pub struct Frr {
    ns: Arc<Netns>,
    daemons: BTreeMap<Daemon, Program>,
    folder: Folder,
}

impl Frr {
    /// Starts zebra and these daemons, and applies their configuration. An invalid line is an
    /// error with FRR's message.
    pub fn start(ns: &Arc<Netns>, daemons: &[Daemon], configuration: &str) -> Result<Frr> {
        let folder = Folder::new()?;
        let own = folder.file("frr");
        let missing = || LabError::NoProgram { program: "FRR".into(), package: "frr" };
        let user = User::from_name(USER).map_err(LabError::errno("looking up FRR's user"))?;
        let user = user.ok_or_else(missing)?;
        std::fs::create_dir(&own)
            .and_then(|()| chown(&own, Some(user.uid.as_raw()), Some(user.gid.as_raw())))
            .map_err(LabError::io(format!("creating {}", own.display())))?;
        folder.write("frr.conf", configuration)?;
        let mut frr = Frr { ns: ns.clone(), daemons: BTreeMap::new(), folder };
        let mut started = vec![Daemon::Zebra];
        started.extend(daemons.iter().filter(|daemon| **daemon != Daemon::Zebra));
        for daemon in started {
            let program = frr.program(daemon);
            frr.daemons.insert(daemon, program);
            frr.begin(daemon)?;
        }
        frr.vtysh(&["--inputfile", &frr.configuration()])?;
        Ok(frr)
    }

    fn program(&self, daemon: Daemon) -> Program {
        let (name, own) = (daemon.name(), self.own());
        let mut args = vec![
            // The configuration is applied by vtysh; this file need not exist.
            format!("--config_file={own}/{name}.conf"),
            format!("--pid_file={own}/{name}.pid"),
            format!("--socket={own}/zserv.api"),
            format!("--vty_socket={own}"),
            "--vty_port=0".to_owned(),
            "--log=stdout".to_owned(),
        ];
        if daemon == Daemon::Zebra {
            // An IPv6 route that is announced again is replaced in the kernel, as IPv4 routes
            // are. Without this option zebra removes it and adds it again.
            args.push("--v6-rr-semantics".to_owned());
        }
        if daemon == Daemon::Bfdd {
            args.push(format!("--bfdctl={own}/bfdd.sock"));
        }
        let log = self.folder.file(&format!("{name}.log"));
        let (path, package) = (daemon.path(), "frr");
        Program { ns: self.ns.clone(), path, package, wrapper: AS_USER, args, log, process: None }
    }

    /// Returns the directory that FRR's user owns, with sockets and process ids.
    fn own(&self) -> String {
        self.folder.file("frr").display().to_string()
    }

    fn configuration(&self) -> String {
        self.folder.file("frr.conf").display().to_string()
    }

    fn vtysh(&self, more: &[&str]) -> Result<String> {
        let own = self.own();
        // Without its own history file, vtysh would write to root's home directory.
        let options = [format!("--vty_socket={own}"), format!("--histfile={own}/history")];
        self.ns.command("vtysh", &[&options.each_ref().map(String::as_str), more].concat())
    }

    /// Starts a daemon and waits until it responds.
    fn begin(&mut self, daemon: Daemon) -> Result<()> {
        let mut program = self.daemons.remove(&daemon).unwrap_or_else(|| self.program(daemon));
        let begun = program.start(&[]).and_then(|()| {
            let arguments = ["--daemon", daemon.name(), "--command", "show version"];
            program.wait_until_up(|| self.vtysh(&arguments))
        });
        self.daemons.insert(daemon, program);
        begun
    }

    /// Starts a daemon that was killed or stopped, with the initial configuration.
    pub fn restart(&mut self, daemon: Daemon) -> Result<()> {
        self.begin(daemon)?;
        let configuration = self.configuration();
        self.vtysh(&["--daemon", daemon.name(), "--inputfile", &configuration]).map(drop)
    }

    /// Runs a vtysh command, for example `show bgp summary`.
    pub fn query(&self, command: &str) -> Result<String> {
        self.vtysh(&["--command", command])
    }

    /// Runs a command with `json` appended, and parses the result.
    pub fn json(&self, command: &str) -> Result<Value> {
        let output = self.query(&format!("{command} json"))?;
        serde_json::from_str(&output)
            .map_err(|e| LabError::Other(format!("`{command} json` of FRR: {e} in: {output}")))
    }

    /// Returns whether both sides of a session have sent all routes of each family (End-of-RIB, RFC
    /// 4724) and bgpd has nothing left to send, and the fields of bgpd's output that say so. FRR's
    /// own End-of-RIB follows about a second after the session is established.
    pub fn exchanged(&self, neighbor: &str) -> Result<(bool, String)> {
        let shown = self.json(&format!("show bgp neighbors {neighbor}"))?;
        let shown = &shown[neighbor];
        let (ends, waiting) = (&shown["gracefulRestartInfo"], &shown["messageStats"]["depthOutq"]);
        let families = shown["addressFamilyInfo"].as_object();
        let ended = |family: &String| {
            ["endOfRibSend", "endOfRibRecv"].iter().all(|direction| ends[direction][family] == true)
        };
        let all = families.is_some_and(|all| !all.is_empty() && all.keys().all(ended));
        Ok((all && *waiting == 0, format!("{ends}; messages to send: {waiting}")))
    }

    /// Runs these lines after `configure terminal`.
    pub fn configure(&self, lines: &[&str]) -> Result<()> {
        let lines = ["configure terminal"].iter().chain(lines);
        let arguments: Vec<&str> = lines.flat_map(|line| ["--command", line]).collect();
        self.vtysh(&arguments).map(drop)
    }

    /// Kills a daemon with SIGKILL, so that it cannot notify its neighbors.
    pub fn kill(&mut self, daemon: Daemon) -> Result<()> {
        kill(daemon, self.daemon(daemon)?)
    }

    /// Stops a daemon and waits for its end.
    pub fn stop(&mut self, daemon: Daemon) -> Result<()> {
        self.daemon(daemon)?.stop()
    }

    /// Sends a signal to a daemon, for example SIGSTOP.
    pub fn signal(&mut self, daemon: Daemon, signal: Signal) -> Result<()> {
        self.daemon(daemon)?.signal(signal)
    }

    /// Returns the complete log of a daemon.
    pub fn log(&self, daemon: Daemon) -> String {
        self.daemons.get(&daemon).map(Program::log).unwrap_or_default()
    }

    fn daemon(&mut self, daemon: Daemon) -> Result<&mut Program> {
        let missing = || LabError::Other(format!("this FRR was started without {daemon:?}"));
        self.daemons.get_mut(&daemon).ok_or_else(missing)
    }
}

/// Kills a daemon, and removes its crash log directory in `/var/tmp/frr`, which a killed daemon
/// leaves behind.
fn kill(daemon: Daemon, program: &mut Program) -> Result<()> {
    let number = program.process.as_ref().map(|process| process.id());
    program.kill()?;
    let crash_log = number.map(|n| PathBuf::from(format!("/var/tmp/frr/{}.{n}", daemon.name())));
    // Fails for a daemon that ended before it created the directory.
    let _ = crash_log.map(std::fs::remove_dir_all);
    Ok(())
}

impl Drop for Frr {
    fn drop(&mut self) {
        for (daemon, program) in &mut self.daemons {
            // Errors cannot be reported in drop.
            let _ = kill(*daemon, program);
        }
    }
}
