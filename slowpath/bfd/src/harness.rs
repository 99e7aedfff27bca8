//! Whatever bytes come, these things hold. The harness of the property tests and of
//! `tests/fuzz/fuzz_targets/bfd.rs`.

use std::time::{Duration, Instant};

use crate::machine::Machine;
use crate::packet::{LENGTH, Packet};
use crate::settings::Settings;

/// A packet that is read says the same when it is written, and is read the same again.
pub fn packet(bytes: &[u8]) {
    if let Ok(packet) = Packet::parse(bytes) {
        let again = packet.emit();
        assert_eq!(Packet::parse(&again), Ok(packet));
        assert_eq!((&again[..3], &again[4..]), (&bytes[..3], &bytes[4..LENGTH]));
    }
}

/// Packets at any time, each behind a byte that says how much of it passes before: a poll is
/// answered and nothing else is, and the machine always knows when to look again.
pub fn machine(bytes: &[u8]) {
    let begun = Instant::now();
    let mut machine = Machine::new(Settings::default(), 1, bytes.len() as u64, begun);
    let mut now = begun;
    for piece in bytes.chunks(1 + LENGTH) {
        now += Duration::from_micros(1 << (piece[0] % 23));
        machine.tick(now);
        packet(&piece[1..]);
        if let Ok(packet) = Packet::parse(&piece[1..]) {
            // Nobody holds it down.
            let output = machine.hear(&packet, now).unwrap_or_default();
            assert_eq!(output.send.is_some_and(|sent| sent.last), packet.poll);
        }
        assert!(machine.next_due().is_none_or(|due| due >= begun));
    }
}
