//! Any bytes for `packet::geneve`: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::geneve::harness(&mut bytes.to_vec()));
