//! The `weir` command: reads the live system over slowpath's Unix socket, changes its desired
//! state, and validates files.

#![forbid(unsafe_code)]

mod apply;
mod archive;
mod audit;
mod auto;
mod backend;
mod backup;
mod bgp;
mod capture;
mod cloud;
mod db;
mod difference;
mod doctor;
mod events;
mod explain;
mod file_error;
mod files;
mod flows;
mod get;
mod health;
mod log;
mod machine;
mod nic;
mod offline;
mod options;
mod output;
mod pages;
mod plane;
mod pls;
mod policy;
mod request;
mod restore;
mod secret_references;
mod service;
mod setup;
mod show;
mod source;
mod table;
mod token;
mod top;
mod tune;
mod upgrade;
mod write;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use options::GlobalOptions;
use output::print;
use request::get;
use slowpath::control::report::{DropReport, NicReport, ServiceReport, Status};

/// Show and control the Weir appliance
#[derive(Parser)]
#[command(name = "weir", version)]
struct Cli {
    #[command(flatten)]
    options: GlobalOptions,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Show whether the appliance is able to serve, with lcores, generation and next hops
    ///
    /// Exit code 0 if it is able to serve, 1 if not, 2 if slowpath does not respond.
    Status,
    /// Show what happened: the history of events, also while slowpath does not run
    ///
    /// Shows the records on the disk, oldest first. Repeated events are one record with their
    /// count.
    Events(events::EventsArgs),
    /// Show and change the level of slowpath's log
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Show services with their frontends, backends and traffic
    Services {
        /// Show only services whose name contains this text
        name: Option<String>,
    },
    /// Show live flows from the flow table
    Flows(flows::FlowsArgs),
    /// Show drops by arm and reason, and what the NICs lost, with the meaning of each
    Drops {
        /// Include reasons without drops
        #[arg(long)]
        all: bool,
    },
    /// Trace the next packets that match a filter through the pipeline
    Trace(flows::TraceArgs),
    /// Capture packets with the decisions about them, before and after the rewrite
    ///
    /// Writes pcapng for tshark or Wireshark, with verdict, reason, service and backend as
    /// comments. All given conditions must hold. Needs the role operate. While a capture is on, the
    /// data plane works more for every packet.
    Capture(capture::CaptureArgs),
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
    Config(ConfigCommand),
    /// Plan and reserve memory for DPDK and the region
    #[command(subcommand)]
    Hugepages(offline::HugepagesCommand),
    /// List the NICs of this machine, bind them for DPDK, return them to the kernel
    #[command(subcommand)]
    Nic(nic::NicCommand),
    /// Select the data plane for plane = "auto", and show which is selected and why
    #[command(subcommand)]
    Plane(plane::PlaneCommand),
    /// Examine this machine: show what prevents Weir from starting or slows it, with remedies
    ///
    /// Changes nothing. Exit code 0 without errors (warnings allowed), 1 with errors.
    Doctor,
    /// Write a first configuration from this machine's devices and its cloud's metadata
    ///
    /// Asks on a terminal, and writes only after a question or with --yes. Values that differ
    /// between machines are written as "auto", so that one file fits every machine of a scale set.
    Setup(setup::SetupArgs),
    /// Show and save this machine's values for the keys that are "auto" in the configuration
    #[command(subcommand)]
    Auto(auto::AutoCommand),
    /// Set CPUs, interrupts, memory and sysctls of this machine for Weir, and restore them
    #[command(subcommand)]
    Tune(tune::TuneCommand),
    /// Switch a running appliance to the installed version and back, keeping its flows
    #[command(subcommand)]
    Upgrade(upgrade::UpgradeCommand),
    /// Show the tables of the control state: services, frontends, backends, health of components
    #[command(subcommand)]
    Db(db::DbCommand),
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
    /// Back up objects, configuration and state to one file
    ///
    /// The file has mode 0600 and checksums. It lists the files of secrets, and never contains
    /// secrets. While slowpath runs, the API returns all objects at one revision; otherwise they
    /// are read from its store. Exit code 2 when no complete backup was written.
    Backup(backup::BackupArgs),
    /// Restore a backup, all of it or nothing
    ///
    /// Checks the backup and the configuration on this machine first. Deletes nothing: files and
    /// objects that the backup does not contain stay. Exit code 1 when the backup was rejected
    /// (damaged, of a newer format, of another machine, or not valid on this one), or when the
    /// restored objects are not in force; 2 for errors: a file, a disk or slowpath fails.
    Restore(restore::RestoreArgs),
    /// Confirm a large removal by a source
    #[command(subcommand)]
    Source(source::SourceCommand),
    /// Add, change and delete services that are defined over the API
    #[command(subcommand)]
    Service(Box<service::ServiceCommand>),
    /// Set weight and state of a service's backend, whichever source defines it
    #[command(subcommand)]
    Backend(backend::BackendCommand),
    /// Show measured health of backends: state, since when, the last check and its result
    Health(health::HealthArgs),
    /// Show and diagnose this machine's registration with its cloud
    #[command(subcommand)]
    Cloud(cloud::CloudCommand),
    /// Show and manage Azure Private Link services and their private endpoint connections
    #[command(subcommand)]
    Pls(pls::PlsCommand),
    /// Create, list and revoke tokens of the API and of the metrics listener
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Show who changed what, when, and with which outcome (role admin)
    ///
    /// Without slowpath, the log is read from its files in control.state (root).
    Audit(audit::AuditArgs),
    /// Show BGP sessions, routes and policies
    #[command(subcommand)]
    Bgp(bgp::BgpCommand),
    /// Show the tables that the data plane reads (in plane xdp, BPF maps)
    #[command(subcommand)]
    Maps(get::MapsCommand),
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
    /// Show a live view: traffic, services, backends, flows, drops, lcores, BGP and the cloud
    ///
    /// On a terminal, a full-screen program; ? shows its keys. Elsewhere, and with --once,
    /// --samples or another output format, text or documents. Exit code 130 after Ctrl-C.
    Top(top::TopArgs),
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Validate configuration and services file, and show the effective values with their origin
    Check,
}

