//! Responses of the control socket: errors, and responses computed on a blocking thread.

use api::reason::Reason;
use axum::Json;
use axum::extract::Extension;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::control::report::Failure;

pub(crate) fn error_response(code: StatusCode, error: String) -> Response {
    // For the audit log.
    let reason = Reason { problem: "".into(), text: error.as_str().into() };
    (code, Extension(reason), Json(Failure { error })).into_response()
}

/// Runs `work`, which may scan whole tables, on a thread that may block.
pub(super) async fn blocking<T: IntoResponse + Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Response {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.into_response(),
        Err(e) => error_response(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
    }
}
