//! The service side, step by step: update an existing service, or find the load balancer and the
//! NAT subnet and create the service.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use azure::arm::Resource;
use azure::id::ResourceId;
use clouds::failure::AttemptError;
use serde_json::{Value, json};

use crate::connections;
use crate::context::{State, busy};
use crate::errors::{OrStop, Outcome, Stop, delay_after};
use crate::frontend::{Frontend, frontend_of};
use crate::names::{self, id_of};
use crate::object::{Aspect, ImmutableSpec, Reason, Step};
use crate::operations;
use crate::round::{DRIFT_INTERVAL, Event, RoundState};
use crate::subnet;

/// Minimum time before an update is repeated that Azure accepted but did not apply.
const REPEAT_DELAY: Duration = Duration::from_secs(2 * 60);

/// Performs the next step. Returns the delay until the next check if nothing is left to do.
pub(crate) async fn reconcile(
    round: &mut RoundState<'_>,
    immutable: &ImmutableSpec,
) -> Outcome<Duration> {
    let client = round.context.service_client();
    client.poll_running(&mut round.status.service.running).await?;
    let Some(address) = round.object.spec.load_balancer_ip else {
        let message = "spec.load_balancer_ip is not set yet";
        return Break(Stop::wait(Aspect::Balancer, Reason::WaitingForAddress, message));
    };
    let found = client.get(&operations::LINK_SERVICES_GET.at(&immutable.service)).await;
    let found = found.or_stop(|failed| error(&failed))?;
    let Some(existing) = found else {
        note_deleted(round);
        return create(round, immutable, address).await;
    };
    if !is_own(round, &existing.body) {
        // The service that the status describes is gone: another one has its name.
        note_deleted(round);
        return Break(foreign_service(round, &immutable.service));
    }
    match State::of(&existing.body) {
        State::Busy => {
            record_service(round, immutable, &existing.body);
            return Break(busy(Aspect::Service, "the private link service", &existing.body));
        }
        State::Failed => {}
        State::Ready => record_service(round, immutable, &existing.body),
    }
    update(round, immutable, address, existing).await
}

fn error(failed: &AttemptError) -> Stop {
    Stop::failed(Aspect::Service, Reason::AzureError, failed)
}

/// Returns true if the service belongs to the object: its alias is the one in the status (aliases
/// are globally unique), or its tags name the fleet and the object.
pub(crate) fn is_own(round: &RoundState<'_>, body: &Value) -> bool {
    let alias = body["properties"]["alias"].as_str();
    let known = alias.is_some() && alias == round.status.service.alias.as_deref();
    known
        || names::belongs_to_object(
            &body["tags"],
            &round.context.settings.fleet,
            &round.object.name,
        )
}

/// Returns the stop because another service has the name of this object's service.
fn foreign_service(round: &RoundState<'_>, id: &ResourceId) -> Stop {
    let tags = [(names::FLEET, &round.context.settings.fleet), (names::OBJECT, &round.object.name)];
    let [fleet, object] = tags.map(|(key, value)| format!("{key}={value}"));
    let message = format!(
        "service {id} exists and was not created by Weir for this object; delete it, set another \
         spec.service_name, or assign it to this object: az tag update --operation merge \
         --resource-id {id} --tags {fleet} {object}"
    );
    Stop::blocked(Aspect::Service, Reason::NotOurs, message)
}

/// Clears the service from the status, and reports that it was deleted outside Weir. Does nothing
/// if the status has no service.
fn note_deleted(round: &mut RoundState<'_>) {
    let Some(id) = round.status.service.id.take() else { return };
    round.status.service.alias = None;
    round.status.service.changed = None;
    round.status.service.connections.clear();
    let message = format!("{id} was deleted outside Weir");
    round.set_condition(Aspect::Service, (false, Reason::AzureError), &message);
    round.set_condition(Aspect::Available, (false, Reason::AzureError), &message);
    round.events.push(Event::warning("ServiceDeleted", message));
}

/// Copies id and alias of the service to the status.
fn record_service(round: &mut RoundState<'_>, immutable: &ImmutableSpec, body: &Value) {
    let service = &mut round.status.service;
    service.id = Some(id_of(body).unwrap_or_else(|| immutable.service.clone()));
    if let Some(alias) = body["properties"]["alias"].as_str().filter(|alias| !alias.is_empty()) {
        service.alias = Some(alias.to_owned());
    }
}

