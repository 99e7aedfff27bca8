//! An HTTP client that verifies every response: a bounded number of requests over connections
//! that carry a set number of requests each.

use super::error::{LabError, Result};
use super::netns::Netns;
use super::server::body_byte;
use patience::poll;
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The load that a client makes.
#[derive(Clone, Debug)]
pub struct Load {
    /// The address of the server.
    pub target: SocketAddr,
    /// The client's own addresses, which connections use in turn. If empty, the kernel selects one.
    pub sources: Vec<IpAddr>,
    /// Total number of requests.
    pub requests: u64,
    /// Number of concurrent workers.
    pub workers: u64,
    /// Requests per connection; at least 1.
    pub per_connection: u64,
    /// The lengths of the bodies in bytes, which requests use in turn.
    pub lengths: Vec<usize>,
    /// The pause of each worker after each request.
    pub pause: Duration,
    /// The time limit of one `connect`, `read` or `write` call.
    pub patience: Duration,
}

impl Load {
    /// Creates a load with defaults: eight workers, five requests per connection, bodies of 10 to
    /// 20,000 bytes.
    pub fn new(target: SocketAddr, requests: u64) -> Self {
        Self {
            target,
            sources: Vec::new(),
            requests,
            workers: 8,
            per_connection: 5,
            lengths: vec![10, 1_000, 20_000],
            pause: Duration::ZERO,
            // Only an upper bound: a daemon may restart during a request, and TCP's retransmission
            // timeouts double.
            patience: Duration::from_secs(30),
        }
    }
}

/// The results of a client.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientStats {
    /// Requests with a correct response.
    pub right: u64,
    /// Failed requests of any kind.
    pub failed: u64,
    /// Descriptions of the first ten failures.
    pub failures: Vec<String>,
    /// Established connections.
    pub connections: u64,
    /// Responses on a connection from another backend than before: a moved flow.
    pub moved: u64,
    /// Correct responses by backend.
    pub by_backend: BTreeMap<String, u64>,
    /// Connections by the backend of their first response.
    pub connections_by_backend: BTreeMap<String, u64>,
    /// The longest response time.
    pub slowest: Duration,
}

impl std::fmt::Display for ClientStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { right, failed, connections, moved, slowest, .. } = self;
        writeln!(
            f,
            "{right} correct responses, {failed} failed requests, {connections} connections, \
             {moved} responses from another backend than before; slowest response {slowest:.1?}"
        )?;
        for (backend, requests) in &self.by_backend {
            let connections = self.connections_by_backend.get(backend).unwrap_or(&0);
            writeln!(f, "  {backend}: {requests} requests, {connections} connections")?;
        }
        self.failures.iter().try_for_each(|failure| writeln!(f, "  FAILED {failure}"))
    }
}

struct Shared {
    load: Load,
    next: AtomicU64,
    stop: AtomicBool,
    stats: Mutex<ClientStats>,
    /// The numbers of the requests that have neither a response nor an error yet.
    open: Mutex<BTreeSet<u64>>,
}

/// A running client.
pub struct Client {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Result<()>>>,
}

impl Client {
    /// Starts the client in `ns`.
    pub fn start(ns: &Netns, load: Load) -> Result<Self> {
        let workers = load.workers;
        let shared = Arc::new(Shared {
            load,
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            stats: Mutex::default(),
            open: Mutex::default(),
        });
        let start = |_| {
            let shared = shared.clone();
            ns.thread("http-client", move || shared.work())
        };
        let workers = (0..workers).map(start).collect::<Result<_>>()?;
        Ok(Self { shared, workers })
    }

    /// Returns the results so far.
    pub fn stats(&self) -> ClientStats {
        self.shared.stats().clone()
    }

