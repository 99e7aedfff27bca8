//! Performs the lifecycle's calls with requests to Resource Manager and to the metadata service.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use clouds::report::{Finding, Peer};
use clouds::retry::Policy;
use config::checked::MadeBy;
use serde_json::Value;

use super::cloud::Cloud;
use crate::advice::{Ours, advise};
use crate::arm::Arm;
use crate::asks;
use crate::balancer::{self, Entry, entries};
use crate::life::{Admin, Answer, Call};
use crate::member::{HURRIED, Membership, PATIENT, seen, the_pool, title};
use crate::place::Place;
use crate::told::{CallError, Failure};

/// Maximum number of members whose addresses are read at one query; the next one continues.
const ADDRESSES: usize = 20;

/// A call with its arguments.
pub(super) struct Question {
    pub(super) call: Call,
    pub(super) cloud: Cloud,
    pub(super) place: Arc<Place>,
    pub(super) by: MadeBy,
    pub(super) ours: Ours,
    /// Make a single attempt: the lifecycle repeats the call, and time is short.
    pub(super) leaving: bool,
    /// Id of the scheduled event to acknowledge.
    pub(super) event: Option<String>,
}

/// What a membership query returns besides this machine's entries.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    pub(super) peers: Vec<Peer>,
    pub(super) findings: Vec<Finding>,
    /// Idle timeout of TCP flows, the shortest of all rules.
    pub(super) idle: Option<Duration>,
}

/// An answer, and the additional results of a membership query.
pub(super) type Told = (Answer, Option<Looked>);

/// Performs a call.
pub(super) async fn ask(question: Question) -> Told {
    let Question { call, cloud, place, event, .. } = &question;
    let answer = match call {
        Call::AskTunnels => Answer::Tunnels(cloud.metadata().tunnels().await),
        Call::AskEvents => Answer::Events(cloud.metadata().events(&place.identity.name).await),
        Call::Acknowledge => Answer::Acknowledged(acknowledge(cloud, event.as_deref()).await),
        Call::Look | Call::Join | Call::Down | Call::Up | Call::Leave => {
            return of_pools(&question).await;
        }
    };
    (answer, None)
}

/// Acknowledges an event. An event that no longer exists needs no acknowledgment.
async fn acknowledge(cloud: &Cloud, event: Option<&str>) -> Result<(), CallError> {
    let Some(event) = event else { return Ok(()) };
    match cloud.metadata().acknowledge(event).await {
        Err(error) if matches!(error.kind, Failure::Absent | Failure::Invalid) => Ok(()),
        told => told,
    }
}

async fn of_pools(question: &Question) -> Told {
    let Question { call, cloud, place, by, leaving, .. } = question;
    let arm = match cloud.arm(&place.identity.environment) {
        Ok(arm) if *leaving => arm.with_policy(Policy::ONCE),
        Ok(arm) => arm.clone(),
        Err(error) => return (Answer::failed(*call, error), None),
    };
    let pause = cloud.pause(*leaving);
    let membership = Membership {
        arm: &arm,
        place,
        by: *by,
        pause: pause.as_ref(),
        patience: if *leaving { HURRIED } else { PATIENT },
        seed: cloud.seed(),
    };
    let answer = match call {
        Call::Join => Answer::Joined(membership.join().await),
        Call::Down => Answer::Down(membership.set_down(true).await),
        Call::Up => Answer::Up(membership.set_down(false).await),
        Call::Leave => Answer::Left(membership.leave().await),
        _ => match membership.look().await {
            Ok(told) => {
                let looked = looked(question, &arm, &told).await;
                return (Answer::Looked(Ok(seen(place, &told))), Some(looked));
            }
            Err(error) => Answer::Looked(Err(error)),
        },
    };
    (answer, None)
}

/// Collects findings, peers and idle timeout from the load balancer's body.
async fn looked(question: &Question, arm: &dyn Arm, told: &Value) -> Looked {
    let Question { cloud, place, ours, .. } = question;
    let mut looked = Looked { findings: advise(place, told, ours), ..Looked::default() };
    let mut members = HashSet::new();
    for pool in &place.pools {
        let rules = balancer::rules(told, &pool.id);
        looked.idle = rules.iter().map(|rule| rule.idle).chain(looked.idle).min();
        let Ok(document) = the_pool(told, pool) else { continue };
        let entries = entries(document);
        members.extend(entries.iter().filter_map(|entry| entry.configuration.clone()));
        learn(cloud, arm, &entries).await;
        looked.peers.extend(entries.iter().map(|entry| Peer {
            id: title(entry),
            address: entry.address.or_else(|| cloud.address(entry.configuration.as_ref()?)),
            state: state(entry.admin).to_owned(),
            zone: String::new(),
        }));
    }
    cloud.keep_addresses(&members);
    looked
}

/// Reads the unknown addresses of IP configurations, each once. Failures are left out.
async fn learn(cloud: &Cloud, arm: &dyn Arm, entries: &[Entry]) {
    let unknown = entries.iter().filter(|entry| entry.address.is_none());
    let unknown = unknown.filter_map(|entry| entry.configuration.as_ref());
    let unknown: Vec<_> = unknown.filter(|id| !cloud.was_asked(id)).take(ADDRESSES).collect();
    for configuration in unknown {
        let Some(nic) = configuration.parent() else { continue };
        let told = arm.get(&asks::interface(&nic)).await;
        if told.as_ref().is_err_and(|setback| setback.error.kind.passes()) {
            return;
        }
        let body = told.map(|resource| resource.body).unwrap_or_default();
        for part in balancer::list(&body, "/properties/ipConfigurations") {
            if let Some(id) = balancer::id(part, "/id") {
                let text = balancer::text(part, "/properties/privateIPAddress");
                let address = text.split('/').next().unwrap_or_default();
                cloud.note_address(id, address.parse().ok());
            }
        }
        // The interface does not have it; a repetition would not change that.
        if !cloud.was_asked(configuration) {
            cloud.note_address(configuration.clone(), None);
        }
    }
}

fn state(admin: Admin) -> &'static str {
    match admin {
        Admin::None => "member",
        Admin::Up => "up",
        Admin::Down => "down",
    }
}
