//! `weir restore`: restores a backup, all of it or nothing.
//!
//! ```text
//!   check     checksums and versions of the file, the configuration on this machine, the objects
//!             by a dry run of the API
//!   replace   the files of the configuration, with a journal (restore/files.rs)
//!   store     the objects, in one transaction of the API
//!   end       remove the journal
//! ```
//! If the objects are rejected, the old files are put back. A process that is killed leaves the
//! journal: the next restore puts the old files back first, and then does everything again.

mod files;
mod targets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use api::{RestoreAction, Restored};
use clap::Args;
use config::restore_journal;
use config::seed;
use serde_json::{Value, json};
use slowpath::sources::CONFIG;
use state::name::Source;
use state::object::{API, Object};

use super::archive::{self, Archive, Manifest, SecretReference};
use super::backup::Only;
use super::offline;
use super::options::{GlobalOptions, Output};
use super::output::{print, put};
use super::request::{self, IDLE_TIMEOUT, Request, RequestError};
use super::secret_references::references;
use super::write::{self, WriteOptions};
use files::{Journal, NewFile, Transaction};
use targets::{ConfigurationPlan, FileAction, SeedAction};

/// Arguments of `weir restore`.
#[derive(Args)]
pub struct RestoreArgs {
    /// Backup written by `weir backup`; `-` for standard input
    #[arg(required_unless_present = "undo", conflicts_with = "undo")]
    file: Option<PathBuf>,
    /// Restore only the objects, or only the configuration with its state
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Restore objects of other sources (files, sessions) as objects of the API; otherwise they are
    /// left to their sources
    #[arg(long)]
    as_api: bool,
    /// Restore the configuration although it has values of another machine: name, devices,
    /// addresses, paths
    #[arg(long)]
    with_machine_values: bool,
    /// Put back the files of the configuration that an interrupted restore has replaced
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    write_options: WriteOptions,
}

/// Type of the API's error for objects that are stored and not in force.
const NOT_IN_FORCE: &str = "urn:weir:not-in-force";
/// Type of the API's error for a change that may still be made.
const STORE_TIMEOUT: &str = "urn:weir:store-timeout";

/// The objects to restore.
struct ObjectPlan {
    socket: PathBuf,
    objects: Vec<Object>,
    /// The list in JSON, as it is sent.
    body: String,
    /// Number of objects of each other source, which are left to it.
    skipped: BTreeMap<String, usize>,
    /// What the API says it would do.
    restored: Restored,
}

/// Everything that a restore would do.
struct Plan {
    manifest: Manifest,
    configuration: Option<ConfigurationPlan>,
    objects: Option<ObjectPlan>,
    missing: Vec<SecretReference>,
}

/// Why nothing was restored.
enum Failure {
    /// The backup is not accepted here.
    Rejected(String),
    /// It could not be tried.
    Failed(String),
}

/// Runs `weir restore`.
pub fn run(options: &GlobalOptions, args: &RestoreArgs) -> Result<ExitCode, String> {
    let target = options.config.as_deref().unwrap_or(Path::new(CONFIG));
    let Some(file) = &args.file else { return undo(options, target) };
    let archive = archive::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let dry_run = args.write_options.dry_run;
    let replaces_files =
        args.only != Some(Only::Objects) && archive.contents.configuration.is_some();
    let journal = match replaces_files && !dry_run {
        true => Some(Journal::open(target)?),
        false => None,
    };
    match &journal {
        Some(journal) => report_undone(journal.undo_interrupted()?),
        None => restore_journal::warning(target).into_iter().for_each(|text| eprintln!("{text}")),
    }
    let plan = match plan(options, args, target, archive) {
        Ok(plan) => plan,
        Err(Failure::Failed(text)) => return Err(text),
        Err(Failure::Rejected(text)) => return Ok(reject(options, &text)),
    };
    let is_of_another =
        |plan: &ConfigurationPlan| plan.is_compared && !plan.machine_values.is_empty();
    let is_rejected =
        plan.configuration.as_ref().is_some_and(is_of_another) && !args.with_machine_values;
    if dry_run || is_rejected {
        print(options, &plan.document(dry_run, is_rejected), || plan.text(true));
        if is_rejected {
            eprintln!(
                "the configuration has values of another machine (above); nothing was restored. \
                 Restore the objects alone with --only objects; or change these keys in the file \
                 of this machine after --with-machine-values; or write \"auto\" for them before \
                 the next backup"
            );
        }
        return Ok(ExitCode::from(u8::from(is_rejected)));
    }
    match apply(journal.as_ref(), &plan) {
        Ok(()) => {}
        Err(Failure::Failed(text)) => return Err(text),
        Err(Failure::Rejected(text)) => return Ok(reject(options, &text)),
    }
    print(options, &plan.document(false, false), || plan.text(false));
    wait(options, &plan, args.write_options.wait)
}

