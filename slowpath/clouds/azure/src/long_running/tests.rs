//! Parsing of responses to writes and polls, and waiting for the end of a write.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;

use azure_core::http::headers::{HeaderValue, Headers};
use fastrand::Rng;

use super::*;
use crate::arm::ArmFuture;
use crate::operations::POOLS_PUT;

const PATH: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/gw/\
                    backendAddressPools/weir";
const OPERATION: &str =
    "https://localhost:4433/subscriptions/s/operations/1?api-version=2024-05-01";
const RESULT: &str = "https://localhost:4433/subscriptions/s/operationResults/1";

fn base() -> Url {
    "https://localhost:4433/".parse().unwrap()
}

fn answer(status: u16, pairs: &[(&'static str, &str)], body: &str) -> RawResponse {
    let mut headers = Headers::new();
    for (name, value) in pairs {
        let value = HeaderValue::from((*value).to_owned());
        headers.insert(HeaderName::from_static(name), value);
    }
    RawResponse::from_bytes(status.into(), headers, body.as_bytes().to_vec())
}

fn write(method: Method, answer: &RawResponse) -> Result<WriteOutcome, AttemptError> {
    let url = base().join(PATH).unwrap();
    parse_write((&base(), &url), &POOLS_PUT.at(PATH), method, answer)
}

fn handle(begun: Result<WriteOutcome, AttemptError>) -> (OperationHandle, Option<Duration>) {
    match begun.unwrap() {
        WriteOutcome::InProgress { handle, after } => (handle, after),
        done => panic!("{done:?}"),
    }
}

#[test]
fn write_without_handle_is_complete() {
    let body = r#"{"etag": "W/\"1\"", "properties": {"provisioningState": "Succeeded"}}"#;
    for status in [200, 201] {
        let done = write(Method::Put, &answer(status, &[], body)).unwrap();
        let WriteOutcome::Done(Some(resource)) = done else { panic!("{done:?}") };
        assert_eq!(resource.etag.as_deref(), Some("W/\"1\""));
        let header = answer(status, &[("etag", "W/\"2\"")], body);
        let WriteOutcome::Done(Some(resource)) = write(Method::Put, &header).unwrap() else {
            panic!()
        };
        assert_eq!(resource.etag.as_deref(), Some("W/\"2\""));
    }
    // A deletion can be complete although the header is present, as in an example of Microsoft's.
    for status in [200, 204, 404] {
        let gone = answer(status, &[("location", RESULT)], "");
        assert_eq!(write(Method::Delete, &gone).unwrap(), WriteOutcome::Done(None));
    }
    assert_eq!(write(Method::Post, &answer(204, &[], "")).unwrap(), WriteOutcome::Done(None));
    let done = write(Method::Post, &answer(200, &[], r#"{"visible": true}"#)).unwrap();
    let WriteOutcome::Done(Some(done)) = done else { panic!("{done:?}") };
    assert_eq!(done.body["visible"], true);
}

#[test]
fn async_operation_header_is_preferred_over_location() {
    let both = [("azure-asyncoperation", OPERATION), ("location", RESULT), ("retry-after", "10")];
    for (method, status) in
        [(Method::Put, 200), (Method::Put, 201), (Method::Post, 202), (Method::Delete, 202)]
    {
        let (handle, after) = handle(write(method, &answer(status, &both, "")));
        assert_eq!(
            (handle.name.as_str(), handle.resource.as_str()),
            ("LoadBalancerBackendAddressPools_CreateOrUpdate", PATH)
        );
        assert_eq!(poll_url(&base(), &handle).unwrap().as_str(), OPERATION);
        assert_eq!(after, Some(Duration::from_secs(10)));
        let stored: OperationHandle =
            serde_json::from_str(&serde_json::to_string(&handle).unwrap()).unwrap();
        assert_eq!(stored, handle);
    }
    let (location, after) = handle(write(Method::Delete, &answer(202, &both[1..2], "")));
    assert_eq!((poll_url(&base(), &location).unwrap().as_str(), after), (RESULT, None));
    // Without either header the resource's own state is polled.
    let updating = answer(200, &[], r#"{"properties": {"provisioningState": "Updating"}}"#);
    let (own, _) = handle(write(Method::Put, &updating));
    assert!(poll_url(&base(), &own).unwrap().as_str().ends_with(PATH));
    // With 201 the header is the URL of the new resource, not of the operation's state.
    let body = r#"{"properties": {"provisioningState": "Creating"}}"#;
    let made = answer(201, &[("location", "https://localhost:4433/elsewhere")], body);
    let (own, _) = handle(write(Method::Put, &made));
    assert!(poll_url(&base(), &own).unwrap().as_str().ends_with(PATH));
    let (own, _) = handle(write(Method::Delete, &answer(202, &[], "")));
    assert!(poll_url(&base(), &own).unwrap().as_str().ends_with(PATH));
    // For a deletion 404 means success, for a creation it is an error.
    let gone = parse_progress(
        &OperationHandle { name: "Subnets_Delete".into(), ..own.clone() },
        &answer(404, &[], ""),
    );
    assert_eq!(gone.unwrap(), Progress::Done);
    let missed = parse_progress(&own, &answer(404, &[], "")).unwrap_err();
    assert_eq!(missed.error.kind, Failure::Absent);
    let failed = answer(200, &[], r#"{"properties": {"provisioningState": "Failed"}}"#);
    assert_eq!(write(Method::Put, &failed).unwrap_err().error.code, "Failed");
}

/// The headers of Microsoft's published examples.
#[test]
#[ignore = "needs published examples: make fixtures FIXTURES=DIR"]
fn published_write_responses_are_parsed() {
    let folder = cloud_emulators::fixtures::folder("azure-rest-examples").join("network");
    let public: Url = "https://management.azure.com/".parse().unwrap();
    for (file, method, by_operation) in [
        ("LoadBalancerBackendAddressPoolDelete", Method::Delete, false),
        ("LoadBalancerDelete", Method::Delete, false),
        ("LoadBalancerHealth", Method::Post, true),
        ("CheckPrivateLinkServiceVisibilityByResourceGroup", Method::Post, true),
        // The specification requires `Location` for the final state.
        ("PrivateLinkServiceDelete", Method::Delete, true),
        ("PrivateLinkServiceDeletePrivateEndpointConnection", Method::Delete, true),
    ] {
        let text = std::fs::read_to_string(folder.join(format!("{file}.json"))).unwrap();
        let example: Value = serde_json::from_str(&text).unwrap();
        for (status, response) in example["responses"].as_object().unwrap() {
            let pairs = response["headers"].as_object().into_iter().flatten();
            let mut headers = Headers::new();
            for (name, value) in pairs {
                let value = HeaderValue::from(value.as_str().unwrap().to_owned());
                headers.insert(HeaderName::from(name.to_lowercase()), value);
            }
            let body = response.get("body").map(Value::to_string).unwrap_or_default();
            let status: u16 = status.parse().unwrap();
            let answer = RawResponse::from_bytes(status.into(), headers, body.into_bytes());
            let url = public.join(PATH).unwrap();
            let outcome =
                parse_write((&public, &url), &POOLS_PUT.at(PATH), method, &answer).unwrap();
            match outcome {
                WriteOutcome::InProgress { handle, .. } => {
                    assert_eq!((status, handle.operation.is_some()), (202, by_operation), "{file}");
                    poll_url(&public, &handle).unwrap();
                }
                WriteOutcome::Done(resource) => {
                    assert_ne!(status, 202, "{file}");
                    assert_eq!(resource.is_some(), method == Method::Post, "{file}");
                }
            }
        }
    }
}

#[test]
fn handles_to_other_hosts_are_rejected() {
    for foreign in [
        "https://evil.example/operations/1",
        "http://localhost:4433/operations/1",
        "https://localhost:4434/operations/1",
        "https://localhost.evil.example:4433/",
        "https://user@localhost:4433/operations/1",
        "operations/1",
        "",
    ] {
        for header in ["azure-asyncoperation", "location"] {
            let outcome = write(Method::Put, &answer(202, &[(header, foreign)], ""));
            let error = outcome.unwrap_err().error;
            assert_eq!((error.kind, error.code.as_str()), (Failure::Invalid, "ForeignPoll"));
            assert!(error.message.contains("localhost"), "{error}");
        }
    }
}

#[test]
fn failed_write_is_classified() {
    for (status, kind) in [
        (409, Failure::Conflict),
        (412, Failure::Conflict),
        (429, Failure::Throttled),
        (500, Failure::Transient),
        (404, Failure::Absent),
        (400, Failure::Invalid),
        (301, Failure::Invalid),
        (206, Failure::Invalid),
    ] {
        let outcome =
            write(Method::Put, &answer(status, &[("retry-after", "3")], "{}")).unwrap_err();
        assert_eq!(outcome.error.kind, kind, "{status}");
        assert_eq!(outcome.after, Some(Duration::from_secs(3)));
    }
    let page = write(Method::Put, &answer(200, &[], "<html>Welcome</html>")).unwrap_err();
    assert!(page.error.code == "MalformedResponse" && page.error.message.contains("<html>Welcome"));
}

fn polled(by_operation: bool, answer: &RawResponse) -> Result<Progress, AttemptError> {
    let url = Some(OPERATION.to_owned());
    let (operation, location) = if by_operation { (url, None) } else { (None, url) };
    let handle = OperationHandle {
        operation,
        location,
        resource: PATH.to_owned(),
        name: "LoadBalancers_X".into(),
    };
    parse_progress(&handle, answer)
}

#[test]
fn operation_status_is_parsed() {
    let of = |body: &str| polled(true, &answer(200, &[("retry-after", "7")], body));
    let after = Some(Duration::from_secs(7));
    for word in ["InProgress", "inprogress", "Accepted", "Running", "Something new"] {
        let outcome = of(&format!(r#"{{"status": "{word}"}}"#)).unwrap();
        assert_eq!(outcome, Progress::InProgress { after }, "{word}");
    }
    assert_eq!(of(r#"{"status": "Succeeded", "properties": {}}"#).unwrap(), Progress::Done);
    let outcome = of(r#"{"status": "Failed", "error": {"code": "PrivateIPAddressNotInSubnet",
            "message": "Private static IP address 10.0.0.4 does not belong to the range"}}"#);
    let Ok(Progress::Failed(why)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(
        (why.error.kind, why.error.code.as_str()),
        (Failure::Invalid, "PrivateIPAddressNotInSubnet")
    );
    assert!(why.error.message.contains("10.0.0.4"));
    let outcome =
        of(r#"{"status": "Failed", "error": {"code": "RetryableError", "message": "x"}}"#);
    let Ok(Progress::Failed(why)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(why.error.kind, Failure::Transient);
    let outcome = of(r#"{"status": "Canceled"}"#);
    let Ok(Progress::Failed(why)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(why.error.code, "Canceled");
    assert!(of("{}").is_err() && of("[1]").is_err() && of("<html>").is_err());
    // The deletion of a private link service is polled at a URL that answers like `Location`.
    assert_eq!(polled(true, &answer(202, &[], "")).unwrap(), Progress::InProgress { after: None });
    assert_eq!(polled(true, &answer(204, &[], "")).unwrap(), Progress::Done);
}

#[test]
fn location_poll_is_decided_by_http_status() {
    let of = |status, body: &str| polled(false, &answer(status, &[("retry-after", "5")], body));
    let after = Some(Duration::from_secs(5));
    assert_eq!(of(202, "").unwrap(), Progress::InProgress { after });
    for status in [200, 201, 204] {
        assert_eq!(of(status, "").unwrap(), Progress::Done);
    }
    let body = |state: &str| format!(r#"{{"properties": {{"provisioningState": "{state}"}}}}"#);
    assert_eq!(of(200, &body("Updating")).unwrap(), Progress::InProgress { after });
    assert_eq!(of(200, &body("Succeeded")).unwrap(), Progress::Done);
    assert!(matches!(of(200, &body("Failed")).unwrap(), Progress::Failed(_)));
    let why = r#"{"error": {"code": "InUse", "message": "a rule needs the pool"}}"#;
    for (status, kind) in [(400, Failure::Invalid), (409, Failure::Conflict)] {
        let Ok(Progress::Failed(outcome)) = of(status, why) else { panic!("{status}") };
        assert_eq!((outcome.error.kind, outcome.error.code.as_str()), (kind, "InUse"));
    }
    // At an operation's URL an error response concerns the poll itself.
    assert_eq!(polled(true, &answer(400, &[], why)).unwrap_err().error.code, "InUse");
    assert_eq!(of(429, "").unwrap_err().error.kind, Failure::Throttled);
    assert_eq!(of(403, "").unwrap_err().error.kind, Failure::Denied);
    assert_eq!(of(404, "").unwrap_err().error.kind, Failure::Absent);
    assert_eq!(of(503, "").unwrap_err().after, after);
    assert_eq!(of(200, "<html>").unwrap_err().error.code, "MalformedResponse");
}

#[test]
fn response_parsers_never_panic() {
    let bodies = [
        r#"{"status": "Failed", "error": {"code": "C", "message": "m", "details": [{}]}}"#,
        r#"{"properties": {"provisioningState": "Updating"}, "etag": "x"}"#,
    ];
    let mut rng = Rng::with_seed(5);
    for _ in 0..20_000 {
        let mut body = bodies[rng.usize(..2)].as_bytes().to_vec();
        let at = rng.usize(..body.len());
        body[at] = rng.u8(..);
        body.truncate(1 + rng.usize(..2 * body.len()));
        let status = [200, 201, 202, 204, 404, 500][rng.usize(..6)];
        let text = String::from_utf8_lossy(&body).into_owned();
        let answer = answer(status, &[("location", &text[..0])], &text);
        let method = [Method::Put, Method::Delete, Method::Post][rng.usize(..3)];
        let _ = write(method, &answer);
        let _ = polled(rng.bool(), &answer);
    }
}

/// A client that only polls, and returns prepared results.
struct PreparedPolls(Mutex<Vec<Result<Progress, AttemptError>>>);

impl Arm for PreparedPolls {
    fn get<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Resource> {
        Box::pin(async { Err(request.operation.malformed("not called")) })
    }
    fn list<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Vec<Value>> {
        Box::pin(async { Err(request.operation.malformed("not called")) })
    }
    fn put<'a>(
        &'a self,
        request: &'a ArmRequest,
        _: &'a Value,
        _: Option<&'a str>,
    ) -> ArmFuture<'a, WriteOutcome> {
        Box::pin(async { Err(request.operation.malformed("not called")) })
    }
    fn delete<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, WriteOutcome> {
        Box::pin(async { Err(request.operation.malformed("not called")) })
    }
    fn poll<'a>(&'a self, _: &'a OperationHandle) -> ArmFuture<'a, Progress> {
        let in_progress = Ok(Progress::InProgress { after: None });
        let next = self.0.lock().unwrap().pop().unwrap_or(in_progress);
        Box::pin(async { next })
    }
}

/// A clock that advances at once when a pause is awaited.
#[derive(Default)]
struct SimulatedTime(Mutex<Vec<Duration>>);

impl Pause for SimulatedTime {
    fn now(&self) -> Duration {
        self.0.lock().unwrap().iter().sum()
    }
    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.lock().unwrap().push(pause);
        Box::pin(std::future::ready(()))
    }
}

async fn finished(
    mut polls: Vec<Result<Progress, AttemptError>>,
) -> (Result<Option<Resource>, AttemptError>, Vec<u64>) {
    polls.reverse();
    let (arm, pause) = (PreparedPolls(Mutex::new(polls)), SimulatedTime::default());
    let headers = [("azure-asyncoperation", OPERATION), ("retry-after", "10")];
    let begun = write(Method::Put, &answer(201, &headers, "")).unwrap();
    let outcome = finish(&arm, begun, &pause, Duration::from_secs(120)).await;
    let waited = pause.0.lock().unwrap().iter().map(Duration::as_secs).collect();
    (outcome, waited)
}

#[tokio::test]
async fn finish_polls_at_requested_times_with_a_limit() {
    let after = |seconds| Ok(Progress::InProgress { after: Some(Duration::from_secs(seconds)) });
    let silent = || Ok(Progress::InProgress { after: None });
    let (outcome, waited) = finished(vec![after(5), silent(), Ok(Progress::Done)]).await;
    assert_eq!((outcome.unwrap(), waited), (None, vec![10, 5, 2]));

    let late = || Err(POLL.timed_out(Duration::from_secs(20)));
    let (outcome, _) = finished(vec![late(), late(), Ok(Progress::Done)]).await;
    assert_eq!(outcome.unwrap(), None);

    let why = POOLS_PUT.operation.failed(Failure::Invalid, "Full", "the subnet is full");
    let (outcome, _) = finished(vec![silent(), Ok(Progress::Failed(why.clone()))]).await;
    assert_eq!(outcome.unwrap_err(), why);

    let (outcome, _) = finished(vec![Err(POLL.failed(Failure::Absent, "NotFound", "gone"))]).await;
    assert_eq!(outcome.unwrap_err().error.kind, Failure::Absent);

    let stop = POLL.failed(Failure::Transient, "Canceled", "stopping");
    let (outcome, waited) = finished(vec![Err(stop)]).await;
    assert_eq!((outcome.unwrap_err().error.code.as_str(), waited), ("Canceled", vec![10]));

    let (outcome, waited) = finished(vec![after(3600), silent()]).await;
    let error = outcome.unwrap_err().error;
    assert_eq!((error.code.as_str(), error.kind), ("StillRunning", Failure::Transient));
    assert_eq!(waited.iter().sum::<u64>(), 120);
}
