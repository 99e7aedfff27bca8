//! The service side, step by step: update an existing service, or find the load balancer and the
//! NAT subnet and create the service.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use azure::arm::Resource;
use azure::id::ResourceId;
use clouds::failure::Setback;
use serde_json::{Value, json};

use crate::ask;
use crate::connections;
use crate::course::{Course, DRIFT, Event};
use crate::errors::{OrStop, Outcome, Stop, pause_after};
use crate::frontend::{Frontend, frontend_of};
use crate::names::{self, id_of};
use crate::object::{Aspect, Fixed, Reason, Step};
use crate::subnet;
use crate::turn::{State, busy};

/// Minimum time before an update is repeated that Azure accepted but did not apply.
const REPEAT: Duration = Duration::from_secs(2 * 60);

/// Performs the next step. Returns when to check again if nothing is left to do.
pub(crate) async fn keep(course: &mut Course<'_>, fixed: &Fixed) -> Outcome<Duration> {
    let side = course.turn.service();
    side.settle(&mut course.status.service.running).await?;
    let Some(address) = course.object.spec.load_balancer_ip else {
        let message = "nobody has told spec.load_balancer_ip yet";
        return Break(Stop::wait(Aspect::Balancer, Reason::WaitingForAddress, message));
    };
    let found = side.get(&ask::LINK_SERVICES_GET.at(&fixed.service)).await;
    let found = found.or_stop(|setback| error(&setback))?;
    let Some(there) = found else {
        gone(course);
        return create(course, fixed, address).await;
    };
    if !is_ours(course, &there.body) {
        // The known service is not this one.
        gone(course);
        return Break(not_ours(course, &fixed.service));
    }
    match State::of(&there.body) {
        State::Busy => {
            note(course, fixed, &there.body);
            return Break(busy(Aspect::Service, "the private link service", &there.body));
        }
        State::Failed => return update(course, fixed, address, there, true).await,
        State::Ready => {}
    }
    note(course, fixed, &there.body);
    update(course, fixed, address, there, false).await
}

fn error(setback: &Setback) -> Stop {
    Stop::failed(Aspect::Service, Reason::AzureError, setback)
}

/// Recognizes a service by its tags, or if those were removed, by its alias, which is unique.
pub(crate) fn is_ours(course: &Course<'_>, body: &Value) -> bool {
    let alias = body["properties"]["alias"].as_str();
    let known = alias.is_some() && alias == course.status.service.alias.as_deref();
    known || names::made_for(&body["tags"], &course.turn.settings.fleet, &course.object.name)
}

fn not_ours(course: &Course<'_>, id: &ResourceId) -> Stop {
    let tags = [(names::FLEET, &course.turn.settings.fleet), (names::OBJECT, &course.object.name)];
    let [fleet, object] = tags.map(|(key, value)| format!("{key}={value}"));
    let message = format!(
        "there is a service {id} that Weir did not make for this object; delete it, write another \
         spec.service_name, or hand it over: az tag update --operation merge --resource-id {id} \
         --tags {fleet} {object}"
    );
    Stop::mend(Aspect::Service, Reason::NotOurs, message)
}

/// Notes that a known service was deleted by another party.
fn gone(course: &mut Course<'_>) {
    let Some(id) = course.status.service.id.take() else { return };
    course.status.service.alias = None;
    course.status.service.changed = None;
    course.status.service.connections.clear();
    let message = format!("somebody deleted {id}");
    course.tell(Aspect::Service, (false, Reason::AzureError), &message);
    course.tell(Aspect::Available, (false, Reason::AzureError), &message);
    course.events.push(Event::warning("ServiceDeleted", message));
}

/// Copies id and alias of the service to the status.
fn note(course: &mut Course<'_>, fixed: &Fixed, body: &Value) {
    let service = &mut course.status.service;
    service.id = Some(id_of(body).unwrap_or_else(|| fixed.service.clone()));
    if let Some(alias) = body["properties"]["alias"].as_str().filter(|alias| !alias.is_empty()) {
        service.alias = Some(alias.to_owned());
    }
}

