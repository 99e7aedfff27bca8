//! Measures the latency of health probes beside connections that send nothing: the time of a probe
//! from a network with reserved slots, as a ratio to the same probe without load. Needs a limit of
//! 12,000 file descriptors (`ulimit -Hn`); takes a minute.
//!
//! The cases run in turn, round after round: without load, beside 10,000 idle connections (opened
//! before, from 200 loopback addresses; most of them have been evicted by then), and while more are
//! opened as fast as one thread can. A probe is a connection of its own, from `connect` to
//! the end of the response. If a probe is not answered, the program ends with an error.

#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use config::checked::Prefix;
use listeners::{ReservedNetworks, Slots};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slowpath::control::listening::HEALTH;
use slowpath::health::{Able, serve_http};
use socket2::{Domain, Socket, Type};

/// Rounds that count; one more comes first, as a warm-up.
const ROUNDS: usize = 5;
/// Probes of a case in each round.
const PROBES: usize = 1_000;
/// Idle connections at a time: TCP connections that are established and send nothing.
const IDLE: usize = 10_000;
/// Soft limit of file descriptors: for the clients' ends of all idle connections, and for the
/// listener's ends of those that are not evicted.
const DESCRIPTORS: u64 = 12_000;
/// Source address of the probes, for which the listener reserves slots.
const PROBER: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 1);
const CASES: [&str; 3] = ["no load", "with 10,000 idle connections", "while more are opened"];

fn main() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), ..limit })
        .map_err(|e| io::Error::other(format!("{DESCRIPTORS} descriptors are required: {e}")))?;
    let (addr, slots) = serve()?;
    let mut times: [Vec<Vec<Duration>>; 3] = Default::default();
    let mut opened = 0;
    for round in 0..=ROUNDS {
        let quiet = probes(addr)?;
        let idle: Vec<TcpStream> =
            (0..IDLE).map(|i| connect(source(i), addr)).collect::<io::Result<_>>()?;
        let beside = probes(addr)?;
        drop(idle);
        let (while_opening, n) = probes_while_opening(addr)?;
        // The first round is a warm-up.
        if round > 0 {
            opened += n;
            times
                .iter_mut()
                .zip([quiet, beside, while_opening])
                .for_each(|(all, one)| all.push(one));
        }
    }
    report(&times);
    let (counts, probes) = (slots.counts(), times.iter().flatten().map(Vec::len).sum::<usize>());
    println!(
        "{probes} probes, all answered; {opened} connections opened in the last case; evicted {}, \
         refused {}",
        counts.evicted,
        counts.refused_full + counts.refused_source
    );
    Ok(())
}

/// Serves probes as slowpath does, on two threads.
fn serve() -> io::Result<(SocketAddr, Arc<Slots>)> {
    let reserved = ReservedNetworks::default();
    reserved.set(vec![Prefix { addr: PROBER.into(), len: 32 }]);
    let slots = Slots::new(HEALTH, reserved);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    let inside = runtime.enter();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = listeners::bind("health.listen", any).map_err(io::Error::other)?;
    drop(inside);
    let (addr, of_listener) = (listener.local_addr()?, Arc::clone(&slots));
    std::thread::spawn(move || {
        let able = || Able { able: true, reasons: Vec::new() };
        runtime.block_on(serve_http(listener, of_listener, able));
    });
    Ok((addr, slots))
}

/// Returns the time of each probe.
fn probes(addr: SocketAddr) -> io::Result<Vec<Duration>> {
    let one = |_| {
        let (mut text, began) = (String::new(), Instant::now());
        let mut stream = connect(PROBER, addr)?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n")?;
        stream.read_to_string(&mut text)?;
        match text.starts_with("HTTP/1.1 200 ") {
            true => Ok(began.elapsed()),
            false => Err(io::Error::other(format!("a probe was not answered: {text:?}"))),
        }
    };
    (0..PROBES).map(one).collect()
}

/// Returns the times of probes while another thread opens idle connections, and the number of these
/// connections.
fn probes_while_opening(addr: SocketAddr) -> io::Result<(Vec<Duration>, u64)> {
    let (stop, opened) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut idle = std::collections::VecDeque::new();
            for i in 0.. {
                if stop.load(Relaxed) {
                    return;
                }
                if let Ok(stream) = connect(source(i), addr) {
                    opened.fetch_add(1, Relaxed);
                    idle.push_back(stream);
                }
                if idle.len() > IDLE {
                    idle.pop_front();
                }
            }
        });
        let times = probes(addr);
        stop.store(true, Relaxed);
        Ok((times?, opened.load(Relaxed)))
    })
}

fn source(i: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 1, (i % 200) as u8, 1)
}

fn connect(source: Ipv4Addr, addr: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect(&addr.into())?;
    Ok(socket.into())
}

/// Prints the medians over the rounds of each round's median and 99th percentile.
fn report(times: &[Vec<Vec<Duration>>; 3]) {
    let of_rounds = |rounds: &[Vec<Duration>], percent: usize| {
        let each = rounds.iter().map(|round| {
            let mut sorted = round.clone();
            sorted.sort();
            sorted[sorted.len() * percent / 100].as_nanos() as f64 / 1000.0
        });
        let mut each: Vec<f64> = each.collect();
        each.sort_by(f64::total_cmp);
        each[each.len() / 2]
    };
    let no_load = [50, 99].map(|percent| of_rounds(&times[0], percent));
    println!("{:<40}{:>10}{:>8}{:>10}{:>8}", "probe", "median us", "ratio", "p99 us", "ratio");
    for (name, rounds) in CASES.iter().zip(times) {
        let [median, p99] = [50, 99].map(|percent| of_rounds(rounds, percent));
        println!(
            "{name:<40}{median:>10.1}{:>8.2}{p99:>10.1}{:>8.2}",
            median / no_load[0],
            p99 / no_load[1]
        );
    }
}
