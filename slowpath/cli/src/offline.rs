//! `weir config check` and `weir hugepages`, which need no running slowpath; and the configuration
//! and the path of the control socket, for all subcommands.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use config::checked::{Config, Plane};
use hugepages::Machine;
use slowpath::sources::{self, CONFIG};
use state::object::{Kind, Object};

use serde_json::{Value, json};

use super::options::{GlobalOptions, WaitArgs};
use super::output::print;

/// Default path of slowpath's control socket.
const SOCKET: &str = "/run/weir/control.sock";

/// Subcommands of `weir hugepages`.
#[derive(Subcommand)]
pub enum HugepagesCommand {
    /// Show the memory that the configuration needs, item by item
    Plan,
    /// Show missing memory and the commands that reserve it
    Check,
    /// Reserve the memory now (root)
    ///
    /// With plane = "auto", hugepages are reserved if nothing else prevents DPDK.
    Apply(WaitArgs),
}

impl HugepagesCommand {
    /// Returns how long to wait for the devices of the arms.
    pub fn wait(&self) -> WaitArgs {
        match self {
            HugepagesCommand::Plan | HugepagesCommand::Check => WaitArgs::default(),
            HugepagesCommand::Apply(wait) => *wait,
        }
    }
}

/// Returns the file of `--config`, or else the default file if it exists.
pub fn configuration_file(options: &GlobalOptions) -> Option<&Path> {
    let default = Path::new(CONFIG);
    options.config.as_deref().or(default.exists().then_some(default))
}

/// Loads the configuration of [`configuration_file`].
pub fn load(options: &GlobalOptions) -> Result<Config, String> {
    config::load(configuration_file(options), &options.set).map_err(|e| e.render())
}

/// Loads the configuration like [`load`], except that `plane = "auto"` stands for this plane, and
/// the recorded selection is not read.
pub fn load_as(options: &GlobalOptions, plane: Plane) -> Result<Config, String> {
    let file = configuration_file(options);
    config::load_as(file, &options.set, plane).map_err(|e| e.render())
}

/// Runs `weir config check`. The exit code is 0 if configuration, memory sizes and services file
/// are valid, otherwise 1.
pub fn config_check(options: &GlobalOptions) -> Result<ExitCode, String> {
    let reject = |text: String| {
        let document = json!({ "valid": false, "error": text });
        print(options, &document, || {
            eprintln!("{text}");
            String::new()
        });
        Ok(ExitCode::from(1))
    };
    let checked = match load(options) {
        Ok(checked) => checked,
        Err(text) => return reject(text),
    };
    if let Err(error) = hugepages::sizes(&checked).check() {
        return reject(error.to_string());
    }
    let (services, services_text) = match &checked.services {
        None => (None, "no services file: services are defined over the API\n".to_owned()),
        // slowpath reads the services in the same way, from a file or a directory of files.
        Some(path) => match sources::read(path, &checked) {
            Ok(list) => {
                let is_service = |object: &&Object| object.kind() == Kind::Service;
                let count = list.objects.iter().filter(is_service).count();
                (Some(count), format!("{}: {count} services, valid\n", path.display()))
            }
            // `load_services` quotes the invalid lines in its errors, but reads only a single file
            // in Weir's own format. Where it succeeds, the error of `sources::read` is shown.
            Err(text) => match path.is_dir() {
                true => return reject(text),
                false => match config::load_services(path, &checked) {
                    Err(e) => return reject(e.render()),
                    Ok(_) => return reject(text),
                },
            },
        },
    };
    let setting = |(key, origin): (&String, &config::checked::Origin)| {
        (key.clone(), json!({ "value": origin.value, "from": origin.layer }))
    };
    let settings: serde_json::Map<String, Value> = checked.origins.iter().map(setting).collect();
    let document = json!({
        "valid": true, "settings": settings, "services": services, "warnings": checked.warnings,
    });
    print(options, &document, || config::report(&checked) + &services_text);
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir hugepages plan|check|apply`. The exit code of check and apply is 0 if the machine has
/// the needed memory, otherwise 1.
pub fn hugepages(
    options: &GlobalOptions,
    command: &HugepagesCommand,
    config: &Config,
) -> Result<ExitCode, String> {
    let plan = hugepages::plan(config);
    let node = |node: &hugepages::NodePages| {
        let hugepages::NodePages { id, needed, total, free } = *node;
        json!({ "node": id, "needed": needed, "total": total, "free": free })
    };
    if matches!(command, HugepagesCommand::Plan) {
        let term = |term: &hugepages::Term| {
            json!({
                "name": term.name, "count": term.count, "bytes_each": term.bytes_each,
                "bytes": term.bytes, "setting": term.setting, "purpose": term.why,
            })
        };
        // The plan may be for another machine: this one may have no hugepages.
        let machine = Machine::read(Path::new("/")).ok();
        let result = machine.as_ref().map(|machine| hugepages::check(&plan, machine));
        let nodes = result.iter().flat_map(|result| &result.nodes).map(node);
        let on_nodes = result.as_ref().zip(machine.as_ref());
        let on_nodes = on_nodes.map(|(result, machine)| result.render_nodes(machine));
        let document = json!({
            "nodes": nodes.collect::<Vec<_>>(),
            "region": plan.region_path, "region_bytes": plan.region_bytes,
            "dpdk_bytes": plan.dpdk_bytes, "hugepages": plan.hugepages,
            "page_bytes": plan.page.bytes(),
            "flows": plan.flows.to_string(),
            "terms": plan.terms.iter().map(term).collect::<Vec<_>>(),
        });
        print(options, &document, || plan.render() + &on_nodes.unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    let machine = Machine::read(Path::new("/")).map_err(|e| e.to_string())?;
    let (text, result) = match command {
        HugepagesCommand::Apply(_) => {
            let applied = hugepages::apply(&plan, &machine).map_err(|e| e.to_string())?;
            (applied.render(), applied.result)
        }
        _ => {
            let result = hugepages::check(&plan, &machine);
            (result.render(), result)
        }
    };
    let document = json!({
        "enough": result.enough(), "problems": result.problems, "warnings": result.warnings,
        "advice": result.advice, "nodes": result.nodes.iter().map(node).collect::<Vec<_>>(),
    });
    print(options, &document, || text);
    Ok(if result.enough() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Returns the control socket: that of `--socket`, else that of the configuration, else the
/// default.
pub fn socket(options: &GlobalOptions) -> Result<PathBuf, String> {
    if let Some(socket) = &options.socket {
        return Ok(socket.clone());
    }
    match (&options.config, Path::new(CONFIG).exists()) {
        (None, false) if options.set.is_empty() => Ok(SOCKET.into()),
        _ => Ok(load(options)?.control.socket),
    }
}
