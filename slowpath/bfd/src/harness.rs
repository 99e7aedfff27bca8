//! Harness that checks invariants on arbitrary input, for the property tests and
//! `tests/fuzz/fuzz_targets/bfd.rs`.

use std::time::{Duration, Instant};

use crate::machine::Machine;
use crate::packet::{LENGTH, Packet};
use crate::settings::Settings;

/// Checks that a packet that parses is encoded to the same bytes, except for the length field, and
/// that these bytes parse to the same packet.
pub fn packet(bytes: &[u8]) {
    if let Ok(packet) = Packet::parse(bytes) {
        let again = packet.emit();
        assert_eq!(Packet::parse(&again), Ok(packet));
        assert_eq!((&again[..3], &again[4..]), (&bytes[..3], &bytes[4..LENGTH]));
    }
}

/// Feeds packets to the state machine, each preceded by a byte for the time that passes before it.
/// Checks that exactly the packets with P set get a response with F set, and that the deadline is
/// not before the start.
pub fn machine(bytes: &[u8]) {
    let start = Instant::now();
    let mut machine = Machine::new(Settings::default(), 1, bytes.len() as u64, start);
    let mut now = start;
    for piece in bytes.chunks(1 + LENGTH) {
        now += Duration::from_micros(1 << (piece[0] % 23));
        machine.tick(now);
        packet(&piece[1..]);
        if let Ok(packet) = Packet::parse(&piece[1..]) {
            // Fails only for a session in AdminDown, which this one never is.
            let output = machine.receive(&packet, now).unwrap_or_default();
            assert_eq!(output.send.is_some_and(|sent| sent.final_bit), packet.poll);
        }
        assert!(machine.next_due().is_none_or(|due| due >= start));
    }
}
