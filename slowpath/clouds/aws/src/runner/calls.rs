//! Performs the lifecycle's calls with requests to AWS and to the instance metadata.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::cloud::Cloud;
use super::location::Location;
use crate::account::Account;
use crate::call::{Aws, HookedInstance};
use crate::registration::{Answer, Call};
use crate::types::{CallError, Failure, Target, state_text};
use clouds::report::Peer;
use clouds::retry::Policy;

/// An answer; for a health query, also all targets of the group.
pub(super) type CallOutput = (Answer, Option<Vec<Peer>>);

/// Performs a call. While the appliance is leaving, only one attempt is made: the lifecycle repeats
/// the call, and time is short.
pub(super) async fn perform(
    call: Call,
    cloud: Cloud,
    location: Arc<Location>,
    leaving: bool,
) -> CallOutput {
    let account = match cloud.account(&location.identity.region).await {
        Ok(account) if leaving => &account.with_policy(Policy::ONCE),
        Ok(account) => account,
        Err(error) => return (Answer::failed(call, error), None),
    };
    let (group, target) = (location.group.arn.as_str(), location.target.as_str());
    let answer = match call {
        Call::Register => Answer::Registered(account.register(group, target).await),
        Call::Deregister => Answer::Deregistered(account.deregister(group, target).await),
        Call::ReadHealth => match account.targets(group, None).await {
            Ok(targets) => {
                let peers = peers(account, &targets).await;
                let own = targets.into_iter().find(|found| found.id == target);
                return (Answer::Health(Ok(own)), Some(peers));
            }
            Err(error) => Answer::Health(Err(error)),
        },
        Call::ReadAttributes => Answer::Attributes(account.attributes(&location.group).await),
        Call::ReadNotices => Answer::Notices(cloud.notices().await),
        Call::Heartbeat => Answer::Heartbeat(hooks(account, &location, false).await),
        Call::CompleteHook => Answer::HookCompleted(hooks(account, &location, true).await),
    };
    (answer, None)
}

/// Returns all targets as peers. The address of an instance is `None` if it cannot be read.
async fn peers(aws: &Account, targets: &[Target]) -> Vec<Peer> {
    let instances: Vec<String> =
        targets.iter().map(|t| t.id.clone()).filter(|id| id.starts_with("i-")).collect();
    let mut addresses: BTreeMap<String, IpAddr> = BTreeMap::new();
    if !instances.is_empty()
        && let Ok(found) = aws.with_policy(Policy::ONCE).instances(&instances).await
    {
        addresses.extend(found.into_iter().filter_map(|i| Some((i.id, i.address?))));
    }
    let peer = |target: &Target| Peer {
        id: target.id.clone(),
        address: target.id.parse().ok().or_else(|| addresses.get(&target.id).copied()),
        state: state_text(target.state).to_owned(),
        zone: target.zone.clone().unwrap_or_default(),
    };
    targets.iter().map(peer).collect()
}

/// Completes the lifecycle action of all terminating hooks of this instance's group, or if
/// `complete` is false extends its timeout by a heartbeat.
async fn hooks(aws: &Account, location: &Location, complete: bool) -> Result<(), CallError> {
    let instance = location.identity.instance_id.as_str();
    let Some(scaling) = aws.scaling_instance(instance).await? else { return Ok(()) };
    for hook in aws.lifecycle_hooks(&scaling.group).await? {
        if !hook.terminating {
            continue;
        }
        let (group, hook) = (scaling.group.clone(), hook.name);
        let hooked = HookedInstance { group, hook, instance: instance.to_owned() };
        let result = match complete {
            true => aws.complete_lifecycle(&hooked).await,
            false => aws.lifecycle_heartbeat(&hooked).await,
        };
        match result {
            // The hook does not hold this instance.
            Err(error) if matches!(error.kind, Failure::Absent | Failure::Invalid) => {}
            result => result?,
        }
    }
    Ok(())
}
