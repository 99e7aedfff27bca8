//! `weir get`: objects in their envelopes, and `weir maps dump`: what lies in the plane.

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::Value;

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
}

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
    let mut objects: Vec<Value> = super::get(socket, &format!("/objects/{}", escaped(&kind)))?;
    if let Some(name) = &args.name {
        objects.retain(|object| field(object, "name") == *name);
        if objects.is_empty() {
            return Err(format!("there is no {kind} {name}; see `weir get {kind}`"));
        }
    }
    let output = if with.json { Output::Json } else { args.output };
    if output != Output::Table {
        put(&written(&objects, output)?);
        return Ok(());
    }
    let mut table = Table::new(&["NAME", "SOURCE", ">REVISION", "CONDITIONS"]);
    for object in &objects {
        table.row(vec![
            field(object, "name"),
            field(object, "source"),
            field(object, "revision"),
            conditions(object),
        ]);
    }
    put(&table.text());
    Ok(())
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
