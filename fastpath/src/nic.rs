//! The NICs of the arms over their lifetime: open, forward, reset, disappear, return.
//!
//! The control thread calls [`ArmNic::step`] every 100 ms, and without pause during a transition.
//! A faulty NIC is taken from the lcores ([`Exchange`]), repaired or opened again, and given back;
//! the lcores and the flows continue. Meanwhile the arm's link counts as down, so that the
//! appliance reports that it cannot serve.
//!
//! ```text
//!               reset requested, or sending stalled
//!   Running ──────────────────────> Withdrawing ──reset, configure, start──> Running
//!      └────── device removed ────> Withdrawing ──remove──> Removed
//!                                       Removed ──probe, configure, start──> Running
//! ```

pub mod rules;
mod stall;
pub mod target;

use crate::exchange::{ArmQueues, Exchange};
use config::checked::Arm;
use dpdk_bindings::{Eal, Link, Mempool, Port, PortCounters, PortError, PortEvents, PortOptions};
use host::address::MacAddress;
use stall::StallDetector;
use std::time::{Duration, Instant};
use tables::nic::{Nic, NicCounters, NicState};
use tables::region::Region;
use target::Target;

/// The interval between reads of the driver's counters.
const COUNTER_INTERVAL: Duration = Duration::from_secs(1);

/// The interval between attempts to open a NIC that is gone.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum time between two resets because of stalled sending: a NIC that does not recover
/// would otherwise spend its time in resets.
const STALL_RESET_INTERVAL: Duration = Duration::from_secs(10);

/// The arguments of [`ArmNic::step`] that are the same for both arms.
pub struct Context<'a> {
    /// The running DPDK.
    pub eal: &'a Eal,
    /// The pool of received packets.
    pub pool: &'a Mempool,
    /// The region.
    pub region: &'a Region,
    /// The lcores' mailboxes.
    pub exchange: &'a Exchange,
}

/// The reason for which a NIC is taken from the lcores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Its driver requested a reset.
    Reset,
    /// An lcore's frames were all dropped for one second, since its transmit queue was full.
    Stall,
    /// It is being removed from the machine.
    Removal,
}

impl Fault {
    const fn text(self) -> &'static str {
        match self {
            Fault::Reset => "its driver requested a reset",
            Fault::Stall => "it accepted no frame for a second while its link was up",
            Fault::Removal => "it is being removed from the machine",
        }
    }
}

#[derive(Debug)]
enum State {
    Running(Port),
    Withdrawing(Port, Fault),
    /// The NIC is gone; the next attempt to open it is due at the given time.
    Removed(Instant),
}

/// The NIC of one arm.
#[derive(Debug)]
pub struct ArmNic {
    /// Index of the arm.
    index: usize,
    /// Name of the arm.
    arm: &'static str,
    settings: Arm,
    target: Target,
    /// Number of lcores, each of which has a transmit queue.
    lcores: u16,
    /// `None` only within a step, during a state transition.
    state: Option<State>,
    mac: [u8; 6],
    /// The status as last published in the region.
    published: Nic,
    /// The driver's counters at the last read.
    counted: NicCounters,
    next_read: Option<Instant>,
    stalls: StallDetector,
    last_stall_reset: Option<Instant>,
    /// The last error of an attempt to open the NIC, which is logged once.
    last_error: Option<String>,
}

impl ArmNic {
    /// Opens the port of an arm.
    ///
    /// # Errors
    /// Returns the error of [`Target::open`] or of the driver.
    pub fn open(
        eal: &Eal,
        region: &Region,
        (index, arm): (usize, &'static str),
        settings: &Arm,
        target: Target,
        lcores: u16,
    ) -> Result<ArmNic, PortError> {
        let port = target.open(eal)?;
        let mac = port.mac()?;
        // What the NIC counted before a restart of this process stays counted.
        let before = region.nics().recover(index);
        let published =
            Nic { counters: before.counters, events: before.events, mac, ..Nic::default() };
        Ok(ArmNic {
            index,
            arm,
            settings: settings.clone(),
            target,
            lcores,
            state: Some(State::Running(port)),
            mac,
            published,
            counted: NicCounters::default(),
            next_read: None,
            stalls: StallDetector::default(),
            last_stall_reset: None,
            last_error: None,
        })
    }

    /// Returns the name of the arm.
    pub fn arm(&self) -> &'static str {
        self.arm
    }

