//! The live view while the traffic runs: `weir top` on a terminal, plain lines elsewhere.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use tests::lab::process::find;
use tests::lab::scenario::Progress;
use tests::lab::topology::Lab;

/// The running `weir top`.
static TOP: Mutex<Option<Child>> = Mutex::new(None);

/// The state of the display.
pub struct View {
    /// Whether `weir top` shows the progress.
    live: bool,
    /// Whether `weir top` was started.
    started: bool,
    /// Configuration of the lab's appliance.
    config: PathBuf,
    /// File with the current step, which `weir top` shows.
    caption: PathBuf,
    /// Names of the backends' hosts by address.
    names: BTreeMap<String, String>,
}

impl View {
    /// Creates a view: `weir top` if `live`, otherwise a plain line for each report of progress.
    pub fn new(live: bool, lab: &Lab) -> Self {
        let names = lab.hosts.iter().map(|host| (host.address.to_string(), host.name.clone()));
        let (config, caption) = (lab.folder.file("weir.toml"), lab.folder.file("step"));
        Self { live, started: false, config, caption, names: names.collect() }
    }

    /// Shows the current progress.
    pub fn show(&mut self, progress: &Progress<'_>) {
        if self.live {
            self.live = self.write_caption(progress).is_ok() && self.run_top();
        }
        if !self.live {
            // A closed output pipe does not end the demo.
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(self.line(progress).as_bytes()).and_then(|()| out.flush());
        }
    }

    /// Replaces the step that `weir top` shows.
    fn write_caption(&self, progress: &Progress<'_>) -> std::io::Result<()> {
        let sum = |of: fn(&tests::lab::client::ClientStats) -> u64| -> u64 {
            progress.clients.iter().map(|(_, stats)| of(stats)).sum()
        };
        let (right, failed) = (sum(|stats| stats.right), sum(|stats| stats.failed));
        let (seconds, step) = (progress.elapsed.as_secs_f32(), progress.step);
        let new = self.caption.with_extension("new");
        std::fs::write(
            &new,
            format!("demo, {seconds:.0} s: {step}; {right} requests correct, {failed} failed\n"),
        )?;
        std::fs::rename(new, &self.caption)
    }

    /// Starts `weir top` the first time. Returns whether it runs; plain lines follow if not, for
    /// example because the operator ended it with q.
    fn run_top(&mut self) -> bool {
        let mut top = TOP.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut self.started, true) {
            let Ok(program) = find("weir", "cli") else { return false };
            let mut command = Command::new(program);
            command.arg("--config").arg(&self.config).args(["top", "--every", "0.5", "--caption"]);
            *top = command.arg(&self.caption).stderr(Stdio::null()).spawn().ok();
        }
        match top.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => true,
            _ => {
                *top = None;
                false
            }
        }
    }

    /// Ends the live view, so that output follows on the restored terminal.
    pub fn end(&mut self) {
        end_top();
    }

    fn name(&self, address: &str) -> String {
        self.names.get(address).cloned().unwrap_or_else(|| address.to_owned())
    }

    fn line(&self, progress: &Progress<'_>) -> String {
        let mut text = format!("{:5.1} s  {}:", progress.elapsed.as_secs_f32(), progress.step);
        for (name, stats) in &progress.clients {
            // Writing to a string does not fail.
            let _ = write!(text, " {name} {}/{}", stats.right, stats.failed);
        }
        text.push_str(" (correct/failed);");
        for backend in progress.services.iter().flat_map(|service| &service.backends) {
            let (name, flows) = (self.name(&backend.address), backend.flows);
            let _ = write!(
                text,
                " {name} {} {flows} flows {} packets;",
                backend.state, backend.packets
            );
        }
        let _ = writeln!(text, " drops: {}", drops(progress));
        text
    }
}

/// Ends `weir top` if it runs, and waits until it has restored the terminal.
pub fn end_top() {
    let top = TOP.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(mut top) = top {
        // It may have ended; then there is nothing to restore.
        let _ = kill(Pid::from_raw(top.id() as i32), Signal::SIGTERM);
        let _ = top.wait();
    }
}

fn drops(progress: &Progress<'_>) -> String {
    let drops: Vec<String> = progress
        .drops
        .iter()
        .map(|drop| format!("{} {} ({})", drop.packets, drop.reason, drop.arm))
        .collect();
    if drops.is_empty() { "none".into() } else { drops.join(", ") }
}
