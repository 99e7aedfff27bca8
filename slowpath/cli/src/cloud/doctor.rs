//! `weir cloud doctor`: collects observations and shows the verdict of each check.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use aws::doctor::{Check, Verdict};
use aws::imds::Metadata;
use clouds::report::Report;
use clouds::retry::Policy;
use config::checked::{Aws, Azure, Config};
use tokio::sync::watch;

use super::super::ask;
use super::super::draw::Table;
use super::super::offline;
use super::super::options::With;
use super::super::output::print;
use super::account::{NO_CLOUD, account, block_on};

/// Retry policy for interactive use: an error is reported after at most 2 s of retries.
const PATIENCE: Policy = Policy {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(1),
    whole: Duration::from_secs(2),
};
/// Timeout of a single request.
const BOUND: Duration = Duration::from_secs(5);

/// Runs `weir cloud doctor`.
pub(super) fn run(with: &With, socket: &Path) -> Result<ExitCode, String> {
    let config = offline::load(with)?;
    let report = ask::document::<Report>(socket, "/cloud").map_err(|e| e.to_string());
    let checks = match (&config.aws, &config.azure) {
        (Some(settings), _) => block_on(at_aws(&config, settings, report))??,
        (_, Some(settings)) => block_on(at_azure(&config, settings, report))??,
        (None, None) => return Err(format!("{NO_CLOUD}: there is nothing to look at")),
    };
    print(with, &checks, || text(&checks));
    let fails = checks.iter().any(|check| check.verdict == Verdict::Fail);
    Ok(if fails { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Returns the MAC address and MTU of the ingress arm's kernel interface, if it exists.
fn interface(config: &Config) -> (Option<[u8; 6]>, Option<(String, u32)>) {
    let interface = config.kernel_interface(&config.ingress);
    let of_kernel = |what: &str| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/{what}")).ok()?;
        Some(text.trim().to_owned())
    };
    let mac = of_kernel("address").and_then(|text| aws::imds::mac(&text));
    let mtu = of_kernel("mtu").and_then(|text| text.parse().ok());
    (mac, mtu.map(|mtu| (interface, mtu)))
}

async fn at_azure(
    config: &Config,
    settings: &Azure,
    report: Result<Report, String>,
) -> Result<Vec<Check>, String> {
    let (_stay, cancel) = watch::channel(false);
    let cloud = azure::runner::Cloud::new(settings, 0, cancel).map_err(|e| e.to_string())?;
    let wants = azure::doctor::Wants::of(config, settings);
    let mut seen = azure::doctor::Seen::new(report);
    (seen.mac, seen.kernel_mtu) = interface(config);
    let timestamps = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_timestamps").ok();
    seen.timestamps = timestamps.map(|text| text.trim() != "0");
    azure::doctor::ask(&cloud, PATIENCE, &wants, &mut seen).await;
    Ok(azure::doctor::judge(&wants, &seen))
}

async fn at_aws(
    config: &Config,
    settings: &Aws,
    report: Result<Report, String>,
) -> Result<Vec<Check>, String> {
    let wants = aws::doctor::Wants::of(config, settings);
    let (_stay, cancel) = watch::channel(false);
    let metadata = Metadata::new(None, 0, cancel).map_err(|e| e.to_string())?;
    let identity = metadata.with_policy(PATIENCE).identity().await;
    let region = identity.as_ref().ok().map(|identity| identity.region.clone());
    let mut seen = aws::doctor::Seen::new(&wants, identity, report);
    (seen.mac, seen.kernel_mtu) = interface(config);
    match account(region, PATIENCE, BOUND).await {
        Ok((account, _stay)) => aws::doctor::ask(&account, &wants, &mut seen).await,
        Err(error) => seen.account = Some(error),
    }
    Ok(aws::doctor::judge(&wants, &seen))
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
