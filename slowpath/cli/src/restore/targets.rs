//! Plans the restore of the configuration: where each file of a backup goes on this machine, and
//! whether it is valid here.
//!
//! Only the configuration file of this machine and the services files that it names are written.
//! The paths in a backup are not used: a file of a directory has a name of one part, which is one
//! that slowpath reads.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use config::atomic_file::Access;
use config::checked::Config;
use config::machine_values::machine_values;
use config::seed;
use serde::Serialize;
use slowpath::sources::{self, EXTENSIONS};
use state::object::Object;

use super::files::{NewFile, parent};
use crate::archive::{ConfigurationFile, Role, StateValue};
use crate::options::GlobalOptions;

/// Address in the configuration that the package installs. It is one for documentation (RFC 5737),
/// and no machine has it.
const PLACEHOLDER: &str = "\"192.0.2.10/24\"";

/// What a restore does with a file.
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
    pub key: &'static str,
    /// The value in the backup.
    pub backup: String,
    /// The value of this machine; `None` if it is "auto" or not set.
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
    /// All files.
    pub files: Vec<PlannedFile>,
    /// The directory of services files, if it is missing.
    pub folder: Option<PathBuf>,
    /// The files to write.
    pub changes: Vec<NewFile>,
    /// Values that belong to one machine and are not those of this one.
    pub machine_values: Vec<MachineValue>,
    /// Whether this machine has values to compare with. Otherwise nothing says whose values the
    /// backup has.
    pub is_compared: bool,
    /// Keys whose change takes effect at a restart, each with the processes to restart. `None` if
    /// the current configuration cannot be read.
    pub restarts: Option<Vec<String>>,
    /// What becomes of the generated seed, with its text.
    pub seed: (SeedAction, Option<String>),
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
) -> Result<ConfigurationPlan, String> {
    let mut mains = files.iter().filter(|file| file.role == Role::Main);
    let (Some(main), None) = (mains.next(), mains.next()) else {
        return Err("the backup does not have exactly one configuration file".to_owned());
    };
    let config =
        config::load_text(target, &main.text, &options.set).map_err(|error| error.render())?;
    hugepages::sizes(&config).check().map_err(|error| error.to_string())?;
    let mut written = vec![(target.to_owned(), main)];
    written.extend(services(&config, files)?);
    let mut texts: Vec<(String, String)> = Vec::new();
    for (path, file) in written.get(1..).unwrap_or_default() {
        texts.push((path.display().to_string(), file.text.clone()));
    }
    let left = left(&config, &written)?;
    for path in &left {
        let text = sources::read_regular(path).map_err(|e| failed(path, &e))?;
        texts.push((path.display().to_string(), text));
    }
    let parsed = sources::parse_texts(texts, &config)?;
    let objects = parsed.into_iter().map(|(_, object)| object).collect();
    let has_entries = files.iter().any(|file| matches!(file.role, Role::Entry(_)));
    let folder = config.services.clone().filter(|path| has_entries && !path.exists());
    let (mut planned, mut changes) = (Vec::new(), Vec::new());
    for (path, file) in written {
        let (path, action) = compare(&path, file, folder.as_deref())?;
        if action != FileAction::Unchanged {
            let access = access(&path, action, file.mode, folder.as_deref())?;
            changes.push(NewFile { path: path.clone(), text: file.text.clone(), access });
        }
        planned.push(PlannedFile { path, action });
    }
    planned.extend(left.into_iter().map(|path| PlannedFile { path, action: FileAction::Left }));
    let current = current(target)?;
    let restarts = current.as_ref().and_then(|text| {
        let current = config::load_text(target, text, &options.set).ok()?;
        let keys = current.changes_requiring_restart(&config);
        Some(keys.into_iter().map(|one| format!("{}: {}", one.key, one.restart)).collect())
    });
    let here = here(options, target, current.as_deref());
    let machine_values = differing(options, target, &main.text, here.as_ref())?;
    let seed = seed_action(&config, state)?;
    Ok(ConfigurationPlan {
        config,
        objects,
        files: planned,
        folder,
        changes,
        machine_values,
        is_compared: here.is_some(),
        restarts,
        seed,
    })
}

