//! The control socket: HTTP over a unix socket, for `weir` and `curl --unix-socket`.
//!
//! Endpoints that only read, each returning a JSON document unless stated otherwise:
//! - `GET /status`, `/services`, `/flows`, `/drops`, `/nics`, `/health` (of the appliance),
//!   `/checks` (of backends), `/cloud` (registration at AWS or Azure);
//! - `GET /metrics`: Prometheus metrics;
//! - `GET /trace`: a stream with a line of JSON for each stage of each traced packet. The request
//!   starts the trace on the lcores;
//! - `POST /capture`: packets with the decisions about them, in pcapng, as they pass;
//! - `GET /db/TABLE`: rows of a table of the control state;
//! - `GET /maps`: content of the region, in the format of `weir maps dump`;
//! - `GET /log/level`: the log levels in force;
//! - `GET /objects/KIND`: stored objects with their status;
//! - `POST /explain`: how packets would be handled;
//! - `GET /private-links`: private links with their status;
//! - `GET /bgp`, `/bgp/peers`, `/bgp/peers/detail`, `/bgp/routes/available`,
//!   `/bgp/routes/advertised` and `/bgp/policies`: state of BGP.
//!
//! Endpoints that write:
//! - the API below `/v1` (crate `api`);
//! - `PUT /drain/on` and `/drain/off`;
//! - `PUT /log/level`;
//! - `PUT /store/format`: rewrites the store in the format of this version, so that earlier
//!   versions with another format cannot read it any more;
//! - `PUT /private-links-connections/approve/NAME` and `reject/NAME`: decide on a connection.
//!
//! The socket belongs to the user as which slowpath runs. Its mode is 0600, or 0660 with the group
//! `control.group` if that is set; with `control.operate_group` or `control.read_group`, an ACL
//! lets the members of all groups connect. The role of a caller follows from its user and groups
//! (peer.rs), and each call has the role that it needs ([`calls`]).

pub mod capture;
mod db;
pub mod explain;
pub mod flows;
pub mod listening;
mod log;
pub mod peer;
pub mod report;
pub(crate) mod response;
pub mod trace;

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as Probe;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::access::{Access, Call, Calls};
use api::audit::Notes;
use api::{Api, Role};
use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use futures_core::Stream;
use listeners::{Http, Slots};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use tokio::sync::mpsc;

use crate::cloud::private_link;
use crate::control::capture::{Capture, CaptureError, CaptureQuery};
use crate::control::flows::FlowFilter;
use crate::control::peer::{Groups, Peers};
use crate::control::report::TraceLine;
use crate::control::trace::TraceRequest;
use crate::kernel::privileges::root_hint;
use crate::live::Live;
use crate::sources::desired::Store;
use ::explain::ExplainRequest;
use response::{blocking, error_response};

/// Maximum and default number of flows in one response of `GET /flows`.
const PAGE: u32 = 10_000;
/// Maximum number of packets of one trace.
const TRACE_PACKETS: u32 = 1000;
/// Maximum duration of one trace in seconds.
const TRACE_SECONDS: u32 = 3600;

/// Error that keeps the control socket from being opened.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another process, probably a slowpath, accepts connections on the socket.
    #[error(
        "control.socket = {path:?}: another process, probably slowpath, listens there; \
         stop it first, or set control.socket to another path"
    )]
    InUse {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The path exists and is not a socket.
    #[error(
        "control.socket = {path:?}: the path exists and is not a socket; remove it, or set \
         control.socket to another path"
    )]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The group `control.group` can't be resolved.
    #[error(transparent)]
    Group(#[from] hugepages::OwnerError),
    /// The socket cannot have the ACL that `control.operate_group` or `control.read_group` needs.
    #[error(
        "control.socket = {path:?}: setting an ACL for control.operate_group and \
         control.read_group: {source}; put the socket on a file system with POSIX ACLs such as \
         tmpfs or ext4, or remove both keys"
    )]
    Acl {
        /// Path of the socket.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// Any other error.
    #[error("control.socket = {path:?}: {source}{}", root_hint(source))]
    Other {
        /// Path of the socket.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
}

/// Listens on the socket. A socket left by a killed slowpath is replaced.
pub fn listen(control: &config::checked::Control) -> Result<(UnixListener, Groups), ControlError> {
    let path = control.socket.as_path();
    let groups = Groups::of(control)?;
    let other = |source| ControlError::Other { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(other)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ControlError::NotASocket { path: path.to_owned() });
        }
        Ok(_) if Probe::connect(path).is_ok() => {
            return Err(ControlError::InUse { path: path.to_owned() });
        }
        Ok(_) => std::fs::remove_file(path).map_err(other)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(other)?;
    // The mode comes first: so far it depends on the umask, which may give the group other access.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(other)?;
    if groups.needs_acl() {
        let acl = |source| ControlError::Acl { path: path.to_owned(), source };
        groups.set_acl(path).map_err(acl)?;
    } else if groups.admin.is_some() {
        std::os::unix::fs::lchown(path, None, groups.admin).map_err(other)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(other)?;
    }
    Ok((listener, groups))
}

