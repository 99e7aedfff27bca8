//! Any bytes for `state::store`: the store's log: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| state::store::harness::harness(bytes));