/// Runs the command line. Unless a subcommand's help states otherwise, the exit code is 0 for
/// success, 1 for a negative result, and 2 for errors.
fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = run(&cli);
    if let Some(change) = offline_change(&cli.command) {
        audit::record_command(&cli.options, change, Vec::new(), &result);
    }
    match result {
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
    let options = &cli.options;
    match &cli.command {
        CliCommand::Config(ConfigCommand::Check) => return offline::config_check(options),
        CliCommand::Hugepages(command) => {
            let config = plane::load_for_memory(options, command.wait())?;
            return offline::hugepages(options, command, &config);
        }
        CliCommand::Plane(command) => return plane::run(options, command),
        CliCommand::Nic(command) => return nic::run(options, command),
        CliCommand::Doctor => return doctor::run(options),
        CliCommand::Setup(args) => return setup::run(options, args),
        CliCommand::Auto(command) => return auto::run(options, command),
        CliCommand::Tune(command) => return tune::run(options, command),
        CliCommand::Upgrade(command) => return upgrade::run(options, command),
        CliCommand::Backup(args) => return backup::run(options, args),
        CliCommand::Restore(args) => return restore::run(options, args),
        CliCommand::Events(args) => return events::run(options, args),
        CliCommand::Token(command) => return token::run(options, command),
        CliCommand::Audit(args) => return audit::run(options, args),
        CliCommand::Completions { shell } => {
            pages::completions(options, Cli::command(), *shell);
            return Ok(ExitCode::SUCCESS);
        }
        CliCommand::Man { out } => {
            pages::man(options, Cli::command(), out)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let socket = offline::socket(options)?;
    match &cli.command {
        CliCommand::Status => {
            let interrupted =
                offline::configuration_file(options).and_then(config::restore_journal::warning);
            interrupted.iter().for_each(|text| eprintln!("{text}"));
            let status: Status = get(&socket, "/status")?;
            print(options, &status, || show::status(&status));
            return Ok(if status.able { ExitCode::SUCCESS } else { ExitCode::from(1) });
        }
        CliCommand::Services { name } => {
            let mut services: Vec<ServiceReport> = get(&socket, "/services")?;
            if let Some(part) = name {
                services.retain(|service| service.name.contains(part.as_str()));
            }
            print(options, &services, || show::services(&services));
        }
        CliCommand::Flows(args) => {
            let page = flows::flows(&socket, args)?;
            print(options, &page, || show::flows(&page));
        }
        CliCommand::Drops { all } => {
            let drops: Vec<DropReport> = get(&socket, "/drops")?;
            let nics: Vec<NicReport> = get(&socket, "/nics")?;
            print(options, &drops, || show::drops(&drops, *all) + &show::nic_losses(&nics));
        }
        CliCommand::Trace(args) => flows::trace(options, &socket, args)?,
        CliCommand::Capture(args) => capture::run(options, &socket, args)?,
        CliCommand::Explain(args) => explain::run(options, &socket, args)?,
        CliCommand::Drain { undo } => {
            let command = if *undo { "off" } else { "on" };
            let done =
                request::put(&socket, &format!("/drain/{command}")).map_err(|e| e.to_string())?;
            print(options, &done, || format!("{done}\n"));
        }
        CliCommand::Top(args) => return top::run(options, &socket, args),
        CliCommand::Apply(args) => return apply::apply(options, &socket, args),
        CliCommand::Diff(args) => return apply::diff(options, &socket, args),
        CliCommand::Service(command) => return service::run(options, &socket, command),
        CliCommand::Cloud(command) => return cloud::run(options, &socket, command),
        CliCommand::Pls(command) => return pls::run(options, &socket, command),
        CliCommand::Bgp(command) => return bgp::run(options, &socket, command),
        CliCommand::Backend(command) => return backend::run(options, &socket, command),
        CliCommand::Log(command) => log::run(options, &socket, command)?,
        CliCommand::Source(command) => source::run(options, &socket, command)?,
        CliCommand::Db(command) => db::run(options, &socket, command)?,
        CliCommand::Get(args) => get::get(options, &socket, args)?,
        CliCommand::Health(args) => health::run(options, &socket, args)?,
        CliCommand::Maps(command) => get::maps(options, &socket, command)?,
        CliCommand::Config(_)
        | CliCommand::Hugepages(_)
        | CliCommand::Nic(_)
        | CliCommand::Plane(_)
        | CliCommand::Doctor
        | CliCommand::Setup(_)
        | CliCommand::Auto(_)
        | CliCommand::Tune(_)
        | CliCommand::Upgrade(_)
        | CliCommand::Backup(_)
        | CliCommand::Restore(_)
        | CliCommand::Events(_)
        | CliCommand::Token(_)
        | CliCommand::Audit(_)
        | CliCommand::Completions { .. }
        | CliCommand::Man { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the call and the object for the audit log if the command changes the appliance without
/// slowpath. Returns `None` for all other commands, and for those that record their changes
/// themselves.
fn offline_change(command: &CliCommand) -> Option<(&'static str, &'static str)> {
    Some(match command {
        CliCommand::Restore(args) if args.writes() => ("restore", "configuration"),
        CliCommand::Auto(auto::AutoCommand::Save { .. }) => ("auto save", "auto_values"),
        CliCommand::Tune(tune::TuneCommand::Apply) => ("tune apply", "machine"),
        CliCommand::Tune(tune::TuneCommand::Revert) => ("tune revert", "machine"),
        CliCommand::Upgrade(upgrade::UpgradeCommand::Apply { .. }) => ("upgrade apply", "programs"),
        CliCommand::Upgrade(upgrade::UpgradeCommand::Commit) => ("upgrade commit", "programs"),
        CliCommand::Upgrade(upgrade::UpgradeCommand::Convert { .. }) => {
            ("upgrade convert", "region")
        }
        CliCommand::Hugepages(offline::HugepagesCommand::Apply(_)) => {
            ("hugepages apply", "machine")
        }
        CliCommand::Plane(plane::PlaneCommand::Decide(_)) => ("plane decide", "plane_file"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
