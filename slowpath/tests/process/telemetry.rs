//! Tests of the export to an OpenTelemetry collector, emulated by a thread of the test. It decodes
//! the messages with the crate `opentelemetry-proto`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cloud_emulators::faults::{Fault, Rule};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    HistogramDataPoint, Metric, metric, number_data_point,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use patience::{DEFAULT_TIMEOUT, eventually_within};
use prost::Message;
use serde_json::{Value, json};

use crate::appliance::{Folder, Running};
use crate::cloud::Cloud;
use crate::command::with_an_lcore;
use crate::generation;
use crate::reference::appliance_with_all_features;

const SECRET: &str = "Bearer very-secret-word";
/// Maximum time until spans and metrics that the collector does not accept are lost: a batch of
/// spans is sent several times before that.
const LOSS_TIMEOUT: Duration = Duration::from_secs(120);

/// What the collector does with a request.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Behavior {
    Accept,
    /// Rejects two spans or points of each request.
    RejectTwo,
    Unavailable,
    Garbage,
    /// Keeps the connection open, and sends nothing.
    Never,
}

#[derive(Default)]
struct Received {
    /// Path, headers and body of each request.
    requests: Vec<(String, String, Vec<u8>)>,
}

struct Collector {
    port: u16,
    behavior: Arc<Mutex<Behavior>>,
    received: Arc<Mutex<Received>>,
}

impl Collector {
    fn start(behavior: Behavior) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (behavior, received) = (Arc::new(Mutex::new(behavior)), Arc::default());
        let collector = Collector { port, behavior, received };
        let (behavior, received) =
            (Arc::clone(&collector.behavior), Arc::clone(&collector.received));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (behavior, received) = (Arc::clone(&behavior), Arc::clone(&received));
                std::thread::spawn(move || serve(stream, &behavior, &received));
            }
        });
        collector
    }

    fn set(&self, behavior: Behavior) {
        *self.behavior.lock().unwrap() = behavior;
    }

    /// Returns the number of requests to a path.
    fn count(&self, path: &str) -> usize {
        self.received.lock().unwrap().requests.iter().filter(|one| one.0 == path).count()
    }

    /// Returns the bodies of all requests to a path.
    fn bodies(&self, path: &str) -> Vec<Vec<u8>> {
        let received = self.received.lock().unwrap();
        received.requests.iter().filter(|one| one.0 == path).map(|one| one.2.clone()).collect()
    }

    /// Returns the spans of all requests.
    fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for body in self.bodies("/v1/traces") {
            let request = ExportTraceServiceRequest::decode(&*body).unwrap();
            for one in request.resource_spans {
                let resource = texts(&one.resource.unwrap().attributes);
                assert_eq!(resource["service.name"], "weir");
                spans.extend(one.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        spans
    }

    /// Returns the metrics of the newest request by name, with the attributes of its resource.
    fn metrics(&self) -> Option<(BTreeMap<String, String>, BTreeMap<String, Metric>)> {
        let body = self.bodies("/v1/metrics").pop()?;
        let mut request = ExportMetricsServiceRequest::decode(&*body).unwrap();
        let one = request.resource_metrics.pop()?;
        let metrics = one.scope_metrics.into_iter().flat_map(|scope| scope.metrics);
        let metrics = metrics.map(|metric| (metric.name.clone(), metric)).collect();
        Some((texts(&one.resource?.attributes), metrics))
    }
}

/// Reads requests from a connection, and responds as `behavior` says.
fn serve(stream: TcpStream, behavior: &Mutex<Behavior>, received: &Mutex<Received>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let head = head.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?;
        let mut body = vec![0; length.parse().ok()?];
        reader.read_exact(&mut body).ok()?;
        let path = head.split(' ').nth(1)?.to_owned();
        received.lock().unwrap().requests.push((path, head, body));
        // Partial success: field 1, a message of 7 bytes, in which field 1 is 2 and field 2 "old".
        let (status, body): (_, &[u8]) = match *behavior.lock().unwrap() {
            Behavior::Accept => ("200 OK", b""),
            Behavior::RejectTwo => ("200 OK", b"\x0a\x07\x08\x02\x12\x03old"),
            Behavior::Unavailable => ("503 Service Unavailable", b""),
            Behavior::Garbage => ("200 OK", b"<html>It works!</html>"),
            Behavior::Never => {
                // Until the client closes the connection.
                let _ = reader.read(&mut [0]);
                return None;
            }
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        writer.write_all(&[head.as_bytes(), body].concat()).ok()?;
    }
}

/// Returns the values of attributes by key. Numbers are returned as texts.
fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |one: &KeyValue| match one.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        any_value::Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    };
    attributes.iter().map(|one| (one.key.clone(), text(one).unwrap())).collect()
}

