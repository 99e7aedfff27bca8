//! Fuzzes the API with arbitrary bytes as requests and their bodies; its harness checks the
//! invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    api::harness::requests(bytes);
});
