//! `weir cloud doctor`: asks, and shows what was judged.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use aws::doctor::{self, Check, Seen, Verdict, Wants};
use aws::imds::{self, Metadata};
use clouds::report::Report;
use clouds::retry::Policy;
use tokio::sync::watch;

use super::super::draw::Table;
use super::super::output::print;
use super::super::{With, ask, offline};
use super::{account, block_on};

/// A person waits: what fails twice is told.
const PATIENCE: Policy = Policy {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(1),
    whole: Duration::from_secs(2),
};
/// Longest wait for one answer.
const BOUND: Duration = Duration::from_secs(5);

/// Runs `weir cloud doctor`.
pub(super) fn run(with: &With, socket: &Path) -> Result<ExitCode, String> {
    let config = offline::load(with)?;
    let Some(settings) = &config.aws else {
        let why = "the configuration has no [aws] section: there is nothing to look at";
        return Err(why.to_owned());
    };
    let wants = Wants::of(&config, settings);
    let report = ask::document::<Report>(socket, "/cloud").map_err(|e| e.to_string());
    let interface = config.kernel_interface(&config.ingress);
    let seen = block_on(look(&wants, report, &interface))??;
    let checks = doctor::judge(&wants, &seen);
    print(with, &checks, || text(&checks));
    let fails = checks.iter().any(|check| check.verdict == Verdict::Fail);
    Ok(if fails { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

async fn look(
    wants: &Wants,
    report: Result<Report, String>,
    interface: &str,
) -> Result<Seen, String> {
    let (_stay, cancel) = watch::channel(false);
    let metadata = Metadata::new(None, 0, cancel).map_err(|e| e.to_string())?;
    let identity = metadata.with_policy(PATIENCE).identity().await;
    let region = identity.as_ref().ok().map(|identity| identity.region.clone());
    let mut seen = Seen::new(wants, identity, report);
    let of_kernel = |what: &str| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/{what}")).ok()?;
        Some(text.trim().to_owned())
    };
    seen.mac = of_kernel("address").and_then(|text| imds::mac(&text));
    let mtu = of_kernel("mtu").and_then(|text| text.parse().ok());
    seen.kernel_mtu = mtu.map(|mtu| (interface.to_owned(), mtu));
    match account(region, PATIENCE, BOUND).await {
        Ok((account, _stay)) => doctor::ask(&account, wants, &mut seen).await,
        Err(error) => seen.account = Some(error),
    }
    Ok(seen)
}

pub(super) fn text(checks: &[Check]) -> String {
    let mut table = Table::new(&["", "CHECK", "FOUND"]);
    for Check { name, verdict, text, remedy } in checks {
        let word = match verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
            Verdict::Untested => "-",
        };
        table.row(vec![word.to_owned(), name.clone(), text.clone()]);
        if !remedy.is_empty() {
            table.row(vec![String::new(), String::new(), format!("-> {remedy}")]);
        }
    }
    let of = |wanted| checks.iter().filter(|check| check.verdict == wanted).count();
    let (fails, warns) = (of(Verdict::Fail), of(Verdict::Warn));
    format!("{}\n{} checks: {fails} fail, {warns} warn\n", table.text(), checks.len())
}
