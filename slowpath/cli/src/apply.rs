//! `weir apply` and `weir diff`: apply the desired state of files, or show what would change.

use std::path::Path;
use std::process::ExitCode;

use api::Problem;
use clap::Args;
use serde_json::json;
use state::object::{Object, Refusal, Why};

use super::difference::{self, Field};
use super::files::{self, Files, Given, Take, Wrong};
use super::options::{Output, With};
use super::output::print;
use super::write::{self, How, Wish};

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
    how: How,
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
pub fn apply(with: &With, socket: &Path, args: &ApplyArgs) -> Result<ExitCode, String> {
    let take = Take { as_api: args.as_api, restore: args.restore };
    let Files { given, left_out } = match files::read(with, &args.files, take) {
        Ok(read) => read,
        Err(Wrong::Unread(why)) => return Err(why),
        Err(Wrong::Refused(why)) => {
            print(with, &json!({ "refused": why }), || {
                eprintln!("{why}\nnothing was written");
                String::new()
            });
            return Ok(ExitCode::from(1));
        }
    };
    left_out.iter().for_each(|why| eprintln!("{why}"));
    let wishes: Vec<Wish<'_>> = given.iter().map(wish).collect();
    write::carry_out(with, socket, &wishes, &args.how)
}

fn wish(given: &Given) -> Wish<'_> {
    Wish {
        kind: given.object.kind(),
        name: given.object.name.clone(),
        next: Box::new(|before| {
            fresh(&given.object, before)?;
            Ok(Some(given.object.clone()))
        }),
        place: Box::new(|field| given.place(field)),
    }
}

/// Returns an error if the object has changed since the file was written. Status updates change an
/// object's revision, but not its generation.
fn fresh(given: &Object, before: Option<&Object>) -> Result<(), Problem> {
    let seen = match before {
        _ if given.revision == 0 => true,
        None => false,
        Some(before) if given.generation == 0 => before.revision == given.revision,
        Some(before) => before.generation == given.generation || before.wants_as(given),
    };
    if seen {
        return Ok(());
    }
    let at = given.revision;
    let wrong = match before {
        None => format!("the file is made of revision {at}, and the object is gone"),
        Some(before) => format!(
            "the file is made of revision {at}, and somebody has changed the object since, at {}",
            before.revision
        ),
    };
    let allowed = "read it again with `weir get`, or leave `revision` out to write over it";
    Err(Refusal::new("revision", wrong, allowed).because(Why::Changed).into())
}

/// Runs `weir diff`.
pub fn diff(with: &With, socket: &Path, args: &DiffArgs) -> Result<ExitCode, String> {
    let take = Take { as_api: args.as_api, restore: false };
    let read = files::read(with, &args.files, take).map_err(|wrong| match wrong {
        Wrong::Unread(why) | Wrong::Refused(why) => why,
    })?;
    let Files { given, left_out } = read;
    left_out.iter().for_each(|why| eprintln!("{why}"));
    let (mut text, mut all) = (String::new(), Vec::new());
    for given in &given {
        let object = &given.object;
        let (kind, name) = (object.kind(), &object.name);
        let before = write::current(socket, kind, name).map_err(|e| e.to_string())?;
        let fields = difference::fields(before.as_ref(), Some(object));
        if fields.is_empty() && before.is_some() {
            continue;
        }
        text.push_str(&compared(before.as_ref(), given, &fields));
        let done = if before.is_some() { "changed" } else { "created" };
        all.push(json!({ "kind": kind, "name": name, "done": done, "fields": fields }));
    }
    if with.output() != Output::Table || !all.is_empty() {
        print(with, &all, || text);
    }
    Ok(if all.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Formats the header lines of `diff -u`, followed by the fields.
fn compared(before: Option<&Object>, given: &Given, fields: &[Field]) -> String {
    let named = format!("{} {}", given.object.kind(), given.object.name);
    let old = match before {
        Some(before) => format!("{named} (revision {})", before.revision),
        None => "nothing".to_owned(),
    };
    format!("--- {old}\n+++ {named} ({})\n{}", given.file, difference::lines(fields))
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
    fn a_file_made_of_an_older_generation_is_refused_and_one_of_an_older_status_is_not() {
        let now = object(9, 7, 1300);
        for (given, fits) in [
            (object(0, 0, 1400), true),
            (object(9, 7, 1400), true),
            (object(8, 7, 1400), true),
            (object(5, 5, 1400), false),
            (object(5, 5, 1300), true),
            (object(9, 0, 1400), true),
            (object(8, 0, 1400), false),
        ] {
            assert_eq!(fresh(&given, Some(&now)).is_ok(), fits, "{given:?}");
        }
        let gone = fresh(&object(9, 7, 1300), None).unwrap_err().to_string();
        assert!(gone.contains("is gone") && gone.contains("leave `revision` out"), "{gone}");
    }
}
