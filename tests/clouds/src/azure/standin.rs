//! A stand-in that runs: its world, its faults, the calls that came in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;

use crate::azure::world::World;
use crate::faults::{Faults, Rule};

/// A call that came in, and how it was answered.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Call {
    /// `PUT networkInterfaces`, `/metadata/instance` and so on.
    pub operation: String,
    /// `PUT`.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its query.
    pub query: BTreeMap<String, String>,
    /// The headers that matter here; of `authorization` only its kind.
    pub headers: BTreeMap<String, String>,
    /// Its body; a form as an object.
    pub body: Value,
    /// The answer's status; 0 where there was none.
    pub status: u16,
}

/// What requests and tests share.
pub(super) struct Inside {
    pub(super) world: World,
    pub(super) faults: Faults,
    pub(super) calls: Vec<Call>,
}

/// A running stand-in. Clones are the same one.
#[derive(Clone)]
pub struct Standin {
    pub(super) inside: Arc<Mutex<Inside>>,
    /// `https://localhost:...`: Resource Manager, and the login.
    pub url: String,
    /// `http://127.0.0.1:...`: the metadata service of the world's `own` machine.
    pub imds: String,
    /// The authority that signed `url`'s certificate, as PEM.
    pub ca: String,
}

impl Standin {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the world, or changes it.
    pub fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.lock().world)
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.with(|world| world.advance(by));
    }

    /// Adds a rule of misbehaviour.
    pub fn fault(&self, rule: Rule) {
        self.lock().faults.rules.push(rule);
    }

    /// Seeds the random choices of the faults.
    pub fn seed(&self, seed: u64) {
        self.lock().faults.rng.seed(seed);
    }

    /// Behaves again.
    pub fn behave(&self) {
        self.lock().faults.rules.clear();
    }

    /// All calls since the last time that somebody took them.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().calls)
    }

    /// The same, and they stay.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }
}

/// An answer on its way.
pub fn reply(status: u16, headers: &[(&'static str, String)], text: String) -> Response {
    let json = text.starts_with('{');
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
