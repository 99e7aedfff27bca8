//! `weir bgp`: sessions with routers, routes, and what is said of them.

mod detail;

use std::path::Path;
use std::process::ExitCode;

use announce::told::{PeerRow, PolicyRow, PrefixRange, RouteRow, Standing};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ask::{escaped, get};
use super::draw::{Table, count, span};
use super::options::With;
use super::output::print;

/// Prefixes that a cell shows at most.
const SHOWN: usize = 5;

/// What `weir bgp` does. The exit code is 1 while policies can't be carried out as they are.
#[derive(Subcommand)]
pub enum BgpWhat {
    /// Neighbors: session state, since when, routes received and advertised, by family
    Peers {
        /// All that is known of each: what was agreed on, timers, the last notifications, messages,
        /// BFD; and listeners
        #[arg(long)]
        detail: bool,
    },
    /// Routes that neighbors shall have, or have
    #[command(subcommand)]
    Routes(RoutesWhat),
    /// What is said of which routes to which neighbors, and what becomes of theirs
    Policies,
}

/// At which end.
#[derive(Subcommand)]
pub enum RoutesWhat {
    /// Those that neighbors shall have, whether their sessions are up or not
    Available(RoutesArgs),
    /// Those that neighbors have from us
    Advertised(RoutesArgs),
}

/// Which routes.
#[derive(Args)]
pub struct RoutesArgs {
    /// Only of this address family
    #[arg(value_enum)]
    afi: Option<Afi>,
    /// Only of this subsequent address family; there is one
    #[arg(value_enum)]
    safi: Option<Safi>,
    /// Only of the router of this autonomous system
    #[arg(long, value_name = "ASN")]
    router: Option<u32>,
    /// Only of this neighbor; with several routers, --router has to be given as well
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
pub fn run(with: &With, socket: &Path, what: &BgpWhat) -> Result<ExitCode, String> {
    match what {
        BgpWhat::Peers { detail: false } => told(with, socket, "/bgp/peers", peers),
        BgpWhat::Peers { detail: true } => {
            let report: Value = get(socket, "/bgp/peers/detail")?;
            let standing: Standing = get(socket, "/bgp")?;
            print(with, &report, || none_or(&standing, detail::text(&report)));
            Ok(verdict(&standing))
        }
        BgpWhat::Routes(RoutesWhat::Available(args)) => {
            told(with, socket, &asked("available", args), routes)
        }
        BgpWhat::Routes(RoutesWhat::Advertised(args)) => {
            told(with, socket, &asked("advertised", args), routes)
        }
        BgpWhat::Policies => told(with, socket, "/bgp/policies", policies),
    }
}

/// Shows rows; what is wrong with the policies comes after them.
fn told<R: Serialize + DeserializeOwned>(
    with: &With,
    socket: &Path,
    path: &str,
    table: impl FnOnce(&[R]) -> Table,
) -> Result<ExitCode, String> {
    let rows: Vec<R> = get(socket, path)?;
    let standing: Standing = get(socket, "/bgp")?;
    print(with, &rows, || {
        let table = table(&rows);
        none_or(&standing, if table.is_empty() { String::new() } else { table.text() })
    });
    Ok(verdict(&standing))
}

fn verdict(standing: &Standing) -> ExitCode {
    if standing.error.is_empty() {
        return ExitCode::SUCCESS;
    }
    // Not among the rows, which programs read.
    eprintln!("weir: {}", standing.error);
    ExitCode::from(1)
}

/// The rows, or why there are none.
fn none_or(standing: &Standing, rows: String) -> String {
    match (&standing.policy, standing.policies) {
        _ if !rows.is_empty() => rows,
        _ if !standing.error.is_empty() => String::new(),
        (Some(policy), _) => format!("there is none; policy {policy} is carried out\n"),
        (None, 0) => "there is no BGP peering policy\n".to_owned(),
        (None, 1) => "the BGP peering policy that there is does not select this appliance: \
                      compare its node_selector with the labels of the configuration\n"
            .to_owned(),
        (None, all) => format!(
            "none of the {all} BGP peering policies selects this appliance: compare their \
             node_selectors with the labels of the configuration\n"
        ),
    }
}

fn asked(which: &str, args: &RoutesArgs) -> String {
    // There is one SAFI, so that naming it asks for nothing else.
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
            word(&row.way),
            list(&row.peers, ToString::to_string),
            list(&row.families, ToString::to_string),
            list(&row.prefixes, prefix),
            word(&row.rib_action),
            row.path_actions.clone(),
        ]);
    }
    table
}

/// A word as programs read it.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The first of them, and how many more; `any` where all are meant.
fn list<T>(all: &[T], words: impl Fn(&T) -> String) -> String {
    let first: Vec<String> = all.iter().take(SHOWN).map(words).collect();
    match all.len() {
        0 => "any".to_owned(),
        n if n > SHOWN => format!("{} + {} more", first.join(", "), n - SHOWN),
        _ => first.join(", "),
    }
}

#[cfg(test)]
mod tests;
