//! The `weir` command: reads the live system over slowpath's unix socket, writes what is wanted of
//! it, and checks files.

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

/// Where slowpath listens when nobody says.
const SOCKET: &str = "/run/weir/control.sock";

/// Shows and checks what the Weir appliance does.
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
    /// Is the appliance able, and if not, why; lcores, generation, next hops
    Status,
    /// Services with their frontends, backends and traffic
    Services {
        /// Only services whose name contains this
        name: Option<String>,
    },
    /// Live flows, from the flow table itself
    Flows(flows::FlowsArgs),
    /// Drops by arm and reason, with what each reason means
    Drops {
        /// Also the reasons without a drop
        #[arg(long)]
        all: bool,
    },
    /// Follows packets of one flow, stage by stage
    Trace(flows::TraceArgs),
    /// What would become of a packet that came now, and why; nothing is sent and nothing changed
    Explain(explain::ExplainArgs),
    /// Tells health probes that no new traffic is wanted; flows go on, and so do packets that come
    /// all the same. It holds over restarts of slowpath and fastpath, until --undo or a reboot
    Drain {
        /// Traffic is wanted again
        #[arg(long)]
        undo: bool,
    },
    /// The configuration file
    #[command(subcommand)]
    Config(ConfigWhat),
    /// Memory for DPDK and the region
    #[command(subcommand)]
    Hugepages(offline::HugepagesWhat),
    /// The tables of the control state: services, frontends, backends, health of the parts
    #[command(subcommand)]
    Db(db::DbWhat),
    /// Objects as they were given, with what became of them
    Get(get::GetArgs),
    /// Makes what files say wanted: all that a services file or folder may hold, and objects as
    /// `weir get --output yaml` prints them. Exit code 0 when all is done, 1 when something was
    /// refused or isn't in force
    Apply(apply::ApplyArgs),
    /// What `weir apply` would change, field by field. Exit code 0 without a difference, 1 with
    /// one, 2 for errors
    Diff(apply::DiffArgs),
    /// Permits the removal for which a source's list is held
    #[command(subcommand)]
    Source(source::SourceWhat),
    /// Adds, changes and deletes a service of the API
    #[command(subcommand)]
    Service(Box<service::ServiceWhat>),
    /// Weight and state of a service's backend, whoever named it
    #[command(subcommand)]
    Backend(backend::BackendWhat),
    /// Health of backends as it is measured: state, since when, the last probe and why
    Health(health::HealthArgs),
    /// This machine at its cloud
    #[command(subcommand)]
    Cloud(cloud::CloudWhat),
    /// Private links at Azure: services in front of internal load balancers, their connections
    #[command(subcommand)]
    Pls(pls::PlsWhat),
    /// Sessions with routers, what they are told of addresses, and what is wrong with policies
    #[command(subcommand)]
    Bgp(bgp::BgpWhat),
    /// What lies in the plane, one line a thing
    #[command(subcommand)]
    Maps(get::MapsWhat),
    /// Completions for a shell: `weir completions bash > /etc/bash_completion.d/weir`
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Writes man pages
    Man {
        /// Into this folder
        #[arg(long, default_value = ".", value_name = "FOLDER")]
        out: PathBuf,
    },
    /// Live view: flows and packets per service and backend, drops by reason
    Top {
        /// Seconds between two looks
        #[arg(long, default_value_t = 1.0)]
        every: f64,
        /// How many looks, then end; without it until Ctrl-C
        #[arg(long)]
        looks: Option<u64>,
    },
}

#[derive(Subcommand)]
enum ConfigWhat {
    /// Checks configuration and services file, prints what is in force and from where
    Check,
}

/// Runs the command line; the exit code is 0, 1 for "no", 2 for errors.
fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => code,
        Err(text) => {
            // What config renders has its own form, over several lines.
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

/// The socket: as told, else the configuration's, else the default.
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
