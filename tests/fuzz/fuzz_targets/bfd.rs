//! Any bytes for `bfd`, as one packet and as several; its harness checks the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    bfd::harness::packet(bytes);
    bfd::harness::machine(bytes);
});
