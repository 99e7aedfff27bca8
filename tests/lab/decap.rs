//! A tunnel backend: decapsulates GENEVE, VXLAN, IPIP (four combinations of address families) and
//! GUE, since the kernel of the test machines supports only VXLAN of these.
//!
//! Inner packets are passed to the kernel through a TUN device, so that a real server answers, or
//! are sent back unchanged, as by an inspection appliance.

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

/// How a tunnel backend answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// By the kernel's routing table: direct server return.
    Plain,
    /// Through the tunnel of the request, with the request's GENEVE options.
    Tunnel,
    /// No answers: each packet is sent back unchanged.
    Inspect,
}

/// The maximum number of flows with a recorded return path; when it is reached, all are removed.
const MAX_FLOWS: usize = 65_536;

/// The counters of a tunnel backend.
#[derive(Debug, Default)]
pub struct Counts {
    /// Decapsulated packets by kind of tunnel, in the order of [`TunnelKind::ALL`].
    pub decapsulated: [AtomicU64; Kind::ALL.len()],
    /// Packets sent back through a tunnel.
    pub sent_back: AtomicU64,
    /// Packets without a valid tunnel header and inner packet, and answers without a recorded flow.
    pub ignored: AtomicU64,
}

impl Counts {
    /// Returns the number of packets decapsulated from `kind`.
    pub fn decapsulated(&self, kind: Kind) -> u64 {
        self.decapsulated[kind as usize].load(Ordering::Relaxed)
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
    /// Starts a tunnel backend in `ns` with TUN device `decap0`; the caller adds routes and
    /// addresses.
    pub fn start(ns: &Netns, answer: Answer) -> Result<Self> {
        ns.run(move || Self::start_in_current_ns("decap0", answer))?
    }

    /// Starts a tunnel backend in the calling thread's namespace.
    pub fn start_in_current_ns(tun: &str, answer: Answer) -> Result<Self> {
        let sockets = Kind::ALL.iter().map(|kind| Socket::open(*kind)).collect::<Result<_>>()?;
        let tun = match answer {
            Answer::Inspect => None,
            // Large enough for any inner packet over a jumbo wire.
            _ => Some(Tun::create(tun, 8_900)?),
        };
        let (counts, stop) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
        let flows = Mutex::default();
        let (count, stopped) = (counts.clone(), stop.clone());
        let shared = Shared { tun, sockets, answer, flows, counts: count, stop: stopped };
        let (shared, mut threads) = (Arc::new(shared), Vec::new());
        for at in 0..shared.sockets.len() {
            let shared = shared.clone();
            threads.push(spawn(move || shared.receive(at))?);
        }
        if answer == Answer::Tunnel {
            threads.push(spawn(move || shared.send_answers())?);
        }
        Ok(Self { counts, stop, threads })
    }

    /// Returns the counters.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

fn spawn(work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<JoinHandle<Result<()>>> {
    let thread = std::thread::Builder::new().name("decap".into());
    thread.spawn(work).map_err(LabError::io("starting a thread of the tunnel backend"))
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
    /// Decapsulates packets of one kind of tunnel.
    fn receive(&self, at: usize) -> Result<()> {
        let (socket, mut buffer) = (&self.sockets[at], vec![0; LARGEST]);
        while !self.stop.load(Ordering::Relaxed) {
            let Some((peer, payload)) = socket.receive(&mut buffer)? else {
                wait(socket)?;
                continue;
            };
            let read = Envelope::read(socket.kind(), peer, payload);
            let inner = read.and_then(|envelope| {
                let inner = &payload[envelope.front_len()..];
                Some((envelope, inner, Header::read(inner)?))
            });
            let Some((envelope, inner, header)) = inner else {
                self.counts.ignored.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            self.counts.decapsulated[socket.kind() as usize].fetch_add(1, Ordering::Relaxed);
            match (&self.tun, self.answer) {
                (Some(tun), answer) => {
                    if answer == Answer::Tunnel {
                        self.record(Tuple::of(inner, &header), at, envelope);
                    }
                    tun.write(inner);
                }
                (None, _) => self.send(at, &envelope, inner),
            }
        }
        Ok(())
    }

    /// Records the return path of a flow.
    fn record(&self, tuple: Tuple, at: usize, envelope: Envelope) {
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        if flows.len() >= MAX_FLOWS {
            flows.clear();
        }
        flows.insert(tuple, (at, envelope));
    }

    /// Encapsulates the kernel's answers in the tunnel of their flow.
    fn send_answers(&self) -> Result<()> {
        let Some(tun) = &self.tun else { return Ok(()) };
        let mut buffer = vec![0; LARGEST];
        while !self.stop.load(Ordering::Relaxed) {
            let Some(inner) = tun.read(&mut buffer)? else { continue };
            let flow = Header::read(inner).and_then(|header| {
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

    /// Sends `inner` back through socket number `at`.
    fn send(&self, at: usize, envelope: &Envelope, inner: &[u8]) {
        if self.sockets[at].send(envelope.peer(), &envelope.around(inner)) {
            self.counts.sent_back.fetch_add(1, Ordering::Relaxed);
        }
    }
}
