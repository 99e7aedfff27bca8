//! Addresses and routes of the arms. With XDP, the NIC itself is the kernel's interface for an arm,
//! and gets the settings that the TAP has on the DPDK plane.
//!
//! Settings that exist already, for example from DHCP, are not changed, and are kept when the
//! loader detaches. Added settings are recorded in a file, as the arguments of `ip` that delete
//! them.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use config::checked::Arm;
use netlink::{ChangeError, Netlink, Setting, Verb};

/// The record of settings that Weir added to interfaces.
pub struct AddedSettings {
    record: PathBuf,
}

impl AddedSettings {
    /// Uses the file `record`, which need not exist.
    pub fn new(record: PathBuf) -> AddedSettings {
        AddedSettings { record }
    }

    /// Brings the interface up, and adds the arm's addresses and default routes to it. An error
    /// names the `ip` command that failed, or the file of the record.
    pub fn add(&self, netlink: &mut Netlink, interface: &str, arm: &Arm) -> Result<(), String> {
        netlink.set_link(interface, "up", |link| link.up())?;
        let settings = Setting::of_arm(arm, interface);
        settings.iter().try_for_each(|setting| self.apply(netlink, setting))
    }

    /// Adds a setting, and records the command that deletes it.
    pub fn apply(&self, netlink: &mut Netlink, setting: &Setting) -> Result<(), String> {
        self.record_added(netlink.apply(Verb::Add, setting), &setting.command(Verb::Delete))
    }

    /// Deletes the recorded settings of interfaces for which `selects` returns true, and their
    /// records. Errors are ignored, since a setting may no longer exist.
    pub fn remove(&self, netlink: &mut Netlink, selects: impl Fn(&str) -> bool) {
        let record = std::fs::read_to_string(&self.record).unwrap_or_default();
        let mut remaining = String::new();
        for line in record.lines() {
            if !line.split(' ').next_back().is_some_and(&selects) {
                remaining += &format!("{line}\n");
            } else if let Some(setting) = Setting::deleted_by(line) {
                let _ = netlink.apply(Verb::Delete, &setting);
            } else if let Some(interface) = line.strip_prefix("link delete dev ") {
                let _ = netlink.delete_link(interface);
            }
        }
        let _ = match remaining.as_str() {
            "" => std::fs::remove_file(&self.record),
            remaining => std::fs::write(&self.record, remaining),
        };
    }

    /// Records the command that deletes a setting, if it was added. A setting that existed before
    /// is kept and not recorded.
    pub fn record_added(&self, added: Result<(), ChangeError>, delete: &str) -> Result<(), String> {
        match added {
            Err(error) if error.already_exists() => return Ok(()),
            other => other?,
        }
        let open = File::options().create(true).append(true).open(&self.record);
        let written = open.and_then(|mut record| writeln!(record, "{delete}"));
        written.map_err(|e| format!("cannot write {}: {e}", self.record.display()))
    }
}
