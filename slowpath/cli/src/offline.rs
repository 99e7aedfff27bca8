//! Subcommands that need no running slowpath: configuration and memory.

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use config::checked::Config;
use hugepages::Machine;
use slowpath::sources::{self, CONFIG};
use state::object::{Kind, Object};

use serde_json::{Value, json};

use super::options::With;
use super::output::print;

/// Subcommands of `weir hugepages`.
#[derive(Subcommand)]
pub enum HugepagesWhat {
    /// Show the memory that the configuration needs, item by item
    Plan,
    /// Show missing memory and the commands that reserve it
    Check,
    /// Reserve the memory now (root)
    Apply,
}

/// Loads the configuration from the given file, or the default file if it exists.
pub fn load(with: &With) -> Result<Config, String> {
    let default = Path::new(CONFIG);
    let file = with.config.as_deref().or(default.exists().then_some(default));
    config::load(file, &with.set).map_err(|e| e.render())
}

/// Runs `weir config check`. The exit code is 0 if both files are valid, otherwise 1.
pub fn config_check(with: &With) -> Result<ExitCode, String> {
    let refused = |text: String| {
        let document = json!({ "good": false, "refused": text });
        print(with, &document, || {
            eprintln!("{text}");
            String::new()
        });
        Ok(ExitCode::from(1))
    };
    let checked = match load(with) {
        Ok(checked) => checked,
        Err(text) => return refused(text),
    };
    if let Err(wrong) = hugepages::sizes(&checked).check() {
        return refused(wrong.to_string());
    }
    let (services, said) = match &checked.services {
        None => (None, "no services file: services come through the API\n".to_owned()),
        // Read like slowpath does: a file or a directory of files.
        Some(path) => match sources::read(path, &checked) {
            Ok(list) => {
                let is_service = |object: &&Object| object.kind() == Kind::Service;
                let count = list.objects.iter().filter(is_service).count();
                (Some(count), format!("{}: {count} services, good\n", path.display()))
            }
            // For a file in Weir's own format, the error shows its lines.
            Err(text) => match path.is_dir() {
                true => return refused(text),
                false => match config::load_services(path, &checked) {
                    Err(e) => return refused(e.render()),
                    Ok(_) => return refused(text),
                },
            },
        },
    };
    let setting = |(key, origin): (&String, &config::checked::Origin)| {
        (key.clone(), json!({ "value": origin.value, "from": origin.layer }))
    };
    let settings: serde_json::Map<String, Value> = checked.origins.iter().map(setting).collect();
    let document = json!({
        "good": true, "settings": settings, "services": services, "warnings": checked.warnings,
    });
    print(with, &document, || config::report(&checked) + &said);
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir hugepages plan|check|apply`. The exit code of check and apply is 0 if the machine has
/// the needed memory, otherwise 1.
pub fn hugepages(with: &With, what: &HugepagesWhat) -> Result<ExitCode, String> {
    let plan = hugepages::plan(&load(with)?);
    let node = |node: &hugepages::NodeVerdict| {
        let hugepages::NodeVerdict { id, needed, total, free } = *node;
        json!({ "node": id, "needed": needed, "total": total, "free": free })
    };
    if matches!(what, HugepagesWhat::Plan) {
        let term = |term: &hugepages::Term| {
            json!({
                "name": term.name, "count": term.count, "bytes_each": term.bytes_each,
                "bytes": term.bytes, "setting": term.setting, "why": term.why,
            })
        };
        // A plan may be made on a machine without hugepages, for another one.
        let machine = Machine::read(Path::new("/")).ok();
        let verdict = machine.as_ref().map(|machine| hugepages::check(&plan, machine));
        let nodes = verdict.iter().flat_map(|verdict| &verdict.nodes).map(node);
        let on_nodes = verdict.as_ref().zip(machine.as_ref());
        let on_nodes = on_nodes.map(|(verdict, machine)| verdict.render_nodes(machine));
        let document = json!({
            "nodes": nodes.collect::<Vec<_>>(),
            "region": plan.region_path, "region_bytes": plan.region_bytes,
            "dpdk_bytes": plan.dpdk_bytes, "hugepages": plan.hugepages,
            "flows": plan.flows.to_string(),
            "terms": plan.terms.iter().map(term).collect::<Vec<_>>(),
        });
        print(with, &document, || plan.render() + &on_nodes.unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    let machine = Machine::read(Path::new("/")).map_err(|e| e.to_string())?;
    let (text, verdict) = match what {
        HugepagesWhat::Apply => {
            let applied = hugepages::apply(&plan, &machine).map_err(|e| e.to_string())?;
            (applied.render(), applied.verdict)
        }
        _ => {
            let verdict = hugepages::check(&plan, &machine);
            (verdict.render(), verdict)
        }
    };
    let document = json!({
        "enough": verdict.enough(), "problems": verdict.problems, "warnings": verdict.warnings,
        "advice": verdict.advice, "nodes": verdict.nodes.iter().map(node).collect::<Vec<_>>(),
    });
    print(with, &document, || text);
    Ok(if verdict.enough() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
