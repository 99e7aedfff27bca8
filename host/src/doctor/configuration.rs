//! Checks the configuration itself.

use std::path::Path;

use config::checked::{MachineWarning, machine_warnings};

use super::context::Context;
use super::finding::Finding;

const CHECK: &str = "configuration";

/// Returns the warnings of the configuration; those about this machine have checks of their own.
pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let of_machine: Vec<String> = machine_warnings(context.config, Path::new("/"))
        .iter()
        .map(MachineWarning::to_string)
        .collect();
    let warnings = context.config.warnings.iter().filter(|text| !of_machine.contains(text));
    let mut findings: Vec<Finding> =
        warnings.map(|text| Finding::warning(CHECK, text, "", "")).collect();
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "valid, without warnings"));
    }
    findings
}
