//! The arms' addresses and routes: with XDP the NIC itself is the kernel's end of an arm, so that
//! it has what the TAP of the other plane had.
//!
//! What is there already, from DHCP say, stays as it is and stays when the loader detaches. What
//! was added is noted in a file, as the arguments of `ip` that delete it.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use config::checked::Arm;
use netlink::{ChangeError, Netlink, Setting, Verb};

/// What was added to interfaces.
pub struct Added {
    notes: PathBuf,
}

impl Added {
    /// As noted in this file, which need not exist.
    pub fn new(notes: PathBuf) -> Added {
        Added { notes }
    }

    /// Gives the interface the arm's addresses and default routes. An error names the command of
    /// `ip` for what failed.
    pub fn add(&self, netlink: &mut Netlink, interface: &str, arm: &Arm) -> Result<(), String> {
        netlink.set_link(interface, "up", |link| link.up())?;
        let settings = Setting::of_arm(arm, interface);
        settings.iter().try_for_each(|setting| self.apply(netlink, setting))
    }

    /// Adds a setting, and notes how to delete it.
    pub fn apply(&self, netlink: &mut Netlink, setting: &Setting) -> Result<(), String> {
        self.note(netlink.apply(Verb::Add, setting), &setting.command(Verb::Delete))
    }

    /// Deletes what was added to interfaces of these names. What is gone already is no error.
    pub fn remove(&self, netlink: &mut Netlink, of: impl Fn(&str) -> bool) {
        let notes = std::fs::read_to_string(&self.notes).unwrap_or_default();
        let mut kept = String::new();
        for line in notes.lines() {
            if !line.split(' ').next_back().is_some_and(&of) {
                kept += &format!("{line}\n");
            } else if let Some(setting) = Setting::deleted_by(line) {
                let _ = netlink.apply(Verb::Delete, &setting);
            } else if let Some(interface) = line.strip_prefix("link delete dev ") {
                let _ = netlink.delete_link(interface);
            }
        }
        let _ = match kept.as_str() {
            "" => std::fs::remove_file(&self.notes),
            kept => std::fs::write(&self.notes, kept),
        };
    }

    /// Notes the command that deletes what was added. What had been there stays, and is not noted.
    pub fn note(&self, added: Result<(), ChangeError>, delete: &str) -> Result<(), String> {
        match added {
            Err(error) if error.is_there_already() => return Ok(()),
            other => other?,
        }
        let open = File::options().create(true).append(true).open(&self.notes);
        let noted = open.and_then(|mut notes| writeln!(notes, "{delete}"));
        noted.map_err(|e| format!("{}: {e}", self.notes.display()))
    }
}
