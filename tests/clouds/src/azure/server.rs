//! Servers: Resource Manager and login over TLS, and a metadata service for each machine.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::azure::answer::{AzureResponse, ServiceError, error_body};
use crate::azure::emulator::{Call, Emulator, Shared, reply};
use crate::azure::request::{ParsedRequest, operation};
use crate::azure::state::AzureState;
use crate::azure::{bodies, control, identity, imds, tls};
use crate::faults::{Fault, Faults, Rule};

/// Headers that are recorded with calls.
const HEADERS: [&str; 6] =
    ["authorization", "content-type", "if-match", "if-none-match", "metadata", "x-forwarded-for"];

/// Server that received a request.
#[derive(Clone)]
enum Side {
    /// Resource Manager and login.
    ResourceManager,
    /// Metadata service of a machine; `None` for the `own` machine.
    Metadata(Option<String>),
}

impl Emulator {
    /// Starts an emulator with this state on free ports. It runs as long as the runtime.
    pub async fn start(cloud: AzureState) -> std::io::Result<Emulator> {
        let arm = TcpListener::bind("127.0.0.1:0").await?;
        Emulator::listen(arm, TcpListener::bind("127.0.0.1:0").await?, &[], cloud)
    }

    /// Like [`Emulator::start`], on given sockets. The certificate is valid for `localhost`, the
    /// address of the first socket, and these names; the first name is used in `url`.
    pub fn listen(
        resources: TcpListener,
        metadata: TcpListener,
        names: &[String],
        cloud: AzureState,
    ) -> std::io::Result<Emulator> {
        let address = resources.local_addr()?;
        let mut certified = vec!["localhost".to_owned(), address.ip().to_string()];
        certified.extend(names.iter().cloned());
        let name = names.first().map_or("localhost", String::as_str);
        let url = format!("https://{name}:{}", address.port());
        let imds = format!("http://{}", metadata.local_addr()?);
        let (config, ca) = tls::server_config(&certified)?;
        let shared = Shared { cloud, faults: Faults::default(), calls: Vec::new() };
        let emulator = Emulator { shared: Arc::new(Mutex::new(shared)), url, imds, ca };
        let router = emulator.router(Side::ResourceManager);
        let listener = tls::Listener::new(resources, config)?;
        tokio::spawn(async move { axum::serve(listener, router).await });
        let router = emulator.router(Side::Metadata(None));
        tokio::spawn(async move { axum::serve(metadata, router).await });
        Ok(emulator)
    }

    fn router(&self, side: Side) -> Router {
        Router::new().fallback(serve).with_state((self.clone(), side))
    }

    /// Starts the metadata service of the machine with this id; returns the URL of the service.
    pub async fn machine(&self, id: &str) -> std::io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = self.router(Side::Metadata(Some(id.to_owned())));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(url)
    }
}

/// A body that fails with a connection reset.
struct ResetBody;

impl http_body::Body for ResetBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into())))
    }
}

fn pairs(text: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

/// Decodes the percent-encoding of a path.
fn decode_path(path: &str) -> String {
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}

/// Parses a request.
fn parse(emulator: &Emulator, parts: &axum::http::request::Parts, body: &[u8]) -> ParsedRequest {
    let headers = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()));
    let form = parts.headers.get("content-type").is_some_and(|media| {
        media.to_str().is_ok_and(|m| m.starts_with("application/x-www-form-urlencoded"))
    });
    let text = String::from_utf8_lossy(body);
    let body = match form {
        true => pairs(&text).into_iter().map(|(k, v)| (k, Value::String(v))).collect(),
        false => serde_json::from_str(&text).unwrap_or_default(),
    };
    ParsedRequest {
        method: parts.method.to_string(),
        path: decode_path(parts.uri.path()),
        query: pairs(parts.uri.query().unwrap_or_default()),
        headers: headers.collect(),
        body,
        base: emulator.url.clone(),
    }
}

