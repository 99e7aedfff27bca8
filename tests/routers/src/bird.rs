//! BIRD, asked by birdc.

use std::sync::Arc;

use nix::sys::signal::Signal;
use tests::lab::Result;
use tests::lab::folder::Folder;
use tests::lab::netns::Netns;

use crate::program::Program;

/// A BIRD of the test's own.
pub struct Bird {
    program: Program,
    folder: Folder,
}

impl Bird {
    /// Starts it with this configuration and waits until it answers; a line that it doesn't know
    /// is an error with BIRD's words.
    pub fn start(ns: &Arc<Netns>, configuration: &str) -> Result<Bird> {
        let folder = Folder::new()?;
        let place = |name: &str| folder.file(name).display().to_string();
        let conf = folder.write("bird.conf", configuration)?.display().to_string();
        // `-d` would log to standard error, whatever the configuration says, and stay; `-f` stays.
        let args = ["-f", "-c", &conf, "-s", &place("bird.ctl"), "-P", &place("bird.pid")];
        let program = Program {
            ns: ns.clone(),
            path: "/usr/sbin/bird",
            package: "bird2",
            by: &[],
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
        self.program.wait_until_up(|| ask(&ns, folder, "show status"))
    }

    /// Starts it again after a kill or a stop; `recovering` as after a restart in which its routes
    /// are to stay with its neighbours (graceful restart).
    pub fn restart(&mut self, recovering: bool) -> Result<()> {
        self.begin(if recovering { &["-R"] } else { &[] })
    }

    /// Asks as an operator would: `show protocols all`.
    pub fn ask(&self, question: &str) -> Result<String> {
        ask(&self.program.ns, &self.folder, question)
    }

    /// Gives it another configuration while it runs.
    pub fn configure(&self, configuration: &str) -> Result<()> {
        self.folder.write("bird.conf", configuration)?;
        self.ask("configure").map(drop)
    }

    /// Ends it without a chance to say anything to its neighbours.
    pub fn kill(&mut self) -> Result<()> {
        self.program.kill()
    }

    /// Asks it to end, and waits.
    pub fn stop(&mut self) -> Result<()> {
        self.program.stop()
    }

    /// Sends it a signal, for example one that makes it stand still.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.program.signal(signal)
    }

    /// All that it wrote.
    pub fn log(&self) -> String {
        self.program.log()
    }
}

fn ask(ns: &Netns, folder: &Folder, question: &str) -> Result<String> {
    let socket = folder.file("bird.ctl").display().to_string();
    let words: Vec<&str> = ["-s", &socket].into_iter().chain(question.split(' ')).collect();
    ns.command("birdc", &words)
}
