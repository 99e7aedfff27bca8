//! The state of the machine and of the configuration on which settings depend.

use config::Config;

use super::drop_in::DropIn;
use super::record::Record;
use super::setting::Setting;
use super::value::ValueFile;
use crate::Root;
use crate::arm_device::{ArmDevice, arm_devices};
use crate::cpu_set::CpuSet;
use crate::lcore_cpus::reserved_cpus;
use crate::machine::{CommandLine, Cpus, Platform};
use crate::nic::Inventory;

/// What settings depend on.
pub(super) struct Situation<'a> {
    pub(super) root: &'a Root,
    pub(super) config: &'a Config,
    pub(super) devices: Vec<ArmDevice<'a>>,
    pub(super) platform: Platform,
    pub(super) command_line: CommandLine,
    pub(super) cpus: Option<Cpus>,
    /// CPUs that are to run nothing but lcores; empty if there are none.
    pub(super) lcores: CpuSet,
    /// The other CPUs that are online.
    pub(super) others: CpuSet,
    /// Why no CPU is reserved for lcores, if none is.
    pub(super) why_unreserved: Option<String>,
    pub(super) record: Record,
}

impl<'a> Situation<'a> {
    pub(super) fn read(
        root: &'a Root,
        config: &'a Config,
        inventory: &'a Inventory,
        record: Record,
    ) -> Situation<'a> {
        let cpus = Cpus::read(root);
        let online = cpus.as_ref().map(|cpus| cpus.online.clone()).unwrap_or_default();
        let reserved = reserved_cpus(config, &online);
        let lcores = reserved.as_ref().ok().cloned().unwrap_or_default();
        Situation {
            root,
            config,
            devices: arm_devices(config, inventory),
            platform: Platform::read(root),
            command_line: CommandLine::read(root).unwrap_or_default(),
            others: online.without(&lcores),
            lcores,
            why_unreserved: reserved.err(),
            cpus,
            record,
        }
    }

    /// Adds a value that changes at run time, unless it is right without Weir. `satisfies` decides
    /// whether a value fulfills the purpose.
    pub(super) fn add_value(
        &self,
        settings: &mut Vec<Setting>,
        path: String,
        satisfies: impl Fn(&str) -> bool,
        draft: Draft,
    ) {
        let value = ValueFile::new(path);
        let Some(now) = value.read(self.root) else { return };
        let before = self.record.before(self.root, &value).unwrap_or_default();
        // An entry without a record is from an earlier `apply`, when the value did not exist yet.
        let owned = !self.record.has(&value)
            && draft.file.as_ref().is_some_and(|(file, _)| file.sets(self.root, &draft.key));
        if satisfies(&before) && !owned {
            return;
        }
        settings.push(Setting {
            in_force: now == value.normalized(&draft.wanted) || satisfies(&now),
            value: Some(value),
            now,
            ..draft.into_setting()
        });
    }
}

/// A setting before its present value is known.
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) group: &'static str,
    /// The drop-in file that keeps the value, with the entry.
    pub(super) file: Option<(DropIn, String)>,
    /// What the entry sets: a sysctl or a path.
    pub(super) key: String,
    pub(super) wanted: String,
    pub(super) reason: &'static str,
}

impl Draft {
    pub(super) fn into_setting(self) -> Setting {
        let (file, entry) =
            self.file.map_or((None, String::new()), |(file, entry)| (Some(file), entry));
        Setting {
            name: self.name,
            group: self.group,
            file,
            entry,
            value: None,
            now: String::new(),
            wanted: self.wanted,
            reason: self.reason.to_owned(),
            in_force: false,
        }
    }
}
