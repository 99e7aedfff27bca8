//! A tunnel backend: takes packets out of GENEVE, VXLAN, IPIP (four family mixes) and GUE, for this
//! kernel has none of them but VXLAN.
//!
//! What it takes out goes to the kernel by a TUN device, so that a real server answers; or, as an
//! inspection appliance does, straight back as it came.

use super::error::{LabError, Result};
use super::netns::Netns;
use super::tun::{LARGEST, Tun, wait};
use super::wire::{Header, Tuple};
use envelope::{Envelope, Kind};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

mod envelope;
mod socket;

pub use envelope::Kind as TunnelKind;
use socket::Socket;

/// What becomes of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel routes them as it likes: direct server return.
    Plain,
    /// They go back by the tunnel that the request came by, GENEVE options and all.
    Tunnel,
    /// There are none: each packet goes back as it came, unchanged.
    Inspect,
}

/// Flows whose way back is remembered; the oldest are forgotten all at once.
const FLOWS: usize = 65_536;

/// What it did so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Packets taken out, by tunnel kind in the order of [`TunnelKind::ALL`].
    pub taken: [AtomicU64; Kind::ALL.len()],
    /// Packets sent back by a tunnel.
    pub sent_back: AtomicU64,
    /// Packets that were no such tunnel, or answers of no known flow.
    pub ignored: AtomicU64,
}

impl Counts {
    /// How many came by `kind`.
    pub fn taken(&self, kind: Kind) -> u64 {
        self.taken[kind as usize].load(Ordering::Relaxed)
    }
}

/// A running tunnel backend.
pub struct Decap {
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

struct Shared {
    tun: Option<Tun>,
    sockets: Vec<Socket>,
    answer: Answer,
    flows: Mutex<HashMap<Tuple, (usize, Envelope)>>,
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
}

impl Decap {
    /// Starts a tunnel backend in `ns`, with TUN device `decap0`; the caller routes and addresses.
    pub fn start(ns: &Netns, answer: Answer) -> Result<Self> {
        ns.run(move || Self::start_here("decap0", answer))?
    }

    /// The same in the calling thread's namespace.
    pub fn start_here(tun: &str, answer: Answer) -> Result<Self> {
        let sockets = Kind::ALL.iter().map(|kind| Socket::open(*kind)).collect::<Result<_>>()?;
        let tun = match answer {
            Answer::Inspect => None,
            // Room for what fits into any tunnel over a jumbo wire.
            _ => Some(Tun::here(tun, 8_900)?),
        };
        let (counts, stop) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
        let flows = Mutex::default();
        let (count, stopped) = (counts.clone(), stop.clone());
        let shared = Shared { tun, sockets, answer, flows, counts: count, stop: stopped };
        let (shared, mut threads) = (Arc::new(shared), Vec::new());
        for at in 0..shared.sockets.len() {
            let shared = shared.clone();
            threads.push(spawn(move || shared.take(at))?);
        }
        if answer == Answer::Tunnel {
            threads.push(spawn(move || shared.give_back())?);
        }
        Ok(Self { counts, stop, threads })
    }

    /// What it did so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

fn spawn(work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<JoinHandle<Result<()>>> {
    let thread = std::thread::Builder::new().name("decap".into());
    thread.spawn(work).map_err(LabError::io("a thread of the tunnel backend"))
}

impl Drop for Decap {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if let Ok(Err(e)) = thread.join() {
                eprintln!("tunnel backend: {e}");
            }
        }
    }
}

impl Shared {
    /// Takes packets out of one kind of tunnel.
    fn take(&self, at: usize) -> Result<()> {
        let (socket, mut buffer) = (&self.sockets[at], vec![0; LARGEST]);
        while !self.stop.load(Ordering::Relaxed) {
            let Some((peer, payload)) = socket.receive(&mut buffer)? else {
                wait(socket)?;
                continue;
            };
            let read = Envelope::read(socket.kind(), peer, payload);
            let inner = read.and_then(|envelope| {
                let inner = &payload[envelope.front_len()..];
                Some((envelope, inner, Header::read(inner, false)?))
            });
            let Some((envelope, inner, header)) = inner else {
                self.counts.ignored.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            self.counts.taken[socket.kind() as usize].fetch_add(1, Ordering::Relaxed);
            match (&self.tun, self.answer) {
                (Some(tun), answer) => {
                    if answer == Answer::Tunnel {
                        self.remember(Tuple::of(inner, &header), at, envelope);
                    }
                    tun.write(inner);
                }
                (None, _) => self.send(at, &envelope, inner),
            }
        }
        Ok(())
    }

    fn remember(&self, tuple: Tuple, at: usize, envelope: Envelope) {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        if flows.len() >= FLOWS {
            flows.clear();
        }
        flows.insert(tuple, (at, envelope));
    }

    /// Puts the kernel's answers into the tunnel of their flow.
    fn give_back(&self) -> Result<()> {
        let Some(tun) = &self.tun else { return Ok(()) };
        let mut buffer = vec![0; LARGEST];
        while !self.stop.load(Ordering::Relaxed) {
            let Some(inner) = tun.read(&mut buffer)? else { continue };
            let flow = Header::read(inner, false).and_then(|header| {
                let tuple = Tuple::of(inner, &header).reversed();
                let flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
                flows.get(&tuple).cloned()
            });
            match flow {
                Some((at, envelope)) => self.send(at, &envelope, inner),
                None => _ = self.counts.ignored.fetch_add(1, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    fn send(&self, at: usize, envelope: &Envelope, inner: &[u8]) {
        if self.sockets[at].send(envelope.peer(), &envelope.around(inner)) {
            self.counts.sent_back.fetch_add(1, Ordering::Relaxed);
        }
    }
}
