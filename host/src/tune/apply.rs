//! Applies a plan, and reverts what was applied.

use std::io;

use serde::Serialize;

use super::drop_in::DropIn;
use super::plan::{BootLoader, Plan};
use super::record::{FormerValue, Record, RecordError};
use super::setting::Setting;
use super::value::ValueFile;
use crate::Root;
use crate::commands::{CommandError, Commands};
use crate::file;

/// Why applying or reverting stopped; part of it may be done.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The record of former values cannot be read or written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// What applying or reverting a plan did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Drop-in files that were written or removed, and values that were set, one sentence each.
    pub done: Vec<String>,
    /// What could not be done, with the cause.
    pub failed: Vec<String>,
    /// Changes that the kernel rejected without harm.
    pub notes: Vec<String>,
    /// Steps for the operator, in order, that complete the change of kernel parameters.
    pub next: Vec<String>,
}

impl Outcome {
    /// Formats the outcome for display.
    pub fn render(&self) -> String {
        let mut text: String = self.done.iter().map(|line| format!("{line}\n")).collect();
        if self.done.is_empty() && self.failed.is_empty() {
            text += "nothing to change\n";
        }
        text.extend(self.notes.iter().map(|line| format!("note: {line}\n")));
        text.extend(self.failed.iter().map(|line| format!("failed: {line}\n")));
        text.extend(self.next.iter().map(|line| format!("then: {line}\n")));
        text
    }
}

/// Writes the drop-in files and the values of a plan. Values that an earlier plan changed and this
/// one does not are restored. Idempotent.
///
/// # Errors
/// Returns an error if the record of former values cannot be read or written; values that were set
/// until then are in it.
pub fn apply(root: &Root, plan: &Plan, commands: &dyn Commands) -> Result<Outcome, TuneError> {
    let mut record = Record::read(root)?;
    let mut outcome = Outcome::default();
    for file in DropIn::ALL.into_iter().filter(|file| plan.writes(*file)) {
        let changed = match plan.text(file) {
            None => remove(root, file, &mut outcome),
            Some(text) => write(root, file, &text, &mut outcome),
        };
        if changed && file == DropIn::Irqbalance {
            restart_irqbalance(root, commands, &mut outcome);
        }
    }
    let is_planned = |former: &FormerValue| {
        plan.settings.iter().any(|setting| setting.value_path() == Some(&former.path))
    };
    let (planned, obsolete) = record.values.drain(..).partition(is_planned);
    record.values = planned;
    record.values.extend(restore(root, obsolete, &mut outcome));
    if !plan.writes(DropIn::Grub) {
        record.parameters = plan.parameters();
        record.parameters.extend(plan.obsolete.iter().cloned());
    }
    record.write(root)?;
    for setting in plan.settings.iter().filter(|setting| !setting.in_force) {
        if let Some(file) = &setting.value {
            set(root, setting, file, &mut record, &mut outcome)?;
        }
    }
    // If the file could not be written, `update-grub` would change nothing.
    if !plan.writes(DropIn::Grub) || DropIn::Grub.text(root) == plan.text(DropIn::Grub) {
        outcome.next = plan.boot_steps();
    }
    Ok(outcome)
}

/// Restores the values that were in force before, and removes Weir's drop-in files.
///
/// # Errors
/// Returns an error if the record of former values cannot be read, written or removed.
pub fn revert(root: &Root, commands: &dyn Commands) -> Result<Outcome, TuneError> {
    let mut record = Record::read(root)?;
    let mut outcome = Outcome::default();
    for file in DropIn::ALL {
        if !remove(root, file, &mut outcome) {
            continue;
        }
        match file {
            DropIn::Irqbalance => restart_irqbalance(root, commands, &mut outcome),
            DropIn::Grub => outcome.next.push("update-grub".to_owned()),
            DropIn::Sysctl | DropIn::Tmpfiles => {}
        }
    }
    if !record.parameters.is_empty() {
        let parameters = std::mem::take(&mut record.parameters);
        outcome.next.push(BootLoader::read(root).removal_step(&parameters));
    }
    if !outcome.next.is_empty() {
        outcome.next.push("reboot".to_owned());
    }
    record.values = restore(root, std::mem::take(&mut record.values), &mut outcome);
    record.write(root)?;
    Ok(outcome)
}

