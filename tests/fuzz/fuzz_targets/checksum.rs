//! Fuzzes `packet::checksum` with arbitrary bytes; its harness checks the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::checksum::harness(&mut bytes.to_vec()));