/// Reads the service for an appliance that is not the owner, and updates id and alias in the
/// status. Clears them if the service does not exist or is not this object's. Returns true if the
/// service exists and belongs to the object.
pub(crate) async fn observe(round: &mut RoundState<'_>) -> Outcome<bool> {
    let Some(immutable) = ImmutableSpec::of(&round.object.name, &round.object.spec).ok() else {
        return Continue(false);
    };
    match round
        .context
        .service_client()
        .get(&operations::LINK_SERVICES_GET.at(&immutable.service))
        .await
    {
        Ok(Some(existing)) if is_own(round, &existing.body) => {
            record_service(round, &immutable, &existing.body);
            Continue(true)
        }
        Ok(_) => {
            round.status.service.id = None;
            round.status.service.alias = None;
            Continue(false)
        }
        Err(failed) => Break(error(&failed)),
    }
}

/// Updates the existing service if it differs from the desired state, or if its last operation
/// failed. Otherwise reports the service as ready.
async fn update(
    round: &mut RoundState<'_>,
    immutable: &ImmutableSpec,
    address: IpAddr,
    existing: Resource,
) -> Outcome<Duration> {
    let last_operation_failed = State::of(&existing.body) == State::Failed;
    let mut desired = existing.body.clone();
    let spec = &round.object.spec;
    let properties = &existing.body["properties"];
    let mut differs = Vec::new();
    for (key, list) in [
        ("visibility", spec.permitted_subscriptions()),
        ("autoApproval", spec.approved_subscriptions()),
    ] {
        if parse_subscriptions(&properties[key]) != list {
            desired["properties"][key]["subscriptions"] = json!(list);
            differs.push(key);
        }
    }
    let tags = names::tags(&round.context.settings.fleet, &round.object.name, spec);
    if !names::has_all(&existing.body["tags"], &tags) {
        desired["tags"] = names::merged(&existing.body["tags"], &tags);
        differs.push("tags");
    }
    // The frontend is looked up in each round, because another appliance may have reconciled the
    // object before, or the service or the load balancer may have been changed by hand.
    let frontend = find_frontend(round, immutable, address).await?;
    if !points_to(properties, &frontend.id) {
        let list = json!([{ "id": frontend.id }]);
        desired["properties"]["loadBalancerFrontendIpConfigurations"] = list;
        differs.push("frontend");
        report_other_frontend(round, properties, &frontend.id);
    }
    if differs.is_empty() && !last_operation_failed {
        round.status.service.changed = None;
        return report_ready(round, &existing.body).await;
    }
    let (now, generation) = (round.context.now, round.object.generation);
    if let Some((changed, at)) = round.status.service.changed
        && changed == generation
        && now < at.after(REPEAT_DELAY)
    {
        let failed_state = || "provisioning state Failed".to_owned();
        let state = if last_operation_failed { failed_state() } else { differs.join(", ") };
        let message =
            format!("Azure accepted the last change, but the service still differs: {state}");
        let stop = Stop::blocked(Aspect::Service, Reason::UpdateFailed, message);
        return Break(Stop { after: at.after(REPEAT_DELAY).since(now), ..stop });
    }
    subnet::prepare_existing(round, properties).await?;
    let client = round.context.service_client();
    let request = operations::LINK_SERVICES_PUT.at(&immutable.service);
    let outcome = client.put(&request, &desired, existing.etag.as_deref()).await;
    let stop = |error| Stop::failed(Aspect::Service, Reason::UpdateFailed, &error);
    let outcome = outcome.or_stop(stop)?;
    round.status.service.changed = Some((generation, now));
    let what = if differs.is_empty() { "state".to_owned() } else { differs.join(", ") };
    round.events.push(Event::note("ServiceChanged", format!("changed: {what}")));
    client.track(&mut round.status.service.running, Step::UpdateService, outcome)?;
    Break(Stop::accepted_check_now(Aspect::Service, "the change was accepted"))
}

/// Returns true if this frontend is the service's only one.
fn points_to(properties: &Value, frontend: &str) -> bool {
    let list = properties["loadBalancerFrontendIpConfigurations"].as_array();
    let same = |one: &Value| one["id"].as_str().is_some_and(|id| id.eq_ignore_ascii_case(frontend));
    list.is_some_and(|list| list.len() == 1 && list.iter().all(same))
}