    /// Returns the device as configured.
    pub fn device(&self) -> &str {
        self.settings.device.as_str()
    }

    /// Returns the MAC address, which stays the same as long as this process runs.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Returns the open port, if there is one.
    pub fn port(&self) -> Option<&Port> {
        match self.state.as_ref()? {
            State::Running(port) | State::Withdrawing(port, _) => Some(port),
            State::Removed(_) => None,
        }
    }

    /// Configures the port and starts it. Returns the queues of each lcore.
    ///
    /// # Errors
    /// Returns the error of the driver.
    pub fn start(&mut self, pool: &Mempool) -> Result<Vec<ArmQueues>, PortError> {
        let Some(State::Running(port)) = &mut self.state else { return Ok(Vec::new()) };
        let queues = start(port, &self.settings, pool, self.lcores)?;
        self.record_start();
        Ok(queues)
    }

    /// Closes the port. Its queues must have been dropped.
    ///
    /// # Errors
    /// Returns the error of the driver.
    pub fn close(self) -> Result<(), PortError> {
        match self.state {
            Some(State::Running(port) | State::Withdrawing(port, _)) => port.close(),
            Some(State::Removed(_)) | None => Ok(()),
        }
    }

    /// Returns true while the NIC is being taken from the lcores, which takes microseconds: its
    /// next step is due at once.
    pub fn is_in_transition(&self) -> bool {
        matches!(self.state, Some(State::Withdrawing(..)))
    }

    /// Checks the NIC, performs the next transition of a faulty one, and publishes state and
    /// counters. Returns true if the NIC runs and its link is up.
    pub fn step(&mut self, context: &Context<'_>, now: Instant) -> bool {
        let link = self.port().filter(|_| !self.is_in_transition()).map(Port::link);
        let link = link.unwrap_or_default();
        let mut changed = self.note_link(link);
        if self.next_read.is_none_or(|at| now >= at) {
            self.next_read = Some(now + COUNTER_INTERVAL);
            self.count();
            self.stalls.observe(self.index as u8, context.region, usize::from(self.lcores));
            changed = true;
        }
        let state = self.state.take();
        let before = self.published.state;
        self.state = state.map(|state| match state {
            State::Running(port) => self.withdraw_if_faulty(port, link, context, now),
            State::Withdrawing(port, fault) if context.exchange.is_withdrawn(self.index) => {
                self.repair(port, fault, context, now)
            }
            State::Withdrawing(port, fault) => State::Withdrawing(port, fault),
            State::Removed(due) if now >= due => self.open_again(context, now),
            State::Removed(due) => State::Removed(due),
        });
        if changed || self.published.state != before {
            self.published.updated_ms = context.region.now_ms();
            context.region.nics().publish(self.index, &self.published);
        }
        link.up && matches!(self.state, Some(State::Running(_)))
    }

    /// Publishes the counters a last time before the process ends.
    pub fn publish_final(&mut self, region: &Region) {
        self.count();
        self.published.updated_ms = region.now_ms();
        region.nics().publish(self.index, &self.published);
    }

    /// Records the link, and returns true if it changed.
    fn note_link(&mut self, link: Link) -> bool {
        let was_up = self.published.link_up;
        let running = self.published.state == NicState::Running;
        if was_up && !link.up && running {
            self.published.events.link_losses += 1;
            self.log("link down");
        } else if !was_up && link.up && self.published.events.link_losses > 0 && running {
            self.log("link up");
        }
        let changed = was_up != link.up || self.published.speed_mbps != link.speed_mbps;
        (self.published.link_up, self.published.speed_mbps) = (link.up, link.speed_mbps);
        changed
    }

