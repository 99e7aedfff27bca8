//! Measures the cost of 10,000 backends that are probed every 5 s: the CPU share of the checker's
//! thread, which includes the kernel's work for loopback packets, probes per second, and delays.
//! Also measures the CPU time of the scheduler without sockets.
//!
//! Run `cargo run --release -p health --example ten_thousand`; `tests/ten_thousand.rs` runs a
//! smaller load.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made panics")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use config::checked::Probing;
use config::services::{HealthCheck, ProbeKind, Timing};
use health::checker::{Inputs, run};
use health::counters::Counters;
use health::node_port::ListenerSettings;
use health::plan::ProbeSettings;
use health::scheduler::{DesiredCheck, ProbeResult, Scheduler};
use listeners::{Limits, ReservedNetworks, Slots};
use state::address::Endpoint;
use state::appliance::Appliance;
use state::backend::Instance;
use state::name::{Name, Source};
use state::service::Service;
use state::writer::Writer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const BACKENDS_PER_SERVICE: u32 = 10;

/// Number of backends, and timing.
#[derive(Clone, Copy)]
pub struct Load {
    /// Number of backends, a multiple of 10.
    pub backends: u32,
    /// Interval between two probes of a backend.
    pub interval: Duration,
    /// Duration of the measurement, which begins after two and a half intervals.
    pub measured: Duration,
}

fn main() {
    let (interval, measured) = (Duration::from_secs(5), Duration::from_secs(20));
    let load = Load { backends: 10_000, interval, measured };
    scheduler(&load);
    for kind in [ProbeKind::Tcp, ProbeKind::Http] {
        println!("{kind:?}: {}", probes(&load, kind));
    }
}

/// Result of a measurement.
pub struct Measured {
    /// Successful probes within the measured time.
    pub good: u64,
    /// Probes that failed or could not be run.
    pub failed: u64,
    /// Probes that began more than a tenth of the interval too late.
    pub late: u64,
    /// Upper bound of the 99th percentile of the delay, in ms: a power of two.
    pub p99_ms: u64,
    /// Maximum number of concurrent probes, sampled every 50 ms.
    pub at_once: u64,
    /// Number of events since the start, which are verdicts only.
    pub verdicts: usize,
    wall: Duration,
    cpu_ns: u64,
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Measured { good, failed, late, p99_ms, at_once, verdicts, wall, cpu_ns } = self;
        let share = *cpu_ns as f64 / wall.as_nanos() as f64 * 100.0;
        let (rate, each) = (*good as f64 / wall.as_secs_f64(), *cpu_ns / 1_000 / good.max(&1));
        writeln!(f, "{share:.1} % of one core, {rate:.0} probes a second ({each} us each)")?;
        writeln!(f, "  lateness p99 below {p99_ms} ms, {late} late by a tenth of the interval")?;
        write!(f, "  {failed} failed, at most {at_once} at once, {verdicts} verdicts sent")
    }
}

/// Returns an upper bound of the 99th percentile in ms, given the number of probes in each bucket
/// of [`health::counters::Counts::delay`].
fn p99(delays: &[u64]) -> u64 {
    let all: u64 = delays.iter().sum();
    let mut below = 0;
    let reached = delays.iter().position(|count| {
        below += count;
        below * 100 >= all * 99
    });
    1 << reached.unwrap_or(delays.len())
}

fn endpoint(n: u32, port: u16) -> Endpoint {
    let [_, high, middle, low] = (n + 1).to_be_bytes();
    Endpoint { addr: IpAddr::V4(Ipv4Addr::new(127, 1 + high, middle, low)), port, protocol: 6 }
}

fn scheduler(load: &Load) {
    let timing = Timing {
        interval: load.interval,
        timeout: Duration::from_secs(2),
        jitter: load.interval / 10,
        rise: 2,
        fall: 3,
        damping: 4,
    };
    let mut now = Instant::now();
    let mut scheduler = Scheduler::new(512, 1);
    for service in 0..load.backends / BACKENDS_PER_SERVICE {
        let all = (0..BACKENDS_PER_SERVICE).map(|n| {
            let endpoint = endpoint(service * BACKENDS_PER_SERVICE + n, 80);
            (DesiredCheck { endpoint, timing, target: () }, None)
        });
        scheduler.set(&Name::new(&format!("s/{service}")).unwrap(), all.collect(), now);
    }
    let (begun, mut probes) = (Instant::now(), 0_u64);
    while probes < 1_000_000 {
        now = scheduler.next_due().unwrap();
        while let Some(start) = scheduler.start(now) {
            let answer = ProbeResult { good: Some(true), reason: "".into(), took: Duration::ZERO };
            scheduler.done(start.token, answer, now);
            probes += 1;
        }
    }
    let each = begun.elapsed().as_nanos() as u64 / probes;
    let rate = u64::from(load.backends) / load.interval.as_secs();
    let share = (each * rate) as f64 / 1e7;
    println!(
        "state machine alone: {each} ns a probe, {share:.3} % of a core at {rate} probes a second"
    );
}

