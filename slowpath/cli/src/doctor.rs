//! `weir doctor`: examines this machine against the configuration.

use std::path::Path;
use std::process::ExitCode;

use config::checked::PlaneSetting;
use host::commands::SystemCommands;
use host::doctor::{Context, Finding, Report, Severity, examine};

use super::machine::Machine;
use super::options::GlobalOptions;
use super::output::print;
use super::plane;
use super::table::Table;

/// Runs `weir doctor`. The exit code is 1 if a finding is an error.
pub fn run(options: &GlobalOptions) -> Result<ExitCode, String> {
    let machine = Machine::read()?;
    let config = plane::load_for(options, &machine)?;
    // The programs of one installation are in one directory.
    let program = std::env::current_exe().ok();
    let programs = program.as_deref().and_then(Path::parent);
    let report = examine(&Context {
        root: &machine.root,
        config: &config,
        inventory: &machine.inventory,
        commands: &SystemCommands,
        dpdk: plane::linked_dpdk(),
        programs,
        version: env!("CARGO_PKG_VERSION"),
    });
    print(options, &report, || text(&report, config.plane_setting()));
    let fails = report.count(Severity::Error) > 0;
    Ok(if fails { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn text(report: &Report, setting: PlaneSetting) -> String {
    let mut table = Table::new(&["", "CHECK", "FOUND"]);
    for Finding { severity, check, found, consequence, remedy } in &report.findings {
        let word = match severity {
            Severity::Error => "FAIL",
            Severity::Warning => "warn",
            Severity::NotChecked => "-",
            Severity::Info => "info",
            Severity::Ok => "ok",
        };
        table.row(vec![word.to_owned(), (*check).to_owned(), found.clone()]);
        let mut below = |text: String| table.row(vec![String::new(), String::new(), text]);
        if !consequence.is_empty() {
            below(format!("   {consequence}"));
        }
        if !remedy.is_empty() {
            below(format!("-> {remedy}"));
        }
    }
    let automatic = &report.automatic;
    let mut text = format!(
        "{}\nplane = \"{}\" is configured; plane = \"auto\" selects {}:\n",
        table.text(),
        setting.as_str(),
        automatic.plane.as_str()
    );
    text.extend(automatic.reasons.iter().map(|reason| format!("  {reason}\n")));
    let count = |severity| report.count(severity);
    text + &format!(
        "\n{} findings: {} errors, {} warnings, {} not checked\n",
        report.findings.len(),
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::NotChecked)
    )
}

#[cfg(test)]
mod tests {
    use host::plane::Decision;

    use super::*;

    #[test]
    fn findings_have_consequence_and_remedy_below() {
        let finding = |severity, check, texts: [&str; 3]| {
            let [found, consequence, remedy] = texts.map(str::to_owned);
            Finding { severity, check, found, consequence, remedy }
        };
        let report = Report {
            configured: config::checked::Plane::Dpdk,
            automatic: Decision {
                plane: config::checked::Plane::Xdp,
                reasons: vec!["no memory".to_owned()],
            },
            findings: vec![
                finding(Severity::Error, "memory", ["3 pages missing", "no start", "add them"]),
                finding(Severity::Warning, "NUMA", ["two nodes", "", ""]),
                finding(
                    Severity::NotChecked,
                    "time",
                    ["not checked: no daemon", "", "install one"],
                ),
                finding(Severity::Ok, "ports", ["6 are free", "", ""]),
            ],
        };
        let expected = "      CHECK   FOUND\n\
                        FAIL  memory  3 pages missing\n\
                        \x20                no start\n\
                        \x20             -> add them\n\
                        warn  NUMA    two nodes\n\
                        -     time    not checked: no daemon\n\
                        \x20             -> install one\n\
                        ok    ports   6 are free\n\
                        \n\
                        plane = \"dpdk\" is configured; plane = \"auto\" selects xdp:\n\
                        \x20 no memory\n\
                        \n\
                        4 findings: 1 errors, 1 warnings, 1 not checked\n";
        assert_eq!(text(&report, PlaneSetting::Dpdk), expected);
    }
}
