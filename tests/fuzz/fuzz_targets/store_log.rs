//! Fuzzes `state::store` with arbitrary bytes as the store's log; its harness checks the
//! invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| state::store::harness::harness(bytes));
