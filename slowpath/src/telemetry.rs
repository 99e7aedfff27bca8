//! Export of traces and metrics to an OpenTelemetry collector (OTLP over HTTP, protobuf), if
//! `telemetry.otlp_endpoint` is set.
//!
//! A thread of its own takes measured spans from their queue and computes metrics as a scrape does.
//! The collector has no influence on the other threads: they put spans into a bounded queue, and
//! what the collector does not accept in time is lost and counted.

mod client;
mod metrics;
mod otlp;
mod traces;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use config::checked::Config;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use crate::live::Live;
use crate::measurements::{Measurements, Signal, Span, Work};
use client::{Client, ExportError, Failure};
use metrics::Portions;
use otlp::{
    KeyValue, MetricsRequest, Resource, ResourceMetrics, ResourceSpans, Scope, ScopeMetrics,
    ScopeSpans, TracesRequest,
};
use traces::{Clock, Incomplete, Traces};

/// Interval at which spans are taken from the queue and sent.
const TRACES_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of spans in a request.
const BATCH_MAX: usize = 512;
/// Maximum number of assembled spans that wait while the collector does not accept any.
const WAITING_MAX: usize = 4_096;
/// Maximum number of attempts to send a batch of spans.
const ATTEMPTS_MAX: u32 = 3;
/// Maximum duration of the last export, when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Handle to the exporter's thread.
pub(crate) struct Telemetry {
    stop: oneshot::Sender<()>,
    ended: Receiver<()>,
}

impl Telemetry {
    /// Exports what is left, which takes at most [`FLUSH_TIMEOUT`], and ends the thread.
    pub(crate) fn stop(self) {
        let _ = self.stop.send(());
        // A thread that a disk or a resolver blocks is left behind.
        let _ = self.ended.recv_timeout(FLUSH_TIMEOUT);
    }
}