/// Prints why nothing was restored, and returns exit code 1.
fn reject(options: &GlobalOptions, text: &str) -> ExitCode {
    eprintln!("{text}\nnothing was restored");
    if options.output() != Output::Table {
        print(options, &json!({ "error": text }), String::new);
    }
    ExitCode::from(1)
}

/// Runs `weir restore --undo`.
fn undo(options: &GlobalOptions, target: &Path) -> Result<ExitCode, String> {
    let undone = Journal::open(target)?.undo_interrupted()?;
    print(options, &json!({ "undone": undone }), || match &undone {
        None => "no restore was interrupted; nothing to undo\n".to_owned(),
        Some(_) => String::new(),
    });
    report_undone(undone);
    Ok(ExitCode::SUCCESS)
}

fn report_undone(undone: Option<Vec<PathBuf>>) {
    for path in undone.into_iter().flatten() {
        eprintln!("{}: the file from before the interrupted restore is back", path.display());
    }
}

/// Checks everything and compares it with what is there. Changes nothing.
fn plan(
    options: &GlobalOptions,
    args: &RestoreArgs,
    target: &Path,
    archive: Archive,
) -> Result<Plan, Failure> {
    let Archive { manifest, contents } = archive;
    let lacks = |what: &str| Failure::Failed(format!("the backup has no {what}"));
    let wants = |only: Only| args.only.is_none_or(|wanted| wanted == only);
    let configuration = match contents.configuration {
        Some(files) if wants(Only::Configuration) => {
            let state = contents.state.unwrap_or_default();
            let plan = targets::plan(options, target, &files, &state);
            Some(plan.map_err(|text| Failure::Rejected(text + &written_by(&manifest)))?)
        }
        None if args.only == Some(Only::Configuration) => return Err(lacks("configuration")),
        _ => None,
    };
    let objects = match contents.objects {
        Some(items) if wants(Only::Objects) => {
            Some(plan_objects(options, args, &items, &manifest)?)
        }
        None if args.only == Some(Only::Objects) => return Err(lacks("objects")),
        _ => None,
    };
    let own = match &configuration {
        Some(_) => None,
        None => offline::load(options).ok(),
    };
    let config = configuration.as_ref().map(|plan| &plan.config).or(own.as_ref());
    let of_files = configuration.iter().flat_map(|plan| &plan.objects);
    let of_api = objects.iter().flat_map(|plan| &plan.objects);
    let mut missing = references(config, of_files.chain(of_api));
    // What this user may not look up is not reported.
    missing.retain(|secret| secret.path.try_exists().is_ok_and(|exists| !exists));
    Ok(Plan { manifest, configuration, objects, missing })
}

/// Returns a note about the version that wrote the backup, if it is another one.
fn written_by(manifest: &Manifest) -> String {
    match manifest.weir == env!("CARGO_PKG_VERSION") {
        true => String::new(),
        false => format!(
            "\nthe backup was written by Weir {}; this is Weir {}",
            manifest.weir,
            env!("CARGO_PKG_VERSION")
        ),
    }
}

/// Parses the objects, and has the API check them.
fn plan_objects(
    options: &GlobalOptions,
    args: &RestoreArgs,
    items: &[Value],
    manifest: &Manifest,
) -> Result<ObjectPlan, Failure> {
    let (mut objects, mut skipped) = (Vec::new(), BTreeMap::new());
    for item in items {
        let mut object = Object::from_json(item)
            .map_err(|error| Failure::Rejected(format!("{error}{}", written_by(manifest))))?;
        if object.source.as_str() != API && !args.as_api {
            *skipped.entry(object.source.as_str().to_owned()).or_default() += 1;
            continue;
        }
        object.source = Source::new(API);
        objects.push(object);
    }
    let socket = offline::socket(options).map_err(Failure::Failed)?;
    let bodies: Result<Vec<String>, RequestError> = objects.iter().map(write::body).collect();
    let bodies = bodies.map_err(|e| Failure::Failed(e.to_string()))?;
    let body = format!("[{}]", bodies.join(","));
    let restored = send(&socket, &body, "?dry_run=true", Duration::ZERO);
    let restored = restored.map_err(|error| match error {
        RequestError::Problem(problem) if problem.status < 500 => {
            Failure::Rejected(format!("{problem}{}", written_by(manifest)))
        }
        RequestError::NotRunning { .. } => Failure::Failed(format!(
            "{error}; the configuration alone is restored with --only configuration, without \
             slowpath"
        )),
        error => Failure::Failed(error.to_string()),
    })?;
    Ok(ObjectPlan { socket, objects, body, skipped, restored })
}

