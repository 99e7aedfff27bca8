//! BIRD, controlled by birdc.

use std::sync::Arc;

use nix::sys::signal::Signal;
use tests::lab::Result;
use tests::lab::folder::Folder;
use tests::lab::netns::Netns;

use crate::program::Program;

/// A BIRD instance, which ends when the value is dropped.
pub struct Bird {
    program: Program,
    folder: Folder,
}

impl Bird {
    /// Starts BIRD with this configuration and waits until it responds; an invalid line is an
    /// error with BIRD's message.
    pub fn start(ns: &Arc<Netns>, configuration: &str) -> Result<Bird> {
        let folder = Folder::new()?;
        let path = |name: &str| folder.file(name).display().to_string();
        let conf = folder.write("bird.conf", configuration)?.display().to_string();
        // `-d` would log to standard error regardless of the configuration; `-f` stays in the
        // foreground.
        let args = ["-f", "-c", &conf, "-s", &path("bird.ctl"), "-P", &path("bird.pid")];
        let program = Program {
            ns: ns.clone(),
            path: "/usr/sbin/bird",
            package: "bird2",
            wrapper: &[],
            args: args.map(str::to_owned).to_vec(),
            log: folder.file("bird.log"),
            process: None,
        };
        let mut bird = Bird { program, folder };
        bird.begin(&[])?;
        Ok(bird)
    }

    fn begin(&mut self, more: &[&str]) -> Result<()> {
        self.program.start(more)?;
        let (ns, folder) = (self.program.ns.clone(), &self.folder);
        self.program.wait_until_up(|| query(&ns, folder, "show status"))
    }

    /// Starts BIRD again after a kill or a stop, without graceful restart.
    pub fn restart(&mut self) -> Result<()> {
        self.begin(&[])
    }

    /// Starts BIRD again after a kill or a stop, with graceful restart: its OPENs have the R bit,
    /// so that neighbors keep its routes until it has announced them again.
    pub fn restart_gracefully(&mut self) -> Result<()> {
        self.begin(&["-R"])
    }

    /// Runs a birdc command, for example `show protocols all`.
    pub fn query(&self, command: &str) -> Result<String> {
        query(&self.program.ns, &self.folder, command)
    }

    /// Applies another configuration at run time.
    pub fn configure(&self, configuration: &str) -> Result<()> {
        self.folder.write("bird.conf", configuration)?;
        self.query("configure").map(drop)
    }

    /// Kills BIRD with SIGKILL, so that it cannot notify its neighbors.
    pub fn kill(&mut self) -> Result<()> {
        self.program.kill()
    }

    /// Stops BIRD and waits for its end.
    pub fn stop(&mut self) -> Result<()> {
        self.program.stop()
    }

    /// Sends a signal, for example SIGSTOP.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.program.signal(signal)
    }

    /// Returns BIRD's complete log.
    pub fn log(&self) -> String {
        self.program.log()
    }
}

fn query(ns: &Netns, folder: &Folder, command: &str) -> Result<String> {
    let socket = folder.file("bird.ctl").display().to_string();
    let arguments: Vec<&str> = ["-s", &socket].into_iter().chain(command.split(' ')).collect();
    ns.command("birdc", &arguments)
}
