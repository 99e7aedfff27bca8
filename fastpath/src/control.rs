//! Communication with slowpath between two bursts: commands, table switches, events.

use crate::snapshot::Snapshot;
use crate::trace::Trace;
use std::cell::{Cell, RefCell};
use tables::address_filter::AddressFilter;
use tables::command::{Command, Event};
use tables::lcore::LcoreStatus;
use tables::region::Region;
use tables::ring::{Consumer, Producer, SharedSlots};
use tables::set::TableSet;

/// The maximum number of neighbors that an lcore requests per second. Further requests in the same
/// second are discarded; a later packet to the next hop repeats them.
const MAX_NEIGHBOR_REQUESTS: usize = 16;

/// An lcore's end of the control rings, and the tables that it currently uses.
pub struct Control<'r> {
    region: &'r Region,
    status: &'r LcoreStatus,
    commands: Option<Consumer<SharedSlots<'r>>>,
    events: RefCell<Option<Producer<SharedSlots<'r>>>>,
    set: TableSet<'r>,
    snapshot: Snapshot,
    /// The current trace.
    pub trace: RefCell<Trace>,
    /// Next hops whose neighbors were requested in this second.
    requested: RefCell<Vec<u32>>,
    /// Number of events lost since the last [`Control::take_lost_events`].
    lost_events: Cell<u64>,
    /// Number of table switches since the last [`Control::take_switches`].
    switches: Cell<u64>,
}

impl<'r> Control<'r> {
    /// Joins the region as lcore `index`. From now on no commit reuses records that this lcore
    /// reads.
    pub fn join(region: &'r Region, status: &'r LcoreStatus, index: u32, epoch: u32) -> Self {
        let generation = status.join(region, epoch, index);
        let set = region.tables(generation);
        let mut snapshot = Snapshot::empty();
        snapshot.refill(&set);
        add_frontends(region, &set);
        Control {
            region,
            status,
            commands: SharedSlots::commands(region, index).map(Consumer::attach),
            events: RefCell::new(SharedSlots::events(region, index).map(Producer::attach)),
            set,
            snapshot,
            trace: RefCell::new(Trace::default()),
            requested: RefCell::new(Vec::with_capacity(MAX_NEIGHBOR_REQUESTS)),
            lost_events: Cell::new(0),
            switches: Cell::new(0),
        }
    }

    /// Returns this lcore's status record in the region.
    #[inline(always)]
    pub fn status(&self) -> &'r LcoreStatus {
        self.status
    }

    /// Returns the table set of this iteration.
    #[inline(always)]
    pub fn set(&self) -> &TableSet<'r> {
        &self.set
    }

    /// Returns the tunnels and settings of this iteration.
    #[inline(always)]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Counts an iteration of the poll loop, and processes at most one command. A table switch
    /// takes effect before the next burst.
    #[inline(always)]
    pub fn process_command(&mut self) {
        self.status.count_iteration();
        // One command per iteration: the rest of the ring waits for the next one, a microsecond
        // later.
        let Some(message) = self.commands.as_mut().and_then(Consumer::pop) else { return };
        match Command::decode(&message) {
            Ok(Command::Switch { .. }) => self.switch(),
            Ok(Command::Trace(filter)) => self.trace.get_mut().start(filter),
            // A drain changes nothing for packets in the current modes. An undecodable command was
            // written by another version of slowpath.
            Ok(Command::Drain(_)) | Err(_) => {}
        }
    }

    /// Switches to the committed generation, which the region's header determines and not the
    /// command, acknowledges it, and reports the switch to slowpath.
    fn switch(&mut self) {
        let generation = self.region.generation();
        self.set = self.region.tables(generation);
        self.snapshot.refill(&self.set);
        add_frontends(self.region, &self.set);
        self.status.acknowledge(generation);
        self.switches.set(self.switches.get() + 1);
        self.send_event(Event::Switched { generation });
    }

    /// Runs once per second: allows neighbor requests again, and performs a switch whose command
    /// was lost (slowpath was killed, the ring was full).
    pub fn run_each_second(&mut self) {
        self.requested.get_mut().clear();
        if self.set.generation() != self.region.generation() {
            self.switch();
        }
    }

    /// Sends an event to slowpath. If the ring is full, the event is lost and counted.
    pub fn send_event(&self, event: Event) {
        let sent = self.events.borrow_mut().as_mut().is_some_and(|e| e.push(&event.encode()));
        if !sent {
            self.lost_events.set(self.lost_events.get() + 1);
        }
    }

    /// Requests the neighbor of a next hop, at most once per second, unless this second's limit of
    /// requests is reached.
    pub fn request_neighbor(&self, next_hop: u32) {
        let mut requested = self.requested.borrow_mut();
        if requested.len() < MAX_NEIGHBOR_REQUESTS && !requested.contains(&next_hop) {
            requested.push(next_hop);
            self.send_event(Event::NextHopNeeded { next_hop });
        }
    }

    /// Returns true while a trace runs or its last packets are in the pipeline.
    #[inline(always)]
    pub fn is_tracing(&self) -> bool {
        self.trace.borrow().is_on()
    }

    /// Returns the number of events lost since the last call.
    pub fn take_lost_events(&self) -> u64 {
        self.lost_events.take()
    }

    /// Returns the number of table switches since the last call.
    pub fn take_switches(&self) -> u64 {
        self.switches.take()
    }
}

/// Adds the addresses of frontends to the filter of flows' addresses, before a flow to them can
/// begin. A packet from such an address is then looked up even if its flow begins in the same
/// burst, after the filter was read.
fn add_frontends(region: &Region, set: &TableSet<'_>) {
    if let Some(frontends) = set.address_filter() {
        AddressFilter::of_flows(region).merge(&frontends);
    }
}

impl Drop for Control<'_> {
    fn drop(&mut self) {
        self.status.leave();
    }
}

#[cfg(test)]
mod tests;
