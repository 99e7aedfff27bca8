//! Endpoint connections of the service: listing, approval, rejection.

use std::time::Duration;

use azure::arm::{Arm, WriteOutcome};
use azure::id::ResourceId;
use clouds::failure::AttemptError;
use clouds::retry::Pause;
use serde_json::{Value, json};

use crate::context::SideClient;
use crate::errors::SHORT_DELAY;
use crate::names::id_of;
use crate::object::{Aspect, Connection, Reason};
use crate::operations;
use crate::round::{DRIFT_INTERVAL, Event, RoundState};
use crate::time::Time;

/// Time limit of a call of [`decide`].
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Decision about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Traffic is admitted.
    Approved,
    /// Traffic is refused; the consumer has to create the endpoint anew to request again.
    Rejected,
}

impl Decision {
    /// Returns the state as Azure spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Approved => "Approved",
            Decision::Rejected => "Rejected",
        }
    }
}

/// Approves or rejects a connection of a service on request of the operator. Returns the connection
/// with its new state, or `None` if the service has no connection of that name.
///
/// # Errors
/// Fails if Azure returns an error, or does not answer a call in time.
pub async fn decide(
    arm: &dyn Arm,
    pause: &dyn Pause,
    service: &ResourceId,
    name: &str,
    decision: Decision,
    description: &str,
) -> Result<Option<Connection>, AttemptError> {
    let client = SideClient { arm, pause, timeout: CALL_TIMEOUT, now: Time::default() };
    let listed = list(&client, service).await?;
    let named = |item: &&Value| item["name"].as_str().is_some_and(|n| n.eq_ignore_ascii_case(name));
    let Some(item) = listed.iter().find(named) else { return Ok(None) };
    write_decision(&client, service, item, decision, description).await?;
    Ok(parse(item).map(|connection| Connection {
        state: decision.as_str().to_owned(),
        description: description.to_owned(),
        ..connection
    }))
}

/// Reads all connections. Pending ones are approved if the spec approves their subscription, and
/// reported otherwise. Returns the delay until the next check.
pub(crate) async fn reconcile(
    round: &mut RoundState<'_>,
    service: &Value,
) -> Result<Duration, AttemptError> {
    let Some(id) = id_of(service) else { return Ok(DRIFT_INTERVAL) };
    let client = round.context.service_client();
    let approved = round.object.spec.approved_subscriptions();
    let mut found = Vec::new();
    for item in list(&client, &id).await? {
        let Some(mut connection) = parse(&item) else { continue };
        if connection.state == "Pending" && approved.contains(&connection.subscription()) {
            let why = "Weir: the subscription is on the approved list";
            write_decision(&client, &id, &item, Decision::Approved, why).await?;
            connection.state = Decision::Approved.as_str().to_owned();
            let message = format!("{} from {} is approved", connection.name, connection.endpoint);
            round.events.push(Event::note("ConnectionApproved", message));
        }
        found.push(connection);
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    round.status.service.connections = found;
    let waiting = waiting_message(round);
    if waiting.is_empty() {
        round.status.clear_condition(Aspect::ConnectionsWaiting);
        return Ok(DRIFT_INTERVAL);
    }
    round.set_condition(Aspect::ConnectionsWaiting, (true, Reason::Pending), &waiting);
    Ok(SHORT_DELAY)
}

/// Returns a message about the connections that wait for a decision; empty if there are none.
fn waiting_message(round: &RoundState<'_>) -> String {
    let connections = round.status.service.connections.iter();
    let named: Vec<String> = connections
        .filter(|connection| connection.state == "Pending")
        .map(|connection| match connection.subscription().as_str() {
            "" => format!("{} of an unknown subscription", connection.name),
            subscription => format!("{} of subscription {subscription}", connection.name),
        })
        .collect();
    if named.is_empty() {
        return String::new();
    }
    let object = &round.object.name;
    let names = named.join(", ");
    format!("{names}; run `weir pls approve {object} NAME` or `weir pls reject {object} NAME`")
}

/// Returns all connections of a service, from all pages.
pub(crate) async fn list(
    client: &SideClient<'_>,
    service: &ResourceId,
) -> Result<Vec<Value>, AttemptError> {
    client
        .list(
            &operations::LINK_CONNECTIONS_LIST.at(format!("{service}/privateEndpointConnections")),
        )
        .await
}

/// Parses a connection; `None` without a name or a state.
pub(crate) fn parse(item: &Value) -> Option<Connection> {
    let properties = &item["properties"];
    let state = &properties["privateLinkServiceConnectionState"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(Connection {
        name: item["name"].as_str()?.to_owned(),
        endpoint: text(&properties["privateEndpoint"]["id"]),
        state: state["status"].as_str()?.to_owned(),
        description: text(&state["description"]),
    })
}

/// Writes a decision, which takes effect at once.
pub(crate) async fn write_decision(
    client: &SideClient<'_>,
    service: &ResourceId,
    item: &Value,
    decision: Decision,
    description: &str,
) -> Result<WriteOutcome, AttemptError> {
    let name = item["name"].as_str().unwrap_or_default();
    let mut properties = json!({
        "privateLinkServiceConnectionState": {
            "status": decision.as_str(),
            "description": description,
        },
    });
    let endpoint = &item["properties"]["privateEndpoint"];
    if !endpoint.is_null() {
        properties["privateEndpoint"] = json!({ "id": endpoint["id"] });
    }
    let body = json!({ "name": name, "properties": properties });
    let id = service.child("privateEndpointConnections", name);
    client.put(&operations::LINK_CONNECTIONS_PUT.at(&id), &body, None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
    fn published_connections_are_parsed() {
        let folder = cloud_emulators::fixtures::folder("azure-rest-examples").join("network");
        let read_all = |name: &str, at: &str| -> Vec<Connection> {
            let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
            let json: Value = serde_json::from_str(&text).unwrap();
            let list = json.pointer(at).and_then(Value::as_array).unwrap();
            list.iter().filter_map(parse).collect()
        };
        let name = "PrivateLinkServiceListPrivateEndpointConnection";
        let listed = read_all(name, "/responses/200/body/value");
        let states: Vec<&str> = listed.iter().map(|one| one.state.as_str()).collect();
        assert_eq!(states, ["Approved", "Rejected"]);
        assert_eq!(listed[0].subscription(), "subid");
        assert_eq!(listed[1].description, "rejected by some reason.");
        let at = "/responses/200/body/properties/privateEndpointConnections";
        assert_eq!(read_all("PrivateLinkServiceGet", at).len(), 1);
    }

    #[test]
    fn connection_without_name_or_state_is_none() {
        let state = json!({ "privateLinkServiceConnectionState": { "status": "Pending" } });
        for (item, known) in [
            (json!({ "name": "a", "properties": state }), true),
            (json!({ "properties": state }), false),
            (json!({ "name": "a", "properties": {} }), false),
            (json!(null), false),
        ] {
            assert_eq!(parse(&item).is_some(), known, "{item}");
        }
        let connection = parse(&json!({ "name": "a", "properties": state })).unwrap();
        assert_eq!(connection.subscription(), "");
    }
}