/// Returns the services files of the backup with their paths on this machine.
fn services<'f>(
    config: &Config,
    files: &'f [ConfigurationFile],
) -> Result<Vec<(PathBuf, &'f ConfigurationFile)>, String> {
    let mut services = Vec::new();
    for file in files {
        let Some(path) = &config.services else { break };
        let path = match &file.role {
            Role::Main => continue,
            Role::Services => path.clone(),
            Role::Entry(name) => path.join(entry(name)?),
        };
        if services.iter().any(|(other, _)| *other == path) {
            return Err(format!("the backup has two files for {}", path.display()));
        }
        services.push((path, file));
    }
    let has_services = files.iter().any(|file| file.role != Role::Main);
    match &config.services {
        None if has_services => Err("the backup has services files, but its configuration (with \
                                     the environment and --set) does not set `services`"
            .to_owned()),
        Some(path) if services.is_empty() && !path.exists() => Err(format!(
            "`services` is {}, which neither the backup nor this machine has",
            path.display()
        )),
        _ => Ok(services),
    }
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
fn left(
    config: &Config,
    written: &[(PathBuf, &ConfigurationFile)],
) -> Result<Vec<PathBuf>, String> {
    let Some(path) = config.services.as_deref().filter(|path| path.exists()) else {
        return Ok(Vec::new());
    };
    let mut files = sources::files(path).map_err(|e| failed(path, &e))?;
    files.retain(|file| !written.iter().any(|(path, _)| path == file));
    Ok(files)
}

/// Returns the path to write, which is that of the file behind a symbolic link, and what is done.
/// The directory `folder` is created before.
fn compare(
    path: &Path,
    file: &ConfigurationFile,
    folder: Option<&Path>,
) -> Result<(PathBuf, FileAction), String> {
    let path = match path.symlink_metadata() {
        Ok(about) if about.is_symlink() => path.canonicalize().map_err(|e| {
            let path = path.display();
            format!("{path}: {e}: a symbolic link to no file; remove it, or create the file")
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
            match parent(&path).is_dir() || Some(parent(&path)) == folder {
                true => Ok((path, FileAction::Created)),
                false => {
                    let folder = parent(&path).display();
                    Err(format!("{}: there is no directory {folder}; create it", path.display()))
                }
            }
        }
        Err(error) => Err(failed(&path, &error)),
    }
}

/// Returns the permissions of a file: those that it has, or for a new one the mode of the backup
/// and the owner of its directory, as the services read `/etc/weir` through its group.
fn access(
    path: &Path,
    action: FileAction,
    mode: u32,
    folder: Option<&Path>,
) -> Result<Access, String> {
    if action == FileAction::Replaced {
        return Access::of(path).map_err(|e| failed(path, &e));
    }
    let existing = match folder {
        Some(folder) if parent(path) == folder => parent(folder),
        _ => parent(path),
    };
    let folder = Access::of(existing).map_err(|e| failed(path, &e))?;
    // No file of the configuration is a program, and other users have no business writing it.
    Ok(Access { mode: mode & 0o664, owner: folder.owner })
}

fn current(target: &Path) -> Result<Option<String>, String> {
    match sources::read_regular(target) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(target, &error)),
    }
}

/// Returns the values of this machine; `None` if there is no configuration, if it cannot be parsed,
/// or if it is the one that the package installs.
fn here(
    options: &GlobalOptions,
    target: &Path,
    current: Option<&str>,
) -> Option<BTreeMap<&'static str, String>> {
    let values = machine_values(target, current?, &options.set).ok()?;
    let is_placeholder = values.get("ingress.address").is_some_and(|text| text == PLACEHOLDER);
    (!is_placeholder).then_some(values)
}

/// Returns the values of a machine in the backup that are not those of this machine.
fn differing(
    options: &GlobalOptions,
    target: &Path,
    backup: &str,
    here: Option<&BTreeMap<&'static str, String>>,
) -> Result<Vec<MachineValue>, String> {
    let backup = machine_values(target, backup, &options.set).map_err(|error| error.render())?;
    let is_path = |key: &str| key.starts_with("region.") || key.starts_with("control.");
    let differing = backup.into_iter().filter_map(|(key, backup)| {
        let here = here.and_then(|values| values.get(key).cloned());
        // A path that is not set has a default, which the backup may spell out.
        let differs = here.as_ref() != Some(&backup) && !(here.is_none() && is_path(key));
        differs.then_some(MachineValue { key, backup, here })
    });
    Ok(differing.collect())
}

fn seed_action(
    config: &Config,
    state: &[StateValue],
) -> Result<(SeedAction, Option<String>), String> {
    let Some(StateValue::Seed(backup)) = state.first() else {
        return Ok((SeedAction::None, None));
    };
    if !seed::is_generated(config) {
        return Ok((SeedAction::None, None));
    }
    if !seed::is_valid(backup) {
        return Err("the seed in the backup is not 12 bytes in base64".to_owned());
    }
    let action = match seed::stored(config).map_err(|error| error.render())? {
        None => SeedAction::Created,
        Some(same) if same == *backup => SeedAction::Unchanged,
        Some(_) => SeedAction::Left,
    };
    Ok((action, Some(backup.clone())))
}

fn failed(path: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run weir as root, or restore only the objects with --only objects"
        }
        _ => "",
    };
    format!("{}: {error}{remedy}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_services_files_have_one_part_that_slowpath_reads() {
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
        assert!(link("dangling", "nowhere").is_err_and(|e| e.contains("a symbolic link to no")));
        assert!(link("device", "/dev/null").is_err_and(|e| e.contains("a character device")));
        assert!(link("folder", "real").is_err_and(|e| e.contains("a directory")));
        let new = folder.join("new");
        assert_eq!(compare(&new, &file, None), Ok((new.clone(), FileAction::Created)));
        let missing = folder.join("missing");
        let error = compare(&missing.join("new"), &file, None).unwrap_err();
        assert!(error.contains("there is no directory"), "{error}");
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
}
