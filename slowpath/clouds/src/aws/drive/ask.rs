//! The lifecycle's calls as questions to AWS and to the instance's metadata.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use tokio::sync::watch;

use super::{Place, state_text};
use crate::aws::account::{self, Account};
use crate::aws::call::{Aws, Waiting};
use crate::aws::imds::{self, Metadata};
use crate::aws::life::{Answer, Call, Notices};
use crate::aws::retry::Policy;
use crate::aws::told::{CallError, Failure, Identity, Target};
use crate::report::{Asked, Peer};

/// AWS and the metadata of the instance that this is.
#[derive(Clone)]
pub struct Cloud {
    metadata: Metadata,
    endpoint: Option<String>,
    cancel: watch::Receiver<bool>,
    seed: u64,
}

impl Cloud {
    /// Over AWS's own endpoints, or those that the SDK's environment variables name. `cancel` ends
    /// what is being asked when it says true.
    ///
    /// # Errors
    /// The variables name an endpoint that is none.
    pub fn new(seed: u64, cancel: watch::Receiver<bool>) -> Result<Cloud, CallError> {
        let metadata = Metadata::new(None, seed, cancel.clone())?;
        Ok(Cloud { metadata, endpoint: None, cancel, seed })
    }

    /// Who this instance is.
    ///
    /// # Errors
    /// The metadata service's.
    pub async fn identity(&self) -> Result<Identity, CallError> {
        self.metadata.identity().await
    }

    /// The account in a region.
    pub(in crate::aws) async fn connect(&self, region: &str) -> Result<Connected, CallError> {
        let region = Some(region.to_owned());
        let (endpoint, seed) = (self.endpoint.clone(), self.seed);
        let settings = account::Settings { region, endpoint, seed, ..account::Settings::default() };
        let account = Account::load(settings, self.cancel.clone()).await?;
        let metadata = self.metadata.with_policy(Policy::ONCE);
        Ok(Connected { account, metadata })
    }
}

/// An account that can be asked.
#[derive(Clone)]
pub(in crate::aws) struct Connected {
    account: Account,
    metadata: Metadata,
}

impl Connected {
    /// Asked as long as there is hope.
    pub(in crate::aws) fn patient(&self) -> &Account {
        &self.account
    }

    /// What was asked so far.
    pub(in crate::aws) fn calls(&self) -> Vec<Asked> {
        let counts = self.account.counts().into_iter();
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

/// Asks what the lifecycle wants asked. While leaving it is asked once: the lifecycle asks again
/// by itself, and its time is short. Beside the answer all targets, where they were told.
pub(super) async fn ask(call: Call, place: &Place, leaving: bool) -> (Answer, Option<Vec<Peer>>) {
    let connected = &place.connected;
    let account = match leaving {
        true => &connected.account.with_policy(Policy::ONCE),
        false => &connected.account,
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
        Call::AskNotices => Answer::Notices(connected.notices().await),
        Call::Heartbeat => Answer::Heartbeat(hooks(account, place, false).await),
        Call::CompleteHook => Answer::HookCompleted(hooks(account, place, true).await),
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
