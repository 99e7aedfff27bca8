//! The AWS and metadata clients that the lifecycle uses.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use tokio::sync::{OnceCell, watch};

use crate::account::{self, Account};
use crate::imds::{self, Metadata};
use crate::registration::Notices;
use crate::types::{CallError, Identity};
use clouds::requests::Counts;
use clouds::retry::{Clock, Pause, Policy, RetryCutoff};

/// Clients for AWS and for this instance's metadata. Clones share the account and its counters.
#[derive(Clone)]
pub struct Cloud {
    metadata: Metadata,
    settings: account::Settings,
    cancel: watch::Receiver<bool>,
    pause: Arc<dyn Pause>,
    cutoff: RetryCutoff,
    account: Arc<OnceCell<Account>>,
}

impl Cloud {
    /// Returns clients for AWS's own endpoints, or for those in the SDKs' environment variables.
    /// When `cancel` becomes true, all requests end.
    ///
    /// # Errors
    /// Fails if the variable for the metadata service is not a valid URL.
    pub fn new(seed: u64, cancel: watch::Receiver<bool>) -> Result<Cloud, CallError> {
        let metadata = Metadata::new(None, seed, cancel.clone())?;
        let settings = account::Settings { seed, ..account::Settings::default() };
        Ok(Cloud::with_settings(metadata, settings, Arc::new(Clock::default()), cancel))
    }

    /// Returns clients with these settings; `pause` is the clock for the time between attempts.
    pub fn with_settings(
        metadata: Metadata,
        settings: account::Settings,
        pause: Arc<dyn Pause>,
        cancel: watch::Receiver<bool>,
    ) -> Cloud {
        // A single attempt: the callers repeat metadata requests themselves.
        let metadata = metadata.with_policy(Policy::ONCE);
        let (cutoff, account) = Default::default();
        Cloud { metadata, settings, cancel, pause, cutoff, account }
    }

    /// Returns the seed of the retry jitter.
    pub(super) fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// Reads the identity of this instance.
    pub(crate) async fn identity(&self) -> Result<Identity, CallError> {
        self.metadata.identity().await
    }

    /// Returns the account. The first call loads it for `region`, the instance's region.
    pub(crate) async fn account(&self, region: &str) -> Result<&Account, CallError> {
        let load = || async {
            let settings =
                account::Settings { region: Some(region.to_owned()), ..self.settings.clone() };
            let account = Account::load(settings, self.cancel.clone()).await?;
            Ok(account.with_pause(self.cutoff.wrap(Arc::clone(&self.pause))))
        };
        self.account.get_or_try_init(load).await
    }

    /// Cuts retries short from now on; later requests must use [`Policy::ONCE`] (see
    /// [`RetryCutoff::trigger`]).
    pub(super) fn cut_retries(&self) {
        self.cutoff.trigger();
    }

    /// Returns the number of attempts of AWS calls since start; metadata requests are not counted.
    pub(crate) fn calls(&self) -> Counts {
        self.account.get().map(Account::counts).unwrap_or_default()
    }

    pub(super) async fn notices(&self) -> Result<Notices, CallError> {
        let notices = self.metadata.notices().await?;
        Ok(Notices {
            terminating: is_terminating(&notices),
            spot: notices.spot.and_then(interruption_time),
        })
    }
}

/// Returns true if Auto Scaling's target lifecycle state is a terminating one.
fn is_terminating(notices: &imds::Notices) -> bool {
    notices.lifecycle.as_deref().is_some_and(|state| state.starts_with("Terminat"))
}

/// Converts the time of a spot interruption to an `Instant`. A time that is past or cannot be
/// parsed counts as now.
fn interruption_time((_, time): (String, String)) -> Option<Instant> {
    let at = DateTime::from_str(&time, Format::DateTime).ok();
    let at = at.and_then(|at| SystemTime::try_from(at).ok());
    let remaining = at.and_then(|at| at.duration_since(SystemTime::now()).ok());
    Instant::now().checked_add(remaining.unwrap_or(Duration::ZERO))
}
