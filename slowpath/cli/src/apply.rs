//! `weir apply` and `weir diff`: apply the desired state of files, or show what would change.

use std::path::Path;
use std::process::ExitCode;

use api::Problem;
use clap::Args;
use serde_json::json;
use state::object::{ChangeError, ErrorClass, Object};

use super::difference::{self, Field};
use super::files::{self, FileError, Files, LocatedObject, ReadOptions};
use super::options::{GlobalOptions, Output};
use super::output::print;
use super::write::{self, Change, WriteOptions};

/// Arguments of `weir apply`.
#[derive(Args)]
pub struct ApplyArgs {
    /// Files and directories in any format of `services` (TOML, YAML, JSON), or objects as printed
    /// by `weir get`; `-` for standard input
    #[arg(long = "file", short, required = true, num_args = 1.., value_name = "FILE")]
    files: Vec<String>,
    /// Apply objects of other sources (files, sessions) as objects of the API; otherwise they are
    /// skipped, since their sources define them
    #[arg(long)]
    as_api: bool,
    /// Overwrite existing objects and recreate deleted ones, whatever the revision in the file
    #[arg(long)]
    restore: bool,
    #[command(flatten)]
    write_options: WriteOptions,
}

/// Arguments of `weir diff`.
#[derive(Args)]
pub struct DiffArgs {
    /// Files and directories, as for `weir apply`
    #[arg(long = "file", short, required = true, num_args = 1.., value_name = "FILE")]
    files: Vec<String>,
    /// Compare objects of other sources too, as for `weir apply`
    #[arg(long)]
    as_api: bool,
}

/// Runs `weir apply`.
pub fn apply(options: &GlobalOptions, socket: &Path, args: &ApplyArgs) -> Result<ExitCode, String> {
    let read_options = ReadOptions { as_api: args.as_api, restore: args.restore };
    let Files { objects, skipped } = match files::read(options, &args.files, read_options) {
        Ok(read) => read,
        Err(FileError::Unreadable(why)) => return Err(why),
        Err(FileError::Invalid(why)) => {
            print(options, &json!({ "error": why }), || {
                eprintln!("{why}\nnothing was written");
                String::new()
            });
            return Ok(ExitCode::from(1));
        }
    };
    skipped.iter().for_each(|why| eprintln!("{why}"));
    let changes: Vec<Change<'_>> = objects.iter().map(change).collect();
    write::apply_and_print(options, socket, &changes, &args.write_options)
}

fn change(object_in_file: &LocatedObject) -> Change<'_> {
    Change {
        kind: object_in_file.object.kind(),
        name: object_in_file.object.name.clone(),
        next: Box::new(|before| {
            check_revision(&object_in_file.object, before)?;
            Ok(Some(object_in_file.object.clone()))
        }),
        location: Box::new(|field| object_in_file.location(field)),
    }
}

/// Returns an error if the object in the file is based on another desired state than `before`, the
/// current object, or if the current object no longer exists. An object without a revision is
/// accepted. One with a generation is accepted, too, if it equals the current desired state.
///
/// A change of the desired state sets the generation of an object to its new revision. An update of
/// its status changes only the revision. An object without a generation must have the current
/// revision.
fn check_revision(object: &Object, before: Option<&Object>) -> Result<(), Problem> {
    let is_current = match before {
        _ if object.revision == 0 => true,
        None => false,
        Some(before) if object.generation == 0 => before.revision == object.revision,
        Some(before) => before.generation == object.generation || before.same_desired_state(object),
    };
    if is_current {
        return Ok(());
    }
    let at = object.revision;
    let fault = match before {
        None => format!("the file is based on revision {at}, and the object no longer exists"),
        Some(before) => format!(
            "the file is based on revision {at}, and the object has changed since, to revision {}",
            before.revision
        ),
    };
    let remedy = "read the object again with `weir get`, or omit `revision` to overwrite it";
    Err(ChangeError::new("revision", fault, remedy).with_class(ErrorClass::Conflict).into())
}

/// Runs `weir diff`.
pub fn diff(options: &GlobalOptions, socket: &Path, args: &DiffArgs) -> Result<ExitCode, String> {
    let read_options = ReadOptions { as_api: args.as_api, restore: false };
    let read = files::read(options, &args.files, read_options).map_err(|fault| match fault {
        FileError::Unreadable(why) | FileError::Invalid(why) => why,
    })?;
    let Files { objects, skipped } = read;
    skipped.iter().for_each(|why| eprintln!("{why}"));
    let (mut text, mut all) = (String::new(), Vec::new());
    for object_in_file in &objects {
        let object = &object_in_file.object;
        let (kind, name) = (object.kind(), &object.name);
        let before = write::current(socket, kind, name).map_err(|e| e.to_string())?;
        let fields = difference::fields(before.as_ref(), Some(object));
        if fields.is_empty() && before.is_some() {
            continue;
        }
        text.push_str(&compared(before.as_ref(), object_in_file, &fields));
        let done = if before.is_some() { "changed" } else { "created" };
        all.push(json!({ "kind": kind, "name": name, "done": done, "fields": fields }));
    }
    if options.output() != Output::Table || !all.is_empty() {
        print(options, &all, || text);
    }
    Ok(if all.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Formats the header lines as `diff -u` does, followed by the differing fields.
fn compared(before: Option<&Object>, object_in_file: &LocatedObject, fields: &[Field]) -> String {
    let named = format!("{} {}", object_in_file.object.kind(), object_in_file.object.name);
    let old = match before {
        Some(before) => format!("{named} (revision {})", before.revision),
        None => "nothing".to_owned(),
    };
    format!("--- {old}\n+++ {named} ({})\n{}", object_in_file.file, difference::lines(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(revision: u64, generation: u64, mss: u16) -> Object {
        let json = json!({ "kind": "Service", "name": "web", "revision": revision,
            "generation": generation, "spec": { "mss": mss, "frontends": [] } });
        Object::from_json(&json).unwrap()
    }

    #[test]
    fn rejects_older_generation_and_accepts_older_status() {
        let now = object(9, 7, 1300);
        for (file_object, is_accepted) in [
            (object(0, 0, 1400), true),
            (object(9, 7, 1400), true),
            (object(8, 7, 1400), true),
            (object(5, 5, 1400), false),
            (object(5, 5, 1300), true),
            (object(9, 0, 1400), true),
            (object(8, 0, 1400), false),
        ] {
            let result = check_revision(&file_object, Some(&now));
            assert_eq!(result.is_ok(), is_accepted, "{file_object:?}");
        }
        let gone = check_revision(&object(9, 7, 1300), None).unwrap_err().to_string();
        assert!(gone.contains("no longer exists") && gone.contains("omit `revision`"), "{gone}");
    }
}
