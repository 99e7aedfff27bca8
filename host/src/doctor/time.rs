//! Checks that the clock is synchronized.

use super::context::Context;
use super::finding::Finding;
use crate::machine::processes;

const CHECK: &str = "time";

const CONSEQUENCE: &str = "requests to clouds are rejected when the clock is off by minutes, and \
                           leases and certificates expire early or late";

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let processes = processes(context.root);
    let runs = |name: &str| processes.iter().any(|process| process.name == name);
    vec![if runs("chronyd") {
        chrony(context)
    } else if context.root.exists("run/systemd/timesync/synchronized") {
        Finding::ok(CHECK, "synchronized by systemd-timesyncd")
    // Names of processes have at most 15 characters.
    } else if runs("systemd-timesyn") {
        let found = "systemd-timesyncd runs and has not synchronized the clock";
        Finding::warning(CHECK, found, CONSEQUENCE, "timedatectl timesync-status")
    } else {
        kernel(context)
    }]
}

/// Queries chronyd. The last field of its report is the leap status, which shows whether the clock
/// is synchronized.
fn chrony(context: &Context<'_>) -> Finding {
    match context.commands.run("chronyc", &["-n", "-c", "tracking"]) {
        Err(error) => Finding::not_checked(CHECK, error.to_string(), "chronyc tracking"),
        Ok(text) => match text.trim().rsplit(',').next().unwrap_or_default() {
            "Not synchronised" => {
                let found = "chronyd runs and has not synchronized the clock";
                Finding::warning(CHECK, found, CONSEQUENCE, "chronyc sources")
            }
            "" => Finding::not_checked(CHECK, "chronyc printed nothing", "chronyc tracking"),
            _ => Finding::ok(CHECK, "synchronized by chronyd"),
        },
    }
}

/// Queries systemd for the kernel's synchronization flag, which every time daemon sets.
fn kernel(context: &Context<'_>) -> Finding {
    let show = ["show", "--property=NTPSynchronized", "--value"];
    match context.commands.run("timedatectl", &show).as_deref().map(str::trim) {
        Ok("yes") => Finding::ok(CHECK, "synchronized"),
        Ok("no") => Finding::warning(
            CHECK,
            "nothing synchronizes the clock",
            CONSEQUENCE,
            "apt-get install chrony",
        ),
        Ok(_) => Finding::not_checked(CHECK, "timedatectl printed nothing", ""),
        Err(error) => {
            let reason = format!("neither chronyd nor systemd-timesyncd runs; {error}");
            Finding::not_checked(CHECK, reason, "apt-get install chrony")
        }
    }
}
