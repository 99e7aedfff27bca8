//! Fuzzes `bfd` with arbitrary bytes as one packet, and as packets with times for the state
//! machine; its harness checks the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    bfd::harness::packet(bytes);
    bfd::harness::machine(bytes);
});