/// Adds the section `[telemetry]` to the configuration of a folder.
fn configure(folder: &Folder, collector: &Collector) {
    let path = folder.path.join("weir.toml");
    let config = std::fs::read_to_string(path).unwrap();
    folder.write("headers", &format!("Authorization: {SECRET}\n"));
    let headers = folder.path.join("headers");
    folder.write(
        "weir.toml",
        &format!(
            "{config}\n[telemetry]\notlp_endpoint = \"http://127.0.0.1:{}/\"\n\
             headers_file = \"{}\"\ninterval_s = 1\n",
            collector.port,
            headers.display()
        ),
    );
}

fn scrape(folder: &Folder) -> String {
    folder.get(folder.ports[2], "/metrics", "text/plain")
}

/// Returns the value of a series of a scrape.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{series} in\n{text}"))
}

/// Returns the number of lost spans (`traces`) or points (`metrics`).
fn lost(folder: &Folder, signal: &str) -> f64 {
    value(&scrape(folder), &format!("weir_telemetry_lost_total{{signal=\"{signal}\"}}"))
}

/// Writes a service through the API.
fn put(folder: &Folder, number: u16) {
    let frontend = json!({ "address": "203.0.113.9", "port": number, "protocol": "udp" });
    let body = json!({ "spec": { "frontends": [frontend] } }).to_string();
    let path = format!("/v1/objects/services/telemetry-{number}");
    let answer = folder.request("PUT", &path, &[("Content-Type", "application/json")], &body);
    assert!((200..300).contains(&answer.status), "{answer:?}");
}

/// Returns the events of a kind with the fields `signal` and, if any, `error`.
fn events(folder: &Folder, kind: &str) -> Vec<(String, String)> {
    let out = folder.weir(&["events", "--json", "--kind", kind]);
    let text = String::from_utf8(out.stdout).unwrap();
    let field =
        |record: &Value, name: &str| record["fields"][name].as_str().unwrap_or_default().to_owned();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.map(|record| (field(&record, "signal"), field(&record, "error"))).collect()
}

/// Waits until there are `count` events of a kind.
fn until_count(folder: &Folder, kind: &str, count: usize) {
    eventually_within(LOSS_TIMEOUT, kind, || {
        let found = events(folder, kind);
        let is_reported = found.len() >= count;
        if !is_reported {
            // Each request makes a span, without which no traces are exported.
            folder.request("GET", "/v1/objects/services", &[], "");
        }
        patience::check(is_reported, || format!("{found:?}"))
    });
}

/// Waits until there is an event for each signal whose error contains a text.
fn until_reported(folder: &Folder, kind: &str, error: &str) {
    eventually_within(LOSS_TIMEOUT, kind, || {
        let found = events(folder, kind);
        let has = |signal| found.iter().any(|one| one.0 == signal && one.1.contains(error));
        let is_reported = has("traces") && has("metrics");
        if !is_reported {
            // Each request makes a span, without which no traces are exported.
            folder.request("GET", "/v1/objects/services", &[], "");
        }
        patience::check(is_reported, || format!("{found:?}"))
    });
}

