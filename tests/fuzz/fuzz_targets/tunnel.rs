//! Any bytes for `packet::tunnel`: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::tunnel::harness(&mut bytes.to_vec()));
