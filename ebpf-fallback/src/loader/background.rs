//! Background work of lcores, for all CPUs: status records, commands, link states, reports of path
//! MTUs, and the expiry of flows and scopes.
//!
//! Programs run only for packets, so the loader does this work for them, and keeps the status
//! record of each CPU up to date. Without a loader, packets are still forwarded, but slowpath
//! considers the data plane stopped.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tables::capture::TraceReport;
use tables::command::{Command, Event, TraceFilter};
use tables::counters::{Counter, LcorePage};
use tables::flow::Flows;
use tables::lcore::LcoreStatus;
use tables::record::Timeouts;
use tables::region::Region;
use tables::ring::{Consumer, Producer, SharedSlots};
use tables::scope::Scopes;

use super::counters::Counters;
use super::nic::{Kernel, Nic};

/// Time between two iterations, which is the maximum latency of commands. Commits do not depend on
/// it: they wait for an RCU grace period of the kernel instead of the lcores' acknowledgments.
pub const INTERVAL: Duration = Duration::from_millis(10);
/// Interval of checking links and learned path MTUs.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of iterations in which each flow is examined once: at least one second.
const SWEEP_ITERATIONS: u32 = 100;
/// Number of iterations in which each scope is examined once: at least 32 seconds.
const SCOPE_ITERATIONS: u32 = 3200;

/// The status record and control rings of one CPU.
struct CpuRings<'r> {
    /// Number of the CPU.
    number: u32,
    status: &'r LcoreStatus,
    commands: Option<Consumer<SharedSlots<'r>>>,
    events: Option<Producer<SharedSlots<'r>>>,
}

/// State of the background work.
pub struct BackgroundTask<'r> {
    region: &'r Region,
    cpus: Vec<CpuRings<'r>>,
    flows: Flows<'r>,
    /// The next flow to examine.
    cursor: u32,
    scopes: Scopes<'r>,
    /// The next scope to examine.
    scope_cursor: u32,
    /// Number of iterations, saturating.
    iterations: u32,
    /// Counter page of the loader itself, so that each page has one writer.
    page: LcorePage<'r>,
    generation: u32,
    checked_at: Option<Instant>,
    /// Path MTUs at the last check, by next hop.
    mtus: Vec<u32>,
    counters: Counters,
    /// The last command to trace that was not taken.
    trace: Option<TraceFilter>,
}

