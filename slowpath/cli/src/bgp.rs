//! `weir bgp`: shows BGP sessions, routes and policies.

pub mod detail;

use std::path::Path;
use std::process::ExitCode;

use announce::status::{BgpStatus, PeerRow, PolicyRow, PrefixRange, RouteRow};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::options::GlobalOptions;
use super::output::print;
use super::request::{escaped, get};
use super::table::{Table, count, span};

/// Maximum number of items in a table cell.
const MAX_LISTED: usize = 5;

/// Subcommands of `weir bgp`. The exit code is 1 while a policy is invalid or cannot be applied.
#[derive(Subcommand)]
pub enum BgpCommand {
    /// Show neighbors: session state, uptime, received and advertised routes by family
    Peers {
        /// Show negotiated capabilities, timers, last notifications, messages, BFD, and listeners
        #[arg(long)]
        detail: bool,
    },
    /// Show the available routes, or those that were advertised
    #[command(subcommand)]
    Routes(RoutesCommand),
    /// Show route policies: which routes are advertised to which neighbors, and how received routes
    /// are handled
    Policies,
}

/// Subcommands of `weir bgp routes`.
#[derive(Subcommand)]
pub enum RoutesCommand {
    /// Show routes to advertise, whether the sessions are up or not
    Available(RoutesArgs),
    /// Show routes that were advertised to neighbors
    Advertised(RoutesArgs),
}

