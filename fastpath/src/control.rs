//! Between two bursts: commands from slowpath are read, tables switched, events told.

use crate::snapshot::Snapshot;
use crate::trace::Trace;
use std::cell::{Cell, RefCell};
use tables::addresses::Addresses;
use tables::command::{Command, Event};
use tables::lcore::LcoreStatus;
use tables::region::Region;
use tables::ring::{Consumer, Producer, SharedSlots};
use tables::set::TableSet;

/// Next hops whose neighbour was asked for in the running second; more wait for the next one.
const WANTED: usize = 16;

/// The lcore's end of the control rings, and what it reads by.
pub struct Control<'r> {
    region: &'r Region,
    status: &'r LcoreStatus,
    commands: Option<Consumer<SharedSlots<'r>>>,
    events: RefCell<Option<Producer<SharedSlots<'r>>>>,
    set: TableSet<'r>,
    snapshot: Snapshot,
    /// The running trace.
    pub trace: RefCell<Trace>,
    wanted: RefCell<Vec<u32>>,
    lost_events: Cell<u64>,
    switches: Cell<u64>,
}

impl<'r> Control<'r> {
    /// Joins the region as lcore `index`: from now on no commit reuses what this lcore reads.
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
            wanted: RefCell::new(Vec::with_capacity(WANTED)),
            lost_events: Cell::new(0),
            switches: Cell::new(0),
        }
    }

    /// This lcore's status line.
    #[inline(always)]
    pub fn status(&self) -> &'r LcoreStatus {
        self.status
    }

    /// The table set of this turn.
    #[inline(always)]
    pub fn set(&self) -> &TableSet<'r> {
        &self.set
    }

    /// Tunnels and settings of this turn.
    #[inline(always)]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// One look at the command ring; a switch takes effect before the next burst.
    #[inline(always)]
    pub fn turn(&mut self) {
        self.status.turn();
        // One command a turn: what is left in the ring waits for the next, a microsecond away.
        let Some(message) = self.commands.as_mut().and_then(Consumer::pop) else { return };
        match Command::decode(&message) {
            Ok(Command::Switch { .. }) => self.switch(),
            Ok(Command::Trace(filter)) => self.trace.get_mut().start(filter),
            // A drain changes nothing for the packets of today's modes, and what is no command was
            // not written by a slowpath of this version.
            Ok(Command::Drain(_)) | Err(_) => {}
        }
    }

    /// Takes over the committed generation, whichever a command named: the header is the truth.
    fn switch(&mut self) {
        let generation = self.region.generation();
        self.set = self.region.tables(generation);
        self.snapshot.refill(&self.set);
        add_frontends(self.region, &self.set);
        self.status.acknowledge(generation);
        self.switches.set(self.switches.get() + 1);
        self.tell(Event::Switched { generation });
    }

    /// A new second: neighbours may be asked for again, and a switch whose command was lost (a
    /// killed slowpath, a full ring) is caught up with.
    pub fn second(&mut self) {
        self.wanted.get_mut().clear();
        if self.set.generation() != self.region.generation() {
            self.switch();
        }
    }

    /// Tells slowpath something; when the ring is full it is lost, and counted.
    pub fn tell(&self, event: Event) {
        let told = self.events.borrow_mut().as_mut().is_some_and(|e| e.push(&event.encode()));
        if !told {
            self.lost_events.set(self.lost_events.get() + 1);
        }
    }

    /// Asks for the neighbour of a next hop, once a second.
    pub fn want_neighbour(&self, next_hop: u32) {
        let mut wanted = self.wanted.borrow_mut();
        if wanted.len() < WANTED && !wanted.contains(&next_hop) {
            wanted.push(next_hop);
            self.tell(Event::NeighbourWanted { next_hop });
        }
    }

    /// True while a trace runs, or its last packets are still between stages.
    #[inline(always)]
    pub fn tracing(&self) -> bool {
        self.trace.borrow().is_on()
    }

    /// Events that found the ring full since this was last asked.
    pub fn take_lost_events(&self) -> u64 {
        self.lost_events.take()
    }

    /// Table sets taken over since this was last asked.
    pub fn take_switches(&self) -> u64 {
        self.switches.take()
    }
}

/// Adds the addresses of frontends to the filter of flows' addresses, before a flow to one of them
/// can begin. So a packet from such an address is looked up even if its flow begins in the same
/// burst, after the filter was read.
fn add_frontends(region: &Region, set: &TableSet<'_>) {
    if let Some(frontends) = set.acquaintances() {
        Addresses::of_flows(region).add_all(&frontends);
    }
}

impl Drop for Control<'_> {
    fn drop(&mut self) {
        self.status.leave();
    }
}

#[cfg(test)]
mod tests;
