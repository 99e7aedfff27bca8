//! A small HTTP/1.1 server that reports its name and sends bodies that a client can verify.
//!
//! `GET /SEED/LENGTH` returns LENGTH bytes derived from SEED by [`body_byte`]; the header
//! `x-backend` contains the server's name. `GET /` returns the name as text. A connection stays
//! open until the client closes it, sends `connection: close`, or is idle for a minute.

use super::error::{LabError, Result};
use super::netns::Netns;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The maximum body length in bytes, more than any test requests.
const LARGEST: usize = 64 << 20;

/// Returns the byte at offset `at` of the body with this seed. It depends on both, so that a
/// misplaced byte is detected.
pub fn body_byte(seed: u64, at: usize) -> u8 {
    let mixed = (seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// The counters of a server.
#[derive(Debug, Default)]
pub struct ServerStats {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Requests answered.
    pub requests: AtomicU64,
}

/// A running server.
pub struct Server {
    name: String,
    address: SocketAddr,
    stats: Arc<ServerStats>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server named `name` on `address` in `ns`.
    pub fn start(ns: &Netns, name: &str, address: SocketAddr) -> Result<Self> {
        let listener = ns.run(move || {
            let what = format!("listening on {address}");
            let listener = TcpListener::bind(address).map_err(LabError::io(what.clone()))?;
            listener.set_nonblocking(true).map_err(LabError::io(what))?;
            Ok::<_, LabError>(listener)
        })??;
        let (stats, stop) = (Arc::new(ServerStats::default()), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (name, stats, stop) = (name.to_owned(), stats.clone(), stop.clone());
            let thread = std::thread::Builder::new().name(format!("http-{name}"));
            thread.spawn(move || accept(&listener, &name, &stats, &stop))
        };
        let thread = Some(thread.map_err(LabError::io("starting a server thread"))?);
        Ok(Self { name: name.to_owned(), address, stats, stop, thread })
    }

    /// Returns the server's name, as clients see it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters.
    pub fn stats(&self) -> &ServerStats {
        &self.stats
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed.
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, name: &str, stats: &Arc<ServerStats>, stop: &Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        // The wait is bounded, so that the loop notices `stop`. An error ends the server.
        if super::tun::wait(listener).is_err() {
            return;
        }
        while let Ok((stream, _)) = listener.accept() {
            stats.connections.fetch_add(1, Ordering::Relaxed);
            let (name, stats, stop) = (name.to_owned(), stats.clone(), stop.clone());
            let work = move || {
                // A client that disconnects early reports that failure itself.
                let _ = serve(stream, &name, &stats, &stop);
            };
            if std::thread::Builder::new().name("http-connection".into()).spawn(work).is_err() {
                return;
            }
        }
    }
}

fn serve(
    stream: TcpStream,
    name: &str,
    stats: &ServerStats,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    // An idle connection is closed after a minute, so that its thread ends.
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let (mut reader, mut writer) = (BufReader::new(stream.try_clone()?), BufWriter::new(stream));
    let mut line = String::new();
    while !stop.load(Ordering::Relaxed) {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let request = parse(&line);
        let is_root = line.starts_with("GET / ");
        let mut close = false;
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 || line.len() > 8_192 {
                return Ok(());
            }
            close |= line.trim_end().eq_ignore_ascii_case("connection: close");
            if line.trim_end().is_empty() {
                break;
            }
        }
        let (status, seed, len) =
            request.map_or(("404 Not Found", 0, 0), |(s, l)| ("200 OK", s, l));
        if is_root {
            let len = name.len() + 1;
            write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n{name}\n")?;
        } else {
            let head = format!("content-length: {len}\r\nx-backend: {name}");
            write!(writer, "HTTP/1.1 {status}\r\n{head}\r\n\r\n")?;
        }
        for chunk in (0..len).step_by(65_536) {
            let end = len.min(chunk + 65_536);
            let body: Vec<u8> = (chunk..end).map(|at| body_byte(seed, at)).collect();
            writer.write_all(&body)?;
        }
        // Counted before the end of the response is sent, so that a client's count does not exceed
        // the server's, except for bodies larger than the writer's buffer (8 KiB), which are sent
        // above.
        stats.requests.fetch_add(1, Ordering::Relaxed);
        writer.flush()?;
        if close {
            return Ok(());
        }
    }
    Ok(())
}

/// Parses `GET /SEED/LENGTH HTTP/1.1`.
fn parse(line: &str) -> Option<(u64, usize)> {
    let path = line.strip_prefix("GET /")?.split(' ').next()?;
    let (seed, len) = path.split_once('/')?;
    let len = len.parse().ok().filter(|len| *len <= LARGEST)?;
    Some((seed.parse().ok()?, len))
}
