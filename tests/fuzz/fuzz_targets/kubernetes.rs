//! Any bytes for `state::kubernetes`: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| state::harness::kubernetes(bytes));
