//! A running emulator: state, faults, and recorded calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;

use crate::azure::state::AzureState;
use crate::faults::{Faults, Rule};

/// A recorded call, with the status of its response.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Call {
    /// Name of the operation: `PUT networkInterfaces`, `/metadata/instance` and so on.
    pub operation: String,
    /// Method, `PUT` for instance.
    pub method: String,
    /// Path.
    pub path: String,
    /// Query parameters.
    pub query: BTreeMap<String, String>,
    /// Headers that the emulator evaluates; of `authorization` only the scheme.
    pub headers: BTreeMap<String, String>,
    /// Body; a form as an object.
    pub body: Value,
    /// Status of the response; 0 if there was none.
    pub status: u16,
}

/// State shared by requests and tests.
pub(super) struct Shared {
    pub(super) cloud: AzureState,
    pub(super) faults: Faults,
    pub(super) calls: Vec<Call>,
}

/// A running emulator. Clones share it.
#[derive(Clone)]
pub struct Emulator {
    pub(super) shared: Arc<Mutex<Shared>>,
    /// URL of Resource Manager and login, `https://localhost:...`.
    pub url: String,
    /// URL of the `own` machine's metadata service, `http://127.0.0.1:...`.
    pub imds: String,
    /// Certificate of the authority that signed the server's certificate, in PEM.
    pub ca: String,
}

impl Emulator {
    pub(super) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or changes the state.
    pub fn with<T>(&self, f: impl FnOnce(&mut AzureState) -> T) -> T {
        f(&mut self.lock().cloud)
    }

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        self.with(|cloud| cloud.advance(by));
    }

    /// Adds a fault rule.
    pub fn fault(&self, rule: Rule) {
        self.lock().faults.rules.push(rule);
    }

    /// Seeds the random choices of the faults.
    pub fn seed(&self, seed: u64) {
        self.lock().faults.rng.seed(seed);
    }

    /// Removes all fault rules.
    pub fn clear_faults(&self) {
        self.lock().faults.rules.clear();
    }

    /// Returns the calls since they were last taken, and clears them.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().calls)
    }

    /// Returns the calls since they were last taken, without clearing them.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }
}

/// Builds an HTTP response. Its content type is JSON if the text begins with `{`, else HTML.
pub fn reply(status: u16, headers: &[(&'static str, String)], text: String) -> Response {
    let json = text.starts_with(['{', '[']);
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT);
    let media = if json { "application/json; charset=utf-8" } else { "text/html" };
    response.headers_mut().insert("content-type", HeaderValue::from_static(media));
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}
