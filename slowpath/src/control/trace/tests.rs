//! Tests of the tracer: the line of each stage, and when a trace ends.

use std::time::Duration;

use super::*;
use tables::reason::DropReason;

fn words(decision: Decision, reason: u8, exit: TraceExit) -> [u64; 5] {
    let state = TraceState {
        decision: decision as u8,
        reason,
        exit: exit as u8,
        exit_arm: 1,
        has_flow: true,
        service: NONE,
        backend: NONE,
        scope: 3,
        bytes: 60,
        hash: 7,
        sport: 40_001,
        dport: 80,
        ..TraceState::default()
    };
    state.words()
}

fn start(count: u32) -> (Tracer, mpsc::Receiver<TraceLine>, Instant) {
    let (lines, received) = mpsc::channel(16);
    let (mut tracer, now) = (Tracer::default(), Instant::now());
    let filter = TraceFilter { count, ..TraceFilter::default() };
    let duration = Duration::from_secs(5);
    tracer.begin(TraceRequest { filter, duration, lines }, now);
    (tracer, received, now)
}

#[test]
fn traces_a_packet_stage_by_stage_and_ends_after_it() {
    let (mut tracer, mut received, now) = start(1);
    let services = [];
    let undecided = words(Decision::Undecided, 0, TraceExit::NoExit);
    let sent = words(Decision::Nat, 0, TraceExit::Port);
    tracer.record_stage(0, 1, Stage::Decap as u8, undecided, &services);
    tracer.record_stage(0, 1, Stage::Classify as u8, undecided, &services);
    assert_eq!(tracer.end_if_over(now), None);
    tracer.record_stage(0, 1, Stage::Encap as u8, sent, &services);
    tracer.record_stage(1, 1, Stage::Encap as u8, sent, &services);
    assert!(matches!(tracer.end_if_over(now), Some(Command::Trace(TraceFilter { count: 0, .. }))));
    let mut lines = Vec::new();
    while let Some(line) = received.blocking_recv() {
        lines.push(format!("{} {}", line.stage, line.result));
    }
    assert_eq!(
        lines,
        [
            "decap in a tunnel, scope 3, 60 bytes of IP, port 40001 to 80",
            "classify flow key with hash 0000000000000007",
            "encap nat, sent on egress",
        ]
    );
}

#[test]
fn a_dropped_packet_counts_as_completed_and_its_line_has_the_reason() {
    let (mut tracer, mut received, now) = start(1);
    let reason = DropReason::NoBackend;
    let words = words(Decision::Drop, reason as u8, TraceExit::NoExit);
    tracer.record_stage(0, 1, Stage::Select as u8, words, &[]);
    assert!(tracer.end_if_over(now).is_some());
    let line = received.blocking_recv().unwrap();
    assert!(line.result.contains("no_backend") && line.result.contains(reason.help()));
}

#[test]
fn a_trace_ends_at_its_timeout_or_when_its_reader_closes() {
    let (mut tracer, received, now) = start(2);
    assert_eq!(tracer.end_if_over(now), None);
    assert!(tracer.end_if_over(now + Duration::from_secs(5)).is_some());
    drop(received);
    let (mut tracer, received, now) = start(2);
    drop(received);
    assert!(tracer.end_if_over(now).is_some());
}

#[test]
fn invalid_trace_events_do_not_panic() {
    for stage in 0..=u8::MAX {
        let (mut tracer, mut received, _) = start(2);
        for (packet, words) in [(1, [u64::MAX; 5]), (2, [0xff09, 0, 0, 0, 0])] {
            tracer.record_stage(0, packet, stage, words, &[]);
            assert!(received.try_recv().is_ok_and(|line| !line.result.is_empty()));
        }
    }
}
