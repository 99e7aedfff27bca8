//! GoBGP, controlled by gobgp.

use std::sync::Arc;

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::lab::folder::Folder;
use tests::lab::netns::Netns;
use tests::lab::{LabError, Result};

use crate::program::Program;

/// A GoBGP instance of the test.
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
            // A killed instance leaves its socket, which would block the next one. Usually there
            // is none.
            let _ = std::fs::remove_file(self.folder.file("gobgp.sock"));
        }
        self.program.start(more)?;
        let (ns, folder) = (self.program.ns.clone(), &self.folder);
        self.program.wait_until_up(|| query(&ns, folder, &["global"]))
    }

    /// Starts it again after a kill or a stop; with `recovering`, neighbors keep its routes
    /// meanwhile (graceful restart).
    pub fn restart(&mut self, recovering: bool) -> Result<()> {
        self.begin(if recovering { &["--graceful-restart"] } else { &[] })
    }

    /// Runs an operator's command: `["global", "rib", "add", "192.0.2.0/24"]`. For an unknown
    /// command GoBGP reports success and prints nothing.
    pub fn query(&self, arguments: &[&str]) -> Result<String> {
        query(&self.program.ns, &self.folder, arguments)
    }

    /// Runs a command and parses its JSON output.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.query(&[&["--json"], arguments].concat())?;
        serde_json::from_str(&output).map_err(|e| {
            let command = arguments.join(" ");
            LabError::Other(format!("`gobgp {command}`: {e} in: {output}"))
        })
    }

    /// Kills it with SIGKILL, so that it cannot notify its neighbors.
    pub fn kill(&mut self) -> Result<()> {
        self.program.kill()
    }

    /// Stops it and waits for its end.
    pub fn stop(&mut self) -> Result<()> {
        self.program.stop()
    }

    /// Sends a signal, for example SIGSTOP.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.program.signal(signal)
    }

    /// Returns its complete log.
    pub fn log(&self) -> String {
        self.program.log()
    }
}

fn target(folder: &Folder) -> String {
    format!("unix://{}", folder.file("gobgp.sock").display())
}

fn query(ns: &Netns, folder: &Folder, arguments: &[&str]) -> Result<String> {
    let target = target(folder);
    ns.command("gobgp", &[&["--target", target.as_str()], arguments].concat())
}
