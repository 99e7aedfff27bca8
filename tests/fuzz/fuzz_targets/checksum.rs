//! Any bytes for `packet::checksum`: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::checksum::harness(&mut bytes.to_vec()));
