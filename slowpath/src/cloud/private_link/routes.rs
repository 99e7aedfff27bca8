//! HTTP endpoints of the control socket for private links: reading them, and approving and
//! rejecting connections.

use api::Role;
use api::access::{Access, Call, Calls};
use api::audit::Notes;
use axum::Json;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use clouds::failure::Failure as Kind;
use private_link::controller::ObjectStore;
use private_link::object::Status;
use private_link::status_view::rows;
use private_link::time::Time;
use private_link::{Decision, decide};
use serde::{Deserialize, Serialize};

use super::{LinkEvent, PrivateLinkState};
use crate::control::response::error_response;

/// Reason of an approval or rejection for which the operator gives none; consumers see it at Azure.
const OPERATOR_REASON: &str = "Weir: by an operator";

/// A private link with its status and events.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkDetail {
    /// Name of the object.
    pub name: String,
    /// Source of the object.
    pub source: String,
    /// Generation of the object: increases with each change of its desired state.
    pub generation: u64,
    /// Whether the object is being deleted.
    pub deleting: bool,
    /// Desired state.
    pub spec: config::private_link::Spec,
    /// Observed state.
    pub status: Status,
    /// Events, oldest first.
    pub events: Vec<LinkEvent>,
}

#[derive(Deserialize)]
struct DecisionQuery {
    connection: String,
    reason: Option<String>,
}

/// Returns the routes `GET /private-links` and `/private-links/NAME`, and
/// `PUT /private-links-connections/approve/NAME` and `/private-links-connections/reject/NAME`.
pub fn calls() -> Calls<PrivateLinkState> {
    let read = |path, operation| Call::new("get", path, operation, Access::Read(Role::Read));
    let (path, access) =
        ("/private-links-connections/{verdict}/{*name}", Access::Change(Role::Operate));
    let decide = Call::new("put", path, "decideConnection", access);
    Calls::default()
        .add(read("/private-links", "privateLinks"), get(list))
        .add(read("/private-links/{*name}", "privateLink"), get(show))
        .add(decide, put(decide_connection))
}

async fn list(State(state): State<PrivateLinkState>) -> Response {
    Json(rows(&state.links.list(), Time::now())).into_response()
}

fn absent(name: &str) -> Response {
    let error = format!("private link {name} does not exist; see `weir pls list`");
    error_response(StatusCode::NOT_FOUND, error)
}

async fn show(State(state): State<PrivateLinkState>, Path(name): Path<String>) -> Response {
    let link = state.links.list().into_iter().find(|link| link.name == name);
    let (Some(link), Some(object)) = (link, state.links.object(&name)) else {
        return absent(&name);
    };
    let detail = LinkDetail {
        source: object.source.as_str().to_owned(),
        generation: link.generation,
        deleting: link.deletion.is_some(),
        spec: link.spec,
        status: link.status,
        events: state.links.events(&object),
        name,
    };
    Json(detail).into_response()
}

async fn decide_connection(
    State(state): State<PrivateLinkState>,
    Extension(notes): Extension<Notes>,
    Path((verdict, name)): Path<(String, String)>,
    Query(query): Query<DecisionQuery>,
) -> Response {
    let decision = serde_json::json!({ "connection": query.connection, "decision": verdict });
    notes.values(&format!("private-link-services/{name}"), None, Some(decision));
    let verdict = match verdict.as_str() {
        "approve" => Decision::Approved,
        "reject" => Decision::Rejected,
        other => {
            let error = format!("`{other}` is not a decision; allowed: approve, reject");
            return error_response(StatusCode::NOT_FOUND, error);
        }
    };
    let Some(arm) = state.arm() else {
        let error =
            "the configuration has no section [private_link]; add it to manage private links";
        return error_response(StatusCode::CONFLICT, error.to_owned());
    };
    let link = state.links.list().into_iter().find(|link| link.name == name);
    let Some(link) = link else { return absent(&name) };
    let Some(service) = &link.status.service.id else {
        let error = format!("private link {name} has no service yet; see `weir pls show {name}`");
        return error_response(StatusCode::CONFLICT, error);
    };
    let reason = query.reason.as_deref().unwrap_or(OPERATOR_REASON);
    let decided = decide(arm, &*state.pause, service, &query.connection, verdict, reason).await;
    match decided {
        Ok(Some(connection)) => {
            state.links.mark_urgent(&name);
            Json(connection).into_response()
        }
        Ok(None) => {
            let existing = link.status.service.connections.iter().map(|one| one.name.as_str());
            let existing: Vec<&str> = existing.collect();
            let error = match existing.as_slice() {
                [] => format!("private link {name} has no connections"),
                existing => format!(
                    "private link {name} has no connection {}; it has {}",
                    query.connection,
                    existing.join(", ")
                ),
            };
            error_response(StatusCode::NOT_FOUND, error)
        }
        Err(failed) => {
            let code = match failed.error.kind {
                Kind::Denied => StatusCode::FORBIDDEN,
                Kind::Invalid | Kind::Absent | Kind::Conflict => StatusCode::CONFLICT,
                Kind::Throttled | Kind::Transient => StatusCode::SERVICE_UNAVAILABLE,
            };
            error_response(code, failed.error.to_string())
        }
    }
}
