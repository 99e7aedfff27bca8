//! The calls of AWS and of the instance's metadata that the lifecycle makes.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use tokio::sync::{OnceCell, watch};

use crate::account::{self, Account};
use crate::imds::{self, Metadata};
use crate::life::Notices;
use crate::told::{CallError, Identity};
use clouds::requests::Counts;
use clouds::retry::{Clock, Hurry, Pause, Policy};

/// AWS and the metadata of the instance that this is. Clones share what they know.
#[derive(Clone)]
pub struct Cloud {
    metadata: Metadata,
    settings: account::Settings,
    cancel: watch::Receiver<bool>,
    pause: Arc<dyn Pause>,
    hurry: Hurry,
    account: Arc<OnceCell<Account>>,
}

impl Cloud {
    /// Over AWS's own endpoints, or those that the SDK's environment variables name. `cancel` ends
    /// what is being asked when it says true.
    ///
    /// # Errors
    /// The variables name an endpoint that is none.
    pub fn new(seed: u64, cancel: watch::Receiver<bool>) -> Result<Cloud, CallError> {
        let metadata = Metadata::new(None, seed, cancel.clone())?;
        let settings = account::Settings { seed, ..account::Settings::default() };
        Ok(Cloud::over(metadata, settings, Arc::new(Clock::default()), cancel))
    }

    /// Over these; `pause` is how time passes between attempts.
    pub fn over(
        metadata: Metadata,
        settings: account::Settings,
        pause: Arc<dyn Pause>,
        cancel: watch::Receiver<bool>,
    ) -> Cloud {
        // Who asks for metadata here comes back by himself.
        let metadata = metadata.with_policy(Policy::ONCE);
        let (hurry, account) = Default::default();
        Cloud { metadata, settings, cancel, pause, hurry, account }
    }

    /// Of jitter.
    pub(super) fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// Who this instance is.
    pub(crate) async fn identity(&self) -> Result<Identity, CallError> {
        self.metadata.identity().await
    }

    /// The account in the instance's region, asked as long as there is hope.
    pub(crate) async fn account(&self, region: &str) -> Result<&Account, CallError> {
        let load = || async {
            let settings =
                account::Settings { region: Some(region.to_owned()), ..self.settings.clone() };
            let account = Account::load(settings, self.cancel.clone()).await?;
            Ok(account.with_pause(self.hurry.pause(Arc::clone(&self.pause))))
        };
        self.account.get_or_try_init(load).await
    }

    /// From now on nothing is asked for minutes, and what is, is asked once more at most.
    pub(super) fn hurry(&self) {
        self.hurry.now();
    }

    /// What was asked so far.
    pub(crate) fn calls(&self) -> Counts {
        self.account.get().map(Account::counts).unwrap_or_default()
    }

    pub(super) async fn notices(&self) -> Result<Notices, CallError> {
        let told = self.metadata.notices().await?;
        Ok(Notices { terminating: is_terminating(&told), spot: told.spot.and_then(ends_at) })
    }
}

/// IMDS tells the state that Auto Scaling wants this instance in.
fn is_terminating(notices: &imds::Notices) -> bool {
    notices.lifecycle.as_deref().is_some_and(|state| state.starts_with("Terminat"))
}

/// When a spot instance is taken back, on our own clock. A time that can't be read is now.
fn ends_at((_, time): (String, String)) -> Option<Instant> {
    let at = DateTime::from_str(&time, Format::DateTime).ok();
    let at = at.and_then(|at| SystemTime::try_from(at).ok());
    let left = at.and_then(|at| at.duration_since(SystemTime::now()).ok());
    Instant::now().checked_add(left.unwrap_or(Duration::ZERO))
}
