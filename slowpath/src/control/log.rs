//! `GET` and `PUT /log/level`: the levels of slowpath's log.

use std::time::{Duration, Instant};

use api::audit::Notes;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use events::log::log;
use serde::Deserialize;

use super::response::error_response;

/// Maximum time for which levels may be set, in seconds: a week.
const MAX_SECONDS: u64 = 7 * 24 * 3600;

/// Parameters of `PUT /log/level`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LevelQuery {
    /// Levels as in `log.level`; the configured ones if absent.
    level: Option<String>,
    /// Seconds for which the levels are in force; until slowpath ends if absent.
    seconds: Option<u64>,
}

fn unavailable() -> Response {
    let error = "the log of this process was not started by slowpath".to_owned();
    error_response(StatusCode::SERVICE_UNAVAILABLE, error)
}

/// Responds with the levels in force.
pub(super) async fn level() -> Response {
    match log() {
        Some(log) => Json(log.levels().status(Instant::now())).into_response(),
        None => unavailable(),
    }
}

/// Sets the levels, and responds with those in force.
pub(super) async fn set_level(
    Extension(notes): Extension<Notes>,
    Query(query): Query<LevelQuery>,
) -> Response {
    let Some(log) = log() else { return unavailable() };
    let rejected = |error: String| error_response(StatusCode::BAD_REQUEST, error);
    if query.seconds.is_some_and(|seconds| !(1..=MAX_SECONDS).contains(&seconds)) {
        return rejected(format!("seconds: allowed are 1 to {MAX_SECONDS}, a week"));
    }
    if query.seconds.is_some() && query.level.is_none() {
        return rejected("seconds: write also `level`, which is in force for this time".to_owned());
    }
    let before = log.levels().status(Instant::now());
    let duration = query.seconds.map(Duration::from_secs);
    if let Err(error) = log.levels().set(query.level.as_deref(), duration, Instant::now()) {
        return rejected(error);
    }
    let after = log.levels().status(Instant::now());
    notes.values("log/level", serde_json::to_value(before).ok(), serde_json::to_value(&after).ok());
    Json(after).into_response()
}
