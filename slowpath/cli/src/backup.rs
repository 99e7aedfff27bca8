//! `weir backup`: writes objects, configuration and state to one file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use config::atomic_file::{self, Access, sync_folder};
use config::checked::Config;
use config::rfc3339;
use serde::Deserialize;
use serde_json::{Value, json};
use slowpath::sources;
use state::object::Object;
use state::store;

use super::archive::{self, ConfigurationFile, Contents, Manifest, Role, STANDARD, StateValue};
use super::file_error;
use super::offline;
use super::options::GlobalOptions;
use super::output::print;
use super::request::{self, RequestError};
use super::secret_references::{line_with_credential, references};

/// Arguments of `weir backup`.
#[derive(Args)]
pub struct BackupArgs {
    /// File to write; `-` for standard output
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Back up only the objects, or only the configuration with its state
    #[arg(long, value_enum)]
    only: Option<Only>,
}

/// The half to which a backup or a restore is limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Only {
    /// The objects
    Objects,
    /// The configuration file, the services files, and the generated seed
    Configuration,
}

/// Permissions of a backup: only its owner may read it, because it contains the addresses and the
/// seed of an appliance.
const ACCESS: Access = Access { mode: 0o600, owner: None };

/// The configuration of this machine.
struct Configuration {
    config: Config,
    files: Vec<ConfigurationFile>,
    state: Vec<StateValue>,
}

/// Response of `GET /v1/backup`.
#[derive(Deserialize)]
struct ObjectList {
    revision: u64,
    items: Vec<Value>,
}

/// Runs `weir backup`.
pub fn run(options: &GlobalOptions, args: &BackupArgs) -> Result<ExitCode, String> {
    let is_standard = args.file.as_os_str() == STANDARD;
    if !is_standard {
        check_target(&args.file, args.force)?;
    }
    let configuration = match args.only {
        Some(Only::Objects) => None,
        None | Some(Only::Configuration) => Some(read_configuration(options)?),
    };
    let config = configuration.as_ref().map(|one| &one.config);
    let list = match args.only {
        Some(Only::Configuration) => None,
        None | Some(Only::Objects) => Some(read_objects(options, config)?),
    };
    // The list of all objects includes those of the services files.
    let objects = match &list {
        Some(list) => parse(&list.items)?,
        None => configuration.as_ref().map_or(Ok(Vec::new()), services_of)?,
    };
    let own = match config {
        Some(_) => None,
        None => offline::load(options).ok(),
    };
    let name = config.map(|config| config.name.clone()).unwrap_or_default();
    let mut manifest = Manifest::new(name, rfc3339::format(SystemTime::now()));
    manifest.secrets = references(config.or(own.as_ref()), &objects);
    manifest.revision = list.as_ref().map(|list| list.revision);
    let overridden = config.map(overridden).unwrap_or_default();
    let (files, state) = configuration.map(|one| (one.files, one.state)).unzip();
    let contents = Contents { objects: list.map(|list| list.items), configuration: files, state };
    let bytes = archive::encode(manifest.clone(), &contents).map_err(|e| e.to_string())?;
    write(&args.file, &bytes, args.force)?;
    let report = Report { file: &args.file, manifest: &manifest, contents: &contents, overridden };
    if is_standard {
        eprint!("{}", report.text());
    } else {
        print(options, &report.document(), || report.text());
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns an error if the file must not be written.
fn check_target(path: &Path, force: bool) -> Result<(), String> {
    let file = path.display();
    let about = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about.map_err(|e| file_error::text(path, &e))?,
    };
    // The file is written by a rename, which would replace the link or device itself instead of
    // writing to it.
    match about.file_type() {
        kind if kind.is_symlink() => Err(format!(
            "{file} is a symbolic link and is not replaced; name the file that is meant, or write \
             to standard output: weir backup - > {file}"
        )),
        kind if kind.is_dir() => Err(format!("{file} is a directory; name a file in it")),
        kind if !kind.is_file() => Err(format!(
            "{file} is not a regular file and is not replaced; write to standard output: \
             weir backup - > {file}"
        )),
        _ if !force => Err(exists(path)),
        _ => Ok(()),
    }
}

fn exists(path: &Path) -> String {
    format!("{} exists; --force replaces it, or name another file", path.display())
}

/// Writes a backup to standard output, or to a file with mode 0600, whole or not at all.
fn write(path: &Path, bytes: &[u8], force: bool) -> Result<(), String> {
    if path.as_os_str() == STANDARD {
        let mut out = io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        return written.map_err(|e| format!("standard output: {e}; the backup is incomplete"));
    }
    let written = atomic_file::stage(path, bytes, ACCESS).and_then(|staged| match force {
        true => staged.replace(),
        false => staged.create(),
    });
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => format!("{}; no backup was written", file_error::text(path, &error)),
    })?;
    sync_folder(path).map_err(|error| {
        format!(
            "{}: the backup is complete, but its directory could not be synced \
             ({error}): after a power failure it may be missing; write another one",
            path.display()
        )
    })
}

