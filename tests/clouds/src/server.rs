//! HTTP server of the AWS emulator: routing, signatures, faults, responses.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::answer::{Format, Members, ServiceError, fail, get};
use crate::faults::{Fault, Faults, Rule};
use crate::state::AwsState;
use crate::{autoscaling, ec2, elbv2, imds, json, signature};

/// A recorded call, with the status of its response.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Call {
    /// Service: `ec2`, `elasticloadbalancing`, `imds` and so on.
    pub service: String,
    /// Operation, or the path of the metadata service.
    pub operation: String,
    /// Form members, if the body is a form.
    pub members: Members,
    /// Body, if it is JSON.
    pub json: Value,
    /// Status of the response; 0 if there was none.
    pub status: u16,
}

#[derive(Default)]
struct Shared {
    cloud: Option<AwsState>,
    faults: Faults,
    calls: Vec<Call>,
}

/// A running emulator. Clones share it.
#[derive(Clone)]
pub struct Emulator {
    shared: Arc<Mutex<Shared>>,
    /// Base URL, `http://127.0.0.1:...`, for all services including metadata.
    pub url: String,
}

impl Emulator {
    /// Starts an emulator with this state on a free port. It runs as long as the runtime.
    pub async fn start(cloud: AwsState) -> std::io::Result<Emulator> {
        Emulator::listen(TcpListener::bind("127.0.0.1:0").await?, cloud)
    }

    /// Like [`Emulator::start`], on a given socket.
    pub fn listen(listener: TcpListener, cloud: AwsState) -> std::io::Result<Emulator> {
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Shared { cloud: Some(cloud), ..Shared::default() };
        let emulator = Emulator { shared: Arc::new(Mutex::new(shared)), url };
        let router = Router::new().fallback(serve).with_state(emulator.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(emulator)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or changes the state.
    pub fn with<T>(&self, f: impl FnOnce(&mut AwsState) -> T) -> T {
        f(self.lock().cloud.as_mut().expect("the state exists from the start"))
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

    /// Probes all targets once over HTTP, with the health check port, path and timeout of their
    /// groups (the health check protocol is not considered). The result applies to the target's
    /// emulated probes from now on.
    pub async fn probe(&self) {
        let targets = self.with(|cloud| {
            let mut found = Vec::new();
            for group in &cloud.groups {
                for target in &group.targets {
                    let instance = cloud.instances.iter().find(|i| i.id == target.id);
                    let address = instance.and_then(|i| i.interfaces.first()?.addresses.first());
                    let address = address.unwrap_or(&target.id).clone();
                    let port = match group.health_port.as_str() {
                        "traffic-port" => group.port.to_string(),
                        port => port.to_owned(),
                    };
                    let to = format!("{address}:{port}");
                    found.push((target.id.clone(), to, group.health_path.clone(), group.timeout));
                }
            }
            found
        });
        for (id, to, path, timeout) in targets {
            let response =
                tokio::time::timeout(Duration::from_secs(timeout), http_status(&to, &path)).await;
            let good = matches!(response, Ok(Ok(200..=399)));
            self.with(|cloud| cloud.set_probe_result(&id, good));
        }
    }
}

/// Sends a GET request, and returns the status of the response.
async fn http_status(to: &str, path: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect(to).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    let status = std::str::from_utf8(&head[9..]).ok().and_then(|s| s.parse().ok());
    Ok(status.unwrap_or(0))
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

/// A parsed request.
struct ParsedRequest {
    service: String,
    operation: String,
    members: Members,
    json: Value,
}

async fn serve(State(emulator): State<Emulator>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let headers: Vec<(String, String)> = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()))
        .collect();
    if let Some(command) = path.strip_prefix("/_weir/") {
        return control(&emulator, parts.method.as_str(), command, &body);
    }
    let request = signature::Request {
        method: parts.method.as_str(),
        path: &path,
        query: parts.uri.query().unwrap_or_default(),
        headers: &headers,
        body: &body,
    };
    let parsed = parse(&request);
    let fault = emulator.lock().faults.match_call(&parsed.operation);
    let format = Format::of(&parsed.service);
    let (status, text, after) = match fault {
        Some((Fault::Hang, _)) => {
            record_call(&emulator, parsed, 0);
            return std::future::pending().await;
        }
        Some((Fault::Cut, _)) => {
            record_call(&emulator, parsed, 0);
            return Response::new(Body::new(ResetBody));
        }
        Some((Fault::Status(status), after)) => (status, "<html>not AWS</html>".to_owned(), after),
        Some((Fault::Body(text), after)) => (200, text, after),
        Some((Fault::Refuse { status, code }, after)) => {
            let error = ServiceError { status, message: format!("injected error {code}"), code };
            (status, format.error(&error), after)
        }
        other => {
            let result = emulator.with(|cloud| answer(cloud, &request, &parsed));
            let (status, mut text) = match result {
                Ok(text) => (200, text),
                Err(error) => (error.status, format.error(&error)),
            };
            if let Some((Fault::Shorten(to), _)) = other {
                Faults::shorten(&mut text, to);
            }
            if let Some((Fault::Garble, _)) = other {
                text = emulator.lock().faults.garble(&text);
            }
            (status, text, None)
        }
    };
    let silent = parsed.operation == "PUT /latest/api/token"
        && emulator.with(|cloud| cloud.imds.mode == "silent");
    record_call(&emulator, parsed, status);
    if silent {
        return std::future::pending().await;
    }
    reply(status, &text, format, after)
}

fn record_call(emulator: &Emulator, parsed: ParsedRequest, status: u16) {
    let ParsedRequest { service, operation, members, json } = parsed;
    emulator.lock().calls.push(Call { service, operation, members, json, status });
}

fn reply(status: u16, text: &str, format: Format, after: Option<u64>) -> Response {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT);
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static(format.media()));
    headers.insert("x-aws-ec2-metadata-token-ttl-seconds", HeaderValue::from_static("21600"));
    if let Some(after) = after {
        headers.insert("x-amz-retry-after", HeaderValue::from(after));
    }
    response
}