/// Sends the list to the API.
fn send(socket: &Path, body: &str, query: &str, wait: Duration) -> Result<Restored, RequestError> {
    let path = format!("/v1/restore{query}");
    let headers = [("Content-Type", "application/json")];
    let idle_timeout = IDLE_TIMEOUT + wait;
    let request = Request { headers: &headers, body, idle_timeout, ..Request::new("POST", &path) };
    request::send_json(socket, &request)
}

/// Restores files and objects, all of them or none.
fn apply(journal: Option<&Journal>, plan: &Plan) -> Result<(), Failure> {
    if let Some(configuration) = &plan.configuration {
        // A seed alone changes nothing: it is stored only where there is none.
        if let (SeedAction::Created, Some(text)) = &configuration.seed {
            let stored = seed::restore(&configuration.config, text);
            stored.map_err(|error| Failure::Rejected(error.render()))?;
        }
    }
    let changes = plan.configuration.as_ref().map(|one| one.changes.as_slice());
    let folder = plan.configuration.as_ref().and_then(|one| one.folder.as_deref());
    if let Some(folder) = folder {
        files::create_folder(folder)
            .map_err(|e| Failure::Rejected(format!("{}: {e}", folder.display())))?;
    }
    let applied = apply_changes(journal, changes.unwrap_or_default(), plan);
    if let (Err(Failure::Rejected(_)), Some(folder)) = (&applied, folder) {
        // The files in it are gone again; if it is not empty, it stays.
        let _ = std::fs::remove_dir(folder);
    }
    applied
}

/// Replaces the files and stores the objects.
fn apply_changes(
    journal: Option<&Journal>,
    changes: &[NewFile],
    plan: &Plan,
) -> Result<(), Failure> {
    let transaction = match journal {
        Some(journal) if !changes.is_empty() => {
            let mut transaction = journal.begin(changes).map_err(Failure::Rejected)?;
            transaction.replace().map_err(Failure::Rejected)?;
            Some(transaction)
        }
        _ => None,
    };
    if let Some(plan) = &plan.objects
        && let Err(error) = send(&plan.socket, &plan.body, "", Duration::ZERO)
    {
        return Err(not_stored(error, transaction));
    }
    let Some(transaction) = transaction else { return Ok(()) };
    transaction.commit().map_err(|error| {
        Failure::Failed(match &plan.objects {
            Some(_) => format!("{error}; the objects are restored, the configuration is not"),
            None => format!("{error}; nothing was restored"),
        })
    })
}

/// Returns the failure after the objects were not stored, or after it is unknown whether they were.
fn not_stored(error: RequestError, transaction: Option<Transaction<'_>>) -> Failure {
    let is_unknown = match &error {
        RequestError::Problem(problem) => *problem.problem_type == *STORE_TIMEOUT,
        RequestError::NotRunning { .. }
        | RequestError::PermissionDenied { .. }
        | RequestError::Rejected(_) => false,
        RequestError::Truncated(_) | RequestError::Malformed(_) => true,
    };
    let text = error.to_string();
    match transaction {
        _ if is_unknown => Failure::Failed(format!(
            "{text}; it is unknown whether the objects are restored: type the same command again, \
             which restores everything that is not"
        )),
        Some(transaction) => Failure::Rejected(transaction.undone(text)),
        None => Failure::Rejected(text),
    }
}

