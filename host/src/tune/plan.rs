//! The plan: all settings of a machine.

use std::fmt::Write as _;

use config::Config;
use config::checked::Plane;
use serde::Serialize;

use super::drop_in::DropIn;
use super::record::{Record, RecordError, parameter_name};
use super::setting::Setting;
use super::situation::Situation;
use super::{interrupts, kernel, system};
use crate::Root;
use crate::machine::Platform;
use crate::nic::Inventory;

/// The settings that this machine should have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Plan {
    /// What kind of machine it is.
    pub platform: String,
    /// The settings, those in force included.
    pub settings: Vec<Setting>,
    /// Drop-in files whose text differs from what they should have.
    pub files: Vec<DropIn>,
    /// What is not set, and why.
    pub notes: Vec<String>,
    /// How kernel parameters are set on this machine.
    #[serde(skip)]
    pub(super) boot_loader: BootLoader,
    /// Kernel parameters that the operator was asked to add and that are no longer needed.
    #[serde(skip)]
    pub(super) obsolete: Vec<String>,
}

/// How kernel parameters are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BootLoader {
    /// By a drop-in file and `update-grub` (Debian, Ubuntu).
    UpdateGrub,
    /// By `grubby` (Amazon Linux, Fedora).
    Grubby,
    /// Neither exists: the operator changes the boot loader's configuration.
    Other,
}

impl BootLoader {
    pub(super) fn read(root: &Root) -> BootLoader {
        let exists = |name: &str| {
            root.exists(format!("usr/sbin/{name}")) || root.exists(format!("sbin/{name}"))
        };
        if exists("update-grub") {
            BootLoader::UpdateGrub
        } else if exists("grubby") {
            BootLoader::Grubby
        } else {
            BootLoader::Other
        }
    }

    /// Returns what an operator has to type to remove kernel parameters that no drop-in file sets,
    /// without the reboot. `update-grub` would remove only parameters that its files set.
    pub(super) fn removal_step(self, parameters: &[String]) -> String {
        let parameters = parameters.join(" ");
        match self {
            BootLoader::Grubby => {
                format!("grubby --update-kernel=ALL --remove-args=\"{parameters}\"")
            }
            BootLoader::UpdateGrub | BootLoader::Other => {
                format!("# remove from the kernel's command line in your boot loader: {parameters}")
            }
        }
    }
}

/// Returns the settings that this machine should have for a configuration.
///
/// # Errors
/// Returns an error if the record of former values cannot be read.
pub fn plan(root: &Root, config: &Config, inventory: &Inventory) -> Result<Plan, RecordError> {
    let situation = Situation::read(root, config, inventory, Record::read(root)?);
    let mut settings = kernel::parameters(&situation);
    settings.extend(interrupts::settings(&situation));
    settings.extend(system::settings(&situation));
    settings.extend(system::sysctls(&situation));
    let mut notes: Vec<String> = situation.why_unreserved.iter().cloned().collect();
    let has_nohz = situation.cpus.as_ref().is_some_and(|cpus| cpus.nohz_full.is_some());
    if !situation.lcores.is_empty() && !has_nohz {
        notes.push("nohz_full: this kernel is built without CONFIG_NO_HZ_FULL".to_owned());
    }
    if situation.lcores.contains(0) {
        notes.push(
            "fastpath.lcores: CPU 0 keeps its timer tick, which maintains the time; use other CPUs"
                .to_owned(),
        );
    }
    notes.extend(platform_note(&situation));
    let mut plan = Plan {
        platform: situation.platform.to_string(),
        settings,
        files: Vec::new(),
        notes,
        boot_loader: BootLoader::read(root),
        obsolete: Vec::new(),
    };
    let wanted = plan.parameters();
    let is_wanted = |old: &String| {
        wanted.iter().any(|parameter| parameter_name(parameter) == parameter_name(old))
    };
    let recorded = situation.record.parameters.iter();
    plan.obsolete = recorded.filter(|old| !is_wanted(old)).cloned().collect();
    let differs = |file: &DropIn| {
        let wanted = plan.text(*file);
        plan.writes(*file) && file.text(root).filter(|text| DropIn::is_weirs(text)) != wanted
    };
    plan.files = DropIn::ALL.into_iter().filter(differs).collect();
    Ok(plan)
}