    /// Adds what the driver counted since the last read.
    fn count(&mut self) {
        match self.state.take() {
            Some(State::Running(port)) => {
                self.count_port(&port);
                self.state = Some(State::Running(port));
            }
            // A NIC that is being taken from the lcores is counted before it is repaired.
            other => self.state = other,
        }
    }

    /// Adds what the driver of an open port counted since the last read. A device that is gone has
    /// no counters.
    fn count_port(&mut self, port: &Port) {
        let read = port.stats().map(counters_of).and_then(|now| Ok((now, port.xstats()?)));
        if let Ok((now, xstats)) = read {
            self.published.counters = self.published.counters.advanced(self.counted, now);
            self.published.xstats = xstats;
            self.counted = now;
        }
    }

    /// Takes a running NIC from the lcores if it is faulty.
    fn withdraw_if_faulty(
        &mut self,
        mut port: Port,
        link: Link,
        context: &Context<'_>,
        now: Instant,
    ) -> State {
        let events = port.take_events();
        let stalled = self.stalls.take() && link.up && self.may_reset_stalled(now);
        let fault = match events {
            PortEvents { removed: true, .. } => Fault::Removal,
            PortEvents { reset: true, .. } => Fault::Reset,
            _ if stalled => Fault::Stall,
            _ => return State::Running(port),
        };
        let events = &mut self.published.events;
        match fault {
            Fault::Removal => {
                events.removals += 1;
                self.published.state = NicState::Removed;
            }
            Fault::Reset => {
                events.resets += 1;
                self.published.state = NicState::Resetting;
            }
            Fault::Stall => {
                events.send_stalls += 1;
                self.last_stall_reset = Some(now);
                self.published.state = NicState::Resetting;
            }
        }
        self.published.detail = fault.text().to_owned();
        self.log(fault.text());
        context.exchange.withdraw(self.index);
        State::Withdrawing(port, fault)
    }

    fn may_reset_stalled(&self, now: Instant) -> bool {
        self.last_stall_reset.is_none_or(|last| now - last >= STALL_RESET_INTERVAL)
    }

    /// Repairs a NIC that no lcore uses any more. A NIC that cannot be repaired is opened again.
    fn repair(
        &mut self,
        mut port: Port,
        fault: Fault,
        context: &Context<'_>,
        now: Instant,
    ) -> State {
        // Each read from a device that is gone returns ones.
        if self.target.is_present() {
            self.count_port(&port);
        }
        if fault != Fault::Removal {
            match reset(&mut port).and_then(|()| self.restart(&mut port, context)) {
                Ok(()) => {
                    self.log("works again after a reset");
                    return State::Running(port);
                }
                Err(error) => self.log(&format!("cannot be reset, will be opened again: {error}")),
            }
        }
        if let Err(error) = port.remove() {
            self.log(&format!("cannot be removed cleanly: {error}"));
        }
        self.published.state = NicState::Removed;
        self.published.link_up = false;
        State::Removed(now)
    }

    /// Tries to open a NIC that is gone.
    fn open_again(&mut self, context: &Context<'_>, now: Instant) -> State {
        if !self.target.is_present() {
            return State::Removed(now + RETRY_INTERVAL);
        }
        match self.try_open(context) {
            Ok(port) => {
                self.published.events.returns += 1;
                self.last_error = None;
                self.log("works again");
                State::Running(port)
            }
            Err(error) => {
                self.published.events.failures += 1;
                if self.last_error.as_ref() != Some(&error) {
                    self.log(&format!("cannot be opened, trying each second: {error}"));
                    self.published.detail = error.clone();
                    self.last_error = Some(error);
                }
                State::Removed(now + RETRY_INTERVAL)
            }
        }
    }

