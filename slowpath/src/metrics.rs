//! Prometheus metrics, computed at each scrape from the counters in the region and from what the
//! control loop publishes. The metrics are declared in `declared.rs`.
//!
//! The response is OpenMetrics if the client accepts it, as Prometheus does, and the older text
//! format otherwise. Names and help texts of counters come from the lists in `tables`.
//!
//! At most one scrape is computed at a time (`scraper.rs`). It reads snapshots, and no lock that
//! the control loop takes is held while a client reads.

use std::fmt;
use std::sync::Arc;

use api::Role;
use api::access::{Access, Call, Calls};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::live::Live;

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
mod measured;
mod nics;
mod objects;
mod packets;
mod plain;
mod private_link;
mod process;
mod secrets;
mod tables;
pub mod traffic;

use family::Family;
pub use plain::plain;

/// Content type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of the older text format.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the calls of the metrics listener.
pub fn calls() -> Calls<Arc<Live>> {
    let call = Call::new("get", "/metrics", "metrics", Access::Read(Role::Metrics));
    Calls::default().add(call, get(respond))
}

/// Responds to one scrape.
pub async fn respond(State(live): State<Arc<Live>>, headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let open = accepts.is_some_and(|accepts| accepts.contains("application/openmetrics-text"));
    match scrape(&live).await {
        Some(text) if open => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Some(text) => {
            let text = str::from_utf8(&text).map(plain).unwrap_or_default();
            ([(header::CONTENT_TYPE, PLAIN)], text).into_response()
        }
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Returns all metrics as of now or later in the OpenMetrics text format, computed on a thread of
/// its own and shared with other scrapes. Returns `None` if the computation fails.
pub async fn scrape(live: &Arc<Live>) -> Option<Bytes> {
    let of_live = Arc::clone(live);
    let scraper = &live.shared().measured.scraper;
    scraper.scrape(move || text(&of_live).ok().map(Into::into)).await
}

/// Returns all metrics in the OpenMetrics text format.
pub fn text(live: &Arc<Live>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(Arc::clone(live))));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

struct Scrape(Arc<Live>);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let (live, mut family) = (&*self.0, Family(&mut encoder));
        let family = &mut family;
        let arms = live.config.arms().count();
        // Without the parts of `Live::status` that walk the tables.
        let status = live.shared().status_now();
        appliance::encode(live, &status, family)?;
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
            private_link::encode(links, family)?;
        }
        if let Some(state) = live.bgp() {
            bgp::encode(state, family)?;
        }
        measured::encode(&live.shared().measured, family)
    }
}
