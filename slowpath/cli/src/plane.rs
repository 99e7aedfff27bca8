//! `weir plane`: selects the data plane for `plane = "auto"`, and shows the selection (also called
//! decision: the plane with the reasons, in the file `plane_file`).

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Subcommand, ValueEnum};
use config::checked::{Config, Plane, PlaneFrom, PlaneSetting};
use config::plane_decision;
use host::commands::{Commands, SystemCommands};
use host::plane::{Decision, Dpdk, decide, devices_exist, observe};
use serde::Serialize;
use serde_json::json;

use super::machine::Machine;
use super::offline;
use super::options::{GlobalOptions, WaitArgs};
use super::output::print;

/// Interval at which devices are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The command that restarts all programs, so that they use a new selection.
const RESTART: &str = "systemctl restart weir.target";

/// Subcommands of `weir plane`.
#[derive(Subcommand)]
pub enum PlaneCommand {
    /// Select the plane for plane = "auto" and write it to plane_file (root)
    ///
    /// weir-plane.service does so before the data plane starts. Running programs keep their plane.
    /// With another setting of plane, nothing is selected or written.
    Decide(WaitArgs),
    /// Show the plane, why it was selected, and what would change it
    Show,
    /// Check which plane is selected
    ///
    /// Exit code 0 if it is PLANE, 1 if it is the other plane, 2 if the plane is not known.
    Is {
        /// The plane to compare with
        #[arg(value_enum)]
        plane: PlaneName,
    },
}

/// A plane, as named on the command line.
#[derive(Clone, Copy, ValueEnum)]
pub enum PlaneName {
    /// The fastpath process
    Dpdk,
    /// XDP programs
    Xdp,
}

impl From<PlaneName> for Plane {
    fn from(name: PlaneName) -> Plane {
        match name {
            PlaneName::Dpdk => Plane::Dpdk,
            PlaneName::Xdp => Plane::Xdp,
        }
    }
}

