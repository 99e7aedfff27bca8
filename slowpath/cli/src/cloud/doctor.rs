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

use super::super::offline;
use super::super::options::GlobalOptions;
use super::super::output::print;
use super::super::request;
use super::super::table::Table;
use super::account::{NO_CLOUD, account, block_on};

/// Retry policy for interactive use: an error is reported after at most 2 s of retries.
const RETRY_POLICY: Policy = Policy {
    first_pause: Duration::from_millis(500),
    max_pause: Duration::from_secs(1),
    max_elapsed: Duration::from_secs(2),
};
/// Timeout of a single request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `weir cloud doctor`.
pub(super) fn run(options: &GlobalOptions, socket: &Path) -> Result<ExitCode, String> {
    let config = offline::load(options)?;
    let report = request::get_json::<Report>(socket, "/cloud").map_err(|e| e.to_string());
    let checks = match (&config.aws, &config.azure) {
        (Some(settings), _) => block_on(diagnose_aws(&config, settings, report))??,
        (_, Some(settings)) => block_on(diagnose_azure(&config, settings, report))??,
        (None, None) => return Err(format!("{NO_CLOUD}: nothing to diagnose")),
    };
    print(options, &checks, || text(&checks));
    let fails = checks.iter().any(|check| check.verdict == Verdict::Fail);
    Ok(if fails { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Returns the MAC address of the ingress arm's kernel interface, and the name and MTU of that
/// interface. A value that cannot be read is `None`.
fn interface(config: &Config) -> (Option<[u8; 6]>, Option<(String, u32)>) {
    let interface = config.kernel_interface(&config.ingress);
    let of_kernel = |what: &str| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/{what}")).ok()?;
        Some(text.trim().to_owned())
    };
    let mac = of_kernel("address").and_then(|text| aws::imds::parse_mac(&text));
    let mtu = of_kernel("mtu").and_then(|text| text.parse().ok());
    (mac, mtu.map(|mtu| (interface, mtu)))
}

async fn diagnose_azure(
    config: &Config,
    settings: &Azure,
    report: Result<Report, String>,
) -> Result<Vec<Check>, String> {
    let (_cancel_sender, cancel) = watch::channel(false);
    let cloud = azure::runner::Cloud::new(settings, 0, cancel).map_err(|e| e.to_string())?;
    let check_config = azure::doctor::CheckConfig::of(config, settings);
    let mut observations = azure::doctor::Observations::new(report);
    (observations.mac, observations.kernel_mtu) = interface(config);
    let timestamps = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_timestamps").ok();
    observations.timestamps = timestamps.map(|text| text.trim() != "0");
    azure::doctor::collect(&cloud, RETRY_POLICY, &check_config, &mut observations).await;
    Ok(azure::doctor::evaluate(&check_config, &observations))
}

async fn diagnose_aws(
    config: &Config,
    settings: &Aws,
    report: Result<Report, String>,
) -> Result<Vec<Check>, String> {
    let check_config = aws::doctor::CheckConfig::of(config, settings);
    let (_cancel_sender, cancel) = watch::channel(false);
    // The seed of the jitter between retries is 0: only fleets need different ones.
    let metadata = Metadata::new(None, 0, cancel).map_err(|e| e.to_string())?;
    let identity = metadata.with_policy(RETRY_POLICY).identity().await;
    let region = identity.as_ref().ok().map(|identity| identity.region.clone());
    let mut observations = aws::doctor::Observations::new(&check_config, identity, report);
    (observations.mac, observations.kernel_mtu) = interface(config);
    match account(region, RETRY_POLICY, REQUEST_TIMEOUT).await {
        Ok((account, _cancel_sender)) => {
            aws::doctor::collect(&account, &check_config, &mut observations).await
        }
        Err(error) => observations.account = Some(error),
    }
    Ok(aws::doctor::evaluate(&check_config, &observations))
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
    let of = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (fails, warns) = (of(Verdict::Fail), of(Verdict::Warn));
    format!("{}\n{} checks: {fails} failed, {warns} warnings\n", table.text(), checks.len())
}
