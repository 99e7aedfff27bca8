//! The BFD driver: one task that connects the state machines of all sessions to sockets and the
//! clock.
//!
//! Received packets are processed before expired timers: packets that arrived while the process was
//! stalled still prove that the neighbor is alive.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Instant;

use fastrand::Rng;
use socket2::Domain;
use tokio::sync::{mpsc, oneshot};

use crate::machine::{Change, Output};
use crate::packet::{Discard, Discards, Packet};
use crate::receive::{Datagram, Receiver, port};
use crate::session::Session;
use crate::settings::{Key, Settings, SettingsError};
use crate::status::{BfdStatus, by_name};

/// Maximum number of datagrams read before timers are checked, so that a flood does not delay
/// sending.
const MAX_READS: usize = 512;

/// Parameters of a driver.
pub struct DriverParams {
    /// Seed of discriminators and jitter; must differ at each start, so that discriminators do.
    pub seed: u64,
    /// Receives the events of all sessions.
    pub events: mpsc::UnboundedSender<Event>,
}

/// A session went up or down, or its neighbor now reports AdminDown
/// ([`Change::NeighborAdminDown`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Key of the session.
    pub key: Key,
    /// The change, with the reason if the session went down.
    pub change: Change,
    /// When the state changed, by the monotonic clock.
    pub at: Instant,
}

/// A command to the driver.
enum Command {
    Set(Key, Settings),
    Remove(Key),
    Status(oneshot::Sender<BfdStatus>),
    Stop,
}

/// Handle for commands and queries to a running driver.
#[derive(Clone)]
pub struct Bfd {
    commands: mpsc::UnboundedSender<Command>,
}

impl Bfd {
    /// Creates a session or changes its settings. A session that is up stays up; a session that is
    /// being removed starts again. Without effect after [`Bfd::stop`].
    ///
    /// # Errors
    /// A setting is out of range.
    pub fn set(&self, key: Key, settings: Settings) -> Result<(), SettingsError> {
        settings.check()?;
        // Without effect if the driver has ended, which its owner learns from [`Driver::run`].
        let _ = self.commands.send(Command::Set(key, settings));
        Ok(())
    }

    /// Ends a session. The neighbor is sent AdminDown for its detection time.
    pub fn remove(&self, key: Key) {
        let _ = self.commands.send(Command::Remove(key));
    }

    /// Returns the status of all sessions; `None` if the driver has ended.
    pub async fn status(&self) -> Option<BfdStatus> {
        let (reply, status) = oneshot::channel();
        let _ = self.commands.send(Command::Status(reply));
        status.await.ok()
    }

    /// Ends all sessions for a planned shutdown: neighbors are sent AdminDown for their detection
    /// time, then the driver ends. If the driver is dropped instead, neighbors detect a failure
    /// after the detection time.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }
}

/// A BFD port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on UDP port {port}: {source}{}",
    if source.kind() == io::ErrorKind::AddrInUse {
        "; another BFD daemon uses it (FRR's is bfdd; find it by ss -lunp): stop one of the two"
    } else { "" }
)]
pub struct Error {
    port: u16,
    source: io::Error,
}

/// The driver task.
pub struct Driver {
    params: DriverParams,
    commands: mpsc::UnboundedReceiver<Command>,
    receivers: Vec<Receiver>,
    sessions: BTreeMap<Key, Session>,
    /// Keys by local discriminator.
    keys: BTreeMap<u32, Key>,
    discards: Discards,
    rng: Rng,
    stopping: bool,
}

/// Opens BFD's ports. Must be called within a tokio runtime; nothing happens until the driver runs.
pub fn open(params: DriverParams) -> Result<(Bfd, Driver), Error> {
    let mut receivers = Vec::new();
    for domain in [Domain::IPV4, Domain::IPV6] {
        for multihop in [false, true] {
            match Receiver::open(domain, multihop) {
                Ok(receiver) => receivers.push(receiver),
                // The kernel has no IPv6.
                Err(error) if error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) => {}
                Err(source) => return Err(Error { port: port(multihop), source }),
            }
        }
    }
    let (send, commands) = mpsc::unbounded_channel();
    let driver = Driver {
        rng: Rng::with_seed(params.seed),
        params,
        commands,
        receivers,
        sessions: BTreeMap::new(),
        keys: BTreeMap::new(),
        discards: Discards::default(),
        stopping: false,
    };
    Ok((Bfd { commands: send }, driver))
}

