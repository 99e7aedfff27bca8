//! Any bytes for `packet::translate`: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::translate::harness(&mut bytes.to_vec()));