/// Starts the exporter's thread if a collector is configured.
///
/// # Errors
/// Returns an error if the system cannot create the thread.
pub(crate) fn start(live: &Arc<Live>) -> std::io::Result<Option<Telemetry>> {
    let Some(settings) = &live.config.telemetry else { return Ok(None) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(settings);
    let (stop, stopped) = oneshot::channel();
    let (alive, ended) = channel();
    let interval = settings.interval;
    let mut exporter = Exporter {
        live: Arc::clone(live),
        client,
        resource: resource(&live.config),
        interval,
        metrics_at: Instant::now(),
        traces: Traces::default(),
        batch: Batch::default(),
        is_failing: [false; Signal::ALL.len()],
    };
    live.shared().measurements.spans.enable();
    let observed = Arc::downgrade(live);
    clouds::requests::set_observer(Box::new(move |(operation, outcome), (began, took)| {
        if let Some(live) = observed.upgrade() {
            let work = Work::CloudCall(operation, outcome);
            live.shared().measurements.spans.push(Span { work, began, took });
        }
    }));
    std::thread::Builder::new().name("slowpath-otlp".into()).spawn(move || {
        let _alive = alive;
        runtime.block_on(exporter.run(stopped));
        // A resolver may block a thread of the runtime.
        runtime.shutdown_background();
    })?;
    Ok(Some(Telemetry { stop, ended }))
}

/// Returns the attributes that identify this appliance.
fn resource(config: &Config) -> Resource {
    let host = std::fs::read_to_string(Path::new("/proc/sys/kernel/hostname")).unwrap_or_default();
    let attributes = vec![
        KeyValue::text("service.name", "weir"),
        KeyValue::text("service.instance.id", &config.name),
        KeyValue::text("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::text("host.name", host.trim_end()),
    ];
    Resource { attributes }
}

/// Returns the instrumentation scope.
fn scope() -> Option<Scope> {
    Some(Scope { name: "slowpath".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// Spans of one request, which is repeated if the collector is not reachable.
#[derive(Default)]
struct Batch {
    spans: Vec<otlp::Span>,
    attempts: u32,
    /// When to try again; `None` before the first attempt.
    retry_at: Option<Instant>,
}

/// The state of the exporter's thread.
struct Exporter {
    live: Arc<Live>,
    client: Client,
    resource: Resource,
    interval: Duration,
    /// When the metrics are exported next.
    metrics_at: Instant,
    traces: Traces,
    batch: Batch,
    /// Whether the last request of each signal failed.
    is_failing: [bool; Signal::ALL.len()],
}

impl Exporter {
    async fn run(&mut self, mut stopped: oneshot::Receiver<()>) {
        let mut tick = tokio::time::interval(TRACES_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let rounds = async {
            loop {
                tick.tick().await;
                self.export_traces(Incomplete::Wait).await;
                self.export_metrics().await;
            }
        };
        tokio::select! {
            biased;
            _ = &mut stopped => {}
            () = rounds => {}
        }
        let flush = async {
            self.export_traces(Incomplete::Flush).await;
            self.metrics_at = Instant::now();
            self.export_metrics().await;
        };
        // What the collector does not accept in time is lost, and not counted: the counter ends
        // with the process.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, flush).await;
    }

    fn measurements(&self) -> &Measurements {
        &self.live.shared().measurements
    }

    /// Sends complete traces, unless the pause before a repetition lasts; with
    /// [`Incomplete::Flush`], also incomplete ones, and without regard to that pause.
    async fn export_traces(&mut self, incomplete: Incomplete) {
        let clock = Clock::now();
        let spans = self.measurements().spans.take();
        self.traces.add(spans, clock);
        if incomplete == Incomplete::Flush {
            self.traces.complete_changes(clock, incomplete);
        }
        let excess = self.traces.drop_oldest(WAITING_MAX);
        self.measurements().spans.count_lost(Signal::Traces, excess);
        let is_paused = self.batch.retry_at.is_some_and(|at| clock.steady() < at);
        if is_paused && incomplete == Incomplete::Wait {
            return;
        }
        loop {
            if self.batch.spans.is_empty() {
                self.batch = Batch { spans: self.traces.take(BATCH_MAX), ..Batch::default() };
            }
            if self.batch.spans.is_empty() || !self.send_batch().await {
                return;
            }
        }
    }

    /// Sends the batch once. Returns whether the collector accepted it; otherwise it is repeated
    /// later, or lost.
    async fn send_batch(&mut self) -> bool {
        let spans = self.batch.spans.clone();
        let scope_spans = vec![ScopeSpans { scope: scope(), spans }];
        let resource = Some(self.resource.clone());
        let request =
            TracesRequest { resource_spans: vec![ResourceSpans { resource, scope_spans }] };
        // Counted before the attempt, because the end of the process may interrupt it.
        self.batch.attempts += 1;
        let sent = self.client.send(Signal::Traces, &request).await;
        self.report(Signal::Traces, &sent);
        let Err(error) = sent else {
            self.batch = Batch::default();
            return true;
        };
        if error.failure == Failure::Transient && self.batch.attempts < ATTEMPTS_MAX {
            let pause = Duration::from_secs(1 << self.batch.attempts);
            self.batch.retry_at = Some(Instant::now() + pause);
            return false;
        }
        let lost = error.lost(self.batch.spans.len());
        self.measurements().spans.count_lost(Signal::Traces, lost);
        self.batch = Batch::default();
        matches!(error.failure, Failure::Partial(_))
    }

    /// Sends the metrics if they are due. A failed request is not repeated: the next export has the
    /// totals again.
    async fn export_metrics(&mut self) {
        let now = Instant::now();
        if now < self.metrics_at {
            return;
        }
        self.metrics_at = now + self.interval;
        let time_ns = Clock::now().wall_ns();
        let text = match crate::metrics::scrape(&self.live).await {
            Ok(text) => text.open(),
            Err(error) => return crate::metrics::log_failure(&error),
        };
        let mut is_accepting = true;
        for (count, metrics) in Portions::new(&String::from_utf8_lossy(&text), time_ns) {
            if !is_accepting {
                self.measurements().spans.count_lost(Signal::Metrics, count);
                continue;
            }
            let scope_metrics = vec![ScopeMetrics { scope: scope(), metrics }];
            let resource = Some(self.resource.clone());
            let resource_metrics = vec![ResourceMetrics { resource, scope_metrics }];
            let request = MetricsRequest { resource_metrics };
            let sent = self.client.send(Signal::Metrics, &request).await;
            self.report(Signal::Metrics, &sent);
            if let Err(error) = sent {
                self.measurements().spans.count_lost(Signal::Metrics, error.lost(count));
                is_accepting = matches!(error.failure, Failure::Partial(_));
            }
        }
    }

    /// Logs the first failure of a signal, and its recovery.
    fn report(&mut self, signal: Signal, sent: &Result<(), ExportError>) {
        let is_failing = sent.is_err();
        let was_failing = std::mem::replace(&mut self.is_failing[signal as usize], is_failing);
        let (signal, endpoint) = (signal.as_str(), self.client.endpoint());
        match sent {
            Err(error) if !was_failing => tracing::warn!(
                event = "telemetry_failed",
                signal,
                endpoint,
                error = error.text,
                "telemetry not delivered"
            ),
            Ok(()) if was_failing => tracing::info!(
                event = "telemetry_recovered",
                signal,
                endpoint,
                "telemetry is delivered again"
            ),
            _ => {}
        }
    }
}