/// Sends SIGINT, and returns how long the process took to end.
fn interrupt(slowpath: &mut Running) -> Duration {
    let began = Instant::now();
    let id = slowpath.0.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert!(slowpath.0.wait().unwrap().success());
    began.elapsed()
}

/// Returns the span `change` of content of the services file that led to a generation after
/// `before`, and its stages in the order in which they began.
fn change(spans: &[Span], before: u64) -> Option<(Span, Vec<Span>)> {
    spans.iter().filter(|span| span.name == "change").find_map(|parent| {
        let generation: u64 = texts(&parent.attributes).get("weir.generation")?.parse().ok()?;
        let is_stage = |span: &&Span| span.trace_id == parent.trace_id && *span != parent;
        let mut stages: Vec<Span> = spans.iter().filter(is_stage).cloned().collect();
        stages.sort_by_key(|span| span.start_time_unix_nano);
        let is_of_file = stages.iter().any(|span| span.name == "validate");
        (generation > before && is_of_file).then(|| (parent.clone(), stages))
    })
}

/// Returns the histogram of the stage `commit`.
fn commits(metrics: &BTreeMap<String, Metric>) -> HistogramDataPoint {
    let metric = &metrics["weir_change_stage_duration_seconds"];
    let Some(metric::Data::Histogram(stages)) = &metric.data else { panic!("{metric:?}") };
    let is_commit = |attributes: &[KeyValue]| texts(attributes)["stage"] == "commit";
    stages.data_points.iter().find(|one| is_commit(&one.attributes)).unwrap().clone()
}