/// Reads the service for an observer. Returns true if it exists and belongs to the object.
pub(crate) async fn look(course: &mut Course<'_>) -> Outcome<bool> {
    let Some(fixed) = Fixed::of(&course.object.name, &course.object.spec).ok() else {
        return Continue(false);
    };
    match course.turn.service().get(&ask::LINK_SERVICES_GET.at(&fixed.service)).await {
        Ok(Some(there)) if is_ours(course, &there.body) => {
            note(course, &fixed, &there.body);
            Continue(true)
        }
        Ok(_) => {
            course.status.service.id = None;
            course.status.service.alias = None;
            Continue(false)
        }
        Err(setback) => Break(error(&setback)),
    }
}

/// Compares the existing service with the desired state, and updates it if they differ.
async fn update(
    course: &mut Course<'_>,
    fixed: &Fixed,
    address: IpAddr,
    there: Resource,
    failed: bool,
) -> Outcome<Duration> {
    let mut wanted = there.body.clone();
    let spec = &course.object.spec;
    let properties = &there.body["properties"];
    let mut differs = Vec::new();
    for (key, list) in [("visibility", spec.allowed()), ("autoApproval", spec.approved())] {
        if subscriptions(&properties[key]) != list {
            wanted["properties"][key]["subscriptions"] = json!(list);
            differs.push(key);
        }
    }
    let tags = names::tags(&course.turn.settings.fleet, &course.object.name, spec);
    if !names::has_all(&there.body["tags"], &tags) {
        wanted["tags"] = names::with(&there.body["tags"], &tags);
        differs.push("tags");
    }
    // Looked up in each round, because another appliance may have had the object before, or the
    // service or the load balancer may have been changed by hand.
    let frontend = frontend(course, fixed, address).await?;
    if !leads_to(properties, &frontend.id) {
        let list = json!([{ "id": frontend.id }]);
        wanted["properties"]["loadBalancerFrontendIpConfigurations"] = list;
        differs.push("frontend");
        elsewhere(course, properties, &frontend.id);
    }
    if differs.is_empty() && !failed {
        course.status.service.changed = None;
        return ready(course, &there.body).await;
    }
    let (now, generation) = (course.turn.now, course.object.generation);
    if let Some((changed, at)) = course.status.service.changed
        && changed == generation
        && now < at.after(REPEAT)
    {
        let state = if failed { "is in state Failed".to_owned() } else { differs.join(", ") };
        let message = format!("Azure took the last change, but the service still differs: {state}");
        let stop = Stop::mend(Aspect::Service, Reason::UpdateFailed, message);
        return Break(Stop { after: at.after(REPEAT).since(now), ..stop });
    }
    subnet::mend(course, properties).await?;
    let side = course.turn.service();
    let ask = ask::LINK_SERVICES_PUT.at(&fixed.service);
    let begun = side.put(&ask, &wanted, there.etag.as_deref()).await;
    let failed = |setback| Stop::failed(Aspect::Service, Reason::UpdateFailed, &setback);
    let begun = begun.or_stop(failed)?;
    course.status.service.changed = Some((generation, now));
    let what = if differs.is_empty() { "state".to_owned() } else { differs.join(", ") };
    course.events.push(Event::note("ServiceChanged", format!("changed: {what}")));
    side.begun(&mut course.status.service.running, Step::UpdateService, begun)?;
    Break(Stop::at_once(Aspect::Service, "the change was taken"))
}

/// Returns true if this frontend is the service's only one.
fn leads_to(properties: &Value, frontend: &str) -> bool {
    let list = properties["loadBalancerFrontendIpConfigurations"].as_array();
    let same = |one: &Value| one["id"].as_str().is_some_and(|id| id.eq_ignore_ascii_case(frontend));
    list.is_some_and(|list| list.len() == 1 && list.iter().all(same))
}

/// Reports that the service points to another frontend, until the change is made.
fn elsewhere(course: &mut Course<'_>, properties: &Value, wanted: &str) {
    let list = properties["loadBalancerFrontendIpConfigurations"].as_array().into_iter().flatten();
    let now: Vec<&str> = list.filter_map(|one| one["id"].as_str()).collect();
    let now = if now.is_empty() { "no frontend".to_owned() } else { now.join(", ") };
    let message = format!("the service leads to {now}, it should lead to {wanted}");
    course.tell(Aspect::Service, (false, Reason::FrontendDiffers), &message);
    course.tell(Aspect::Available, (false, Reason::FrontendDiffers), &message);
}

