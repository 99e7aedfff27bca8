//! Endpoint connections of the service: listing, approval, rejection.

use std::time::Duration;

use azure::arm::{Arm, Begun};
use azure::id::ResourceId;
use clouds::failure::Setback;
use clouds::retry::Pause;
use serde_json::{Value, json};

use crate::ask;
use crate::course::{Course, DRIFT, Event};
use crate::errors::SOON;
use crate::names::id_of;
use crate::object::{Aspect, Connection, Reason};
use crate::time::Time;
use crate::turn::Side;

/// Time limit of a call of [`decide`].
const BOUND: Duration = Duration::from_secs(30);

/// Decision about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Traffic is admitted.
    Approved,
    /// Traffic is refused; the endpoint has to be created anew before it can request again.
    Rejected,
}

impl Verdict {
    /// Returns the state as Azure spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Approved => "Approved",
            Verdict::Rejected => "Rejected",
        }
    }
}

/// Approves or rejects a connection of a service on request of the operator. Returns the connection
/// with its new state, or `None` if there is none of that name.
///
/// # Errors
/// Those of Azure.
pub async fn decide(
    arm: &dyn Arm,
    pause: &dyn Pause,
    service: &ResourceId,
    name: &str,
    verdict: Verdict,
    description: &str,
) -> Result<Option<Connection>, Setback> {
    let side = Side { arm, pause, bound: BOUND, now: Time::default() };
    let listed = all(&side, service).await?;
    let named =
        |there: &&Value| there["name"].as_str().is_some_and(|n| n.eq_ignore_ascii_case(name));
    let Some(there) = listed.iter().find(named) else { return Ok(None) };
    judge(&side, service, there, verdict, description).await?;
    Ok(read(there).map(|connection| Connection {
        state: verdict.as_str().to_owned(),
        description: description.to_owned(),
        ..connection
    }))
}

/// Reads all connections. Pending ones are approved if the spec approves their subscription, and
/// reported otherwise. Returns when to check again.
pub(crate) async fn look(course: &mut Course<'_>, service: &Value) -> Result<Duration, Setback> {
    let Some(id) = id_of(service) else { return Ok(DRIFT) };
    let side = course.turn.service();
    let approved = course.object.spec.approved();
    let mut found = Vec::new();
    for there in all(&side, &id).await? {
        let Some(mut connection) = read(&there) else { continue };
        if connection.state == "Pending" && approved.contains(&connection.subscription()) {
            let why = "Weir: its subscription is approved";
            judge(&side, &id, &there, Verdict::Approved, why).await?;
            connection.state = Verdict::Approved.as_str().to_owned();
            let message = format!("{} from {} is approved", connection.name, connection.endpoint);
            course.events.push(Event::note("ConnectionApproved", message));
        }
        found.push(connection);
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    course.status.service.connections = found;
    let waiting = waiting(course);
    if waiting.is_empty() {
        course.status.untell(Aspect::ConnectionsWaiting);
        return Ok(DRIFT);
    }
    course.tell(Aspect::ConnectionsWaiting, (true, Reason::Pending), &waiting);
    Ok(SOON)
}

/// Returns a message about the connections that wait for a decision; empty if there are none.
fn waiting(course: &Course<'_>) -> String {
    let connections = course.status.service.connections.iter();
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
    let object = &course.object.name;
    format!("{}; weir pls approve {object} NAME, or reject", named.join(", "))
}

/// Returns all connections of a service, from all pages.
pub(crate) async fn all(side: &Side<'_>, service: &ResourceId) -> Result<Vec<Value>, Setback> {
    side.list(&ask::LINK_CONNECTIONS_LIST.at(format!("{service}/privateEndpointConnections"))).await
}

/// Parses a connection; `None` without a name or a state.
pub(crate) fn read(there: &Value) -> Option<Connection> {
    let properties = &there["properties"];
    let state = &properties["privateLinkServiceConnectionState"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(Connection {
        name: there["name"].as_str()?.to_owned(),
        endpoint: text(&properties["privateEndpoint"]["id"]),
        state: state["status"].as_str()?.to_owned(),
        description: text(&state["description"]),
    })
}

/// Writes a decision, which takes effect at once.
pub(crate) async fn judge(
    side: &Side<'_>,
    service: &ResourceId,
    there: &Value,
    verdict: Verdict,
    description: &str,
) -> Result<Begun, Setback> {
    let name = there["name"].as_str().unwrap_or_default();
    let mut properties = json!({
        "privateLinkServiceConnectionState": {
            "status": verdict.as_str(),
            "description": description,
        },
    });
    let endpoint = &there["properties"]["privateEndpoint"];
    if !endpoint.is_null() {
        properties["privateEndpoint"] = json!({ "id": endpoint["id"] });
    }
    let body = json!({ "name": name, "properties": properties });
    let id = service.child("privateEndpointConnections", name);
    side.put(&ask::LINK_CONNECTIONS_PUT.at(&id), &body, None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads Microsoft's published examples.
    #[test]
    #[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
    fn connections_are_read_as_microsoft_writes_them() {
        let folder = standins::fixtures::folder("azure-rest-examples").join("network");
        let read_all = |name: &str, at: &str| -> Vec<Connection> {
            let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
            let json: Value = serde_json::from_str(&text).unwrap();
            let list = json.pointer(at).and_then(Value::as_array).unwrap();
            list.iter().filter_map(read).collect()
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
    fn what_has_neither_name_nor_state_is_none() {
        let state = json!({ "privateLinkServiceConnectionState": { "status": "Pending" } });
        for (there, known) in [
            (json!({ "name": "a", "properties": state }), true),
            (json!({ "properties": state }), false),
            (json!({ "name": "a", "properties": {} }), false),
            (json!(null), false),
        ] {
            assert_eq!(read(&there).is_some(), known, "{there}");
        }
        let nobody = read(&json!({ "name": "a", "properties": state })).unwrap();
        assert_eq!(nobody.subscription(), "");
    }
}
