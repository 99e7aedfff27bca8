//! Access to the AWS account of this machine, and a runtime for blocking calls.

use std::future::Future;
use std::time::Duration;

use aws::account::{Account, Settings};
use clouds::retry::Policy;
use tokio::sync::watch;

/// Error if no cloud is configured.
pub(super) const NO_CLOUD: &str = "the configuration has no section [aws] or [azure]";

/// Runs a future to completion on a new runtime of one thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|e| format!("starting the network runtime failed: {e}"))?.block_on(future))
}

/// Returns the account in a region, by default that of this machine, and a sender. When the sender
/// is dropped, the account's requests are canceled.
pub(super) async fn account(
    region: Option<String>,
    policy: Policy,
    timeout: Duration,
) -> Result<(Account, watch::Sender<bool>), aws::types::CallError> {
    let (cancel_sender, cancel) = watch::channel(false);
    let settings = Settings { region, policy, timeout, ..Settings::default() };
    Ok((Account::load(settings, cancel).await?, cancel_sender))
}
