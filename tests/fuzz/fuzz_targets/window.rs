//! Any bytes for `packet::window`: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::window::harness(&mut bytes.to_vec()));
