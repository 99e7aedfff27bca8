//! Any bytes for the API: requests and their bodies: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| api::harness::requests(bytes));