    fn try_open(&mut self, context: &Context<'_>) -> Result<Port, String> {
        self.target.bind_again(self.mac)?;
        self.target.probe(context.eal).map_err(|error| error.to_string())?;
        let opened = self.target.open(context.eal).and_then(|port| Ok((port.mac()?, port)));
        let (mac, mut port) = opened.map_err(|error| error.to_string())?;
        let outcome = if mac == self.mac {
            self.restart(&mut port, context).map_err(|error| error.to_string())
        } else {
            Err(format!(
                "it has the MAC address {} instead of {}: another NIC; restart fastpath to use it",
                MacAddress(mac),
                MacAddress(self.mac)
            ))
        };
        match outcome {
            Ok(()) => Ok(port),
            Err(error) => {
                // The device is opened again by the next attempt.
                let _ = port.remove();
                Err(error)
            }
        }
    }

    /// Configures and starts a port, and gives its queues to the lcores.
    fn restart(&mut self, port: &mut Port, context: &Context<'_>) -> Result<(), PortError> {
        let queues = start(port, &self.settings, context.pool, self.lcores)?;
        port.take_events();
        context.exchange.offer(self.index, queues);
        self.record_started_port(port);
        Ok(())
    }

    fn record_start(&mut self) {
        if let Some(State::Running(mut port)) = self.state.take() {
            self.record_started_port(&mut port);
            self.state = Some(State::Running(port));
        }
    }

    /// Records a started port: its counters begin anew.
    fn record_started_port(&mut self, port: &mut Port) {
        self.counted = match port.reset_counters() {
            true => NicCounters::default(),
            false => port.stats().map(counters_of).unwrap_or_default(),
        };
        self.stalls = StallDetector::default();
        self.published.state = NicState::Running;
        self.published.detail.clear();
        self.published.mac = self.mac;
        self.published.rx_queues = self.settings.queues;
        self.published.port = port.name().to_owned();
        self.published.driver = port.driver().unwrap_or_default();
    }

    fn log(&self, note: &str) {
        let (arm, device) = (self.arm, self.device());
        tracing::warn!(event = "nic_note", arm, device, note, "NIC note");
    }
}

/// Configures and starts a port. Returns the queues of each lcore: a transmit queue for each, and
/// the receive queues for the first ones.
fn start(
    port: &mut Port,
    settings: &Arm,
    pool: &Mempool,
    lcores: u16,
) -> Result<Vec<ArmQueues>, PortError> {
    let driver = host::driver::by_name(&port.driver()?);
    port.configure(&PortOptions {
        rx_queues: settings.queues,
        tx_queues: lcores,
        rx_ring: settings.rx_descriptors,
        tx_ring: settings.tx_descriptors,
        mtu: Some(settings.mtu),
        rss: settings.queues > 1,
        fast_free: driver.is_some_and(rules::frees_fast),
        pool,
    })?;
    // Neighbor discovery needs multicast. Drivers that receive all frames anyway may reject the
    // call.
    let _ = port.set_all_multicast(true);
    let queues = port.start()?;
    let sends_chains = port.sends_chains();
    let mut rx = queues.rx.into_iter();
    let of_lcore = |tx| ArmQueues { rx: rx.next(), tx: Some(tx), sends_chains };
    Ok(queues.tx.into_iter().map(of_lcore).collect())
}

/// Stops a port that no lcore uses and resets its device. Drivers without a reset are only stopped:
/// configuring and starting them sets up their queues anew.
fn reset(port: &mut Port) -> Result<(), PortError> {
    /// The error number `EOPNOTSUPP` of Linux.
    const NOT_SUPPORTED: i32 = 95;
    port.stop()?;
    match port.reset() {
        Err(PortError::Failed { errno, .. }) if errno.0 == NOT_SUPPORTED => Ok(()),
        outcome => outcome,
    }
}

fn counters_of(counted: PortCounters) -> NicCounters {
    NicCounters {
        received: counted.ipackets,
        sent: counted.opackets,
        received_bytes: counted.ibytes,
        sent_bytes: counted.obytes,
        missed: counted.imissed,
        receive_errors: counted.ierrors,
        send_errors: counted.oerrors,
        no_buffer: counted.rx_nombuf,
    }
}
