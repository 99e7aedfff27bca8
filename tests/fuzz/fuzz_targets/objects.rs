//! Any bytes for `state::object`: the JSON of an object: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| state::harness::object(bytes));
