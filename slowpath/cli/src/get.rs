//! `weir get`: shows objects with their status. `weir maps dump`: shows the tables of the data
//! plane.

use std::path::Path;

use api::Problem;
use clap::{Args, Subcommand};
use serde_json::Value;
use state::object::Kind;

use super::options::GlobalOptions;
use super::output::{StreamEvent, follow, print};
use super::request::{self, escaped};
use super::table::Table;

/// Arguments of `weir get`.
#[derive(Args)]
pub struct GetArgs {
    /// Kind of object: service, backends (of a service), appliance, source, bgp-peering-policy,
    /// private-link-service, or `all` for all kinds that `weir apply` accepts
    kind: String,
    /// Show only the object of this name
    name: Option<String>,
    /// Continue until Ctrl-C, showing each object that changes or is deleted
    #[arg(long, short)]
    watch: bool,
    /// With --watch: start after this revision, as reported by a list or an earlier watch
    #[arg(long, requires = "watch")]
    revision: Option<u64>,
}

/// Argument that selects all kinds that `weir apply` accepts.
const ALL: &str = "all";
/// Table headings; `>` marks right-aligned columns.
const HEAD: [&str; 4] = ["NAME", "SOURCE", ">REVISION", "CONDITIONS"];

/// Subcommands of `weir maps`.
#[derive(Subcommand)]
pub enum MapsCommand {
    /// Print services, backends, reverse NAT, affinity, source ranges and Maglev tables, sorted,
    /// one line each
    Dump {
        /// Print only entries of this frontend or backend address
        #[arg(long)]
        address: Option<String>,
        /// Omit identifiers, to compare appliances
        #[arg(long)]
        no_ids: bool,
    },
}

/// Runs `weir get`.
pub fn get(options: &GlobalOptions, socket: &Path, args: &GetArgs) -> Result<(), String> {
    let kind = args.kind.to_lowercase();
    let all = kind == ALL;
    if args.watch {
        if all {
            return Err("--watch requires a single kind of object".to_owned());
        }
        return watch(options, socket, &kind, args);
    }
    let mut objects: Vec<Value> = Vec::new();
    let kinds = Kind::ALL.iter().filter(|kind| kind.is_desired_state()).map(|kind| kind.plural());
    let kinds: Vec<&str> = if all { kinds.collect() } else { vec![kind.as_str()] };
    for kind in kinds {
        let of_kind: Vec<Value> = request::get(socket, &format!("/objects/{}", escaped(kind)))?;
        objects.extend(of_kind);
    }
    if let Some(name) = &args.name {
        objects.retain(|object| field(object, "name") == *name);
        if objects.is_empty() {
            return Err(format!("there is no {kind} {name}; see `weir get {kind}`"));
        }
    }
    print(options, &objects, || {
        let mut table = Table::new(&HEAD);
        for object in &objects {
            let mut row = row(object);
            if all {
                row[0] = format!("{} {}", field(object, "kind"), row[0]);
            }
            table.row(row);
        }
        table.text()
    });
    Ok(())
}

fn row(object: &Value) -> Vec<String> {
    let fields = ["name", "source", "revision"].map(|name| field(object, name));
    fields.into_iter().chain([conditions(object)]).collect()
}

/// Prints the existing objects, unless a revision is given, and then each change.
fn watch(options: &GlobalOptions, socket: &Path, kind: &str, args: &GetArgs) -> Result<(), String> {
    let since = args.revision.map(|revision| format!("&revision={revision}")).unwrap_or_default();
    let path = format!("/v1/objects/{}?watch=true{since}", escaped(kind));
    follow(options, socket, &path, |change| {
        let object = &change["object"];
        if args.name.as_ref().is_some_and(|name| object.is_object() && object["name"] != **name) {
            return Ok(StreamEvent::Filtered);
        }
        match change["type"].as_str().unwrap_or_default() {
            "error" => {
                let problem: Result<Problem, _> = serde_json::from_value(change["problem"].clone());
                Err(problem.map_or(change.to_string(), |problem| problem.to_string()))
            }
            "put" => {
                let mut table = Table::new(&HEAD);
                table.row(row(object));
                Ok(StreamEvent::Row(table))
            }
            "removed" => Ok(StreamEvent::Removed(field(object, "name"))),
            _ => Ok(StreamEvent::Bookmark),
        }
    })
}

fn field(object: &Value, name: &str) -> String {
    object.get(name).map(state::show::cell).unwrap_or_default()
}

/// Formats the conditions of an object: the type of a true one, and otherwise also the status and
/// the message, as in `Reconciled, Ready=false (why)`.
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
pub fn maps(options: &GlobalOptions, socket: &Path, command: &MapsCommand) -> Result<(), String> {
    let MapsCommand::Dump { address, no_ids } = command;
    let address = address.as_deref().map(escaped).unwrap_or_default();
    let lines: Vec<String> =
        request::get(socket, &format!("/maps?address={address}&ids={}", !no_ids))?;
    print(options, &lines, || lines.iter().map(|line| format!("{line}\n")).collect());
    Ok(())
}
