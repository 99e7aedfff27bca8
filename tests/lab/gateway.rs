//! The emulated AWS gateway: reads packets from a TUN device, sends them to an appliance as a
//! Gateway Load Balancer does, and checks returning packets byte for byte.
//!
//! The gateway has up to two sides. *Near* is the clients' side. *Far*, which is optional, has the
//! addresses of servers without a service in Weir, so that a flow that the appliance returns
//! reaches a server. The wire is an interface with one address per gateway node.

mod incoming;
pub mod ledger;
pub mod report;
mod setup;
pub mod wire_socket;

pub use report::{Check, Report};
pub use setup::{Admits, GatewaySetup, Side};

use super::error::{LabError, Result};
use super::netns::Netns;
use super::tun::{LARGEST, POLL_INTERVAL, Tun};
use ledger::Ledger;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire_socket::Wire;

/// The state that the gateway's threads share.
struct Shared {
    ledger: Mutex<Ledger>,
    wire: Wire,
    near: Tun,
    far: Option<Tun>,
    /// Clients whose packets are delayed, each with its delay and the queue of its thread.
    delayed: Vec<(Ipv4Addr, Duration, Sender<Delayed>)>,
    stop: AtomicBool,
}

/// A packet for a client, and the time at which it is delivered.
type Delayed = (Instant, Vec<u8>);

/// A running gateway.
pub struct Gateway {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
    return_timeout: Duration,
}

impl Gateway {
    /// Starts the gateway with its wire in `ns`; the TUN devices may be in any namespace.
    pub fn start(ns: &Netns, setup: GatewaySetup, near: Tun, far: Option<Tun>) -> Result<Self> {
        ns.run(move || Self::start_in_current_ns(setup, near, far))?
    }

    /// Starts the gateway with its wire in the calling thread's namespace.
    pub fn start_in_current_ns(setup: GatewaySetup, near: Tun, far: Option<Tun>) -> Result<Self> {
        setup.check()?;
        let wire = Wire::open(&setup.wire, setup.port)?;
        let return_timeout = setup.return_timeout;
        let (mut delayed, mut due) = (Vec::new(), Vec::new());
        for (to, delay) in &setup.delays {
            let (sender, receiver) = channel();
            delayed.push((*to, *delay, sender));
            due.push(receiver);
        }
        let ledger = Mutex::new(Ledger::new(setup));
        let stop = AtomicBool::new(false);
        let shared = Arc::new(Shared { ledger, wire, near, far, delayed, stop });
        let mut threads = Vec::new();
        let mut thread = |name: &str, work: fn(&Shared) -> Result<()>| {
            let shared = shared.clone();
            let spawned = std::thread::Builder::new().name(name.into());
            let spawned = spawned.spawn(move || work(&shared));
            let failed = LabError::io("starting a thread of the gateway");
            spawned.map(|t| threads.push(t)).map_err(failed)
        };
        thread("gateway-near", |shared| shared.send_from(&shared.near))?;
        thread("gateway-far", |shared| match &shared.far {
            Some(far) => shared.send_from(far),
            None => Ok(()),
        })?;
        thread("gateway-wire", Shared::receive)?;
        for packets in due {
            let shared = shared.clone();
            let spawned = std::thread::Builder::new().name("gateway-delay".into());
            let spawned = spawned.spawn(move || shared.deliver_when_due(&packets));
            threads.push(spawned.map_err(LabError::io("starting a thread of the gateway"))?);
        }
        Ok(Self { shared, threads, return_timeout })
    }

    /// Returns the report so far.
    pub fn report(&self) -> Report {
        self.shared.ledger().report()
    }

    /// Sets which packets are sent to appliances from now on; the others are dropped and counted.
    pub fn admit(&self, admits: Admits) {
        self.shared.ledger().admit(admits);
    }

    /// Waits until the gateway has sent and received no packet for half a second, at most 30 s, so
    /// that connections that are being closed are complete.
    pub fn wait_until_at_rest(&self) {
        for _ in 0..60 {
            let before = self.report();
            std::thread::sleep(Duration::from_millis(500));
            let now = self.report();
            let moved = |report: &Report| (report.sent, report.returned, report.answered);
            if moved(&now) == moved(&before) {
                break;
            }
        }
    }

    /// Waits for awaited packets, at most for [`GatewaySetup::return_timeout`] and half a second.
    /// Then stops the gateway and returns its report.
    pub fn stop(mut self) -> Result<Report> {
        let deadline = Instant::now() + self.return_timeout + Duration::from_millis(500);
        while self.report().awaited > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let gone = |_| LabError::Other("a thread of the gateway panicked".into());
            thread.join().map_err(gone)??;
        }
        self.shared.ledger().expire(Instant::now());
        Ok(self.report())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // `stop` reports the threads' errors; a gateway dropped without it ignores them.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sends one side's packets to the appliances.
    fn send_from(&self, side: &Tun) -> Result<()> {
        let mut buffer = vec![0; LARGEST];
        while !self.stopped() {
            let Some(inner) = side.read(&mut buffer)? else { continue };
            // The packet is recorded before it is sent, because the answer may arrive before this
            // thread continues.
            let outgoing = self.ledger().outgoing(inner, Instant::now());
            if let Some((to, packet)) = outgoing
                && !self.wire.send(to, &packet)
            {
                self.ledger().not_sent(inner);
            }
        }
        Ok(())
    }

    /// Delivers the wire's packets to the sides.
    fn receive(&self) -> Result<()> {
        let mut buffer = vec![0; LARGEST];
        let mut swept = Instant::now();
        while !self.stopped() {
            let now = Instant::now();
            if now - swept > Duration::from_millis(200) {
                self.ledger().expire(now);
                swept = now;
            }
            let Some(frame) = self.wire.receive(&mut buffer)? else { continue };
            let right = self.ledger().incoming(frame, Instant::now());
            if let Some((side, inner)) = right {
                let delay = self.delayed.iter().find(|(to, ..)| inner[16..20] == to.octets());
                let accepted = match (side, &self.far, delay) {
                    (Side::Far, Some(far), _) => far.write(inner),
                    (_, _, Some((_, delay, packets))) if inner[0] >> 4 == 4 => {
                        // Counted when it is delivered.
                        let _ = packets.send((Instant::now() + *delay, inner.to_vec()));
                        continue;
                    }
                    _ => self.near.write(inner),
                };
                self.ledger().delivered(accepted);
            }
        }
        Ok(())
    }

    /// Delivers the packets of one client, each at its time.
    fn deliver_when_due(&self, packets: &Receiver<Delayed>) -> Result<()> {
        while !self.stopped() {
            let Ok((due, packet)) = packets.recv_timeout(POLL_INTERVAL) else { continue };
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let accepted = self.near.write(&packet);
            self.ledger().delivered(accepted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
