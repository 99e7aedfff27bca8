//! Endpoints of the control socket for private links: read them, approve and reject connections.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use clouds::failure::Failure as Kind;
use private_link::object::Status;
use private_link::run::Objects;
use private_link::time::Time;
use private_link::told::rows;
use private_link::{Verdict, decide};
use serde::{Deserialize, Serialize};

use super::{Desk, Told};
use crate::control::answer::refuse;

/// Default reason for an approval or rejection.
const BY_HAND: &str = "Weir: by an operator";

/// A private link with its status and events.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// Name of the object.
    pub name: String,
    /// Source of the object.
    pub source: String,
    /// Generation of the desired state.
    pub generation: u64,
    /// Whether the object is being deleted.
    pub deleting: bool,
    /// Desired state.
    pub spec: config::private_link::Spec,
    /// Observed state.
    pub status: Status,
    /// Events, oldest first.
    pub events: Vec<Told>,
}

#[derive(Deserialize)]
struct About {
    connection: String,
    reason: Option<String>,
}

/// Returns the routes `GET /private-links` and `GET /private-links/NAME`, and
/// `PUT /private-links-connections/approve/NAME` and `reject`.
pub fn router(desk: Desk) -> Router {
    let decided = put(decided);
    Router::new()
        .route("/private-links", get(list))
        .route("/private-links/{*name}", get(show))
        .route("/private-links-connections/{verdict}/{*name}", decided)
        .with_state(desk)
}

async fn list(State(desk): State<Desk>) -> Response {
    Json(rows(&desk.kept.list(), Time::now())).into_response()
}

fn absent(name: &str) -> Response {
    let error = format!("there is no private link {name}; see `weir pls list`");
    refuse(StatusCode::NOT_FOUND, error)
}

async fn show(State(desk): State<Desk>, Path(name): Path<String>) -> Response {
    let link = desk.kept.list().into_iter().find(|link| link.name == name);
    let (Some(link), Some(object)) = (link, desk.kept.object(&name)) else { return absent(&name) };
    let shown = Shown {
        source: object.source.as_str().to_owned(),
        generation: link.generation,
        deleting: link.deletion.is_some(),
        spec: link.spec,
        status: link.status,
        events: desk.kept.events(&object),
        name,
    };
    Json(shown).into_response()
}

async fn decided(
    State(desk): State<Desk>,
    Path((verdict, name)): Path<(String, String)>,
    Query(about): Query<About>,
) -> Response {
    let verdict = match verdict.as_str() {
        "approve" => Verdict::Approved,
        "reject" => Verdict::Rejected,
        other => {
            let error = format!("there is no verdict `{other}`; allowed: approve, reject");
            return refuse(StatusCode::NOT_FOUND, error);
        }
    };
    let Some(arm) = desk.arm() else {
        let error = "the configuration has no section [private_link]: Azure is asked nothing";
        return refuse(StatusCode::CONFLICT, error.to_owned());
    };
    let link = desk.kept.list().into_iter().find(|link| link.name == name);
    let Some(link) = link else { return absent(&name) };
    let Some(service) = &link.status.service.id else {
        let error = format!("{name} has no service yet; see `weir pls show {name}`");
        return refuse(StatusCode::CONFLICT, error);
    };
    let reason = about.reason.as_deref().unwrap_or(BY_HAND);
    let told = decide(arm, &*desk.pause, service, &about.connection, verdict, reason).await;
    match told {
        Ok(Some(connection)) => {
            desk.kept.hurry(&name);
            Json(connection).into_response()
        }
        Ok(None) => {
            let there = link.status.service.connections.iter().map(|one| one.name.as_str());
            let there: Vec<&str> = there.collect();
            let error = match there.as_slice() {
                [] => format!("{name} has no connection"),
                there => format!("{name} has no such connection; it has {}", there.join(", ")),
            };
            refuse(StatusCode::NOT_FOUND, error)
        }
        Err(setback) => {
            let code = match setback.error.kind {
                Kind::Denied => StatusCode::FORBIDDEN,
                Kind::Invalid | Kind::Absent | Kind::Conflict => StatusCode::CONFLICT,
                Kind::Throttled | Kind::Transient => StatusCode::SERVICE_UNAVAILABLE,
            };
            refuse(code, setback.error.to_string())
        }
    }
}
