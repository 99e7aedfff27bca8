//! Plans the restore of the configuration: where each file of a backup goes on this machine, and
//! whether it is valid here.
//!
//! Only the configuration file of this machine, the services files that it names and the generated
//! seed are written. The paths in a backup are not used. The name of a file in the directory of
//! services files has a single component, with an extension that slowpath reads.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use config::atomic_file::{Access, folder_of};
use config::checked::Config;
use config::machine_values::{self, machine_values};
use config::seed;
use serde::Serialize;
use slowpath::sources::{self, EXTENSIONS};
use state::object::Object;

use super::failure::Failure;
use super::files::{NewFile, NewFolder};
use crate::archive::{ConfigurationFile, Role, StateValue};
use crate::file_error;
use crate::options::GlobalOptions;

/// Address in the configuration that the package installs: one for documentation (RFC 5737), which
/// no machine has.
const PLACEHOLDER: &str = "\"192.0.2.10/24\"";

/// Mode of a directory of services files that the backup does not describe.
const FOLDER_MODE: u32 = 0o750;
/// Mode of a directory for the state.
const STATE_MODE: u32 = 0o700;

/// What a restore does with a file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileAction {
    /// There is no such file.
    Created,
    /// The file has other contents.
    Replaced,
    /// The file has these contents.
    Unchanged,
    /// slowpath reads the file, and the backup does not have it; it stays.
    Left,
}

/// A file of this machine, and what a restore does with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PlannedFile {
    /// Path of the file.
    pub path: PathBuf,
    /// What is done with it.
    pub action: FileAction,
}

/// A value that belongs to one machine and differs from that of this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MachineValue {
    /// The key.
    pub key: String,
    /// The value in the backup.
    pub backup: String,
    /// The value of this machine; `None` if it is "auto" or empty.
    pub here: Option<String>,
}

/// What becomes of the generated seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SeedAction {
    /// The backup has none, or the configuration generates none.
    None,
    /// It is stored: this machine has none.
    Created,
    /// This machine has the same.
    Unchanged,
    /// This machine has another, which stays.
    Left,
}

/// The plan of the configuration.
pub struct ConfigurationPlan {
    /// The configuration of the backup, as it is on this machine.
    pub config: Config,
    /// The objects of the services files.
    pub objects: Vec<Object>,
    /// All files, and the directory of services files if it is missing.
    pub files: Vec<PlannedFile>,
    /// The directories to create.
    pub folders: Vec<NewFolder>,
    /// The files to write.
    pub changes: Vec<NewFile>,
    /// Values that belong to one machine and are not those of this one.
    pub machine_values: Vec<MachineValue>,
    /// Whether this machine has values to compare with. Otherwise it is unknown which machine's
    /// values the backup has.
    pub is_compared: bool,
    /// Keys whose change takes effect at a restart, each with the processes to restart. `None` if
    /// the current configuration cannot be read.
    pub restarts: Option<Vec<String>>,
    /// What becomes of the generated seed.
    pub seed: SeedAction,
}

impl ConfigurationPlan {
    /// Returns whether the restore writes nothing.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.changes.is_empty()
    }
}

