//! `weir cloud`: shows and diagnoses this machine's registration with its cloud. For scripts, runs
//! commands on instances and waits for conditions.

mod account;
mod doctor;
mod remote;

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use clouds::report::{GatewayTunnels, Report, TunnelPair};
use serde::Serialize;
use slowpath::control::report::Status;

use super::options::GlobalOptions;
use super::output::print;
use super::request::get;
use super::table::{Table, count};
use account::NO_CLOUD;

pub use account::block_on;

/// Subcommands of `weir cloud`.
#[derive(Subcommand)]
pub enum CloudCommand {
    /// Show the registration: target or pool, health reported by the cloud, findings, peers
    ///
    /// Exit code 0 when ready (able to serve, and healthy according to the cloud), 1 when not.
    Status {
        /// Include API calls to the cloud, by outcome
        #[arg(long)]
        calls: bool,
    },
    /// Diagnose credentials, permissions, target group or pool, tunnels, security groups, MTU,
    /// settings
    ///
    /// Changes nothing and does not need slowpath. Exit code 0 when no check fails.
    Doctor,
    /// AWS: run a command on another instance over SSM, and exit with its exit code
    ///
    /// Exit code 255 if AWS did not run the command, or did not report its end in time or its exit
    /// code; 2 if the region is not known.
    Exec(remote::ExecArgs),
    /// AWS: wait for a condition
    ///
    /// Exit code 0 when it is met, 1 after the timeout, 2 at once for errors such as a missing
    /// permission.
    #[command(subcommand)]
    Wait(remote::WaitCommand),
}

/// Runs `weir cloud`.
pub fn run(
    options: &GlobalOptions,
    socket: &Path,
    command: &CloudCommand,
) -> Result<ExitCode, String> {
    match command {
        CloudCommand::Status { calls } => status(options, socket, *calls),
        CloudCommand::Doctor => doctor::run(options, socket),
        CloudCommand::Exec(args) => remote::exec(options, args),
        CloudCommand::Wait(command) => remote::wait(options, socket, command),
    }
}

/// The document of `weir cloud status`.
#[derive(Serialize)]
pub struct CloudStatus {
    /// Response of `GET /cloud`.
    #[serde(flatten)]
    pub report: Report,
    /// Whether the appliance is able to serve by its own checks.
    pub able: bool,
    /// Reasons why the appliance is not able to serve.
    pub reasons: Vec<String>,
}

fn status(options: &GlobalOptions, socket: &Path, calls: bool) -> Result<ExitCode, String> {
    let report: Report = get(socket, "/cloud")?;
    let Status { able, reasons, ready, .. } = get(socket, "/status")?;
    if report.cloud.is_empty() {
        return Err(format!("no cloud is configured: {NO_CLOUD}"));
    }
    let cloud_status = CloudStatus { report: Report { ready, ..report }, able, reasons };
    print(options, &cloud_status, || text(&cloud_status, calls));
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Returns the properties of the registration by name, without findings, peers and calls.
pub fn lines(cloud_status: &CloudStatus) -> Vec<(String, String)> {
    let CloudStatus { report, able, reasons } = cloud_status;
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push((name.to_owned(), value));
        }
    };
    line("phase", report.phase.clone());
    let location = [report.region.as_str(), report.zone.as_str()];
    let location = location.into_iter().rfind(|location| !location.is_empty()).unwrap_or_default();
    if !report.instance.is_empty() {
        line("instance", format!("{} in {location}", report.instance));
    }
    line(if report.cloud == "azure" { "pool" } else { "group" }, report.group.clone());
    line("target", report.target.clone());
    let state = match report.reason.as_str() {
        "" => report.state.clone(),
        reason => format!("{} ({reason})", report.state),
    };
    let state = match report.differs {
        true => format!("{state}, different from own health for a minute or longer"),
        false => state,
    };
    line("state", state);
    let own = match able {
        true => "able to serve".to_owned(),
        false => format!("UNABLE to serve: {}", reasons.join("; ")),
    };
    line("own health", own);
    let seconds = |s: Option<u64>| s.map(|s| format!("{s} s")).unwrap_or_default();
    for gateway in &report.tunnels {
        line(&format!("tunnels of {}", gateway.gateway), tunnels(gateway));
    }
    line("deregistration delay", seconds(report.deregistration_delay_s));
    line("idle timeout (TCP)", seconds(report.tcp_idle_s));
    if let Some(drain) = &report.drain {
        let (flows, max) = (count(drain.flows), drain.at_most_s);
        let text = format!("{}; {flows} flows left, {max} s at most", drain.reason);
        line("drain", text);
    }
    line("error", report.error.clone());
    lines
}

fn text(cloud_status: &CloudStatus, calls: bool) -> String {
    let report = &cloud_status.report;
    let mut table = Table::new(&["", ""]);
    for (name, value) in lines(cloud_status) {
        table.row(vec![name, value]);
    }
    let heading = if report.ready { "ready: the cloud may send traffic\n" } else { "NOT ready\n" };
    let mut text = heading.to_owned() + table.text().trim_start_matches('\n');
    for finding in &report.findings {
        let times =
            if finding.times > 1 { format!(", {} times", finding.times) } else { String::new() };
        text.push_str(&format!(
            "\n{}{times}: {}\n  -> {}\n",
            finding.name, finding.text, finding.remedy
        ));
    }
    if !report.peers.is_empty() {
        text.push_str(&format!("\n{}", peers(report)));
    }
    if calls {
        text.push_str(&format!("\n{}", calls_table(report)));
    }
    text
}

/// Formats the UDP ports and VNIs in force and their origin. If the cloud reports other ones,
/// formats those as well.
fn tunnels(gateway: &GatewayTunnels) -> String {
    let ends = |ends: &TunnelPair| {
        let TunnelPair { external_port, external_vni, internal_port, internal_vni } = ends;
        format!("external {external_port}/{external_vni}, internal {internal_port}/{internal_vni}")
    };
    let GatewayTunnels { in_force, reported, source, .. } = gateway;
    match in_force == reported {
        true => format!("{} (port/VNI), from {source}", ends(in_force)),
        false => format!("{} in force, but {source} reports {}", ends(in_force), ends(reported)),
    }
}

fn peers(report: &Report) -> String {
    let mut table = Table::new(&["PEER", "ADDRESS", "ZONE", "STATE", ""]);
    for peer in &report.peers {
        let own = peer.id == report.target || peer.id == report.instance;
        table.row(vec![
            peer.id.clone(),
            peer.address.map(|address| address.to_string()).unwrap_or_default(),
            peer.zone.clone(),
            peer.state.clone(),
            if own { "this machine".to_owned() } else { String::new() },
        ]);
    }
    table.text()
}

fn calls_table(report: &Report) -> String {
    let mut table = Table::new(&["CALL", "OUTCOME", ">TIMES"]);
    for call in &report.calls {
        table.row(vec![call.operation.clone(), call.outcome.clone(), count(call.times)]);
    }
    table.text()
}

#[cfg(test)]
mod tests;
