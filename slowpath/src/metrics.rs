//! Prometheus metrics, computed at each scrape from the counters in the region and from what the
//! control loop publishes. The metrics are declared in `declared.rs`.
//!
//! The response is OpenMetrics if the client accepts it, as Prometheus does, and the older text
//! format otherwise. Names and help texts of counters come from the lists in `tables`.
//!
//! At most one scrape is computed at a time (`measurements/scraper.rs`). It reads snapshots, and
//! holds no lock while a client reads.

use std::fmt;
use std::sync::Arc;

use ::private_link::controller::ObjectStore;
use ::private_link::status_view::Totals;
use api::Role;
use api::access::{Access, Call, Calls};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::live::Live;
use crate::measurements::{ScrapeError, ScrapeText};

mod appliance;
mod audit;
mod bgp;
mod cloud;
pub mod declared;
mod family;
mod health;
mod lcores;
mod listeners;
mod log;
mod measurements;
mod nics;
mod objects;
mod packets;
mod private_link;
mod process;
mod secrets;
mod tables;
pub mod traffic;

use family::Family;

/// Content type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of the older text format.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the calls of the metrics listener.
pub fn calls() -> Calls<Arc<Live>> {
    let call = Call::new("get", "/metrics", "metrics", Access::Read(Role::Metrics));
    Calls::default().add(call, get(respond))
}

/// Responds to one scrape, in the format that the client accepts.
pub async fn respond(State(live): State<Arc<Live>>, headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let is_open_metrics =
        accepts.is_some_and(|accepts| accepts.contains("application/openmetrics-text"));
    let scraped = match scrape(&live).await {
        Ok(text) if is_open_metrics => Ok((OPEN_METRICS, text.open())),
        Ok(text) => text.plain().await.map(|text| (PLAIN, text)),
        Err(error) => Err(error),
    };
    match scraped {
        Ok((kind, text)) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        Err(error) => {
            log_failure(&error);
            let body = format!(
                "the metrics could not be written: {error}; try again, and report it with \
                 slowpath's log if it persists\n"
            );
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
    }
}

/// Returns all metrics as of the call or later, computed on a thread of its own and shared with
/// other scrapes that wait.
pub async fn scrape(live: &Arc<Live>) -> Result<Arc<ScrapeText>, ScrapeError> {
    let of_live = Arc::clone(live);
    live.shared().measurements.scraper.scrape(move || text(&of_live)).await
}

/// Logs that a scrape failed.
pub fn log_failure(error: &ScrapeError) {
    tracing::error!(event = "scrape_failed", %error, "scrape of the metrics failed");
}

/// Returns all metrics in the OpenMetrics text format.
pub fn text(live: &Arc<Live>) -> Result<String, fmt::Error> {
    let live = Arc::clone(live);
    family::text(move |family| encode(&live, family))
}

/// Encodes all metrics.
fn encode(live: &Live, family: &mut Family<'_, '_>) -> fmt::Result {
    let arms = live.config.arms().count();
    // Without the parts of `Live::status` that walk the tables.
    let status = live.shared().status_now();
    let objects = live.desired().objects;
    appliance::encode(live, &objects, &status, family)?;
    process::encode(live.region, family)?;
    packets::encode(live.region, arms, family)?;
    nics::encode(live.region, arms, family)?;
    lcores::encode(live.region, (live.config.plane, arms), &status, family)?;
    objects::encode(&live.published(), live.region, family)?;
    tables::encode(live, &status, family)?;
    health::encode(live.checks().counters(), family)?;
    listeners::encode(live.listening(), family)?;
    let bgp_keys = live.bgp().map(|bgp| &*bgp.key_counts);
    secrets::encode(live.listening(), bgp_keys, family)?;
    log::encode(family)?;
    audit::encode(live.audit(), family)?;
    cloud::encode(&live.cloud(), live.able().able, family)?;
    if let Some(links) = live.private_links() {
        let totals = Totals::of(&links.links.list());
        private_link::encode(&totals, &links.call_counts(), family)?;
    }
    if let Some(state) = live.bgp() {
        bgp::encode(state, family)?;
    }
    measurements::encode(live, &objects, family)
}
