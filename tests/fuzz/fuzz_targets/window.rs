//! Fuzzes `packet::window` with arbitrary bytes; its harness checks the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::window::harness(&mut bytes.to_vec()));