/// Writes a drop-in file whose text differs; returns whether it was written.
fn write(root: &Root, file: DropIn, text: &str, outcome: &mut Outcome) -> bool {
    let path = format!("/{}", file.path());
    match file.text(root) {
        Some(present) if present == text => return false,
        Some(present) if !DropIn::is_weirs(&present) => {
            outcome.failed.push(format!("{path} is not Weir's and was left alone: move it away"));
            return false;
        }
        _ => {}
    }
    let written = file::replace(&root.join(file.path()), text);
    match &written {
        Ok(()) => outcome.done.push(format!("{path} written")),
        Err(error) => outcome.failed.push(cannot("write", &path, error)),
    }
    written.is_ok()
}

/// Removes a drop-in file of Weir; returns whether it was removed.
fn remove(root: &Root, file: DropIn, outcome: &mut Outcome) -> bool {
    if !file.text(root).is_some_and(|text| DropIn::is_weirs(&text)) {
        return false;
    }
    let path = format!("/{}", file.path());
    let removed = std::fs::remove_file(root.join(file.path()));
    match &removed {
        Ok(()) => outcome.done.push(format!("{path} removed")),
        Err(error) => outcome.failed.push(cannot("remove", &path, error)),
    }
    removed.is_ok()
}

fn cannot(verb: &str, path: &str, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "; run the command as root",
        io::ErrorKind::ReadOnlyFilesystem => {
            "; the file system is read-only: run the command on the host"
        }
        _ => "",
    };
    format!("cannot {verb} {path}: {error}{remedy}")
}

/// Sets a value, after its former value was written to the record on disk.
fn set(
    root: &Root,
    setting: &Setting,
    file: &ValueFile,
    record: &mut Record,
    outcome: &mut Outcome,
) -> Result<(), RecordError> {
    let Some(value) = file.read(root) else { return Ok(()) };
    let (path, is_new) = (file.path().to_owned(), !record.has(file));
    if is_new {
        let persistent = setting.file.is_some();
        record.values.push(FormerValue { path: path.clone(), value: value.clone(), persistent });
        record.write(root)?;
    }
    let (name, wanted) = (&setting.name, &setting.wanted);
    match file.write(root, wanted) {
        Ok(()) => outcome.done.push(format!("{name}: {value} -> {wanted}")),
        Err(error) => {
            if is_new {
                record.values.pop();
                record.write(root)?;
            }
            match is_managed(&path, &error) {
                true => outcome.notes.push(format!(
                    "{name} stays on CPU {value}: its driver manages it; isolcpus=managed_irq \
                     keeps it away from isolated CPUs after a reboot"
                )),
                false => outcome.failed.push(cannot("write", &format!("/{path}"), &error)),
            }
        }
    }
    Ok(())
}

/// The error `EIO`, for which `std` has no kind.
const EIO: i32 = 5;

/// Returns whether the kernel rejected the affinity of an interrupt because its driver manages it.
fn is_managed(path: &str, error: &io::Error) -> bool {
    path.starts_with("proc/irq/") && error.raw_os_error() == Some(EIO)
}

/// Writes former values back, the last changed first, and returns those that could not be written,
/// in their order. A file that no longer exists, such as that of an interrupt, has no value to
/// restore.
fn restore(root: &Root, values: Vec<FormerValue>, outcome: &mut Outcome) -> Vec<FormerValue> {
    let mut failed = Vec::new();
    for former in values.into_iter().rev() {
        let (file, value) = (ValueFile::new(&former.path), &former.value);
        let Some(now) = file.read(root).filter(|now| now != value) else { continue };
        let path = file.path();
        match file.write(root, value) {
            Ok(()) => outcome.done.push(format!("/{path}: {now} -> {value}, as before")),
            Err(error) if is_managed(path, &error) => {}
            Err(error) => {
                outcome.failed.push(cannot("write", &format!("/{path}"), &error));
                failed.insert(0, former);
            }
        }
    }
    failed
}

/// Restarts irqbalance, if it is running, so that it reads its environment again.
fn restart_irqbalance(root: &Root, commands: &dyn Commands, outcome: &mut Outcome) {
    if !root.exists("run/systemd/system") {
        return;
    }
    let steps = [&["daemon-reload"][..], &["try-restart", "irqbalance.service"]];
    let result: Result<Vec<String>, CommandError> =
        steps.iter().map(|arguments| commands.run("systemctl", arguments)).collect();
    match result {
        Ok(_) => outcome.done.push("irqbalance restarted, if it was running".to_owned()),
        Err(error) => outcome.failed.push(error.to_string()),
    }
}
