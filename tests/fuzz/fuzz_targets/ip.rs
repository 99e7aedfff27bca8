//! Fuzzes `packet::ip` with arbitrary bytes; `packet::ip::harness` checks the invariants of the
//! parsed headers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::ip::harness(&mut bytes.to_vec()));
