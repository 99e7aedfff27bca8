//! The `weir` command: reads the live system over slowpath's Unix socket, changes its desired
//! state, and validates files.

#![forbid(unsafe_code)]

mod apply;
mod ask;
mod backend;
mod bgp;
mod cloud;
mod db;
mod difference;
mod draw;
mod explain;
mod files;
mod flows;
mod get;
mod health;
mod offline;
mod options;
mod output;
mod pages;
mod pls;
mod policy;
mod service;
mod show;
mod source;
mod top;
mod write;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use ask::get;
use options::With;
use output::print;
use slowpath::control::report::{DropReport, ServiceReport, Status};
use slowpath::sources::CONFIG;

/// Default path of slowpath's control socket.
const SOCKET: &str = "/run/weir/control.sock";

/// Show and control the Weir appliance
#[derive(Parser)]
#[command(name = "weir", version)]
struct Cli {
    #[command(flatten)]
    with: With,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Show whether the appliance is able to serve, with lcores, generation and next hops
    ///
    /// Exit code 0 if it is able to serve, 1 if not.
    Status,
    /// Show services with their frontends, backends and traffic
    Services {
        /// Show only services whose name contains this text
        name: Option<String>,
    },
    /// Show live flows from the flow table
    Flows(flows::FlowsArgs),
    /// Show drops by arm and reason, with the meaning of each reason
    Drops {
        /// Include reasons without drops
        #[arg(long)]
        all: bool,
    },
    /// Trace packets of one flow through the stages of the pipeline
    Trace(flows::TraceArgs),
    /// Explain how a packet would be handled now, without sending one or changing anything
    Explain(explain::ExplainArgs),
    /// Drain this appliance: fail health checks, keep forwarding established flows
    ///
    /// Packets that still arrive are forwarded. The drain persists over restarts of slowpath and
    /// fastpath until --undo or a reboot.
    Drain {
        /// End the drain: accept new traffic again
        #[arg(long)]
        undo: bool,
    },
    /// Validate the configuration
    #[command(subcommand)]
    Config(ConfigWhat),
    /// Plan and reserve memory for DPDK and the region
    #[command(subcommand)]
    Hugepages(offline::HugepagesWhat),
    /// Show the tables of the control state: services, frontends, backends, health of components
    #[command(subcommand)]
    Db(db::DbWhat),
    /// Show objects with their status
    Get(get::GetArgs),
    /// Apply the desired state from files
    ///
    /// Files hold services, in any format of the services file, or objects as printed by `weir get
    /// --output yaml`. Exit code 0 when everything is in force, 1 when something was rejected or is
    /// not in force.
    Apply(apply::ApplyArgs),
    /// Show what `weir apply` would change, field by field
    ///
    /// Exit code 0 without differences, 1 with differences, 2 for errors.
    Diff(apply::DiffArgs),
    /// Confirm a large removal by a source
    #[command(subcommand)]
    Source(source::SourceWhat),
    /// Add, change and delete services of the API
    #[command(subcommand)]
    Service(Box<service::ServiceWhat>),
    /// Set weight and state of a service's backend, whichever source defines it
    #[command(subcommand)]
    Backend(backend::BackendWhat),
    /// Show measured health of backends: state, since when, the last check and its result
    Health(health::HealthArgs),
    /// Show and diagnose this machine's registration with its cloud
    #[command(subcommand)]
    Cloud(cloud::CloudWhat),
    /// Show and manage Azure private links and their connections
    #[command(subcommand)]
    Pls(pls::PlsWhat),
    /// Show BGP sessions, routes and policies
    #[command(subcommand)]
    Bgp(bgp::BgpWhat),
    /// Show the tables of the data plane
    #[command(subcommand)]
    Maps(get::MapsWhat),
    /// Generate shell completions: `weir completions bash > /etc/bash_completion.d/weir`
    Completions {
        /// Shell to generate completions for
        shell: clap_complete::Shell,
    },
    /// Generate man pages
    Man {
        /// Directory to write to
        #[arg(long, default_value = ".", value_name = "FOLDER")]
        out: PathBuf,
    },
    /// Show a live view: flows and packets per service and backend, drops by reason
    Top {
        /// Seconds between two samples
        #[arg(long, default_value_t = 1.0)]
        every: f64,
        /// Number of samples; without it, sample until Ctrl-C
        #[arg(long)]
        looks: Option<u64>,
    },
}

