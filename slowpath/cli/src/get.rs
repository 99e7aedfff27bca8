//! `weir get`: objects in their envelopes, and `weir maps dump`: what lies in the plane.

use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use api::Problem;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::ask::{self, AskError};
use super::db::{Output, written};
use super::draw::Table;
use super::{With, escaped, put};

/// Which objects, and how they are shown.
#[derive(Args)]
pub struct GetArgs {
    /// Kind of object: service, backends, appliance
    kind: String,
    /// Only the one of this name
    name: Option<String>,
    /// Table for people, JSON or YAML for programs
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Goes on, and shows each object that changes and each that goes, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
    /// With --watch: only what happened after this revision, as a list or an earlier watch told it
    #[arg(long, requires = "watch")]
    revision: Option<u64>,
}

/// A watch is waited for as long as the person wants.
const PATIENCE: Duration = Duration::from_secs(365 * 86_400);
/// Heads of the table.
const HEAD: [&str; 4] = ["NAME", "SOURCE", ">REVISION", "CONDITIONS"];

/// What lies in the plane, whichever it is.
#[derive(Subcommand)]
pub enum MapsWhat {
    /// Prints services, backends, reverse NAT, affinity, source ranges and Maglev tables, one line
    /// each, sorted
    Dump {
        /// Only what belongs to this frontend or backend address
        #[arg(long)]
        address: Option<String>,
        /// Without identifiers, to compare appliances
        #[arg(long)]
        no_ids: bool,
    },
}

/// Runs `weir get`.
pub fn get(with: &With, socket: &Path, args: &GetArgs) -> Result<(), String> {
    let kind = args.kind.to_lowercase();
    let output = if with.json { Output::Json } else { args.output };
    if args.watch {
        return watch(socket, &kind, args, output);
    }
    let mut objects: Vec<Value> = super::get(socket, &format!("/objects/{}", escaped(&kind)))?;
    if let Some(name) = &args.name {
        objects.retain(|object| field(object, "name") == *name);
        if objects.is_empty() {
            return Err(format!("there is no {kind} {name}; see `weir get {kind}`"));
        }
    }
    if output != Output::Table {
        put(&written(&objects, output)?);
        return Ok(());
    }
    let mut table = Table::new(&HEAD);
    objects.iter().for_each(|object| table.row(row(object)));
    put(&table.text());
    Ok(())
}

fn row(object: &Value) -> Vec<String> {
    let fields = ["name", "source", "revision"].map(|name| field(object, name));
    fields.into_iter().chain([conditions(object)]).collect()
}

/// Shows what is there, or nothing of it, and then what happens.
fn watch(socket: &Path, kind: &str, args: &GetArgs, output: Output) -> Result<(), String> {
    let since = args.revision.map(|revision| format!("&revision={revision}")).unwrap_or_default();
    let path = format!("/v1/objects/{}?watch=true{since}", escaped(kind));
    let answer = ask::lines(socket, &path, PATIENCE).map_err(|e| e.to_string())?;
    let (mut headed, mut widths) = (false, Vec::new());
    for line in answer.lines() {
        let line = line.map_err(|e| AskError::Cut(e).to_string())?;
        let change: Value = serde_json::from_str(&line)
            .map_err(|e| AskError::Strange(e.to_string()).to_string())?;
        let object = &change["object"];
        if args.name.as_ref().is_some_and(|name| object.is_object() && object["name"] != **name) {
            continue;
        }
        match (output, change["type"].as_str().unwrap_or_default()) {
            (_, "error") => {
                let problem: Result<Problem, _> = serde_json::from_value(change["problem"].clone());
                return Err(problem.map_or(line, |problem| problem.to_string()));
            }
            (Output::Json, _) => put(&(line + "\n")),
            (Output::Yaml, _) => put(&format!("---\n{}", written(&change, output)?)),
            (Output::Table, "put") => {
                let mut table = Table::new(&HEAD);
                table.row(row(object));
                let text = table.text_in(&mut widths);
                let skip = usize::from(std::mem::replace(&mut headed, true));
                let lines: Vec<&str> = text.lines().skip(skip).collect();
                put(&(lines.join("\n") + "\n"));
            }
            (Output::Table, "gone") => put(&format!("{}  gone\n", field(object, "name"))),
            (Output::Table, _) => {}
        }
    }
    Err("slowpath has ended, or does not follow any more".to_owned())
}

fn field(object: &Value, name: &str) -> String {
    object.get(name).map(state::show::cell).unwrap_or_default()
}

/// `Reconciled, Ready=false (why)`.
fn conditions(object: &Value) -> String {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let one = |condition: &Value| {
        let (kind, status) = (field(condition, "type"), field(condition, "status"));
        match (status.to_lowercase().as_str(), field(condition, "message")) {
            ("true", _) => kind,
            (_, why) if why.is_empty() => format!("{kind}={status}"),
            (_, why) => format!("{kind}={status} ({why})"),
        }
    };
    all.into_iter().flatten().map(one).collect::<Vec<_>>().join(", ")
}

/// Runs `weir maps`.
pub fn maps(with: &With, socket: &Path, what: &MapsWhat) -> Result<(), String> {
    let MapsWhat::Dump { address, no_ids } = what;
    let address = address.as_deref().map(escaped).unwrap_or_default();
    let lines: Vec<String> =
        super::get(socket, &format!("/maps?address={address}&ids={}", !no_ids))?;
    match with.json {
        true => put(&written(&lines, Output::Json)?),
        false => lines.iter().for_each(|line| put(&format!("{line}\n"))),
    }
    Ok(())
}
