//! One trace at a time: the lcores are asked to report some packets, and their events become lines.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tables::command::{Command, TraceFilter};
use tables::reason::DropReason;
use tables::record::NONE;
use tokio::sync::mpsc;

use crate::lcores::ARMS;
use crate::live::Published;
use crate::report::{TraceLine, address_port};

/// Stages by number, in the order of the fastpath's pipeline.
const STAGES: [&str; 6] = ["parse", "decap", "classify", "track", "select", "encap"];
/// The last of them.
const LAST: u8 = 5;
/// Verdicts by number, as the fastpath counts them.
const VERDICTS: [&str; 10] =
    ["undecided", "return", "nat", "tunnel", "answer", "punt", "reply", "forward", "probe", "drop"];
const DROP: u8 = 9;

/// A wish to follow packets.
pub struct TraceRequest {
    /// Which, and how many.
    pub filter: TraceFilter,
    /// For how long at most.
    pub lasts: Duration,
    /// Where the lines go; closed by whoever asked when they went away.
    pub lines: mpsc::Sender<TraceLine>,
}

struct Running {
    lines: mpsc::Sender<TraceLine>,
    until: Instant,
    wanted: usize,
    through: HashSet<(u32, u32)>,
}

/// The trace that runs, if one does.
#[derive(Default)]
pub struct Tracer {
    running: Option<Running>,
}

impl Tracer {
    /// Begins; the command is for all lcores.
    pub fn begin(&mut self, request: TraceRequest, now: Instant) -> Command {
        self.running = Some(Running {
            lines: request.lines,
            until: now + request.lasts,
            wanted: request.filter.count as usize,
            through: HashSet::new(),
        });
        Command::Trace(request.filter)
    }

    /// An lcore reports a stage of a packet.
    pub fn stage(
        &mut self,
        lcore: u32,
        packet: u32,
        stage: u8,
        words: [u64; 5],
        known: &Published,
    ) {
        let Some(running) = &mut self.running else { return };
        let seen = Seen::read(words);
        // Packets beyond those asked for: another lcore counts for itself.
        let this = (lcore, packet);
        if running.through.len() >= running.wanted || running.through.contains(&this) {
            return;
        }
        let name =
            STAGES.get(usize::from(stage)).map_or_else(|| stage.to_string(), |s| (*s).into());
        let last = stage >= LAST || seen.verdict == DROP;
        let line = TraceLine { lcore, packet, stage: name, said: seen.said(stage, known), last };
        // A reader that is too slow loses lines, the loop does not wait.
        let _ = running.lines.try_send(line);
        if last {
            running.through.insert(this);
        }
    }

    /// Ends the trace when it is through, over time, or nobody listens any more. The command, for
    /// all lcores, ends it there.
    pub fn ended(&mut self, now: Instant) -> Option<Command> {
        let running = self.running.as_ref()?;
        let over = now >= running.until
            || running.through.len() >= running.wanted
            || running.lines.is_closed();
        if !over {
            return None;
        }
        self.running = None;
        Some(Command::Trace(TraceFilter { count: 0, ..TraceFilter::default() }))
    }
}

/// What an lcore knew of a packet after a stage: the words of `fastpath/src/trace.rs`.
struct Seen {
    verdict: u8,
    reason: u8,
    exit: u8,
    exit_arm: u8,
    known: bool,
    arm: u8,
    service: u32,
    backend: u32,
    scope: u32,
    bytes: u32,
    hash: u64,
    ports: (u16, u16),
}

impl Seen {
    fn read([first, ids, size, hash, ports]: [u64; 5]) -> Seen {
        Seen {
            verdict: first as u8,
            reason: (first >> 8) as u8,
            exit: (first >> 16) as u8,
            exit_arm: (first >> 24) as u8,
            known: first >> 32 & 1 != 0,
            arm: (first >> 40) as u8,
            service: (ids >> 32) as u32,
            backend: ids as u32,
            scope: (size >> 32) as u32,
            bytes: size as u32,
            hash,
            ports: ((ports >> 16) as u16, ports as u16),
        }
    }

    fn said(&self, stage: u8, known: &Published) -> String {
        if self.verdict == DROP {
            let reason = DropReason::ALL.get(usize::from(self.reason));
            return reason.map_or_else(
                || format!("dropped for reason {}", self.reason),
                |reason| format!("dropped as {}: {}", reason.name(), reason.help()),
            );
        }
        match stage {
            0 => format!("came in by {}", arm(self.arm)),
            1 => {
                let (bytes, (from, to)) = (self.bytes, self.ports);
                let scope = match self.scope {
                    0 => "plain".to_owned(),
                    scope => format!("in a tunnel, scope {scope}"),
                };
                format!("{scope}, {bytes} bytes of IP, port {from} to {to}")
            }
            2 if self.hash == 0 => "no flow key".to_owned(),
            2 if self.service == NONE => format!("flow key with hash {:016x}", self.hash),
            2 => format!("{}, hash {:016x}", self.service(known), self.hash),
            3 if self.known => format!("known flow: {}", self.backend(known)),
            3 => "no flow yet".to_owned(),
            4 => format!("{} for {}", self.backend(known), self.service(known)),
            _ => format!("{}, {}", self.verdict(), self.exit()),
        }
    }

    fn verdict(&self) -> String {
        let name = VERDICTS.get(usize::from(self.verdict));
        name.map_or_else(|| format!("verdict {}", self.verdict), |name| (*name).to_owned())
    }

    fn exit(&self) -> String {
        match self.exit {
            1 => format!("out of {}", arm(self.exit_arm)),
            2 => format!("to the kernel by {}", arm(self.exit_arm)),
            _ => "going nowhere".to_owned(),
        }
    }

    fn service(&self, known: &Published) -> String {
        if self.service == NONE {
            return "no service".to_owned();
        }
        let found = known.services.iter().find(|service| service.id == self.service);
        found.map_or_else(
            || format!("service {}", self.service),
            |service| format!("service {}", service.service.name),
        )
    }

    fn backend(&self, known: &Published) -> String {
        if self.backend == NONE {
            return "no backend".to_owned();
        }
        let all = known.services.iter().flat_map(|s| s.backend_ids.iter().zip(&s.service.backends));
        let mut found = all.filter(|(id, _)| **id == self.backend);
        found.next().map_or_else(
            || format!("backend {}", self.backend),
            |(_, b)| format!("backend {}", address_port(&b.addr.to_string(), b.port)),
        )
    }
}

fn arm(number: u8) -> &'static str {
    ARMS.get(usize::from(number)).copied().unwrap_or("an unknown arm")
}

#[cfg(test)]
mod tests;
