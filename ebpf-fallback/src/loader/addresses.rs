//! The arms' addresses and routes: with XDP the NIC itself is the kernel's end of an arm, so that
//! it has what the TAP of the other plane had.
//!
//! What is there already, from DHCP say, stays as it is and stays when we go. What was added is
//! noted in a file, as the commands that take it off again.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use config::checked::Arm;

/// What was added to interfaces.
pub struct Added {
    notes: PathBuf,
}

impl Added {
    /// As noted in this file, which need not exist.
    pub fn new(notes: PathBuf) -> Added {
        Added { notes }
    }

    /// Gives the interface the arm's addresses and default routes. An error says which command
    /// failed.
    pub fn add(&self, interface: &str, arm: &Arm) -> Result<(), String> {
        ip(&["link", "set", "dev", interface, "up"])?;
        for address in &arm.addresses {
            let text = format!("{}/{}", address.addr, address.len);
            let mut words = vec!["address", "add", &text, "dev", interface];
            if address.addr.is_ipv6() {
                words.push("nodad"); // Duplicate detection would leave it unusable for a second.
            }
            self.note(ip(&words), &["address", "delete", &text, "dev", interface])?;
        }
        for gateway in &arm.gateways {
            let via = gateway.to_string();
            let route = ["default", "via", &via, "dev", interface];
            let [add, delete] =
                ["add", "delete"].map(|what| [&["route", what], &route[..]].concat());
            self.note(ip(&add), &delete)?;
        }
        Ok(())
    }

    /// Takes off what was added to interfaces of these names. What is gone already is no trouble.
    pub fn remove(&self, of: impl Fn(&str) -> bool) {
        let notes = std::fs::read_to_string(&self.notes).unwrap_or_default();
        let mut kept = String::new();
        for line in notes.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.last() {
                Some(interface) if of(interface) => {
                    let _ = ip(&words);
                }
                _ => kept += &format!("{line}\n"),
            }
        }
        let _ = match kept.as_str() {
            "" => std::fs::remove_file(&self.notes),
            kept => std::fs::write(&self.notes, kept),
        };
    }

    /// Notes how to take off what was added; what had been there stays when we go.
    pub fn note(&self, added: Result<(), String>, delete: &[&str]) -> Result<(), String> {
        match added {
            Err(said) if said.contains("File exists") || said.contains("already assigned") => {
                return Ok(());
            }
            other => other?,
        }
        let open = File::options().create(true).append(true).open(&self.notes);
        let noted = open.and_then(|mut notes| writeln!(notes, "{}", delete.join(" ")));
        noted.map_err(|e| format!("{}: {e}", self.notes.display()))
    }
}

/// Runs `ip`; an error says which command failed, and what it said.
pub fn ip(words: &[&str]) -> Result<(), String> {
    let failed = |said: &str| format!("`ip {}` failed: {said}", words.join(" "));
    let output = Command::new("ip").args(words).output();
    let output = output
        .map_err(|e| failed(&format!("{e} (is iproute2 installed? apt-get install iproute2)")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim()))
}