async fn serve(State((emulator, side)): State<(Emulator, Side)>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 4 << 20).await.unwrap_or_default();
    if let Some(command) = parts.uri.path().strip_prefix("/_weir/") {
        return control::answer(&emulator, parts.method.as_str(), command, &body);
    }
    let parsed = parse(&emulator, &parts, &body);
    let operation = match (&side, parsed.method.as_str()) {
        (Side::ResourceManager, method) => operation(method, &parsed.path),
        (Side::Metadata(_), "GET") => parsed.path.clone(),
        (Side::Metadata(_), method) => format!("{method} {}", parsed.path),
    };
    let rule = emulator.lock().faults.rule(&operation);
    let after = rule.as_ref().and_then(|rule| emulator.with(|cloud| after(cloud, rule)));
    let refused = |status: u16, code: String| {
        let message = format!("injected error {code}");
        let body = match side {
            Side::ResourceManager => error_body(&ServiceError { status, code, message }),
            Side::Metadata(_) => json!({ "error": code, "error_description": message }),
        };
        (status, Vec::new(), body.to_string())
    };
    let (status, mut headers, text) = match rule.map(|rule| rule.fault) {
        Some(Fault::Hang) => {
            record_call(&emulator, &parsed, operation, 0);
            return std::future::pending().await;
        }
        Some(Fault::Cut) => {
            record_call(&emulator, &parsed, operation, 0);
            return Response::new(Body::new(ResetBody));
        }
        Some(Fault::Status(status)) => (status, vec![], "<html>not Azure</html>".to_owned()),
        Some(Fault::Body(text)) => (200, vec![], text),
        Some(Fault::Refuse { status, code }) => refused(status, code),
        other => {
            let answer = emulator.with(|cloud| answer(cloud, &side, &parsed));
            let mut text = answer.body.map(|body| body.to_string()).unwrap_or_default();
            match other {
                Some(Fault::Shorten(to)) => Faults::shorten(&mut text, to),
                Some(Fault::Garble) => text = emulator.lock().faults.garble(&text),
                _ => {}
            }
            (answer.status, answer.headers, text)
        }
    };
    headers.extend(after.map(|after| ("retry-after", after)));
    record_call(&emulator, &parsed, operation, status);
    let clock = emulator.with(|cloud| cloud.clock());
    headers.push(("date", httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(clock))));
    reply(status, &headers, text)
}

/// Returns the `Retry-After` header of a fault, in seconds or as a date by the emulator's clock.
fn after(cloud: &AzureState, rule: &Rule) -> Option<String> {
    let seconds = rule.retry_after?;
    let date = UNIX_EPOCH + Duration::from_secs(cloud.clock() + seconds);
    Some(if rule.dated { httpdate::fmt_http_date(date) } else { seconds.to_string() })
}

fn answer(cloud: &mut AzureState, side: &Side, parsed: &ParsedRequest) -> AzureResponse {
    if let Side::Metadata(machine) = side {
        let machine = machine.clone().unwrap_or_else(|| cloud.own.clone());
        return imds::respond(cloud, &machine, parsed);
    }
    if parsed.path.ends_with("/oauth2/v2.0/token") {
        return identity::login(cloud, parsed);
    }
    match cloud.authenticate(parsed) {
        Ok(()) => cloud.answer(parsed),
        Err(error) => {
            let answer = AzureResponse::from(error);
            match answer.status {
                401 => answer.with("www-authenticate", identity::challenge(cloud, &parsed.base)),
                _ => answer,
            }
        }
    }
}

fn record_call(emulator: &Emulator, parsed: &ParsedRequest, operation: String, status: u16) {
    let recorded = parsed.headers.iter().filter(|(name, _)| HEADERS.contains(&name.as_str()));
    let headers = recorded.map(|(name, value)| match name.as_str() {
        "authorization" => (name.clone(), value.split(' ').next().unwrap_or_default().to_owned()),
        _ => (name.clone(), value.clone()),
    });
    let call = Call {
        operation,
        method: parsed.method.clone(),
        path: parsed.path.clone(),
        query: parsed.query.iter().cloned().collect(),
        headers: headers.collect(),
        body: parsed.body.clone(),
        status,
    };
    bodies::store(&call);
    emulator.lock().calls.push(call);
}