/// Plans the restore of files as the configuration at `target`.
///
/// # Errors
/// Describes what is not valid, or which file cannot be replaced.
pub fn plan(
    options: &GlobalOptions,
    target: &Path,
    files: &[ConfigurationFile],
    state: &[StateValue],
) -> Result<ConfigurationPlan, Failure> {
    let main = main_file(files)?;
    let config = config::load_text(target, &main.text, &options.set)
        .map_err(|error| Failure::Rejected(error.render()))?;
    hugepages::sizes(&config).check().map_err(|error| Failure::Rejected(error.to_string()))?;
    let mut written = vec![(target.to_owned(), main)];
    written.extend(services(&config, files)?);
    let mut texts: Vec<(String, String)> = Vec::new();
    for (path, file) in written.get(1..).unwrap_or_default() {
        texts.push((path.display().to_string(), file.text.clone()));
    }
    let left = files_not_in_backup(&config, &written)?;
    for path in &left {
        let text = sources::read_regular(path).map_err(|e| failed(path, &e))?;
        texts.push((path.display().to_string(), text));
    }
    let parsed = sources::parse_texts(texts, &config).map_err(Failure::Rejected)?;
    let objects = parsed.into_iter().map(|(_, object)| object).collect();
    let mut folders: Vec<NewFolder> = services_folder(&config, files).into_iter().collect();
    let (mut planned, mut changes) = (Vec::new(), Vec::new());
    for folder in &folders {
        planned.push(PlannedFile { path: folder.path.clone(), action: FileAction::Created });
    }
    let folder = folders.first().map(|folder| folder.path.clone());
    for (path, file) in written {
        let (path, action) = compare(&path, file, folder.as_deref())?;
        if action != FileAction::Unchanged {
            let access = access(&path, action, file.mode, folder.as_deref())?;
            let text = file.text.clone();
            changes.push(NewFile { path: path.clone(), text, access, is_created: false });
        }
        planned.push(PlannedFile { path, action });
    }
    check_distinct(&planned)?;
    planned.extend(left.into_iter().map(|path| PlannedFile { path, action: FileAction::Left }));
    let current = read_if_exists(target)?;
    let restarts = current.as_ref().and_then(|text| {
        let current = config::load_text(target, text, &options.set).ok()?;
        let keys = current.changes_requiring_restart(&config);
        Some(keys.into_iter().map(|one| format!("{}: {}", one.key, one.restart)).collect())
    });
    let here = values_of_this_machine(options, target, current.as_deref());
    let machine_values = differing_values(options, target, &main.text, here.as_ref())?;
    let seed = plan_seed(&config, state, &mut folders, &mut changes)?;
    Ok(ConfigurationPlan {
        config,
        objects,
        files: planned,
        folders,
        changes,
        machine_values,
        is_compared: here.is_some(),
        restarts,
        seed,
    })
}

/// Returns the configuration file of the backup, and checks that the other files fit each other.
fn main_file(files: &[ConfigurationFile]) -> Result<&ConfigurationFile, Failure> {
    let count = |is_role: fn(&Role) -> bool| files.iter().filter(|one| is_role(&one.role)).count();
    let mut mains = files.iter().filter(|file| file.role == Role::Main);
    let (Some(main), None) = (mains.next(), mains.next()) else {
        let text = "the backup does not have exactly one configuration file";
        return Err(Failure::Rejected(text.to_owned()));
    };
    let services = count(|role| *role == Role::Services);
    let folders = count(|role| *role == Role::Folder);
    let entries = count(|role| matches!(role, Role::Entry(_)));
    if services > 1 || folders > 1 || services == 1 && folders + entries > 0 {
        let text = "the backup has more than one services file or directory of services files";
        return Err(Failure::Rejected(text.to_owned()));
    }
    Ok(main)
}

/// Returns the services files of the backup with their paths on this machine.
fn services<'f>(
    config: &Config,
    files: &'f [ConfigurationFile],
) -> Result<Vec<(PathBuf, &'f ConfigurationFile)>, Failure> {
    let has_services = files.iter().any(|file| file.role != Role::Main);
    let Some(services) = &config.services else {
        let text = "the backup has services files, but its configuration (with the environment \
                    and --set) does not set `services`";
        return if has_services { Err(Failure::Rejected(text.to_owned())) } else { Ok(Vec::new()) };
    };
    if !has_services && !services.exists() {
        let path = services.display();
        let text = format!("`services` is {path}, which neither the backup nor this machine has");
        return Err(Failure::Rejected(text));
    }
    let mut all = Vec::new();
    for file in files {
        let path = match &file.role {
            Role::Main | Role::Folder => continue,
            Role::Services => services.clone(),
            Role::Entry(name) => services.join(entry(name).map_err(Failure::Rejected)?),
        };
        if all.iter().any(|(other, _)| *other == path) {
            let text = format!("the backup has two files for {}", path.display());
            return Err(Failure::Rejected(text));
        }
        all.push((path, file));
    }
    Ok(all)
}

