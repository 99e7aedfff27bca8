//! What a traced packet looks like to a person.

use super::*;

fn words(verdict: u64, reason: u64, exit: u64) -> [u64; 5] {
    [
        verdict | reason << 8 | exit << 16 | 1 << 32,
        u64::from(NONE) << 32 | u64::from(NONE),
        3 << 32 | 60,
        7,
        40_001 << 16 | 80,
    ]
}

fn start(count: u32) -> (Tracer, mpsc::Receiver<TraceLine>, Instant) {
    let (lines, taken) = mpsc::channel(16);
    let (mut tracer, now) = (Tracer::default(), Instant::now());
    let filter = TraceFilter { count, ..TraceFilter::default() };
    let lasts = Duration::from_secs(5);
    tracer.begin(TraceRequest { filter, lasts, lines }, now);
    (tracer, taken, now)
}

#[test]
fn a_packet_is_told_stage_by_stage_and_the_trace_ends_after_it() {
    let (mut tracer, mut taken, now) = start(1);
    let known = Published::default();
    tracer.stage(0, 1, 1, words(0, 0, 0), &known);
    tracer.stage(0, 1, 2, words(0, 0, 0), &known);
    assert_eq!(tracer.ended(now), None);
    tracer.stage(0, 1, 5, words(2, 0, 0x101), &known);
    tracer.stage(1, 1, 5, words(2, 0, 0x101), &known);
    assert!(matches!(tracer.ended(now), Some(Command::Trace(TraceFilter { count: 0, .. }))));
    let mut lines = Vec::new();
    while let Some(line) = taken.blocking_recv() {
        lines.push(format!("{} {}", line.stage, line.said));
    }
    assert_eq!(
        lines,
        [
            "decap in a tunnel, scope 3, 60 bytes of IP, port 40001 to 80",
            "classify flow key with hash 0000000000000007",
            "encap nat, out of egress",
        ]
    );
}

#[test]
fn a_drop_ends_the_packet_and_says_its_reason() {
    let (mut tracer, mut taken, now) = start(1);
    let reason = DropReason::NoBackend;
    tracer.stage(0, 1, 4, words(u64::from(DROP), reason as u64, 0), &Published::default());
    assert!(tracer.ended(now).is_some());
    let line = taken.blocking_recv().unwrap();
    assert!(line.said.contains("no-backend") && line.said.contains(reason.help()));
}

#[test]
fn a_trace_ends_with_its_time_or_its_listener() {
    let (mut tracer, taken, now) = start(2);
    assert_eq!(tracer.ended(now), None);
    assert!(tracer.ended(now + Duration::from_secs(5)).is_some());
    drop(taken);
    let (mut tracer, taken, now) = start(2);
    drop(taken);
    assert!(tracer.ended(now).is_some());
}

#[test]
fn words_of_a_broken_fastpath_are_told_without_panic() {
    for stage in 0..=u8::MAX {
        let seen = Seen::read([u64::MAX; 5]);
        seen.said(stage, &Published::default());
        Seen::read([0x0909, 0, 0, 0, 0]).said(stage, &Published::default());
    }
}