/// Returns a note about hardware that the platform lacks.
fn platform_note(situation: &Situation<'_>) -> Option<String> {
    if situation.config.plane != Plane::Dpdk {
        return None;
    }
    let text = match situation.platform {
        Platform::Aws { metal: false, .. } => {
            "instances of AWS have no IOMMU, so no parameter sets one; `weir nic plan` shows the \
             drivers that work without"
        }
        Platform::Azure => {
            "virtual machines of Azure have no IOMMU, and MANA and mlx5 stay with their kernel \
             drivers, so no parameter sets one"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

impl Plan {
    /// Returns the entries of a drop-in file.
    pub(super) fn entries(&self, file: DropIn) -> Vec<String> {
        let of_file = self.settings.iter().filter(|setting| setting.file == Some(file));
        of_file.map(|setting| setting.entry.clone()).collect()
    }

    /// Returns the kernel parameters, one each.
    pub(super) fn parameters(&self) -> Vec<String> {
        let entries = self.entries(DropIn::Grub);
        entries.iter().flat_map(|entry| entry.split(' ')).map(str::to_owned).collect()
    }

    /// Returns the text of a drop-in file; `None` if there is nothing to write to it.
    pub(super) fn text(&self, file: DropIn) -> Option<String> {
        let entries = self.entries(file);
        (!entries.is_empty()).then(|| file.render(&entries))
    }

    /// Returns whether a drop-in file is written on this machine: that of GRUB only if it is read.
    pub(super) fn writes(&self, file: DropIn) -> bool {
        file != DropIn::Grub || self.boot_loader == BootLoader::UpdateGrub
    }

    /// Returns the settings that are not in force.
    pub fn pending(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(|setting| !setting.in_force)
    }

    /// Returns whether settings come into force at the next boot only.
    pub fn needs_reboot(&self) -> bool {
        self.settings.iter().any(Setting::needs_reboot)
    }

    /// Returns whether there is something to apply now.
    pub fn has_changes(&self) -> bool {
        !self.files.is_empty() || self.pending().any(|setting| setting.value.is_some())
    }

    /// Returns what an operator has to type to complete the change of kernel parameters; empty if
    /// nothing.
    pub fn boot_steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        if !self.obsolete.is_empty() {
            steps.push(self.boot_loader.removal_step(&self.obsolete));
        }
        if self.needs_reboot() {
            let parameters = self.parameters().join(" ");
            steps.push(match self.boot_loader {
                BootLoader::UpdateGrub => "update-grub".to_owned(),
                BootLoader::Grubby => {
                    format!("grubby --update-kernel=ALL --args=\"{parameters}\"")
                }
                BootLoader::Other => {
                    format!("# add to the kernel's command line in your boot loader: {parameters}")
                }
            });
        }
        if !steps.is_empty() {
            steps.push("reboot".to_owned());
        }
        steps
    }

    /// Returns the commands that bring the kernel parameters into force, on one line.
    pub fn boot_remedy(&self) -> String {
        match self.boot_loader {
            BootLoader::UpdateGrub if self.files.contains(&DropIn::Grub) => {
                "weir tune apply && update-grub && reboot".to_owned()
            }
            BootLoader::UpdateGrub => "update-grub && reboot".to_owned(),
            BootLoader::Grubby | BootLoader::Other => {
                "weir tune apply, then type what it prints, which ends with: reboot".to_owned()
            }
        }
    }

    /// Formats the plan for display.
    pub fn render(&self) -> String {
        let mut text = format!("{}\n", self.platform);
        let mut rest: &[Setting] = &self.settings;
        while let [first, ..] = rest {
            let alike = rest.iter().take_while(|other| first == *other || first.is_like(other));
            let count = alike.count().max(1);
            self.render_setting(&mut text, &rest[..count]);
            rest = &rest[count..];
        }
        for note in &self.notes {
            let _ = writeln!(text, "\n{note}");
        }
        text += match self.has_changes() {
            true => "\nto apply: weir tune apply\n",
            false => "\nnothing to apply\n",
        };
        for step in self.boot_steps() {
            let _ = writeln!(text, "then: {step}");
        }
        text
    }

    fn render_setting(&self, text: &mut String, alike: &[Setting]) {
        let [first, ..] = alike else { return };
        let names: Vec<&str> = alike.iter().take(4).map(|setting| setting.name.as_str()).collect();
        let more = alike.len() - names.len();
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        let now = if first.now.is_empty() { "unset" } else { &first.now };
        let change = match first.in_force {
            true => format!("{now} (in force)"),
            false => format!("{now} -> {}", first.wanted),
        };
        let _ = writeln!(text, "\n{}{more}: {change}", names.join(", "));
        let _ = writeln!(text, "  {}", first.reason);
        let value = first.value_path().map(|path| match alike.len() {
            1 => format!("now: /{path}"),
            _ => "now".to_owned(),
        });
        let file = first.file.filter(|file| self.writes(*file));
        let file = file.map(|file| format!("at boot: /{}", file.path()));
        let reboot = first.needs_reboot().then(|| "after a reboot".to_owned());
        let when: Vec<String> = [value, file, reboot].into_iter().flatten().collect();
        let _ = writeln!(text, "  {}", when.join(", "));
    }
}
