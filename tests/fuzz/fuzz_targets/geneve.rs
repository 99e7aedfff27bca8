//! Fuzzes `packet::geneve` with arbitrary bytes; its harness checks the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::geneve::harness(&mut bytes.to_vec()));