impl Driver {
    /// Runs until all handles are dropped or a stop is complete.
    pub async fn run(mut self) {
        loop {
            self.read();
            self.tick();
            if self.stopping && self.sessions.is_empty() {
                return;
            }
            let due = self.sessions.values().filter_map(|s| s.machine.next_due()).min();
            let due = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.handle_command(command),
                    None => return,
                },
                () = arrival(&self.receivers) => {}
                () = due => {}
            }
        }
    }

    fn read(&mut self) {
        let mut left = MAX_READS;
        for at in 0..self.receivers.len() {
            while left > 0
                && let Some(datagram) = self.receivers[at].next_datagram()
            {
                left -= 1;
                self.receive(&datagram);
            }
        }
    }

    fn receive(&mut self, datagram: &Datagram) {
        let now = Instant::now();
        let found = match parse_datagram(datagram) {
            Ok(packet) => self.find_session(datagram, &packet).map(|key| (packet, key)),
            Err(why) => Err(why),
        };
        let (packet, key) = match found {
            Ok(found) => found,
            Err(why) => return self.discards.count(why),
        };
        let Some(session) = self.sessions.get_mut(&key) else { return };
        match session.receive(datagram, &packet, now) {
            Ok(output) => apply_output(&self.params, session, output, now),
            Err(why) => self.discards.count(why),
        }
    }

    /// Finds the session of a packet (RFC 5880 section 6.8.6): by Your Discriminator alone, or by
    /// addresses and interface if it is 0.
    fn find_session(&self, datagram: &Datagram, packet: &Packet) -> Result<Key, Discard> {
        if packet.your_discriminator != 0 {
            let key = self.keys.get(&packet.your_discriminator);
            let key = key.filter(|key| key.multihop == datagram.multihop);
            return key.cloned().ok_or(Discard::UnknownDiscriminator);
        }
        let mut sessions = self.sessions.values();
        let session = sessions.find(|session| session.matches_datagram(datagram));
        session.map(|session| session.key.clone()).ok_or(Discard::UnknownNeighbor)
    }

    fn tick(&mut self) {
        let now = Instant::now();
        for session in self.sessions.values_mut() {
            if session.machine.next_due().is_some_and(|due| due <= now) {
                let output = session.machine.tick(now);
                apply_output(&self.params, session, output, now);
            }
        }
        let keys = &mut self.keys;
        self.sessions.retain(|_, session| {
            let stays = !session.machine.is_finished();
            if !stays {
                keys.remove(&session.machine.local);
            }
            stays
        });
    }

    fn handle_command(&mut self, command: Command) {
        let now = Instant::now();
        match command {
            Command::Set(key, settings) if !self.stopping => self.set(key, settings, now),
            Command::Set(..) => {}
            Command::Remove(key) => {
                if let Some(session) = self.sessions.get_mut(&key) {
                    let output = session.machine.stop(now);
                    apply_output(&self.params, session, output, now);
                }
            }
            Command::Status(reply) => {
                let status = BfdStatus {
                    sessions: self.sessions.values().map(|session| session.status(now)).collect(),
                    discarded: by_name(&self.discards),
                };
                // The requester may have been dropped.
                let _ = reply.send(status);
            }
            Command::Stop => {
                self.stopping = true;
                for session in self.sessions.values_mut() {
                    let output = session.machine.stop(now);
                    apply_output(&self.params, session, output, now);
                }
            }
        }
    }

    fn set(&mut self, key: Key, settings: Settings, now: Instant) {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.machine.start(now);
            session.machine.set(settings, now);
            return;
        }
        let mut discriminator = self.rng.u32(..);
        while discriminator == 0 || self.keys.contains_key(&discriminator) {
            discriminator = self.rng.u32(..);
        }
        let taken: Vec<u16> = self.sessions.values().map(|session| session.port).collect();
        let seed = self.rng.u64(..);
        let session = Session::new(key.clone(), settings, discriminator, seed, &taken, now);
        self.keys.insert(discriminator, key.clone());
        self.sessions.insert(key, session);
    }
}

/// Parses a datagram and performs the checks that need no session.
fn parse_datagram(datagram: &Datagram) -> Result<Packet, Discard> {
    // A TTL of 255 proves that the sender is on the same link (RFC 5881 section 5).
    if !datagram.multihop && datagram.ttl != u8::MAX {
        return Err(Discard::Hops);
    }
    Packet::parse(&datagram.bytes[..datagram.length])
}

/// Sends the packet of `output`, and logs and reports its change.
fn apply_output(params: &DriverParams, session: &mut Session, output: Output, now: Instant) {
    if let Some(packet) = output.send {
        session.send(&packet);
    }
    let Some(change) = output.change else { return };
    let neighbor = &session.key;
    match change {
        Change::Up => tracing::info!(event = "bfd_session_up", %neighbor, "BFD session up"),
        Change::Down(reason) if reason.is_failure() => {
            tracing::warn!(event = "bfd_session_failed", %neighbor, %reason, "BFD session failed");
        }
        Change::Down(reason) => {
            tracing::info!(event = "bfd_session_down", %neighbor, %reason, "BFD session down")
        }
        Change::NeighborAdminDown => {
            tracing::info!(
                event = "bfd_neighbor_admin_down",
                %neighbor,
                "BFD neighbor is administratively down"
            )
        }
    }
    // The receiver may be gone.
    let _ = params.events.send(Event { key: session.key.clone(), change, at: now });
}

/// Completes when a receiver may have a datagram.
async fn arrival(receivers: &[Receiver]) {
    poll_fn(|context| {
        let ready = receivers.iter().filter(|receiver| receiver.poll(context).is_ready()).count();
        if ready > 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
