//! `weir restore`: restores a backup, all of it or nothing.
//!
//! ```text
//!   check     checksums and versions of the file, the configuration on this machine, the objects
//!             by a dry run of the API
//!   replace   the files of the configuration and the seed, with a journal (restore/files.rs)
//!   store     the objects, in one transaction of the API
//!   end       remove the journal
//! ```
//! If the objects are rejected, the old files are put back. A process that is killed leaves the
//! journal: the next restore puts the old files back first, and then starts from the beginning.

mod failure;
mod files;
mod targets;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use api::{RestoreAction, Restored};
use clap::Args;
use config::restore_journal;
use serde_json::{Value, json};
use slowpath::sources::CONFIG;
use state::name::Source;
use state::object::{API, Key, Object};

use super::archive::{self, Archive, ArchiveError, Manifest, SecretReference};
use super::backup::Only;
use super::file_error;
use super::offline;
use super::options::{GlobalOptions, Output};
use super::output::{print, write_stdout};
use super::request::{self, IDLE_TIMEOUT, Request, RequestError};
use super::secret_references::references;
use super::write::{self, WriteOptions};
use failure::Failure;
use files::{Journal, Transaction, Undone};
use targets::{ConfigurationPlan, FileAction, PlannedFile, SeedAction};

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
    /// Put back the files that an interrupted restore has replaced, unless one was changed since
    #[arg(long)]
    undo: bool,
    /// With --undo: discard the changes that were made to these files since
    #[arg(long, requires = "undo")]
    force: bool,
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
    /// Each object in JSON, as it is sent.
    bodies: Vec<String>,
    /// Number of objects by source that are not restored, because the source defines them again.
    skipped: BTreeMap<String, usize>,
    /// Result of the API's dry run.
    restored: Restored,
}

/// Everything that a restore would do.
struct Plan {
    manifest: Manifest,
    configuration: Option<ConfigurationPlan>,
    objects: Option<ObjectPlan>,
    missing: Vec<SecretReference>,
}

impl RestoreArgs {
    /// Returns whether the command changes anything if it succeeds.
    pub fn writes(&self) -> bool {
        !self.write_options.dry_run
    }
}

/// Runs `weir restore`.
pub fn run(options: &GlobalOptions, args: &RestoreArgs) -> Result<ExitCode, String> {
    let target = options.config.as_deref().unwrap_or(Path::new(CONFIG));
    // Absolute, because the journal may be read by a process with another working directory.
    let target = &std::path::absolute(target).map_err(|e| file_error::text(target, &e))?;
    let Some(file) = &args.file else { return undo(options, target, args.force) };
    match restore(options, args, target, file) {
        Ok(code) => Ok(code),
        Err(Failure::Rejected(text)) => {
            eprintln!("{text}\nnothing was restored");
            if options.output() != Output::Table {
                print(options, &json!({ "error": text }), String::new);
            }
            Ok(ExitCode::from(1))
        }
        Err(Failure::Failed(text)) => Err(format!("{text}; nothing was restored")),
        Err(Failure::Incomplete(text)) => Err(text),
    }
}