    /// Returns whether all workers have ended.
    pub fn finished(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Waits for at least `requests` correct responses; fails early if all workers have ended.
    pub fn wait_for(&self, requests: u64, patience: Duration) -> Result<()> {
        let done = poll(&format!("{requests} correct responses"), patience, || {
            let stats = self.stats();
            match (stats.right >= requests, self.finished()) {
                (true, _) => Ok(Ok(())),
                (false, true) => Ok(Err(stats.to_string())),
                (false, false) => Err(stats.to_string()),
            }
        })?;
        let what = "all workers ended before";
        done.map_err(|stats| {
            LabError::Other(format!("{what} {requests} correct responses: {stats}"))
        })
    }

    /// Waits until every request that is open now has a response or has failed. After a
    /// disturbance, every connection then works again or has failed.
    pub fn wait_for_open(&self, patience: Duration) -> Result<()> {
        let requests = self.shared.open().clone();
        poll("responses to all open requests", patience, || {
            let left = self.shared.open().intersection(&requests).count();
            if left == 0 { Ok(()) } else { Err(format!("{left} of {} still open", requests.len())) }
        })?;
        Ok(())
    }

    /// Waits until all requests were made and have a response or an error, and returns the
    /// results.
    pub fn finish(mut self) -> Result<ClientStats> {
        self.join()?;
        Ok(self.stats())
    }

    /// Stops making requests; open ones are completed.
    pub fn stop_requests(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    fn join(&mut self) -> Result<()> {
        for worker in self.workers.drain(..) {
            let gone = |_| LabError::Other("a client worker panicked".into());
            worker.join().map_err(gone)??;
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop_requests();
        // `finish` reports the workers' errors; a client dropped without it ignores them.
        let _ = self.join();
    }
}

/// A worker's connection.
struct Connection {
    reader: BufReader<TcpStream>,
    backend: Option<String>,
    requests: u64,
}

impl Shared {
    fn stats(&self) -> MutexGuard<'_, ClientStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes requests until all are made or the client is stopped; run by each worker.
    fn work(&self) {
        let mut idle: Option<Connection> = None;
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.load.requests {
                return;
            }
            let begun = Instant::now();
            self.open().insert(number);
            let answered = self.request(number, &mut idle);
            self.open().remove(&number);
            match answered {
                Ok(backend) => self.record_correct(backend, begun.elapsed()),
                Err(e) => {
                    idle = None;
                    let mut stats = self.stats();
                    stats.failed += 1;
                    if stats.failures.len() < 10 {
                        let after = begun.elapsed();
                        stats.failures.push(format!("request {number} after {after:.1?}: {e}"));
                    }
                }
            }
            std::thread::sleep(self.load.pause);
        }
    }

    fn record_correct(&self, backend: String, took: Duration) {
        let mut stats = self.stats();
        stats.right += 1;
        stats.slowest = stats.slowest.max(took);
        *stats.by_backend.entry(backend).or_default() += 1;
    }

    fn connect(&self, number: u64) -> std::io::Result<Connection> {
        let Load { target, ref sources, patience, .. } = self.load;
        let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
        if let Some(source) = sources.get(number as usize % sources.len().max(1)) {
            socket.bind(&SocketAddr::new(*source, 0).into())?;
        }
        socket.connect_timeout(&target.into(), patience)?;
        let stream: TcpStream = socket.into();
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        self.stats().connections += 1;
        Ok(Connection { reader: BufReader::new(stream), backend: None, requests: 0 })
    }

    /// Makes one request on the idle connection or a new one; returns the name of the backend.
    fn request(&self, number: u64, idle: &mut Option<Connection>) -> std::io::Result<String> {
        let mut connection = match idle.take() {
            Some(connection) => connection,
            None => self.connect(number)?,
        };
        let len = self.load.lengths[number as usize % self.load.lengths.len()];
        connection.requests += 1;
        let last = connection.requests >= self.load.per_connection;
        let close = if last { "connection: close\r\n" } else { "" };
        let stream = connection.reader.get_mut();
        stream.write_all(
            format!("GET /{number}/{len} HTTP/1.1\r\nhost: lab\r\n{close}\r\n").as_bytes(),
        )?;
        let backend = read_response(&mut connection.reader, number, len)?;
        match &connection.backend {
            None => {
                let mut stats = self.stats();
                *stats.connections_by_backend.entry(backend.clone()).or_default() += 1;
            }
            Some(before) if *before != backend => self.stats().moved += 1,
            Some(_) => {}
        }
        connection.backend = Some(backend.clone());
        if !last {
            *idle = Some(connection);
        }
        Ok(backend)
    }
}

/// Reads one response, checks status, length and every byte of the body, and returns the backend.
fn read_response(reader: &mut impl BufRead, seed: u64, len: usize) -> std::io::Result<String> {
    let wrong = |reason: String| std::io::Error::new(std::io::ErrorKind::InvalidData, reason);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if line.is_empty() {
        return Err(wrong("connection closed before the response".into()));
    }
    if !line.starts_with("HTTP/1.1 200") {
        return Err(wrong(format!("status is not 200: {:?}", line.trim_end())));
    }
    let (mut backend, mut content_length) = (None, None);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(wrong("connection closed within the header".into()));
        }
        match line.trim_end().split_once(": ") {
            Some(("x-backend", name)) => backend = Some(name.to_owned()),
            Some(("content-length", text)) => content_length = text.parse::<usize>().ok(),
            Some(_) => {}
            None if line.trim_end().is_empty() => break,
            None => return Err(wrong(format!("not a header: {:?}", line.trim_end()))),
        }
    }
    if content_length != Some(len) {
        return Err(wrong(format!("content-length is {content_length:?}, expected {len}")));
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body)?;
    match body.iter().enumerate().find(|(at, byte)| **byte != body_byte(seed, *at)) {
        Some((at, byte)) => Err(wrong(format!("byte {at} of the body is wrong: {byte:02x}"))),
        None => backend.ok_or_else(|| wrong("no x-backend in the response".into())),
    }
}
