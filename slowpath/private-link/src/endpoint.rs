//! The consumer side: the private endpoint, its approval, its address, its DNS names.

use std::net::Ipv4Addr;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use azure::id::ResourceId;
use clouds::failure::AttemptError;
use serde_json::{Value, json};

use crate::context::{State, busy};
use crate::dns;
use crate::errors::{OrStop, Outcome, Stop};
use crate::names::{self, id_of};
use crate::object::{Aspect, ImmutableSpec, Reason, Step};
use crate::operations;
use crate::round::{Event, RoundState};

/// Property of an endpoint: its connections that need approval.
const MANUAL: &str = "manualPrivateLinkServiceConnections";
/// Property of an endpoint: its connections that are approved automatically.
const AUTOMATIC: &str = "privateLinkServiceConnections";

pub(crate) fn error(failed: AttemptError) -> Stop {
    Stop::failed(Aspect::Endpoint, Reason::AzureError, &failed)
}

/// Performs the next step. Returns the delay until the next check if nothing is left to do.
pub(crate) async fn reconcile(
    round: &mut RoundState<'_>,
    immutable: &ImmutableSpec,
) -> Outcome<Duration> {
    let Some(desired) = &immutable.endpoint else { return Continue(Duration::MAX) };
    let client = round.context.endpoint_client();
    dns::poll_operation(round).await?;
    let Some(alias) = round.status.service.alias.clone() else {
        let message = "the service has no alias yet";
        return Break(Stop::wait(Aspect::Endpoint, Reason::WaitingForAlias, message));
    };
    let Some(existing) =
        client.get(&operations::ENDPOINTS_GET.at(&desired.id)).await.or_stop(error)?
    else {
        note_deleted(round);
        return write(round, immutable, &desired.id, &alias).await;
    };
    let body = existing.body;
    if !names::belongs_to_object(&body["tags"], &round.context.settings.fleet, &round.object.name) {
        round.status.endpoint.id = None;
        round.status.endpoint.address = None;
        let message = format!(
            "endpoint {} exists and was not created by Weir for this object; delete it, or assign \
             it to this object by the tags {}={} and {}={}",
            desired.id,
            names::FLEET,
            round.context.settings.fleet,
            names::OBJECT,
            round.object.name
        );
        return Break(Stop::blocked(Aspect::Endpoint, Reason::NotOurs, message));
    }
    round.status.endpoint.id = Some(id_of(&body).unwrap_or_else(|| desired.id.clone()));
    if State::of(&body) == State::Busy {
        return Break(busy(Aspect::Endpoint, "the private endpoint", &body));
    }
    if let Some(why) = unreachable_reason(&body, &alias) {
        return delete_unreachable(round, &desired.id, why).await;
    }
    if State::of(&body) == State::Failed {
        return write(round, immutable, &desired.id, &alias).await;
    }
    check_approved(&body)?;
    let address = address(round, &body).await?;
    round.status.endpoint.address = Some(address);
    let message = format!("{} has address {address}", desired.id.name());
    round.set_condition(Aspect::Endpoint, (true, Reason::AzureSuccess), &message);
    dns::reconcile(round, desired, address).await
}

/// Clears the endpoint from the status. If the status had the endpoint's id, reports that the
/// endpoint was deleted outside Weir.
fn note_deleted(round: &mut RoundState<'_>) {
    round.status.endpoint.address = None;
    let Some(id) = round.status.endpoint.id.take() else { return };
    let message = format!("{id} was deleted outside Weir; it is being recreated");
    round.set_condition(Aspect::Endpoint, (false, Reason::AzureError), &message);
    round.events.push(Event::warning("EndpointDeleted", message));
}

/// Creates the endpoint, or writes one in provisioning state Failed again.
async fn write(
    round: &mut RoundState<'_>,
    immutable: &ImmutableSpec,
    id: &ResourceId,
    alias: &str,
) -> Outcome<Duration> {
    let Some(desired) = &immutable.endpoint else { return Continue(Duration::MAX) };
    let spec = &round.object.spec;
    let body = json!({
        "location": spec.location,
        "tags": names::tags(&round.context.settings.fleet, &round.object.name, spec),
        "properties": {
            "subnet": { "id": desired.subnet },
            MANUAL: [{
                "name": id.name(),
                "properties": {
                    "privateLinkServiceId": alias,
                    "requestMessage": format!("Weir: for {}", round.object.name),
                },
            }],
        },
    });
    let client = round.context.endpoint_client();
    let outcome =
        client.put(&operations::ENDPOINTS_PUT.at(id), &body, None).await.or_stop(error)?;
    round
        .events
        .push(Event::note("EndpointCreated", format!("{} is being created or updated", id.name())));
    client.track(&mut round.status.endpoint.running, Step::WriteEndpoint, outcome)?;
    Break(Stop::accepted_check_now(Aspect::Endpoint, "Azure accepted the write of the endpoint"))
}