/// Returns the directory of services files if it is missing.
fn services_folder(config: &Config, files: &[ConfigurationFile]) -> Option<NewFolder> {
    let path = config.services.clone().filter(|path| !path.exists())?;
    if let Some(folder) = files.iter().find(|file| file.role == Role::Folder) {
        // The owner may always use the directory, and users outside of its group never write it.
        return Some(NewFolder { path, mode: folder.mode & 0o775 | 0o700 });
    }
    let has_entries = files.iter().any(|file| matches!(file.role, Role::Entry(_)));
    has_entries.then_some(NewFolder { path, mode: FOLDER_MODE })
}

/// Returns an error if two of the files are one, by a hard or a symbolic link: the second would
/// replace the first.
fn check_distinct(files: &[PlannedFile]) -> Result<(), Failure> {
    let mut paths: HashMap<(u64, u64), &Path> = HashMap::new();
    let mut new: HashMap<PathBuf, &Path> = HashMap::new();
    for PlannedFile { path, action } in files {
        let other = match action {
            FileAction::Created => {
                let folder = folder_of(path).canonicalize().unwrap_or(folder_of(path).to_owned());
                new.insert(folder.join(path.file_name().unwrap_or_default()), path)
            }
            _ => {
                let about = std::fs::metadata(path).map_err(|e| failed(path, &e))?;
                paths.insert((about.dev(), about.ino()), path)
            }
        };
        if let Some(other) = other {
            return Err(Failure::Rejected(format!(
                "{} and {} are one file, by a link, and the backup has contents for both; remove \
                 the link",
                other.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

/// Returns the name of a file in the directory of services, if slowpath reads such a name.
fn entry(name: &str) -> Result<&str, String> {
    let is_one_part = !name.contains(['/', '\0']) && !name.starts_with('.') && name.len() <= 255;
    let end = Path::new(name).extension().and_then(|end| end.to_str()).unwrap_or_default();
    if is_one_part && EXTENSIONS.contains(&end) {
        return Ok(name);
    }
    Err(format!(
        "the backup has a services file with the name {name:?}; allowed are names without `/` that \
         do not begin with `.` and end with {}",
        EXTENSIONS.map(|end| format!(".{end}")).join(", ")
    ))
}

/// Returns the files of the directory `services` that the backup does not have.
fn files_not_in_backup(
    config: &Config,
    written: &[(PathBuf, &ConfigurationFile)],
) -> Result<Vec<PathBuf>, Failure> {
    let Some(path) = config.services.as_deref().filter(|path| path.exists()) else {
        return Ok(Vec::new());
    };
    let mut files = sources::files(path).map_err(|e| failed(path, &e))?;
    files.retain(|file| !written.iter().any(|(path, _)| path == file));
    Ok(files)
}

/// Returns the path to write, which is that of the file behind a symbolic link, and what is done.
/// The directory `folder`, which is created first, counts as existing.
fn compare(
    path: &Path,
    file: &ConfigurationFile,
    folder: Option<&Path>,
) -> Result<(PathBuf, FileAction), Failure> {
    let path = match path.symlink_metadata() {
        Ok(about) if about.is_symlink() => path.canonicalize().map_err(|e| {
            let path = path.display();
            Failure::Failed(format!(
                "{path}: {e}: a symbolic link to no file; remove it, or create the file"
            ))
        })?,
        _ => path.to_owned(),
    };
    match sources::read_regular(&path) {
        Ok(text) if text == file.text => Ok((path, FileAction::Unchanged)),
        Ok(_) => Ok((path, FileAction::Replaced)),
        // The contents are no text.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Ok((path, FileAction::Replaced))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match folder_of(&path).is_dir() || Some(folder_of(&path)) == folder {
                true => Ok((path, FileAction::Created)),
                false => {
                    let folder = folder_of(&path).display();
                    let text =
                        format!("{}: there is no directory {folder}; create it", path.display());
                    Err(Failure::Failed(text))
                }
            }
        }
        Err(error) => Err(failed(&path, &error)),
    }
}

/// Returns the permissions of a file: those that it has, or for a new one the mode in the backup
/// and the owner and group of its directory, because the services read `/etc/weir` through its
/// group.
fn access(
    path: &Path,
    action: FileAction,
    mode: u32,
    folder: Option<&Path>,
) -> Result<Access, Failure> {
    if action == FileAction::Replaced {
        return Access::of(path).map_err(|e| failed(path, &e));
    }
    let existing = match folder {
        Some(folder) if folder_of(path) == folder => folder_of(folder),
        _ => folder_of(path),
    };
    let folder = Access::of(existing).map_err(|e| failed(path, &e))?;
    // No file of the configuration is executable or writable for users outside of its group.
    Ok(Access { mode: mode & 0o664, owner: folder.owner })
}

fn read_if_exists(target: &Path) -> Result<Option<String>, Failure> {
    match sources::read_regular(target) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(target, &error)),
    }
}

/// Returns the machine-specific values of this machine's configuration; `None` if there is no
/// configuration, if it cannot be parsed, or if it is the one that the package installs.
fn values_of_this_machine(
    options: &GlobalOptions,
    target: &Path,
    current: Option<&str>,
) -> Option<BTreeMap<String, machine_values::MachineValue>> {
    let values = machine_values(target, current?, &options.set).ok()?;
    let is_placeholder =
        values.get("ingress.address").is_some_and(|value| value.text == PLACEHOLDER);
    (!is_placeholder).then_some(values)
}

/// Returns the machine-specific values that the backup sets and that differ from those of this
/// machine.
fn differing_values(
    options: &GlobalOptions,
    target: &Path,
    backup: &str,
    here: Option<&BTreeMap<String, machine_values::MachineValue>>,
) -> Result<Vec<MachineValue>, Failure> {
    let backup = machine_values(target, backup, &options.set)
        .map_err(|error| Failure::Rejected(error.render()))?;
    let differing =
        backup.into_iter().filter(|(_, value)| value.is_set).filter_map(|(key, value)| {
            let own = here.and_then(|values| values.get(&key));
            let is_same = own.is_some_and(|own| own.text == value.text);
            // A path that is not set here has a default, which may depend on the machine.
            let is_default_path =
                value.is_path && here.is_some() && own.is_none_or(|own| !own.is_set);
            let here = own.map(|own| own.text.clone());
            (!is_same && !is_default_path).then_some(MachineValue { key, backup: value.text, here })
        });
    Ok(differing.collect())
}

/// Plans what becomes of the seed: it is created with the files, if this machine has none.
fn plan_seed(
    config: &Config,
    state: &[StateValue],
    folders: &mut Vec<NewFolder>,
    changes: &mut Vec<NewFile>,
) -> Result<SeedAction, Failure> {
    let Some(StateValue::Seed(backup)) = state.first() else { return Ok(SeedAction::None) };
    let Some((path, text)) = seed::file(config, backup) else { return Ok(SeedAction::None) };
    if !seed::is_valid(backup) {
        let text = "the seed in the backup is not 12 bytes in base64";
        return Err(Failure::Rejected(text.to_owned()));
    }
    match seed::stored(config).map_err(|error| Failure::Failed(error.render()))? {
        Some(same) if same == *backup => return Ok(SeedAction::Unchanged),
        Some(_) => return Ok(SeedAction::Left),
        None => {}
    }
    let ancestors = path.ancestors().skip(1);
    let mut missing: Vec<NewFolder> = ancestors
        .take_while(|folder| !folder.exists())
        .map(|folder| NewFolder { path: folder.to_owned(), mode: STATE_MODE })
        .collect();
    missing.reverse();
    let existing = missing.first().map_or(path.as_path(), |folder| folder.path.as_path());
    let owner = Access::of(folder_of(existing)).map_err(|e| failed(&path, &e))?.owner;
    folders.extend(missing);
    let access = Access { mode: seed::MODE, owner };
    changes.push(NewFile { path, text, access, is_created: true });
    Ok(SeedAction::Created)
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let alternative = "restore only the objects with --only objects";
    Failure::Failed(file_error::text_or(path, error, alternative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_services_files_have_one_component_and_a_known_extension() {
        for name in ["a.toml", "a b.yaml", "ü.yml", "a..b.json"] {
            assert_eq!(entry(name), Ok(name));
        }
        for name in [
            "../a.toml",
            "/etc/a.toml",
            "a/b.toml",
            "..",
            ".a.toml",
            "",
            "a",
            "a.toml/",
            "a.toml\0",
            "shadow",
            "a.conf",
            &format!("{}.toml", "a".repeat(255)),
        ] {
            assert!(entry(name).is_err_and(|e| e.contains("services file")), "{name:?}");
        }
    }

    #[test]
    fn a_link_is_followed_and_other_entries_are_not_replaced() {
        let folder = std::env::temp_dir().join(format!("weir-targets-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("real")).unwrap();
        let file = ConfigurationFile {
            role: Role::Main,
            path: "/etc/weir/weir.toml".into(),
            mode: 0o7777,
            text: "a".into(),
        };
        let real = folder.join("real/file").canonicalize().unwrap_or(folder.join("real/file"));
        std::fs::write(&real, "b").unwrap();
        let link = |name: &str, to: &str| {
            std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
            compare(&folder.join(name), &file, None)
        };
        let real = real.canonicalize().unwrap();
        assert_eq!(link("link", "real/file"), Ok((real.clone(), FileAction::Replaced)));
        let fails = |result, cause: &str| match result {
            Err(Failure::Failed(text)) => text.contains(cause),
            _ => false,
        };
        assert!(fails(link("dangling", "nowhere"), "a symbolic link to no"));
        assert!(fails(link("device", "/dev/null"), "it is a character device"));
        assert!(fails(link("folder", "real"), "it is a directory"));
        let new = folder.join("new");
        assert_eq!(compare(&new, &file, None), Ok((new.clone(), FileAction::Created)));
        let missing = folder.join("missing");
        assert!(fails(compare(&missing.join("new"), &file, None), "there is no directory"));
        let created = Ok((missing.join("new"), FileAction::Created));
        assert_eq!(compare(&missing.join("new"), &file, Some(&missing)), created);
        for path in [&new, &missing.join("new")] {
            let access = access(path, FileAction::Created, file.mode, Some(&missing)).unwrap();
            assert_eq!(access.mode, 0o664);
        }
        std::fs::write(&real, [0xff]).unwrap();
        assert_eq!(compare(&real, &file, None), Ok((real.clone(), FileAction::Replaced)));
        std::fs::write(&real, "a").unwrap();
        assert_eq!(compare(&real, &file, None), Ok((real, FileAction::Unchanged)));
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn temporary(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder.canonicalize().unwrap()
    }

    #[test]
    fn two_files_that_are_one_by_a_link_are_rejected() {
        let folder = temporary("one-file");
        let path = |name: &str| folder.join(name);
        std::fs::write(path("a"), "").unwrap();
        std::fs::write(path("other"), "").unwrap();
        std::fs::hard_link(path("a"), path("hard")).unwrap();
        std::os::unix::fs::symlink("a", path("soft")).unwrap();
        std::os::unix::fs::symlink(".", path("same")).unwrap();
        let check = |names: [(&str, FileAction); 2]| {
            check_distinct(&names.map(|(name, action)| PlannedFile { path: path(name), action }))
        };
        let (replaced, created) = (FileAction::Replaced, FileAction::Created);
        for (name, action) in [("hard", replaced), ("soft", FileAction::Unchanged)] {
            let Err(Failure::Rejected(text)) = check([("a", replaced), (name, action)]) else {
                panic!("{name}")
            };
            assert!(text.contains("a and ") && text.contains("are one file"), "{text}");
        }
        assert!(check([("new", created), ("same/new", created)]).is_err());
        assert_eq!(check([("a", replaced), ("other", replaced)]), Ok(()));
        assert_eq!(check([("new", created), ("newer", created)]), Ok(()));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_placeholder_is_the_address_that_the_package_installs() {
        let text = include_str!("../../../../package/weir.toml");
        let values = machine_values(Path::new("weir.toml"), text, &[]).unwrap();
        assert_eq!(values["ingress.address"].text, PLACEHOLDER);
    }
}
