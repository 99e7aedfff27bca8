//! `weir upgrade`: switches a running appliance to the installed version and back, keeping its
//! flows.

mod plan;

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Subcommand;
use config::checked::{Config, Plane};
use host::commands::{Commands, SystemCommands};
use hugepages::upgrade::{Upgrade, Version};
use hugepages::{Machine, bytes_text, region_locations};
use serde_json::{Value, json};
use state::store;
use tables::layout::Layout;
use tables::region::{Region, RegionLocation, convertible};

use self::plan::{Action, FASTPATH, Facts, Plan, Tool, XDP};
use super::offline;
use super::options::{GlobalOptions, Output};
use super::output::{print, write_stdout};
use super::request::{self, get};

/// Unit of the control plane.
const SLOWPATH: &str = "weir-slowpath";
/// Start of a line of `weir upgrade formats` with a format from and to which this version converts.
const CONVERTS: &str = "converts ";
/// How long the programs of the previous version may take to end.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which a condition is checked.
const POLL: Duration = Duration::from_millis(20);
/// Interval between lines about the flows that are waited for.
const REPORT: Duration = Duration::from_secs(5);

/// Subcommands of `weir upgrade`.
#[derive(Subcommand)]
pub enum UpgradeCommand {
    /// Show what `weir upgrade apply` would do, and what it would lose (root)
    ///
    /// Changes nothing.
    Plan,
    /// Switch the running programs to the installed version (root)
    ///
    /// The flows stay. If the region's format differs, the region is converted, and packets are
    /// lost meanwhile. To go back, install the former package and run the command again. Nothing is
    /// stopped if the switch is not possible.
    Apply {
        /// If flows would be lost, drain the appliance and wait until they have ended
        #[arg(long)]
        drain: bool,
        /// With --drain: maximum number of seconds to wait for the end of the flows; then the drain
        /// ends, and nothing is switched [default: no limit]
        #[arg(long, value_name = "SECONDS", requires = "drain")]
        wait: Option<u64>,
        /// If flows would be lost, switch nevertheless
        #[arg(long, conflicts_with = "drain")]
        lose_flows: bool,
    },
    /// Commit to the installed version: rule out a switch back to the previous one (root)
    ///
    /// Refuses packages with an earlier format of region or store from now on, removes the programs
    /// of the previous version, and converts the store of objects to the installed version's
    /// format.
    Commit,
    /// Convert the region for programs of another format; `weir upgrade apply` runs it (root)
    ///
    /// No program may use the region. Attached XDP programs drop all packets from then on, until
    /// ebpf-fallback is started.
    Convert {
        /// Format of the programs that are started next
        #[arg(long)]
        format: u32,
    },
    /// Print the region formats to and from which this version converts, and its store's format
    Formats,
}