/// Deletes an endpoint that cannot reach the service, because an existing endpoint cannot be
/// connected again. A later round creates a new one.
async fn delete_unreachable(
    round: &mut RoundState<'_>,
    id: &ResourceId,
    why: String,
) -> Outcome<Duration> {
    let client = round.context.endpoint_client();
    let outcome = client.delete(&operations::ENDPOINTS_DELETE.at(id)).await.or_stop(error)?;
    round.status.endpoint.id = None;
    round.status.endpoint.address = None;
    round.set_condition(Aspect::Endpoint, (false, Reason::AzureError), &why);
    round.events.push(Event::warning("EndpointReplaced", why));
    client.track(&mut round.status.endpoint.running, Step::DeleteEndpoint, outcome)?;
    // The next round is not due at once, because the new endpoint may have the same problem.
    let message = "the endpoint was deleted and will be recreated";
    Break(Stop::accepted(Aspect::Endpoint, message))
}

/// Returns the properties of the endpoint's connection; `Null` if it has none.
fn connection(body: &Value) -> &Value {
    let found = [MANUAL, AUTOMATIC].map(|key| &body["properties"][key][0]["properties"]);
    found.into_iter().max_by_key(|properties| !properties.is_null()).unwrap_or(&Value::Null)
}

/// Returns why the endpoint can never reach the service, or `None` if it may.
fn unreachable_reason(body: &Value, alias: &str) -> Option<String> {
    let connection = connection(body);
    let to = connection["privateLinkServiceId"].as_str().unwrap_or_default();
    // Azure may return the service's id although its alias was written.
    if !to.is_empty() && !to.starts_with('/') && !to.eq_ignore_ascii_case(alias) {
        return Some(format!(
            "the endpoint points to {to}, but the service's alias is {alias}; the endpoint is \
             being recreated"
        ));
    }
    let status = connection["privateLinkServiceConnectionState"]["status"].as_str();
    (status == Some("Disconnected")).then(|| {
        "the service's owner removed the connection, or the service was deleted; the endpoint is \
         being recreated"
            .to_owned()
    })
}

/// Continues if the service's owner has approved the endpoint's connection.
fn check_approved(body: &Value) -> Outcome<()> {
    let state = &connection(body)["privateLinkServiceConnectionState"];
    let status = state["status"].as_str().unwrap_or("unknown");
    if status == "Approved" {
        return Continue(());
    }
    let why = state["description"].as_str().unwrap_or_default();
    let message = format!("the connection is in state {status}: {why}");
    Break(Stop::wait(Aspect::Endpoint, Reason::NotApproved, message))
}

/// Returns the endpoint's address from its own body, or else from that of its network interface.
async fn address(round: &mut RoundState<'_>, body: &Value) -> Outcome<Ipv4Addr> {
    let first = |list: &Value| list[0].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok());
    let configs = body["properties"]["customDnsConfigs"].as_array().into_iter().flatten();
    if let Some(address) = configs.map(|one| &one["ipAddresses"]).find_map(first) {
        return Continue(address);
    }
    let waiting = |()| {
        let message = "Azure has not assigned the endpoint an address yet";
        Stop::wait(Aspect::Endpoint, Reason::InProgress, message)
    };
    let id = body["properties"]["networkInterfaces"][0]["id"].as_str().or_stop(waiting)?;
    let id = ResourceId::parse(id).or_stop(|_| waiting(()))?;
    let client = round.context.endpoint_client();
    let interface = client.get(&operations::INTERFACES_GET.at(&id)).await.or_stop(error)?;
    let interface = interface.or_stop(waiting)?.body;
    let found = interface["properties"]["ipConfigurations"].as_array().into_iter().flatten();
    let mut found = found.filter_map(|one| one["properties"]["privateIPAddress"].as_str());
    found.find_map(|text| text.parse().ok()).or_stop(waiting)
}
