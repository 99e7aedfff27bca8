//! Servers: Resource Manager and login over TLS, and a metadata service for each machine.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as Waker, Poll};
use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::azure::answer::{Answer, Refusal, written};
use crate::azure::request::{Asked, operation};
use crate::azure::standin::{Call, Inside, Standin, reply};
use crate::azure::world::World;
use crate::azure::{bodies, control, identity, imds, tls};
use crate::faults::{Fault, Faults, Rule};

/// Headers that are recorded with calls.
const HEADERS: [&str; 6] =
    ["authorization", "content-type", "if-match", "if-none-match", "metadata", "x-forwarded-for"];

/// Server that received a request.
#[derive(Clone)]
enum Side {
    Arm,
    /// Metadata service of a machine; `None` for the `own` machine.
    Machine(Option<String>),
}

impl Standin {
    /// Starts a server with this state; it runs as long as the runtime.
    pub async fn start(world: World) -> std::io::Result<Standin> {
        let arm = TcpListener::bind("127.0.0.1:0").await?;
        Standin::listen(arm, TcpListener::bind("127.0.0.1:0").await?, &[], world)
    }

    /// Like [`Standin::start`], on given sockets. The certificate is valid for `localhost`, the
    /// address of the first socket, and these names; the first name is used in `url`.
    pub fn listen(
        resources: TcpListener,
        metadata: TcpListener,
        names: &[String],
        world: World,
    ) -> std::io::Result<Standin> {
        let address = resources.local_addr()?;
        let mut certified = vec!["localhost".to_owned(), address.ip().to_string()];
        certified.extend(names.iter().cloned());
        let name = names.first().map_or("localhost", String::as_str);
        let url = format!("https://{name}:{}", address.port());
        let imds = format!("http://{}", metadata.local_addr()?);
        let (config, ca) = tls::made(&certified)?;
        let inside = Inside { world, faults: Faults::default(), calls: Vec::new() };
        let standin = Standin { inside: Arc::new(Mutex::new(inside)), url, imds, ca };
        let router = standin.router(Side::Arm);
        let listener = tls::Listener::new(resources, config)?;
        tokio::spawn(async move { axum::serve(listener, router).await });
        let router = standin.router(Side::Machine(None));
        tokio::spawn(async move { axum::serve(metadata, router).await });
        Ok(standin)
    }

    fn router(&self, side: Side) -> Router {
        Router::new().fallback(serve).with_state((self.clone(), side))
    }

    /// Starts the metadata service of another machine, by id; returns its URL.
    pub async fn machine(&self, id: &str) -> std::io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = self.router(Side::Machine(Some(id.to_owned())));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(url)
    }
}

/// A body that fails with a connection reset.
struct Broken;

impl http_body::Body for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Waker<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into())))
    }
}

fn pairs(text: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

/// Decodes the percent-encoding of a path.
fn decoded(path: &str) -> String {
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}

/// Parses a request.
fn asked(standin: &Standin, parts: &axum::http::request::Parts, body: &[u8]) -> Asked {
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
    Asked {
        method: parts.method.to_string(),
        path: decoded(parts.uri.path()),
        query: pairs(parts.uri.query().unwrap_or_default()),
        headers: headers.collect(),
        body,
        base: standin.url.clone(),
    }
}

async fn serve(State((standin, side)): State<(Standin, Side)>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 4 << 20).await.unwrap_or_default();
    if let Some(wish) = parts.uri.path().strip_prefix("/_weir/") {
        return control::answer(&standin, parts.method.as_str(), wish, &body);
    }
    let asked = asked(&standin, &parts, &body);
    let operation = match (&side, asked.method.as_str()) {
        (Side::Arm, method) => operation(method, &asked.path),
        (Side::Machine(_), "GET") => asked.path.clone(),
        (Side::Machine(_), method) => format!("{method} {}", asked.path),
    };
    let rule = standin.lock().faults.rule(&operation);
    let after = rule.as_ref().and_then(|rule| standin.with(|world| after(world, rule)));
    let refused = |status: u16, code: String| {
        let message = format!("told to say {code}");
        let body = match side {
            Side::Arm => written(&Refusal { status, code, message }),
            Side::Machine(_) => json!({ "error": code, "error_description": message }),
        };
        (status, Vec::new(), body.to_string())
    };
    let (status, mut headers, text) = match rule.map(|rule| rule.fault) {
        Some(Fault::Hang) => {
            note(&standin, &asked, operation, 0);
            return std::future::pending().await;
        }
        Some(Fault::Cut) => {
            note(&standin, &asked, operation, 0);
            return Response::new(Body::new(Broken));
        }
        Some(Fault::Status(status)) => (status, vec![], "<html>not Azure</html>".to_owned()),
        Some(Fault::Say(text)) => (200, vec![], text),
        Some(Fault::Refuse { status, code }) => refused(status, code),
        other => {
            let answer = standin.with(|world| answer(world, &side, &asked));
            let mut text = answer.body.map(|body| body.to_string()).unwrap_or_default();
            match other {
                Some(Fault::Shorten(to)) => text.truncate(to.min(text.len())),
                Some(Fault::Garble) => text = standin.lock().faults.garble(&text),
                _ => {}
            }
            (answer.status, answer.headers, text)
        }
    };
    headers.extend(after.map(|after| ("retry-after", after)));
    note(&standin, &asked, operation, status);
    let clock = standin.with(|world| world.clock());
    headers.push(("date", httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(clock))));
    reply(status, &headers, text)
}

/// Returns the `Retry-After` header of a fault, in seconds or as a date by Azure's clock.
fn after(world: &World, rule: &Rule) -> Option<String> {
    let seconds = rule.retry_after?;
    let date = UNIX_EPOCH + Duration::from_secs(world.clock() + seconds);
    Some(if rule.dated { httpdate::fmt_http_date(date) } else { seconds.to_string() })
}

fn answer(world: &mut World, side: &Side, asked: &Asked) -> Answer {
    if let Side::Machine(machine) = side {
        let machine = machine.clone().unwrap_or_else(|| world.own.clone());
        return imds::answer(world, &machine, asked);
    }
    if asked.path.ends_with("/oauth2/v2.0/token") {
        return identity::login(world, asked);
    }
    match world.admit(asked) {
        Ok(()) => world.answer(asked),
        Err(refusal) => {
            let answer = Answer::from(refusal);
            match answer.status {
                401 => answer.with("www-authenticate", identity::challenge(world, &asked.base)),
                _ => answer,
            }
        }
    }
}

fn note(standin: &Standin, asked: &Asked, operation: String, status: u16) {
    let kept = asked.headers.iter().filter(|(name, _)| HEADERS.contains(&name.as_str()));
    let headers = kept.map(|(name, value)| match name.as_str() {
        "authorization" => (name.clone(), value.split(' ').next().unwrap_or_default().to_owned()),
        _ => (name.clone(), value.clone()),
    });
    let call = Call {
        operation,
        method: asked.method.clone(),
        path: asked.path.clone(),
        query: asked.query.iter().cloned().collect(),
        headers: headers.collect(),
        body: asked.body.clone(),
        status,
    };
    bodies::keep(&call);
    standin.lock().calls.push(call);
}