/// Returns the CPU time of a thread in nanoseconds.
fn cpu_time_ns(thread: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Starts a server on all addresses, which answers each request with 200. Returns its port.
fn serve() -> u16 {
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    if stream.read(&mut [0; 512]).await.is_ok_and(|read| read > 0) {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                    }
                });
            }
        });
    });
    port
}

fn tables(load: &Load, kind: ProbeKind, port: u16) -> Arc<Writer> {
    let (writer, source) = (Writer::new(), Source::new("file"));
    for service in 0..load.backends / BACKENDS_PER_SERVICE {
        let name = Name::new(&format!("s/{service}")).unwrap();
        let mut row = Service::new(name.clone(), source.clone());
        row = row.with(|spec| spec.health = Some(Arc::new(HealthCheck::new(kind)))).unwrap();
        let backends = (0..BACKENDS_PER_SERVICE).map(|n| {
            let endpoint = endpoint(service * BACKENDS_PER_SERVICE + n, port);
            Instance::new(endpoint, name.clone(), source.clone())
        });
        let mut transaction = writer.begin(SystemTime::now());
        transaction.upsert_service_and_frontends(row, Vec::new()).unwrap();
        transaction.set_backends(&name, &source, backends.collect());
        transaction.commit();
    }
    Arc::new(writer)
}

/// Runs a checker of `load.backends` backends in a new thread, and returns the measurement.
pub fn probes(load: &Load, kind: ProbeKind) -> Measured {
    let probing = Probing {
        at_once: 512,
        sources: Vec::new(),
        ca_file: "/etc/ssl/certs/ca-certificates.crt".into(),
        ca_folder: "/etc/ssl/certs".into(),
        interval: load.interval,
        timeout: Duration::from_secs(2),
        rise: 2,
        fall: 3,
        jitter_percent: 10,
        damping: 4,
    };
    let counters = Arc::new(Counters::default());
    let (events, verdicts) = std::sync::mpsc::channel();
    let inputs = Inputs {
        writer: tables(load, kind, serve()),
        settings: ProbeSettings { probing, tunnel_entries: Vec::new() },
        appliance: Arc::new(Appliance::default()),
        is_able: Arc::new(|| true),
        seed: 1,
        ports: ListenerSettings {
            slots: Slots::new(
                Limits { connections: 8, per_source: 8, reserved: 0 },
                ReservedNetworks::default(),
            ),
            conditions: Arc::default(),
        },
        events,
        counters: Arc::clone(&counters),
    };
    let (request_sender, requests) = tokio::sync::mpsc::channel(1);
    let (thread_sender, thread) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        thread_sender.send(own.display().to_string()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(inputs, requests));
    });
    let thread = thread.recv().unwrap();
    // Long enough for the two successful probes of every backend that a verdict requires.
    std::thread::sleep(load.interval * 2 + load.interval / 2);
    let (before, at, cpu) = (counters.read(), Instant::now(), cpu_time_ns(&thread));
    let max_running = AtomicU64::new(0);
    while at.elapsed() < load.measured {
        max_running.fetch_max(counters.read().running, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
    }
    let (after, wall, cpu_ns) = (counters.read(), at.elapsed(), cpu_time_ns(&thread) - cpu);
    let delays: Vec<u64> = after.delay.iter().zip(before.delay).map(|(a, b)| a - b).collect();
    drop(request_sender);
    Measured {
        good: after.good - before.good,
        failed: after.bad + after.not_run - before.bad - before.not_run,
        late: after.late - before.late,
        p99_ms: p99(&delays),
        at_once: max_running.load(Ordering::Relaxed),
        verdicts: verdicts.try_iter().count(),
        wall,
        cpu_ns,
    }
}