const READ: Access = Access::Read(Role::Read);
const OPERATE: Access = Access::Change(Role::Operate);

/// Returns the calls whose state is that of the running appliance.
fn calls_of_live() -> Calls<Arc<Live>> {
    let read = |path, operation| Call::new("get", path, operation, READ);
    let metrics = Call::new("get", "/metrics", "metrics", Access::Read(Role::Metrics));
    Calls::default()
        .add(read("/status", "status"), get(status))
        .add(read("/services", "services"), get(services))
        .add(read("/flows", "flows"), get(flows))
        .add(read("/drops", "drops"), get(drops))
        .add(read("/nics", "nics"), get(nics))
        .add(read("/health", "health"), get(health))
        .add(read("/checks", "checks"), get(checks))
        .add(read("/cloud", "cloud"), get(cloud))
        .add(metrics, get(crate::metrics::respond))
        .add(Call::new("get", "/trace", "trace", OPERATE), get(trace))
        .add(Call::new("post", "/capture", "capture", OPERATE), post(begin_capture))
        .add(read("/db/{table}", "db"), get(db::table))
        .add(read("/maps", "maps"), get(db::maps))
        .add(read("/log/level", "logLevel"), get(log::level))
        .add(Call::new("put", "/log/level", "setLogLevel", OPERATE), put(log::set_level))
        .add(read("/objects/{kind}", "objects"), get(db::objects))
        .add(Call::new("post", "/explain", "explain", READ), post(explain))
        .add(Call::new("put", "/drain/on", "drain", OPERATE), put(drain_on))
        .add(Call::new("put", "/drain/off", "undrain", OPERATE), put(drain_off))
}

/// Returns the calls whose state is the store.
fn calls_of_store() -> Calls<Arc<Store>> {
    let access = Access::Change(Role::Admin);
    let format = Call::new("put", "/store/format", "commitFormat", access);
    Calls::default().add(format, put(commit_format))
}

/// Returns the calls of the socket beside those of the API, each with its role.
pub fn calls() -> Vec<Call> {
    let (live, store, links) = (calls_of_live(), calls_of_store(), private_link::calls());
    [live.calls(), store.calls(), links.calls()].concat()
}

/// Serves the socket. Never returns.
pub async fn serve(
    (listener, groups): (UnixListener, Groups),
    slots: Arc<Slots>,
    live: Arc<Live>,
    api: Api,
    links: private_link::PrivateLinkState,
) {
    let audit = api.audit.clone();
    let app = calls_of_live()
        .with_state(live)
        .merge(calls_of_store().with_state(Arc::clone(&api.store)))
        .merge(private_link::calls().with_state(links))
        .into_router()
        .fallback(unknown)
        .merge(api::documents(&api))
        .merge(api::router(api))
        .layer(Extension(audit.clone()));
    let peers = Arc::new(Peers::new(groups, audit));
    listeners::accept(listener, slots, move |stream, connection| {
        let (app, peers) = (app.clone(), Arc::clone(&peers));
        async move {
            let app = peers.identify(&stream, app).await;
            listeners::http(stream, connection, app, Http::KeepAlive).await;
        }
    })
    .await;
}

async fn unknown() -> Response {
    let error = "no such path; available: /v1, /status, /services, /flows, /drops, /nics, /health, \
                 /checks, /cloud, /bgp, /private-links, /private-links-connections, /db, /maps, \
                 /objects, /explain, /metrics, /trace, /capture, /log/level, /drain, /store";
    error_response(StatusCode::NOT_FOUND, error.to_owned())
}

async fn status(State(live): State<Arc<Live>>) -> Response {
    Json(live.status()).into_response()
}

async fn services(State(live): State<Arc<Live>>) -> Response {
    blocking(move || Json(live.services())).await
}

async fn drops(State(live): State<Arc<Live>>) -> Response {
    Json(live.drops()).into_response()
}

async fn nics(State(live): State<Arc<Live>>) -> Response {
    Json(live.nics()).into_response()
}

async fn health(State(live): State<Arc<Live>>) -> Response {
    Json(live.able()).into_response()
}

async fn cloud(State(live): State<Arc<Live>>) -> Response {
    Json(live.cloud()).into_response()
}

async fn checks(State(live): State<Arc<Live>>) -> Response {
    Json(live.checks().rows().await).into_response()
}

async fn explain(State(live): State<Arc<Live>>, Json(request): Json<ExplainRequest>) -> Response {
    blocking(move || match live.explain(&request) {
        Ok(explanation) => Json(explanation).into_response(),
        Err(error) => error_response(StatusCode::BAD_REQUEST, error),
    })
    .await
}

async fn drain_on(State(live): State<Arc<Live>>, notes: Extension<Notes>) -> Response {
    drain(&live, &notes, true);
    Json("draining").into_response()
}

async fn drain_off(State(live): State<Arc<Live>>, notes: Extension<Notes>) -> Response {
    drain(&live, &notes, false);
    Json("not draining").into_response()
}