fn subscriptions(of: &Value) -> BTreeSet<String> {
    let listed = of["subscriptions"].as_array().into_iter().flatten();
    listed.filter_map(Value::as_str).map(str::to_ascii_lowercase).collect()
}

/// Reports a service in its desired state as ready, once Azure has assigned all that consumers
/// need.
async fn ready(course: &mut Course<'_>, body: &Value) -> Outcome<Duration> {
    let frontends = body["properties"]["loadBalancerFrontendIpConfigurations"].as_array();
    let complete = course.status.service.alias.is_some()
        && id_of(body).is_some()
        && frontends.is_some_and(|list| !list.is_empty());
    if !complete {
        let message = "Azure has not told its id, its alias or its frontend yet";
        return Break(Stop {
            after: DRIFT,
            ..Stop::wait(Aspect::Service, Reason::AzureError, message)
        });
    }
    course.tell(Aspect::Service, (true, Reason::AzureSuccess), "the service is as it is wanted");
    // Failures to read connections do not affect the service's condition.
    match connections::look(course, body).await {
        Ok(pause) => Continue(pause),
        Err(setback) => {
            course.events.push(Event::warning("ConnectionsFailed", setback.error.to_string()));
            Continue(pause_after(&setback))
        }
    }
}

/// Returns the frontend with the address, among all load balancers of the resource group.
async fn frontend(course: &mut Course<'_>, fixed: &Fixed, address: IpAddr) -> Outcome<Frontend> {
    let (subscription, group) = (fixed.service.subscription(), fixed.service.group());
    let ask = ask::LOAD_BALANCERS_LIST.at(ask::in_group(subscription, group, "loadBalancers"));
    let listed = course.turn.service().list(&ask).await.or_stop(|setback| {
        Stop::failed(Aspect::Balancer, Reason::BalancerLookupFailed, &setback)
    })?;
    let Some(found) = listed.iter().find_map(|balancer| frontend_of(balancer, address)) else {
        let message = format!("no load balancer in {group} has a frontend with {address} yet");
        return Break(Stop::wait(Aspect::Balancer, Reason::BalancerNotFound, message));
    };
    course.status.service.balancer = Some((found.balancer.clone(), address));
    let message = format!("{} has {address}", found.balancer.name());
    course.tell(Aspect::Balancer, (true, Reason::AzureSuccess), &message);
    Continue(found)
}

async fn create(course: &mut Course<'_>, fixed: &Fixed, address: IpAddr) -> Outcome<Duration> {
    let frontend = frontend(course, fixed, address).await?;
    let subnet = subnet::find(course, fixed, &frontend).await?;
    let spec = &course.object.spec;
    let body = json!({
        "location": spec.location,
        "tags": names::tags(&course.turn.settings.fleet, &course.object.name, spec),
        "properties": {
            "visibility": { "subscriptions": spec.allowed() },
            "autoApproval": { "subscriptions": spec.approved() },
            "enableProxyProtocol": false,
            "loadBalancerFrontendIpConfigurations": [{ "id": frontend.id }],
            "ipConfigurations": [{
                "name": "nat",
                "properties": {
                    "primary": true,
                    "privateIPAllocationMethod": "Dynamic",
                    "privateIPAddressVersion": "IPv4",
                    "subnet": { "id": subnet },
                },
            }],
        },
    });
    let side = course.turn.service();
    let begun = side.put(&ask::LINK_SERVICES_PUT.at(&fixed.service), &body, None).await;
    let failed = |setback| Stop::failed(Aspect::Service, Reason::CreationFailed, &setback);
    let begun = begun.or_stop(failed)?;
    let message = format!("{} is being made", fixed.service.name());
    course.events.push(Event::note("ServiceCreated", message));
    side.begun(&mut course.status.service.running, Step::CreateService, begun)?;
    Break(Stop::at_once(Aspect::Service, "the service was made"))
}