impl<'r> BackgroundTask<'r> {
    /// Registers these CPUs as lcores of the region. The region's last lcore number is the
    /// loader's; CPUs from that number on are skipped. Returns `None` if the region has no lcores.
    pub fn join(
        region: &'r Region,
        epoch: u32,
        cpu_ids: &[u32],
        counters: Counters,
    ) -> Option<BackgroundTask<'r>> {
        let loader_index = region.sizes().lcores.checked_sub(1)?;
        let mut cpus = Vec::new();
        for cpu in cpu_ids.iter().filter(|cpu| **cpu < loader_index) {
            let status = region.lcores().get(*cpu as usize)?;
            status.join(region, epoch, *cpu);
            let commands = SharedSlots::commands(region, *cpu).map(Consumer::attach);
            let events = SharedSlots::events(region, *cpu).map(Producer::attach);
            cpus.push(CpuRings { number: *cpu, status, commands, events });
        }
        let flows = Flows::new(region).as_owner(loader_index as u8, epoch);
        let (page, generation) = (region.counters().lcore(loader_index)?, region.generation());
        let mtus = path_mtus(region).collect();
        let (cursor, checked_at) = (0, None);
        let (scopes, scope_cursor, iterations) = (Scopes::new(region), 0, 0);
        Some(BackgroundTask {
            region,
            cpus,
            flows,
            cursor,
            scopes,
            scope_cursor,
            iterations,
            page,
            generation,
            checked_at,
            mtus,
            counters,
            trace: None,
        })
    }

    /// Performs one iteration: polls the rings of all CPUs, sweeps a share of the flows and scopes,
    /// and every `CHECK_INTERVAL` publishes link states and reports path MTUs.
    pub fn run_once(&mut self, kernel: &mut Kernel, nics: &[Nic], now: Instant) {
        let generation = self.region.generation();
        for cpu in &mut self.cpus {
            // All CPUs get the same commands.
            self.trace = cpu.poll(self.region, generation, &self.page).or(self.trace);
        }
        if generation != self.generation {
            self.generation = generation;
            self.page.count(Counter::TableSwitches, self.cpus.len() as u64);
        }
        self.sweep();
        if self.checked_at.is_none_or(|at| now >= at + CHECK_INTERVAL) {
            self.checked_at = Some(now);
            let links: Vec<bool> = nics.iter().map(|nic| kernel.is_running(nic.index)).collect();
            for (arm, up) in links.iter().enumerate() {
                self.cpus.iter().for_each(|cpu| cpu.status.set_link(arm, *up));
            }
            self.counters.publish(self.region, kernel, nics, &links, now);
            self.report_path_mtus();
        }
    }

    /// Takes the last command to trace.
    pub fn take_trace(&mut self) -> Option<TraceFilter> {
        self.trace.take()
    }

    /// Sends the report of a traced packet to slowpath through the ring of its CPU.
    pub fn send_trace(&mut self, report: &TraceReport) {
        let of_packet = |cpu: &&mut CpuRings<'_>| cpu.number == u32::from(report.lcore);
        if let Some(cpu) = self.cpus.iter_mut().find(of_packet) {
            let words = report.state().words();
            let event = Event::TraceStage { packet: report.packet, stage: report.stage, words };
            cpu.send_event(&event, &self.page);
        }
    }

    /// Sends an event to slowpath through the ring of the first CPU; if that is full, the event is
    /// lost and counted.
    pub fn send_event(&mut self, event: &Event) {
        if let Some(cpu) = self.cpus.first_mut() {
            cpu.send_event(event, &self.page);
        }
    }

    /// Reports path MTUs that have changed or become known.
    fn report_path_mtus(&mut self) {
        for (next_hop, now) in (0..).zip(path_mtus(self.region)) {
            let before = std::mem::replace(&mut self.mtus[next_hop as usize], now);
            if now != 0 && now != before {
                self.send_event(&Event::PathMtu { next_hop, mtu: now as u16 });
            }
        }
    }

    /// Examines a share of the flows and ends the idle ones. After eight passes over all flows, in
    /// which each flow has marked its scope as used, also examines a share of the scopes and
    /// releases the unused ones.
    fn sweep(&mut self) {
        let (page, timeouts) = (self.page, timeouts(self.region));
        let share = self.flows.capacity().div_ceil(SWEEP_ITERATIONS);
        let now_s = self.region.now_s();
        self.flows.sweep(&mut self.cursor, share, 0, 1, now_s, &timeouts, |flow| {
            page.flow_ended(flow.forward.service, flow.forward.backend);
        });
        self.iterations = self.iterations.saturating_add(1);
        if self.iterations > 8 * SWEEP_ITERATIONS {
            let cells = self.scopes.cells().div_ceil(SCOPE_ITERATIONS);
            let idle_for_s = timeouts.longest_s();
            self.scopes.release_idle(&mut self.scope_cursor, cells, now_s, idle_for_s);
        }
    }
}

impl CpuRings<'_> {
    /// Updates the status, acknowledges the current generation and processes all pending commands.
    /// Returns the last command to trace.
    fn poll(
        &mut self,
        region: &Region,
        generation: u32,
        page: &LcorePage<'_>,
    ) -> Option<TraceFilter> {
        let mut trace = None;
        self.status.count_iteration();
        self.status.note_polled(region.now_ms());
        // The header is authoritative for the generation, whichever one a command contains;
        // programs read the header as well.
        let switched = self.status.acknowledged() != generation;
        self.status.acknowledge(generation);
        while let Some(message) = self.commands.as_mut().and_then(Consumer::pop) {
            match Command::decode(&message) {
                // Handled by the acknowledgment above.
                Ok(Command::Switch { .. }) => {}
                Ok(Command::Trace(filter)) => trace = Some(filter),
                // Draining only fails health checks, in slowpath.
                Ok(Command::Drain(_)) | Err(_) => {}
            }
        }
        if switched {
            self.send_event(&Event::Switched { generation }, page);
        }
        trace
    }

    fn send_event(&mut self, event: &Event, page: &LcorePage<'_>) {
        let sent = self.events.as_mut().is_some_and(|events| events.push(&event.encode()));
        page.count(Counter::EventsLost, u64::from(!sent));
    }
}

impl Drop for BackgroundTask<'_> {
    fn drop(&mut self) {
        self.cpus.iter().for_each(|cpu| cpu.status.leave());
    }
}

/// Returns the learned path MTU of each next hop in bytes; 0 if none is learned.
fn path_mtus(region: &Region) -> impl Iterator<Item = u32> {
    let cells = (0..region.sizes().next_hops).filter_map(|id| region.path_mtu(id));
    cells.map(|cell| cell.load(Ordering::Relaxed))
}

/// Returns the current timeouts. The next commit may reuse this generation's memory; if one
/// happened during the read, reads again.
fn timeouts(region: &Region) -> Timeouts {
    loop {
        let generation = region.generation();
        let timeouts = region.tables(generation).settings().timeouts;
        if region.generation() == generation {
            return timeouts;
        }
    }
}
