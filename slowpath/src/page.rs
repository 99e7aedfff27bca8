//! The page for browsers: what the appliance does, read-only, on the addresses of the API.
//!
//! ```text
//!   each 2 s: counters --> history.rs: rings of ten minutes
//!             audit log --> changes.rs: the latest changes
//!   GET /       --> view.rs: what is shown --> render.rs: HTML
//!   GET /live   --> the same, for the script, which replaces the parts that changed
//!   GET /flows  --> a search in the flow table
//! ```
//! Login, sessions and headers are those of `api::browser`. The server draws everything, so that
//! the page is whole without the script, and texts are escaped in one place.

mod changes;
mod history;
mod render;
mod text;
mod view;

use std::sync::Arc;
use std::time::Instant;

use api::Role;
use api::access::{Access, Call, Calls};
use api::browser::{Browser, Page};
use api::principal::Principal;
use axum::Router;
use axum::extract::{Extension, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::control::flows::FlowFilter;
use crate::live::Live;
use crate::sources::desired::Store;
use changes::{Changes, Writes};
use view::{ApplianceHistory, FlowSearch};

/// Maximum number of flows that a search shows.
const MAX_FLOWS: u32 = 100;
/// Number of views that are collected at once. Further ones wait.
const VIEWS_AT_ONCE: usize = 2;

/// What the page is made from.
struct Site {
    live: Arc<Live>,
    history: Mutex<ApplianceHistory>,
    changes: Mutex<Changes>,
    writes: Arc<Mutex<Writes>>,
    views: Arc<Semaphore>,
    /// A search reads the whole flow table: one at a time.
    searches: Arc<Semaphore>,
}

/// Starts the tasks behind the page on the current runtime, and returns the page. `hosts` are the
/// names of `api.hosts`.
pub fn start(live: &Arc<Live>, store: &Arc<Store>, hosts: Vec<String>) -> Browser {
    let site = Arc::new(Site {
        live: Arc::clone(live),
        history: Mutex::default(),
        changes: Mutex::default(),
        writes: Arc::default(),
        views: Arc::new(Semaphore::new(VIEWS_AT_ONCE)),
        searches: Arc::new(Semaphore::new(1)),
    });
    let (live, writes) = (Arc::clone(live), Arc::clone(&site.writes));
    let store = Arc::clone(store);
    tokio::spawn(async move { changes::measure(store, &live, writes).await });
    tokio::spawn(sample(Arc::clone(&site)));
    tokio::spawn(follow(Arc::clone(&site)));
    Browser::from(Page {
        calls: calls().with_state(site),
        files: Router::new()
            .route("/page.css", get(async || file("text/css; charset=utf-8", render::STYLE)))
            .route(
                "/page.js",
                get(async || file("text/javascript; charset=utf-8", render::SCRIPT)),
            ),
        login: render::login,
        hosts,
    })
}

fn calls() -> Calls<Arc<Site>> {
    let read = |path, operation| Call::new("get", path, operation, Access::Read(Role::Read));
    Calls::default()
        .add(read("/", "page"), get(overview))
        .add(read("/live", "pageLive"), get(live))
        .add(read("/flows", "pageFlows"), get(flows))
}

fn file(media: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, media)], text)
}

/// Takes samples. Never returns.
async fn sample(site: Arc<Site>) {
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        let of_thread = Arc::clone(&site);
        let work = move || {
            let sample = view::sample(&of_thread.live);
            of_thread.history.lock().add(sample, Instant::now());
        };
        // A panic was already printed; the next sample follows.
        let _ = tokio::task::spawn_blocking(work).await;
    }
}