#[test]
fn a_collector_gets_the_stages_of_a_change_and_the_values_of_a_scrape() {
    let collector = Collector::start(Behavior::Accept);
    let folder = appliance_with_all_features("telemetry");
    configure(&folder, &collector);
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    with_an_lcore(&folder, || {
        folder.request("GET", "/v1/objects/services/none?token=hidden", &[], "");
        let before = generation(&folder.until(&["status"], |status| generation(status) > 0));
        folder.services(&["10.97.2.11", "10.97.2.12", "10.97.2.13"]);
        let (parent, stages) = eventually_within(DEFAULT_TIMEOUT, "the trace of a change", || {
            let spans = collector.spans();
            let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
            change(&spans, before).ok_or_else(|| format!("{names:?}"))
        });
        let names: Vec<&str> = stages.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["validate", "store", "compile", "commit", "acknowledged"]);
        assert!(parent.parent_span_id.is_empty(), "{parent:?}");
        assert_eq!((parent.trace_id.len(), parent.span_id.len()), (16, 8));
        let mut ended = parent.start_time_unix_nano;
        for stage in &stages {
            assert_eq!(stage.parent_span_id, parent.span_id);
            // One stage after the other.
            assert!(stage.start_time_unix_nano >= ended, "{stages:?}");
            assert!(stage.end_time_unix_nano >= stage.start_time_unix_nano, "{stages:?}");
            ended = stage.end_time_unix_nano;
        }
        assert_eq!(parent.end_time_unix_nano, ended);
        assert_eq!(parent.start_time_unix_nano, stages[0].start_time_unix_nano);
    });
    let request = eventually_within(DEFAULT_TIMEOUT, "the span of a request", || {
        let spans = collector.spans();
        let request = spans.iter().find(|span| span.name == "GET /v1/objects/{kind}/{*name}");
        request.cloned().ok_or_else(|| format!("{spans:?}"))
    });
    assert_eq!(texts(&request.attributes)["http.response.status_code"], "400");
    assert_eq!((request.kind, request.status), (2, None));

    let names = [
        ("weir_services", "state", "available"),
        ("weir_table_capacity", "table", "flows"),
        ("weir_table_entries", "table", "services"),
        ("weir_drops_total", "reason", "no_route"),
    ];
    let (resource, metrics) = eventually_within(DEFAULT_TIMEOUT, "current metrics", || {
        let (resource, metrics) = collector.metrics().ok_or("no metrics")?;
        let commits = commits(&metrics);
        let series = "weir_change_stage_duration_seconds_count{stage=\"commit\"}";
        let scraped = value(&scrape(&folder), series);
        let is_equal = commits.count as f64 == scraped;
        is_equal.then_some((resource, metrics)).ok_or(format!("{commits:?}, {scraped}"))
    });
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for (key, value) in [
        ("service.name", "weir"),
        ("service.instance.id", "weir-p"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("host.name", host.trim()),
    ] {
        assert_eq!(resource[key], value, "{key}");
    }
    let text = scrape(&folder);
    for (name, label, of) in names {
        let (points, is_counter) = match metrics[name].data.clone().unwrap() {
            metric::Data::Gauge(gauge) => (gauge.data_points, false),
            metric::Data::Sum(sum) => (sum.data_points, sum.is_monotonic),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(is_counter, name.ends_with("_total"));
        let points: Vec<_> =
            points.into_iter().filter(|one| texts(&one.attributes)[label] == of).collect();
        assert!(!points.is_empty(), "{name}");
        for point in points {
            let labels: Vec<String> = point
                .attributes
                .iter()
                .map(|one| {
                    let text = texts(std::slice::from_ref(one));
                    format!("{}=\"{}\"", one.key, text[&one.key])
                })
                .collect();
            let series = format!("{name}{{{}}}", labels.join(","));
            let exported = match point.value.unwrap() {
                number_data_point::Value::AsDouble(number) => number,
                number_data_point::Value::AsInt(number) => number as f64,
            };
            assert_eq!(exported, value(&text, &series), "{series}");
        }
    }
    assert_eq!(metrics["weir_change_stage_duration_seconds"].unit, "s");
    let commit = commits(&metrics);
    assert_eq!(commit.bucket_counts.iter().sum::<u64>(), commit.count);
    assert_eq!(commit.bucket_counts.len(), commit.explicit_bounds.len() + 1);
    assert_eq!((lost(&folder, "traces"), lost(&folder, "metrics")), (0.0, 0.0));

    // A request that ends just before the process is exported too.
    put(&folder, 1);
    interrupt(&mut slowpath);
    let last =
        collector.spans().into_iter().any(|span| span.name == "PUT /v1/objects/{kind}/{*name}");
    assert!(last, "the last export");
    let received = collector.received.lock().unwrap();
    for (path, head, body) in &received.requests {
        assert!(
            head.contains(&format!("authorization: {}", SECRET.to_ascii_lowercase())),
            "{path}"
        );
        let body = String::from_utf8_lossy(body);
        assert!(!body.contains("hidden") && !body.contains("secret-word"), "{path}");
    }
    assert!(!folder.log().contains("secret-word"));
}

#[test]
fn calls_of_a_cloud_are_spans_with_their_outcome() {
    let collector = Collector::start(Behavior::Accept);
    let cloud = Cloud::new("telemetry-cloud", "mode = \"routes\"\ncluster = \"north\"");
    configure(&cloud.folder, &collector);
    let fault = Fault::Refuse { status: 403, code: "UnauthorizedOperation".to_owned() };
    cloud.aws.fault(Rule::first(1, "DescribeInstances", fault));
    let _slowpath = cloud.slowpath();
    let outcomes =
        eventually_within(LOSS_TIMEOUT, "a call that failed, and one that did not", || {
            let spans = collector.spans();
            let calls = spans.iter().filter(|span| span.name == "DescribeInstances");
            let outcomes: Vec<_> = calls
                .map(|call| {
                    assert_eq!(call.kind, 3, "SPAN_KIND_CLIENT");
                    let attributes = texts(&call.attributes);
                    assert_eq!(attributes["weir.cloud.operation"], call.name);
                    let status = call.status.as_ref().map(|status| status.code);
                    (attributes.get("error.type").cloned(), status)
                })
                .collect();
            let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
            (outcomes.len() > 1).then_some(outcomes).ok_or_else(|| format!("{names:?}"))
        });
    assert_eq!(outcomes[..2], [(Some("denied".to_owned()), Some(2)), (None, None)]);
}

#[test]
fn a_collector_that_never_answers_delays_nothing_and_losses_are_counted() {
    let collector = Collector::start(Behavior::Never);
    let folder = Folder::new("telemetry-never");
    configure(&folder, &collector);
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    with_an_lcore(&folder, || {
        for number in 1..=40 {
            put(&folder, number);
        }
        folder.until(&["services"], |services| {
            let mut services = services.as_array().into_iter().flatten();
            let name = |one: &Value| one["name"].as_str().unwrap_or_default().to_owned();
            services.any(|one| name(one).ends_with("telemetry-40"))
        });
        // No stage waited: the longest one is shorter than the time limit of a request.
        let text = scrape(&folder);
        for stage in ["store", "compile", "commit", "acknowledged"] {
            let count = value(
                &text,
                &format!("weir_change_stage_duration_seconds_count{{stage=\"{stage}\"}}"),
            );
            // 2.62144 s is the bound of a bucket (slowpath/src/measurements/stages.rs).
            let short = value(
                &text,
                &format!(
                    "weir_change_stage_duration_seconds_bucket{{le=\"2.62144\",stage=\"{stage}\"}}"
                ),
            );
            assert!(count > 0.0 && count == short, "{stage}: {count} {short}\n{text}");
        }
    });
    eventually_within(LOSS_TIMEOUT, "losses of both signals", || {
        let lost = (lost(&folder, "traces"), lost(&folder, "metrics"));
        folder.request("GET", "/v1/objects/services", &[], "");
        patience::check(lost.0 > 0.0 && lost.1 > 100.0, || format!("{lost:?}"))
    });
    until_reported(&folder, "telemetry_failed", "timed out");
    let failed = events(&folder, "telemetry_failed");
    assert_eq!(failed.len(), 2, "once for each signal: {failed:?}");
    // The last export takes 2 s at most.
    let took = interrupt(&mut slowpath);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn errors_and_garbage_are_reported_once_until_the_collector_recovers() {
    let collector = Collector::start(Behavior::Unavailable);
    let folder = Folder::new("telemetry-errors");
    configure(&folder, &collector);
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    (1..=10).for_each(|number| put(&folder, number));
    until_reported(&folder, "telemetry_failed", "503");
    eventually_within(LOSS_TIMEOUT, "losses of both signals", || {
        let lost = (lost(&folder, "traces"), lost(&folder, "metrics"));
        patience::check(lost.0 > 0.0 && lost.1 > 100.0, || format!("{lost:?}"))
    });
    assert_eq!(events(&folder, "telemetry_failed").len(), 2);
    collector.set(Behavior::Accept);
    until_reported(&folder, "telemetry_recovered", "");
    collector.set(Behavior::Garbage);
    until_reported(&folder, "telemetry_failed", "not one of OTLP");
    collector.set(Behavior::Accept);
    until_count(&folder, "telemetry_recovered", 4);
    let before = (lost(&folder, "traces"), lost(&folder, "metrics"));
    let requests = collector.count("/v1/metrics");
    collector.set(Behavior::RejectTwo);
    eventually_within(DEFAULT_TIMEOUT, "a partial success", || {
        folder.request("GET", "/v1/objects/services", &[], "");
        let requests = collector.count("/v1/metrics") - requests;
        let lost = (lost(&folder, "traces") - before.0, lost(&folder, "metrics") - before.1);
        let is_counted = requests > 1 && lost.0 >= 1.0 && lost.1 >= 2.0;
        patience::check(is_counted, || format!("{requests} {lost:?}"))
    });
    until_reported(&folder, "telemetry_failed", "2 items of a request rejected: old");
    // A file of headers that cannot be used.
    collector.set(Behavior::Accept);
    until_count(&folder, "telemetry_recovered", 6);
    folder.write("headers", "no header");
    until_reported(&folder, "telemetry_failed", "headers:1: not a header");
}
