//! Packet traces, at most one at a time: the lcores report the stages of matching packets as
//! events, and each event becomes a line of the response.

mod request;

pub use request::TraceRequest;

use std::collections::HashSet;
use std::time::Instant;

use tables::command::{Command, Decision, Stage, TraceExit, TraceFilter, TraceState};
use tables::record::NONE;
use tokio::sync::mpsc;

use crate::control::report::TraceLine;
use crate::plane::published::PublishedService;
use state::text::ARMS;
use state::text::address_port;

struct RunningTrace {
    lines: mpsc::Sender<TraceLine>,
    until: Instant,
    /// Requested number of packets.
    limit: usize,
    /// Packets whose last stage was reported, by lcore and sequence number.
    completed: HashSet<(u32, u32)>,
}

/// The running trace, if any.
#[derive(Default)]
pub struct Tracer {
    running: Option<RunningTrace>,
}

impl Tracer {
    /// Starts a trace. Returns the command for all lcores.
    pub fn begin(&mut self, request: TraceRequest, now: Instant) -> Command {
        self.running = Some(RunningTrace {
            lines: request.lines,
            until: now + request.duration,
            limit: request.filter.count as usize,
            completed: HashSet::new(),
        });
        Command::Trace(request.filter)
    }

    /// Sends the line for a stage of a packet, as reported by an lcore. `words` encode the packet's
    /// [`TraceState`]; `services` are the published services, for names.
    pub fn record_stage(
        &mut self,
        lcore: u32,
        packet: u32,
        stage: u8,
        words: [u64; 5],
        services: &[PublishedService],
    ) {
        let Some(running) = &mut self.running else { return };
        let state = TraceState::read(words);
        // Each lcore reports up to the requested number of packets, so together they may report
        // more.
        let number = (lcore, packet);
        if running.completed.len() >= running.limit || running.completed.contains(&number) {
            return;
        }
        let stage = Stage::from_u8(stage).ok_or(stage);
        let name = stage.map_or_else(|number| number.to_string(), |stage| stage.name().into());
        let last = stage.is_ok_and(|stage| stage == Stage::LAST)
            || stage.is_err()
            || state.decision() == Some(Decision::Drop);
        let result = describe(&state, stage.unwrap_or(Stage::LAST), services);
        let line = TraceLine { lcore, packet, stage: name, result, last };
        // Lines are dropped if the client reads too slowly; the control loop must not wait.
        let _ = running.lines.try_send(line);
        if last {
            running.completed.insert(number);
        }
    }

    /// Ends the trace if it is complete, timed out, or its client has disconnected. Returns the
    /// command that ends it on all lcores.
    pub fn end_if_over(&mut self, now: Instant) -> Option<Command> {
        let running = self.running.as_ref()?;
        let over = now >= running.until
            || running.completed.len() >= running.limit
            || running.lines.is_closed();
        if !over {
            return None;
        }
        self.running = None;
        Some(Command::Trace(TraceFilter { count: 0, ..TraceFilter::default() }))
    }
}

/// Returns the text for the state of a packet after `stage`.
fn describe(state: &TraceState, stage: Stage, services: &[PublishedService]) -> String {
    if state.decision() == Some(Decision::Drop) {
        return state.reason().map_or_else(
            || format!("dropped, unknown reason {}", state.reason),
            |reason| format!("dropped as {}: {}", reason.name(), reason.help()),
        );
    }
    match stage {
        Stage::Parse => format!("received on {}", arm(state.arm)),
        Stage::Decap => {
            let (bytes, from, to) = (state.bytes, state.sport, state.dport);
            let scope = match state.scope {
                0 => "plain".to_owned(),
                scope => format!("in a tunnel, scope {scope}"),
            };
            format!("{scope}, {bytes} bytes of IP, port {from} to {to}")
        }
        Stage::Classify if state.hash == 0 => "no flow key".to_owned(),
        Stage::Classify if state.service == NONE => {
            format!("flow key with hash {:016x}", state.hash)
        }
        Stage::Classify => {
            format!("{}, hash {:016x}", service(state.service, services), state.hash)
        }
        Stage::Track if state.has_flow => {
            format!("flow entry: {}", backend(state.backend, services))
        }
        Stage::Track => "no flow entry".to_owned(),
        Stage::Select => {
            format!("{} for {}", backend(state.backend, services), service(state.service, services))
        }
        Stage::Encap => format!("{}, {}", decision(state), exit(state)),
    }
}

fn decision(state: &TraceState) -> String {
    let name = state.decision().map(|decision| decision.name().to_owned());
    name.unwrap_or_else(|| format!("verdict {}", state.decision))
}

fn exit(state: &TraceState) -> String {
    match TraceExit::from_u8(state.exit) {
        Some(exit @ (TraceExit::Port | TraceExit::Kernel)) => {
            format!("{} {}", exit.name(), arm(state.exit_arm))
        }
        Some(TraceExit::NoExit) | None => TraceExit::NoExit.name().to_owned(),
    }
}

fn service(id: u32, services: &[PublishedService]) -> String {
    if id == NONE {
        return "no service".to_owned();
    }
    let found = services.iter().find(|service| service.ids.contains(&id));
    found.map_or_else(
        || format!("service {id}"),
        |service| format!("service {}", service.service.name),
    )
}

fn backend(id: u32, services: &[PublishedService]) -> String {
    if id == NONE {
        return "no backend".to_owned();
    }
    let mut found =
        services.iter().flat_map(|s| &s.backends).filter(|(_, backend_id)| *backend_id == id);
    found.next().map_or_else(
        || format!("backend {id}"),
        |(b, _)| {
            let endpoint = &b.endpoint;
            format!("backend {}", address_port(&endpoint.addr.to_string(), endpoint.port))
        },
    )
}

fn arm(number: u8) -> &'static str {
    ARMS.get(usize::from(number)).copied().unwrap_or("an unknown arm")
}

#[cfg(test)]
mod tests;
