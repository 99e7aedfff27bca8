//! GoBGP, controlled by gobgp.

use std::sync::Arc;

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::lab::folder::Folder;
use tests::lab::netns::Netns;
use tests::lab::{LabError, Result};

use crate::program::Program;

/// A GoBGP instance, which ends when the value is dropped.
pub struct Gobgp {
    program: Program,
    folder: Folder,
}

impl Gobgp {
    /// Starts GoBGP with this configuration (TOML) and waits until it responds.
    pub fn start(ns: &Arc<Netns>, configuration: &str) -> Result<Gobgp> {
        let folder = Folder::new()?;
        let conf = folder.write("gobgp.toml", configuration)?.display().to_string();
        let hosts = format!("--api-hosts={}", target(&folder));
        let program = Program {
            ns: ns.clone(),
            path: "/usr/bin/gobgpd",
            package: "gobgpd",
            wrapper: &[],
            args: ["-f", &conf, &hosts, "--pprof-disable", "-p"].map(str::to_owned).to_vec(),
            log: folder.file("gobgp.log"),
            process: None,
        };
        let mut gobgp = Gobgp { program, folder };
        gobgp.begin(&[])?;
        Ok(gobgp)
    }

    fn begin(&mut self, more: &[&str]) -> Result<()> {
        if self.program.process.is_none() {
            // A killed instance leaves its socket, which would prevent the next start. Usually
            // there is none, and removing it fails.
            let _ = std::fs::remove_file(self.folder.file("gobgp.sock"));
        }
        self.program.start(more)?;
        let (ns, folder) = (self.program.ns.clone(), &self.folder);
        self.program.wait_until_up(|| query(&ns, folder, &["global"]))
    }

    /// Starts GoBGP again after a kill or a stop, without graceful restart.
    pub fn restart(&mut self) -> Result<()> {
        self.begin(&[])
    }

    /// Starts GoBGP again after a kill or a stop, with graceful restart: its OPENs have the R bit,
    /// so that neighbors keep its routes until it has announced them again.
    pub fn restart_gracefully(&mut self) -> Result<()> {
        self.begin(&["--graceful-restart"])
    }

    /// Runs a gobgp command, for example `["global", "rib", "add", "192.0.2.0/24"]`. For an unknown
    /// command gobgp reports success and prints nothing.
    pub fn query(&self, arguments: &[&str]) -> Result<String> {
        query(&self.program.ns, &self.folder, arguments)
    }

    /// Runs a gobgp command and parses its JSON output.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.query(&[&["--json"], arguments].concat())?;
        serde_json::from_str(&output).map_err(|e| {
            let command = arguments.join(" ");
            LabError::Other(format!("`gobgp {command}`: {e} in: {output}"))
        })
    }

    /// Kills GoBGP with SIGKILL, so that it cannot notify its neighbors.
    pub fn kill(&mut self) -> Result<()> {
        self.program.kill()
    }

    /// Stops GoBGP and waits for its end.
    pub fn stop(&mut self) -> Result<()> {
        self.program.stop()
    }

    /// Sends a signal, for example SIGSTOP.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.program.signal(signal)
    }

    /// Returns GoBGP's complete log.
    pub fn log(&self) -> String {
        self.program.log()
    }
}

/// Returns the address of the API.
fn target(folder: &Folder) -> String {
    format!("unix://{}", folder.file("gobgp.sock").display())
}

fn query(ns: &Netns, folder: &Folder, arguments: &[&str]) -> Result<String> {
    let target = target(folder);
    ns.command("gobgp", &[&["--target", target.as_str()], arguments].concat())
}
