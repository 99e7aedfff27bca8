//! The live view of services, backends and drops: redrawn in place on a terminal, plain lines
//! elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use tests::lab::scenario::Progress;
use tests::lab::topology::Lab;

/// The state of the display.
pub struct View {
    live: bool,
    /// Names of the backends' hosts by address.
    names: BTreeMap<String, String>,
    /// Number of lines drawn last, which the next output replaces.
    drawn: usize,
}

impl View {
    /// Creates a view. If `live`, it is redrawn in place, otherwise each progress is a plain line.
    pub fn new(live: bool, lab: &Lab) -> Self {
        let names = lab.hosts.iter().map(|host| (host.address.to_string(), host.name.clone()));
        Self { live, names: names.collect(), drawn: 0 }
    }

    /// Prints the current progress.
    pub fn show(&mut self, progress: &Progress<'_>) {
        let text = if self.live { self.screen(progress) } else { self.line(progress) };
        let mut out = std::io::stdout().lock();
        if self.drawn > 0 {
            // Move the cursor to the first line and clear from there.
            let _ = write!(out, "\x1b[{}A\x1b[J", self.drawn);
        }
        // A closed output pipe does not end the demo.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.drawn = if self.live { text.lines().count() } else { 0 };
    }

    /// Leaves the last progress on the screen, so that further output follows it.
    pub fn end(&mut self) {
        self.drawn = 0;
    }

    fn name(&self, address: &str) -> String {
        self.names.get(address).cloned().unwrap_or_else(|| address.to_owned())
    }

    fn screen(&self, progress: &Progress<'_>) -> String {
        let mut text = String::new();
        let seconds = progress.elapsed.as_secs_f32();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{seconds:5.1} s  {}\n", progress.step);
        let _ = writeln!(
            text,
            "  {:<14}{:>9}{:>9}{:>13}{:>8}",
            "client", "correct", "failed", "connections", "moved"
        );
        for (name, stats) in &progress.clients {
            let _ = writeln!(
                text,
                "  {name:<14}{:>9}{:>9}{:>13}{:>8}",
                stats.right, stats.failed, stats.connections, stats.moved
            );
        }
        for service in &progress.services {
            let _ = writeln!(
                text,
                "\n  service {}: {} packets, {} drops",
                service.name, service.packets, service.drops
            );
            let _ = writeln!(
                text,
                "  {:<14}{:<14}{:>9}{:>9}{:>11}",
                "backend", "state", "flows", "new", "packets"
            );
            for backend in &service.backends {
                let _ = writeln!(
                    text,
                    "  {:<14}{:<14}{:>9}{:>9}{:>11}",
                    self.name(&backend.address),
                    backend.state,
                    backend.flows,
                    backend.new_flows,
                    backend.packets
                );
            }
        }
        let gateway = &progress.gateway;
        let wrong: u64 = gateway.failures.values().map(|failure| failure.count).sum();
        let (sent, returned, answered) = (gateway.sent, gateway.returned, gateway.answered);
        let _ = writeln!(
            text,
            "\n  AWS gateway: {sent} packets sent, {returned} returned, {answered} answered,\n  \
             {wrong} wrong; {} cookie changes, {} node changes",
            gateway.cookies_changed, gateway.nodes_changed
        );
        let _ = writeln!(text, "  drops: {}", drops(progress));
        text
    }

    fn line(&self, progress: &Progress<'_>) -> String {
        let mut text = format!("{:5.1} s  {}:", progress.elapsed.as_secs_f32(), progress.step);
        for (name, stats) in &progress.clients {
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

fn drops(progress: &Progress<'_>) -> String {
    let drops: Vec<String> = progress
        .drops
        .iter()
        .map(|drop| format!("{} {} ({})", drop.packets, drop.reason, drop.arm))
        .collect();
    if drops.is_empty() { "none".into() } else { drops.join(", ") }
}
