//! Fuzzes `state::object` with arbitrary bytes as the JSON of an object; its harness checks the
//! invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| state::harness::object(bytes));