/// Waits until the objects are in force, and returns the exit code.
fn wait(options: &GlobalOptions, plan: &Plan, seconds: u64) -> Result<ExitCode, String> {
    let Some(plan) = &plan.objects else { return Ok(ExitCode::SUCCESS) };
    let changed =
        plan.restored.objects.iter().any(|object| {
            matches!(object.action, RestoreAction::Created | RestoreAction::Replaced)
        });
    if seconds == 0 || !changed {
        return Ok(ExitCode::SUCCESS);
    }
    let path = format!("/v1/restore?wait={seconds}s");
    let headers = [("Content-Type", "application/json")];
    let idle_timeout = IDLE_TIMEOUT + Duration::from_secs(seconds);
    // The same list again changes nothing, and waits for all of its objects.
    let body = &plan.body;
    let request = Request { headers: &headers, body, idle_timeout, ..Request::new("POST", &path) };
    let is_table = options.output() == Output::Table;
    match request::send(&plan.socket, &request) {
        Ok(response) if response.status.as_u16() == 202 => {
            eprintln!(
                "restored, but not in force on all lcores after {seconds} s; see `weir status`"
            );
            Ok(ExitCode::from(1))
        }
        Ok(_) => {
            if is_table {
                put("in force on all lcores\n");
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(RequestError::Problem(problem)) if *problem.problem_type == *NOT_IN_FORCE => {
            eprintln!("restored, but not in force: {problem}");
            Ok(ExitCode::from(1))
        }
        Err(error) => Err(format!("restored, but waiting failed: {error}")),
    }
}

impl Plan {
    fn document(&self, dry_run: bool, is_rejected: bool) -> Value {
        let configuration = self.configuration.as_ref().map(|plan| {
            json!({
                "files": plan.files,
                "machine_values": plan.machine_values,
                "machine_values_compared": plan.is_compared,
                "restart": plan.restarts,
                "seed": plan.seed.0,
            })
        });
        json!({
            "dry_run": dry_run,
            "rejected": is_rejected,
            "backup": {
                "appliance": self.manifest.appliance,
                "created": self.manifest.created,
                "revision": self.manifest.revision,
                "weir": self.manifest.weir,
            },
            "configuration": configuration,
            "objects": self.objects.as_ref().map(|plan| &plan.restored.objects),
            "skipped": self.objects.as_ref().map(|plan| &plan.skipped),
            "missing_secrets": self.missing,
        })
    }

    /// Describes the plan, or with `planned` false what was done.
    fn text(&self, planned: bool) -> String {
        let would = if planned { "would be " } else { "" };
        let Manifest { appliance, created, weir, .. } = &self.manifest;
        let of = if appliance.is_empty() { String::new() } else { format!(" of {appliance}") };
        let mut text = format!("backup{of} from {created}, written by Weir {weir}\n");
        if let Some(plan) = &self.configuration {
            text += &configuration_text(plan, would);
        }
        if let Some(plan) = &self.objects {
            text += &objects_text(plan, would);
        }
        for secret in &self.missing {
            let path = secret.path.display();
            text += &format!(
                "missing: {path} ({}): a secret or its certificate, which no backup contains; \
                 create it\n",
                secret.key
            );
        }
        text
    }
}

fn configuration_text(plan: &ConfigurationPlan, would: &str) -> String {
    let mut text = String::new();
    for file in &plan.files {
        let path = file.path.display();
        text += &match file.action {
            FileAction::Created => format!("{path}: {would}created\n"),
            FileAction::Replaced => format!("{path}: {would}replaced\n"),
            FileAction::Unchanged => format!("{path}: unchanged\n"),
            FileAction::Left => format!("{path}: left, not in the backup; slowpath reads it too\n"),
        };
    }
    for value in &plan.machine_values {
        let here = value.here.as_deref().unwrap_or("\"auto\" or not set");
        let (key, backup) = (value.key, &value.backup);
        text += &match plan.is_compared {
            true => format!("value of another machine: {key} = {backup}; here {here}\n"),
            false => format!("value of one machine: {key} = {backup}; make sure that it is this\n"),
        };
    }
    text += &match plan.seed.0 {
        SeedAction::None => String::new(),
        SeedAction::Created => format!("generated seed: {would}stored\n"),
        SeedAction::Unchanged => "generated seed: unchanged\n".to_owned(),
        SeedAction::Left => "generated seed: this machine has another one, which stays, because \
                             the flows in its region depend on it\n"
            .to_owned(),
    };
    if plan.changes.is_empty() {
        return text;
    }
    text + &match plan.restarts.as_deref() {
        None => "the configuration takes effect at the next start\n".to_owned(),
        Some([]) => "the configuration takes effect without a restart, as slowpath reads changed \
                     files\n"
            .to_owned(),
        Some(keys) => {
            let keys: String = keys.iter().map(|key| format!("  {key}\n")).collect();
            format!(
                "keys of the replaced file that change only at a restart (`weir status`):\n{keys}"
            )
        }
    }
}

fn objects_text(plan: &ObjectPlan, would: &str) -> String {
    let (mut text, mut unchanged) = (String::new(), 0);
    for object in &plan.restored.objects {
        let (kind, name) = (object.kind, &object.name);
        text += &match object.action {
            RestoreAction::Created => format!("{kind} {name}: {would}created\n"),
            RestoreAction::Replaced => format!("{kind} {name}: {would}replaced\n"),
            RestoreAction::Left => format!("{kind} {name}: left, not in the backup\n"),
            RestoreAction::Unchanged => {
                unchanged += 1;
                continue;
            }
        };
    }
    text += &format!("objects unchanged: {unchanged}\n");
    for (source, count) in &plan.skipped {
        text += &format!(
            "objects left to their source `{source}`, which defines them again: {count} (--as-api \
             restores them as objects of the API)\n"
        );
    }
    text
}