/// Restores a backup, and returns the exit code.
fn restore(
    options: &GlobalOptions,
    args: &RestoreArgs,
    target: &Path,
    file: &Path,
) -> Result<ExitCode, Failure> {
    let archive = archive::read(file).map_err(|error| {
        let text = format!("{}: {error}", file.display());
        match error {
            ArchiveError::Unreadable(_) => Failure::Failed(text),
            _ => Failure::Rejected(text),
        }
    })?;
    let dry_run = args.write_options.dry_run;
    let replaces_files =
        args.only != Some(Only::Objects) && archive.contents.configuration.is_some();
    let journal = match replaces_files && !dry_run {
        true => Some(Journal::open(target).map_err(Failure::Failed)?),
        false => None,
    };
    match &journal {
        Some(journal) => {
            report_undone(&journal.undo_interrupted(false).map_err(Failure::Incomplete)?);
        }
        None => restore_journal::warning(target).into_iter().for_each(|text| eprintln!("{text}")),
    }
    let plan = plan(options, args, target, archive)?;
    let is_of_another =
        |plan: &ConfigurationPlan| plan.is_compared && !plan.machine_values.is_empty();
    let is_rejected =
        plan.configuration.as_ref().is_some_and(is_of_another) && !args.with_machine_values;
    if dry_run || is_rejected {
        print(options, &plan.document(dry_run, is_rejected), || plan.text("would be "));
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
    let warning = apply(journal.as_ref(), &plan)?;
    print(options, &plan.document(false, false), || plan.text(""));
    warning.iter().for_each(|text| eprintln!("warning: {text}"));
    wait(options, &plan, args.write_options.wait).map_err(Failure::Incomplete)
}

/// Runs `weir restore --undo`.
fn undo(options: &GlobalOptions, target: &Path, force: bool) -> Result<ExitCode, String> {
    let undone = Journal::open(target)?.undo_interrupted(force)?;
    print(options, &json!({ "undone": undone.files }), || match &undone.files {
        None => "no restore was interrupted; nothing to undo\n".to_owned(),
        Some(_) => String::new(),
    });
    report_undone(&undone);
    Ok(ExitCode::SUCCESS)
}

fn report_undone(undone: &Undone) {
    for path in undone.files.iter().flatten() {
        eprintln!("{}: as before the interrupted restore", path.display());
    }
    undone.warning.iter().for_each(|text| eprintln!("warning: {text}"));
}

/// Checks the backup and compares it with the files and objects of this machine. Changes nothing.
fn plan(
    options: &GlobalOptions,
    args: &RestoreArgs,
    target: &Path,
    archive: Archive,
) -> Result<Plan, Failure> {
    let Archive { manifest, contents } = archive;
    let lacks = |what: &str| Failure::Rejected(format!("the backup has no {what}"));
    let includes = |half: Only| args.only.is_none_or(|only| only == half);
    let configuration = match contents.configuration {
        Some(files) if includes(Only::Configuration) => {
            let state = contents.state.unwrap_or_default();
            let plan = targets::plan(options, target, &files, &state);
            Some(plan.map_err(|failure| failure.with_note(&written_by(&manifest)))?)
        }
        None if args.only == Some(Only::Configuration) => return Err(lacks("configuration")),
        _ => None,
    };
    let objects = match contents.objects {
        Some(items) if includes(Only::Objects) => {
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
    // Not reported: a path that this user may not look up, and a relative one, whose directory is
    // not known.
    missing.retain(|secret| {
        secret.path.is_absolute() && secret.path.try_exists().is_ok_and(|exists| !exists)
    });
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

/// Parses the objects, and checks them by a dry run of the API.
fn plan_objects(
    options: &GlobalOptions,
    args: &RestoreArgs,
    items: &[Value],
    manifest: &Manifest,
) -> Result<ObjectPlan, Failure> {
    let (mut objects, mut skipped) = (Vec::new(), BTreeMap::new());
    let mut sources = BTreeMap::new();
    for item in items {
        let mut object = Object::from_json(item)
            .map_err(|error| Failure::Rejected(format!("{error}{}", written_by(manifest))))?;
        if object.source.as_str() != API && !args.as_api {
            *skipped.entry(object.source.as_str().to_owned()).or_default() += 1;
            continue;
        }
        let source = std::mem::replace(&mut object.source, Source::new(API));
        check_source(&mut sources, object.key(), source)?;
        objects.push(object);
    }
    let socket = offline::socket(options).map_err(Failure::Failed)?;
    let bodies: Result<Vec<String>, RequestError> = objects.iter().map(write::body).collect();
    let bodies = bodies.map_err(|e| Failure::Failed(e.to_string()))?;
    let restored = send(&socket, &bodies, "?dry_run=true");
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
    Ok(ObjectPlan { socket, objects, bodies, skipped, restored })
}

/// Returns an error if the backup contains an object of this key from another source, too.
fn check_source(
    sources: &mut BTreeMap<Key, Source>,
    key: Key,
    source: Source,
) -> Result<(), Failure> {
    let Key { kind, name, .. } = key.clone();
    match sources.insert(key, source.clone()) {
        None => Ok(()),
        Some(other) => Err(Failure::Rejected(format!(
            "{kind} {name}: the backup contains it from the sources `{}` and `{}`, and --as-api \
             would restore both as one object; restore without --as-api, then `weir apply` one of \
             them under another name",
            other.as_str(),
            source.as_str()
        ))),
    }
}

/// Sends a list of objects to the API.
fn send(socket: &Path, bodies: &[String], query: &str) -> Result<Restored, RequestError> {
    let (path, body) = (format!("/v1/restore{query}"), list(bodies));
    let headers = [("Content-Type", "application/json")];
    let request = Request { headers: &headers, body: &body, ..Request::new("POST", &path) };
    request::send_json(socket, &request)
}

/// Returns a JSON list of these objects.
fn list(bodies: &[String]) -> String {
    format!("[{}]", bodies.join(","))
}

/// Restores files and objects, all of them or none. Returns a warning if the journal's directory
/// could not be removed.
fn apply(journal: Option<&Journal>, plan: &Plan) -> Result<Option<String>, Failure> {
    let transaction = match (journal, &plan.configuration) {
        (Some(journal), Some(configuration)) if !configuration.is_empty() => {
            let mut transaction = journal.begin(&configuration.folders, &configuration.changes)?;
            transaction.replace()?;
            Some(transaction)
        }
        _ => None,
    };
    if let Some(plan) = &plan.objects
        && let Err(error) = send(&plan.socket, &plan.bodies, "")
    {
        return Err(not_stored(error, transaction));
    }
    let Some(transaction) = transaction else { return Ok(None) };
    transaction.commit().map_err(|failure| match failure {
        Failure::Failed(text) if plan.objects.is_some() => Failure::Incomplete(format!(
            "{text}; the objects are restored, and the old files are back. Correct the cause and \
             repeat the restore"
        )),
        Failure::Incomplete(text) if plan.objects.is_some() => {
            Failure::Incomplete(text + "; the objects are restored")
        }
        failure => failure,
    })
}

/// Returns the failure if the request to store the objects failed. Puts the old files back, unless
/// the objects may be stored.
fn not_stored(error: RequestError, transaction: Option<Transaction<'_>>) -> Failure {
    let text = error.to_string();
    let (is_unknown, is_rejected) = match &error {
        RequestError::Problem(problem) => {
            (*problem.problem_type == *STORE_TIMEOUT, problem.status < 500)
        }
        RequestError::NotRunning { .. }
        | RequestError::PermissionDenied { .. }
        | RequestError::Rejected(_) => (false, false),
        RequestError::Truncated(_) | RequestError::Malformed(_) => (true, false),
    };
    if is_unknown {
        return Failure::Incomplete(format!(
            "{text}; it is unknown whether the objects are restored: type the same command again, \
             which restores everything that is not"
        ));
    }
    let failure = transaction.map_or(Failure::Failed(text.clone()), |files| files.undone(text));
    match failure {
        Failure::Failed(text) if is_rejected => Failure::Rejected(text),
        failure => failure,
    }
}

/// Waits until the objects are in force, and returns the exit code.
fn wait(options: &GlobalOptions, plan: &Plan, seconds: u64) -> Result<ExitCode, String> {
    let Some(plan) = &plan.objects else { return Ok(ExitCode::SUCCESS) };
    let changed = plan.changed();
    if seconds == 0 || changed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let path = format!("/v1/restore?wait={seconds}s");
    let headers = [("Content-Type", "application/json")];
    let idle_timeout = IDLE_TIMEOUT + Duration::from_secs(seconds);
    // The same objects again change nothing; the response arrives when they are in force.
    let body = &list(&changed);
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
                write_stdout("in force on all lcores\n");
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

impl ObjectPlan {
    /// Returns the objects that the restore creates or replaces, in JSON.
    fn changed(&self) -> Vec<String> {
        let changed = self.restored.objects.iter().filter(|object| {
            matches!(object.action, RestoreAction::Created | RestoreAction::Replaced)
        });
        let changed: HashSet<_> = changed.map(|object| (object.kind, &object.name)).collect();
        let all = self.objects.iter().zip(&self.bodies);
        let is_changed = |object: &Object| changed.contains(&(object.kind(), &object.name));
        all.filter(|(object, _)| is_changed(object)).map(|(_, body)| body.clone()).collect()
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
                "seed": plan.seed,
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

    /// Describes the plan, or the restore that was done. `would` precedes the actions: `would be `
    /// or nothing.
    fn text(&self, would: &str) -> String {
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
        let here = value.here.as_deref().unwrap_or("\"auto\" or empty");
        let (key, backup) = (&value.key, &value.backup);
        text += &match plan.is_compared {
            true => format!("value of another machine: {key} = {backup}; here {here}\n"),
            false => format!("value of one machine: {key} = {backup}; check that it is this one\n"),
        };
    }
    text += &match plan.seed {
        SeedAction::None => String::new(),
        SeedAction::Created => format!("generated seed: {would}stored\n"),
        SeedAction::Unchanged => "generated seed: unchanged\n".to_owned(),
        SeedAction::Left => "generated seed: this machine has another one, which stays, because \
                             the flows in its region depend on it\n"
            .to_owned(),
    };
    let is_written =
        |file: &PlannedFile| matches!(file.action, FileAction::Created | FileAction::Replaced);
    if !plan.files.iter().any(is_written) {
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

#[cfg(test)]
mod tests {
    use api::RestoredObject;

    use super::*;

    #[test]
    fn only_objects_that_change_are_sent_again_to_be_waited_for() {
        let (created, unchanged) = (RestoreAction::Created, RestoreAction::Unchanged);
        let actions = [("a", created), ("b", unchanged), ("c", RestoreAction::Replaced)];
        let json = |name: &str| json!({ "kind": "Service", "name": name, "spec": {} });
        let objects: Vec<Object> =
            actions.iter().map(|(name, _)| Object::from_json(&json(name)).unwrap()).collect();
        let restored = objects.iter().zip(actions).map(|(object, (_, action))| RestoredObject {
            kind: object.kind(),
            name: object.name.clone(),
            action,
        });
        let restored = Restored { revision: 7, objects: restored.collect() };
        let bodies = actions.map(|(name, _)| json(name).to_string()).to_vec();
        let (socket, skipped) = (PathBuf::new(), BTreeMap::new());
        let plan = ObjectPlan { socket, objects, bodies, skipped, restored };
        assert_eq!(plan.changed(), ["a", "c"].map(|name| json(name).to_string()));
    }
}
