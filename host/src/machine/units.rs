//! systemd's services and targets, read from their files.

use crate::Root;

/// Directories of units. If several have a file of the same name, the first one is used.
const DIRECTORIES: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// Maximum length of the chain from a unit of Weir to a target that systemd starts at boot.
const MAX_DEPTH: u32 = 4;

/// A service or target. Drop-in files of units are not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Name of its file.
    pub name: String,
    /// The text of its file; empty if it is masked.
    text: String,
}

impl Unit {
    /// Returns whether the unit executes a command for which `matches` returns true. The command is
    /// passed as its words, without the prefixes of systemd (`-`, `@`, `:`, `+`, `!`).
    pub fn executes(&self, matches: impl Fn(&[&str]) -> bool) -> bool {
        let commands = self.values("ExecStart").chain(self.values("ExecStartPre"));
        let words = commands.map(|command| command.split_whitespace().collect::<Vec<_>>());
        words.into_iter().any(|mut words| {
            if let Some(program) = words.first_mut() {
                *program = program.trim_start_matches(['-', '@', ':', '+', '!']);
            }
            matches(&words)
        })
    }

    /// Returns whether the unit has an `ExecCondition`: a program that decides whether the unit
    /// starts.
    pub fn is_conditional(&self) -> bool {
        self.values("ExecCondition").next().is_some()
    }

    fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        let pairs = self.text.lines().filter_map(|line| line.trim().split_once('='));
        pairs.filter(move |(name, _)| name.trim_end() == key).map(|(_, value)| value)
    }

    /// Returns whether the file of another unit wants or requires this one.
    fn is_pulled_in_by(&self, other: &Unit) -> bool {
        let mut lists = ["Wants", "Requires", "BindsTo"].into_iter().flat_map(|k| other.values(k));
        lists.any(|list| list.split_whitespace().any(|name| name == self.name))
    }
}

/// Returns the services and targets, in the order of their names within each directory.
pub fn units(root: &Root) -> Vec<Unit> {
    let mut all: Vec<Unit> = Vec::new();
    for directory in DIRECTORIES {
        for name in root.list(directory) {
            let is_unit = name.ends_with(".service") || name.ends_with(".target");
            if is_unit && all.iter().all(|unit| unit.name != name) {
                let text = root.read(format!("{directory}/{name}")).unwrap_or_default();
                all.push(Unit { name, text });
            }
        }
    }
    all
}

/// Returns whether systemd starts a unit at boot: a target wants or requires it, by a link that
/// `systemctl enable` creates or by its own file. Weir's units are wanted by Weir's target, which
/// must itself be enabled.
pub fn is_enabled(root: &Root, all: &[Unit], unit: &Unit) -> bool {
    starts_at_boot(root, all, unit, MAX_DEPTH)
}

fn starts_at_boot(root: &Root, all: &[Unit], unit: &Unit, depth: u32) -> bool {
    if depth == 0 {
        return false;
    }
    // Only units of Weir are checked further; other targets are assumed to start at boot.
    let is_started = |name: &str| match name.starts_with("weir") {
        false => true,
        true => {
            let own = all.iter().find(|other| other.name == name);
            own.is_some_and(|own| starts_at_boot(root, all, own, depth - 1))
        }
    };
    let by_link = DIRECTORIES.into_iter().any(|directory| {
        root.list(directory).into_iter().any(|name| {
            let parent = name.strip_suffix(".wants").or_else(|| name.strip_suffix(".requires"));
            let links = || root.list(format!("{directory}/{name}"));
            parent.is_some_and(|parent| links().contains(&unit.name) && is_started(parent))
        })
    });
    let weirs = || all.iter().filter(|other| other.name.starts_with("weir"));
    by_link || weirs().any(|other| unit.is_pulled_in_by(other) && is_started(&other.name))
}
