//! `GET` and `PUT /log/level`: the levels of slowpath's log.

use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use events::log::log;
use serde::Deserialize;

use super::response::error_response;

/// Maximum time of a level, in seconds: a week.
const MAX_SECONDS: u64 = 7 * 24 * 3600;

/// Parameters of `PUT /log/level`.
#[derive(Deserialize)]
pub(super) struct LevelQuery {
    /// Directives; the configured ones if absent.
    level: Option<String>,
    /// Seconds for which they are in force; absent: until slowpath ends.
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
pub(super) async fn set_level(Query(query): Query<LevelQuery>) -> Response {
    let Some(log) = log() else { return unavailable() };
    if query.seconds.is_some_and(|seconds| !(1..=MAX_SECONDS).contains(&seconds)) {
        let error = format!("seconds: allowed are 1 to {MAX_SECONDS}, a week");
        return error_response(StatusCode::BAD_REQUEST, error);
    }
    let lasts = query.seconds.map(Duration::from_secs);
    match log.levels().set(query.level.as_deref(), lasts, Instant::now()) {
        Ok(()) => Json(log.levels().status(Instant::now())).into_response(),
        Err(error) => error_response(StatusCode::BAD_REQUEST, error),
    }
}