/// Parses a request.
fn parse(request: &signature::Request) -> ParsedRequest {
    let pairs = form_urlencoded::parse(request.body).into_owned();
    if request.path.starts_with("/latest/") {
        let operation = match request.method {
            "GET" => request.path.to_owned(),
            method => format!("{method} {}", request.path),
        };
        return ParsedRequest {
            service: "imds".into(),
            operation,
            members: vec![],
            json: Value::Null,
        };
    }
    let service = request.scope().map(|scope| scope.service).unwrap_or_default();
    let target = request.headers.iter().find(|(name, _)| name == "x-amz-target");
    if let Some((_, target)) = target {
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let json = serde_json::from_slice(request.body).unwrap_or_default();
        return ParsedRequest { service, operation, members: vec![], json };
    }
    let members: Members = pairs.collect();
    let operation = get(&members, "Action").unwrap_or_default().to_owned();
    ParsedRequest { service, operation, members, json: Value::Null }
}

fn answer(
    cloud: &mut AwsState,
    request: &signature::Request,
    parsed: &ParsedRequest,
) -> Result<String, ServiceError> {
    if parsed.service == "imds" {
        return metadata(cloud, request);
    }
    let scope = request.verify(|key| cloud.keys.get(key).cloned())?;
    let (service, operation) = (parsed.service.as_str(), parsed.operation.as_str());
    if scope.region != cloud.region {
        return fail("SignatureDoesNotMatch", "Credential should be scoped to a valid region");
    }
    if cloud.forbidden.iter().any(|o| o == operation) {
        let code = match service {
            "ec2" => "UnauthorizedOperation",
            "elasticloadbalancing" | "autoscaling" => "AccessDenied",
            _ => "AccessDeniedException",
        };
        let message = format!("not authorized to perform: {service}:{operation}");
        return Err(ServiceError { status: 403, code: code.into(), message });
    }
    let versions = [
        ("elasticloadbalancing", "2015-12-01"),
        ("ec2", "2016-11-15"),
        ("autoscaling", "2011-01-01"),
    ];
    let version = versions.iter().find(|(s, _)| *s == service).map(|(_, version)| *version);
    if version.is_some() && get(&parsed.members, "Version") != version {
        return fail("InvalidAction", format!("unsupported version of {operation}"));
    }
    let result = |text: String, namespace: &str| {
        format!(
            "<{operation}Response xmlns=\"{namespace}\">\
             <{operation}Result>{text}</{operation}Result>\
             <ResponseMetadata><RequestId>4</RequestId></ResponseMetadata></{operation}Response>"
        )
    };
    match service {
        "elasticloadbalancing" => elbv2::answer(cloud, operation, &parsed.members)
            .map(|t| result(t, "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/")),
        "autoscaling" => autoscaling::answer(cloud, operation, &parsed.members)
            .map(|t| result(t, "http://autoscaling.amazonaws.com/doc/2011-01-01/")),
        "ec2" => ec2::answer(cloud, operation, &parsed.members).map(|text| {
            format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{operation}Response \
                 xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>4</requestId>{text}\
                 </{operation}Response>"
            )
        }),
        "tagging" | "ssm" => json::answer(cloud, operation, &parsed.json),
        other => fail("UnknownService", format!("signed for service {other}")),
    }
}

