//! What 10,000 backends cost that are probed every 5 s: CPU time of the checker's thread, loopback
//! included, and of the machine alone. `cargo run --release -p health --example ten_thousand`.
#![expect(clippy::unwrap_used, reason = "a measurement that can't be made ends")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use config::checked::Probing;
use config::services::{HealthCheck, ProbeKind, Timing};
use health::checker::{Given, run};
use health::counters::Counters;
use health::machine::{Answer, Machine, Wanted};
use health::plan::Place;
use state::address::Endpoint;
use state::appliance::Appliance;
use state::backend::Instance;
use state::name::{Name, Source};
use state::service::Service;
use state::writer::Writer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const BACKENDS: u32 = 10_000;
const OF_SERVICE: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(20);

fn main() {
    machine();
    for kind in [ProbeKind::Tcp, ProbeKind::Http] {
        probes(kind);
    }
}

fn endpoint(n: u32, port: u16) -> Endpoint {
    let [_, high, middle, low] = (n + 1).to_be_bytes();
    Endpoint { addr: IpAddr::V4(Ipv4Addr::new(127, 1 + high, middle, low)), port, protocol: 6 }
}

fn machine() {
    let timing = Timing {
        interval: INTERVAL,
        timeout: Duration::from_secs(2),
        jitter: INTERVAL / 10,
        rise: 2,
        fall: 3,
        damping: 4,
    };
    let mut now = Instant::now();
    let mut machine = Machine::new(512, 1);
    for service in 0..BACKENDS / OF_SERVICE {
        let all = (0..OF_SERVICE).map(|n| {
            let endpoint = endpoint(service * OF_SERVICE + n, 80);
            (Wanted { endpoint, timing, target: () }, None)
        });
        machine.set(&Name::new(&format!("s/{service}")).unwrap(), all.collect(), now);
    }
    let (begun, mut probes) = (Instant::now(), 0_u64);
    while probes < 1_000_000 {
        now = machine.next_due().unwrap();
        while let Some(start) = machine.start(now) {
            let answer = Answer { good: Some(true), why: "".into(), took: Duration::ZERO };
            machine.done(start.token, answer, now);
            probes += 1;
        }
    }
    let each = begun.elapsed().as_nanos() as u64 / probes;
    let rate = u64::from(BACKENDS) / INTERVAL.as_secs();
    let share = (each * rate) as f64 / 1e7;
    println!("machine alone: {each} ns a probe, {share:.3} % of a core at {rate} probes a second");
}

/// Nanoseconds that a thread has had a CPU.
fn used(thread: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Takes connections on all loopback addresses, and answers what is asked.
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

fn tables(kind: ProbeKind, port: u16) -> Arc<Writer> {
    let (writer, source) = (Writer::new(), Source::new("file"));
    for service in 0..BACKENDS / OF_SERVICE {
        let name = Name::new(&format!("s/{service}")).unwrap();
        let mut row = Service::new(name.clone(), source.clone());
        row.health = Some(Arc::new(HealthCheck::new(kind)));
        let said = (0..OF_SERVICE).map(|n| {
            Instance::new(endpoint(service * OF_SERVICE + n, port), name.clone(), source.clone())
        });
        let mut transaction = writer.begin(SystemTime::now());
        transaction.upsert_service(row).unwrap();
        transaction.upsert_backends(&name, &source, said.collect());
        transaction.commit();
    }
    Arc::new(writer)
}

fn probes(kind: ProbeKind) {
    let probing = Probing {
        at_once: 512,
        sources: Vec::new(),
        ca_file: "/etc/ssl/certs/ca-certificates.crt".into(),
        interval: INTERVAL,
        timeout: Duration::from_secs(2),
        rise: 2,
        fall: 3,
        jitter_percent: 10,
        damping: 4,
    };
    let counters = Arc::new(Counters::default());
    let (told, verdicts) = std::sync::mpsc::channel();
    let given = Given {
        writer: tables(kind, serve()),
        place: Place { probing, entrances: Vec::new() },
        appliance: Arc::new(Appliance::default()),
        able: Arc::new(|| true),
        seed: 1,
        told,
        counters: Arc::clone(&counters),
    };
    let (questions, asked) = tokio::sync::mpsc::channel(1);
    let (tell, thread) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        tell.send(own.display().to_string()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(given, asked));
    });
    let thread = thread.recv().unwrap();
    // Two rounds, so that all have been judged.
    std::thread::sleep(INTERVAL * 2 + INTERVAL / 2);
    let (before, at, cpu) = (counters.read(), Instant::now(), used(&thread));
    let most = AtomicU64::new(0);
    while at.elapsed() < MEASURED {
        most.fetch_max(counters.read().running, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
    }
    let (after, wall, cpu) = (counters.read(), at.elapsed(), used(&thread) - cpu);
    let good = after.good - before.good;
    println!(
        "{kind:?}: {:.0} good probes a second, {} bad, {} untold, {} late; at most {} at once; \
         {:.1} us of CPU a probe, {:.1} % of a core; {} verdicts",
        good as f64 / wall.as_secs_f64(),
        after.bad - before.bad,
        after.untold - before.untold,
        after.late - before.late,
        most.load(Ordering::Relaxed),
        cpu as f64 / good.max(1) as f64 / 1e3,
        cpu as f64 / wall.as_nanos() as f64 * 100.0,
        verdicts.try_iter().count(),
    );
    drop(questions);
}