/// Reads the configuration file, the services files and the generated seed.
fn read_configuration(options: &GlobalOptions) -> Result<Configuration, String> {
    let main = offline::configuration_file(options).ok_or_else(|| {
        format!(
            "there is no configuration file {}; name it with --config FILE, or back up only the \
             objects with --only objects",
            sources::CONFIG
        )
    })?;
    let file = file(Role::Main, main)?;
    let config = config::load_text(main, &file.text, &options.set).map_err(|e| e.render())?;
    let mut files = vec![file];
    if let Some(path) = &config.services {
        let failed = |e: io::Error| unreadable(path, &e);
        let is_folder = std::fs::metadata(path).map_err(failed)?.is_dir();
        if is_folder {
            files.push(folder(path)?);
        }
        for one in sources::files(path).map_err(failed)? {
            let name = one.file_name().map(|name| name.to_string_lossy().into_owned());
            let role = match name {
                Some(name) if is_folder => Role::Entry(name),
                _ => Role::Services,
            };
            files.push(self::file(role, &one)?);
        }
    }
    let seed = config::seed::stored(&config).map_err(|e| e.render())?;
    let state = seed.into_iter().map(StateValue::Seed).collect();
    Ok(Configuration { config, files, state })
}

/// Reads a file of the configuration, which must not contain a credential.
fn file(role: Role, path: &Path) -> Result<ConfigurationFile, String> {
    let text = sources::read_regular(path).map_err(|e| unreadable(path, &e))?;
    if let Some(line) = line_with_credential(&text) {
        return Err(format!(
            "{}:{line}: a private key or a password in a URL, which must not be in a backup; move \
             it to a file of its own that a key names",
            path.display()
        ));
    }
    let mode = Access::of(path).map_err(|e| unreadable(path, &e))?.mode;
    let path = std::path::absolute(path).map_err(|e| unreadable(path, &e))?;
    Ok(ConfigurationFile { role, path, mode, text })
}

/// Describes the directory of services files, which may be empty.
fn folder(path: &Path) -> Result<ConfigurationFile, String> {
    let mode = Access::of(path).map_err(|e| unreadable(path, &e))?.mode;
    let path = std::path::absolute(path).map_err(|e| unreadable(path, &e))?;
    Ok(ConfigurationFile { role: Role::Folder, path, mode, text: String::new() })
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    file_error::text_or(path, error, "back up only the objects with --only objects")
}

/// Reads the objects from slowpath, or from its store if it does not run.
fn read_objects(options: &GlobalOptions, config: Option<&Config>) -> Result<ObjectList, String> {
    let socket = match (&options.socket, config) {
        (None, Some(config)) => config.control.socket.clone(),
        _ => offline::socket(options)?,
    };
    match request::get_json::<ObjectList>(&socket, "/v1/backup") {
        Err(error @ RequestError::NotRunning { .. }) => {
            let own = offline::load(options).ok();
            let state = config.or(own.as_ref()).and_then(|config| config.control.state.clone());
            let Some(state) = state else { return Err(error.to_string()) };
            read_store(&state, &error)
        }
        list => list.map_err(|e| e.to_string()),
    }
    .and_then(|list| {
        for object in &list.items {
            let text = serde_json::to_string(object).unwrap_or_default();
            if line_with_credential(&text).is_some() {
                let name = |key: &str| object[key].as_str().unwrap_or_default();
                return Err(format!(
                    "{} {}: a private key or a password in a URL, which must not be in a backup; \
                     remove it from the object",
                    name("kind"),
                    name("name")
                ));
            }
        }
        Ok(list)
    })
}