/// Runs `weir plane`.
pub fn run(options: &GlobalOptions, command: &PlaneCommand) -> Result<ExitCode, String> {
    match command {
        PlaneCommand::Decide(wait) => select(options, *wait)?,
        PlaneCommand::Show => {
            // `load` would read the decision, too; one that is unreadable is reported here, with
            // the command that replaces it.
            let config = offline::load_as(options, Plane::Dpdk)?;
            let decision = match config.plane_from {
                PlaneFrom::Configured => None,
                _ => Decision::read(&config.plane_file).map_err(|e| unusable(&config, &e))?,
            };
            let now = selected_now(&config, &Machine::read()?);
            let report = PlaneReport::new(&config, decision, now);
            print(options, &report, || report.text());
        }
        PlaneCommand::Is { plane } => return compare(options, Plane::from(*plane)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the DPDK of the fastpath beside this program: the programs of one installation are in
/// one directory.
pub fn linked_dpdk() -> Option<Dpdk> {
    let program = std::env::current_exe().ok()?;
    let fastpath = program.parent()?.join("fastpath");
    Dpdk::parse(&SystemCommands.run(&fastpath.to_string_lossy(), &["--drivers"]).ok()?)
}

/// Loads the configuration for commands that examine or prepare this machine: while nothing is
/// decided, `plane = "auto"` is the plane that would be selected now.
pub fn load_for(options: &GlobalOptions, machine: &Machine) -> Result<Config, String> {
    let config = offline::load(options)?;
    match config.plane_from {
        PlaneFrom::Configured | PlaneFrom::Decided => Ok(config),
        PlaneFrom::Undecided => offline::load_as(options, selected_now(&config, machine).plane),
    }
}

/// Loads the configuration for commands that reserve memory, which precede the decision:
/// `plane = "auto"` is DPDK if nothing but memory prevents it.
pub fn load_for_memory(options: &GlobalOptions, wait: WaitArgs) -> Result<Config, String> {
    let config = offline::load_as(options, Plane::Dpdk)?;
    let is_auto = config.plane_from != PlaneFrom::Configured;
    if config.plane == Plane::Xdp || (!is_auto && wait.wait == 0) {
        return Ok(config);
    }
    // Pages are reserved on the node of the NICs.
    let machine = machine_with_devices(&config, wait)?;
    if !is_auto {
        return Ok(config);
    }
    let dpdk = linked_dpdk();
    let observed = observe(&machine.root, &config, &machine.inventory, dpdk).with_memory();
    let Decision { plane, reasons } = decide(&observed);
    if plane == Plane::Xdp {
        let reasons = reasons.join("; ");
        eprintln!("weir: plane = \"auto\": XDP, which needs no hugepages: {reasons}");
    }
    offline::load_as(options, plane)
}

/// Reads the machine, repeatedly until it has the devices of the arms or the time is over.
fn machine_with_devices(config: &Config, wait: WaitArgs) -> Result<Machine, String> {
    let start = Instant::now();
    loop {
        let machine = Machine::read()?;
        let over = start.elapsed() >= Duration::from_secs(wait.wait);
        if over || devices_exist(config, &machine.inventory) {
            return Ok(machine);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn selected_now(config: &Config, machine: &Machine) -> Decision {
    decide(&observe(&machine.root, config, &machine.inventory, linked_dpdk()))
}

fn unusable(config: &Config, error: &std::io::Error) -> String {
    format!("{}: {error}; type: weir plane decide", config.plane_file.display())
}

/// Runs `weir plane decide`.
fn select(options: &GlobalOptions, wait: WaitArgs) -> Result<(), String> {
    // Not `load`, which reads the earlier decision: that is replaced even if it is unreadable.
    let config = offline::load_as(options, Plane::Dpdk)?;
    let path = &config.plane_file;
    if config.plane_from == PlaneFrom::Configured {
        let plane = config.plane;
        let document = json!({ "plane": plane, "reasons": [], "before": null, "file": null });
        print(options, &document, || {
            format!("plane = \"{}\" is configured: nothing to select\n", plane.as_str())
        });
        return Ok(());
    }
    let decision = selected_now(&config, &machine_with_devices(&config, wait)?);
    let before = Decision::read(path).ok().flatten();
    decision.write(path).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::PermissionDenied => "; run the command as root",
            _ => "",
        };
        format!("cannot write {}: {error}{remedy}", path.display())
    })?;
    let document = json!({
        "plane": decision.plane, "reasons": decision.reasons,
        "before": before.as_ref().map(|before| before.plane), "file": path,
    });
    print(options, &document, || selected_text(&decision, before.as_ref()));
    Ok(())
}

fn selected_text(decision: &Decision, before: Option<&Decision>) -> String {
    let mut text = format!("plane = \"auto\": {} is selected\n", decision.plane.as_str());
    text.extend(decision.reasons.iter().map(|reason| format!("  {reason}\n")));
    if let Some(before) = before.filter(|before| before.plane != decision.plane) {
        text += &format!(
            "CHANGED: it was {} before, which programs that run keep until: {RESTART}\n",
            before.plane.as_str()
        );
        text.extend(before.reasons.iter().map(|reason| format!("  before: {reason}\n")));
    }
    text
}

/// Runs `weir plane is`.
fn compare(options: &GlobalOptions, plane: Plane) -> Result<ExitCode, String> {
    let config = offline::load(options)?;
    plane_decision::require(&config).map_err(|e| e.render())?;
    print(options, &json!({ "plane": config.plane }), || {
        format!("the plane is {}\n", config.plane.as_str())
    });
    Ok(if config.plane == plane { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The document of `weir plane show`.
#[derive(Serialize)]
struct PlaneReport {
    /// The setting.
    configured: PlaneSetting,
    /// The plane that programs use when they start; `None` if none is decided.
    plane: Option<Plane>,
    /// Why it was selected; empty if it is configured.
    reasons: Vec<String>,
    /// The file of the decision.
    file: PathBuf,
    /// What would be selected now.
    now: Decision,
    /// Instructions that change the plane, each of which suffices.
    to_change: Vec<String>,
}

impl PlaneReport {
    /// Creates the report. `decision` is the one in force, with `plane = "auto"`.
    fn new(config: &Config, decision: Option<Decision>, now: Decision) -> PlaneReport {
        let configured = config.plane_setting();
        let (plane, reasons) = match (configured, decision) {
            (PlaneSetting::Auto, Some(decision)) => (Some(decision.plane), decision.reasons),
            (PlaneSetting::Auto, None) => (None, Vec::new()),
            _ => (Some(config.plane), Vec::new()),
        };
        let other = match plane {
            Some(Plane::Dpdk) => "\"xdp\"",
            Some(Plane::Xdp) | None => "\"dpdk\"",
        };
        let set = |to: &str| format!("set plane = {to} in the configuration, then type: {RESTART}");
        let to_change = match (configured, plane) {
            (PlaneSetting::Auto, None) => vec!["to select one, type: weir plane decide".to_owned()],
            (PlaneSetting::Auto, Some(plane)) if plane != now.plane => {
                let becomes = format!("type: {RESTART}: the plane becomes {}", now.plane.as_str());
                vec![becomes, set(other)]
            }
            (PlaneSetting::Auto, Some(Plane::Xdp)) => {
                vec![format!("correct what prevents DPDK, then type: {RESTART}"), set(other)]
            }
            (PlaneSetting::Auto, Some(Plane::Dpdk)) => vec![set(other)],
            _ => vec![set(&format!("\"auto\" or {other}"))],
        };
        let file = config.plane_file.clone();
        PlaneReport { configured, plane, reasons, file, now, to_change }
    }

    fn text(&self) -> String {
        let PlaneReport { configured, plane, reasons, file, now, to_change } = self;
        let file = file.display();
        let mut text = match (configured, plane) {
            (PlaneSetting::Auto, Some(plane)) => {
                format!("plane = \"auto\": {} is selected ({file})\n", plane.as_str())
            }
            (PlaneSetting::Auto, None) => {
                format!("plane = \"auto\": none is selected ({file} does not exist)\n")
            }
            _ => format!("plane = \"{}\" is configured\n", configured.as_str()),
        };
        let lines = |reasons: &[String]| -> String {
            reasons.iter().map(|reason| format!("  {reason}\n")).collect()
        };
        text += &lines(reasons);
        if *plane != Some(now.plane) || *reasons != now.reasons {
            text += &format!("now, {} would be selected:\n", now.plane.as_str());
            text += &lines(&now.reasons);
        }
        text + "to change it:\n" + &lines(to_change)
    }
}

#[cfg(test)]
mod tests;