/// Filter of routes.
#[derive(Args)]
pub struct RoutesArgs {
    /// Show only this address family
    #[arg(value_enum)]
    afi: Option<Afi>,
    /// Show only this subsequent address family; there is one
    #[arg(value_enum)]
    safi: Option<Safi>,
    /// Show only the virtual router with this local AS number
    #[arg(long, value_name = "ASN")]
    router: Option<u32>,
    /// Show only this neighbor; with several routers, --router is required too
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Afi {
    Ipv4,
    Ipv6,
}

#[derive(Clone, Copy, ValueEnum)]
enum Safi {
    Unicast,
}

/// Runs `weir bgp`.
pub fn run(
    options: &GlobalOptions,
    socket: &Path,
    command: &BgpCommand,
) -> Result<ExitCode, String> {
    match command {
        BgpCommand::Peers { detail: false } => print_rows(options, socket, "/bgp/peers", peers),
        BgpCommand::Peers { detail: true } => {
            let report: Value = get(socket, "/bgp/peers/detail")?;
            let status: BgpStatus = get(socket, "/bgp")?;
            print(options, &report, || rows_or_reason(&status, detail::text(&report)));
            Ok(exit_code(&status))
        }
        BgpCommand::Routes(RoutesCommand::Available(args)) => {
            print_rows(options, socket, &routes_path("available", args), routes)
        }
        BgpCommand::Routes(RoutesCommand::Advertised(args)) => {
            print_rows(options, socket, &routes_path("advertised", args), routes)
        }
        BgpCommand::Policies => print_rows(options, socket, "/bgp/policies", policies),
    }
}

/// Prints the rows that slowpath returns for a path, and the error of the policies, if any. If
/// there are no rows, prints the reason instead.
fn print_rows<R: Serialize + DeserializeOwned>(
    options: &GlobalOptions,
    socket: &Path,
    path: &str,
    table: impl FnOnce(&[R]) -> Table,
) -> Result<ExitCode, String> {
    let rows: Vec<R> = get(socket, path)?;
    let status: BgpStatus = get(socket, "/bgp")?;
    print(options, &rows, || {
        let table = table(&rows);
        rows_or_reason(&status, if table.is_empty() { String::new() } else { table.text() })
    });
    Ok(exit_code(&status))
}

/// Returns exit code 0, or if the policies have an error, prints it and returns exit code 1.
fn exit_code(status: &BgpStatus) -> ExitCode {
    if status.error.is_empty() {
        return ExitCode::SUCCESS;
    }
    // Printed to stderr, because programs parse the rows.
    eprintln!("weir: {}", status.error);
    ExitCode::from(1)
}

/// Returns the rows, or if there are none, the reason. Returns an empty text if the reason is an
/// error of the policies, which [`exit_code`] prints.
fn rows_or_reason(status: &BgpStatus, rows: String) -> String {
    match (&status.policy, status.policies) {
        _ if !rows.is_empty() => rows,
        _ if !status.error.is_empty() => String::new(),
        (Some(policy), _) => format!("nothing to show; policy {policy} is in force\n"),
        (None, 0) => "there is no BGP peering policy\n".to_owned(),
        (None, 1) => "the only BGP peering policy does not select this appliance: compare its \
                      node_selector with the labels of the configuration\n"
            .to_owned(),
        (None, all) => format!(
            "none of the {all} BGP peering policies selects this appliance: compare their \
             node_selectors with the labels of the configuration\n"
        ),
    }
}

fn routes_path(which: &str, args: &RoutesArgs) -> String {
    // There is only one SAFI, so that the argument excludes nothing.
    let RoutesArgs { afi, safi: _, router, peer } = args;
    let family = afi.map(|afi| match afi {
        Afi::Ipv4 => "ipv4-unicast".to_owned(),
        Afi::Ipv6 => "ipv6-unicast".to_owned(),
    });
    let router = router.map(|asn| asn.to_string());
    let peer = peer.as_deref().map(escaped);
    let parts = [("family", family), ("router", router), ("peer", peer)];
    let parts = parts.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
    format!("/bgp/routes/{which}?{}", parts.collect::<Vec<_>>().join("&"))
}

fn peers(rows: &[PeerRow]) -> Table {
    let mut table = Table::new(&[
        "NODE",
        ">LOCAL AS",
        ">PEER AS",
        "PEER ADDRESS",
        "SESSION STATE",
        "UPTIME",
        "FAMILY",
        ">RECEIVED",
        ">ADVERTISED",
    ]);
    for row in rows {
        table.row(vec![
            row.node.to_string(),
            row.local_asn.to_string(),
            row.peer_asn.to_string(),
            row.peer.to_string(),
            row.state.to_string(),
            row.uptime_s.map(|s| span(s as u64)).unwrap_or_default(),
            row.family.to_string(),
            count(row.received),
            count(row.advertised),
        ]);
    }
    table
}

fn routes(rows: &[RouteRow]) -> Table {
    let heads = ["NODE", ">VROUTER", "PEER", "PREFIX", "NEXTHOP", "AGE", "ATTRS"];
    let mut table = Table::new(&heads);
    for row in rows {
        table.row(vec![
            row.node.to_string(),
            row.router.to_string(),
            row.peer.to_string(),
            row.prefix.to_string(),
            row.next_hop.to_string(),
            span(row.age_s as u64),
            row.attributes.clone(),
        ]);
    }
    table
}

fn policies(rows: &[PolicyRow]) -> Table {
    let mut table = Table::new(&[
        ">VROUTER",
        "POLICY NAME",
        "TYPE",
        "MATCH PEERS",
        "MATCH FAMILIES",
        "MATCH PREFIXES (MIN..MAX LEN)",
        "RIB ACTION",
        "PATH ACTIONS",
    ]);
    for row in rows {
        let prefix = |one: &PrefixRange| format!("{} ({}..{})", one.prefix, one.min, one.max);
        table.row(vec![
            row.router.to_string(),
            row.policy.clone(),
            serialized_name(&row.direction),
            list(&row.peers, ToString::to_string),
            list(&row.families, ToString::to_string),
            list(&row.prefixes, prefix),
            serialized_name(&row.rib_action),
            row.path_actions.clone(),
        ]);
    }
    table
}

/// Returns the name as which an enum's value is serialized.
fn serialized_name(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Formats the first items of a list and the number of remaining ones; `any` if the list is empty.
fn list<T>(all: &[T], text: impl Fn(&T) -> String) -> String {
    let first: Vec<String> = all.iter().take(MAX_LISTED).map(text).collect();
    match all.len() {
        0 => "any".to_owned(),
        n if n > MAX_LISTED => format!("{} + {} more", first.join(", "), n - MAX_LISTED),
        _ => first.join(", "),
    }
}

#[cfg(test)]
mod tests;