/// Reports that the service points to another frontend, until the change is made.
fn report_other_frontend(round: &mut RoundState<'_>, properties: &Value, desired: &str) {
    let list = properties["loadBalancerFrontendIpConfigurations"].as_array().into_iter().flatten();
    let now: Vec<&str> = list.filter_map(|one| one["id"].as_str()).collect();
    let now = if now.is_empty() { "no frontend".to_owned() } else { now.join(", ") };
    let message = format!("the service points to {now} instead of {desired}");
    round.set_condition(Aspect::Service, (false, Reason::FrontendDiffers), &message);
    round.set_condition(Aspect::Available, (false, Reason::FrontendDiffers), &message);
}

/// Returns the subscriptions of `visibility` or `autoApproval`, in lower case.
fn parse_subscriptions(json: &Value) -> BTreeSet<String> {
    let listed = json["subscriptions"].as_array().into_iter().flatten();
    listed.filter_map(Value::as_str).map(str::to_ascii_lowercase).collect()
}

/// Reports a service in its desired state as ready, once it has all that consumers need, and then
/// reconciles its connections.
async fn report_ready(round: &mut RoundState<'_>, body: &Value) -> Outcome<Duration> {
    let frontends = body["properties"]["loadBalancerFrontendIpConfigurations"].as_array();
    let complete = round.status.service.alias.is_some()
        && id_of(body).is_some()
        && frontends.is_some_and(|list| !list.is_empty());
    if !complete {
        let message = "the service does not have its id, alias and frontend yet; waiting for Azure";
        return Break(Stop {
            after: DRIFT_INTERVAL,
            ..Stop::wait(Aspect::Service, Reason::AzureError, message)
        });
    }
    round.set_condition(Aspect::Service, (true, Reason::AzureSuccess), "the service is as desired");
    // Failures to read or approve connections do not affect the service's condition.
    match connections::reconcile(round, body).await {
        Ok(pause) => Continue(pause),
        Err(failed) => {
            round.events.push(Event::warning("ConnectionsFailed", failed.error.to_string()));
            Continue(delay_after(&failed))
        }
    }
}

/// Returns the frontend with the address, among all load balancers of the resource group. Sets the
/// load balancer and its condition in the status.
async fn find_frontend(
    round: &mut RoundState<'_>,
    immutable: &ImmutableSpec,
    address: IpAddr,
) -> Outcome<Frontend> {
    let (subscription, group) = (immutable.service.subscription(), immutable.service.group());
    let request = operations::LOAD_BALANCERS_LIST.at(operations::in_group(
        subscription,
        group,
        "loadBalancers",
    ));
    let listed =
        round.context.service_client().list(&request).await.or_stop(|failed| {
            Stop::failed(Aspect::Balancer, Reason::BalancerLookupFailed, &failed)
        })?;
    let Some(found) = listed.iter().find_map(|balancer| frontend_of(balancer, address)) else {
        let message = format!("no load balancer in {group} has a frontend with {address} yet");
        return Break(Stop::wait(Aspect::Balancer, Reason::BalancerNotFound, message));
    };
    round.status.service.balancer = Some((found.balancer.clone(), address));
    let message = format!("{} has address {address}", found.balancer.name());
    round.set_condition(Aspect::Balancer, (true, Reason::AzureSuccess), &message);
    Continue(found)
}

/// Finds the load balancer and the NAT subnet, and starts the creation of the service.
async fn create(
    round: &mut RoundState<'_>,
    immutable: &ImmutableSpec,
    address: IpAddr,
) -> Outcome<Duration> {
    let frontend = find_frontend(round, immutable, address).await?;
    let subnet = subnet::find_or_create(round, immutable, &frontend).await?;
    let spec = &round.object.spec;
    let body = json!({
        "location": spec.location,
        "tags": names::tags(&round.context.settings.fleet, &round.object.name, spec),
        "properties": {
            "visibility": { "subscriptions": spec.permitted_subscriptions() },
            "autoApproval": { "subscriptions": spec.approved_subscriptions() },
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
    let client = round.context.service_client();
    let outcome =
        client.put(&operations::LINK_SERVICES_PUT.at(&immutable.service), &body, None).await;
    let stop = |error| Stop::failed(Aspect::Service, Reason::CreationFailed, &error);
    let outcome = outcome.or_stop(stop)?;
    let message = format!("{} is being created", immutable.service.name());
    round.events.push(Event::note("ServiceCreationStarted", message));
    client.track(&mut round.status.service.running, Step::CreateService, outcome)?;
    Break(Stop::accepted_check_now(Aspect::Service, "Azure accepted the creation of the service"))
}