/// Answers a metadata request: issues a token, or returns the text at a path if the request has a
/// valid token.
fn metadata(cloud: &mut AwsState, request: &signature::Request) -> Result<String, ServiceError> {
    let header = |name: &str| {
        let found = request.headers.iter().find(|(key, _)| key == name);
        found.and_then(|(_, value)| value.parse::<u64>().ok())
    };
    let fail = |status: u16, message: &str| {
        Err(ServiceError { status, code: String::new(), message: message.into() })
    };
    if cloud.imds.mode == "off" {
        return fail(403, "Forbidden");
    }
    if (request.method, request.path) == ("PUT", "/latest/api/token") {
        return match header("x-aws-ec2-metadata-token-ttl-seconds") {
            Some(1..=21_600) => {
                cloud.imds.tokens += 1;
                Ok(cloud.imds.tokens.to_string())
            }
            _ => fail(400, "Bad Request"),
        };
    }
    match header("x-aws-ec2-metadata-token") {
        Some(n) if n > cloud.imds.expired && n <= cloud.imds.tokens => {}
        _ => return fail(401, "Unauthorized"),
    }
    match imds::read_path(cloud, request.path) {
        Some(text) => Ok(text),
        None => fail(404, "Not Found"),
    }
}

/// Answers a request to the emulator itself, under `/_weir/`.
fn control(emulator: &Emulator, method: &str, command: &str, body: &[u8]) -> Response {
    let text = String::from_utf8_lossy(body).into_owned();
    let result: Result<String, String> = match (method, command) {
        ("GET", "state") => serde_json::to_string_pretty(&emulator.with(|cloud| cloud.clone()))
            .map_err(|e| e.to_string()),
        ("PUT", "state") => serde_json::from_str(&text)
            .map(|cloud: AwsState| emulator.with(|w| *w = cloud))
            .map(|()| "done\n".to_owned())
            .map_err(|e| e.to_string()),
        ("POST", "advance") => match text.trim().parse::<f64>() {
            Ok(seconds) if (0.0..1e9).contains(&seconds) => {
                emulator.advance(Duration::from_secs_f64(seconds));
                Ok(format!("{:?}\n", emulator.with(|cloud| cloud.now)))
            }
            _ => Err(format!("`{text}` is not a number of seconds")),
        },
        ("POST", "terminate") => {
            emulator.with(|cloud| cloud.terminate(text.trim()));
            Ok("done\n".to_owned())
        }
        ("POST", "fault") => serde_json::from_str(&text)
            .map(|rule| emulator.fault(rule))
            .map(|()| "done\n".to_owned())
            .map_err(|e| e.to_string()),
        ("DELETE", "fault") => {
            emulator.clear_faults();
            Ok("done\n".to_owned())
        }
        ("GET", "calls") => {
            serde_json::to_string_pretty(&emulator.lock().calls).map_err(|e| e.to_string())
        }
        ("DELETE", "calls") => {
            emulator.take_calls();
            Ok("done\n".to_owned())
        }
        _ => Err("GET or PUT state, POST advance, POST terminate, POST or DELETE fault, GET or \
                  DELETE calls\n"
            .to_owned()),
    };
    match result {
        Ok(text) => reply(200, &text, Format::Plain, None),
        Err(why) => reply(400, &why, Format::Plain, None),
    }
}
