//! Fuzzes `state::kubernetes` with arbitrary bytes; its harness checks the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| state::harness::kubernetes(bytes));