/// Reads the objects from the store of a slowpath that does not run.
fn read_store(state: &Path, not_running: &RequestError) -> Result<ObjectList, String> {
    let objects = store::read_closed(state).map_err(|e| {
        format!("{not_running}; its store cannot be read either: {}: {e}", state.display())
    })?;
    eprintln!("slowpath does not run: objects are read from {}", state.display());
    let items: Result<Vec<Value>, _> = objects.desired().map(serde_json::to_value).collect();
    Ok(ObjectList { revision: objects.revision(), items: items.map_err(|e| e.to_string())? })
}

/// Parses objects in the form of the API.
fn parse(items: &[Value]) -> Result<Vec<Object>, String> {
    let parsed = items.iter().map(Object::from_json).collect::<Result<_, _>>();
    parsed.map_err(|e| RequestError::Malformed(e.to_string()).to_string())
}

/// Returns the objects of the services files.
fn services_of(configuration: &Configuration) -> Result<Vec<Object>, String> {
    let is_services = |file: &&ConfigurationFile| !matches!(file.role, Role::Main | Role::Folder);
    let services = configuration.files.iter().filter(is_services);
    let texts = services.map(|file| (file.path.display().to_string(), file.text.clone()));
    let parsed = sources::parse_texts(texts.collect(), &configuration.config)?;
    Ok(parsed.into_iter().map(|(_, object)| object).collect())
}

/// Returns the keys that the environment or `--set` sets. They are in no file.
fn overridden(config: &Config) -> Vec<String> {
    let set = config.origins.iter().filter(|(_, origin)| {
        origin.layer.starts_with("environment ") || origin.layer.starts_with("--set ")
    });
    set.map(|(key, origin)| format!("{key} ({})", origin.layer)).collect()
}

/// The report of `weir backup`.
struct Report<'r> {
    file: &'r Path,
    manifest: &'r Manifest,
    contents: &'r Contents,
    overridden: Vec<String>,
}

impl Report<'_> {
    fn files(&self) -> impl Iterator<Item = &ConfigurationFile> {
        self.contents.configuration.iter().flatten()
    }

    fn document(&self) -> Value {
        json!({
            "file": self.file,
            "revision": self.manifest.revision,
            "objects": self.contents.objects.as_ref().map(Vec::len),
            "configuration": self.files().map(|file| &file.path).collect::<Vec<_>>(),
            "seed": self.contents.state.as_ref().map(|state| !state.is_empty()),
            "secrets": self.manifest.secrets,
            "overridden": self.overridden,
        })
    }

    fn text(&self) -> String {
        let mut text = match self.file.as_os_str() == STANDARD {
            true => "backup written to standard output\n".to_owned(),
            false => format!("backup written to {}\n", self.file.display()),
        };
        if let (Some(objects), Some(revision)) = (&self.contents.objects, self.manifest.revision) {
            text += &format!("objects: {}, at revision {revision}\n", objects.len());
        }
        for file in self.files() {
            let kind = if file.role == Role::Folder { "directory" } else { "file" };
            text += &format!("{kind}: {}\n", file.path.display());
        }
        if self.contents.state.as_ref().is_some_and(|state| !state.is_empty()) {
            text += "state: the generated seed of the tables\n";
        }
        for secret in &self.manifest.secrets {
            let path = secret.path.display();
            text += &format!("not included, a secret or its certificate: {} {path}\n", secret.key);
        }
        for key in &self.overridden {
            text += &format!("not included, because no file sets it: {key}\n");
        }
        text
    }
}
