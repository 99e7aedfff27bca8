//! Any bytes for `packet::ip`: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::ip::harness(&mut bytes.to_vec()));
