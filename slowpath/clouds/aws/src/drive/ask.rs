//! The lifecycle's calls as questions to AWS and to the instance's metadata.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use tokio::sync::{OnceCell, watch};

use super::{Place, state_text};
use crate::account::{self, Account};
use crate::call::{Aws, Waiting};
use crate::imds::{self, Metadata};
use crate::life::{Answer, Call, Notices};
use crate::told::{CallError, Failure, Identity, Target};
use clouds::report::{Asked, Peer};
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
    pub(crate) fn calls(&self) -> Vec<Asked> {
        let counts = self.account.get().map(Account::counts).unwrap_or_default().into_iter();
        let asked = counts.map(|((operation, outcome), times)| Asked {
            operation: operation.to_owned(),
            outcome: outcome.to_owned(),
            times,
        });
        asked.collect()
    }

    async fn notices(&self) -> Result<Notices, CallError> {
        let told = self.metadata.notices().await?;
        Ok(Notices { terminating: is_terminating(&told), spot: told.spot.and_then(ends_at) })
    }
}

/// An answer, and beside it all targets, where they were told.
pub(super) type Told = (Answer, Option<Vec<Peer>>);

/// Asks what the lifecycle wants asked. While leaving it is asked once: the lifecycle asks again
/// by itself, and its time is short.
pub(super) async fn ask(call: Call, cloud: Cloud, place: Arc<Place>, leaving: bool) -> Told {
    let account = match cloud.account(&place.identity.region).await {
        Ok(account) if leaving => &account.with_policy(Policy::ONCE),
        Ok(account) => account,
        Err(error) => return (Answer::failed(call, error), None),
    };
    let (group, target) = (place.group.arn.as_str(), place.target.as_str());
    let answer = match call {
        Call::Register => Answer::Registered(account.register(group, target).await),
        Call::Deregister => Answer::Deregistered(account.deregister(group, target).await),
        Call::AskHealth => match account.targets(group, None).await {
            Ok(targets) => {
                let peers = peers(account, &targets).await;
                let own = targets.into_iter().find(|told| told.id == target);
                return (Answer::Health(Ok(own)), Some(peers));
            }
            Err(error) => Answer::Health(Err(error)),
        },
        Call::AskAttributes => Answer::Attributes(account.attributes(&place.group).await),
        Call::AskNotices => Answer::Notices(cloud.notices().await),
        Call::Heartbeat => Answer::Heartbeat(hooks(account, &place, false).await),
        Call::CompleteHook => Answer::HookCompleted(hooks(account, &place, true).await),
    };
    (answer, None)
}

/// All targets with their addresses. Where AWS doesn't tell those, they are left out.
async fn peers(aws: &Account, targets: &[Target]) -> Vec<Peer> {
    let instances: Vec<String> =
        targets.iter().map(|t| t.id.clone()).filter(|id| id.starts_with("i-")).collect();
    let mut addresses: BTreeMap<String, IpAddr> = BTreeMap::new();
    if !instances.is_empty()
        && let Ok(told) = aws.with_policy(Policy::ONCE).instances(&instances).await
    {
        addresses.extend(told.into_iter().filter_map(|i| Some((i.id, i.address?))));
    }
    let peer = |target: &Target| Peer {
        id: target.id.clone(),
        address: target.id.parse().ok().or_else(|| addresses.get(&target.id).copied()),
        state: state_text(target.state).to_owned(),
        zone: target.zone.clone().unwrap_or_default(),
    };
    targets.iter().map(peer).collect()
}

/// Has all hooks that hold this instance wait longer, or wait no more.
async fn hooks(aws: &Account, place: &Place, complete: bool) -> Result<(), CallError> {
    let instance = place.identity.instance_id.as_str();
    let Some(scaling) = aws.scaling_instance(instance).await? else { return Ok(()) };
    for hook in aws.lifecycle_hooks(&scaling.group).await? {
        if !hook.terminating {
            continue;
        }
        let (group, hook) = (scaling.group.clone(), hook.name);
        let waiting = Waiting { group, hook, instance: instance.to_owned() };
        let told = match complete {
            true => aws.complete_lifecycle(&waiting).await,
            false => aws.lifecycle_heartbeat(&waiting).await,
        };
        match told {
            // It doesn't wait for us, or not any more.
            Err(error) if matches!(error.kind, Failure::Absent | Failure::Invalid) => {}
            told => told?,
        }
    }
    Ok(())
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
