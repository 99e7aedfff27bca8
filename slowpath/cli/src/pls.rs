//! `weir pls`: shows, pauses and resumes Azure private links, and approves or rejects connections.

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use private_link::object::{ConditionStatus, Connection};
use private_link::status_view::{COLUMNS, Row, age};
use private_link::time::Time;
use serde_json::{Value, json};
use slowpath::cloud::private_link::LinkDetail;
use state::object::API;

use super::options::GlobalOptions;
use super::output::print;
use super::request::{self, Request, escaped, get};
use super::table::Table;

/// Subcommands of `weir pls`.
#[derive(Subcommand)]
pub enum PlsCommand {
    /// Show private links with alias, endpoint address and availability
    List,
    /// Show one private link: conditions, connections, created resources, events
    Show {
        /// Name of the private link
        name: String,
    },
    /// Approve a connection
    Approve(ConnectionArgs),
    /// Reject a connection; its endpoint must be recreated before it can request one again
    Reject(ConnectionArgs),
    /// Pause reconciliation of a private link until `weir pls resume`, or until a time
    ///
    /// Changes only objects of source api (`weir apply`, HTTP API). For others, set `paused` where
    /// they are written.
    Pause {
        /// Name of the private link
        name: String,
        /// End of the pause in RFC 3339 format: 2026-11-22T08:00:00Z
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
    },
    /// Resume reconciliation of a paused private link
    ///
    /// Changes only objects of source api (`weir apply`, HTTP API). For others, remove `paused`
    /// where they are written.
    Resume {
        /// Name of the private link
        name: String,
    },
}

/// Selection of a connection.
#[derive(Args)]
pub struct ConnectionArgs {
    /// Name of the private link
    name: String,
    /// Name of the connection, as shown by `weir pls show`
    connection: String,
    /// Reason, visible to the consumer
    #[arg(long)]
    reason: Option<String>,
}