#[derive(Subcommand)]
enum ConfigWhat {
    /// Validate configuration and services file, and show the effective values with their origin
    Check,
}

/// Runs the command line. The exit code is 0 for success, 1 for a negative result, and 2 for
/// errors.
fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => code,
        Err(text) => {
            // Errors rendered by `config` span several lines and are printed without a prefix.
            match text.starts_with(char::is_whitespace) {
                true => eprintln!("{text}"),
                false => eprintln!("weir: {text}"),
            }
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, String> {
    let with = &cli.with;
    match &cli.what {
        What::Config(ConfigWhat::Check) => return offline::config_check(with),
        What::Hugepages(what) => return offline::hugepages(with, what),
        What::Completions { shell } => {
            pages::completions(with, Cli::command(), *shell);
            return Ok(ExitCode::SUCCESS);
        }
        What::Man { out } => {
            pages::man(with, Cli::command(), out)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let socket = socket(with)?;
    match &cli.what {
        What::Status => {
            let status: Status = get(&socket, "/status")?;
            print(with, &status, || show::status(&status));
            return Ok(if status.able { ExitCode::SUCCESS } else { ExitCode::from(1) });
        }
        What::Services { name } => {
            let mut services: Vec<ServiceReport> = get(&socket, "/services")?;
            if let Some(part) = name {
                services.retain(|service| service.name.contains(part.as_str()));
            }
            print(with, &services, || show::services(&services));
        }
        What::Flows(args) => {
            let page = flows::flows(&socket, args)?;
            print(with, &page, || show::flows(&page));
        }
        What::Drops { all } => {
            let drops: Vec<DropReport> = get(&socket, "/drops")?;
            print(with, &drops, || show::drops(&drops, *all));
        }
        What::Trace(args) => flows::trace(with, &socket, args)?,
        What::Explain(args) => explain::run(with, &socket, args)?,
        What::Drain { undo } => {
            let what = if *undo { "off" } else { "on" };
            let done = ask::order(&socket, &format!("/drain/{what}")).map_err(|e| e.to_string())?;
            print(with, &done, || format!("{done}\n"));
        }
        What::Top { every, looks } => top::run(with, &socket, *every, *looks)?,
        What::Apply(args) => return apply::apply(with, &socket, args),
        What::Diff(args) => return apply::diff(with, &socket, args),
        What::Service(what) => return service::run(with, &socket, what),
        What::Cloud(what) => return cloud::run(with, &socket, what),
        What::Pls(what) => return pls::run(with, &socket, what),
        What::Bgp(what) => return bgp::run(with, &socket, what),
        What::Backend(what) => return backend::run(with, &socket, what),
        What::Source(what) => source::run(with, &socket, what)?,
        What::Db(what) => db::run(with, &socket, what)?,
        What::Get(args) => get::get(with, &socket, args)?,
        What::Health(args) => health::run(with, &socket, args)?,
        What::Maps(what) => get::maps(with, &socket, what)?,
        What::Config(_) | What::Hugepages(_) | What::Completions { .. } | What::Man { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the socket of the command line, else that of the configuration, else the default.
fn socket(with: &With) -> Result<PathBuf, String> {
    if let Some(socket) = &with.socket {
        return Ok(socket.clone());
    }
    match (&with.config, Path::new(CONFIG).exists()) {
        (None, false) if with.set.is_empty() => Ok(SOCKET.into()),
        _ => Ok(offline::load(with)?.control.socket),
    }
}

#[cfg(test)]
mod tests;
