//! The subcommands that need no running slowpath: configuration and memory.

use std::path::Path;
use std::process::ExitCode;

use config::checked::Config;
use hugepages::Machine;

use super::{CONFIG, HugepagesWhat, With, put};

/// Loads the configuration as told, or the default file where it exists.
pub fn load(with: &With) -> Result<Config, String> {
    let default = Path::new(CONFIG);
    let file = with.config.as_deref().or(default.exists().then_some(default));
    config::load(file, &with.set).map_err(|e| e.render())
}

/// `weir config check`: 0 when both files are good, 1 when not.
pub fn config_check(with: &With) -> Result<ExitCode, String> {
    let checked = match load(with) {
        Ok(checked) => checked,
        Err(text) => {
            eprintln!("{text}");
            return Ok(ExitCode::from(1));
        }
    };
    put(&config::report(&checked));
    let Some(path) = &checked.services else {
        put("no services file: services come through the API\n");
        return Ok(ExitCode::SUCCESS);
    };
    match config::load_services(path, &checked) {
        Ok(services) => {
            let path = path.display();
            put(&format!("{path}: {} services, good\n", services.services.len()));
            Ok(ExitCode::SUCCESS)
        }
        Err(e) => {
            eprintln!("{}", e.render());
            Ok(ExitCode::from(1))
        }
    }
}

/// `weir hugepages plan|check|apply`: 0 when the machine has what is needed, 1 when not.
pub fn hugepages(with: &With, what: &HugepagesWhat) -> Result<ExitCode, String> {
    let plan = hugepages::plan(&load(with)?);
    if matches!(what, HugepagesWhat::Plan) {
        put(&plan.render());
        return Ok(ExitCode::SUCCESS);
    }
    let machine = Machine::read(Path::new("/")).map_err(|e| e.to_string())?;
    let (text, enough) = match what {
        HugepagesWhat::Apply => {
            let applied = hugepages::apply(&plan, &machine).map_err(|e| e.to_string())?;
            (applied.render(), applied.verdict.enough())
        }
        _ => {
            let verdict = hugepages::check(&plan, &machine);
            (verdict.render(), verdict.enough())
        }
    };
    put(&text);
    Ok(if enough { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