fn drain(live: &Live, notes: &Notes, on: bool) {
    let state = |on: bool| Some(serde_json::json!({ "draining": on }));
    notes.values("drain", state(live.region.draining()), state(on));
    live.drain(on);
}

/// Rewrites the store in this version's format.
async fn commit_format(State(store): State<Arc<Store>>) -> Response {
    blocking(move || {
        let mut store = store.store();
        match store.commit_format() {
            Ok(()) => Json(format!("the store has format {}", store.format())).into_response(),
            Err(error) => {
                error_response(StatusCode::INSUFFICIENT_STORAGE, format!("control.state: {error}"))
            }
        }
    })
    .await
}

/// Query parameters of `GET /flows` and `GET /trace`: the conditions of a [`FlowFilter`], and those
/// of one of the two.
#[derive(Deserialize, Serialize)]
struct FlowsQuery {
    /// `GET /flows`: id of the path record to begin with; 0 by default.
    from: Option<u32>,
    /// `GET /flows`: maximum number of flows in the response.
    limit: Option<u32>,
    client: Option<String>,
    frontend: Option<String>,
    backend: Option<String>,
    service: Option<String>,
    protocol: Option<String>,
    /// `GET /trace`: number of packets to trace; 1 by default.
    packets: Option<u32>,
    /// `GET /trace`: maximum duration in seconds; 30 by default.
    seconds: Option<u32>,
}

impl FlowsQuery {
    fn filter(&self) -> Result<FlowFilter, String> {
        FlowFilter::new(
            self.client.as_deref(),
            self.frontend.as_deref(),
            self.backend.as_deref(),
            self.service.as_deref(),
            self.protocol.as_deref(),
        )
    }
}

async fn flows(State(live): State<Arc<Live>>, Query(query): Query<FlowsQuery>) -> Response {
    let filter = match query.filter() {
        Ok(filter) => filter,
        Err(error) => return error_response(StatusCode::BAD_REQUEST, error),
    };
    let (from, limit) = (query.from.unwrap_or(0), query.limit.unwrap_or(PAGE).min(PAGE));
    blocking(move || Json(live.flows(&filter, from, limit))).await
}

async fn trace(
    State(live): State<Arc<Live>>,
    Extension(notes): Extension<Notes>,
    Query(query): Query<FlowsQuery>,
) -> Response {
    notes.values("trace", None, serde_json::to_value(&query).ok());
    let filter = match query.filter() {
        Ok(filter) => filter,
        Err(error) => return error_response(StatusCode::BAD_REQUEST, error),
    };
    let packets = query.packets.unwrap_or(1).clamp(1, TRACE_PACKETS);
    let seconds = query.seconds.unwrap_or(30).clamp(1, TRACE_SECONDS);
    let (lines, received) = mpsc::channel::<TraceLine>(1024);
    let resolve = {
        let live = Arc::clone(&live);
        move || filter.for_lcores(&live, packets)
    };
    let filter = match tokio::task::spawn_blocking(resolve).await {
        Ok(Ok(filter)) => filter,
        Ok(Err(error)) => return error_response(StatusCode::NOT_FOUND, error),
        Err(e) => return error_response(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
    };
    let duration = Duration::from_secs(u64::from(seconds));
    if let Err(error) = live.request_trace(TraceRequest { filter, duration, lines }) {
        return error_response(StatusCode::CONFLICT, error);
    }
    Body::from_stream(Lines(received)).into_response()
}

async fn begin_capture(
    State(live): State<Arc<Live>>,
    Extension(notes): Extension<Notes>,
    Query(query): Query<CaptureQuery>,
) -> Response {
    notes.values("capture", None, serde_json::to_value(&query).ok());
    blocking(move || {
        let request = match query.check(&live) {
            Ok(request) => request,
            Err(error) => return error_response(StatusCode::BAD_REQUEST, error),
        };
        let capture = match Capture::begin(live, request) {
            Ok(capture) => capture,
            Err(error) => return error_response(status_of(&error), error.to_string()),
        };
        match capture.stream() {
            Ok(parts) => {
                let kind = [(CONTENT_TYPE, "application/x-pcapng")];
                (kind, Body::from_stream(Parts(parts))).into_response()
            }
            Err(error) => error_response(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    })
    .await
}

fn status_of(error: &CaptureError) -> StatusCode {
    match error {
        CaptureError::Busy(_) => StatusCode::CONFLICT,
        CaptureError::NoDataPlane | CaptureError::NotAttached => StatusCode::SERVICE_UNAVAILABLE,
        CaptureError::File(_) => StatusCode::INSUFFICIENT_STORAGE,
    }
}

/// Response body of a capture.
struct Parts(mpsc::Receiver<Vec<u8>>);

impl Stream for Parts {
    type Item = io::Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|part| part.map(Ok))
    }
}

/// Response body of a trace: one line of JSON for each stage.
struct Lines(mpsc::Receiver<TraceLine>);

impl Stream for Lines {
    type Item = io::Result<String>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let line = self.0.poll_recv(cx);
        line.map(|line| line.map(|line| Ok(serde_json::to_string(&line)? + "\n")))
    }
}