/// Runs `weir upgrade`.
pub fn run(options: &GlobalOptions, command: &UpgradeCommand) -> Result<ExitCode, String> {
    let files = Upgrade::default();
    match command {
        UpgradeCommand::Formats => {
            let (own, converts) = (Region::format().1, convertible().collect::<Vec<u32>>());
            let store = store::own_format();
            let document = json!({ "own": own, "store": store, "converts": converts });
            print(options, &document, || {
                let lines = converts.iter().map(|format| format!("{CONVERTS}{format}\n"));
                format!("own {own}\nstore {store}\n") + &lines.collect::<String>()
            });
        }
        UpgradeCommand::Plan => {
            let plan = Plan::new(&facts(options, &files)?);
            print(options, &plan, || plan.text());
            let refused = matches!(plan.action(), Action::Refuse { .. });
            return Ok(if refused { ExitCode::from(1) } else { ExitCode::SUCCESS });
        }
        UpgradeCommand::Convert { format } => {
            let (_, location) = location(options)?;
            let done = location.convert(*format).map_err(|e| e.to_string())?;
            let converted = done
                .as_ref()
                .map(|done| json!({ "from": done.from, "to": done.to, "bytes": done.bytes }));
            print(options, &json!({ "format": format, "converted": converted }), || match done {
                None => format!("the region has format {format}, or there is none\n"),
                Some(done) => format!(
                    "converted from format {} to {}: {}\n",
                    done.from,
                    done.to,
                    bytes_text(done.bytes as u64)
                ),
            });
        }
        UpgradeCommand::Apply { drain, wait, lose_flows } => {
            let facts = facts(options, &files)?;
            let loss = match (drain, lose_flows) {
                (true, _) => Loss::After(wait.map(Duration::from_secs)),
                (_, true) => Loss::Accepted,
                _ => Loss::Refused,
            };
            return apply(options, &files, &facts, &loss);
        }
        UpgradeCommand::Commit => {
            let facts = facts(options, &files)?;
            if facts.action() != Action::Nothing {
                return Err(format!(
                    "the installed version {} does not run yet; `weir upgrade plan` shows what \
                     to do",
                    facts.installed.version
                ));
            }
            files.end_pending().map_err(not_written)?;
            files.commit(&facts.installed).map_err(not_written)?;
            let Version { version, format, .. } = &facts.installed;
            progress(
                options,
                &format!(
                    "committed to version {version}; the programs of the previous version are \
                     removed\n"
                ),
            );
            // After the commit is recorded, which keeps a version from being installed that cannot
            // read the converted store.
            let done = request::put(&offline::socket(options)?, "/store/format");
            let done = done.map_err(|error| {
                format!(
                    "the store of objects keeps its format: {error}. Correct that and type \
                     `weir upgrade commit` again"
                )
            })?;
            let committed = json!({ "version": version, "region_format": format });
            let document = json!({ "committed": committed, "store": done });
            print(options, &document, || format!("{done}\n"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn not_written(error: std::io::Error) -> String {
    format!("the state of the upgrade cannot be written: {error}; run the command as root")
}

/// What to do if flows would be lost.
enum Loss {
    /// Nothing is switched.
    Refused,
    /// Drain the appliance, and wait for the end of the flows for at most this time; `None` is no
    /// limit.
    After(Option<Duration>),
    /// Switch, and lose the flows.
    Accepted,
}

/// Loads the configuration and returns it with the location of its plane's region.
fn location(options: &GlobalOptions) -> Result<(Config, RegionLocation), String> {
    let config = offline::load(options)?;
    let (location, _) = region_locations(&config).map_err(|e| e.to_string())?;
    Ok((config, location))
}

/// Reads the facts on which the plan depends.
fn facts(options: &GlobalOptions, files: &Upgrade) -> Result<Facts, String> {
    let (config, location) = location(options)?;
    let commands = SystemCommands;
    let data_plane = if config.plane == Plane::Xdp { XDP } else { FASTPATH };
    let mut outdated = Vec::new();
    for unit in [data_plane, SLOWPATH] {
        if is_outdated(&commands, unit)? {
            outdated.push(unit.to_owned());
        }
    }
    let previous = files.previous().map(|version| {
        let tool = files.previous_program("weir");
        let formats = commands.run(&tool.to_string_lossy(), &["upgrade", "formats"]);
        let formats = formats.unwrap_or_default();
        let formats = formats.lines().filter_map(|line| line.strip_prefix(CONVERTS)?.parse().ok());
        (version, formats.collect())
    });
    let layout = Layout::new(&hugepages::sizes(&config));
    let largest = layout.terms().iter().map(|term| term.bytes).max().unwrap_or(0);
    let store = config.control.state.as_deref().map(store::format_of).transpose();
    let store = store.map_err(|e| format!("control.state: {e}"))?;
    let free = location.free_copy_bytes().map_err(|e| format!("/dev/shm: {e}"))?;
    let available = Machine::read(Path::new("/")).map_err(|e| e.to_string())?.available;
    Ok(Facts {
        installed: Version {
            version: installed_version(),
            format: Region::format().1,
            store: store::own_format(),
        },
        converts: convertible().collect(),
        previous,
        committed: files.committed(),
        region: location.format().map_err(|e| e.to_string())?,
        store,
        data_plane,
        outdated,
        copy_bytes: layout.bytes() as u64,
        // A section is converted in ordinary memory, which holds it in both formats meanwhile.
        free_bytes: free.min(available.saturating_sub(2 * largest as u64)),
        flows: flows(&offline::socket(options)?).ok(),
    })
}

/// Returns the number of flows. slowpath may be of another version, so no more of its status is
/// read.
fn flows(socket: &Path) -> Result<u64, String> {
    let status: Value = get(socket, "/status")?;
    let flows = status.pointer("/flows/used").and_then(Value::as_u64);
    flows.ok_or_else(|| "slowpath does not report the number of flows".to_owned())
}

/// Returns the version of the installed package, or that of this program without one.
fn installed_version() -> String {
    let installed = std::fs::read_to_string("/usr/share/weir/version");
    let own = || env!("CARGO_PKG_VERSION").to_owned();
    installed.map_or_else(|_| own(), |text| text.trim().to_owned())
}

/// Returns whether a unit is stopped, or its main process runs a program that was replaced or one
/// of the previous version. A unit without a process that systemd is about to restart is not
/// outdated, because it will run the installed program.
///
/// # Errors
/// The program of the process cannot be read, which needs root.
fn is_outdated(commands: &impl Commands, unit: &str) -> Result<bool, String> {
    let show =
        |property| commands.run("systemctl", &["show", "--value", "--property", property, unit]);
    if show("ActiveState").is_ok_and(|state| ["inactive", "failed"].contains(&state.trim())) {
        return Ok(true);
    }
    let Ok(pid) = show("MainPID") else { return Ok(false) };
    let program = match std::fs::read_link(format!("/proc/{}/exe", pid.trim())) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(format!("the program of {unit} cannot be read: run the command as root"));
        }
        Err(_) => return Ok(false),
        Ok(program) => program,
    };
    Ok(program.starts_with(hugepages::upgrade::STATE)
        || program.to_string_lossy().ends_with(" (deleted)"))
}

/// Switches the programs.
fn apply(
    options: &GlobalOptions,
    files: &Upgrade,
    facts: &Facts,
    loss: &Loss,
) -> Result<ExitCode, String> {
    let plan = Plan::new(facts);
    progress(options, &plan.text());
    let (_, location) = location(options)?;
    let tool = match plan.action() {
        Action::Nothing => {
            files.end_pending().map_err(not_written)?;
            print(options, &applied(&plan, None), String::new);
            return Ok(ExitCode::SUCCESS);
        }
        Action::Refuse { .. } => {
            print(options, &applied(&plan, None), String::new);
            return Ok(ExitCode::from(1));
        }
        Action::Restart => None,
        Action::Convert { tool, .. } => Some(*tool),
        Action::LoseFlows { .. } => {
            match loss {
                Loss::Refused => {
                    return Err("flows would be lost: add --drain or --lose-flows".to_owned());
                }
                Loss::After(limit) => wait_for_flows(options, *limit)?,
                Loss::Accepted => {}
            }
            None
        }
    };
    let data_plane = facts.data_plane;
    files.end_pending().map_err(not_written)?;
    let begun = Instant::now();
    let changes_format = facts.region.is_some_and(|format| format != facts.installed.format);
    if changes_format {
        // Later jobs must not cancel the stop: systemd may be about to start slowpath, and with it
        // the data plane.
        systemctl(&["--job-mode=replace-irreversibly", "stop", data_plane])?;
        let converted = end_slowpath(&location).and_then(|()| match tool {
            Some(tool) => convert(options, files, &location, tool, facts.installed.format),
            None => Ok(()),
        });
        if let Err(error) = converted {
            // The region is unchanged. The previous version continues with it if it has the format.
            if files.previous().is_some_and(|previous| Some(previous.format) == facts.region) {
                files.set_pending().map_err(not_written)?;
            }
            let restarted = start("start", data_plane).and_then(|()| start_slowpath());
            return Err(match restarted {
                Ok(()) => format!("{error}; nothing was switched, and the units run again"),
                Err(more) => format!("{error}; then: {more}"),
            });
        }
        start("start", data_plane)?;
    } else if facts.outdated.iter().any(|unit| unit == data_plane) {
        start("restart", data_plane)?;
    }
    let gap = begun.elapsed();
    if !changes_format && facts.outdated.iter().any(|unit| unit == SLOWPATH) {
        // Fails if it is stopped already.
        let _ = kill_slowpath();
    }
    start_slowpath()?;
    // XDP programs are replaced in place, without a gap.
    let gap = if data_plane == XDP && !changes_format { Duration::ZERO } else { gap };
    print(options, &applied(&plan, Some(gap)), || {
        let switched = format!("switched to version {}", facts.installed.version);
        let lost = match gap {
            Duration::ZERO => "no packet was lost".to_owned(),
            gap => format!("no packet was forwarded for at most {:.2} s", gap.as_secs_f64()),
        };
        format!(
            "{switched}: {lost}\nto go back: install the former package, then `weir upgrade \
             apply`\nto stay: `weir upgrade commit`\n"
        )
    });
    Ok(ExitCode::SUCCESS)
}

/// Prints progress if the output is a table; JSON and YAML contain only the result.
fn progress(options: &GlobalOptions, text: &str) {
    if options.output() == Output::Table {
        write_stdout(text);
    }
}

/// Returns the document of `weir upgrade apply`: the plan, and the longest time for which no packet
/// was forwarded if the programs were switched.
fn applied(plan: &Plan, gap: Option<Duration>) -> Value {
    let gap_s = gap.map(|gap| gap.as_secs_f64());
    json!({ "plan": plan, "switched": gap.is_some(), "gap_s": gap_s })
}

fn systemctl(arguments: &[&str]) -> Result<(), String> {
    SystemCommands.run("systemctl", arguments).map(drop).map_err(|e| e.to_string())
}

/// Runs `systemctl` with the command `start` or `restart` on the data plane, and returns when it
/// forwards.
fn start(command: &str, data_plane: &str) -> Result<(), String> {
    systemctl(&[command, data_plane]).map_err(|error| {
        format!(
            "{error}; see `journalctl -u {data_plane}`. The flows are kept: correct the cause and \
             run the command again, or install the former package and run it then"
        )
    })
}

/// Ends slowpath without a deregistration, which SIGTERM would begin; systemd starts it again.
fn kill_slowpath() -> Result<(), String> {
    systemctl(&["kill", "--kill-whom=main", "--signal=KILL", SLOWPATH])
}

/// Starts slowpath if systemd does not do so by itself, and does not wait for it.
fn start_slowpath() -> Result<(), String> {
    systemctl(&["start", "--no-block", SLOWPATH])
}

/// Ends slowpath, and waits until nothing uses the region. A slowpath of the installed version that
/// systemd starts meanwhile waits for the new data plane.
fn end_slowpath(location: &RegionLocation) -> Result<(), String> {
    // Fails if it is stopped already.
    let _ = kill_slowpath();
    let begun = Instant::now();
    while let Some(role) = location.holder() {
        if begun.elapsed() > TIMEOUT {
            return Err(format!(
                "a {role} still uses {} after {} s; end it, then run the command again",
                location.path().display(),
                TIMEOUT.as_secs()
            ));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn convert(
    options: &GlobalOptions,
    files: &Upgrade,
    location: &RegionLocation,
    tool: Tool,
    format: u32,
) -> Result<(), String> {
    match tool {
        Tool::Installed => location.convert(format).map(drop).map_err(|e| e.to_string()),
        Tool::Previous => {
            let program = files.previous_program("weir");
            let config = offline::configuration_file(options);
            let config = config.map(Path::to_string_lossy).unwrap_or_default();
            let format = format.to_string();
            let mut arguments =
                vec!["--config", &config, "upgrade", "convert", "--format", &format];
            if config.is_empty() {
                arguments.drain(..2);
            }
            SystemCommands
                .run(&program.to_string_lossy(), &arguments)
                .map(drop)
                .map_err(|e| e.to_string())
        }
    }
}

/// Drains the appliance and waits until its flows have ended.
fn wait_for_flows(options: &GlobalOptions, limit: Option<Duration>) -> Result<(), String> {
    let socket = offline::socket(options)?;
    request::put(&socket, "/drain/on").map_err(|e| e.to_string())?;
    progress(options, "draining; to end the drain: weir drain --undo\n");
    let begun = Instant::now();
    loop {
        let flows = flows(&socket)?;
        if flows == 0 {
            return Ok(());
        }
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            request::put(&socket, "/drain/off").map_err(|e| e.to_string())?;
            return Err(format!("{flows} flows left; the drain was ended, nothing was switched"));
        }
        progress(options, &format!("{flows} flows left\n"));
        std::thread::sleep(left.unwrap_or(REPORT).min(REPORT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_of_a_switch_has_the_plan_and_the_gap() {
        let facts = Facts {
            installed: Version { version: "2".to_owned(), format: 14, store: 1 },
            converts: vec![13],
            previous: None,
            committed: None,
            region: Some(13),
            store: None,
            data_plane: FASTPATH,
            outdated: vec![FASTPATH.to_owned()],
            copy_bytes: 1,
            free_bytes: 0,
            flows: Some(7),
        };
        let document = applied(&Plan::new(&facts), None);
        assert_eq!(document["switched"], false);
        assert_eq!(document["gap_s"], Value::Null);
        assert_eq!(document["plan"]["action"], "refuse");
        let facts = Facts { free_bytes: 1, ..facts };
        let document = applied(&Plan::new(&facts), Some(Duration::from_millis(1500)));
        assert_eq!((&document["switched"], &document["gap_s"]), (&json!(true), &json!(1.5)));
        let expected = json!({ "action": "convert", "tool": "installed", "from": 13, "to": 14 });
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(document["plan"][key], *value, "{document}");
        }
    }
}