/// Follows the audit log. Never returns. While a disk hangs, the changes before stay.
async fn follow(site: Arc<Site>) {
    let Some(files) = site.live.audit().files().cloned() else { return };
    let (mut ticks, mut changes) = (ticks(), Changes::default());
    loop {
        ticks.tick().await;
        let files = files.clone();
        let work = move || {
            changes.follow(&files);
            changes
        };
        changes = tokio::task::spawn_blocking(work).await.unwrap_or_default();
        site.changes.lock().clone_from(&changes);
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(history::INTERVAL);
    // A tick that is late is not made up for.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

/// The query of the page.
#[derive(Deserialize)]
struct Filter {
    /// Text that names of services have to contain.
    #[serde(default)]
    service: String,
}

/// Collects a view, and draws it with `draw`.
async fn respond(
    site: Arc<Site>,
    principal: Principal,
    filter: Filter,
    draw: fn(&view::View) -> String,
) -> Response {
    let of_thread = Arc::clone(&site);
    let work = move || {
        let texts = (&*principal.name, filter.service.trim());
        // Tasks of the runtime take these locks too: they are not held while the page is drawn.
        let changes = {
            let (changes, writes) = (of_thread.changes.lock(), of_thread.writes.lock());
            (changes.rows(&writes), changes.error.clone())
        };
        draw(&view::collect(&of_thread.live, &of_thread.history, changes, texts))
    };
    let permit = Arc::clone(&site.views).acquire_owned().await;
    html(with_permit(permit, work).await)
}

/// Runs `work` on a thread that may block, and holds the permit until it ends. A client that
/// disconnects ends the wait for the work, but not the work.
async fn with_permit<P, T>(
    permit: P,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError>
where
    P: Send + 'static,
    T: Send + 'static,
{
    let work = move || {
        let result = work();
        drop(permit);
        result
    };
    tokio::task::spawn_blocking(work).await
}

fn html(drawn: Result<String, tokio::task::JoinError>) -> Response {
    match drawn {
        Ok(text) => Html(text).into_response(),
        Err(error) => {
            let text = render::failure(&format!("internal error: {error}"));
            (StatusCode::INTERNAL_SERVER_ERROR, Html(text)).into_response()
        }
    }
}

/// `GET /`.
async fn overview(
    State(site): State<Arc<Site>>,
    Extension(principal): Extension<Principal>,
    Query(filter): Query<Filter>,
) -> Response {
    respond(site, principal, filter, render::page).await
}

/// `GET /live`.
async fn live(
    State(site): State<Arc<Site>>,
    Extension(principal): Extension<Principal>,
    Query(filter): Query<Filter>,
) -> Response {
    respond(site, principal, filter, render::fragment).await
}

/// The fields of the search form. Empty ones match all flows.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FlowFields {
    client: String,
    frontend: String,
    backend: String,
    service: String,
    protocol: String,
}

impl FlowFields {
    fn into_array(self) -> [String; 5] {
        let FlowFields { client, frontend, backend, service, protocol } = self;
        [client, frontend, backend, service, protocol].map(|field| field.trim().to_owned())
    }
}

fn filter(fields: &[String; 5]) -> Result<FlowFilter, String> {
    let [client, frontend, backend, service, protocol] =
        fields.each_ref().map(|field| Some(field.as_str()).filter(|text| !text.is_empty()));
    let filter = FlowFilter::new(client, frontend, backend, service, protocol);
    // The texts are those of the options of `weir flows`.
    filter.map_err(|error| error.trim_start_matches('-').to_owned())
}

/// `GET /flows`.
async fn flows(
    State(site): State<Arc<Site>>,
    Extension(principal): Extension<Principal>,
    Query(fields): Query<FlowFields>,
) -> Response {
    let fields = fields.into_array();
    let filter = filter(&fields);
    let name = site.live.config.name.clone();
    let draw = move |found| {
        render::flow_page((&name, &principal.name), &FlowSearch { fields, found: Some(found) })
    };
    let filter = match filter {
        Ok(filter) => filter,
        Err(error) => return (StatusCode::BAD_REQUEST, Html(draw(Err(error)))).into_response(),
    };
    let Ok(permit) = Arc::clone(&site.searches).try_acquire_owned() else {
        let busy = Err("Another search reads the flow table; try again.".to_owned());
        return (StatusCode::SERVICE_UNAVAILABLE, Html(draw(busy))).into_response();
    };
    let of_thread = Arc::clone(&site);
    let work = move || draw(Ok(of_thread.live.flows(&filter, 0, MAX_FLOWS)));
    html(with_permit(permit, work).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_permit_is_held_until_the_work_ends_also_after_a_disconnect() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).try_acquire_owned().unwrap();
        let (began, has_begun) = tokio::sync::oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let client = tokio::spawn(with_permit(permit, move || {
            began.send(()).unwrap();
            // Also returns when the test fails and drops its end.
            let _ = ended.recv();
        }));
        has_begun.await.unwrap();
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        assert_eq!(permits.available_permits(), 0, "the work continues");
        end.send(()).unwrap();
        drop(permits.acquire().await.unwrap());
    }
}
