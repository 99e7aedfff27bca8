//! Any bytes for `packet::ip`: its harness checks the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::ip::harness(&mut bytes.to_vec()));
