//! The subcommands that need no running slowpath: configuration and memory.

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

/// What `weir hugepages` does.
#[derive(Subcommand)]
pub enum HugepagesWhat {
    /// What memory the configuration needs, term by term
    Plan,
    /// What of it is missing, and what to type
    Check,
    /// Reserves it now (root)
    Apply,
}

/// Loads the configuration as told, or the default file where it exists.
pub fn load(with: &With) -> Result<Config, String> {
    let default = Path::new(CONFIG);
    let file = with.config.as_deref().or(default.exists().then_some(default));
    config::load(file, &with.set).map_err(|e| e.render())
}

/// `weir config check`: 0 when both files are good, 1 when not.
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
        // Read as slowpath reads it, a file or a folder of them.
        Some(path) => match sources::read(path, &checked) {
            Ok(list) => {
                let is_service = |object: &&Object| object.kind() == Kind::Service;
                let count = list.objects.iter().filter(is_service).count();
                (Some(count), format!("{}: {count} services, good\n", path.display()))
            }
            // A file of Weir's own shape has its lines shown.
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

/// `weir hugepages plan|check|apply`: 0 when the machine has what is needed, 1 when not.
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
        // A plan is also made for another machine than this one.
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