/// Runs `weir pls`. The exit code of `show` is 1 if the private link is not available.
pub fn run(
    options: &GlobalOptions,
    socket: &Path,
    command: &PlsCommand,
) -> Result<ExitCode, String> {
    match command {
        PlsCommand::List => {
            let rows: Vec<Row> = get(socket, "/private-links")?;
            print(options, &rows, || list(&rows));
        }
        PlsCommand::Show { name } => {
            let detail = detail(socket, name)?;
            print(options, &detail, || show(&detail));
            let available = |c: &private_link::object::Condition| c.status == ConditionStatus::True;
            let aspect = private_link::object::Aspect::Available;
            if !detail.status.condition(aspect).is_some_and(available) {
                return Ok(ExitCode::from(1));
            }
        }
        PlsCommand::Approve(args) => decide(options, socket, "approve", args)?,
        PlsCommand::Reject(args) => decide(options, socket, "reject", args)?,
        PlsCommand::Pause { name, until } => {
            let until = until.as_ref().map_or(json!(true), |until| json!(until));
            if let Some(text) = until.as_str()
                && Time::read(text).is_none()
            {
                return Err(format!("`{text}` is not a time; write 2026-11-22T08:00:00Z"));
            }
            pause(options, socket, name, &until)?;
        }
        PlsCommand::Resume { name } => pause(options, socket, name, &Value::Null)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn detail(socket: &Path, name: &str) -> Result<LinkDetail, String> {
    get(socket, &format!("/private-links/{name}", name = path(name)))
}

/// Escapes a name for a path; slashes are kept.
fn path(name: &str) -> String {
    name.split('/').map(escaped).collect::<Vec<_>>().join("/")
}

fn list(rows: &[Row]) -> String {
    let mut table = Table::new(&COLUMNS);
    rows.iter().for_each(|row| table.row(row.cells().to_vec()));
    if table.is_empty() { "there is no private link\n".to_owned() } else { table.text() }
}

fn show(detail: &LinkDetail) -> String {
    let LinkDetail { name, source, deleting, status, spec, events, .. } = detail;
    let deletion = if *deleting { ", being deleted" } else { "" };
    let mut text = format!("{name} (source {source}{deletion})\n");
    let mut facts = Table::new(&["", ""]);
    let endpoint = &status.endpoint;
    for (key, value) in [
        ("location", Some(spec.location.clone())),
        ("resource group", Some(spec.resource_group.clone())),
        ("load balancer", status.service.balancer.as_ref().map(|(id, _)| id.to_string())),
        ("service", status.service.id.as_ref().map(ToString::to_string)),
        ("alias", status.service.alias.clone()),
        ("endpoint", endpoint.id.as_ref().map(ToString::to_string)),
        ("endpoint address", endpoint.address.map(|address| address.to_string())),
    ] {
        if let Some(value) = value {
            facts.row(vec![key.to_owned(), value]);
        }
    }
    text.push_str(facts.text().trim_start_matches('\n'));
    let now = Time::now();
    let ago = |then: Time| age(now.since(then));
    let mut conditions = Table::new(&["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"]);
    for one in &status.conditions {
        let holds = if one.status == ConditionStatus::True { "True" } else { "False" };
        let (aspect, reason) = (one.aspect.as_str(), one.reason.as_str());
        let cells = [aspect, holds, &ago(one.since), reason, &one.message];
        conditions.row(cells.map(str::to_owned).to_vec());
    }
    if !conditions.is_empty() {
        text.push_str(&format!("\n{}", conditions.text()));
    }
    if !status.service.connections.is_empty() {
        text.push_str(&format!("\n{}", connections(&status.service.connections)));
    }
    let mut event_table = Table::new(&["AGO", "EVENT", "MESSAGE"]);
    for event in events {
        let mark = if event.warning { "warning " } else { "" };
        let times =
            if event.times > 1 { format!(" ({} times)", event.times) } else { String::new() };
        let reason = format!("{mark}{}{times}", event.reason);
        event_table.row(vec![ago(event.at), reason, event.message.clone()]);
    }
    if !event_table.is_empty() {
        text.push_str(&format!("\n{}", event_table.text()));
    }
    text
}

fn connections(all: &[Connection]) -> String {
    let mut table = Table::new(&["CONNECTION", "STATE", "SUBSCRIPTION", "DESCRIPTION"]);
    for one in all {
        let (name, state) = (one.name.clone(), one.state.clone());
        table.row(vec![name, state, one.subscription(), one.description.clone()]);
    }
    table.text()
}

/// Runs `weir pls approve` or `weir pls reject`, as `action` says.
fn decide(
    options: &GlobalOptions,
    socket: &Path,
    action: &str,
    args: &ConnectionArgs,
) -> Result<(), String> {
    let reason = args.reason.as_deref().map(|reason| format!("&reason={}", escaped(reason)));
    let url = format!(
        "/private-links-connections/{action}/{}?connection={}{}",
        path(&args.name),
        escaped(&args.connection),
        reason.unwrap_or_default()
    );
    // The response is sent after Azure has answered.
    let idle_timeout = request::IDLE_TIMEOUT + std::time::Duration::from_secs(60);
    let request = Request { idle_timeout, ..Request::new("PUT", &url) };
    let answer = request::send_json(socket, &request);
    let connection: Connection = answer.map_err(|e| e.to_string())?;
    print(options, &connection, || format!("{} is {}\n", connection.name, connection.state));
    Ok(())
}

/// Sets `spec.paused` to `until`: `true`, or the time at which the pause ends. Null removes it.
fn pause(options: &GlobalOptions, socket: &Path, name: &str, until: &Value) -> Result<(), String> {
    let LinkDetail { source, .. } = detail(socket, name)?;
    if source != API {
        let edit = match until {
            Value::Null => "remove `paused`".to_owned(),
            until => format!("set `paused: {until}`"),
        };
        return Err(format!("{name} belongs to source {source}: {edit} there"));
    }
    let body = json!({ "spec": { "paused": until } }).to_string();
    let at = format!("/v1/objects/private-link-services/{}", path(name));
    let headers = &[("Content-Type", "application/merge-patch+json")];
    let request = Request { headers, body: &body, ..Request::new("PATCH", &at) };
    let object: Value = request::send_json(socket, &request).map_err(|e| e.to_string())?;
    let done = match until {
        Value::Null => format!("{name} is resumed\n"),
        Value::String(until) => format!("{name} is paused until {until}\n"),
        _ => format!("{name} is paused\n"),
    };
    print(options, &object, || done);
    Ok(())
}
