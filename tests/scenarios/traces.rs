//! Runs every case while all packets are traced, on the pipeline in memory and on the XDP programs:
//! a trace changes no packet and no counter, and both planes report the same decisions.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    pub mod comparable_cases;
    pub mod differences;
    pub mod loaded;
    pub mod memory;
    pub mod xdp;
}

use planes::comparable_cases::run_all;
use planes::memory::Memory;
use planes::xdp::{Xdp, namespace};
use std::collections::BTreeMap;
use std::error::Error;
use tables::capture::TraceReport;
use tables::command::{Decision, Event, Stage, TraceExit, TraceFilter, TraceState};
use tables::ring::{Consumer, SharedSlots};
use tests::cases::{Change, Counts, Exit, Plane, Setup};

/// States of a packet by the number of the stage.
type States = BTreeMap<u8, TraceState>;

/// A plane that traces all packets.
trait Traces {
    /// Begins the trace on the plane, whose tables were just loaded.
    fn begin(&mut self);

    /// Returns the reports since the last call: number of the packet, stage and state.
    fn take(&mut self) -> Vec<(u32, u8, TraceState)>;
}

fn all() -> TraceFilter {
    TraceFilter { count: u32::MAX, ..TraceFilter::default() }
}

impl Traces for Memory {
    fn begin(&mut self) {
        self.loaded().lcore.control().trace.borrow_mut().start(all());
    }

    fn take(&mut self) -> Vec<(u32, u8, TraceState)> {
        let events = SharedSlots::events(self.loaded().region, 0).expect("the lcore's ring");
        let mut events = Consumer::attach(events);
        let mut reports = Vec::new();
        while let Some(message) = events.pop() {
            if let Ok(Event::TraceStage { packet, stage, words }) = Event::decode(&message) {
                reports.push((packet, stage, TraceState::read(words)));
            }
        }
        reports
    }
}

impl Traces for Xdp {
    fn begin(&mut self) {
        let program = self.program();
        program.set_trace(&all()).expect("maps for traces");
        program.take_captured(|_, _| {}, |_| {});
    }

    fn take(&mut self) -> Vec<(u32, u8, TraceState)> {
        let mut reports = Vec::new();
        let traced = |report: &TraceReport| {
            reports.push((report.packet, report.stage, report.state()));
        };
        self.program().take_captured(|_, _| {}, traced);
        reports
    }
}

/// A plane that traces, and the states of each packet of a case.
struct Traced<P> {
    plane: P,
    packets: Vec<States>,
}

impl<P: Plane + Traces> Traced<P> {
    /// Takes the reports of one packet, in the order of the stages.
    fn note(&mut self, sent: Vec<(Exit, Vec<u8>)>) -> Vec<(Exit, Vec<u8>)> {
        let reports = self.plane.take();
        let Some((first, ..)) = reports.first() else { panic!("no report of a packet") };
        assert!(reports.iter().all(|(packet, ..)| packet == first), "{reports:?}");
        assert!(reports.is_sorted_by(|(_, a, _), (_, b, _)| a < b), "{reports:?}");
        let states: States = reports.into_iter().map(|(_, stage, state)| (stage, state)).collect();
        let last = states.get(&(Stage::LAST as u8)).expect("the last stage");
        let exit = TraceExit::from_u8(last.exit).expect("an exit");
        if let Some((left, _)) = sent.first() {
            let expected = match left {
                Exit::Port(arm) => (TraceExit::Port, *arm),
                Exit::Kernel(arm) => (TraceExit::Kernel, *arm),
            };
            assert_eq!((exit, last.exit_arm), expected, "{last:?}");
        }
        self.packets.push(states);
        sent
    }
}

impl<P: Plane + Traces> Plane for Traced<P> {
    fn name(&self) -> &str {
        self.plane.name()
    }

    fn load(&mut self, setup: &Setup) {
        self.plane.load(setup);
        self.plane.begin();
        self.packets.clear();
    }

    fn change(&mut self, change: &Change) {
        self.plane.change(change);
    }

    fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        let sent = self.plane.send(arm, frame);
        self.note(sent)
    }

    fn send_split(&mut self, arm: u8, frame: &[u8], first: usize) -> Vec<(Exit, Vec<u8>)> {
        let sent = self.plane.send_split(arm, frame, first);
        self.note(sent)
    }

    fn kernel_sends(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        let sent = self.plane.kernel_sends(arm, frame);
        self.note(sent)
    }

    fn advance_s(&mut self, seconds: u32) {
        self.plane.advance_s(seconds);
    }

    fn counts(&self) -> Counts {
        self.plane.counts()
    }
}

/// Returns what `weir trace` shows of a state after a stage, without hashes, which differ by the
/// region's key, and without the numbers of scopes, which the tables assign.
fn shown(stage: u8, state: &TraceState) -> String {
    let stage = Stage::from_u8(stage).expect("a stage");
    let (service, backend) = (state.service, state.backend);
    let decision = state.decision().map_or("?", |decision| decision.name());
    let reason = state.reason().map_or("-", |reason| reason.name());
    let text = match stage {
        _ if reason != "-" => String::new(),
        Stage::Parse => format!("arm {}", state.arm),
        Stage::Decap => {
            let (is_scoped, bytes) = (state.scope != 0, state.bytes);
            format!("scoped {is_scoped}, {bytes} bytes, {} to {}", state.sport, state.dport)
        }
        Stage::Classify => format!("key {}", state.hash != 0),
        Stage::Track => format!("flow {}", state.has_flow),
        Stage::Select => format!("service {service}, backend {backend}"),
        Stage::Encap => format!("{service} {backend} exit {} {}", state.exit, state.exit_arm),
    };
    let decision = if stage == Stage::LAST { decision } else { "" };
    format!("{} {text} {decision} {reason}", stage.name())
}

/// Returns the known difference between the states of a packet after a stage: programs count a
/// probe as `tunnel`, and find a new backend for a flow in the stage in which they end it.
fn known_difference(
    stage: u8,
    in_memory: &TraceState,
    with_xdp: &TraceState,
) -> Option<&'static str> {
    let decisions = (in_memory.decision(), with_xdp.decision());
    if decisions == (Some(Decision::Probe), Some(Decision::Tunnel)) {
        return Some("probe");
    }
    let is_moved = in_memory.has_flow && !with_xdp.has_flow && stage == Stage::Track as u8;
    is_moved.then_some("moved flow")
}

#[test]
fn every_case_passes_while_it_is_traced_and_both_planes_report_the_same()
-> Result<(), Box<dyn Error>> {
    let mut traced = Traced { plane: Memory::new(), packets: Vec::new() };
    let in_memory = run_all(&mut traced, |plane| plane.packets.clone());
    let namespace = namespace("traces-xdp")?;
    let with_xdp = namespace.run(|| {
        let mut traced = Traced { plane: Xdp::new(), packets: Vec::new() };
        run_all(&mut traced, |plane| plane.packets.clone())
    })?;
    let mut differing = Vec::new();
    let (mut stages, mut known) = (BTreeMap::<u8, u32>::new(), BTreeMap::<_, u32>::new());
    for (claim, packets) in &with_xdp {
        let (_, expected) = in_memory.iter().find(|(other, _)| other == claim).expect("the case");
        assert_eq!(packets.len(), expected.len(), "{claim}");
        for (states, expected) in packets.iter().zip(expected) {
            for (stage, state) in states {
                *stages.entry(*stage).or_default() += 1;
                let Some(expected) = expected.get(stage) else { panic!("{claim}: {stage}") };
                let (expected_text, found) = (shown(*stage, expected), shown(*stage, state));
                if expected_text == found {
                    continue;
                }
                match known_difference(*stage, expected, state) {
                    Some(kind) => *known.entry(kind).or_default() += 1,
                    None => differing.push(format!("{claim}\n  {expected_text}\n  {found}")),
                }
            }
        }
    }
    // Each is rare, or it would hide other differences.
    assert!(known.len() == 2 && known.values().all(|count| *count <= 5), "{known:?}");
    // Programs skip stages that a packet does not need.
    assert!(stages.len() == 5 && stages.values().all(|count| *count > 50), "{stages:?}");
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
    Ok(())
}
